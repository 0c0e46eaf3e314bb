"""Bad options, models and prompts: exit code, one error line, nothing on stdout."""
import glob
import json
import os
import re
import shutil
import subprocess

from cli_harness import CliTest, program

TYPES = ["fp32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2"]  # of keys and values


class UsageErrors(CliTest):
    def test_options(self):
        m = self.qwen3
        self.fails(2, message="no model given")
        self.fails(2, m, "--page-attention",
                   message="error: unknown option --page-attention; did you mean --paged-attention?")
        self.fails(2, m, "--attention", "flash3",
                   message="error: --attention: 'flash3' is not one of auto, mha, flash1, flash2")
        self.fails(2, m, "--max-tokens", "abc", message="error: --max-tokens: 'abc'")
        self.fails(2, m, "--max-tokens", "99999999999999999999999")
        self.fails(2, m, "--max-history", "-1", message="--max-history")
        self.fails(2, m, "--block-size", "24", message="--block-size: 24 is not a power of two")
        self.fails(2, m, "--prompt", message="--prompt needs a value")
        self.fails(2, m, "-p", "a", "-f", "b", message="exclude each other")
        self.fails(2, m, "T", "X", message="unexpected argument 'X'")
        self.fails(2, m, "--image", "cat.jpg", message="--image is not available")
        self.fails(2, m, "--kv-cache-dtype", "int4", message="'int4' is not one of auto, fp16")
        self.fails(2, m, "--beam-width", "3", "--temp", "1", message="--beam-width takes no --temp")
        self.fails(2, m, "--beam-width", "3", "--num-samples", "2", message="exclude each other")
        self.fails(2, m, "--num-samples", "3", "-i", message="exclude each other")
        self.fails(2, m, "--num-samples", "3", "--session", "s", message="exclude each other")
        self.fails(2, m, "--speculative", "ngram", message="not available")
        self.fails(2, m, "--max-context", "1000000000", "-p", "x", message="exceeds the model")

    def test_usage_error_in_json_mode_is_json_too(self):
        result = self.run_cli(self.qwen3, "--bogus-option", "-o", "json")
        self.assertEqual(result.rc, 2)
        self.assertEqual(result.json()["error"]["code"], "invalid_argument")
        self.assertEqual(len(result.error_lines()), 1)

    def test_double_dash_ends_options(self):
        self.fails(3, "--device", "cpu", "--", "--stream", message="--stream")


