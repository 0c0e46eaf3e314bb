"""Images and videos: one-shot runs, chats, sessions, batches, and what is wrong with them."""
import base64
import json
import os
import re
import shutil
import signal
import tempfile

import vision_model
from cli_harness import ARGS, CliTest, program
from cli_terminal import CTRL, Pty

VL = "qwen3_vl_infer"
RED, BLUE = (220, 30, 30), (20, 40, 230)


class ImageTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = tempfile.mkdtemp(prefix="kuiper_vl_")
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.model = vision_model.write_model(os.path.join(cls.shared, "tiny-vl"), cls.qwen3)

    def setUp(self):
        super().setUp()
        self.red = self.path("red.png", vision_model.png(96, 64, RED))
        self.blue = self.path("blue.png", vision_model.png(96, 64, BLUE))

    def see(self, *args, rc=0, **kwargs):
        kwargs.setdefault("name", VL)
        r = self.run_cli(self.model, "--device", "cpu", *args, **kwargs)
        self.assertEqual(r.rc, rc, r.err)
        return r

    def answer(self, *args, **kwargs):
        return self.see(*args, "-o", "json", "--max-tokens", "12", **kwargs).json()

    def see_fails(self, code, *args, **kwargs):
        kwargs.setdefault("name", VL)
        return self.fails(code, self.model, "--device", "cpu", *args, **kwargs)

    def url(self, path):
        with open(path, "rb") as f:
            return "data:image/png;base64," + base64.b64encode(f.read()).decode()


