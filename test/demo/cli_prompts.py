"""Where prompts come from, and answers that must be equal: the recipes of scripts."""
import json
import os
import pty
import shutil
import subprocess

from cli_harness import ARGS, CliTest, data, program


class Prompts(CliTest):
    def text(self, *args, **kwargs):
        return self.qwen3_run("-n", "10", "-q", "--ignore-eos", *args, **kwargs).out

    def test_sources_give_the_same_answer(self):
        expected = self.text("-p", "Hello there")
        self.assertEqual(self.text(stdin="Hello there\n"), expected)
        self.assertEqual(self.text("-f", "-", stdin="Hello there\n"), expected)
        self.assertEqual(self.text("-f", self.path("p", "Hello there\n")), expected)
        messages = self.path("m.json", '[{"role": "user", "content": "Hello there"}]')
        self.assertEqual(self.text("--messages", messages), expected)
        self.assertEqual(self.text("--prompt=Hello there", stdin="ignored"), expected)

    def test_a_prompt_after_the_model_needs_no_flag(self):
        run = ("run", self.qwen3, "--device", "cpu", "-n", "10", "-q", "--ignore-eos")
        for text in ("Hello there", "Is 2/3 in tokenizer.json more than 1?", "a\nb"):
            expected = self.text("-p", text)
            self.assertEqual(self.text(text, stdin="ignored"), expected)
            self.assertEqual(self.text(os.path.join(self.qwen3, "tokenizer.json"), text), expected)
            self.assertEqual(self.text("--tokenizer", self.qwen3, text), expected)
            self.assertEqual(self.ok(*run, text, name="kuiper").out, expected)
        # One word: a tokenizer for the programs that scripts know, the prompt for kuiper run.
        for word in ("Hello", "你好！"):
            self.assertEqual(self.ok(*run, word, name="kuiper").out, self.text("-p", word))
            self.fails(4, self.qwen3, word, message="tokenizer file not found: " + word, hint="a prompt is given with -p")
        for path in ("tokenizer.json", "spiece.model", "and/or"):
            self.fails(4, *run, path, name="kuiper", message="tokenizer file not found: " + path,
                       hint="a prompt is given with -p")
        # What exists is a tokenizer, whatever it is called.
        folder = self.path("my model")
        os.symlink(os.path.abspath(self.qwen3), folder)
        self.assertEqual(self.text(folder, "-p", "Hello there"), self.text("-p", "Hello there"))
        self.assertEqual(self.ok("chat", self.qwen3, "--device", "cpu", "-n", "10", "-q", "--ignore-eos", "Hello there",
                                 name="kuiper").out, self.text("-p", "Hello there"))

    def test_two_prompts_are_one_too_many(self):
        for flag, name in (("-p", "prompt"), ("-f", "file"), ("--messages", "messages")):
            self.fails(2, self.qwen3, "Hello there", flag, "x",
                       message=f"the prompt 'Hello there' and --{name} exclude each other")
        self.fails(2, self.qwen3, "Hello there", "--benchmark", message="exclude each other")
        self.fails(2, "run", self.qwen3, "What", "is", "2", name="kuiper", message="unexpected argument 'is'",
                   hint="a prompt of several words needs quotes")
        self.fails(5, "run", self.qwen3, "", name="kuiper", message="the prompt is empty")
        self.fails(5, self.qwen3, b"a \xff", message="the prompt is not valid UTF-8")

    def test_default_question(self):
        r = self.qwen3_run("-n", "4", stdin=b"")
        self.assertIn("你好，请介绍一下你自己！", r.err)
        self.assertEqual(self.text(stdin=b""), self.text("-p", "你好，请介绍一下你自己！"))

    def test_terminal_input_asks_the_default_question(self):
        master, slave = pty.openpty()
        try:
            done = subprocess.run([program("qwen3_infer"), self.qwen3, "-n", "4"], stdin=slave,
                                  capture_output=True, timeout=120)
        finally:
            os.close(master)
            os.close(slave)
        self.assertEqual(done.returncode, 0)
        self.assertIn("你好，请介绍一下你自己！".encode(), done.stderr)
        self.assertNotIn(b"\x1b", done.stdout + done.stderr)

    def test_system_prompt(self):
        none = self.ids("-p", "Hi")
        self.assertEqual(self.ids("-p", "Hi", "--system-prompt", ""), none)
        some = self.ids("-p", "Hi", "-sys", "Be brief.")
        self.assertGreater(len(some), len(none))
        self.assertEqual(some[-len(none):], none)
        default = self.ids("-p", "Hi", name="qwen_infer", model=self.qwen25)
        bare = self.ids("-p", "Hi", "-sys", "", name="qwen_infer", model=self.qwen25)
        self.assertGreater(len(default), len(bare))

    def ids(self, *args, model=None, **kwargs):
        r = self.ok(model or self.qwen3, "--tokenize", *args, **kwargs)
        self.assertEqual(r.err, "")
        self.assertEqual(len(r.out.splitlines()), 1)
        return [int(x) for x in r.out.rstrip("\n").split(" ")]

    def test_tokenize_takes_every_kind_of_model(self):
        expected = self.ids("-p", "Hi 你好")
        packed = self.path("model.bin")
        pack = os.path.join(ARGS.bin, "..", "tools", "kuiper_pack")
        subprocess.run([pack, self.qwen3, packed], check=True, capture_output=True)
        self.assertEqual(self.ids("-p", "Hi 你好", model=packed), expected)
        weights = os.path.join(self.qwen3, "model.safetensors")
        self.assertEqual(self.ids("-p", "Hi 你好", model=weights), expected)
        only_tokenizer = self.path("only")
        os.mkdir(only_tokenizer)
        shutil.copy(os.path.join(self.qwen3, "tokenizer.json"), only_tokenizer)
        self.assertEqual(self.ids("-p", "Hi 你好", model=only_tokenizer), expected)

    def test_tokenize_thinking_switch(self):
        on, off = self.ids("-p", "Hi"), self.ids("-p", "Hi", "--think", "off")
        self.assertEqual(off[:len(on)], on)
        self.assertGreater(len(off), len(on))
        self.assertEqual(self.ids("-p", "Hi", "--enable-thinking", "false"), off)

    def test_tokenize_count_is_the_prompt_length(self):
        n = len(self.ids("-p", "Hello there"))
        r = self.qwen3_run("-p", "Hello there", "-n", "1", "-o", "json").json()
        self.assertEqual(r["usage"]["prompt_tokens"], n)

    def test_tokenize_equals_hugging_face(self):
        vectors = self.shared_data("tokenizer_vectors/llamacpp_ggml-vocab-qwen2.gguf.inp")
        with open(vectors, newline="") as f:
            cases = f.read().split("\n__ggml_vocab_test__\n")
        with open(vectors.replace(".inp", ".out")) as f:
            expected = [line.split() for line in f.read().splitlines()]
        checked = 0
        for text, ids in list(zip(cases, expected))[:-1:6]:
            if not text:
                continue
            prompt = self.path("p", text)
            got = self.ids("--raw", "-f", prompt, model=data("tokenizers/qwen3"))
            self.assertEqual(got, [int(x) for x in ids], text)
            checked += 1
        self.assertGreater(checked, 4)
        golden = data("chat_goldens/qwen3.json")
        with open(golden) as f:
            case = json.load(f)["cases"][0]
        raw = self.ids("--raw", "-p", case["rendered"], model=data("tokenizers/qwen3"))
        text = case["args"]["messages"][0]["content"]
        self.assertEqual(self.ids("-p", text, model=data("tokenizers/qwen3")), raw)

    def test_a_raw_file_keeps_every_byte(self):
        for text in ("Hello\n", "Hello\r\n", "Hello\n\n", "\ufeffHello", "\n"):
            got = self.ids("--raw", "-f", self.path("p", text))
            self.assertEqual(got, self.ids("--raw", "-p", text), repr(text))
        # Standard input, and what is no raw text, ends without its last line break and begins without the mark.
        piped = self.ok(self.qwen3, "--tokenize", "--raw", stdin="\ufeffHello\n").out
        self.assertEqual([int(i) for i in piped.split()], self.ids("--raw", "-p", "Hello"))
        self.assertEqual(self.ids("-f", self.path("p", "\ufeffHello\n")), self.ids("-p", "Hello"))
        self.fails(5, self.qwen3, "--raw", "-f", self.path("p", ""), message="is empty")
        self.fails(5, self.qwen3, "--raw", "-f", self.path("p", b"a\xff"), message="not valid UTF-8")

    def test_raw_takes_the_prompt_as_it_is(self):
        chat = self.qwen3_run("-p", "Hi", "-n", "8", "-o", "json").json()
        raw = self.qwen3_run("--raw", "-p", "<|im_start|>user\nHi<|im_end|>\n"
                             "<|im_start|>assistant\n", "-n", "8", "-o", "json").json()
        self.assertEqual(raw["token_ids_fnv1a64"], chat["token_ids_fnv1a64"])


