"""kuiper eval: numbers against Hugging Face's (tools/make_perplexity_goldens.py), streams, exit codes, signals."""
import json
import os
import shutil
import signal
import subprocess
import time

from cli_harness import ARGS, CliTest, default_signals, program


class EvalTest(CliTest):
    TEXT = "What is 2 + 3? It is 5. " * 40

    def golden(self):
        with open(os.path.join(ARGS.source, "test/data/perplexity.json"), encoding="utf-8") as f:
            return json.load(f)

    def text(self, content=None):
        return self.path("text.txt", self.TEXT if content is None else content)

    def eval(self, *args, **kwargs):
        return self.ok("eval", *args, "--device", "cpu", name="kuiper", **kwargs)

    def numbers(self, *args, **kwargs):
        return self.eval(*args, "--json", **kwargs).json()

    def near(self, found, expected, relative=1e-5):
        self.assertLessEqual(abs(found - expected), relative * abs(expected), (found, expected))

    def refuses(self, code, *args, **kwargs):
        return self.fails(code, "eval", *args, name="kuiper", **kwargs)


class Numbers(EvalTest):
    def test_are_those_of_hugging_face(self):
        golden = self.golden()
        text = self.text(golden["text"])
        for case in golden["cases"]:
            args = [os.path.join(ARGS.models, case["model"]), "--text", text, "--dtype", "fp32",
                    "--window", case["window"], "--stride", case["stride"]]
            if case["limit"] is not None:
                args += ["--limit", case["limit"]]
            for more in ([], ["--paged-attention", "--max-num-batched-tokens", "48"]):
                found = self.numbers(*args, *more)
                row, = found["configurations"]
                self.assertEqual((found["tokens"], row["scored"]), (case["tokens"], case["scored"]))
                self.near(row["nats_per_token"], case["nats_per_token"])
                self.near(row["perplexity"], case["perplexity"])

    def test_comparison_is_that_of_hugging_face(self):
        golden = self.golden()
        case = golden["cases"][0]
        expected = case["damaged"]
        damaged = self.path("damaged")
        shutil.copytree(self.qwen3, damaged)
        with open(os.path.join(damaged, "model.safetensors"), "r+b") as f:
            f.seek(-expected["zeroed"]["from_end"], os.SEEK_END)
            f.write(bytes(expected["zeroed"]["bytes"]))
        found = self.numbers(self.qwen3, "--text", self.text(golden["text"]), "--dtype", "fp32",
                             "--window", case["window"], "--stride", case["stride"], "--against", damaged)
        first, other = found["configurations"]
        self.assertIsNone(first["compared"])
        self.near(first["perplexity"], case["perplexity"])
        self.near(other["perplexity"], expected["perplexity"])
        self.assertEqual(other["compared"]["same_argmax"], expected["compared"]["same_argmax"])
        for name in ("mean_logprob_change", "max_logprob_change", "mean_kl"):
            self.near(other["compared"][name], expected["compared"][name], 1e-3)

    def test_equal_configurations_are_equal(self):
        found = self.numbers(self.qwen3, "--text", self.text(), "--against=--paged-attention",
                             "--against", "--block-size 4 --paged-attention --max-num-batched-tokens 33")
        first, *others = found["configurations"]
        self.assertEqual(len(others), 2)
        for row in others:
            self.assertEqual(row["perplexity"], first["perplexity"])
            self.assertEqual(row["compared"], {"same_argmax": 1.0, "mean_logprob_change": 0.0,
                                               "max_logprob_change": 0.0, "mean_kl": 0.0})
        self.assertEqual([row["ran"]["page_size"] for row in others], [16, 4])

    def test_other_types_are_near(self):
        found = self.numbers(self.qwen3, "--text", self.text(), "--dtype", "fp32", "--against", "--dtype bf16",
                             "--against", "--kv-cache-dtype fp16")
        for row in found["configurations"][1:]:
            self.assertGreater(row["compared"]["mean_kl"], 0)
            self.assertLess(row["compared"]["mean_kl"], 0.05)
            self.assertGreater(row["compared"]["same_argmax"], 0.9)

    def test_defaults(self):
        found = self.numbers(self.qwen3, "--text", self.text())
        self.assertEqual((found["version"], found["window"], found["stride"], found["interrupted"], found["error"]),
                         (1, 512, 256, False, None))
        self.assertEqual(self.numbers(self.qwen3, "--text", self.text(), "-c", "100")["window"], 100)
        self.assertEqual(self.numbers(self.qwen3, "--text", "-", stdin="\ufeff" + self.TEXT)["tokens"], found["tokens"])