class OneShot(ImageTest):
    def test_answer_and_statistics(self):
        r = self.see("--image", self.red, "-p", "What is it?", "-m", "5")
        self.assertTrue(r.out.startswith("Assistant: "), r.out)
        self.assertIn("image 0: %s, 96x64 -> 96x64, 6 tokens" % self.red, r.err)
        self.assertRegex(r.err, r"Images: 1, 24 patches, 6 tokens, prepared in \S+ ms, 1 encoded in \d+\.\d ms\n")
        self.assertRegex(r.err, r"Decode: 5 tokens, .* tokens/s")
        self.assertNotIn("Assistant:", r.err)

    def test_json_has_the_facts_of_each_image(self):
        one = self.answer("-i", self.red, "-p", "x")
        two = self.answer("-i", self.red, "--image", self.blue, "-p", "x")
        self.assertEqual(one["images"], [{"source": self.red, "width": 96, "height": 64,
                                          "scaled_width": 96, "scaled_height": 64, "frames": None,
                                          "patches": 24, "tokens": 6}])
        self.assertEqual(one["usage"]["image_tokens"], 6)
        self.assertEqual(two["usage"]["image_tokens"], 12)
        # Six pads and two tokens around them.
        self.assertEqual(two["usage"]["prompt_tokens"] - one["usage"]["prompt_tokens"], 8)
        self.assertGreater(two["timing"]["image_ms"], 0)
        self.assertGreater(two["timing"]["image_encode_ms"], 0)
        text = self.answer("-p", "x")
        self.assertNotIn("images", text)
        self.assertNotIn("image_tokens", text["usage"])

    def logits(self, *images, name="logits.npy"):
        args = [part for image in images for part in ("--image", image)]
        path = self.path(name)
        self.see(*args, "-p", "x", "-m", "2", "--dump-logits", path)
        with open(path, "rb") as f:
            return f.read()

    def test_pixels_and_order_matter(self):
        red = self.logits(self.red)
        self.assertEqual(red, self.logits(self.red))
        self.assertNotEqual(red, self.logits(self.blue))
        self.assertNotEqual(self.logits(self.red, self.blue), self.logits(self.blue, self.red))

    def test_no_way_of_computing_changes_the_answer(self):
        base = ("-i", self.red, "-i", self.blue, "-p", "Which?")
        want = self.answer(*base)["token_ids_fnv1a64"]
        for args in (("-P",), ("-P", "--page-size", "1"), ("-P", "--page-size", "256"),
                     ("--max-num-batched-tokens", "1"), ("-P", "--max-num-batched-tokens", "5"),
                     ("-P", "--prefix-cache"), ("-g",), ("-P", "-g"), ("-s",)):
            got = self.answer(*base, *args)
            self.assertEqual(got["token_ids_fnv1a64"], want, args)
        self.assertEqual(self.answer(*base, name="kuiper_run")["token_ids_fnv1a64"], want)

    def run_cli(self, *args, name=VL, **kwargs):
        if name == "kuiper_run":  # where -i is a chat and -m the model
            args = ["run"] + ["--image" if arg == "-i" else arg for arg in args]
            name = "kuiper"
        return super().run_cli(*args, name=name, **kwargs)

    def test_verify_paged(self):
        r = self.see("-i", self.red, "-p", "x", "-m", "20", "--verify-paged", "--page-size", "1")
        self.assertIn("identical: ", r.out)

    def test_budgets(self):
        self.path("big.png", vision_model.png(640, 480, RED))
        big = os.path.join(self.dir, "big.png")

        def tokens(*args):
            return self.answer("-i", big, "-p", "x", *args)["usage"]["image_tokens"]

        # The model's own budget of 262144 is less than the program's.
        self.assertEqual(tokens(), 18 * 13)
        self.assertEqual(tokens("--max-pixels", "400000"), 20 * 15)
        self.assertLessEqual(tokens("-x", "102400"), 100)
        self.assertLessEqual(tokens("--max-pixel", "51200"), 50)
        self.assertLessEqual(tokens("--image-max-tokens", "30"), 30)
        self.assertEqual(tokens("--max-pixels", "model"), 18 * 13)
        self.assertGreaterEqual(tokens("--min-pixels", "400000"), 390)

    def test_ctrl_c_ends_the_encoding_of_a_picture(self):
        deep = vision_model.write_model(self.path("deep"), self.qwen3, depth=100)
        picture = self.path("large.png", vision_model.png(1024, 1024, RED))
        t = Pty([program(VL), deep, "--device", "cpu", "--threads", "1", "-i", picture, "-p", "x",
                 "--max-pixels", "1048576"], os.environ)
        t.until(b"encoding a picture: ")  # which takes longer than a second
        t.send(CTRL["C"])
        self.assertEqual(t.end(), -signal.SIGINT)
        shares = [int(n) for n in re.findall(rb"encoding a picture: (\d+) %", t.shown)]
        self.assertLess(shares[-1], 100, t.shown)
        self.assertNotIn(b"Assistant:", t.shown)

    def test_default_prompt_and_text_only(self):
        r = self.see("-i", self.red, "-m", "2")
        self.assertIn("note: no prompt given, asking: Describe this image.", r.err)
        r = self.see("-p", "Hello", "-m", "2")
        self.assertIn("note: no --image given, running text only", r.err)

    def test_looking_at_prompts(self):
        r = self.see("-i", self.red, "-p", "x", "--print-prompt")
        self.assertEqual(r.out, "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>x"
                                "<|im_end|>\n<|im_start|>assistant\n")
        ids = self.see("-i", self.red, "-p", "x", "--tokenize").out.split()
        with open(os.path.join(self.model, "config.json")) as f:
            pad = json.load(f)["image_token_id"]
        self.assertEqual(ids.count(str(pad)), 6)
        raw = self.see("-i", self.red, "--raw", "--tokenize", "-p",
                       "<|vision_start|><|image_pad|><|vision_end|>").out.split()
        self.assertEqual(raw.count(str(pad)), 6)
        self.assertEqual(len(raw), 8)
        self.see_fails(5, "--raw", "-p", "<|vision_start|><|image_pad|><|vision_end|>",
                       message="the prompt has places for 1 image and 0 videos, and there are 0")

    def test_dry_run(self):
        r = self.see("-i", self.red, "--dry-run")
        self.assertIn("image 0: %s, 96x64 -> 96x64, 6 tokens, 24 patches" % self.red, r.out)
        small = self.see("-i", self.red, "--dry-run", "-o", "json").json()
        self.assertEqual(small["images"][0]["patches"], 24)
        self.assertGreater(small["encoder_bytes"], 0)
        large = self.see("--dry-run", "-o", "json").json()
        self.assertGreater(large["encoder_bytes"], small["encoder_bytes"])

    def test_benchmark(self):
        r = self.see("-i", self.red, "--benchmark", "--benchmark-prompt-tokens", "4,20",
                     "--benchmark-decode-tokens", "3")
        self.assertIn("note: skipped 4 prompt tokens: the pictures take 8", r.err)
        self.assertIn(",20,3,", r.out)

    def test_videos(self):
        folder = self.path("frames")
        os.mkdir(folder)
        for i in range(6):
            with open(os.path.join(folder, "%d.png" % i), "wb") as f:
                f.write(vision_model.png(64, 64, (40 * i, 10, 200)))
        video = self.answer("--video", folder, "--video-fps", "3", "-p", "x")
        self.assertEqual(video["images"][0]["frames"], 2)
        self.assertEqual(video["usage"]["image_tokens"], 2 * 4)
        animation = os.path.join(ARGS.source, "test", "data", "images", "moving.webp")
        both = self.answer("--video", animation, "-i", self.red, "-p", "x")
        self.assertEqual([image["frames"] is None for image in both["images"]], [False, True])
        r = self.see("-i", self.red, "--video", animation, "-p", "x", "-m", "2")
        self.assertIn("image 0: %s, " % self.red, r.err)
        self.assertIn("video 1: %s, " % animation, r.err)
        self.assertIn("Images: 1, videos: 1, ", r.err)
        self.assertIn("\nVideos: 1, ", self.see("--video", animation, "-p", "x", "-m", "2").err)
        self.see_fails(5, "--image", folder, "-p", "x", message=folder + " is a folder, not an image",
                       hint="--video")
        small = self.answer("--video", folder, "--video-fps", "3", "-p", "x", "--image-max-tokens", "2")
        self.assertLessEqual(small["usage"]["image_tokens"], 2 * 2)

    def test_messages(self):
        want = self.answer("-i", self.red, "-p", "x")["token_ids_fnv1a64"]
        for image in ({"type": "image_url", "image_url": {"url": "red.png"}},
                      {"type": "image_url", "image_url": {"url": self.url(self.red)}},
                      {"type": "image", "image": self.red}, {"type": "image", "image": "file://" + self.red}):
            messages = [{"role": "user", "content": [image, {"type": "text", "text": "x"}]}]
            path = self.path("messages.json", json.dumps(messages))
            self.assertEqual(self.answer("--messages", path)["token_ids_fnv1a64"], want, image)
        messages[0]["content"][0] = {"type": "image"}
        path = self.path("messages.json", json.dumps(messages))
        self.assertEqual(self.answer("--messages", path, "-i", self.red)["token_ids_fnv1a64"], want)
        self.see_fails(5, "--messages", path, message="have places for 1 picture, and 0 were given")

    def test_packed_models_carry_what_pictures_need(self):
        packed = self.path("tiny-vl.bin")
        self.ok(self.model, packed, name="kuiper_pack")
        want = self.answer("-i", self.red, "-p", "x", "--min-pixels", "1")
        r = self.ok(packed, "--device", "cpu", "-i", self.red, "-p", "x", "--min-pixels", "1", "-o",
                    "json", "--max-tokens", "12", name=VL)
        self.assertEqual(r.json()["token_ids_fnv1a64"], want["token_ids_fnv1a64"])