class Equality(CliTest):
    """The recipes that compare paged with contiguous must compare something."""

    def test_predecessors_recipe(self):
        base = ("--attention", "flash1", "--no-cuda-graph", "--max-tokens", "15")
        for model, name in ((self.qwen3, "qwen3_infer"), (self.qwen25, "qwen_infer")):
            tok = os.path.join(model, "tokenizer.json")
            plain = self.ok(model, tok, *base, stdin="Hello\n", name=name)
            paged = self.ok(model, tok, *base, "--paged-attention", stdin="Hello\n", name=name)
            self.assertEqual(plain.out, paged.out)
            pick = [[l for l in (r.out + r.err).splitlines() if "Assistant:" in l]
                    for r in (plain, paged)]
            self.assertEqual(pick[0], pick[1])
            self.assertEqual(len(pick[0]), 1)
            self.assertGreater(len(pick[0][0]), len("Assistant: <think> "))
            paged_lines = [l for l in paged.err.splitlines() if "paged" in l.lower()]
            self.assertIn("Paged Attention: enabled", paged_lines)
            self.assertIn("Paged Attention: disabled", plain.err.splitlines())

    def test_every_page_size_graph_chunk_and_cache(self):
        args = ("-p", "The quick brown fox jumps over the lazy dog. " * 2, "-n", "40",
                "--ignore-eos", "-o", "json")
        expected = self.qwen3_run(*args).json()
        variants = [("--paged-attention", "--page-size", size) for size in (1, 2, 8, 64, 256)]
        variants += [("--paged-attention", "--cuda-graph"), ("--cuda-graph",),
                     ("--max-num-batched-tokens", "7"), ("--prefix-cache", "--paged-attention"),
                     ("--threads", "1")]
        for variant in variants:
            got = self.qwen3_run(*args, *variant).json()
            for key in ("text", "reasoning", "token_ids_fnv1a64", "finish_reason"):
                self.assertEqual(got[key], expected[key], variant)

    def test_every_instruction_set(self):
        awq = os.path.join(os.path.dirname(self.qwen3), "tiny-qwen3-awq")
        args = ("-p", "What is 34 + 57?", "-n", "12", "--ignore-eos", "--device", "cpu", "-q")
        r = self.fails(2, self.qwen3, *args, "--cpu-target", "x", message='no CPU kernels "x"')
        sets = r.err.split("--cpu-target is one of ")[1].strip().split(", ")
        fused = [s for s in sets if s.startswith("AVX") or s == "NEON"]
        for model, more in ((self.qwen3, ()), (awq, ("--weights", "copied")), (awq, ("--activation-dtype", "int8"))):
            logits = []
            for name in fused:
                path = self.path(f"{name}.npy")
                self.ok(model, *args, *more, "--cpu-target", name.lower(), "--dump-logits", path)
                with open(path, "rb") as f:
                    logits.append(f.read())
                self.assertEqual(logits[-1], logits[0], name)
        for name in sets:
            self.assertIn(f"device: cpu ({name}, ", self.ok(self.qwen3, *args[:-1], "--cpu-target", name).err)
        if "simt" in self.ok("--version").out:
            self.fails(2, self.qwen3, *args[:-3], "--device", "simt", "--cpu-target", sets[0], message="for the kernels of the CPU")

    def test_verify_paged(self):
        r = self.qwen3_run("--verify-paged", "-p", "Hello", "-n", "50", "--ignore-eos",
                           "--page-size", "4")
        self.assertRegex(r.out, r"^identical: 50 tokens, logits 50 x \d+, page_size=4, ids=\w{16}\n$")

    def test_verify_paged_slides_alike(self):
        r = self.qwen3_run("--verify-paged", "-p", "Hello", "-n", "90", "--ignore-eos", "--page-size", "4",
                           "--num-blocks", "12", "--on-full", "slide", "--temp", "1", "--seed", "3")
        self.assertRegex(r.out, r"^identical: 90 tokens, ")

    def test_old_scripts(self):
        r = self.qwen3_run("--stream", "--max-tokens", "128", "--prefix-cache", "-i",
                           stdin="你好\n")
        self.assertTrue(r.out.endswith("\n"))
        self.assertNotIn(">>>", r.out + r.err)
        for kind in ("flash1", "flash2", "mha"):
            r = self.qwen3_run("--stream", "--max-tokens", "16", "--attention", kind,
                               stdin="Hello\n")
            self.assertRegex(r.err, "Decode:.*tokens/s")
            self.assertRegex(r.err, "Prefill:.*tokens/s")
