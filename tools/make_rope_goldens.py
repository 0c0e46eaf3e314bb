#!/usr/bin/env python3
"""Writes test/data/rope.json: the rotary tables of Hugging Face transformers for many configurations.

    python3 tools/make_rope_goldens.py test/data/rope.json

Needs: pip install torch transformers==4.57.6

"config": keys of a config.json; "context": the length of the sequence; "inv_freq" and "scale" (which
multiplies cos and sin): what ROPE_INIT_FUNCTIONS gives for it in FP32; "cos" and "sin": rows of the
table for "positions", computed as the models do.
"""
import json
import sys

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

POSITIONS = [1, 255]
LONG = [1.0, 1.08, 1.2, 1.75, 3.0, 5.5, 9.25, 13.0, 21.0, 30.5, 40.0, 47.5, 52.0, 58.0, 61.0, 64.5]
SHORT = [1.0 + 0.05 * i for i in range(16)]


def base(head_dim=32, theta=1e4, length=4096, **more):
    return {"head_dim": head_dim, "rope_theta": theta, "max_position_embeddings": length, **more}


def scaled(config, rope_type, **keys):
    return {**config, "rope_scaling": {"rope_type": rope_type, **keys}}


def cases():
    yield base(128, 1e6), 100
    yield scaled(base(128, 1e4), "linear", factor=4.0), 100
    yield scaled(base(64, 1e6), "linear", factor=3.7), 100
    for length in (100, 4096, 4097, 5000, 12345, 16384):
        yield scaled(base(128, 1e4), "dynamic", factor=4.0), length
    yield scaled(base(64, 5e5, 2048), "dynamic", factor=2.5), 5120
    # Llama 3.1 and 3.3, 3.2, and one whose bounds lie elsewhere.
    bounds = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    yield scaled(base(128, 5e5, 131072), "llama3", factor=8.0, **bounds), 8192
    yield scaled(base(64, 5e5, 131072), "llama3", factor=32.0, **bounds), 8192
    other = {"low_freq_factor": 0.7, "high_freq_factor": 9.5, "original_max_position_embeddings": 300}
    yield scaled(base(64, 1e4, 1200), "llama3", factor=2.3, **other), 1200
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768}
    yield scaled(base(128, 1e6, 131072), "yarn", **yarn), 131072
    yield scaled(base(128, 1e6, 40960), "yarn", factor=4.0), 40960
    yield scaled(base(64, 1e4, 16384), "yarn", factor=40.0, mscale=0.707, mscale_all_dim=1.0,
                 original_max_position_embeddings=4096), 16384
    yield scaled(base(64, 1e4, 131072), "yarn", mscale=0.707, **yarn), 131072  # alone it does not count
    yield scaled(base(64, 1e4, 131072), "yarn", mscale=1.0, mscale_all_dim=1.0, **yarn), 131072
    yield scaled(base(64, 1e4, 131072), "yarn", mscale=2.0, mscale_all_dim=1.0, attention_factor=0.9, **yarn), 9
    yield scaled(base(64, 1e4, 131072), "yarn", truncate=False, beta_fast=20.0, beta_slow=2.0, **yarn), 9
    factors = {"short_factor": SHORT, "long_factor": LONG}
    beside = base(32, 1e4, 131072, original_max_position_embeddings=4096)
    for length in (4096, 4097, 131072):
        yield scaled(beside, "longrope", **factors), length
    yield scaled(beside, "longrope", factor=7.0, **factors), 5000  # the ratio counts
    yield scaled(beside, "longrope", attention_factor=1.25, **factors), 5000
    yield scaled(base(32, 1e4, 4096), "longrope", factor=16.0, **factors), 4096


def numbers(tensor):
    """The shortest decimals that are these FP32 numbers again."""
    return json.loads(json.dumps(tensor.tolist()), parse_float=lambda text: float(f"{float(text):.9g}"))


def answer(keys, context):
    config = transformers.LlamaConfig(hidden_size=256, num_attention_heads=4, **keys)
    rope_type = config.rope_scaling["rope_type"] if config.rope_scaling else "default"
    # As in the forward pass (dynamic_rope_update): a tensor, and only for lengths beyond the trained one.
    dynamic = rope_type == "dynamic" and context > config.max_position_embeddings
    length = torch.tensor(context) if dynamic else context if rope_type == "longrope" else None
    inv_freq, scale = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length)
    angles = torch.tensor(POSITIONS, dtype=torch.float32)[:, None] * inv_freq.float()[None]
    return {"config": {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 4, **keys},
            "context": context, "scale": scale, "inv_freq": numbers(inv_freq.float()),
            "cos": numbers(angles.cos() * scale), "sin": numbers(angles.sin() * scale)}


def main():
    transformers.logging.set_verbosity_error()
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        rows = ",\n".join(json.dumps(answer(*case), separators=(",", ":")) for case in cases())
        f.write(f'{{"made_by": "torch {torch.__version__}, transformers {transformers.__version__}",\n'
                f'"positions": {POSITIONS},\n"cases": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
