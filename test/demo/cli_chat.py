"""Chats, thinking, signals and terminals."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from cli_harness import ARGS, CliTest, default_signals, program


class Chat(CliTest):
    ARGS = ("-i", "-n", "12", "--ignore-eos")

    def answers(self, text):
        return [part for part in re.split("(?m)^Assistant: ", text)][1:]

    def test_one_line_is_one_turn(self):
        r = self.qwen3_run(*self.ARGS, stdin="Hello\n\nAnd you?\n")
        self.assertEqual(len(self.answers(r.out)), 2)
        self.assertNotIn(">>>", r.out + r.err)
        lines = self.qwen3_run(*self.ARGS, "-o", "json", stdin="a\nb\n").out.splitlines()
        self.assertEqual([json.loads(l)["version"] for l in lines], [1, 1])

    def test_first_turn_equals_one_shot(self):
        one = self.qwen3_run("-n", "12", "--ignore-eos", "-p", "Hello").out
        self.assertEqual(self.qwen3_run(*self.ARGS, stdin="Hello\n").out, one)
        self.assertEqual(self.qwen3_run(*self.ARGS, "-p", "Hello", stdin="").out, one)

    def test_failed_turn_sets_the_exit_code_and_leaves_no_trace(self):
        long = "word " * 400
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, "--max-context", "100", "-o",
                         "json", stdin="Hi\n" + long + "\nHi\n")
        self.assertEqual(r.rc, 6, r.err)
        first, failed, after = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual(failed["error"]["code"], "context_length_exceeded")
        self.assertIsNone(after["error"])
        self.assertLess(after["usage"]["prompt_tokens"], 100)
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, stdin=b"ab\xff\nHi\n")
        self.assertEqual(r.rc, 5)
        self.assertEqual(len(self.answers(r.out)), 1)

    def test_a_failed_answer_takes_nothing_away(self):
        long = "word " * 400
        script = "Hi\n/system %s\n/regen\n/system x\n/regen\n/tokens\n" % long
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, "--max-context", "100",
                         stdin=script)
        self.assertEqual(r.rc, 6, r.err)
        self.assertEqual(len(self.answers(r.out)), 2)
        self.assertIn("in 1 turns", r.err)

    def test_failed_commands_set_the_exit_code(self):
        for command, rc, error in ((b"/nonsense", 2, "unknown command /nonsense"),
                                   (b"/think maybe", 2, "'maybe' is not one of on, off, auto"),
                                   (b"/image x.png", 2, "takes text only"),
                                   (b"/system ab\xff", 5, "not valid UTF-8")):
            r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, stdin=command + b"\n")
            self.assertEqual(r.rc, rc, r.err)
            self.assertIn(error, r.error_lines()[0])

    def test_commands(self):
        script = ("/help\n/tokens\nHello\n/tokens\n/stats\n/cache\n/paged\n/set temp=0.5 top_k=3\n"
                  "/set temp=oops\n/system Be brief.\n/system\n/think off\n/image x.png\n/nonsense\n"
                  "/undo\n/undo\n/regen\n/clear\n/reset\n/quit\nnever\n")
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, "--paged-attention",
                         "--prefix-cache", stdin=script)
        self.assertEqual(r.rc, 2, "the bad /set")
        self.assertEqual(len(self.answers(r.out)), 1)
        for text in ("/multiline", "context: 0 of", "turns: 1", "blocks: ", "evictable",
                     "block table: ", "-> block ", "temp=0.5 top_k=3", "'oops' is not a number",
                     "system message: Be brief.", "thinking: off", "takes text only",
                     "unknown command /nonsense", "took back the last turn", "nothing to take back",
                     "there is no answer yet", "conversation cleared"):
            self.assertIn(text, r.err)
        self.assertNotIn("Assistant:", r.err)

    def test_literal_slash_and_continuation(self):
        ids = []
        for stdin in ("a\\\nb\n", "/multiline\na\nb\n/end\n"):
            r = self.qwen3_run(*self.ARGS, "-o", "json", stdin=stdin).json()
            ids.append(r["usage"]["prompt_tokens"])
        expected = self.qwen3_run("-p", "a\nb", "-n", "1", "-o", "json").json()
        self.assertEqual(ids, [expected["usage"]["prompt_tokens"]] * 2)
        r = self.qwen3_run(*self.ARGS, "-o", "json", stdin="//help\n").json()
        expected = self.qwen3_run("-p", "/help", "-n", "1", "-o", "json").json()
        self.assertEqual(r["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"])

    def test_regen_repeats_greedily(self):
        r = self.qwen3_run(*self.ARGS, stdin="Hello\n/regen\n")
        first, again = self.answers(r.out)
        self.assertEqual(first, again)

    def test_prefix_cache_changes_nothing_but_the_work(self):
        script = "Hello\nTell me more, please.\nAnd then?\n"
        for extra in ((), ("--history-thinking", "keep"), ("--think", "off"), ("--paged-attention",),
                      ("--paged-attention", "--history-thinking", "keep", "--page-size", "8")):
            cold = self.qwen3_run(*self.ARGS, *extra, "-o", "json", stdin=script)
            warm = self.qwen3_run(*self.ARGS, *extra, "--prefix-cache", "-o", "json", stdin=script)
            cold = [json.loads(line) for line in cold.out.splitlines()]
            warm = [json.loads(line) for line in warm.out.splitlines()]
            self.assertEqual([j["token_ids_fnv1a64"] for j in cold],
                             [j["token_ids_fnv1a64"] for j in warm], extra)
            self.assertEqual([j["usage"]["cached_tokens"] for j in cold], [0, 0, 0])
            self.assertGreater(warm[2]["usage"]["cached_tokens"], 0, extra)

    def test_generated_ids_are_reused(self):
        script = "Hello\nMore.\n"
        r = self.ok(self.qwen25, "--device", "cpu", "-i", "-n", "12", "--prefix-cache", "-o",
                    "json", name="qwen_infer", stdin=script)
        first, second = [json.loads(line) for line in r.out.splitlines()]
        done = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
        # Of the first turn all but its last token is in the cache; all of that comes back.
        self.assertGreaterEqual(second["usage"]["cached_tokens"], done - 1)

    def test_history_limit_is_announced(self):
        r = self.qwen3_run(*self.ARGS, "--max-history", "1", stdin="a\nb\nc\n")
        self.assertRegex(r.err, r"(?m)^note: history keeps 1 turns .*dropped the oldest 1$")

    def test_overflow_drops_whole_turns(self):
        script = "one two three four\n" * 6
        args = (*self.ARGS, "--max-context", "130", "-o", "json", "--think", "off")
        r = self.run_cli(self.qwen3, "--device", "cpu", *args, stdin=script)
        self.assertEqual(r.rc, 6, r.err)
        r = self.qwen3_run(*args, "--overflow", "drop-oldest", stdin=script)
        turns = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual(len(turns), 6)
        dropped = [t["usage"] for t in turns if t["usage"]["dropped_turns"] > 0]
        self.assertTrue(dropped)
        self.assertTrue(all(u["dropped_tokens"] > 0 for u in dropped))
        self.assertRegex(r.err, r"note: .*dropped the oldest \d+ turns \(\d+ tokens\)")

    def test_sessions(self):
        session = self.path("s.json")
        both = self.qwen3_run(*self.ARGS, "-o", "json", "--think", "off", stdin="Hello\nMore.\n")
        expected = [json.loads(line)["usage"]["prompt_tokens"] for line in both.out.splitlines()]
        got = []
        for prompt in ("Hello", "More."):
            j = self.qwen3_run("-n", "12", "--ignore-eos", "--think", "off", "-p", prompt,
                               "--session", session, "-o", "json").json()
            got.append(j["usage"]["prompt_tokens"])
        self.assertEqual(got[0], expected[0])
        self.assertGreater(got[1], got[0])
        with open(session) as f:
            saved = json.load(f)
        self.assertEqual([m["role"] for m in saved["messages"]],
                         ["user", "assistant", "user", "assistant"])
        copy = self.path("copy.json")
        self.qwen3_run("-i", "--session", session, stdin="/save %s\n/load %s\n" % (copy, copy))
        with open(copy) as f:
            self.assertEqual(json.load(f)["messages"], saved["messages"])


class Thinking(CliTest):
    """With a forced block these hold for any Qwen3 model: the raw prompt opens it."""
    OPEN = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"

    def test_unfinished_thinking_is_shown(self):
        args = ("--raw", "-p", self.OPEN, "-n", "8", "--ignore-eos")
        j = self.qwen3_run(*args, "-o", "json").json()
        if not j["reasoning"] or j["text"]:
            self.skipTest("the model closed the block at once")
        self.assertEqual(j["text"], "")
        expected = "<think> " + j["reasoning"]
        self.assertEqual(self.qwen3_run(*args).out.rstrip("\n"),
                         ("Assistant: " + expected).rstrip("\n"))
        self.assertEqual(self.qwen3_run(*args, "--stream").out, expected + "\n")

    def test_budget_forces_the_end(self):
        for budget in (0, 3):
            tokens = self.path("tokens")
            j = self.qwen3_run("--raw", "-p", self.OPEN, "-n", "20", "--ignore-eos", "-o", "json",
                               "--reasoning-budget", budget, "--dump-tokens", tokens).json()
            close = int(self.ok(self.qwen3, "--tokenize", "--raw", "-p", "</think>").out)
            with open(tokens) as f:
                ids = [int(line) for line in f]
            self.assertIn(close, ids[:budget + 1])
            self.assertLessEqual(j["usage"]["reasoning_tokens"], budget)

    def test_off_never_shows_the_block(self):
        r = self.qwen3_run("-p", "Hi", "--think", "off", "-n", "16", "--show-thinking")
        self.assertNotIn("</think>", r.out)


class Process:
    """A running program with pipes; reads with a time limit."""

    def __init__(self, args, stdin=subprocess.PIPE):
        self.p = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, preexec_fn=default_signals)

    def read(self, seconds=120):
        ready, _, _ = select.select([self.p.stdout], [], [], seconds)
        assert ready, "no output in time"
        return os.read(self.p.stdout.fileno(), 65536)

    def finish(self, more=None, seconds=120):
        out, err = self.p.communicate(more, timeout=seconds)
        return self.p.returncode, out, err

    def wait_for_line(self, start):
        """Reads stderr up to the line that begins so."""
        line = b""
        while not line.startswith(start):
            line = self.p.stderr.readline()
            assert line, "the program ended without the line " + start.decode()


class Signals(CliTest):
    LONG = ("--device", "cpu", "--stream", "--ignore-eos", "-n", "100000", "--think", "off",
            "--temp", "1")

    def test_interrupt_ends_a_one_shot_by_signal(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-p", "Hi", *self.LONG])
        first = p.read()
        p.p.send_signal(signal.SIGINT)
        rc, out, err = p.finish()
        self.assertEqual(rc, -signal.SIGINT, err)
        self.assertTrue((first + out).endswith(b"\n"))
        self.assertIn(b"finish=interrupt", err)

    def test_interrupt_while_nothing_is_generated_ends_a_chat(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-i", "-n", "4", "--device", "cpu"])
        p.p.stdin.write(b"Hi\n")
        p.p.stdin.flush()
        answer = p.read()
        p.wait_for_line(b"Output: ")  # what a turn prints last
        p.p.send_signal(signal.SIGINT)
        rc, out, _ = p.finish()
        self.assertEqual(rc, -signal.SIGINT)
        self.assertTrue(answer.startswith(b"Assistant: "))

    def test_interrupt_keeps_the_chat(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-i", *self.LONG])
        p.p.stdin.write(b"Hi\n")
        p.p.stdin.flush()
        first = p.read()
        p.p.send_signal(signal.SIGINT)
        rc, out, err = p.finish(b"/stats\n")
        self.assertEqual(rc, 0, err)
        self.assertIn(b"finish=interrupt", err)
        self.assertIn(b"turns: 1", err)
        self.assertGreater(len(first), 0)

    def test_interrupt_ends_verify_paged_in_its_first_half(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-p", "Hi", "--verify-paged", "-v",
                     *self.LONG])
        p.wait_for_line(b"contiguous: generating")
        p.p.send_signal(signal.SIGINT)
        rc, _, rest = p.finish()
        self.assertEqual(rc, -signal.SIGINT)
        self.assertNotIn(b"Paged Attention: enabled", rest)

    def test_closed_pipe_ends_by_sigpipe(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-p", "Hi", *self.LONG])
        p.read()
        p.p.stdout.close()
        p.p.wait(120)
        self.assertEqual(p.p.returncode, -signal.SIGPIPE)
        p.p.stdin.close()
        p.p.stderr.close()


class Terminal(CliTest):
    def session(self, script, *args):
        """Types `script` line by line, each after the prompt; returns what the terminal showed."""
        pid, master = pty.fork()
        if pid == 0:
            default_signals()
            os.environ["NO_COLOR"] = "1"
            os.execv(program("qwen3_infer"), [program("qwen3_infer"), self.qwen3, "-i", "--device",
                                              "cpu", *args])
        shown, seen = b"", 0
        deadline = time.time() + 120
        while time.time() < deadline:
            ready, _, _ = select.select([master], [], [], 1)
            if ready:
                try:
                    shown += os.read(master, 65536)
                except OSError:  # the other side is gone
                    break
            if script and shown.count(b">>> ") > seen and shown.endswith(b">>> "):
                seen = shown.count(b">>> ")
                os.write(master, script.pop(0))
        _, status = os.waitpid(pid, 0)
        os.close(master)
        return status, shown.decode(errors="replace")

    def test_chat(self):
        status, shown = self.session([b"Hi\n", b"/tokens\n", b"/quit\n"], "-n", "5")
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.assertEqual(shown.count(">>> "), 3)
        self.assertIn("context: ", shown)
        self.assertNotIn("Assistant:", shown, "answers stream on a terminal")
        self.assertIn("[Prefill: ", shown)

    def test_ctrl_c_at_the_prompt(self):
        status, shown = self.session([b"\x03"])
        self.assertTrue(os.WIFSIGNALED(status), shown)
        self.assertEqual(os.WTERMSIG(status), signal.SIGINT)