class Errors(ImageTest):
    def test_files(self):
        missing = self.path("cat.png")
        self.see_fails(5, "-i", missing, "-p", "x",
                       message="cannot open image %s: No such file or directory" % missing)
        text = self.path("cat.jpg", "no picture")
        self.see_fails(5, "-i", text, "-p", "x",
                       message=text + " is not a decodable image (PNG, JPEG, GIF, WebP supported)")
        with open(self.red, "rb") as f:
            half = self.path("half.png", f.read()[:60])
        self.see_fails(5, "-i", half, "-p", "x", message=half)
        long = self.path("long.png", vision_model.png(412, 1, RED))
        self.see_fails(5, "-i", long, "-p", "x", message="aspect ratio 412:1 exceeds 200:1")
        self.see_fails(5, "-i", "https://example.com/a.png", "-p", "x", message="is not fetched")
        self.see_fails(6, "-i", self.red, "--min-pixels", "600000", "-c", "200", "-p", "x",
                       hint="of them stand for pictures: lower --max-pixels")
        self.see_fails(5, "-i", "", "-p", "x", message="--image has neither a path nor a URL")
        self.see_fails(5, "-i", self.dir, "-p", "x")

    def test_usage(self):
        self.see_fails(2, "-x", "0", "-p", "x", message="-x: 0 is out of range")
        self.see_fails(2, "--min-pixels", "5000", "-x", "4000", "-p", "x", message="image sizes")
        self.see_fails(2, "--image", message="--image needs a value")

    def test_too_many_tokens(self):
        self.see_fails(6, "-i", self.red, "-p", "x", "-c", "10", message="the context is 10")

    def test_kinds_of_models(self):
        self.fails(3, self.model, "-p", "x",
                   message=self.model + " holds a Qwen3-VL model; qwen3_infer runs text models",
                   hint="use qwen3_vl_infer")
        self.fails(3, self.qwen3, "-p", "x", name=VL, hint="use qwen3_infer",
                   message=self.qwen3 + " holds a text model; qwen3_vl_infer runs Qwen3-VL models")
        self.fails(3, "run", self.qwen3, "--image", self.red, "-p", "x", name="kuiper",
                   message="holds a text model (Qwen3ForCausalLM), which takes no --image")
        self.fails(2, self.qwen3, "--image", self.red, "-p", "x",
                   message="--image is not available: this program takes text only")
        part = {"type": "image", "image": self.red}
        path = self.path("m.json", json.dumps([{"role": "user", "content": [part]}]))
        self.fails(5, "run", self.qwen3, "--messages", path, name="kuiper",
                   message="message 0 holds an image, but the model takes text only")

    def test_json(self):
        r = self.run_cli(self.model, "-i", "nowhere.png", "-p", "x", "-o", "json", name=VL)
        self.assertEqual(r.rc, 5)
        self.assertEqual(r.json()["error"]["code"], "invalid_input")

    def test_processor_configuration(self):
        model = self.path("broken")
        shutil.copytree(self.model, model)
        path = os.path.join(model, "preprocessor_config.json")
        with open(path, "w") as f:
            json.dump({**vision_model.PROCESSOR, "patch_size": 14}, f)
        self.fails(3, model, "-p", "x", name=VL, message="differ in the size of patches")
        os.remove(path)
        self.fails(3, model, "-p", "x", name=VL, message="preprocessor_config.json")


