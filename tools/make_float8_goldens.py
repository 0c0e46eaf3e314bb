#!/usr/bin/env python3
"""Writes test/data/float8.json: PyTorch's conversions of both 8-bit floating point types.

    python3 tools/make_float8_goldens.py test/data/float8.json

Needs: pip install torch

For each type "values": the bits of the FP32 value of each of its 256 codes; "rounding": bits of FP32
values and the code of each, in turn: every positive value, the middle to its neighbour and the FP32
values next to both. What lies beyond the largest value is left out, because PyTorch does not saturate.
"""
import json
import sys

import torch

TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def bits(x):
    return x.view(torch.int32).tolist()


def goldens(dtype):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    values = codes.view(dtype).float()
    finite = values[:128][values[:128].isfinite()]
    samples = torch.cat([finite, (finite[1:] + finite[:-1]) / 2])
    infinity = torch.full_like(samples, torch.inf)
    samples = torch.cat([samples, samples.nextafter(infinity)[samples < finite.max()],
                         samples.nextafter(-infinity)[samples > 0]]).sort().values
    rounded = samples.to(dtype).view(torch.uint8).tolist()
    return {"values": bits(values),
            "rounding": [n for pair in zip(bits(samples), rounded) for n in pair]}


def main():
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump({name: goldens(dtype) for name, dtype in TYPES.items()}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
