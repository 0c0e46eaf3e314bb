#!/usr/bin/env python3
"""Writes test/data/unicode.json: what Hugging Face's `tokenizers` makes of every code point in context.

    python3 tools/make_unicode_goldens.py SHARED_DATA_DIR test/data/unicode.json

Needs: pip install tokenizers==0.22.2

Each list holds a CRC-32 per 4096 code points (surrogates left out); the texts of a block are `CONTEXT`
with each of its characters in place of the X ("alone": a shorter one). "splits": the parts of the text by pattern, each with a
NUL behind it. "nfc": the normal form. "ids": decimal ids of Qwen3's tokenizer, each with a NUL behind
it. "pairs": the normal form of each of the first characters before each of "marks".
"""
import json
import sys
import zlib

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

BLOCK, PAIRS_END = 0x1000, 0x12000
CONTEXT = "aXb X1X2X'X\r\nXX\t X eX\u0301 X\u0323\u0301 \u0345X\u0334 \uac00X\u11a8\u1100X\u09c7X"
ALONE = "aXX\u6f22X"  # nothing in it but X changes in NFC
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
SPACES = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": LETTERS + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+" + SPACES,
    "qwen3.5": LETTERS + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+" + SPACES,
    "llama3": LETTERS + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + SPACES,
}
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def characters(begin, end):
    return [chr(c) for c in range(begin, end) if not 0xD800 <= c < 0xE000]


def per_block(answer, end=0x110000):
    """CRCs of `answer`, a function from a character to text."""
    crcs = []
    for begin in range(0, end, BLOCK):
        text = "".join(answer(c) for c in characters(begin, begin + BLOCK))
        crcs.append(zlib.crc32(text.encode()))
    return crcs


def with_nuls(parts):
    return "".join(part + "\0" for part in parts)


def splits(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    return per_block(lambda c: with_nuls(s for s, _ in splitter.pre_tokenize_str(CONTEXT.replace("X", c))))


def main():
    shared, out = sys.argv[1:3]
    qwen3 = Tokenizer.from_file(f"{shared}/tokenizers/qwen3/tokenizer.json")
    marks = sorted({NFD(c)[-1] for c in characters(0, 0x110000) if len(NFD(c)) > 1 and NFC(NFD(c)) == c})
    goldens = {
        "made_by": f"tokenizers {tokenizers.__version__}",
        "context": CONTEXT,
        "context_alone": ALONE,
        "patterns": PATTERNS,
        "splits": {name: splits(pattern) for name, pattern in PATTERNS.items()},
        "nfc": per_block(lambda c: NFC(CONTEXT.replace("X", c))),
        "alone": per_block(lambda c: NFC(ALONE.replace("X", c))),
        "marks": "".join(marks),
        "pairs": per_block(lambda c: NFC("".join(c + mark for mark in marks)), PAIRS_END),
        "ids": per_block(lambda c: with_nuls(map(str, qwen3.encode(CONTEXT.replace("X", c)).ids))),
    }
    with open(out, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
                                   for key, value in goldens.items()) + "\n}\n")


if __name__ == "__main__":
    main()
