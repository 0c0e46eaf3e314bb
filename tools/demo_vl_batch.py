"""Batches for training tiny-qwen3-vl: conversations of demo_vl_data.py as token ids, M-RoPE positions, masks and pixels."""

import functools
import random
from dataclasses import dataclass

import numpy
import torch
from PIL import Image

import demo_vl_data
from demo_scenes import COLORS, MAX_THINGS, PLACES, SHAPES, Scene, paint

SIZES = [((96, 96), 5), ((128, 96), 5), ((96, 128), 3), ((128, 128), 3), ((160, 96), 2),
         ((96, 160), 1)]  # width and height after scaling, and how often
MARKS = [None, *SHAPES, *"0123456789"]  # what a token of a picture has in it
INKS = [None, *COLORS]
NUM_HINTS = [len(MARKS), len(INKS), 1 + len(PLACES)] + 3 * [1 + MAX_THINGS]
MIXED_SHARE = 0.15  # of batches; the others ask many questions about one picture each


@dataclass
class Batch:
    ids: torch.Tensor        # [B, T]
    positions: torch.Tensor  # [B, T, 3]
    unseen: torch.Tensor     # [B, 1, T, T]: what a token does not see
    seen: torch.Tensor       # flat positions of picture tokens
    rows: torch.Tensor       # flat positions that have a target
    targets: torch.Tensor    # [len(rows)]
    pictures: torch.Tensor   # uint8 [N, H, W, 3], in the order of their tokens
    hints: torch.Tensor      # [N, tokens, len(NUM_HINTS)]: what _hints says of what stands there; or 0


def _hints(scene, what, index):
    """Indices of mark and ink, 1 + the place, and how many things there are: all, of this shape, of this colour."""
    if scene.number is not None:
        return [MARKS.index(what), INKS.index(scene.ink), 0, 0, 0, 0]
    thing = scene.things[index]
    return [MARKS.index(what), INKS.index(thing.color), 1 + thing.place, len(scene.things),
            sum(t.shape == thing.shape for t in scene.things), sum(t.color == thing.color for t in scene.things)]


class Encoder:
    """Turns samples whose pictures have one size, in pixels, into a Batch."""

    def __init__(self, tokenizer, size):
        self.encode = functools.lru_cache(20000)(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)
        self.size = size
        self.start, self.end, self.pad = map(tokenizer.token_to_id, ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"))

    def _tokens(self, parts):
        """[(id, position of three axes relative to the start)] and the positions they take; `parts` are texts and scenes."""
        result, at = [], 0
        columns, rows = (n // 32 for n in self.size)
        for part in parts:
            if isinstance(part, Scene):
                result.append((self.start, (at,) * 3))
                result += [(self.pad, (at + 1, at + 1 + r, at + 1 + c)) for r in range(rows) for c in range(columns)]
                at += 1 + max(rows, columns)
                result.append((self.end, (at,) * 3))
                at += 1
            else:
                ids = self.encode(part)
                result += [(token, (at + i,) * 3) for i, token in enumerate(ids)]
                at += len(ids)
        return result, at

    def _sample(self, sample):
        """[(id, position, chain, is_target)] of a sample"""
        system = [f"<|im_start|>system\n{sample.system}<|im_end|>\n"] if sample.system else []
        head, begin = self._tokens([*system, "<|im_start|>user\n", *sample.head])
        result = [(token, at, 0, False) for token, at in head]
        for chain, turns in enumerate(sample.chains, 1):
            offset, before = begin, []
            for question, answer in turns:
                prompt, reply = [*before, *question, "<|im_end|>\n<|im_start|>assistant\n"], [answer + "<|im_end|>"]
                for parts, is_target in ((prompt, False), (reply, True)):
                    tokens, taken = self._tokens(parts)
                    result += [(token, tuple(offset + a for a in at), chain, is_target) for token, at in tokens]
                    offset += taken
                before = ["\n<|im_start|>user\n"]
        return result

    def _pictures(self, samples, rng):
        scenes = [part for s in samples for part in
                  [*s.head, *(p for chain in s.chains for question, _ in chain for p in question)] if isinstance(part, Scene)]
        width, height = self.size
        result = numpy.empty((len(scenes), height, width, 3), numpy.uint8)
        hints = torch.zeros(len(scenes), height // 32, width // 32, len(NUM_HINTS), dtype=torch.long)
        for i, scene in enumerate(scenes):
            # pictures are often larger than what the model takes, and of other proportions: scaling rounds to 32
            factor = rng.choice([1, 1.25, 1.5, 2])
            image, marks = paint(scene, *(int(factor * n * rng.uniform(0.85, 1.15)) for n in self.size))
            result[i] = image.resize(self.size, Image.BICUBIC)
            for j, (what, x, y) in enumerate(marks):
                hints[i, int(y * height / 32), int(x * width / 32)] = torch.tensor(_hints(scene, what, j))
        return torch.from_numpy(result), hints.flatten(1, 2)

    def batch(self, samples, rng):
        rows = [self._sample(s) for s in samples]
        width = max(map(len, rows))
        table = torch.full((len(rows), width, 6), -1)  # id, position of three axes, chain, is_target
        for i, row in enumerate(rows):
            table[i, :len(row)] = torch.tensor([(token, *at, chain, target) for token, at, chain, target in row])
        ids, chains = table[..., 0], table[..., 4]
        targets = ids.roll(-1, 1).masked_fill(table[..., 5].roll(-1, 1) != 1, -1).flatten()
        sees = (chains[:, None] == 0) | (chains[:, None] == chains[..., None])
        taught = (targets >= 0).nonzero().flatten()
        return Batch(ids.clamp(min=0), table[..., 1:4].clamp(min=0), ~sees.tril()[:, None],
                     (ids.flatten() == self.pad).nonzero().flatten(), taught, targets[taught], *self._pictures(samples, rng))


class Batches(torch.utils.data.IterableDataset):
    """The batches of all steps from one on; step and seed alone decide what is in a batch."""

    def __init__(self, tokenizer_file, seed, first_step, batch_size):
        self.tokenizer_file, self.seed, self.first_step, self.batch_size = tokenizer_file, seed, first_step, batch_size

    def __iter__(self):
        from tokenizers import Tokenizer
        tokenizer, step = Tokenizer.from_file(self.tokenizer_file), self.first_step
        encoders = [Encoder(tokenizer, size) for size, _ in SIZES]
        while True:
            rng = random.Random(f"{self.seed} {step}")
            mixed = rng.random() < MIXED_SHARE
            encoder = rng.choices(encoders, [often for _, often in SIZES])[0]
            samples = [demo_vl_data.draw_sample(rng, mixed) for _ in range(self.batch_size)]
            yield encoder.batch(samples, rng)
            step += 1
