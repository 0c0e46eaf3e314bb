#!/usr/bin/env python3
"""The picture of the chat page in the README: three answers that run at once and share pages of the KV cache.

    python3 tools/page_picture.py [build/demo/kuiper_server [docs/pictures/page.png]]

Needs Selenium, Pillow, Chromium and its driver. The answers are those of the bundled model. It writes thousands of
tokens a second, so the server is stopped for most of the time, and while the picture is taken.
"""
import io
import pathlib
import signal
import sys
import tempfile
import threading
import time

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "demo"))
from page_test import Page  # noqa: E402
from served import Server, post  # noqa: E402

MODEL = ROOT / "demo" / "models" / "tiny-qwen3"
FIRST, SECOND = "What is a paged KV cache?", "Tell me a story about Kuiper."
OTHERS = ("What are the five guarantees?", "What is Kuiper?")
WIDTH, HEIGHT, SCALE = 1000, 660, 1.2


class Slow:
    """Within `with` the server runs for 2 of every 50 milliseconds, and not at all after stop()."""

    def __init__(self, process):
        self.process, self.stopped = process, threading.Event()
        self.thread = threading.Thread(target=self.pulse)

    def pulse(self):
        while not self.stopped.is_set():
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.002)
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.048)

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.stop()
        self.process.send_signal(signal.SIGCONT)


def ask(url, messages):
    post(url + "/v1/chat/completions", {"temperature": 0, "messages": messages})


def converse(page, server):
    run = page.driver.execute_script
    run("settings.temperature = 0;")
    page.find("#show-pages").click()
    page.say(FIRST)
    page.wait(lambda: len(page.all("#messages > li")) == 2 and page.is_idle(), "a first answer")
    page.button(1, "Verify")
    page.wait(lambda: page.find("#messages [role=status]").text.startswith("identical"), "it is verified")
    # Two more clients continue the same conversation, so all three answers share the pages of its beginning.
    begun = run("return messagesOf(current.messages);")
    others = [threading.Thread(target=ask, args=(server.url, [*begun, {"role": "user", "content": question}]))
              for question in OTHERS]
    run("const draw = drawPages; window.drawn = null; drawPages = (kv) => { window.drawn = kv; draw(kv); };")
    with Slow(server.process) as slow:
        page.say(SECOND)
        page.wait(lambda: run("return drawn?.sequences.length === 1;"), "the page's answer runs")
        for other in others:
            other.start()
        page.wait(lambda: run("return drawn.sequences.length === 3 && current.messages.at(-1).content.length > 150;"),
                  "three answers run")
        slow.stop()
        picture = page.driver.get_screenshot_as_png()
    for other in others:
        other.join()
    page.wait(page.is_idle, "they end")
    return picture


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "demo" / "kuiper_server"
    output = sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs" / "pictures" / "page.png"
    with tempfile.TemporaryDirectory() as scratch:
        with Server(program, MODEL, scratch, "--max-context", "1024", "--num-blocks", "141", name=MODEL.name) as server:
            page = Page(server.url, None, str(pathlib.Path(scratch) / "profile"))
            try:
                page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                    "width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False})
                picture = converse(page, server)
            finally:
                page.driver.quit()
    picture = Image.open(io.BytesIO(picture)).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(output, optimize=True)


if __name__ == "__main__":
    main()
