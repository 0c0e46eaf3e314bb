"""Two servers behind SGLang's router, which sends each turn of a conversation where the ones before it are cached.

    python3 test/demo/router_test.py SERVER MODEL

Ends with 77 (skipped) where the package sglang-router is not installed.
"""
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from served import Server, cached_tokens, post

if importlib.util.find_spec("sglang_router") is None:
    print("skipped: sglang-router is not installed")
    sys.exit(77)

NUM_CHATS, PAGE = 6, 4


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Router:
    def __init__(self, scratch, *workers):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(scratch, "router.log"), "w+", encoding="utf-8")
        # The port of its own metrics must be free as well.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--policy",
             "cache_aware", "--prometheus-port", str(free_port()), "--worker-urls", *workers],
            stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/readiness").close()
                return self
            except OSError:
                time.sleep(0.1)
        self.log.seek(0)
        raise TimeoutError("the router does not become ready:\n" + self.log.read())

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGKILL)  # it waits long for connections that idle
        self.process.wait(timeout=60)
        self.log.close()


def chat(url, messages, **fields):
    return post(url + "/v1/chat/completions", {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 24,
                                               "chat_template_kwargs": {"enable_thinking": False}, **fields})


def requests_of(server):
    """How many answers the server gave."""
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith("kuiper:request_success_total")]
    return sum(float(line.split()[-1]) for line in lines)


def check(servers, router):
    chats = [[{"role": "user", "content": f"{'Count to %d. ' % i * 8}What is {i} + 3?"}] for i in range(NUM_CHATS)]
    known = [0] * NUM_CHATS  # tokens of the last prompt
    for _ in range(3):
        for i, messages in enumerate(chats):
            answer = chat(router.url, messages)
            # The template ends a prompt in another way than it writes the answer in the next one.
            assert cached_tokens(answer) >= known[i] - 3 * PAGE, (i, cached_tokens(answer), known)
            known[i] = answer["usage"]["prompt_tokens"]
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            messages.append({"role": "user", "content": "And 4 + 1?"})
    print("ok: each turn finds the pages of those before it")
    shares = [requests_of(server) for server in servers]
    assert sum(shares) == 3 * NUM_CHATS, shares
    print("ok: answers of the servers:", shares)
    stream = urllib.request.Request(router.url + "/v1/chat/completions", json.dumps({
        "model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 5}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(stream, timeout=120) as response:
        assert response.read().decode().endswith("data: [DONE]\n\n")
    text = post(router.url + "/v1/completions", {"model": "tiny", "prompt": "The red", "max_tokens": 5})
    assert text["choices"][0]["finish_reason"] in ("length", "stop"), text
    print("ok: streams and completions pass")
    try:
        chat(router.url, chats[0][:1], no_stop_trim=True)
        raise AssertionError("a bad request passed")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and json.load(error)["error"]["param"] == "no_stop_trim"
    print("ok: errors pass as they are")


def main():
    program, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        options = (program, model, scratch, "--block-size", str(PAGE))
        with Server(*options) as first, Server(*options) as second:
            with Router(scratch, first.url, second.url) as router:
                check((first, second), router)


if __name__ == "__main__":
    main()
