#!/usr/bin/env python3
"""Writes test/data/packed_weights.json: small matrices of codes as compressed-tensors packs them.

    python3 tools/make_packed_goldens.py test/data/packed_weights.json

Needs: pip install torch compressed-tensors

"codes" [out, in] and "zeros" [out, groups] are unsigned; the package takes them less half of their range.
"packed" are the words of pack_to_int32 along the rows, "packed_zeros" along the columns.
"""
import importlib.metadata
import json
import sys

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32


def case(bits, out, columns, groups, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda rows, count: torch.randint(0, 1 << bits, (rows, count), generator=generator)
    codes, zeros = draw(out, columns), draw(out, groups)
    pack = lambda x, dim: pack_to_int32((x - (1 << (bits - 1))).to(torch.int8), bits, packed_dim=dim).tolist()
    return {"bits": bits, "codes": codes.tolist(), "zeros": zeros.tolist(), "packed": pack(codes, 1),
            "packed_zeros": pack(zeros, 0)}


def main(out):
    cases = [case(4, 8, 64, 2, 1), case(4, 11, 32, 1, 2), case(8, 4, 64, 2, 3), case(8, 9, 32, 1, 4)]
    version = importlib.metadata.version("compressed-tensors")
    with open(out, "w", encoding="utf-8") as f:
        json.dump({"made_by": "compressed-tensors " + version, "cases": cases}, f)
        f.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