class Streams(EvalTest):
    def test_the_table(self):
        text = self.text()
        r = self.eval(self.qwen3, "--text", text, "--against", "--kv-cache-dtype 'fp16'", "-q")
        self.assertEqual(r.err, "")
        lines = r.out.splitlines()
        self.assertRegex(lines[0], "^%s: [0-9]+ tokens, [0-9]+ predicted, windows of 512, stride 256$" % text)
        table = lines[2:]
        self.assertEqual(table[0].split()[:3], ["nats/token", "perplexity", "+/-"])
        self.assertTrue(all(len(line) <= 80 for line in table), table)
        self.assertEqual((len(table[1].split()), len(table[2].split())), (4, 7))
        self.assertEqual(len(table[2]), len(table[0]), "columns are aligned")
        self.assertIn("tiny-qwen3: BF16, KV fp16, contiguous (--kv-cache-dtype 'fp16')", lines[-1])

    def test_without_comparison_there_are_no_columns_for_it(self):
        lines = self.eval(self.qwen3, "--text", self.text()).out.splitlines()
        self.assertNotIn("argmax", lines[2])
        self.assertEqual(len(lines[3].split()), 4)

    def test_one_token_has_no_error(self):
        lines = self.eval(self.qwen3, "--text", self.text(), "--limit", "2").out.splitlines()
        self.assertEqual(lines[3].split()[3], "-")
        self.assertEqual(len(lines[3]), len(lines[2]), "columns are aligned")

    def test_errors_as_json(self):
        r = self.run_cli("eval", self.qwen3, "--json", "--text", "/nonexistent", name="kuiper")
        self.assertEqual(r.rc, 5)
        self.assertEqual(r.json()["error"]["code"], "invalid_input")
        self.assertEqual(r.json()["configurations"], [])

    def test_interrupted_it_prints_what_there_is(self):
        text = self.text(self.TEXT * 3000)
        for number, code in ((signal.SIGINT, -2), (signal.SIGTERM, -15)):
            args = [program("kuiper"), "eval", self.qwen3, "--text", text, "--json", "--device", "cpu",
                    "--window", "64", "--against", "--dtype fp32", "--log-level", "info"]
            with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=default_signals) as p:
                for line in p.stderr:  # the second model has been loaded
                    if b"device: " in line:
                        break
                time.sleep(1.5)
                p.send_signal(number)
                out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, code, err)
            found = json.loads(out)
            self.assertTrue(found["interrupted"])
            first, other = found["configurations"]
            self.assertEqual(first["scored"], other["scored"])
            self.assertLess(first["scored"], found["tokens"] - 1)


class Refusals(EvalTest):
    def test_arguments(self):
        text = self.text()
        self.refuses(2, self.qwen3, message="no --text given", hint="--text FILE")
        self.refuses(2, "--text", text, message="no model given")
        args = (self.qwen3, "--text", text)
        self.refuses(2, *args, "--window", "1", message="--window")
        self.refuses(2, *args, "--window", "8", "--stride", "9", message="--stride is longer")
        self.refuses(2, *args, "--stride", "513", message="longer than the window of 512")
        self.refuses(2, *args, "--window", "5000", message="longer than the context of tiny-qwen3, 4096")
        self.refuses(2, *args, "--window", "100", "-c", "99", message="longer than the context")
        self.refuses(2, *args, "--temp", "1", message="unknown option --temp")
        for flags, message in (("", "no flag"), ("--text x", "unknown option --text"), ("a b", "unexpected argument 'b'"),
                               ("--dtype int3", "--dtype"), ("'--dtype", "quotation mark"), ("--help", "no flag")):
            self.refuses(2, *args, "--against=" + flags, message="--against '%s': " % flags)
            self.refuses(2, *args, "--against=" + flags, message=message)
        self.refuses(2, *args, "--against", message="--against needs a value")
        self.ok("eval", *args, "--against", "--paged-attention", name="kuiper")

    def test_texts(self):
        for content, message in ((b"", "is empty"), (b"\xff\xfe", "not valid UTF-8"), (b"a", "too few tokens (1)"),
                                 (b"\xef\xbb\xbf", "is empty")):
            self.refuses(5, self.qwen3, "--text", self.text(content), message=message)
        self.refuses(5, self.qwen3, "--text", "/nonexistent/x", message="cannot open text file")

    def test_models(self):
        text = self.text()
        self.refuses(3, "/nonexistent", "--text", text, message="model file not found")
        self.refuses(3, self.qwen3, "--text", text, "--against", "/nonexistent", message="model file not found")
        self.refuses(4, self.qwen3, "--text", text, "--against", self.qwen25, message="different tokens")

    def test_logits_that_are_not_finite(self):
        model = self.path("model")
        shutil.copytree(self.qwen3, model)
        with open(os.path.join(model, "model.safetensors"), "r+b") as f:
            f.seek(-64, os.SEEK_END)
            f.write(b"\xc0\x7f" * 32)  # NaN as BF16
        self.refuses(1, model, "--text", self.text(), message="the logits of position 0 are not finite")