class Chats(ImageTest):
    def chat(self, script, *args, **kwargs):
        return self.see("--interactive", "-m", "6", "-P", "--prefix-cache", "--color", "never", *args,
                        stdin=script, **kwargs)

    def test_a_picture_belongs_to_the_next_message(self):
        r = self.chat("/image %s\n/image '%s'\nWhich?\n/tokens\nAnd now?\n/tokens\n/undo\n/tokens\n"
                      "/regen\n/clear\n/tokens\n" % (self.red, self.blue))
        for path in (self.red, self.blue):
            self.assertIn(path + ", 96x64 -> 96x64, 6 tokens: goes with the next message", r.err)
        self.assertEqual(r.err.count("image 0: " + self.red), 3, r.err)
        contexts = [int(line.split()[1]) for line in r.err.splitlines()
                    if line.startswith("context: ")]
        self.assertGreater(contexts[0], 16)
        self.assertGreater(contexts[1], contexts[0])
        self.assertEqual(contexts[2], contexts[0])
        self.assertEqual(contexts[3], 0)

    def test_what_waits_may_be_taken_back(self):
        r = self.chat("/image %s\n/undo\nOne\n/image %s\nTwo\n/undo\n/undo\n"
                      % (self.red, self.blue))
        self.assertNotIn("image 0: " + self.red, r.err)
        self.assertIn("image 0: " + self.blue, r.err)
        self.assertIn("removed the attachments of the next message", r.err)
        self.assertIn("took back the last turn, 0 left", r.err)
        r = self.chat("One\n/undo\n", "--image", self.red, "--file", self.path("t", "Look"))
        self.assertIn("took back the last turn, 1 left", r.err)

    def test_the_first_message_takes_those_of_the_flags(self):
        r = self.chat("What?\nWhy?\n", "--image", self.red)
        self.assertEqual(r.err.count("image 0: " + self.red), 2, r.err)

    def test_errors_leave_the_chat_alone(self):
        r = self.chat("/image nowhere.png\n/image\nHello\n", rc=5)
        self.assertIn("error: cannot open image nowhere.png: No such file or directory", r.err)
        self.assertIn("error: /image needs a file", r.err)
        self.assertNotIn("image 0:", r.err)
        r = self.run_cli("chat", self.qwen3, "--device", "cpu", stdin="/image x\n", name="kuiper")
        self.assertEqual(r.rc, 2)
        self.assertIn("/image: this model takes text only", r.err)

    def test_old_turns_take_their_pictures_along(self):
        r = self.chat("/image %s\nOne\n/image %s\nTwo\nThree\n" % (self.red, self.blue),
                      "--max-history", "1")
        last = r.err[r.err.rindex("dropped the oldest"):]
        self.assertIn("image 0: " + self.blue, last)
        self.assertNotIn(self.red, last)

    def test_sessions_keep_pictures_by_path_and_digest(self):
        session = self.path("s.json")
        whole = self.chat("/image %s\nOne\nTwo\n" % self.red, "-o", "json")
        first = self.chat("/image %s\nOne\n" % self.red, "-o", "json", "--session", session)
        then = self.chat("Two\n", "-o", "json", "--session", session)
        hashes = [json.loads(line)["token_ids_fnv1a64"] for line in
                  (first.out + then.out).splitlines()]
        self.assertEqual(hashes, [json.loads(line)["token_ids_fnv1a64"]
                                  for line in whole.out.splitlines()])
        with open(session) as f:
            part = json.load(f)["messages"][0]["content"][0]
        self.assertEqual(part["image"], self.red)
        self.assertEqual(len(part["digest"]), 32)
        shutil.copy(self.blue, self.red)
        self.see_fails(5, "-p", "x", "--session", session,
                       message="%s: %s is not what it was" % (session, self.red))
        os.remove(self.red)
        self.see_fails(5, "-p", "x", "--session", session, message="cannot open image " + self.red)
        r = self.chat("/load %s\n" % session, rc=5)
        self.assertIn("cannot open image " + self.red, r.err)

    def test_saved_conversations_go_elsewhere(self):
        os.mkdir(self.path("sub"))
        saved = self.path("sub/saved.json")
        self.chat("/image %s\nOne\n/save %s\n" % (self.red, saved))
        r = self.chat("/load %s\n/regen\n" % saved)
        self.assertIn("image 0: " + self.red, r.err)


