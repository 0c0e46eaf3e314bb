"""Signals to the programs: what they end, and what is printed before."""
import json
import signal

from cli_harness import CliTest, Process, program


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

    def test_sigterm_and_sighup_print_what_there_is(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            p = Process([program("qwen3_infer"), self.qwen3, "-p", "Hi", *self.LONG, "-o", "jsonl"])
            first = p.read()
            p.p.send_signal(number)
            rc, out, err = p.finish()
            self.assertEqual(rc, -number, err)
            done = json.loads((first + out).splitlines()[-1])
            self.assertEqual((done["type"], done["finish_reason"]), ("done", "interrupt"))

    def test_sigterm_ends_a_chat_behind_the_answer(self):
        session = self.path("s.json")
        p = Process([program("qwen3_infer"), self.qwen3, "-i", *self.LONG, "--session", session])
        p.p.stdin.write(b"Hi\nnever\n")
        p.p.stdin.flush()
        p.read()
        p.p.send_signal(signal.SIGTERM)
        rc, _, err = p.finish()
        self.assertEqual(rc, -signal.SIGTERM, err)
        with open(session) as f:
            self.assertEqual([m["role"] for m in json.load(f)["messages"]], ["user", "assistant"])

    def test_interrupt_before_the_first_token_prints_nothing(self):
        p = Process([program("qwen3_infer"), self.qwen3, "-f", "-", "-n", "2", "--device", "cpu",
                     "--paged-attention", "--max-num-batched-tokens", "1", "-c", "4096"])
        p.p.stdin.write(b"word " * 1500)
        p.p.stdin.close()
        p.p.stdin = None
        p.wait_for_line(b"paged KV cache before the request")
        p.p.send_signal(signal.SIGINT)
        rc, out, err = p.finish()
        self.assertEqual((rc, out), (-signal.SIGINT, b""), err)

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
        self.assertIn(b"note: the answer was interrupted", err)
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
