"""Chats and answers on a terminal: the line editor, what is shown, signals, long chats. Each test
waits for what the terminal shows, never for a while."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

from cli_harness import ARGS, CliTest, default_signals, program

PROMPT = b">>> "
CTRL = {letter: bytes([ord(letter) - 64]) for letter in "ACDEKRLUZ"}
LEFT, UP = b"\x1b[D", b"\x1b[A"


class Pty:
    """A program on a pseudo-terminal of 80 x 24."""

    def __init__(self, args, env, stdin=None, stdout=None):
        self.shown = b""
        self.seen = 0
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)

        def prepare():
            default_signals()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.p = subprocess.Popen(args, stdin=slave if stdin is None else stdin,
                                  stdout=slave if stdout is None else stdout,
                                  stderr=slave, env=env, start_new_session=True,
                                  preexec_fn=prepare)
        self.slave = slave  # kept open, so that its settings can be read after the end

    def read(self, seconds=120):
        ready, _, _ = select.select([self.master], [], [], seconds)
        assert ready, b"no output in time after " + self.shown[-2000:]
        self.shown += os.read(self.master, 65536)

    def until(self, text, seconds=120):
        """Reads until `text` was shown, and returns what came before it since the last call."""
        while text not in self.shown[self.seen:]:
            self.read(seconds)
        at = self.shown.index(text, self.seen)
        before = self.shown[self.seen:at]
        self.seen = at + len(text)
        return before

    def send(self, data):
        while data:
            shown, ready, _ = select.select([self.master], [self.master], [], 120)
            assert shown or ready, "the program neither reads nor writes"
            if shown:
                self.read()
            if ready:
                data = data[os.write(self.master, data[:1000]):]

    def ask(self, text):
        """A message; returns what was shown until the next prompt."""
        self.send(text + b"\r")
        return self.until(b"\n" + PROMPT)

    def end(self):
        """The exit code, after reading all that is shown."""
        code = self.p.wait(120)
        while select.select([self.master], [], [], 0)[0]:
            self.read()
        self.after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        return code


class TerminalTest(CliTest):
    def env(self, **more):
        plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        return {**plain, "XDG_STATE_HOME": self.path("state"), "TERM": "xterm", **more}

    def start(self, *args, stdin=None, stdout=None, **env):
        return Pty([program("qwen3_infer"), self.qwen3, "--device", "cpu", "--threads", "1",
                    *map(str, args)],
                        self.env(**env), stdin, stdout)

    def chat(self, *args, **env):
        self.session = self.path("session.json")
        t = self.start("-i", "--session", self.session, "--temp", "0", *args, **env)
        t.until(PROMPT)
        return t

    def leave(self, t):
        t.send(b"/quit\r")
        self.assertEqual(t.end(), 0, t.shown)

    def messages(self, role="user"):
        with open(self.session) as f:
            return [m["content"] for m in json.load(f)["messages"] if m["role"] == role]


class LineEditor(TerminalTest):
    ARGS = ("-n", "3", "--ignore-eos", "--think", "off")

    def sent(self, *typed):
        """What the model got for these messages."""
        t = self.chat(*self.ARGS)
        for keys in typed:
            t.ask(keys)
        self.leave(t)
        return self.messages()

    def test_a_pasted_paragraph_is_one_message(self):
        paragraph = "\n".join("line %d of a pasted paragraph, 你好" % i for i in range(160))
        self.assertGreater(len(paragraph.encode()), 6000)
        pasted = b"\x1b[200~" + paragraph.replace("\n", "\r").encode() + b"\x1b[201~"
        self.assertEqual(self.sent(pasted + b" End"), [paragraph + " End"])

    def test_a_long_line_without_paste_marks_is_whole(self):
        line = "the story of a little robot, " * 210 + "End"
        self.assertGreater(len(line), 6000)
        self.assertEqual(self.sent(line.encode()), [line])

    def test_editing(self):
        self.assertEqual(
            self.sent(b"ello" + CTRL["A"] + b"H" + CTRL["E"] + b"!",
                      b"one two" + LEFT * 3 + CTRL["K"] + b"2",
                      "你好世界".encode() + b"\x7f\x7fab" + LEFT + "é".encode(),
                      b"wrong" + CTRL["U"] + b"right" + CTRL["L"]),
            ["Hello!", "one 2", "你好aéb", "right"])

    def test_wide_characters_are_erased_as_wide_as_they_are(self):
        t = self.chat(*self.ARGS)
        t.send("你好世界".encode())
        t.until("你好世界".encode())
        t.send(b"\x7f")
        # The row is drawn anew, without the character and from its beginning.
        self.assertTrue(t.until(PROMPT).endswith(b"\r\x1b[J"))
        t.until("你好世".encode())
        t.send(LEFT)
        t.until("\r\x1b[J>>> 你好世\r\x1b[8C".encode())
        t.send(CTRL["C"])
        t.until(PROMPT)
        self.leave(t)

    def test_history_is_kept_in_a_file(self):
        self.assertEqual(self.sent(b"first", b"second"), ["first", "second"])
        os.unlink(self.session)
        self.assertEqual(self.sent(UP * 3 + b" again",  # the newest is /quit
                                   UP * 2 + b"\x1b[B" + b"!",
                                   CTRL["R"] + b"sec" + b"\x1b[C" + b"?"),
                         ["first again", "first again!", "second?"])
        with open(self.path("state/kuiper/chat_history")) as f:
            self.assertEqual(f.read().split("\n")[:4], ["first", "second", "/quit", "first again"])

    def test_ctrl_c_clears_the_line_and_twice_leaves(self):
        t = self.chat(*self.ARGS)
        t.send(b"not sent" + CTRL["C"])
        t.until(b"Ctrl-C once more ends the chat")
        t.until(PROMPT)
        t.ask(b"sent")
        t.send(CTRL["C"])
        t.until(b"Ctrl-C once more ends the chat")
        t.send(CTRL["C"])
        self.assertEqual(t.end(), -signal.SIGINT, t.shown)
        self.assertEqual(self.messages(), ["sent"])
        self.assertEqual(t.after, t.before, "the terminal is as it was")

    def test_ctrl_c_drops_a_message_of_several_lines(self):
        t = self.chat(*self.ARGS)
        for begin in (b"half \\\r", b"/multiline\rhalf\r"):
            t.send(begin)
            t.until(b"... ")
            t.send(b"more" + CTRL["C"])
            t.until(b"Ctrl-C once more ends the chat")
            t.until(PROMPT)
        t.ask(b"sent")
        t.send(b"/multiline\rfirst\rsecond\r/end\r")
        t.until(b"/end")
        t.until(PROMPT)
        t.send(b"/multiline\rhalf\r")
        t.until(b"half")
        t.until(b"... ")
        t.send(CTRL["C"])
        t.until(b"Ctrl-C once more ends the chat")
        t.send(CTRL["C"])
        self.assertEqual(t.end(), -signal.SIGINT, t.shown)
        self.assertEqual(self.messages(), ["sent", "first\nsecond"])

    def test_the_prompt_is_shown_where_answers_go_to_a_file(self):
        answers = self.path("answers")
        with open(answers, "wb") as f:
            t = self.start("-i", "--temp", "0", *self.ARGS, stdout=f)
            for line in (b"Hello\n", b"/quit\n"):
                t.until(PROMPT)
                t.send(line)
            self.assertEqual(t.end(), 0, t.shown)
        with open(answers, "rb") as f:
            answer = f.read()
        self.assertTrue(answer.strip())
        self.assertNotIn(PROMPT, answer)

    def test_what_is_typed_during_an_answer_is_not_lost(self):
        paragraph = "\n".join("line %d of a pasted paragraph, 你好" % i for i in range(130))
        t = self.chat("-n", "200", "--ignore-eos", "--think", "off")
        t.send(b"Tell me a story\r")
        t.until(b"Once")
        t.send(b"\x1b[200~" + paragraph.encode() + b"\x1b[201~\rThe last\r")
        t.until(PROMPT + b"The last")
        t.until(PROMPT)
        self.leave(t)
        self.assertEqual(self.messages(), ["Tell me a story", paragraph, "The last"])

    def test_ctrl_c_stops_an_answer_and_keeps_the_chat(self):
        t = self.chat("-n", "100000", "--ignore-eos", "--think", "off")
        t.send(b"Tell me a story\r")
        t.until(b"Once")
        t.send(CTRL["C"])
        t.until(b"\n" + PROMPT)
        t.ask(b"/tokens")
        self.leave(t)
        self.assertEqual(len(self.messages("assistant")), 1)

    def test_ctrl_z_gives_the_terminal_back(self):
        """Only a shell with job control stops a program."""
        self.session = self.path("session.json")
        t = Pty(["bash", "--norc", "--noprofile", "-i"], self.env(PS1="$ "))
        t.until(b"$ ")
        t.send(" ".join([program("qwen3_infer"), self.qwen3, "-i", "--device", "cpu", "--session",
                         self.session, *self.ARGS]).encode() + b"\n")
        t.until(PROMPT)
        t.send(b"half" + CTRL["Z"])
        t.until(b"Stopped")
        t.send(b"echo $((40 + 2))\n")
        t.until(b"42")
        t.send(b"fg\n")
        t.until(PROMPT + b"half")
        t.ask(b" and half")
        t.send(b"/quit\r")
        t.until(b"$ ")
        t.send(b"exit\n")
        self.assertEqual(t.end(), 0)
        self.assertEqual(self.messages(), ["half and half"])

    def test_ctrl_d_ends_and_restores_the_terminal(self):
        t = self.chat(*self.ARGS)
        self.assertNotEqual(termios.tcgetattr(t.slave), t.before)
        self.assertIn(b"\x1b[?2004h", t.shown)
        t.send(CTRL["D"])
        self.assertEqual(t.end(), 0)
        self.assertEqual(t.after, t.before)
        self.assertIn(b"\x1b[?2004l", t.shown)

    def test_sigterm_at_the_prompt_restores_the_terminal(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            t = self.chat(*self.ARGS)
            t.p.send_signal(number)
            self.assertEqual(t.end(), -number)
            self.assertEqual(t.after, t.before)

    def test_a_terminal_that_is_lost_leaves_the_session(self):
        t = self.chat("-n", "3000", "--ignore-eos", "--think", "off")
        t.send(b"Hi\r")
        while len(t.shown) < 1000:
            t.read()
        os.close(t.slave)
        os.close(t.master)
        self.assertEqual(t.p.wait(120), -signal.SIGHUP)
        self.assertEqual((self.messages(), len(self.messages("assistant"))), (["Hi"], 1))

    def test_a_dumb_terminal_gets_plain_lines(self):
        t = self.chat(*self.ARGS, TERM="dumb")
        t.send(b"Hi\n")
        t.until(b"\n" + PROMPT)
        self.leave(t)
        self.assertNotIn(b"\x1b[?2004h", t.shown)
        self.assertEqual(self.messages(), ["Hi"])


class Look(TerminalTest):
    def test_one_dim_line_per_turn(self):
        for verbose in (False, True):
            t = self.chat("-n", "5", "--paged-attention", *(["-v"] if verbose else []))
            shown = t.ask(b"Hi")
            self.assertEqual(len(re.findall(rb"\x1b\[2m\[Prefill: [^\n]*\x1b\[0m", shown)),
                             0 if verbose else 1, shown)
            for text in (b"blocks free", b"Output: "):
                self.assertEqual(text in shown, verbose, shown)
            self.leave(t)

    def test_lines_are_not_glued_to_the_answer(self):
        t = self.start("-p", "Hi", "-n", "40", "--ignore-eos", "--think", "off", "--paged-attention", "-v")
        self.assertEqual(t.end(), 0)
        before = re.findall(rb"(..)KV cache: request", t.shown, re.S)
        self.assertGreater(len(before), 2, t.shown)
        self.assertEqual(set(before), {b"\r\n"}, t.shown)

    def test_thinking_is_dimmed_as_it_comes(self):
        t = self.chat("-n", "60")
        shown = t.ask(b"What is 2 + 3?")
        self.assertRegex(shown, rb"\x1b\[2m[^\x1b]+\x1b\[0m\r\n\r\n2 \+ 3 = 5")
        self.assertNotIn(b"<think>", shown)
        self.leave(t)
        t = self.chat("-n", "60", NO_COLOR="1")
        shown = t.ask(b"What is 2 + 3?")
        self.assertRegex(shown, rb"thinking \.\.\. \d+ tokens?")
        self.assertNotIn(b"\x1b[2m", shown)
        self.leave(t)
        t = self.chat("-n", "60", "--hide-thinking")
        shown = t.ask(b"What is 2 + 3?")
        self.assertNotRegex(shown, rb"\x1b\[2m[^\[]")
        self.leave(t)

    def test_one_shot_answers_stream(self):
        t = self.start("-p", "Hi", "-n", "1000000", "--ignore-eos", "--think", "off")
        t.read()
        while len(t.shown) < 2000:
            t.read()  # long before the end
        t.send(CTRL["C"])
        self.assertEqual(t.end(), -signal.SIGINT)
        self.assertNotIn(b"Assistant:", t.shown)

    def test_long_prompts_show_how_far_they_are(self):
        t = self.start("-p", "word " * 900, "-n", "1")
        t.until(b"reading the prompt: 0 of ")
        self.assertEqual(t.end(), 0)
        r = self.qwen3_run("-p", "word " * 900, "-n", "1")
        self.assertNotIn("reading the prompt", r.err)


class TerminalDefaults(TerminalTest):
    def test_tokens_sampling_history_and_overflow(self):
        t = self.start("-i", "-c", "512")
        t.until(PROMPT)
        settings = t.ask(b"/set").decode()
        for text in ("temp=0.6", "top_k=20", "top_p=0.95", "max_tokens=512",
                     "overflow=drop-oldest"):
            self.assertIn(text, settings)
        self.assertEqual(self.leave_code(t), 0)
        t = self.start("-i", "-n", "7", "--temp", "0", "--overflow", "error")
        t.until(PROMPT)
        settings = t.ask(b"/set").decode()
        for text in ("temp=0 ", "max_tokens=7 ", "overflow=error"):
            self.assertIn(text, settings)
        self.assertEqual(self.leave_code(t), 0)
        r = self.qwen3_run("-i", stdin="/set\n").err
        for text in ("temp=0 ", "max_tokens=256 ", "overflow=error"):
            self.assertIn(text, r)

    def leave_code(self, t):
        t.send(b"/q\r")
        return t.end()


class LongChats(TerminalTest):
    """Many turns in a context that holds a few of them."""
    QUESTIONS = ("Tell me a story", "What is Kuiper?", "And then?", "What is 2 + 3?",
                 "Explain it in other words, please, and say why")

    def turns(self, *args):
        t = self.start("-i", "-n", "128", "-c", "1024", "-o", "json", *args)
        t.until(PROMPT)
        answers = []
        for i in range(ARGS.turns):
            shown = t.ask(self.QUESTIONS[i % len(self.QUESTIONS)].encode())
            lines = re.findall(rb'\{"version".*\}', shown)
            self.assertEqual(len(lines), 1, shown)
            answers.append(json.loads(lines[0]))
        t.send(b"/quit\r")
        self.assertEqual(t.end(), 0)
        return answers

    def check(self, answers):
        dropped = [a["usage"]["dropped_turns"] for a in answers]
        self.assertGreater(sum(d > 0 for d in dropped), 1, "the chat was long enough")
        for a in answers:
            self.assertIsNone(a["error"])
            whole = a["usage"]["completion_tokens"] == 128 or a["finish_reason"] == "stop"
            self.assertTrue(whole, a["finish_reason"])

    def reused(self, answers):
        """The share of the prompt tokens of the turns that dropped nothing."""
        usage = [a["usage"] for a in answers[1:] if a["usage"]["dropped_turns"] == 0]
        return sum(u["cached_tokens"] for u in usage) / sum(u["prompt_tokens"] for u in usage)

    def test_contiguous(self):
        self.check(self.turns("--overflow", "drop-oldest", "--temp", "0"))

    def test_paged_with_prefix_cache(self):
        for args in ((), ("--ignore-eos",)):
            answers = self.turns("--overflow", "drop-oldest", "--temp", "0", "--paged-attention",
                                 "--prefix-cache", *args)
            self.check(answers)
            self.assertGreaterEqual(self.reused(answers), 0.8, args)

    def test_by_default(self):
        t = self.start("-i", "-c", "512", "--temp", "0")
        t.until(PROMPT)
        shown = b""
        for i in range(40):
            shown += t.ask(self.QUESTIONS[i % len(self.QUESTIONS)].encode())
        self.assertRegex(shown, rb"dropped the oldest \d+ turns \(\d+ tokens\)")
        self.assertRegex(shown, rb"Prefill: \d+ of \d+ tokens")  # the rest was in the KV cache
        self.assertNotIn(b"error:", shown)
        self.assertNotIn(b"history keeps", shown)
        t.send(b"/quit\r")
        self.assertEqual(t.end(), 0)
