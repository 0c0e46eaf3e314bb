"""kuiper, kuiper_pack and kuiper_logits as people call them."""
import glob
import json
import os
import shutil
import subprocess

import vision_model
from cli_harness import ARGS, CliTest, program


class FrontDoor(CliTest):
    def kuiper(self, *args, **kwargs):
        return self.ok(*args, name="kuiper", **kwargs)

    def test_commands_are_the_programs(self):
        args = (self.qwen25, "--device", "cpu")
        self.assertEqual(self.kuiper("run", *args, "-p", "Hello").out,
                         self.ok(*args, "-p", "Hello", name="qwen_infer").out)
        self.assertEqual(self.kuiper("chat", *args, stdin="Hello\nAnd you?\n").out,
                         self.ok(*args, "-i", stdin="Hello\nAnd you?\n", name="qwen_infer").out)
        request = json.dumps({"custom_id": "a", "prompt": "Hello", "max_tokens": 3}) + "\n"
        batch = ("--input", self.path("in", request), "--output", "-")
        self.assertEqual(self.kuiper("batch", *args, *batch).out,
                         self.ok(*args, *batch, name="kuiper_batch").out)
        self.assertIn("usage: kuiper_bench", self.kuiper("bench", "--help").out)

    def test_help_and_version(self):
        self.assertIn("usage: kuiper COMMAND", self.kuiper("--help").out)
        self.assertIn("usage: kuiper run MODEL", self.kuiper("run", "--help").out)

    def test_version(self):
        version = self.kuiper("--version").out
        is_checkout = os.path.exists(os.path.join(ARGS.source, ".git"))
        commit = r" \(commit [0-9a-f]{7,}\)" if is_checkout else ""
        self.assertRegex(version, r"^kuiper \d+\.\d+\.\d+%s, devices: cpu" % commit)
        for command in ("run", "chat", "batch", "serve", "eval", "quantize"):
            self.assertEqual(self.kuiper(command, "--version").out, version, command)
        for name in ("qwen_infer", "qwen3_infer", "qwen3_vl_infer", "kuiper_batch", "kuiper_server"):
            self.assertEqual(self.ok("--version", name=name).out, name + ", " + version)

    def test_errors(self):
        self.fails(2, name="kuiper", message="no command given", hint="run, chat, batch, serve, bench, eval and quantize")
        self.fails(2, "chta", "m", name="kuiper", message='unknown command "chta"',
                   hint="did you mean kuiper chat")
        self.fails(2, self.qwen3, "-p", "x", name="kuiper", message="unknown command",
                   hint="kuiper run MODEL")
        self.fails(2, "run", name="kuiper", message="no model given")
        self.fails(3, "chat", "/m/x", name="kuiper", message="model file not found")


