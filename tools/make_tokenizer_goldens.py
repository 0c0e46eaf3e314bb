#!/usr/bin/env python3
"""Writes test/data/tokenizer_fuzz.json: what Hugging Face's `tokenizers` makes of random text.

usage: make_tokenizer_goldens.py SHARED_DATA_DIR OUT.json     (needs: pip install tokenizers==0.22.2)

Every section belongs to one tokenizer.json of the shared data. "encode": [text, ids] without BOS,
added tokens in the text recognised. "decode": [ids, text, text without special tokens].
"chat" holds the ids of the prompts in chat_goldens, by case name.
"""
import json
import random
import sys

from tokenizers import Tokenizer

SPACES = list(" \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2002\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
COMBINING = list("\u0300\u0301\u0308\u0327\u0323\u093c\u0e48\u3099\u309a\u0591\u20d2\u1ab0\u0f71")
WORDS = ("don't I'll we've they're I'm he'd IT'S 'S 'ſ 'ſt I'LL you'RE 'Ve 'm'd naïve Straße été e\u0301te\u0301 "
         "Å Å Å ﬁne K 한국어 한국 各 漢字 カ゛ ガ が か\u3099 हिन्दी ไทย עברית العربية Ελλάς "
         "привет 😀 👩‍👩‍👧‍👦 🇩🇪 ☕️ 𝒳𝓎 ١٢٣ ²³ Ⅳ ½ 12345 3.14 1e-9 x=1; foo_bar() {} != -> // <tag> "
         "\u1100\u1161\u11a8 \ufb1d ﷺ \u0344 \u0958 \u2126 \u212b \U0001d15e \u0f73 ΐ").split(" ")
SPECIALS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>", "<tool_call>", "<|im_end", "<think"]
STORY_SPECIALS = ["<unk>", "<|start_story|>", "<|end_story|>", "<0x41>", "▁", "<0x0A>"]


def random_text(rng, specials):
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.25:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5))))
        elif kind < 0.35:
            parts.append(rng.choice(" \n\t") * rng.randint(1, 9))
        elif kind < 0.65:
            parts.append(rng.choice(WORDS))
        elif kind < 0.75:
            parts.append(rng.choice("aeiouAEカあkग") + "".join(rng.choice(COMBINING) for _ in range(rng.randint(1, 3))))
        elif kind < 0.85:
            parts.append("".join(chr(rng.randint(0x21, 0x7e)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.92:
            parts.append("".join(random_char(rng) for _ in range(rng.randint(1, 4))))
        elif specials:
            parts.append(rng.choice(specials))
        else:
            parts.append("".join(rng.choice("0123456789") for _ in range(rng.randint(1, 6))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def random_char(rng):
    # Characters of Unicode 13 and older: later ones are letters to newer tables only.
    ranges = [(0xA1, 0x377), (0x400, 0x52F), (0x900, 0x97F), (0xE01, 0xE3A), (0x1E00, 0x1EFF), (0x2010, 0x2060),
              (0x2190, 0x23FF), (0x3041, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xF900, 0xFA6D),
              (0xFF01, 0xFF60), (0x1F300, 0x1F64F), (0x20000, 0x20100)]
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def section(path, file, seed, specials, count):
    rng = random.Random(seed)
    tokenizer = Tokenizer.from_file(f"{path}/{file}")
    encode = []
    for i in range(count):
        text = random_text(rng, specials if i % 4 == 0 else [])
        encode.append([text, tokenizer.encode(text, add_special_tokens=False).ids])
    size = tokenizer.get_vocab_size()
    decode = []
    for i in range(count // 3):
        # Low ids are single bytes, so that broken UTF-8 is common.
        ids = [rng.randrange(size if rng.random() < 0.5 else min(size, 300)) for _ in range(rng.randint(1, 12))]
        if i % 5 == 0:
            ids.insert(rng.randrange(len(ids)), size - 1 - rng.randrange(26) if size > 3000 else rng.randrange(3))
        decode.append([ids, tokenizer.decode(ids, skip_special_tokens=False),
                       tokenizer.decode(ids, skip_special_tokens=True)])
    return {"tokenizer": file, "encode": encode, "decode": decode}


def chat(path, family, file):
    tokenizer = Tokenizer.from_file(f"{path}/{file}")
    with open(f"{path}/chat_goldens/{family}.json", encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    return {c["name"]: tokenizer.encode(c["rendered"], add_special_tokens=False).ids for c in cases}


def main():
    path, out = sys.argv[1:3]
    qwen3 = "tokenizers/qwen3/tokenizer.json"
    goldens = {
        "sections": [section(path, qwen3, 1, SPECIALS, 420),
                     section(path, "models/tinystories-656K/tokenizer.json", 2, STORY_SPECIALS, 90)],
        "chat": {"qwen2.5": chat(path, "qwen2.5", "tokenizers/qwen2.5/tokenizer.reconstructed.json"),
                 "qwen3": chat(path, "qwen3", qwen3),
                 "qwen3-vl": chat(path, "qwen3-vl", qwen3)},
    }
    with open(out, "w", encoding="utf-8") as f:
        json.dump(goldens, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
