"""A real language model, SmolLM2-135M-Instruct: what transformers makes of it (tools/make_real_model_goldens.py), a chat
far past its context, and INT8 of kuiper quantize. KUIPER_REAL_MODEL is its directory, which .ci/run makes."""
import json
import os
import sys

from cli_harness import ARGS, CliTest

MODEL = os.environ.get("KUIPER_REAL_MODEL")
TURNS, CONTEXT = 60, 512
if not MODEL:
    print("left out: KUIPER_REAL_MODEL is not set", file=sys.stderr)


class RealModelTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(ARGS.source, "test/data/real_model.json"), encoding="utf-8") as f:
            cls.golden = json.load(f)

    def setUp(self):
        if not MODEL:
            self.skipTest("KUIPER_REAL_MODEL is not set")
        super().setUp()

    def run_model(self, *args, model=MODEL, **kwargs):
        return self.ok("run", model, "--device", "cpu", "--dtype", "fp32", "--temp", "0", *args, name="kuiper", **kwargs)

    def eval(self, *args):
        golden = self.golden
        return self.ok("eval", MODEL, "--text", self.path("text", golden["text"]), "--window", golden["window"], "--stride",
                       golden["stride"], "--device", "cpu", "--dtype", "fp32", "--json", *args, name="kuiper").json()

    def make_int8(self):
        path = self.path("int8")
        r = self.ok("quantize", MODEL, path, "--bits", "8", "--method", "rtn", name="kuiper")
        self.assertIn("8 bits in groups of 64, ", r.out)  # the hidden size is 576
        return path


class Goldens(RealModelTest):
    def ids(self, *args):
        return [int(i) for i in self.run_model(*args, "--tokenize").out.split()]

    def answer(self, *args):
        path = self.path("tokens")
        self.run_model(*args, "--dump-tokens", path, "-q")
        with open(path, encoding="utf-8") as f:
            return [int(i) for i in f.read().split()]

    def test_ids_and_greedy_answers_are_those_of_transformers(self):
        for case in self.golden["greedy"]:
            prompt = ("--raw", "-p", case["prompt"] or self.golden["text"])
            if "ids" in case:
                self.assertEqual(self.ids(*prompt), case["ids"])
            self.assertEqual(self.answer(*prompt, "--ignore-eos", "-n", len(case["answer"])), case["answer"])

    def test_chat_is_that_of_transformers(self):
        chat = self.golden["chat"]
        self.assertEqual(self.ids("-p", chat["message"]), chat["ids"])
        self.assertEqual(self.answer("-p", chat["message"], "-n", len(chat["answer"])), chat["answer"])

    def test_perplexity_is_that_of_transformers(self):
        found = self.eval()
        row, = found["configurations"]
        self.assertEqual((found["tokens"], row["scored"]), (self.golden["tokens"], self.golden["scored"]))
        self.assertAlmostEqual(row["nats_per_token"], self.golden["nats_per_token"], delta=2e-5)


class Int8(RealModelTest):
    def test_is_near_to_the_model(self):
        base, int8 = self.eval("--against", self.make_int8())["configurations"]
        self.assertLess(int8["compared"]["mean_kl"], 3e-3)
        self.assertGreater(int8["compared"]["same_argmax"], 0.95)
        self.assertAlmostEqual(int8["nats_per_token"], base["nats_per_token"], delta=0.02)

    # Oldest turns are dropped again and again; what is left of the chat is answered as well as at its beginning.
    def test_answers_many_turns_past_its_context(self):
        questions = ["What is the capital of France?", "Name a colour.", "What is 2 + 3?", "Tell me about the sea.",
                     "Which animal barks?", "Write a short sentence about rain."]
        script = "".join(questions[i % len(questions)] + "\n" for i in range(TURNS))
        r = self.run_model("-i", "-c", CONTEXT, "--overflow", "drop-oldest", "-n", "24", "-o", "json",
                           model=self.make_int8(), stdin=script)
        turns = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual(len(turns), TURNS)
        for i, turn in enumerate(turns):
            usage = turn["usage"]
            self.assertLessEqual(usage["prompt_tokens"] + usage["completion_tokens"], CONTEXT)
            self.assertTrue(turn["text"].strip(), "turn %d" % i)
            if i % len(questions) == 0:
                self.assertIn("Paris", turn["text"], "turn %d" % i)
        self.assertGreater(sum(turn["usage"]["dropped_turns"] > 0 for turn in turns), 3)
        self.assertGreater(sum(turn["usage"]["completion_tokens"] for turn in turns), CONTEXT)