class Batches(ImageTest):
    def line(self, name, url, **more):
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "x"}]
        return json.dumps({"custom_id": name, "messages": [{"role": "user", "content": content}],
                           "max_tokens": 12, **more})

    def test_answers_are_those_of_single_runs(self):
        lines = [self.line("relative", "red.png"), self.line("data", self.url(self.blue)),
                 self.line("missing", "nowhere.png"), self.line("fetched", "http://x/y.png"),
                 json.dumps({"custom_id": "text", "messages": [{"role": "user", "content": "x"}],
                             "max_tokens": 12})]
        source, out = self.path("in.jsonl", "\n".join(lines)), self.path("out.jsonl")
        r = self.run_cli(self.model, "--device", "cpu", "-i", source, "-o", out, name="kuiper_batch")
        self.assertEqual(r.rc, 0, r.err)
        with open(out) as f:
            answers = {line["custom_id"]: line for line in map(json.loads, f)}
        for name, args in (("relative", ("-i", self.red)), ("data", ("-i", self.blue)), ("text", ())):
            want = self.answer(*args, "-p", "x")
            self.assertEqual(answers[name]["token_ids_fnv1a64"], want["token_ids_fnv1a64"], name)
            self.assertEqual(answers[name]["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"])
        self.assertIn("cannot open image", answers["missing"]["error"]["message"])
        self.assertIn("is not fetched", answers["fetched"]["error"]["message"])

    def test_another_budget_is_another_fingerprint(self):
        source, out = self.path("in.jsonl", self.line("a", "red.png")), self.path("out.jsonl")
        args = (self.model, "--device", "cpu", "-i", source, "-o", out)
        self.ok(*args, name="kuiper_batch")
        with open(source, "a") as f:
            f.write("\n" + self.line("b", "red.png"))
        self.fails(5, *args, "--max-pixels", "4096", name="kuiper_batch", message="other settings")
        self.ok(*args, name="kuiper_batch")
