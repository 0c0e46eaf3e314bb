"""What an answer looks like: text, JSON, files, statistics."""
import json
import os
import re
import struct
import subprocess

from cli_harness import CliTest, fnv1a64, program


class Output(CliTest):
    def test_help_and_version(self):
        for name in ("qwen_infer", "qwen3_infer"):
            r = self.ok("--help", name=name)
            self.assertEqual(r.err, "")
            for word in ("--paged-attention", "--max-tokens", "Exit codes", "Guarantees", "141"):
                self.assertIn(word, r.out)
            self.assertEqual(self.ok("-h", name=name).out, r.out)
            self.assertNotIn("--presence-penalty", r.out)
            self.assertIn("--presence-penalty", self.ok("--help", "all", name=name).out)

    def test_help_fits_a_terminal(self):
        for name in ("kuiper", "qwen3_infer", "kuiper_batch"):
            for args in (("--help",), ("--help", "all")):
                long = [l for l in self.ok(*args, name=name).out.splitlines() if len(l) > 80]
                self.assertEqual(long, [], name)

    def test_text_is_prefixed_once_and_streams_are_apart(self):
        r = self.qwen3_run("-n", "12", stdin="Hello\n")
        self.assertTrue(r.out.startswith("Assistant: "))
        self.assertTrue(r.out.endswith("\n"))
        self.assertGreater(len(r.out.strip()), len("Assistant: "))
        self.assertEqual(len(re.findall("(?m)^Assistant: ", r.out)), 1)
        self.assertNotIn("Assistant:", r.err)
        self.assertNotIn("\r", r.out + r.err)
        self.assertNotIn("\x1b", r.out + r.err)
        self.assertNotIn("InitGoogleLogging", r.err)

    def test_stderr_lines_scripts_look_for(self):
        r = self.qwen3_run("-n", "5", "--ignore-eos", "--paged-attention", stdin="Hello")
        self.assertRegex(r.err, "(?m)^Paged Attention: enabled$")
        self.assertRegex(r.err, "(?m)^Created paged KV cache manager$")
        self.assertRegex(r.err, r"(?m)^PagedKVCache: page_size=16, max_blocks_per_seq=\d+, "
                                r"total_blocks=\d+, dtype=(FP16|BF16|FP32) "
                                r"\(x\d+ layers = \d+ pages\)$")
        self.assertRegex(r.err, r"PagedKVCache: allocated [\d.]+ MB host memory \(")
        self.assertRegex(r.err, r"(?m)^=== Performance Statistics ===\nPrompt length: \d+ tokens\n"
                                r"Prefill: \d+ tokens, [\d.]+ ms, [\d.]+ tokens/s\n"
                                r"Decode: 5 tokens, [\d.]+ ms, [\d.]+ tokens/s\n"
                                r"===============================\n")
        self.assertRegex(r.err, r"(?m)^Output: 5 tokens, finish=length, ids=[0-9a-f]{16}, "
                                r"decode [\d.]+ GB/s$")
        self.assertRegex(r.err, r"blocks free")
        r = self.qwen3_run("-n", "5", "--stream", "--ignore-eos", stdin="Hello")
        self.assertIn("Paged Attention: disabled", r.err)
        self.assertRegex(r.err, r"(?m)^\[Prefill: \d+ tokens, [\d.]+ tokens/s \| Decode: 5 tokens, "
                                r"[\d.]+ tokens/s \(ctx: \d+\)\]$")

    def test_no_line_is_glued_to_a_streamed_answer(self):
        for args, stdin in ((("-p", "Hello"), b""), (("-i",), b"Hello\n")):
            done = subprocess.run([program("qwen3_infer"), self.qwen3, "--device", "cpu", "-n", "5",
                                   "--stream", "--paged-attention", *args], input=stdin,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            for line in ("paged KV cache after the request: ", r"\[Prefill: ", "Output: "):
                self.assertRegex(done.stdout.decode(), "(?m)^" + line)

    def test_formats_carry_the_same_text(self):
        args = ("-n", "24", "-p", "Hello", "--show-thinking")
        text = self.qwen3_run(*args).out
        raw = self.qwen3_run(*args, "-o", "raw").out
        self.assertEqual(self.qwen3_run(*args, "-q").out, raw)
        self.assertEqual(self.qwen3_run(*args, "--stream").out, raw)
        self.assertEqual(text, "Assistant: " + (raw if not raw.endswith("\n\n") else raw[:-1]))

    def test_samples_are_the_answers_of_successive_seeds(self):
        args = ("-p", "Hello", "-n", "12", "--temp", "4", "--ignore-eos", "--think", "off")
        many = ("--num-samples", "3", "--seed", "5", "--paged-attention", "--block-size", "4")
        result = json.loads(self.qwen3_run(*args, *many, "-o", "json").out)
        self.assertEqual([c["index"] for c in result["choices"]], [0, 1, 2])
        texts = []
        for choice in result["choices"]:
            seed = str(5 + choice["index"])
            alone = json.loads(self.qwen3_run(*args, "--seed", seed, "-o", "json").out)
            for key in ("text", "reasoning", "finish_reason", "token_ids_fnv1a64"):
                self.assertEqual(choice[key], alone[key])
            self.assertNotIn("choices", alone)
            texts.append(alone["text"])
        self.assertEqual(len({c["token_ids_fnv1a64"] for c in result["choices"]}), 3)
        self.assertEqual(result["text"], texts[0])

        r = self.qwen3_run(*args, *many, "--stream")
        self.assertEqual(r.out, "".join("Assistant: " + t + "\n" * (not t.endswith("\n"))
                                        for t in texts))
        self.assertIn("--stream has no effect", r.err)
        self.assertEqual(len(re.findall("(?m)^Output: 12 tokens", r.err)), 3)
        lines = [json.loads(line) for line in
                 self.qwen3_run(*args, *many, "-o", "jsonl").out.splitlines()]
        for i, text in enumerate(texts):
            pieces = [p["text"] for p in lines[:-1] if p["index"] == i and "text" in p]
            self.assertEqual("".join(pieces), text)
        self.assertEqual(lines[-1]["choices"], result["choices"])

    def test_beam_search_shows_the_best_answer(self):
        args = ("-p", "Hello", "-n", "8", "--ignore-eos", "--think", "off", "--beam-width", "3")
        result = json.loads(self.qwen3_run(*args, "-o", "json").out)
        scores = [c["score"] for c in result["choices"]]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertLess(scores[0], 0)
        self.assertEqual(result["text"], result["choices"][0]["text"])
        r = self.qwen3_run(*args, "--paged-attention", "--stream")
        self.assertEqual(r.out.rstrip("\n"), ("Assistant: " + result["text"]).rstrip("\n"))
        self.assertIn("--stream has no effect", r.err)
        lines = self.qwen3_run(*args, "-o", "jsonl").out.splitlines()
        self.assertEqual([json.loads(line)["type"] for line in lines], ["done"])
        stop = result["text"][2:4]
        cut = self.qwen3_run(*args, "--length-penalty", "0", "--stop", stop, "-o", "json").json()
        self.assertIn("stop_string", [c["finish_reason"] for c in cut["choices"]])
        for choice in cut["choices"]:
            self.assertNotIn(stop, choice["text"])

    def test_quiet_leaves_stderr_empty(self):
        self.assertEqual(self.ok(self.qwen3, "-p", "What is 2 + 3?", "-q").err, "")
        r = self.qwen3_run("-p", "x", "-n", "3", "--no-stats")
        self.assertNotIn("Performance", r.err)
        self.assertNotIn("Output:", r.err)

    def test_the_hint_about_thinking_comes_when_thinking_did_not_end(self):
        hint = r"(?m)^warning: the answer was cut at 3 tokens inside its reasoning.*\nhint: greedy decoding may repeat itself"
        args = ("-p", "What is 2 + 3?")
        self.assertNotIn("hint:", self.qwen3_run(*args).err)
        self.assertRegex(self.qwen3_run(*args, "-n", "3").err, hint)
        self.assertRegex(self.qwen3_run("-i", "-n", "3", stdin="What is 2 + 3?\n").err, hint)
        for flags in (("--think", "off"), ("--temp", "1"), ("-q",)):
            self.assertNotIn("hint:", self.qwen3_run(*args, "-n", "3", *flags).err)

    def test_verbose_logs_more(self):
        self.assertRegex(self.qwen3_run("-p", "x", "-n", "2", "-v").err, r"(?m)^I\d{8} ")

    def test_one_note_about_a_gpu_that_cannot_be_used(self):
        devices = self.ok("--version").out
        is_here = any(os.path.exists(path) for path in (
            "/dev/nvidiactl", "/dev/nvhost-gpu", "/proc/driver/nvidia", "/usr/lib/wsl/lib/nvidia-smi"))
        r = self.ok(self.qwen3, "-p", "x", "-n", "2")
        notes = [l for l in r.err.splitlines() if l.startswith("note:")]
        if is_here and "cuda" not in devices:
            self.assertEqual(notes, ["note: running on the CPU; no CUDA device found: this build has "
                                     "no CUDA (cmake --preset cuda)"])
        elif not is_here:
            self.assertEqual(notes, [])
        self.assertNotIn("note:", self.qwen3_run("-p", "x", "-n", "2").err)

    def test_colours_always_means_always(self):
        args = ("-p", "x", "-n", "3")
        colored = self.qwen3_run(*args, "--color", "always", env={"NO_COLOR": "1"})
        self.assertIn("\x1b[1;36mhint:\x1b[0m", colored.err)
        self.assertTrue(colored.out.startswith("Assistant: "))
        self.assertNotIn("\x1b", colored.out)
        self.assertIn("\x1b[2m", self.qwen3_run(*args, "--color", "always", "--stream").out)
        for color in ("auto", "never"):
            r = self.qwen3_run(*args, "--color", color)
            self.assertNotIn("\x1b", r.out + r.err)

    def test_flags_without_effect_say_so_once(self):
        r = self.qwen3_run("-p", "x", "-n", "2", "--fused-rope-kv", "--fused-gqa",
                           "--no-fused-ffn", "--cuda-graph")
        self.assertEqual(len([l for l in r.err.splitlines() if l.startswith("note:")]), 3, r.err)
        r = self.ok(self.qwen25, "-p", "x", "-n", "2", "--device", "cpu", "--think", "off",
                    name="qwen_infer")
        self.assertEqual(len([l for l in r.err.splitlines() if l.startswith("note:")]), 1, r.err)

    def test_exactly_n_tokens(self):
        for n in (1, 2, 15, 17):
            tokens = self.path("tokens")
            r = self.qwen3_run("-p", "Hi", "-n", n, "--ignore-eos", "--dump-tokens", tokens, "-o",
                               "json").json()
            self.assertEqual(r["usage"]["completion_tokens"], n)
            self.assertEqual(r["finish_reason"], "length")
            with open(tokens) as f:
                ids = [int(line) for line in f]
            self.assertEqual(len(ids), n)
            self.assertEqual(r["token_ids_fnv1a64"], fnv1a64(ids))

    def test_dump_logits(self):
        path, tokens = self.path("l.npy"), self.path("tokens")
        self.qwen3_run("-p", "Hi", "-n", "4", "--ignore-eos", "--dump-logits", path,
                       "--dump-tokens", tokens)
        with open(path, "rb") as f:
            blob = f.read()
        self.assertEqual(blob[:6], b"\x93NUMPY")
        header_length = struct.unpack("<H", blob[8:10])[0]
        header = blob[10:10 + header_length].decode()
        self.assertIn("'<f4'", header)
        rows, vocab = map(int, re.search(r"\((\d+), (\d+)\)", header).groups())
        self.assertEqual(rows, 4)
        values = struct.unpack("<%df" % (rows * vocab), blob[10 + header_length:])
        with open(tokens) as f:
            for row, token in enumerate(int(line) for line in f):
                logits = values[row * vocab:(row + 1) * vocab]
                self.assertEqual(logits.index(max(logits)), token)

    def test_stop_string_across_tokens(self):
        whole = self.qwen3_run("-p", "Hello", "-n", "40", "--think", "off", "--ignore-eos", "-o",
                               "json").json()["text"]
        middle = len(whole) // 2
        stop = whole[middle:middle + 3]
        r = self.qwen3_run("-p", "Hello", "-n", "40", "--think", "off", "--ignore-eos", "-o",
                           "json", "--stop", "\x01never", "--stop", stop).json()
        self.assertEqual(r["finish_reason"], "stop_string")
        self.assertEqual(r["text"], whole[:whole.index(stop)])
        streamed = self.qwen3_run("-p", "Hello", "-n", "40", "--think", "off", "--ignore-eos",
                                  "--stream", "--stop", stop).out
        self.assertEqual(streamed, r["text"] + "\n")

    def test_log_file_and_stats_file(self):
        log, stats = self.path("log"), self.path("stats")
        self.qwen3_run("-p", "x", "-n", "3", "--log-file", log, "--stats-json", stats)
        with open(log) as f:
            text = f.read()
        self.assertIn("Paged Attention: disabled", text)
        self.assertRegex(text, "(?m)^loaded tiny-qwen3")  # as on stderr, where nothing is in front
        with open(stats) as f:
            numbers = json.loads(f.read())
        self.assertEqual(numbers["usage"]["completion_tokens"], 3)
        self.assertNotIn("text", numbers)

    def test_a_random_seed_is_named_and_repeats_the_answer(self):
        args = ("-p", "Hi", "-n", "12", "--temp", "5", "--ignore-eos", "-o", "json")
        runs = [self.qwen3_run(*args, "--seed", "-1") for _ in range(2)]
        first, second = (r.json() for r in runs)
        self.assertNotEqual(first["seed"], second["seed"])
        self.assertNotEqual(first["token_ids_fnv1a64"], second["token_ids_fnv1a64"])
        self.assertIn(f"note: the seed was {first['seed']}\n", runs[0].err)
        for spelled in (str(first["seed"]), f"{first['seed']}.0"):
            again = self.qwen3_run(*args, "--seed", spelled)
            self.assertEqual(again.json()["token_ids_fnv1a64"], first["token_ids_fnv1a64"])
            self.assertEqual(again.json()["seed"], first["seed"])
            self.assertNotIn("the seed was", again.err)
        samples = self.qwen3_run(*args, "--seed", "-1", "--num-samples", "2").json()
        self.assertEqual([c["seed"] for c in samples["choices"]],
                         [samples["seed"], samples["seed"] + 1])
        self.qwen3_run("-p", "Hi", "-n", "8", "--temp", "5", "--seed", "-1", "--verify-paged")
        drawn = self.qwen3_run(*args, "--seed=-123", "--top-k", "-1")
        self.assertIn(f"note: the seed was {drawn.json()['seed']}\n", drawn.err)
        without = self.qwen3_run(*args, "--seed", drawn.json()["seed"])
        self.assertEqual(without.json()["token_ids_fnv1a64"], drawn.json()["token_ids_fnv1a64"], "-1 is off")
        chat = self.qwen3_run("-i", "-n", "4", "--temp", "5", stdin="/set seed=-5 top_k=-1\nHi\n/regen\n")
        self.assertIn("seed=-1", chat.err)
        self.assertEqual(len(re.findall(r"(?m)^note: the seed was \d+$", chat.err)), 2)

    def test_seed_decides_samples(self):
        args = ("-p", "Hi", "-n", "12", "--temp", "5", "--ignore-eos", "-o", "json")
        first = self.qwen3_run(*args, "--seed", "1").json()["token_ids_fnv1a64"]
        self.assertEqual(self.qwen3_run(*args, "--seed", "1").json()["token_ids_fnv1a64"], first)
        self.assertNotEqual(self.qwen3_run(*args, "--seed", "2").json()["token_ids_fnv1a64"], first)

    def test_benchmark(self):
        r = self.qwen3_run("--benchmark", "--benchmark-prompt-tokens", "8,16",
                           "--benchmark-decode-tokens", "4", "--repetitions", "2")
        lines = r.out.splitlines()
        self.assertEqual(lines[0], "BENCHMARK_CSV_START")
        self.assertTrue(lines[1].startswith(
            "model_name,input_tokens,output_tokens,prefill_time_ms,prefill_throughput_tps,"
            "decode_time_ms,decode_throughput_tps,decode_latency_ms"))
        self.assertEqual(lines[-1], "BENCHMARK_CSV_END")
        rows = [line.split(",") for line in lines[2:-1]]
        self.assertEqual([row[:3] for row in rows],
                         [["tiny-qwen3", n, "4"] for n in ("8", "8", "16", "16")])
        for row in rows:
            self.assertTrue(all(float(x) > 0 for x in row[3:]), row)

    def test_the_first_line_always_says_something(self):
        """Wherever --max-tokens cuts a thinking answer, `grep Assistant:` keeps some of it."""
        for n in range(4, 20, 3):
            r = self.qwen3_run("-n", n, stdin="What is Kuiper?\n")
            self.assertRegex(r.out, r"^Assistant: (<think> )?[^\s<]")
            streamed = self.qwen3_run("-n", n, "--stream", stdin="What is Kuiper?\n")
            self.assertEqual(streamed.out.rstrip("\n"),
                             r.out[len("Assistant: "):].rstrip("\n"))


class Json(CliTest):
    KEYS = ["version", "model", "text", "reasoning", "finish_reason", "usage", "token_ids_fnv1a64",
            "seed", "timing", "kv", "ran", "error"]

    def check(self, j, keys):
        self.assertEqual(list(j), keys)
        self.assertEqual(j["version"], 1)
        self.assertEqual(j["model"], "tiny-qwen3")
        self.assertIn(j["finish_reason"], ("stop", "length"))
        for key in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"):
            self.assertIsInstance(j["usage"][key], int)
        for key in ("load_ms", "ttft_ms", "prefill_ms", "prefill_tps", "decode_ms", "decode_tps",
                    "decode_gbps"):
            self.assertIsInstance(j["timing"][key], (int, float))
        for key in ("block_size", "blocks_used", "blocks_total", "bytes_reserved",
                    "bytes_touched"):
            self.assertIsInstance(j["kv"][key], int)
        self.assertRegex(j["token_ids_fnv1a64"], "^[0-9a-f]{16}$")
        self.assertIsNone(j["error"])

    def test_object(self):
        j = self.qwen3_run("-p", "Hi", "-n", "20", "-o", "json", "--paged-attention").json()
        self.check(j, self.KEYS)
        self.assertEqual(j["kv"]["layout"], "paged")
        self.assertEqual(j["kv"]["block_size"], 16)
        j = self.qwen3_run("-p", "Hi", "-n", "20", "-o", "json").json()
        self.assertEqual(j["kv"]["layout"], "contiguous")

    def test_lines(self):
        args = ("-p", "Hi", "-n", "30")
        whole = self.qwen3_run(*args, "-o", "json").json()
        lines = [json.loads(l) for l in self.qwen3_run(*args, "-o", "jsonl").out.splitlines()]
        done = lines.pop()
        self.assertEqual(done.pop("type"), "done")
        self.check(done, self.KEYS)
        self.assertTrue(all(l["type"] == "delta" for l in lines))
        self.assertEqual("".join(l.get("text", "") for l in lines), done["text"])
        self.assertEqual("".join(l.get("reasoning", "") for l in lines), done["reasoning"])
        self.assertEqual((done["text"], done["reasoning"]), (whole["text"], whole["reasoning"]))

    def test_logprobs(self):
        j = self.qwen3_run("-p", "Hi", "-n", "6", "--ignore-eos", "-o", "json", "--logprobs",
                           "3").json()
        self.assertEqual(len(j["logprobs"]), 6)
        for token in j["logprobs"]:
            self.assertEqual(len(token["top"]), 3)
            self.assertLessEqual(token["logprob"], 0)
            self.assertEqual(token["top"][0]["id"], token["id"], "greedy takes the likeliest")
            self.assertAlmostEqual(token["top"][0]["logprob"], token["logprob"], places=5)

    def test_failure_is_an_object_too(self):
        r = self.run_cli("/nonexistent/model", "-p", "x", "-o", "json")
        self.assertEqual(r.rc, 3)
        self.assertEqual(list(r.json()), self.KEYS)
        self.assertEqual(r.json()["error"]["code"], "model_error")
        r = self.run_cli("/nonexistent/model", "-p", "x", "-o", "jsonl")
        self.assertEqual(r.json()["type"], "done")