class Tools(CliTest):
    def test_output_that_cannot_be_written(self):
        rates = ("--invent", os.path.join(ARGS.source, "tools/bench_models/tiny.json"), "--device", "cpu",
                 "--context", "1", "--batch", "1", "--prompt-tokens", "8", "--decode-steps", "4",
                 "--repetitions", "1")
        for name, *args in (*((name, arg) for name in ("kuiper_logits", "kuiper_pack", "kuiper_bench")
                              for arg in ("--help", "--version")), ("kuiper_bench", *rates)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([program(name), *args], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1, (name, args))
            self.assertIn(b"error: cannot write to standard output: No space left", done.stderr)
        for path in ("/dev/full", "/nonexistent/x"):
            r = self.run_cli(*rates, "--json", path, name="kuiper_bench")
            self.assertEqual((r.rc, r.error_lines()[0][:19]), (1, "error: cannot write"), r.err)
            self.assertEqual(r.out == "", path != "/dev/full", "a wrong path is found first")

    def test_invented_weights_are_in_no_file(self):
        self.fails(2, "--invent", "x.json", "--weights", "mapped", name="kuiper_bench", message="--weights mapped needs a file")


class Logits(CliTest):
    def logits(self, ids, run):
        out = self.path("l.npy")
        r = run(self.qwen3, "--ids", self.path("ids", ids), "--out", out, name="kuiper_logits")
        return r, out

    def test_writes_a_row_per_id_and_nothing_else(self):
        r, out = self.logits("1 2\n3\n", self.ok)
        self.assertEqual((r.out, r.err), ("", ""))
        self.assertEqual(os.path.getsize(out), 128 + 3 * 1600 * 4)

    def test_rows_that_are_not_finite_are_an_error(self):
        model = self.path("model")
        shutil.copytree(self.qwen3, model)
        weights, = glob.glob(os.path.join(model, "*.safetensors"))
        with open(weights, "r+b") as f:
            f.seek(-64, os.SEEK_END)
            f.write(b"\xc0\x7f" * 32)  # NaN as BF16
        out = self.path("l.npy")
        r = self.run_cli(model, "--ids", self.path("ids", "1 2"), "--out", out, name="kuiper_logits")
        self.assertEqual(r.rc, 1)
        self.assertIn("error: the logits of position 0 are not finite; " + out, r.err)
        self.assertEqual(os.path.getsize(out), 128 + 2 * 1600 * 4)

    def test_ids_that_are_none(self):
        for ids in ("", "1 x", "1 2,3", "1 99999999999", "1.5"):
            r, _ = self.logits(ids, self.run_cli)
            self.assertEqual(r.rc, 5, ids + r.err)
            self.assertEqual(len(r.err.splitlines()), 1, r.err)


class LogitsOfPictures(CliTest):
    def model(self):
        model = self.path("sees")
        if not os.path.exists(model):
            shutil.copytree(os.path.join(os.path.dirname(__file__), "../data/vision/tiny"), model)
            self.path("sees/preprocessor_config.json",
                      '{"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 4096}}')
        return model

    def png(self, name, shade, height=24):
        """16 x 24 pixels: 2 x 3 tokens."""
        rgb = bytes((shade * i) % 256 for i in range(3 * 16 * height))
        return self.path(name, vision_model.png_of(16, height, rgb))

    def logits(self, run, ids, *args):
        out = self.path("l.npy")
        r = run(self.model(), "--ids", self.path("ids", ids), "--out", out, *args, name="kuiper_logits")
        if r.rc != 0:
            return r, b""
        with open(out, "rb") as f:
            return r, f.read()

    def test_order_of_scaling(self):
        tall = self.png("tall.png", 77, height=400)  # scaled to 8 x 320
        ids = "5 92 " + "90 " * 40 + "93 8"
        _, found = self.logits(self.ok, ids, "--image", tall)
        self.assertEqual(self.logits(self.ok, ids, "--image", tall, "--image-scaling", "pillow-13")[1], found)
        self.assertNotEqual(self.logits(self.ok, ids, "--image", tall, "--image-scaling", "pillow-12")[1], found)
        r, _ = self.logits(self.run_cli, ids, "--image", tall, "--image-scaling", "13")
        self.assertEqual(r.rc, 2)
        self.assertIn("pillow-12", r.err)

    def test_pictures_stand_at_their_pads(self):
        a, b = self.png("a.png", 1), self.png("b.png", 7)
        two = "5 92 " + "90 " * 6 + "93 92 " + "90 " * 6 + "93 8"
        embeds = self.path("e.npy")
        r, whole = self.logits(self.ok, two, "--image", a, "--image", b, "--dump-image-embeds", embeds)
        self.assertEqual((r.out, r.err), ("", ""))
        self.assertEqual(len(whole), 128 + 18 * 96 * 4)
        self.assertEqual(os.path.getsize(embeds), 128 + 12 * 3 * 24 * 4)
        for args in (("--chunk", "4"), ("--paged-attention", "--page-size", "4")):
            self.assertEqual(self.logits(self.ok, two, "--image", a, "--image", b, *args)[1], whole)
        self.assertNotEqual(self.logits(self.ok, two, "--image", b, "--image", a)[1], whole)

    def test_what_is_wrong_with_pictures(self):
        a = self.png("a.png", 1)
        r, _ = self.logits(self.run_cli, "5 90 90", "--image", a)
        self.assertEqual(r.rc, 2, r.err)
        self.assertIn("picture 1 (" + a + ") takes 6 <|image_pad|>, and the prompt has 2 for it", r.err)
        r, _ = self.logits(self.run_cli, "5", "--image", "/nonexistent.png")
        self.assertEqual(r.rc, 5, r.err)
        r, _ = self.logits(self.run_cli, "5", "--dump-image-embeds", self.path("e"))
        self.assertEqual(r.rc, 2, r.err)
        r = self.run_cli(self.qwen3, "--ids", self.path("ids", "5"), "--out", self.path("l"),
                         "--image", a, name="kuiper_logits")
        self.assertEqual(r.rc, 2, r.err)


class PrintPrompt(CliTest):
    CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

    def test_needs_the_template_only(self):
        template = self.path("t.jinja", self.CHATML)
        r = self.ok(template, "--print-prompt", "-p", "Hello")
        self.assertEqual((r.out, r.err),
                         ("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", ""))

    def test_reads_a_request(self):
        template = self.path("t.jinja", "{{ messages[0].content }}|{{ tools|tojson }}|{{ documents|tojson }}|"
                             "{{ effort }}|{{ add_generation_prompt }}|{{ strftime_now('%a %d') }}")
        request = self.path("r.json", '{"messages": [{"role": "user", "content": "Q"}], "tools": [{"name": "a"}], '
                            '"documents": [{"b": 2}], "add_generation_prompt": false, '
                            '"chat_template_kwargs": {"effort": "low"}}')
        r = self.ok(template, "--print-prompt", "--messages", request, "--now", "2026-11-21T12:34:56")
        self.assertEqual(r.out, 'Q|[{"name": "a"}]|[{"b": 2}]|low|False|Sat 21')

    def test_failures(self):
        template = self.path("t.jinja", self.CHATML)
        args = (template, "--print-prompt", "--messages")
        self.fails(5, *args, self.path("a", '{"messages": [{"role": "user", "content": "Q"}], "mood": 1}'),
                   message='unknown field "mood"')
        self.fails(5, *args, self.path("b", '{"messages": [{"role": "user", "content": "Q"}], '
                                       '"chat_template_kwargs": {"mood": 1}}'),
                   message='the chat template does not read "mood" of chat_template_kwargs')
        self.fails(3, self.path("bad.jinja", "a\n{% if %}"), "--print-prompt", "-p", "x",
                   message="line 2, column 7")
        self.fails(5, self.path("no.jinja", "{{ raise_exception('no users') }}"), "--print-prompt", "-p", "x",
                   message="the chat template refuses the messages: no users")
        self.fails(2, template, "--print-prompt", "-p", "x", "--now", "2026-02-30T00:00:00",
                   message="is no time")

    def test_says_what_it_found(self):
        r = self.ok(self.qwen3, "--print-prompt", "-p", "x", "-v")
        self.assertIn("chat template: " + os.path.join(self.qwen3, "tokenizer_config.json"), r.err)
        self.assertIn("thinking: <think> ... </think>", r.err)

    def test_the_example_of_the_library_renders_as_the_programs_do(self):
        """Models of other templates than Qwen's: generate (docs/examples) gives what run gives, or the same error."""
        other = self.path("other", "")
        os.remove(other)
        os.mkdir(other)
        for name in os.listdir(self.qwen3):
            os.symlink(os.path.join(self.qwen3, name), os.path.join(other, name))
        template = os.path.join(other, "chat_template.jinja")
        example = os.path.join(ARGS.bin, "..", "docs", "examples", "generate_example")
        with open(template, "w") as f:
            f.write("{% for m in messages %}Question: {{ m.content }}\nAnswer:{% endfor %}")
        run = self.ok(other, "-p", "What is 2 + 3?", "-o", "json").json()
        asked = self.ok(other, "What is 2 + 3?", name=example)
        self.assertEqual(asked.out, "What is 2 + 3? -> " + run["text"] + "\n")
        with open(template, "w") as f:
            f.write("{{ raise_exception('not for questions') }}")
        message = "the chat template refuses the messages: not for questions"
        self.fails(5, other, "-p", "What is 2 + 3?", message=message)
        r = self.run_cli(other, "What is 2 + 3?", name=example)
        self.assertEqual((r.rc, r.out), (1, ""))
        self.assertIn(message, r.err)


class Pack(CliTest):
    def test_a_packed_model_answers_alike(self):
        packed = self.path("m.bin")
        r = self.ok(self.qwen3, packed, name="kuiper_pack")
        self.assertEqual((r.out, r.err), ("", ""))
        args = ("--device", "cpu", "-p", "Hello", "-n", "8", "-q")
        self.assertEqual(self.ok(packed, *args).out, self.ok(self.qwen3, *args).out)

    def test_the_older_file_of_a_template_is_packed(self):
        folder, packed = os.path.join(self.dir, "model"), self.path("m.bin")
        shutil.copytree(self.qwen3, folder)
        with open(os.path.join(folder, "chat_template.json"), "w") as f:
            json.dump({"chat_template": "of its own: {{ messages[0].content }}"}, f)
        self.ok(folder, packed, name="kuiper_pack")
        for model in (folder, packed):
            self.assertEqual(self.ok(model, "-p", "Hello", "--print-prompt").out, "of its own: Hello")

    def test_failures(self):
        self.fails(2, self.qwen3, name="kuiper_pack", message="too few arguments")
        self.fails(3, "/m/x", self.path("o"), name="kuiper_pack", message="model file not found")
        self.fails(1, self.qwen3, "/nonexistent/o", name="kuiper_pack", message="cannot write")
        self.fails(1, self.qwen3, self.dir, name="kuiper_pack", message="Is a directory")
