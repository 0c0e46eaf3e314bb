#!/usr/bin/env python3
"""Measures demo/models/tiny-qwen3-vl through transformers on pictures and wordings that training never draws.

    pip install torch transformers tokenizers pillow
    python tools/eval_demo_vl.py                 # prints the table and writes the model card
    python tools/eval_demo_vl.py --size 100      # a quick look at another number of questions; writes nothing

The saved BF16 files, the chat template, Qwen2VLImageProcessor and greedy decoding; an answer counts when it is equal to the
expected text. The pictures are painted in sizes of their own and scaled by the processor.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2VLImageProcessor, Qwen3VLForConditionalGeneration

import demo_vl_card
import demo_vl_data
from demo_scenes import Scene, paint

MODEL = Path(__file__).parent.parent / "demo" / "models" / "tiny-qwen3-vl"
EVAL_SEED = 2026  # one test set for every run
CARD_SIZE = 500   # questions per skill of the model card
KINDS = [*demo_vl_data.SKILLS, "second question", "one of two pictures"]


def draw_case(rng, kind):
    """([question of strings and scenes, answer, question, ..], expected answer to the last one)"""
    if kind == "one of two pictures":
        scenes, (question, answer) = demo_vl_data.two_pictures(rng, True)
        return [[*scenes, question]], answer
    while True:
        scene = demo_vl_data.any_scene(rng, True)
        if kind == "second question":
            first, (question, answer) = (demo_vl_data.ask(rng, scene, True) for _ in range(2))
            return [[scene, first[0]], first[1], [question]], answer
        turn = demo_vl_data.ask(rng, scene, True, kind)
        if turn:
            return [[scene, turn[0]]], turn[1]


def picture_size(rng):
    width = rng.randint(96, 420)
    return width, max(96, min(420, int(width * rng.uniform(0.65, 1.4))))


class Asker:
    def __init__(self, folder):
        self.model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        size = json.loads((folder / "preprocessor_config.json").read_text())["size"]  # which this class does not read
        self.processor = Qwen2VLImageProcessor.from_pretrained(
            folder, min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"])

    def prompt(self, turns, grids):
        """The chat template's text with as many pads as each picture, by its grid, has tokens."""
        messages = []
        for i, turn in enumerate(turns):
            parts = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in turn]
            messages.append({"role": "user", "content": parts} if i % 2 == 0 else {"role": "assistant", "content": turn})
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        first, *rest = text.split("<|image_pad|>")
        return first + "".join("<|image_pad|>" * (int(g.prod()) // 4) + part for g, part in zip(grids, rest))

    @torch.no_grad()
    def answers(self, cases, rng):
        """One answer per case; the pictures of all are painted and scaled here."""
        images, prompts = [], []
        for turns in cases:
            own = [paint(p, *picture_size(rng))[0] for turn in turns[::2] for p in turn if isinstance(p, Scene)]
            grids = self.processor(images=own, return_tensors="pt")["image_grid_thw"]
            prompts.append(self.prompt(turns, grids))
            images += own
        text = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        out = self.model.generate(**text, **self.processor(images=images, return_tensors="pt"), do_sample=False,
                                  temperature=None, top_p=None, top_k=None, max_new_tokens=60)
        return [a.split("<|im_end|>")[0] for a in self.tokenizer.batch_decode(out[:, text["input_ids"].shape[1]:])]


def accuracy(asker, kind, size):
    rng, right = random.Random(f"{EVAL_SEED} {kind}"), 0
    for begin in range(0, size, 100):
        cases = [draw_case(rng, kind) for _ in range(min(100, size - begin))]
        answers = asker.answers([turns for turns, _ in cases], rng)
        right += sum(answer == expected for answer, (_, expected) in zip(answers, cases))
    return right / size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--size", type=int, default=CARD_SIZE, help="questions per skill")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    asker, table = Asker(args.model), []
    for kind in KINDS:
        table.append((kind, args.size, accuracy(asker, kind, args.size)))
        print(f"{kind:22} n {args.size:4}  {table[-1][2]:.1%}", flush=True)
    if args.size == CARD_SIZE:
        demo_vl_card.write_card(args.model, table)


if __name__ == "__main__":
    main()
