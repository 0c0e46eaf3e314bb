#!/usr/bin/env python3
"""Prints how well the bundled models predict their own held-out answers with keys and values of each type.

    pip install torch tokenizers
    python tools/kv_perplexity.py [--programs build/demo] [--questions 200]

The texts are those of the model cards: held-out questions of every kind, rendered with their answers by the chat
template. Counted are the tokens that the models were trained to predict, their own; `kuiper serve` says how likely each
of them was. What a user writes is left out: no model was trained to predict it, and their guesses are worse than chance.
"""

import argparse
import http.client
import json
import math
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenizers import Tokenizer

import demo_data
from train_demo_models import held_out_chats, render

MODELS = Path(__file__).parent.parent / "demo" / "models"
TYPES = ["fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2"]  # the first one is what the others are compared with
CLIENTS = 8


def texts(family, questions):
    """-> [(ids, whether each of them is the model's own)]"""
    tokenizer = Tokenizer.from_file(str(MODELS / f"tiny-{family}" / "tokenizer.json"))
    result = []
    for kind in [*demo_data.KINDS, None]:
        for chat in held_out_chats(kind, family, questions):
            for thinking in (True, False) if family == "qwen3" else (False,):
                ids, own = [], []
                for text, is_own in render(family, chat, thinking):
                    piece = tokenizer.encode(text, add_special_tokens=False).ids
                    ids += piece
                    own += [is_own] * len(piece)
                result.append((ids, own))
    return result


def log_probabilities(port, part):
    """-> those of the texts' own tokens, in natural logarithms."""
    client, found = http.client.HTTPConnection("127.0.0.1", port), []
    for ids, own in part:
        body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
        client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(client.getresponse().read())
        assert "choices" in answer, answer
        scores = answer["choices"][0]["logprobs"]["token_logprobs"]
        found += [score for score, is_own in zip(scores, own) if is_own]
    return found


def measure(programs, family, kv_type, cases):
    """-> mean nats of a token, and their number."""
    server = subprocess.Popen(
        [programs / "kuiper", "serve", MODELS / f"tiny-{family}", "--port", "0", "--kv-cache-dtype", kv_type,
         "--no-prefix-cache"], stderr=subprocess.PIPE, text=True)
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        try:
            port = next(int(found[1]) for line in server.stderr if (found := re.match(r"ready:.*:(\d+)$", line)))
            pool.submit(server.stderr.read)  # so that its log never fills the pipe
            parts = pool.map(lambda i: log_probabilities(port, cases[i::CLIENTS]), range(CLIENTS))
            scores = [score for part in parts for score in part]
        finally:
            server.kill()
    return -math.fsum(scores) / len(scores), len(scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, default=Path(__file__).parent.parent / "build" / "demo")
    parser.add_argument("--questions", type=int, default=200, help="of each kind")
    args = parser.parse_args()
    for family in ("qwen2.5", "qwen3"):
        cases, first = texts(family, args.questions), None
        for kv_type in TYPES:
            begin = time.time()
            nats, count = measure(args.programs, family, kv_type, cases)
            first = nats if first is None else first
            print(f"tiny-{family} {kv_type}: {count} tokens, perplexity {math.exp(nats):.6f}, "
                  f"{100 * math.expm1(nats - first):+.4f} % ({time.time() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