class ModelErrors(CliTest):
    def copy_model(self, name="copy"):
        target = self.path(name)
        shutil.copytree(self.qwen3, target)
        return target

    def weights(self, model):
        return sorted(glob.glob(os.path.join(model, "*.safetensors")))[0]

    def edit_config(self, model, **fields):
        path = os.path.join(model, "config.json")
        with open(path) as f:
            config = json.load(f)
        config.update(fields)
        with open(path, "w") as f:
            json.dump(config, f)

    def test_missing(self):
        self.fails(3, "/m/x.bin", "-p", "x", message="error: model file not found: /m/x.bin")
        self.fails(3, "Qwen/Qwen3-0.6B", "-p", "x", message="not found: Qwen/Qwen3-0.6B",
                            hint="tools/get_model.sh Qwen/Qwen3-0.6B brings")

    def test_directory_without_config(self):
        self.fails(3, self.dir, "-p", "x", message=self.dir + " has no config.json")

    def test_directory_with_a_gguf_file(self):
        self.path("model-Q4_K_M.gguf", b"GGUF\x03")
        self.fails(3, self.dir, "-p", "x", message=self.dir + " has no config.json",
                   hint="its model-Q4_K_M.gguf is a GGUF file, which is not read: use the safetensors version")

    def test_bad_magic(self):
        path = self.path("x.bin", b"PK\x03\x04" + b"\0" * 100)
        self.fails(3, path, "-p", "x", message="is a PyTorch checkpoint", hint="safetensors version")
        path = self.path("y.bin", b"\1\2\3\4" + b"\0" * 100)
        self.fails(3, path, "-p", "x", message="(first bytes 01 02 03 04)", hint="kuiper_pack")

    def test_git_lfs_pointers(self):
        pointer = (b"version https://git-lfs.github.com/spec/v1\n"
                   b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                   b"size 3945441280\n")
        for name, code in (("tokenizer.json", 4), ("config.json", 3), ("model.safetensors", 3)):
            model = self.copy_model(name + ".copy")
            with open(os.path.join(model, name), "wb") as f:
                f.write(pointer)
            self.fails(code, model, "-p", "x", message=name + " is a git-lfs pointer",
                       hint="git lfs pull")

    def test_empty_file(self):
        self.fails(3, self.path("x.bin", b""), "-p", "x")

    def test_truncated(self):
        model = self.copy_model()
        weights = self.weights(model)
        os.truncate(weights, os.path.getsize(weights) // 2)
        self.fails(3, model, "-p", "x", message="truncated", hint="re-copy or re-export")

    def test_wrong_model_type(self):
        model = self.copy_model()
        path = os.path.join(model, "config.json")
        with open(path, "w") as f:
            json.dump({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}, f)
        self.fails(3, model, "-p", "x",
                   message='architecture "Qwen2_5_VLForConditionalGeneration" is not supported')

    def test_any_text_model_runs_under_any_name(self):
        args = ("--device", "cpu", "-p", "Hello", "-n", "12", "-o", "json")
        for model in (self.qwen3, self.qwen25):
            answers = {self.ok(model, *args, name=name).json()["token_ids_fnv1a64"]
                       for name in ("qwen_infer", "qwen3_infer")}
            self.assertEqual(len(answers), 1, model)

    def test_unsupported_quantisation(self):
        model = self.copy_model()
        self.edit_config(model, quantization_config={"quant_method": "bitsandbytes"})
        self.fails(3, model, "-p", "x", message='quantization "bitsandbytes" is not supported')

    def test_more_layers_than_the_config_knows(self):
        model = self.copy_model()
        args = ("--device", "cpu", "-p", "What is 2 + 3?", "-q")
        self.assertEqual(self.ok(model, *args).err, "")
        self.edit_config(model, num_hidden_layers=3)
        self.fails(3, model, *args, message="config.json says 3 layers, but there is a tensor of "
                   'another: "model.layers.3.', hint="the same model")

    def test_broken_config(self):
        model = self.copy_model()
        for name in ("generation_config.json", "config.json"):
            path = os.path.join(model, name)
            for text in (b"", b"{", b"[]", b'{"hidden_size": "x"}', b"\xff\xfe", b"[" * 100000):
                if name == "generation_config.json" and text in (b"", b'{"hidden_size": "x"}'):
                    continue  # none, and a field that nobody reads
                with open(path, "wb") as f:
                    f.write(text)
                self.fails(3, model, "-p", "x", message=f"error: {path}: ")
            os.remove(path)
            shutil.copy(os.path.join(self.qwen3, name), path)

    def test_what_needs_no_weights_is_checked_before_them(self):
        model = self.copy_model()
        with open(os.path.join(model, "config.json")) as f:
            layers = json.load(f)["num_hidden_layers"]
        self.edit_config(model, num_hidden_layers=layers + 1)
        args = (model, "--device", "cpu", "-c", "64")
        last = f'tensor "model.layers.{layers}.input_layernorm.weight" is missing'
        kept = self.path("kept", "mine")
        # A layer that is missing is found when its weights are read.
        self.fails(3, *args, "-p", "x", "--dump-tokens", kept, "--stats-json", kept, message=last)
        with open(kept) as f:
            self.assertEqual(f.read(), "mine")
        for flag in ("--dump-tokens", "--dump-logits", "--stats-json", "--session", "--log-file"):
            for path in ("/nonexistent/x", self.dir):
                self.fails(1, *args, "-p", "x", flag, path, message="cannot write " + path)
        self.fails(1, *args, "-i", "--stats-json", "/nonexistent/x", message="cannot write")
        for task in ((), ("--verify-paged",), ("--raw",)):
            self.fails(6, *args, "-p", "word " * 80, *task, message="but the context is 64")
            self.fails(3, *args, "-p", "x", *task, message=last)
        self.fails(4, *args, "-p", "x", "--tokenizer", "/nonexistent", message="not found")
        requests = self.path("in", '{"custom_id": "a", "prompt": "x"}')
        for output, code in (("/nonexistent/x", 1), ("-", 3)):
            self.fails(code, *args, "-i", requests, "-o", output, name="kuiper_batch")
        for output, code in (("/nonexistent/x", 1), (self.path("l"), 3)):
            self.fails(code, model, "--ids", self.path("ids", "1 2"), "--out", output,
                       name="kuiper_logits")

    def test_a_tokenizer_that_did_not_come_with_the_model(self):
        args = (self.qwen3, "--device", "cpu", "-p", "x", "-n", "2", "-q")
        for other in (self.qwen25, os.path.join(self.qwen25, "tokenizer.json")):
            self.assertRegex(self.ok(*args, "--tokenizer", other).err,
                             "(?m)^warning: .*tokenizer.json is not the tokenizer that came with")
        twice = self.ok(*args, "--tokenizer", other, "--verify-paged")  # loads the model twice
        self.assertEqual(twice.err.count("came with"), 1)
        copy = self.path("tokenizer.json")
        shutil.copy(os.path.join(self.qwen3, "tokenizer.json"), copy)
        for same in (self.qwen3, os.path.join(self.qwen3, "tokenizer.json"), copy):
            self.assertNotIn("came with", self.ok(*args, "--tokenizer", same).err)

    def test_tokenizer(self):
        self.fails(4, self.qwen3, "/nonexistent/tokenizer.json", "-p", "x",
                   message="tokenizer file not found: /nonexistent/tokenizer.json")
        empty = self.path("empty")
        os.mkdir(empty)
        self.fails(4, self.qwen3, empty, "-p", "x", message="tokenizer file not found: %s/tokenizer.json" % empty,
                   hint="name a tokenizer.json")
        bad = self.path("tokenizer.json", '{"model": ]')
        self.fails(4, self.qwen3, bad, "-p", "x", message=bad + ": invalid JSON at byte")
        self.fails(4, self.qwen3, self.path("empty.json", "{}"), "-p", "x")

    def test_tokenizer_of_another_model(self):
        official = self.shared_data("tokenizers/qwen3/tokenizer.json")
        self.fails(4, self.qwen3, official, "-p", "x",
                   message="tokenizer does not match the model: tokenizer has ids up to 151668")

    def test_device(self):
        self.fails(8, self.qwen3, "-p", "x", "--device", "cuda:0", message="no CUDA device found",
                   hint="--device cpu")

    def simt(self, *args, pretend):
        """The run on an emulated device that pretends something; skipped where there is none."""
        if "simt" not in self.ok("--version").out:
            self.skipTest("built without the emulated device")
        return self.run_cli(self.qwen3, "-p", "x", "--device", "simt", *args,
                            env={"KUIPER_SIMT_PRETEND": pretend})

    def test_devices_that_cannot_be_used(self):
        for pretend, line in (
                ("no_device", "error: no CUDA device found (driver reports: "),
                ("no_driver", "error: no CUDA device found (no NVIDIA driver is installed)"),
                ("old_driver", "error: no usable CUDA device: the driver (CUDA 11.0) is older than "
                               "this build's CUDA toolkit"),
                ("no_image", "error: this build has kernels for sm_87 but the device is sm_87")):
            result = self.simt(pretend=pretend)
            self.assertEqual(result.rc, 8, result.err)
            self.assertEqual(result.out, "")
            self.assertEqual(len(result.error_lines()), 1, result.err)
            self.assertIn(line, result.error_lines()[0])
            self.assertIn("hint: --device cpu", result.err)

    def test_device_with_too_little_memory(self):
        result = self.simt(pretend="memory:1")
        self.assertEqual(result.rc, 7, result.err)
        self.assertRegex(result.error_lines()[0], r"^error: needs .* but .* is available")

    def test_device_fault_prints_the_text_so_far_first(self):
        args = ("--max-tokens", "200", "--ignore-eos")
        fault = "fault:1500"
        result = self.simt(*args, pretend=fault)
        self.assertEqual(result.rc, 8, result.err)
        self.assertRegex(result.out, r"^Assistant: (.|\n)+\n$")
        self.assertRegex(result.error_lines()[0], "^error: CUDA error at .*cudaErrorLaunchFailure")
        self.assertEqual(len(result.error_lines()), 1, result.err)
        streamed = self.simt(*args, "--stream", pretend=fault)
        self.assertEqual(streamed.rc, 8, streamed.err)
        self.assertEqual("Assistant: " + streamed.out, result.out)
        as_json = self.simt(*args, "-o", "json", pretend=fault)
        self.assertEqual(as_json.rc, 8, as_json.err)
        self.assertEqual("Assistant: " + as_json.json()["text"] + "\n", result.out)
        self.assertEqual(as_json.json()["finish_reason"], "error")
        self.assertIn("CUDA error", as_json.json()["error"]["message"])

    def test_memory_plan(self):
        args = (self.qwen3, "-p", "x", "--device", "cpu", "--paged-attention", "--num-blocks",
                "99999999")
        self.fails(7, *args, message="available (limit 90% of ")
        self.fails(7, self.qwen3, "-p", "x", "--device", "cpu", "--gpu-memory-utilization", "0.0001",
                   message="(limit 0.01% of ", hint=r"--gpu-memory-utilization 0\.\d+ would do")
        plan = self.ok(self.qwen3, "--device", "cpu", "--dry-run")
        self.assertIn("weights", plan.out)
        self.assertIn("KV cache", plan.out)
        self.assertEqual(plan.err, "", "the plan is printed once")

    def dry_run(self, model, *args, rc=0):
        """The object of -o json, and the largest contexts of the table by type."""
        args = (model, "--device", "cpu", "--paged-attention", "--dry-run", *args)
        table, result = self.run_cli(*args), self.run_cli(*args, "-o", "json")
        self.assertEqual((table.rc, result.rc), (rc, rc), table.err)
        self.assertEqual(len(table.error_lines() + result.error_lines()), 2 if rc else 0)
        self.assertLessEqual(max(len(line) for line in table.out.splitlines()), 80)
        plan = result.json()
        self.assertEqual([row["dtype"] for row in plan["kv"]], TYPES)
        contexts = []
        for row in plan["kv"]:
            line = re.search(r"(?m)^  %s( \*)? .* (\d+|none fits)$" % row["dtype"], table.out)
            self.assertEqual(line[1] == " *", row["chosen"], table.out)
            contexts.append(0 if line[2] == "none fits" else int(line[2]))
        return plan, contexts

    def test_dry_run_says_what_context_fits(self):
        plan, contexts = self.dry_run(self.qwen3, "-c", "256")
        self.assertEqual((plan["fits"], plan["error"], plan["context"]), (True, None, 256))
        self.assertEqual([row["chosen"] for row in plan["kv"]], [kind == "bf16" for kind in TYPES])
        size = {row["dtype"]: row["bytes_per_1k_tokens"] for row in plan["kv"]}
        self.assertEqual(size["fp32"], 2 * size["fp16"])
        self.assertEqual(size["fp16"], 2 * size["fp8_e4m3"])
        self.assertTrue(size["fp8_e4m3"] < size["int8"] < 1.3 * size["fp8_e4m3"], "with scales")
        parts = ("weight", "activation", "workspace", "graph", "swap")
        for row in plan["kv"]:
            self.assertEqual(row["total_bytes"],
                             row["kv_bytes"] + sum(plan[part + "_bytes"] for part in parts))
            self.assertEqual(row["free_bytes"], plan["limit_bytes"] - row["total_bytes"])
            self.assertEqual(row["largest_context"], plan["context_limit"])
        self.assertEqual(contexts, [plan["context_limit"]] * len(TYPES))
        plan, _ = self.dry_run(self.qwen3, "-c", "256", "--kv-cache-dtype", "fp32")
        self.assertEqual([row["chosen"] for row in plan["kv"]], [kind == "fp32" for kind in TYPES])

    def test_dry_run_answers_when_the_plan_does_not_fit(self):
        with open(os.path.join(self.qwen3, "config.json")) as f:
            config = json.load(f)
        limit = config["max_position_embeddings"] = 1 << 24  # at most, and gigabytes of keys and values
        for name in os.listdir(self.qwen3):
            os.symlink(os.path.abspath(os.path.join(self.qwen3, name)), self.path(name))
        os.remove(self.path("config.json"))
        self.path("config.json", json.dumps(config))
        share = ("--gpu-memory-utilization", "0.05")
        plan, contexts = self.dry_run(self.dir, "-c", str(limit), *share, rc=7)
        self.assertEqual((plan["fits"], plan["error"]["code"]), (False, "out_of_memory"))
        self.assertIn("needs ", plan["error"]["message"])
        for row, context in zip(plan["kv"][:3], contexts):
            self.assertLess(row["free_bytes"], 0)
            self.assertTrue(0 < row["largest_context"] < limit and 0 < context < limit, contexts)
        self.assertGreater(contexts[1], 1.5 * contexts[0])
        # Half of it fits, whatever else runs on the machine meanwhile.
        self.dry_run(self.dir, "-c", str(contexts[2] // 2), *share)
        nothing, contexts = self.dry_run(self.qwen3, "--gpu-memory-utilization", "1e-12", rc=7)
        self.assertEqual(contexts, [0] * len(TYPES))
        self.assertEqual(nothing["kv"][0]["largest_context"], 0)


class InputErrors(CliTest):
    def test_prompts(self):
        m = (self.qwen3, "--device", "cpu")
        self.fails(5, *m, stdin=b"ab\xff\n", message="standard input is not valid UTF-8")
        self.fails(5, *m, stdin=b"\n", message="standard input is empty")
        self.fails(5, *m, "-p", "", message="--prompt is empty")
        self.fails(5, *m, "-p", "x", "--system-prompt", b"\xff",
                   message="--system-prompt is not valid UTF-8")
        self.fails(5, *m, "-f", self.path("empty", ""), message="is empty")
        self.fails(5, *m, "-f", self.path("missing"), message="No such file")
        self.fails(5, *m, "-f", self.dir)
        self.fails(2, *m, "-f", "", message="-f: the path is empty")
        for flag in ("--session", "--dump-tokens", "--stats-json", "--log-file", "--tokenizer"):
            self.fails(2, *m, "-p", "x", flag, "", message=flag + ": the path is empty")
        self.fails(5, *m, "--messages", self.path("m.json", '{"role": "user", "content": "x"}'),
                   message="neither a list of messages nor an object with")
        self.fails(5, *m, "--messages", self.path("m.json", "[1]"), message="m.json")
        self.fails(5, *m, "--messages", self.path("m.json", "[]"))
        self.fails(5, *m, "--session", self.path("s.json", "nonsense"), "-p", "x")

    def test_prompt_too_long(self):
        r = self.fails(6, self.qwen3, "--device", "cpu", "--max-context", "32", "-p", "a b " * 100,
                       hint="--max-context")
        self.assertRegex(r.error_lines()[0], r"^error: prompt is \d+ tokens but the context is 32 "
                                             r"\(code context_length_exceeded\)$")
        r = self.run_cli(self.qwen3, "--device", "cpu", "--max-context", "32", "-p", "a b " * 100,
                         "-o", "json")
        self.assertEqual(r.rc, 6)
        self.assertEqual(r.json()["error"]["code"], "context_length_exceeded")
        self.assertEqual(r.json()["finish_reason"], "error")
        # No context of this model holds such a prompt.
        r = self.fails(6, self.qwen3, "--device", "cpu", "--max-context", "32", "-p", "a b " * 5000)
        self.assertNotIn("--max-context", r.err)
        self.assertRegex(r.err, r"hint: the model allows -c 4096 at most: shorten the prompt")
        # What helps: there are no older turns that could leave.
        self.assertNotIn("drop-oldest", r.err)
        turns = [{"role": role, "content": "a b " * 10} for role in ("user", "assistant", "user")]
        r = self.fails(6, self.qwen3, "--device", "cpu", "--max-context", "32", "--messages",
                       self.path("m.json", json.dumps(turns)), hint="or use --overflow drop-oldest")

    def test_prompt_that_leaves_little_room_is_no_error(self):
        r = self.qwen3_run("-p", "Hi", "--ignore-eos", "--max-tokens", "5000", "--max-context",
                           "48", "-o", "json").json()
        self.assertEqual(r["finish_reason"], "context")
        self.assertEqual(r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"], 48)

    def test_pool_exhausted(self):
        m = ("--paged-attention", "--ignore-eos", "--max-tokens", "400")
        r = self.run_cli(self.qwen3, "--device", "cpu", "-p", "Hi", *m, "--num-blocks", "4", "-o",
                         "json")
        self.assertEqual(r.rc, 0, r.err)
        self.assertEqual(r.json()["finish_reason"], "context")
        self.assertGreater(r.json()["usage"]["completion_tokens"], 0)
        self.assertRegex(r.err, r"(?m)^error: KV cache is full \(4/4 blocks, \d+ tokens\) after ")
        self.fails(7, self.qwen3, "--device", "cpu", "-p", "word " * 60, *m, "--num-blocks", "1")

    def test_closed_streams_are_not_mixed_up_with_files(self):
        """The first free number goes to the next file that is opened: a model, a log."""
        args = ("--device", "cpu", "-n", "2")
        self.fails(5, self.qwen3, *args, closed=[0], message="cannot read standard input")
        self.fails(5, self.qwen3, *args, "-i", closed=[0], message="cannot read the input")
        self.fails(5, self.qwen3, *args, "-i", "-", "-o", self.path("o"), closed=[0],
                   name="kuiper_batch", message="cannot read the input")
        self.assertEqual(self.run_cli(self.qwen3, *args, "-p", "x", closed=[0]).rc, 0)
        log = self.path("log")
        r = self.run_cli(self.qwen3, *args, "-p", "x", "--log-file", log, closed=[0, 1, 2])
        self.assertEqual((r.rc, r.out, r.err), (1, "", ""))
        with open(log) as f:
            text = f.read()
        self.assertIn("error: cannot write to standard output", text)
        self.assertEqual(text.count("Paged Attention: disabled"), 1)
        self.assertNotIn("Assistant:", text)

    def test_output_that_cannot_be_written(self):
        for flag in ("--dump-tokens", "--dump-logits", "--stats-json", "--log-file", "--session"):
            r = self.run_cli(self.qwen3, "--device", "cpu", "-p", "x", "-n", "2", flag,
                             "/nonexistent/file")
            self.assertEqual(r.rc, 1, flag + r.err)
            self.assertEqual(len(r.error_lines()), 1, r.err)
        r = self.run_cli(self.qwen3, "-p", "x", "-n", "2", "--log-file", "/dev/full")
        self.assertEqual(r.rc, 1)
        self.assertEqual(r.error_lines(), ["error: cannot write all lines to /dev/full"])
        for args in (("-p", "x", "-n", "2"), ("--tokenize",), ("--dry-run",), ("-i", "-p", "x"),
                     ("--benchmark", "--benchmark-prompt-tokens", "8")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([program("qwen3_infer"), self.qwen3, *args], stdout=full,
                                      stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn(b"error: cannot write to standard output: No space left", done.stderr)
