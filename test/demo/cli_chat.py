"""Chats with redirected streams, thinking. Signals are in cli_signals.py, terminals in cli_terminal.py."""
import json
import os
import re
import signal
import time

from cli_harness import ARGS, CliTest, Process, program


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
        self.assertRegex(r.err, r"in 1 turn\n")

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

    def test_names_of_commands(self):
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS,
                         stdin="  /hepl\n /?\n   \n\t/tokens  \nexit\nnever\n")
        self.assertEqual(r.rc, 2)
        self.assertEqual(self.answers(r.out), [])
        self.assertIn("unknown command /hepl; did you mean /help?", r.err)
        self.assertIn("/multiline", r.err)
        self.assertIn("context: 0 of", r.err)
        for word in ("/q", "/bye", "quit"):
            self.assertEqual(self.qwen3_run(*self.ARGS, stdin=word + "\nHi\n").out, "")

    def test_stop_show_and_read(self):
        text = self.path("text", "one\ntwo\n")
        session = self.path("s.json")
        script = "/read %s\nWhat is it?\nHi\n/set stop=\"a b\" stop=c\n/show\n/set stop=\n" % text
        r = self.qwen3_run(*self.ARGS, "--session", session, stdin=script)
        with open(session) as f:
            users = [m["content"] for m in json.load(f)["messages"] if m["role"] == "user"]
        self.assertEqual(users, ["one\ntwo\n\nWhat is it?", "Hi"])
        self.assertRegex(r.err, r'stop="a b"\sstop="c"')
        self.assertRegex(r.err, r"stop=\s")
        for line in ("model: tiny-qwen3 (", "system message: ", "thinking: auto (on)",
                     "context: ", "settings:\ntemp=0 ", "session: " + session):
            self.assertIn("\n" + line, r.err)
        r = self.run_cli(self.qwen3, "--device", "cpu", *self.ARGS, stdin="/read /nonexistent\n")
        self.assertEqual(r.rc, 5)
        whole = self.qwen3_run(*self.ARGS, "-o", "json", "--think", "off", stdin="Hello\n").json()
        stop = whole["text"][3:5]
        r = self.qwen3_run(*self.ARGS, "-o", "json", "--think", "off",
                           stdin='/set stop="%s"\nHello\n' % stop).json()
        self.assertEqual(r["text"], whole["text"][:whole["text"].index(stop)])

    def test_paged_and_cache_agree(self):
        r = self.qwen3_run(*self.ARGS, "--paged-attention", "--prefix-cache",
                           stdin="Hello\n/paged\n/cache\n/clear\n/paged\n/cache\n")
        before, after = r.err.split("conversation cleared")
        table = re.search(r"block table: turn 1, (\d+) blocks of 16 tokens, (\d+) tokens", before)
        self.assertEqual(int(table.group(1)), len(re.findall("-> block", before)))
        self.assertIn("tokens %d..%d -> block" % (16 * (int(table.group(1)) - 1),
                                                  int(table.group(2)) - 1), before)
        self.assertRegex(before, "blocks: [1-9]")
        self.assertIn("block table: none", after)
        self.assertIn("blocks: 0 of", after)

    def test_an_answer_that_is_cut_says_so(self):
        for args, found in ((("-q",), "at 6 tokens inside its reasoning: raise -n, or use "
                                      "--reasoning-budget auto or --think off"),
                            (("-q", "--think", "off"), "at 6 tokens: raise -n"),
                            (("-c", "24", "-n", "50", "-o", "json"),
                             "at the end of the context of 24 tokens")):
            r = self.qwen3_run("-p", "Tell me a story", "-n", "6", "--ignore-eos", *args)
            self.assertIn("\nwarning: the answer was cut " + found, "\n" + r.err)
        r = self.qwen3_run("-i", "-n", "6", stdin="Tell me a story\n")
        self.assertIn("(/set max_tokens=N)", r.err)
        self.assertIn("/set reasoning_budget=auto", r.err)
        self.assertNotIn("warning:", self.qwen3_run("-p", "What is 2 + 3?").err)

    def test_full_chats_can_be_helped(self):
        script = "one two three four\n" * 6
        args = (*self.ARGS, "--max-context", "130", "--think", "off")
        r = self.run_cli(self.qwen3, "--device", "cpu", *args, stdin=script)
        self.assertEqual(r.rc, 6)
        self.assertRegex(r.err, "(?m)^hint: .*/undo or /clear or /set overflow=drop-oldest$")
        r = self.qwen3_run(*args, stdin="/set overflow=drop-oldest\n" + script)
        self.assertIn("overflow=drop-oldest", r.err)
        self.assertEqual(len(self.answers(r.out)), 6)

    def test_history_limit_leaves_something_to_reuse(self):
        r = self.qwen3_run(*self.ARGS, "-o", "json", "--history-thinking", "keep", "--prefix-cache",
                           stdin="Hello\n" * 30)
        usage = [json.loads(line)["usage"] for line in r.out.splitlines()]
        drops = [i for i, u in enumerate(usage) if u["dropped_turns"] > 0]
        self.assertEqual(drops, [11, 17, 23, 29])
        self.assertEqual([usage[i]["dropped_turns"] for i in drops], [6] * 4)
        for i in set(range(2, 30)) - set(drops):
            self.assertGreater(usage[i]["cached_tokens"], usage[i]["prompt_tokens"] / 2)

    def test_history_limit_is_announced(self):
        r = self.qwen3_run(*self.ARGS, "--max-history", "1", stdin="a\nb\nc\n")
        self.assertRegex(r.err, r"(?m)^note: history keeps 1 turn .*dropped the oldest 1$")

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


    def test_a_session_belongs_to_one_process(self):
        session = self.path("s.json", "")  # empty: a new one
        p = Process([program("qwen3_infer"), self.qwen3, "-i", *self.ARGS, "--device", "cpu",
                     "--session", session])
        p.p.stdin.write(b"Hi\n")
        p.p.stdin.flush()
        p.wait_for_line(b"Output: ")
        for more in (("-p", "x"), ("-i",)):
            self.fails(2, self.qwen3, "--device", "cpu", "--session", session, *more,
                       message="is in use by another process")
        rc, _, err = p.finish(b"Hi again\n")
        self.assertEqual(rc, 0, err)
        self.qwen3_run("-p", "x", "-n", "3", "--session", session)
        with open(session) as f:
            self.assertEqual(len(json.load(f)["messages"]), 6)

    def test_a_session_without_turns_leaves_no_file(self):
        session = self.path("s.json")
        self.qwen3_run(*self.ARGS, "--session", session, stdin="/help\n/clear\n")
        self.assertFalse(os.path.exists(session))

    def test_an_answer_without_a_token_is_not_saved(self):
        session = self.path("s.json")
        p = Process([program("qwen3_infer"), self.qwen3, "-f", self.path("long", "word " * 1900), "--device", "cpu",
                     "--threads", "1", "--session", session])
        p.wait_for_line(b"KVCache")
        time.sleep(0.3)  # the prompt takes two seconds; too early or too late proves nothing, and is no failure
        p.p.send_signal(signal.SIGINT)
        p.finish(b"")
        if os.path.exists(session) and os.path.getsize(session) > 0:
            with open(session) as f:
                self.assertNotIn("", [m["content"] for m in json.load(f)["messages"]])

    def test_a_session_is_as_the_chat_was_left(self):
        session, other = self.path("s.json"), self.path("other.json")

        def left_by(script):
            self.qwen3_run("-i", "-n", "3", "--session", session, stdin=script)
            with open(session) as f:
                return [m["content"] for m in json.load(f)["messages"] if m["role"] == "user"]

        self.assertEqual(left_by("Hi\nAgain\n/save %s\n" % other), ["Hi", "Again"])
        self.assertEqual(left_by("/clear\n"), [])
        self.assertEqual(left_by("New\n"), ["New"])
        self.assertEqual(left_by("/load %s\n" % other), ["Hi", "Again"])

    def test_byte_order_marks_are_not_part_of_the_text(self):
        session = self.path("s.json")
        self.qwen3_run("-p", "Hello", "-n", "2", "--session", session)
        expected = self.qwen3_run("-p", "Hello", "-n", "2", "-o", "json").json()["usage"]
        bom = b"\xef\xbb\xbf"
        file = self.path("prompt", bom + b"Hello")
        for args, stdin in ((("-f", file), b""), ((), bom + b"Hello"), (("-i",), bom + b"Hello\n")):
            r = self.qwen3_run("-n", "2", "-o", "json", *args, stdin=stdin).json()
            self.assertEqual(r["usage"], expected, args)
        with open(session, "rb") as f:
            content = f.read()
        marked = self.path("marked.json", bom + content)
        self.qwen3_run("-p", "More", "-n", "2", "--session", marked)
        with open(marked) as f:
            self.assertEqual(len(json.load(f)["messages"]), 4)

    def test_a_silent_pipe_is_noted(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-n", "2", "--device", "cpu"])
        p.wait_for_line(b"note: reading the prompt from standard input")
        rc, out, err = p.finish(b"Hello")
        self.assertEqual(rc, 0, err)
        self.assertTrue(out.startswith(b"Assistant: "))
        self.assertNotIn("reading the prompt", self.qwen3_run("-n", "2", stdin="Hello").err)


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

    def test_automatic_budget_leaves_room_for_the_answer(self):
        args = ("--raw", "-p", self.OPEN, "--ignore-eos", "-o", "json", "--reasoning-budget",
                "auto")
        for n in ((40, 1000), (5000, 60)):
            j = self.qwen3_run(*args, "-n", n[0], "-c", n[1]).json()
            room = min(n[0], n[1] - j["usage"]["prompt_tokens"])
            self.assertLessEqual(j["usage"]["reasoning_tokens"], room // 2)
            self.assertNotEqual(j["text"], "")

    def test_off_never_shows_the_block(self):
        r = self.qwen3_run("-p", "Hi", "--think", "off", "-n", "16", "--show-thinking")
        self.assertNotIn("</think>", r.out)
