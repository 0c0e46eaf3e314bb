"""What people at a terminal meet: wrapped lines, screens of 24 rows, habits of other programs; and tools that a
chat template cannot show."""
import json
import os
import re
import shutil

from cli_serve import Serve as ServerTest
from cli_terminal import PROMPT, TerminalTest

# That of SmolLM2: roles and texts, no tools.
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + "
            "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def copy_of(test, model, without=(), **files):
    """A folder with the files of a model, less some, and with others."""
    folder = test.path("model")
    shutil.copytree(model, folder)
    for name in without:
        os.remove(os.path.join(folder, name))
    for name, text in files.items():
        with open(os.path.join(folder, name.replace("__", ".")), "w", encoding="utf-8") as f:
            f.write(text)
    return folder


class People(TerminalTest):
    def talk(self, *args, model=None):
        if model is not None:
            self.qwen3 = model
        t = self.start("-i", *args)
        t.until(PROMPT)
        return t

    def lines(self, shown):
        """Without colours and what was typed."""
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
        return text.replace("\r", "").split("\n")[1:]

    def test_a_chat_samples_where_the_model_does_not_say(self):
        model = copy_of(self, self.qwen3, without=["generation_config.json"])
        t = self.talk("-n", "20", "--think", "off", model=model)
        self.assertIn("so this chat takes temp=0.8 top_p=0.95 min_p=0.05", " ".join(self.lines(b"\n" + t.shown)))
        shown = t.ask(b"/set").decode()
        for text in ("temp=0.8", "top_p=0.95", "min_p=0.05"):
            self.assertIn(text, shown)
        t.ask(b"Tell me a story")
        answers = {t.ask(b"/regen") for _ in range(4)}
        self.assertGreater(len(answers), 1, "another seed each time")
        self.leave(t)
        t = self.talk("--temp", "0", model=model)
        self.assertNotIn(b"this chat takes", t.shown)
        self.assertIn(b"temp=0 ", t.ask(b"/set"))
        self.assertIn(b"there is no answer yet", t.ask(b"/regen"))
        t.ask(b"Hi")
        self.assertIn(b"greedy decoding answers the same again", t.ask(b"/regen"))
        self.leave(t)
        # Scripts keep what they know.
        r = self.ok(model, "--device", "cpu", "-i", stdin="/set\n")
        self.assertIn("temp=0 ", r.err)
        self.assertNotIn("this chat takes", r.err)

    def test_an_answer_that_repeats_itself_gets_a_hint(self):
        args = ("-n", "300", "--temp", "0", "--ignore-eos", "--think", "off", "--repetition-penalty", "0.3")
        t = self.talk(*args)
        self.assertRegex(t.ask(b"Hi"), rb"hint:.* the answer repeats itself: /set temp=0\.8 samples, and /regen")
        self.leave(t)
        self.assertNotIn("repeats", self.qwen3_run("-p", "Hi", *args).err)

    def test_lines_break_between_words(self):
        args = ("-p", "Tell me a story", "-n", "120", "--ignore-eos", "--think", "off", "--temp", "0")
        plain = self.qwen3_run(*args, "-q").out
        t = self.start(*args, "--no-stats")
        self.assertEqual(t.end(), 0)
        answer = self.lines(b"\n" + t.shown.split(b"warning:")[0])
        self.assertTrue(any(len(line) > 60 for line in answer), answer)
        for line in answer:
            self.assertLessEqual(len(line), 80)
        words = plain.split()
        self.assertEqual(" ".join(answer).split(), words)
        self.assertTrue(any(len(line) > 80 for line in plain.splitlines()), "pipes get it as it is")

    def test_errors_wrap_as_well(self):
        t = self.talk("-c", "64")
        shown = self.lines(t.ask(b"word " * 200))
        self.assertNotIn("(code", " ".join(shown))
        self.assertRegex(" ".join(shown), r"raise --max-context \(-c \d+ at most\)")
        self.assertTrue(all(len(line) <= 80 for line in shown[3:]), shown)
        self.leave(t)

    def test_help_and_tables_fit_the_screen(self):
        t = self.talk("-n", "3", "--ignore-eos", "--paged-attention", "--block-size", "1", "--think", "off")
        for command, most in ((b"/help", 22), (b"/help set", 22), (b"/paged", 22)):
            shown = self.lines(t.ask(command))
            self.assertLessEqual(len(shown), most, shown)
            self.assertTrue(all(len(line) < 80 for line in shown), shown)
        self.assertNotIn(b"/image", t.ask(b"/help"))
        self.assertIn(b"/set", t.ask(b"/help"))
        self.assertIn(b"Alt-Enter", t.ask(b"/help all"))
        self.assertIn(b"reasoning_budget", t.ask(b"/help /set"))
        t.ask(b"word " * 300)
        shown = self.lines(t.ask(b"/paged"))
        self.assertLessEqual(len(shown), 22, shown)
        self.assertRegex("\n".join(shown), r"\[0\.\.\d+\] tokens 0\.\.\d+ -> blocks \d+\.\.\d+")
        self.leave(t)

    def test_set_understands_habits(self):
        t = self.talk()
        for typed, found in ((b"temp 0.25", b"temp=0.25"), (b"parameter temperature 0.5", b"temp=0.5"),
                             (b"repeat_penalty=1.5", b"repetition_penalty=1.5"),
                             (b"num_predict -1", b"max_tokens=-1")):
            self.assertIn(found, t.ask(b"/set " + typed))
        shown = t.ask(b"/set temp=0.75 nonsense=3")
        self.assertIn(b"nonsense: there is no such parameter", shown)
        self.assertIn(b"everything else is set", shown)
        self.assertIn(b"temp=0.75", t.ask(b"/set"))
        self.assertIn(b"--max-context", t.ask(b"/set num_ctx 4096"))
        self.assertIn(b"system message set", t.ask(b"/set system Be brief."))
        self.assertIn(b"thinking: off", t.ask(b"/set nothink"))
        self.leave(t)

    def test_save_asks_before_it_overwrites_another_conversation(self):
        old = '{"messages": [{"role": "user", "content": "old"}]}'
        file = self.path("c.json", old)
        t = self.talk("-n", "2", "--think", "off")
        t.ask(b"Hi")
        for answer in (b"n\r", b"\r", b"\x03"):
            t.send(b"/save " + file.encode() + b"\r")
            t.until(b"[y/N] ")
            t.send(answer)
            t.until(b"not saved")
            t.until(PROMPT)
            with open(file, encoding="utf-8") as f:
                self.assertEqual(f.read(), old)
        t.send(b"/save " + file.encode() + b"\r")
        t.until(b"[y/N] ")
        t.send(b"y\r")
        t.until(b"saved 1 turn")
        t.until(PROMPT)
        t.ask(b"More")
        self.assertIn(b"saved 2 turns", t.ask(b"/save " + file.encode()))  # its own file
        with open(self.path("state/kuiper/chat_history"), encoding="utf-8") as f:
            self.assertNotIn("y", f.read().split("\n"))
        t.ask(b"/clear")
        t.send(b"/save " + file.encode() + b"\r")
        t.until(b"[y/N] ")
        t.send(b"\r")
        t.until(PROMPT)
        self.leave(t)
        # Nobody can be asked.
        self.qwen3_run("-i", stdin="/save %s\n" % file)


