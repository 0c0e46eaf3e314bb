#!/usr/bin/env python3
"""Writes test/data/perplexity.json: how well Hugging Face transformers finds the bundled models to predict a text.

    python3 tools/make_perplexity_goldens.py test/data/perplexity.json

Needs: pip install torch transformers==4.57.6

Windows are those of Hugging Face's page "Perplexity of fixed-length models": they begin every "stride" tokens,
and of each the tokens count that no window before it had. Here every token counts once, where the page weights
the mean of a window; the first token of a window has nothing to be predicted from. Weights are widened to FP32,
log probabilities are taken in FP64. "damaged" is the same model with zeros in the place of some bytes of its file;
"compared" is what kuiper eval says of it in comparison.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

MODELS = pathlib.Path(__file__).resolve().parent.parent / "demo" / "models"
TEXT = """What is 2 + 3? It is 5. What is 12 - 4? That would be 8, and 7 + 7 is 14.
Sort 5, 3, 9: that gives 3, 5, 9. The capital of France is Paris; 法国的首都是巴黎。
A line of code: for (int i = 0; i < n; ++i) { sum += x[i]; }  // naïve, café, 🙂
""" * 4
CASES = [("tiny-qwen3", 512, 256, None), ("tiny-qwen3", 64, 16, None), ("tiny-qwen3", 64, 64, None),
         ("tiny-qwen3", 64, 63, 129), ("tiny-qwen3", 512, 256, 2), ("tiny-qwen2.5", 512, 256, None),
         ("tiny-qwen2.5", 100, 50, 301)]
ZEROED = {"from_end": 200000, "bytes": 4096}


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def rows(model, ids, window, stride):
    """-> (log softmax [scored, vocab] in FP64, the tokens [scored] they predict)"""
    found, tokens, previous_end = [], [], 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        logits = model(torch.tensor([ids[begin:end]])).logits[0].double()
        first = max(previous_end, begin + 1)
        found.append(torch.log_softmax(logits[first - begin - 1:end - begin - 1], dim=-1))
        tokens += ids[first:end]
        previous_end = end
        if end == len(ids):
            break
    return torch.cat(found), torch.tensor(tokens)


def scores(logprobs, tokens):
    nats = -logprobs[torch.arange(len(tokens)), tokens]
    return {"scored": len(tokens), "nats_per_token": nats.mean().item(), "perplexity": nats.mean().exp().item()}


def comparison(reference, other, tokens):
    at = torch.arange(len(tokens))
    change = (other[at, tokens] - reference[at, tokens]).abs()
    return {"same_argmax": (reference.argmax(-1) == other.argmax(-1)).double().mean().item(),
            "mean_logprob_change": change.mean().item(), "max_logprob_change": change.max().item(),
            "mean_kl": (reference.exp() * (reference - other)).sum(-1).mean().item()}


def damaged_copy(source, folder):
    shutil.copytree(source, folder)
    with open(folder / "model.safetensors", "r+b") as f:
        f.seek(-ZEROED["from_end"], 2)
        f.write(bytes(ZEROED["bytes"]))
    return folder


def main(out):
    cases = []
    for name, window, stride, limit in CASES:
        ids = AutoTokenizer.from_pretrained(MODELS / name)(TEXT).input_ids[:limit]
        logprobs, tokens = rows(load(MODELS / name), ids, window, stride)
        cases.append({"model": name, "window": window, "stride": stride, "limit": limit, "tokens": len(ids),
                      **scores(logprobs, tokens)})
        if len(cases) > 1:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            other, _ = rows(load(damaged_copy(MODELS / name, pathlib.Path(scratch) / "m")), ids, window, stride)
        damaged = {**scores(other, tokens), "zeroed": ZEROED, "compared": comparison(logprobs, other, tokens)}
        cases[0]["damaged"] = damaged
    made_by = f"torch {torch.__version__}, transformers {transformers.__version__}"
    with open(out, "w", encoding="utf-8") as f:
        json.dump({"made_by": made_by, "text": TEXT, "cases": cases}, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
