"""The chat page of kuiper_server in a real browser: a conversation, its controls, the map of pages.

    python3 test/demo/page_test.py SERVER MODEL [FOLDER FOR SCREENSHOTS]

Ends with 77 (skipped) where Selenium, Chromium or its driver are not installed. What axe-core finds is
looked at where a package that carries it is: axe-selenium-python, axe-core-python or axe-playwright-python.
"""
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.parse

from served import Server

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    print("skipped: chromium or chromedriver is not installed")
    sys.exit(77)


class Page:
    def __init__(self, url, folder, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        # The sandbox of the browser cannot be had in most containers.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--user-data-dir=" + profile, "--window-size=1200,900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.url, self.folder = url, folder
        self.driver.get(url)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, what):
        WebDriverWait(self.driver, 60, poll_frequency=0.1).until(lambda _: condition(), what)
        print("ok:", what)

    def say(self, text):
        self.find("#input").send_keys(text, Keys.ENTER)

    def is_idle(self):
        return self.find("#send").is_displayed()

    def button(self, message, name):
        node = self.all("#messages > li")[message]
        next(b for b in node.find_elements(By.TAG_NAME, "button") if b.text == name).click()

    def shoot(self, name):
        if self.folder:
            self.driver.save_screenshot(os.path.join(self.folder, name + ".png"))

    def hosts(self):
        """Of all requests that the page made."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urllib.parse.urlsplit(message["params"]["request"]["url"])
                if not url.scheme.startswith("chrome"):  # the browser's own first page
                    found.add(url.netloc)
        return found - {""}


def converse(page):
    page.wait(lambda: page.find("#model").text == "tiny", "the page knows the model")
    page.say("What is 2 + 3?")
    page.wait(lambda: len(page.all("#messages > li")) == 2 and page.is_idle(), "an answer comes")
    first = page.all("#messages .assistant .body")[0].text
    assert first, "the answer is empty"
    assert "tokens in" in page.find("#messages .assistant .tools").text
    page.say("And 4 + 1?")
    page.wait(lambda: len(page.all("#messages > li")) == 4 and page.is_idle(), "a second turn")
    page.button(3, "Regenerate")
    page.wait(lambda: len(page.all("#messages > li")) == 4 and page.is_idle(), "it can be generated again")
    page.button(2, "Edit")
    assert len(page.all("#messages > li")) == 2
    assert page.find("#input").get_attribute("value") == "And 4 + 1?"
    page.find("#input").clear()
    page.driver.refresh()
    page.wait(lambda: len(page.all("#messages > li")) == 2, "the browser keeps the conversation")
    assert page.all("#messages .assistant .body")[0].text == first


def verify(page):
    def result(message):
        return page.all("#messages > li")[message].find_element(By.CSS_SELECTOR, "[role=status]").text

    def verified(message, begin):
        return lambda: result(message).startswith(begin)

    page.find("#new").click()
    page.say("What is 3 + 4?")
    page.wait(lambda: len(page.all("#messages > li")) == 2 and page.is_idle(), "an answer to verify")
    page.button(1, "Verify")
    page.wait(verified(1, "identical: "), "an answer is identical without pages")
    num_ids = page.driver.execute_script("return current.messages[1].ids.length")
    assert result(1) == f"identical: {num_ids} tokens, logits equal", result(1)
    page.shoot("verify")
    page.say("And 1 + 1?")
    page.wait(lambda: len(page.all("#messages > li")) == 4 and page.is_idle(), "a second answer to verify")
    page.driver.execute_script("current.messages[3].ids[1] += 1")
    # By the keyboard alone.
    node = page.all("#messages > li")[3]
    control = next(b for b in node.find_elements(By.TAG_NAME, "button") if b.text == "Verify")
    page.driver.execute_script("arguments[0].previousSibling.focus()", control)
    page.driver.switch_to.active_element.send_keys(Keys.TAB)
    assert page.driver.switch_to.active_element == control
    control.send_keys(Keys.ENTER)
    page.wait(verified(3, "different from token 1 on: id is "), "an id that was changed is found")
    page.driver.execute_script("current.messages[3].ids[1] -= 1; save()")
    page.driver.refresh()
    page.wait(lambda: len(page.all("#messages > li")) == 4, "the browser keeps it")
    page.button(3, "Verify")
    page.wait(verified(3, "identical: "), "answers can be verified after the page was loaded again")


def markdown(page):
    text = ("# Head\n\nSome **bold** `code` <img src=x onerror=\"document.title='broken'\">\n\n- a\n- b\n\n| x | y |\n|---|---|\n"
            "| 1 | 2 |\n\n```py\nreturn \"<b>\"\n```\n")
    chat = {"messages": [{"role": "user", "content": "m"}, {"role": "assistant", "content": text, "reasoning_content": "why"}]}
    page.driver.execute_script("importChats(arguments[0])", json.dumps(chat))
    body = page.all("#messages .assistant .body")[0]
    for selector in ("h2", "strong", "code", "ul li", "table td", "pre code .word", "details summary"):
        assert body.find_elements(By.CSS_SELECTOR, selector), selector
    assert not body.find_elements(By.CSS_SELECTOR, "img, b"), "what a model says became HTML"
    assert page.driver.title == "Kuiper"
    print("ok: markdown becomes nodes, HTML stays text")


def pages_and_stop(page):
    page.find("#show-settings").click()
    field = page.find("[name=max_tokens]")
    field.send_keys("4000", Keys.TAB)
    page.find("[name=temperature]").send_keys("1.9", Keys.TAB)
    page.find("#show-settings").click()
    page.find("#show-pages").click()
    page.wait(lambda: "in use" in page.find("#page-text").text, "the map of pages is there")
    page.find("#new").click()
    page.driver.execute_script("const old = bodyOf; bodyOf = (chat) => ({...old(chat), ignore_eos: true});")
    page.say("Count")
    page.wait(lambda: page.find("#page-table").text.startswith("Block table"), "it shows the answer's own pages")
    page.shoot("pages")
    page.find("body").send_keys(Keys.ESCAPE)
    page.wait(page.is_idle, "Escape stops an answer")
    page.wait(lambda: page.find("#page-table").text == "", "its pages are given back")
    shared_pages(page)
    page.find("#show-pages").click()


def shared_pages(page):
    """A page of the answer that others share has both colours."""
    above, below, other = page.driver.execute_script("""
        running = {id: "mine"};
        drawPages({paged: true, blocks: "su", prefix_cache: {}, sequences: [{request: "mine", pages: [1, 2]}]});
        running = null;
        const map = $("page-map"), size = map.height;  // one row
        const pixel = (x, y) => map.getContext("2d").getImageData(x, y, 1, 1).data.join();
        return [pixel(2, 2), pixel(2, size - 3), pixel(size + 2, 2)];""")
    assert above != below == other, (above, below, other)
    print("ok: pages that an answer shares are told from those that it has alone")


def axe_core():
    """The text of the axe-core that a Python package carries; "" where none does."""
    for name in ("axe_selenium_python", "axe_core_python", "axe_playwright_python"):
        spec = importlib.util.find_spec(name)
        for folder in spec.submodule_search_locations if spec else ():
            for path in sorted(pathlib.Path(folder).rglob("axe.min.js")):
                return path.read_text(encoding="utf-8")
    return ""


def barriers(page, axe):
    """What axe-core calls a serious or critical barrier for people, and where."""
    page.driver.execute_script(axe)
    result = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}, (error, found) => done(error ? "
        "{error: String(error)} : found));")
    assert "violations" in result, result
    return [(v["id"], [node["html"] + ": " + str(node.get("failureSummary")) for node in v["nodes"]])
            for v in result["violations"] if v["impact"] in ("serious", "critical")]


def sizes(page, state, axe):
    for width, height in ((1200, 900), (800, 600), (360, 640)):
        page.driver.set_window_size(width, height)
        for theme in ("light", "dark"):
            page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                        {"features": [{"name": "prefers-color-scheme", "value": theme}]})
            page.shoot(f"{state}-{width}-{theme}")
            overflow = page.driver.execute_script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0, f"{width} pixels are too few by {overflow}"
            found = barriers(page, axe) if axe else []
            assert not found, (state, width, theme, found)
    page.driver.set_window_size(1200, 900)
    print("ok: three sizes and two themes," if axe else "ok, without axe-core:", state)


def all_sizes(page):
    axe = axe_core()
    if axe:  # it finds what is wrong
        page.driver.execute_script("document.body.append(Object.assign(new Image(), {id: 'wrong', src: 'data:,'}));")
        assert "image-alt" in [rule for rule, _ in barriers(page, axe)]
        page.driver.execute_script("document.getElementById('wrong').remove();")
    sizes(page, "conversation", axe)
    for button in ("#show-settings", "#show-pages"):
        page.find(button).click()
        sizes(page, button.removeprefix("#show-"), axe)
        page.find(button).click()
    page.find("#new").click()
    sizes(page, "empty", axe)


def pictures(page, url, picture):
    page.driver.get(url)
    page.wait(lambda: page.find("#attach").is_displayed(), "a model that sees takes pictures")
    page.find("#picture").send_keys(picture)
    page.wait(lambda: page.all("#attached img"), "a picture waits")
    page.find("#attached button").click()
    page.wait(lambda: not page.all("#attached img"), "it can be taken away")
    page.find("#picture").send_keys(picture)
    page.wait(lambda: page.all("#attached img"), "another one waits")
    page.find("#show-settings").click()
    page.find("[name=temperature]").send_keys("0", Keys.TAB)
    page.find("#show-settings").click()
    page.say("What color is it?")
    page.wait(lambda: len(page.all("#messages > li")) == 2 and page.is_idle(), "an answer about it")
    assert page.find("#messages .assistant .body").text == "red", page.find("#messages .assistant .body").text
    page.shoot("picture")
    page.driver.refresh()
    page.wait(lambda: page.all("#messages .user img"), "the browser keeps the picture")


def check(url, seeing_url, picture, folder, profile):
    page = Page(url, folder, profile)
    try:
        converse(page)
        markdown(page)
        verify(page)
        all_sizes(page)
        pages_and_stop(page)
        pictures(page, seeing_url, picture)
        errors = [e for e in page.driver.get_log("browser") if e["level"] == "SEVERE"]
        assert not errors, errors
        hosts = page.hosts()
        assert hosts == {urllib.parse.urlsplit(u).netloc for u in (url, seeing_url)}, hosts
        print("ok: no errors, no other host")
    finally:
        page.driver.quit()


def main():
    program, model = sys.argv[1:3]
    folder = sys.argv[3] if len(sys.argv) > 3 else None
    seeing = os.path.join(os.path.dirname(os.path.abspath(model)), "tiny-qwen3-vl")
    picture = os.path.join(seeing, "samples", "circle.png")
    with tempfile.TemporaryDirectory() as scratch:
        with Server(program, model, scratch) as server, Server(program, seeing, scratch) as seeing_server:
            check(server.url + "/", seeing_server.url + "/", picture, folder, os.path.join(scratch, "profile"))


if __name__ == "__main__":
    main()