class ToolsWithoutAPlace(ServerTest):
    """Only the class's own tests run here; those of the base class are in cli_serve."""

    def setUp(self):
        super().setUp()
        self.model = copy_of(self, self.qwen3, chat_template__jinja=TEMPLATE)
        self.user = [{"role": "user", "content": "weather?"}]
        call = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        self.calls = [*self.user, {"role": "assistant", "content": "", "tool_calls": [call]},
                      {"role": "tool", "content": "rain", "tool_call_id": "call00001"}]

    def test_they_are_refused_by_every_program(self):
        shown = "the model's chat template does not show tools"
        bodies = ({"messages": self.user, "tools": [TOOL]}, {"messages": self.calls})
        messages = (shown, "message 1: the model's chat template does not show tool_calls")
        for body, message in zip(bodies, messages):
            file = self.path("m.json", json.dumps(body))
            for more in ((), ("--print-prompt",), ("--tokenize",)):
                self.fails(5, self.model, "--messages", file, *more, message=message)
        lines = [{"custom_id": str(i), "max_tokens": 2, **body}
                 for i, body in enumerate((*bodies, {"prompt": "weather?", "tools": [TOOL]},
                                           {"messages": self.user, "tools": []}))]
        r = self.ok(self.model, "--device", "cpu", "-i", "-", "-o", "-", name="kuiper_batch",
                    stdin="\n".join(map(json.dumps, lines)))
        tools, calls, prompt, plain = map(json.loads, r.out.splitlines())
        self.assertEqual(prompt["error"]["message"], "tools needs messages: a prompt is fed as it is")
        self.assertEqual((tools["error"]["code"], calls["error"]["code"]), ("invalid_input", "invalid_input"))
        self.assertIn(shown, tools["error"]["message"])
        self.assertIsNone(plain["error"])
        _, port = self.start(model=self.model)
        anthropic = {"name": "weather", "input_schema": {"type": "object"}}
        flat = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
        for path, body in (("/v1/chat/completions", bodies[0]),
                           ("/v1/chat/completions", {**bodies[0], "stream": True}),
                           ("/v1/messages", {"messages": self.user, "max_tokens": 2, "tools": [anthropic]}),
                           ("/v1/responses", {"input": "weather?", "tools": [flat]})):
            status, text = self.ask(port, "POST", path, body)
            self.assertEqual(status, 400, text)
            self.assertIn(shown, text)
            if path == "/v1/chat/completions":
                error = json.loads(text)["error"]
                self.assertEqual((error["code"], error["param"]), ("unsupported", "tools"))
        status, text = self.ask(port, "POST", "/v1/chat/completions", bodies[1])
        self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "invalid_value"), text)
        for more in ({"tool_choice": "none", "tools": [TOOL]}, {"tools": []}):
            status, text = self.ask(port, "POST", "/v1/chat/completions",
                                    {"messages": self.user, "max_tokens": 2, **more})
            self.assertEqual(status, 200, text)


def load_tests(loader, tests, pattern):
    """Without the tests that ToolsWithoutAPlace inherits."""
    del tests, pattern
    suite = loader.loadTestsFromTestCase(People)
    suite.addTest(ToolsWithoutAPlace("test_they_are_refused_by_every_program"))
    return suite
