"""kuiper quantize: directories, errors, and that a run goes on behind a kill."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time

from cli_harness import CliTest, default_signals, program


def write_model(path, hidden, intermediate):
    """A Llama of one layer, without a tokenizer."""
    os.mkdir(path)
    shapes = {"model.embed_tokens": (16, hidden), "model.norm": (hidden,)}
    for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
                        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden),
                        "self_attn.v_proj": (hidden, hidden), "self_attn.o_proj": (hidden, hidden),
                        "mlp.gate_proj": (intermediate, hidden), "mlp.up_proj": (intermediate, hidden),
                        "mlp.down_proj": (hidden, intermediate)}.items():
        shapes["model.layers.0." + name] = shape
    header, data = {}, b""
    for name, shape in shapes.items():
        content = b"\x80\x3f\x00\xbf" * (shape[0] * (shape[1] if len(shape) > 1 else 1) // 2)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data + content)]}
        data += content
    head = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
                   "intermediate_size": intermediate, "num_hidden_layers": 1, "num_attention_heads": hidden // 8,
                   "num_key_value_heads": hidden // 8, "vocab_size": 16, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                   "max_position_embeddings": 64, "torch_dtype": "bfloat16", "tie_word_embeddings": True}, f)
    return path


class Quantize(CliTest):
    def quantize(self, *args, **kwargs):
        return self.ok("quantize", *args, "--group-size", "32", name="kuiper", **kwargs)

    def refuses(self, code, *args, **kwargs):
        return self.fails(code, "quantize", *args, name="kuiper", **kwargs)

    def content(self, folder):
        found = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as f:
                found[name] = f.read()
        return found

    def test_makes_a_directory_that_answers(self):
        for more, method in ((("--format", "awq"), "awq"), ((), "compressed-tensors"),
                             (("--no-asymmetric",), "compressed-tensors"), (("--bits", "8"), "compressed-tensors")):
            out = self.path("out" + "".join(more))
            r = self.quantize(self.qwen3, out, *more)
            self.assertRegex(r.out, r"^\S+: [48] bits in groups of 32, \d+ MB of 6 MB, mean error 0\.\d+%\n$")
            self.assertRegex(r.err, r"layer 4 of 4: error 0\.\d+%, largest model\.layers\.3\.\S+ 0\.\d+%")
            files = self.content(out)
            config = json.loads(files["config.json"])
            self.assertEqual(config["quantization_config"]["quant_method"], method)
            if method != "awq":
                weights = config["quantization_config"]["config_groups"]["group_0"]["weights"]
                self.assertEqual(weights["symmetric"], "--no-asymmetric" in more)
            for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                with open(os.path.join(self.qwen3, name), "rb") as f:
                    self.assertEqual(files[name], f.read())
            self.assertEqual([name for name in files if name.startswith(("quantize", "model"))], ["model.safetensors"])
            self.ok("run", out, "-p", "What is 2 + 3?", "--device", "cpu", "-n", "4", name="kuiper")
            text = self.path("text", "What is 2 + 3? 2 + 3 = 5\nSort 5, 3, 9.\n3, 5, 9\n" * 4)
            r = self.ok("eval", self.qwen3, "--text", text, "--device", "cpu", "--json", "--against", out, name="kuiper")
            compared = r.json()["configurations"][1]["compared"]
            self.assertLess(compared["mean_kl"], 0.01 if "8" in more else 1)

    def test_bundled_model_answers_alike_in_every_layout(self):
        awq = os.path.join(os.path.dirname(self.qwen3), "tiny-qwen3-awq")
        layouts = [("--paged-attention",), ("--paged-attention", "--block-size", "1", "--prefix-cache")]
        if "simt" in self.ok("--version").out:
            layouts.append(("--device", "simt", "--paged-attention"))
        for question, answer in (("What is 34 + 57?", "34 + 57 = 91."), ("Sort 42, 7, 19.", "7, 19, 42")):
            r = self.ok(awq, "-p", question, "--device", "cpu", "-q")
            self.assertEqual(r.out, answer + "\n")
            for more in layouts:
                self.assertEqual(self.ok(awq, "-p", question, "--device", "cpu", "-q", *more).out, r.out)
            for kv, activations in (("auto", "auto"), ("int8", "auto"), ("fp8", "auto"), ("auto", "int8")):
                checked = self.ok(awq, "-p", question, "--device", "cpu", "--verify-paged", "--kv-cache-dtype", kv,
                                  "--activation-dtype", activations)
                self.assertIn("identical: ", checked.out + checked.err)
            self.assertEqual(self.ok(awq, "-p", question, "--device", "cpu", "-q", "--activation-dtype", "int8").out, r.out)

    def test_activations_of_8_bits_need_codes_and_the_cpu(self):
        awq = os.path.join(os.path.dirname(self.qwen3), "tiny-qwen3-awq")
        flag = ("-p", "x", "-n", "1", "--activation-dtype", "int8")
        self.fails(2, self.qwen3, *flag, "--device", "cpu", message="is for weights of INT4 or INT8")
        self.ok(self.qwen3, *flag, "--device", "cpu", "--lm-head-dtype", "int8")
        if "simt" in self.ok("--version").out:
            self.fails(2, awq, *flag, "--device", "simt", message="is for the CPU")

    def test_what_reads_pictures_is_copied(self):
        sees = os.path.join(os.path.dirname(self.qwen3), "tiny-qwen3-vl")
        out = self.path("out")
        r = self.quantize(sees, out, "--limit", "256")
        self.assertNotIn("warning", r.err)
        with open(os.path.join(out, "model.safetensors"), "rb") as f:
            names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        self.assertIn("model.visual.blocks.0.attn.proj.weight", names)
        self.assertIn("model.language_model.layers.0.mlp.down_proj.weight_packed", names)
        self.ok("run", out, "-p", "What is 2 + 3?", "--device", "cpu", "-n", "4", name="kuiper")

    def test_awq_is_nearer_than_rounding(self):
        errors = []
        for method in ("awq", "rtn"):
            r = self.quantize(self.qwen3, self.path(method), "--method", method, "-q")
            errors.append(float(r.out.split("mean error ")[1].split("%")[0]))
        self.assertLess(errors[0], errors[1])

    def test_goes_on_behind_a_kill(self):
        whole = self.path("whole")
        self.quantize(self.qwen3, whole)
        out = self.path("out")
        args = [program("kuiper"), "quantize", self.qwen3, out, "--group-size", "32"]
        with subprocess.Popen(args, stderr=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=default_signals) as p:
            for line in p.stderr:
                if line.startswith(b"layer 2 of 4"):
                    break
            p.send_signal(signal.SIGKILL)
            p.communicate(timeout=60)
        self.assertIn("quantize.state", os.listdir(out))
        self.assertNotIn("config.json", os.listdir(out), "no model yet")
        self.refuses(2, self.qwen3, out, "--group-size", "64", message="was begun with another model")
        r = self.quantize(self.qwen3, out)
        self.assertIn("layer 1 of 4: error", r.err)
        self.assertRegex(r.err, r"layer 2 of 4: error 0\.\d+%, kept from before")
        self.assertEqual(self.content(out), self.content(whole))

    def test_group_size_is_chosen_by_the_shape(self):
        for hidden, intermediate, size in ((128, 256, 128), (128, 192, 64), (64, 128, 64), (128, 160, 32), (32, 128, 32)):
            model = write_model(self.path("%d-%d" % (hidden, intermediate)), hidden, intermediate)
            out = self.path("out-%d-%d" % (hidden, intermediate))
            r = self.ok("quantize", model, out, "--method", "rtn", name="kuiper")
            self.assertIn("groups of %d weights, the largest of 128, 64 and 32 that divides" % size, r.err)
            self.assertIn("4 bits in groups of %d, " % size, r.out)
            with open(os.path.join(out, "config.json")) as f:
                groups = json.load(f)["quantization_config"]["config_groups"]
            self.assertEqual(groups["group_0"]["weights"]["group_size"], size)
        self.refuses(3, self.path("128-192"), self.path("out"), "--method", "rtn", "--group-size", "128",
                     message="192 inputs, no multiple of the group size 128", hint="leave --group-size out, or use 64$")
        self.refuses(3, write_model(self.path("odd"), 128, 48), self.path("out"), "--method", "rtn",
                     message="48 inputs, no multiple of the group size 32")

    def test_refusals(self):
        out = self.path("out")
        text = self.ok("quantize", "--help", name="kuiper").out
        self.assertIn("usage: kuiper quantize MODEL OUT [options]\n", text)
        self.assertIn("\nMODEL is a Hugging Face directory; OUT is the directory that is made.\n", text)
        self.refuses(2, self.qwen3, message="no output directory given", hint="usage: MODEL OUT")
        self.refuses(2, message="no model given")
        self.refuses(2, self.qwen3, out, "--bits", "3", message="--bits")
        self.refuses(2, self.qwen3, out, "--format", "awq", "--bits", "8", message="AWQ has 4 bits")
        self.refuses(2, self.qwen3, out, "--format", "awq", "--no-asymmetric", message="AWQ is asymmetric")
        self.refuses(2, self.qwen3, out, "--prompt", "x", message="unknown option --prompt")
        self.refuses(3, "/nonexistent", out, "--method", "rtn", message="model file not found")
        self.refuses(3, os.path.join(self.qwen3, "model.safetensors"), out, "--method", "rtn",
                     message="is no Hugging Face model directory")
        self.refuses(5, self.qwen3, out, "--text", "/nonexistent/x", message="cannot open text file")
        self.refuses(2, self.qwen3, self.qwen3, message="is not empty")
        self.refuses(2, self.qwen3, self.path("file", "x"), message="is no directory")
        self.assertFalse(os.path.exists(out), "nothing is made before everything is known to be right")
        self.quantize(self.qwen3, out, "--method", "rtn")
        self.refuses(3, out, self.path("again"), "--method", "rtn", message="is quantised already")
        self.refuses(2, self.qwen3, out, message="is not empty")
