"""The bundled model that sees: it says of its sample pictures what its card says it does."""
import os

from cli_harness import ARGS, CliTest

CARD_HEAD = "| picture | question | answer |"


class Seeing(CliTest):
    def setUp(self):
        super().setUp()
        self.model = os.path.join(ARGS.models, "tiny-qwen3-vl")

    def rows(self):
        """[(picture, question, answer)] of the model card."""
        with open(os.path.join(self.model, "README.md"), encoding="utf-8") as f:
            lines = f.read().split(CARD_HEAD + "\n")[1].splitlines()
        cells = [[c.strip(" `") for c in line.strip("|").split("|")] for line in lines[1:lines.index("")]]
        return [(os.path.join(self.model, "samples", name), question, answer) for name, question, answer in cells]

    def see(self, *args):
        return self.ok(self.model, "--device", "cpu", "--temp", "0", "-q", *args, name="qwen3_vl_infer").out.strip()

    def test_card(self):
        rows = self.rows()
        self.assertEqual({name for name, _, _ in rows},
                         {os.path.join(self.model, "samples", n) for n in os.listdir(os.path.join(self.model, "samples"))})
        for layout in ((), ("--paged-attention", "--page-size", "8", "--prefix-cache")):
            for picture, question, answer in rows:
                self.assertEqual(self.see("--image", picture, "-p", question, *layout), answer, (picture, layout))

    def test_two_pictures_and_none(self):
        first, second = (os.path.join(self.model, "samples", n) for n in ("circle.png", "number.png"))
        for pictures, words in (((first, second), ("a red circle", "42")), ((second, first), ("42", "a red circle"))):
            flags = [f for p in pictures for f in ("--image", p)]
            for which, answer in zip(("first", "second"), words):
                self.assertEqual(self.see(*flags, "-p", "What is in the %s picture?" % which), answer)
        self.assertEqual(self.see("-p", "What color is it?"), "I see no picture. Please show me one.")

    def test_layouts_agree_bit_by_bit(self):
        picture, question, _ = self.rows()[0]
        r = self.ok(self.model, "--device", "cpu", "--image", picture, "-p", question, "--verify-paged", name="qwen3_vl_infer")
        self.assertIn("identical: ", r.out + r.err)
