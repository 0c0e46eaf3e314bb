"""kuiper_batch: answers equal those of single runs, order, bad lines, resuming after a kill."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

from cli_harness import ARGS, CliTest, default_signals, program

# About what random prompts of a bundled model do: long and short answers, greedy and sampled.
WORDS = "the red cat of a small town has seven old clocks and no time".split()


def chat(custom_id, text, **body):
    messages = [{"role": "user", "content": text}]
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "any", "messages": messages, **body}}


def lines_of(*requests):
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)


class Batch(CliTest):
    def batch(self, requests, *args, output=None, run=None):
        path = self.path("requests.jsonl", requests)
        output = output or self.path("answers.jsonl")
        result = (run or self.ok)(self.qwen3, "--device", "cpu", "--input", path, "--output",
                                  output, *args, name="kuiper_batch")
        return result, output

    def answers(self, requests, *args):
        _, output = self.batch(requests, *args)
        with open(output, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def mixed_requests(self, count):
        dice = random.Random(7)
        requests = []
        for i in range(count):
            text = " ".join(dice.choices(WORDS, k=dice.randint(1, 40)))
            body = {"max_tokens": dice.randint(1, 30), "seed": i, "ignore_eos": True,
                    "temperature": dice.choice([0, 0.8])}
            if i % 3 == 1:
                body["n"] = dice.randint(2, 3)
            if i % 6 == 5:
                body.update(n=2, beam_width=3, length_penalty=0.5, temperature=0)
            requests.append(chat(f"r{i}", text, **body))
        return requests

    def test_answers_are_those_of_single_runs_in_the_order_of_the_requests(self):
        requests = self.mixed_requests(7)
        requests[2]["body"]["chat_template_kwargs"] = {"enable_thinking": False}
        answers = self.answers(lines_of(*requests), "--max-num-seqs", "4", "--block-size", "8")
        self.assertEqual([a["custom_id"] for a in answers], [r["custom_id"] for r in requests])
        for request, answer in zip(requests, answers):
            body = request["body"]
            of_template = {key: body[key] for key in ("messages", "tools", "chat_template_kwargs") if key in body}
            messages = self.path("m.json", json.dumps(of_template))
            count = body.get("n", 1)
            args = ["--num-samples", count]
            if "beam_width" in body:
                args = ["--beam-width", body["beam_width"], "--length-penalty", body["length_penalty"]]
            alone = self.qwen3_run("--messages", messages, "--max-tokens", body["max_tokens"],
                                   "--temp", body["temperature"], "--seed", body["seed"],
                                   "--ignore-eos", "-o", "json", *args).json()
            expected = alone.get("choices", [alone])[:count]
            choices = answer["response"]["body"]["choices"]
            self.assertEqual([choice["index"] for choice in choices], list(range(count)))
            for choice, one in zip(choices, expected):
                self.assertEqual(choice["message"]["content"], one["text"])
                self.assertEqual(choice["message"].get("reasoning_content", ""), one["reasoning"])
                self.assertEqual(choice["finish_reason"], one["finish_reason"])
            usage = answer["response"]["body"]["usage"]
            self.assertEqual(usage["prompt_tokens"], alone["usage"]["prompt_tokens"])
            self.assertEqual(usage["completion_tokens"],
                             sum(one["usage"]["completion_tokens"] for one in expected))
            self.assertEqual(answer["response"]["status_code"], 200)
            self.assertIsNone(answer["error"])

    def test_completions_and_defaults_of_the_command_line(self):
        alone = self.qwen3_run("--raw", "-p", "The red cat", "-n", "9", "--ignore-eos", "-o",
                               "json").json()
        ids = [int(i) for i in self.qwen3_run("--raw", "-p", "The red cat", "--tokenize").out.split()]
        requests = lines_of({"custom_id": "text", "body": {"prompt": "The red cat"}},
                            {"custom_id": "ids", "url": "/v1/completions", "body": {"prompt": ids}})
        for answer in self.answers(requests, "-n", "9", "--ignore-eos"):
            body = answer["response"]["body"]
            self.assertEqual(body["object"], "text_completion")
            self.assertEqual(body["usage"]["completion_tokens"], 9)
            self.assertEqual(body["choices"][0]["text"].strip(),
                             (alone["reasoning"] + alone["text"]).strip())

    def test_biases_and_least_lengths_are_those_of_flags(self):
        question = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 30,
                    "chat_template_kwargs": {"enable_thinking": False}}
        flags = ("-p", "What is 2 + 3?", "-n", "30", "--think", "off", "-o", "json")
        plain = self.qwen3_run(*flags, "--logprobs", "1").json()
        self.assertEqual(plain["finish_reason"], "stop")
        ids = [token["id"] for token in plain["logprobs"]]
        cases = [({"logit_bias": {str(ids[1]): -100, "42": 1.5}}, ("--logit-bias", f"{ids[1]}:-100,42:1.5")),
                 ({"min_tokens": 30}, ("--min-tokens", "30")),
                 ({"stop_token_ids": [ids[2]]}, ("--stop-token-ids", str(ids[2]))),
                 ({"stop_token_ids": [ids[2]], "min_tokens": 4}, ("--stop-token-ids", str(ids[2]), "--min-tokens", "4"))]
        answers = self.answers(lines_of(*({"custom_id": str(i), **question, **fields}
                                          for i, (fields, _) in enumerate(cases))))
        for answer, (_, args) in zip(answers, cases):
            alone = self.qwen3_run(*flags, *args).json()
            self.assertNotEqual(alone["text"], plain["text"])
            self.assertEqual(answer["text"], alone["text"])
            self.assertEqual(answer["finish_reason"], alone["finish_reason"])

    def test_a_bad_line_gets_an_error_in_its_place(self):
        bad = [
            ("{\"custom_id\": ", None, "line 3: invalid JSON at byte"),
            ("[1]", None, "not an object"),
            ({"body": {"prompt": "x"}}, None, "no custom_id"),
            ({"custom_id": "no body"}, "no body", "neither body nor messages"),
            ({"custom_id": "both", "prompt": "a", "messages": []}, "both", "either messages or prompt"),
            ({"custom_id": "flat", "prompt": "a", "best": 1}, "flat", "best is not available"),
            (chat("many", "x", n=129), "many", "body.n must be at most 128"),
            (chat("urgent", "x", priority=101), "urgent", "body.priority: 101 is out of range"),
            (chat("n", "x", n=0), "n", "body.n: 0 is out of range"),
            (chat("half", "x", n=1.5), "half", "body.n: "),
            (chat("best", "x", n=1, best_of=2), "best", "body.best_of is not supported: leave it out, or write 1"),
            (chat("few", "x", n=3, beam_width=2), "few", "body.n must be at most body.beam_width"),
            (chat("wide", "x", beam_width=17), "wide", "needs as many sequences; 16 are allowed"),
            (chat("warm", "x", beam_width=2, temperature=1), "warm", "takes no temperature"),
            (chat("penalty", "x", length_penalty=2), "penalty", "needs a body.beam_width above 1"),
            (chat("field", "x", suffix="y"), "field", "body.suffix is not available"),
            (chat("bias", "x", logit_bias={"1": 101}), "bias", "body.logit_bias: 101 is out of range"),
            (chat("outside", "x", logit_bias={"99999": 1}), "outside", "token id 99999 is outside the vocabulary"),
            (chat("least", "x", min_tokens=4, max_tokens=3), "least", "body.min_tokens must be from 0 to body.max_tokens"),
            ({"custom_id": "flat least", "prompt": "x", "min_tokens": 4, "max_tokens": 3}, "flat least",
             "min_tokens must be from 0 to max_tokens, which"),
            (chat("ends", "x", stop_token_ids=[-1]), "ends", "body.stop_token_ids is not a list of token ids"),
            (chat("hot", "x", temperature=1000), "hot", "body.temperature: 1000"),
            (chat("word", "x", top_p="much"), "word", "body.top_p is not a number"),
            (chat("tokens", "x", max_tokens=0), "tokens", "body.max_tokens: 0 is out of range"),
            (chat("stop", "x", stop=["a", 1]), "stop", "body.stop"),
            (chat("stream", "x", stream=True), "stream", "body.stream must be false"),
            ({**chat("url", "x"), "url": "/v1/embeddings"}, "url", "url must be"),
            ({**chat("get", "x"), "method": "GET"}, "get", "method must be"),
            ({"custom_id": "empty", "body": {"messages": []}}, "empty", "the list is empty"),
            ({"custom_id": "id", "body": {"prompt": [10 ** 6]}}, "id", "outside the vocabulary"),
            (chat("long", "word " * 3000), "long", "prompt is"),
            (chat("good", "x"), "good", "earlier line has this custom_id"),
        ]
        good = chat("good", "Hello", max_tokens=3, ignore_eos=True)
        requests = lines_of(good, "", *(line for line, _, _ in bad), chat("last", "Hi", max_tokens=2))
        first, *errors, last = self.answers(requests, "--max-context", "256")
        self.assertEqual(first["response"]["body"]["usage"]["completion_tokens"], 3)
        self.assertEqual(last["custom_id"], "last")
        self.assertIsNone(last["error"])
        self.assertEqual(len(errors), len(bad))
        for answer, (_, custom_id, message) in zip(errors, bad):
            self.assertEqual(answer["custom_id"], custom_id)
            self.assertIsNone(answer.get("response"))
            self.assertIn(message, answer["error"]["message"])

    def test_flat_requests_get_flat_answers(self):
        alone = self.qwen3_run("-p", "Hello", "-n", "20", "-o", "json").json()
        long, flat, several = self.answers(lines_of(
            chat("long", "Hello", max_tokens=20),
            {"custom_id": "flat", "messages": [{"role": "user", "content": "Hello"}],
             "max_tokens": 20, "priority": 3},
            {"custom_id": "several", "prompt": "Hello", "n": 2, "max_tokens": 4}))
        body = long["response"]["body"]
        self.assertEqual(body["choices"][0]["token_ids_fnv1a64"], alone["token_ids_fnv1a64"])
        for key in ("text", "reasoning", "finish_reason", "token_ids_fnv1a64", "seed"):
            self.assertEqual(flat[key], alone[key])
        self.assertEqual([choice["reasoning"] for choice in several["choices"]], ["", ""])
        self.assertEqual(flat["usage"], body["usage"])
        self.assertIsNone(flat["error"])
        self.assertEqual(len(several["choices"]), 2)
        self.assertEqual({long["response"]["body"]["system_fingerprint"]},
                         {flat["system_fingerprint"], several["system_fingerprint"]})

    def test_answers_of_another_head_are_not_gone_on_with(self):
        def refused(*args, **kwargs):
            return self.fails(5, *args, message="of another model or of other settings", **kwargs)

        request = lines_of(chat("a", "Hello", max_tokens=1))
        self.answers(request)
        self.answers(request, "--lm-head-dtype", "auto")
        self.batch(request, "--lm-head-dtype", "int8", run=refused)
        self.batch(request, "--lm-head-dtype", "int8", "--activation-dtype", "int8", run=refused)

    def test_bodies_have_what_messages_files_have(self):
        request = {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False}
        plain, with_all, unread, wrong = self.answers(lines_of(
            {"custom_id": "a", "messages": request["messages"], "max_tokens": 2},
            {"custom_id": "b", **request, "max_tokens": 2},
            {"custom_id": "c", **request, "documents": [{"title": "a"}]},
            {"custom_id": "d", **request, "documents": 1}))
        ids = self.qwen3_run("--messages", self.path("m", json.dumps(request)), "--tokenize").out.split()
        self.assertEqual(with_all["usage"]["prompt_tokens"], len(ids))
        self.assertLess(len(ids), plain["usage"]["prompt_tokens"])
        self.assertIn("the chat template does not read documents", unread["error"]["message"])
        self.assertIn("documents is not a list", wrong["error"]["message"])

    def test_seeds(self):
        body = {"prompt": "Hi", "max_tokens": 12, "temperature": 5, "ignore_eos": True}
        answers = self.answers(lines_of(
            {"custom_id": "a", **body, "seed": -1}, {"custom_id": "b", **body, "seed": -12},
            {"custom_id": "c", **body, "seed": 7.0, "top_k": -1}, {"custom_id": "d", **body, "seed": 7},
            {"custom_id": "e", **body, "seed": 7.5}, {"custom_id": "f", **body, "max_tokens": 12.0}))
        a, b, c, d, wrong, _ = answers
        self.assertNotEqual(a["seed"], b["seed"])
        self.assertEqual((c["seed"], c["token_ids_fnv1a64"]), (7, d["token_ids_fnv1a64"]))
        self.assertIn("'7.5' is not a whole number", wrong["error"]["message"])
        os.remove(self.path("answers.jsonl"))
        again, = self.answers(lines_of({"custom_id": "a", **body, "seed": a["seed"]}))
        self.assertEqual(again["token_ids_fnv1a64"], a["token_ids_fnv1a64"])

    def test_a_pipe_that_stays_open(self):
        """Answers come while the writer thinks about the next request, and SIGTERM ends the wait."""
        for number in (signal.SIGTERM, signal.SIGINT):
            run = subprocess.Popen([program("kuiper_batch"), self.qwen3, "--device", "cpu", "-i", "-",
                                    "-o", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=default_signals)
            for custom_id in "ab":
                request = {"custom_id": custom_id, "prompt": "x", "max_tokens": 2}
                run.stdin.write(lines_of(request, "").encode())
                run.stdin.flush()
                self.assertEqual(json.loads(run.stdout.readline())["custom_id"], custom_id)
            run.stdin.write(b'{"custom_id": "half a')
            run.stdin.flush()
            run.send_signal(number)
            run.wait(timeout=60)  # its input is still open
            out, err = run.communicate()
            self.assertEqual((run.returncode, out), (-number, b""))
            self.assertIn(b"Batch: 2 requests, 0 failed", err)

    def test_the_sample_file(self):
        with open(os.path.join(os.path.dirname(ARGS.models), "requests.jsonl")) as f:
            answers = self.answers(f.read())
        self.assertEqual(len(answers), 4)
        self.assertEqual([a["error"] for a in answers], [None] * 4)
        self.assertIn("5", answers[0]["text"])

    def test_exit_code_tells_whether_requests_failed(self):
        good, bad = {"custom_id": "a", "prompt": "x", "max_tokens": 1}, {"custom_id": "b"}
        for code, requests, *args in ((0, (good,)), (0, (good, bad)), (1, (good, bad), "--strict"),
                                      (1, (bad,)), (0, (good,), "--strict")):
            output = self.path("answers.jsonl")
            if os.path.exists(output):
                os.remove(output)
            result, _ = self.batch(lines_of(*requests), *args, run=self.run_cli)
            self.assertEqual(result.rc, code, result.err)
            self.assertEqual("warning: 1 of" in result.err, bad in requests)

    def test_an_answer_stops_before_a_stop_string(self):
        whole, = self.answers(lines_of(chat("a", "Hello", max_tokens=30)), "--think", "off")
        text = whole["response"]["body"]["choices"][0]["message"]["content"]
        self.assertGreater(len(text), 6)
        os.remove(self.path("answers.jsonl"))
        cut, = self.answers(lines_of(chat("a", "Hello", max_tokens=30, stop=text[4:6])), "--think",
                            "off")
        choice = cut["response"]["body"]["choices"][0]
        self.assertEqual(choice["message"]["content"], text[:text.index(text[4:6])])
        self.assertEqual(choice["finish_reason"], "stop")

    def test_pipes(self):
        requests = lines_of(*self.mixed_requests(3))
        _, output = self.batch(requests)
        piped = self.ok(self.qwen3, "--device", "cpu", "--input", "-", "--output", "-",
                        stdin=requests, name="kuiper_batch")
        with open(output, encoding="utf-8") as f:
            self.assertEqual(piped.out, f.read())
        self.assertNotIn("\r", piped.err)
        self.assertRegex(piped.err, r"(?m)^Batch: 3 requests, 0 failed, 0 kept from before; ")

    def test_usage(self):
        m = (self.qwen3, "--device", "cpu")
        good = self.path("good.jsonl", lines_of(chat("a", "x", max_tokens=1)))
        out = self.path("out.jsonl")
        for code, message, *args in (
                (2, "no --input given", "--output", out),
                (2, "no --output given", "--input", good),
                (2, "unknown option --interactive", "--interactive"),
                (2, "are the same file", "--input", good, "--output", good),
                (5, "cannot open requests file", "--input", self.path("none"), "--output", out),
                (5, "holds no requests", "--input", self.path("e", "\n\n"), "--output", out),
                (5, "/dev/null holds no requests", "--input", "/dev/null", "--output", out),
                (5, "is a directory", "--input", self.dir, "--output", out),
                (1, "cannot write /nonexistent/x", "--input", good, "--output", "/nonexistent/x"),
                (1, "cannot write /dev/full", "--input", good, "--output", "/dev/full"),
                (3, "model file not found", "--model", "/m/x", "--input", good, "--output", out)):
            models = m[1:] if "--model" in args else m
            self.fails(code, *models, *args, message=message, name="kuiper_batch")
        with open(good) as f:
            self.assertEqual(f.read().count("\n"), 1)

    def test_an_output_of_other_requests_is_refused_and_left_alone(self):
        _, output = self.batch(lines_of(chat("a", "x", max_tokens=1)))
        with open(output, "rb") as f:
            before = f.read()
        for other in (lines_of(chat("b", "x")), lines_of(chat("b", "y"), chat("a", "x"))):
            self.batch(other, run=lambda *args, **kw: self.fails(
                5, *args, message="line 1 is not the answer", hint="choose another", **kw))
        with open(output, "rb") as f:
            self.assertEqual(f.read(), before)

    def test_a_file_without_a_line_is_not_taken_for_a_torn_answer(self):
        mine = self.path("mine.json")
        for text in ('{"a": 1}', '{"id":"batch_req_2",', '{"id":"batch_req_1","custom_id":"b",', "x"):
            with open(mine, "w") as f:
                f.write(text)
            self.batch(lines_of(chat("a", "x")), output=mine, run=lambda *args, **kw: self.fails(
                5, *args, message="line 1 is not the answer", hint="choose another", **kw))
            with open(mine) as f:
                self.assertEqual(f.read(), text)

    def test_an_output_of_other_settings_is_refused_and_left_alone(self):
        requests = lines_of(chat("a", "x", max_tokens=1), chat("b", "y", max_tokens=1))
        _, output = self.batch(requests)
        with open(output, "rb") as f:
            first = f.read().split(b"\n")[0] + b"\n"
        with open(output, "wb") as f:
            f.write(first)
        for args in (("--seed", "9"), ("--temp", "1"), ("--dtype", "fp32"), ("--think", "off"),
                     ("--system-prompt", "s"), ("--model", self.qwen25)):
            self.batch(requests, *args, run=lambda *a, **kw: self.fails(
                5, *(a[1:] if "--model" in a else a), message="of another model or of other settings",
                hint="choose another", **kw))
            with open(output, "rb") as f:
                self.assertEqual(f.read(), first)
        self.batch(requests, "--max-num-seqs", "1", "--threads", "1", "--no-prefix-cache")

    def test_an_output_of_other_weights_is_refused(self):
        other = os.path.join(self.dir, "other")
        shutil.copytree(self.qwen3, other)
        weights = os.path.join(other, "model.safetensors")
        requests = lines_of(chat("a", "x", max_tokens=1))
        self.batch(requests, run=lambda *a, **kw: self.ok(other, *a[1:], **kw))
        with open(weights, "r+b") as f:
            f.seek(8 + struct.unpack("<Q", f.read(8))[0])
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 1]))  # of the first tensor
        self.batch(requests, run=lambda *a, **kw: self.fails(
            5, other, *a[1:], message="of another model or of other settings", **kw))

    def test_every_cut_of_the_output_is_completed_to_the_same_bytes(self):
        requests = lines_of(*self.mixed_requests(4), "nonsense")
        _, output = self.batch(requests)
        with open(output, "rb") as f:
            whole = f.read()
        ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
        for cut in (0, 1, ends[0] - 1, ends[0], ends[0] + 1, ends[2] + 5, len(whole) - 1, len(whole)):
            with open(output, "wb") as f:
                f.write(whole[:cut])
            result, _ = self.batch(requests, "--max-num-seqs", "2")
            with open(output, "rb") as f:
                self.assertEqual(f.read(), whole, f"cut at {cut}")
            self.assertEqual(f"already has {whole[:cut].count(10)} answers" in result.err,
                             cut >= ends[0])

    def test_kill_after_the_nth_line(self):
        requests = lines_of(*self.mixed_requests(60))
        path = self.path("requests.jsonl", requests)
        command = [program("kuiper_batch"), self.qwen3, "--device", "cpu", "--threads", "1",
                   "--max-num-seqs", "4", "--block-size", "8", "--input", path, "--output"]

        def start(output):
            return subprocess.Popen([*command, output], stderr=subprocess.DEVNULL,
                                    stdin=subprocess.DEVNULL, preexec_fn=default_signals)

        def content(path):
            if not os.path.exists(path):
                return b""
            with open(path, "rb") as f:
                return f.read()

        whole = self.path("whole.jsonl")
        self.assertEqual(start(whole).wait(timeout=300), 0)
        expected = content(whole)
        self.assertEqual(expected.count(b"\n"), 60)

        output = self.path("answers.jsonl")
        for lines in (0, 1, 2, 3, 5, 6, 9, 14, 23, 24, 38, 59):
            run = start(output)
            while content(output).count(b"\n") < lines and run.poll() is None:
                time.sleep(0.001)
            run.send_signal(signal.SIGKILL)
            run.wait(timeout=300)
            kept = content(output)
            self.assertGreaterEqual(kept.count(b"\n"), lines)
            self.assertTrue(expected.startswith(kept[:kept.rfind(b"\n") + 1]))
        self.assertEqual(start(output).wait(timeout=300), 0)
        self.assertEqual(content(output), expected)
