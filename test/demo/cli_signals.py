"""Signals to the programs: what they end, and what is printed before."""
import json
import os
import shutil
import signal

from cli_harness import CliTest, Process, program
from served import post


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


class LostFiles(CliTest):
    """A model file that changes while it is mapped: one line, exit code 10, and what was printed stands."""

    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        shutil.copytree(self.qwen3, self.model)
        self.file = os.path.join(self.model, "model.safetensors")

    def lost(self, rc, err, what):
        self.assertEqual(rc, 10, err)
        self.assertEqual([line for line in err.decode().splitlines() if line.startswith("error:")],
                         [f"error: {self.file} {what}; start again when the file is whole"])

    TRUNCATED = "was truncated while it was in use, or can no longer be read"
    WRITTEN = "was written to while it was in use, and answers since then may be wrong"

    def overwrite(self):
        size = os.path.getsize(self.file)
        with open(self.file, "r+b") as f:
            f.seek(size // 2)
            f.write(b"x" * 1000)
        os.utime(self.file, (1, 1))  # whatever the clock's steps are

    def chat(self, *args):
        """A chat that gave one answer and waits for the next message."""
        p = Process([program("qwen3_infer"), self.model, "-i", "-n", "4", "--device", "cpu", *args])
        p.p.stdin.write(b"Hi\n")
        p.p.stdin.flush()
        self.assertTrue(p.read().startswith(b"Assistant: "))
        return p

    def test_truncated(self):
        p = self.chat("--weights", "mapped")
        os.truncate(self.file, 100000)
        rc, _, err = p.finish(b"Hi\n")
        self.lost(rc, err, self.TRUNCATED)

    def test_truncated_in_the_middle_of_an_answer(self):
        for form in ("text", "jsonl"):
            shutil.copy(os.path.join(self.qwen3, "model.safetensors"), self.file)
            p = Process([program("qwen3_infer"), self.model, "-p", "Hi", *Signals.LONG, "--weights", "mapped", "-o", form])
            first = p.read()
            os.truncate(self.file, 100000)
            rc, out, err = p.finish()
            self.lost(rc, err, self.TRUNCATED)
            if form == "jsonl":
                done = json.loads((first + out).splitlines()[-1])
                self.assertEqual((done["type"], done["finish_reason"], done["error"]["code"]),
                                 ("done", "error", "model_error"))
                self.assertTrue(done["text"])

    def test_overwritten(self):
        p = self.chat("--weights", "mapped")
        self.overwrite()
        rc, out, err = p.finish(b"Hi\n/quit\n")
        self.lost(rc, err, self.WRITTEN)

    def test_copies_and_replaced_files_are_safe(self):
        p = self.chat("--weights", "copied")
        self.overwrite()
        os.truncate(self.file, 100000)
        rc, _, err = p.finish(b"Hi\n")
        self.assertEqual(rc, 0, err)
        shutil.copy(os.path.join(self.qwen3, "model.safetensors"), self.file)
        p = self.chat("--weights", "mapped")
        other = self.path("other", b"something else")
        os.replace(other, self.file)
        rc, _, err = p.finish(b"Hi\n")
        self.assertEqual(rc, 0, err)

    def test_of_a_batch(self):
        p = Process([program("kuiper_batch"), self.model, "-i", "-", "-o", "-", "--device", "cpu", "--weights", "mapped"])
        p.p.stdin.write(b'{"custom_id": "a", "prompt": "Hi", "max_tokens": 4}\n')
        p.p.stdin.flush()
        self.assertIsNone(json.loads(p.read())["error"])
        os.truncate(self.file, 100000)
        rc, out, err = p.finish(b'{"custom_id": "b", "prompt": "Hello", "max_tokens": 4}\n')
        self.lost(rc, err, self.TRUNCATED)
        self.assertEqual(out, b"")

    def test_of_a_server(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        for change, what in ((lambda: os.truncate(self.file, 100000), self.TRUNCATED), (self.overwrite, self.WRITTEN)):
            shutil.copy(os.path.join(self.qwen3, "model.safetensors"), self.file)
            port_file = self.path("port")
            p = Process([program("kuiper_server"), self.model, "--device", "cpu", "--port", "0", "--port-file", port_file,
                         "--weights", "mapped"])
            p.wait_for_line(b"ready")
            with open(port_file, encoding="utf-8") as f:
                url = f"http://127.0.0.1:{int(f.read())}/v1/chat/completions"
            self.assertTrue(post(url, body)["choices"])
            change()
            with self.assertRaises(OSError):
                post(url, body)
            rc, _, err = p.finish()
            self.lost(rc, err, what)
            os.remove(port_file)
