#!/usr/bin/env python3
"""Makes test/data/prompt_logprobs.json: how likely transformers finds each token of a prompt.

The models are random checkpoints of test/data/goldens (tools/make_goldens.py), computed in FP64; the
log softmax is numpy's.

    python3 tools/make_prompt_logprob_goldens.py
"""
import json
import pathlib
import random

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "test" / "data" / "prompt_logprobs.json"
MODELS = [f"test/data/goldens/{m}" for m in ("qwen2-gqa7-d8-f32", "qwen3-gqa2-d128-f32")]
LENGTHS = (1, 2, 15, 16, 17, 33, 49)


def make_case(model, prompt):
    """Log probability and rank of each token from the second one on, and the most likely three."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0, :-1].numpy()
    logprobs = logits - logits.max(axis=1, keepdims=True)
    logprobs -= np.log(np.exp(logprobs).sum(axis=1, keepdims=True))
    rows = []
    for row, token in zip(logprobs, prompt[1:]):
        best = np.argsort(-row, kind="stable")[:3]
        rows.append({"logprob": round(float(row[token]), 7), "rank": int((row >= row[token]).sum()),
                     "top": [[int(i), round(float(row[i]), 7)] for i in best]})
    return rows


def main():
    transformers.logging.set_verbosity_error()
    dice = random.Random(13)
    cases = []
    for name in MODELS:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            ROOT / name, dtype=torch.float64, attn_implementation="eager").eval()
        for length in LENGTHS:
            prompt = [dice.randrange(2, model.config.vocab_size) for _ in range(length)]
            cases.append({"model": name, "prompt": prompt, "rows": make_case(model, prompt)})
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUTPUT.write_text(f'{{"made_by": "{made_by}",\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
