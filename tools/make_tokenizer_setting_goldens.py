#!/usr/bin/env python3
"""Writes test/data/tokenizer_settings.json: what Hugging Face's `tokenizers` makes of odd texts, for the
settings of tokenizer.json that public checkpoints have.

    pip install tokenizers==0.23.3
    python3 tools/make_tokenizer_setting_goldens.py test/data/tokenizer_settings.json

"models": a small vocabulary in GPT-2's alphabet of bytes ("bytes") and one of text with byte fallback
("text"). "texts": what is encoded. "settings": the components of a tokenizer.json, the name of its model,
"ids": of each text without BOS, added tokens recognised, and "decoded": [ids, text, text without special
tokens]. --fuzz COUNT SEED adds texts at random instead of the chosen ones, for a comparison by hand.
"""
import json
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
          r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def byte_level(regex=True, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def pre_sequence(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


DIGITS, NUMBERS = ({"type": "Digits", "individual_digits": each} for each in (True, False))
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPACE_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_MARK = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE_MARK]}
FROM_MARK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
TEXT_DECODER = {"type": "Sequence", "decoders": [FROM_MARK, {"type": "ByteFallback"}, {"type": "Fuse"}]}
LLAMA_DECODER = {"type": "Sequence", "decoders": [
    *TEXT_DECODER["decoders"], {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}

# Name: (model, normalizer, pre_tokenizer, decoder, flags of the added tokens).
SETTINGS = {
    "llama-2": ("text", PREPEND_MARK, None, LLAMA_DECODER, {}),
    "llama-2, normalized": ("text", PREPEND_MARK, None, LLAMA_DECODER, {"normalized": True}),
    "phi-3": ("text", PREPEND_MARK, None, LLAMA_DECODER, {"rstrip": True}),
    "phi-3, normalized": ("text", PREPEND_MARK, None, LLAMA_DECODER, {"rstrip": True, "normalized": True}),
    "both strips": ("text", PREPEND_MARK, None, LLAMA_DECODER, {"lstrip": True, "rstrip": True}),
    "both strips, normalized": ("text", SPACE_MARK, None, TEXT_DECODER,
                                {"lstrip": True, "rstrip": True, "normalized": True}),
    "single words": ("text", PREPEND_MARK, None, LLAMA_DECODER, {"single_word": True}),
    "single words, normalized": ("text", SPACE_MARK, None, TEXT_DECODER,
                                 {"single_word": True, "normalized": True}),
    "mistral v0.3": ("text", None, metaspace("first", False), LLAMA_DECODER, {}),
    "mistral v0.3, normalized": ("text", None, metaspace("first", False), LLAMA_DECODER, {"normalized": True}),
    "metaspace, words": ("text", None, metaspace("always", True), LLAMA_DECODER, {}),
    "metaspace, never": ("text", None, metaspace("never", True), TEXT_DECODER, {}),
    "metaspace, digits": ("text", None, pre_sequence(DIGITS, metaspace("first", True)), LLAMA_DECODER, {}),
    "old metaspace": ("text", None, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
                      LLAMA_DECODER, {}),
    "gemma": ("text", SPACE_MARK, split(" ", "MergedWithPrevious", kind="String"), TEXT_DECODER, {}),
    "gemma, normalized": ("text", SPACE_MARK, split("▁", "MergedWithPrevious", kind="String"), TEXT_DECODER,
                          {"normalized": True}),
    "yi": ("text", SPACE_MARK, None, TEXT_DECODER, {}),
    "llama-3": ("bytes", None, pre_sequence(split(LLAMA3), byte_level(False)), BYTES, {}),
    "phi-4": ("bytes", None, pre_sequence(split(LLAMA3, "Removed", True), byte_level(False)), BYTES,
              {"lstrip": True, "rstrip": True}),
    "cl100k": ("bytes", None, pre_sequence(split(CL100K, "Removed", True), byte_level(False)), BYTES, {}),
    "tekken": ("bytes", None, pre_sequence(split(TEKKEN), byte_level(False)), BYTES, {}),
    "gpt-2": ("bytes", None, byte_level(), BYTES, {}),
    "gpt-2, normalized": ("bytes", {"type": "NFC"}, byte_level(), BYTES, {"normalized": True}),
    "prefix space": ("bytes", None, byte_level(prefix=True), BYTES, {}),
    "smollm2": ("bytes", None, pre_sequence(DIGITS, byte_level()), BYTES, {}),
    "numbers": ("bytes", None, pre_sequence(NUMBERS, byte_level(prefix=True)), BYTES, {}),
    "deepseek": ("bytes", {"type": "Sequence", "normalizers": []},
                 pre_sequence(split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
                              DIGITS, byte_level(False)), BYTES, {"normalized": True}),
    "falcon 3": ("bytes", None, pre_sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                                             NUMBERS, split("[0-9][0-9][0-9]")), BYTES, {}),
    "bloom": ("bytes", None, pre_sequence(split(BLOOM), byte_level(False)), BYTES, {}),
    "punctuation": ("bytes", None, pre_sequence({"type": "Punctuation", "behavior": "Isolated"},
                                                byte_level(False)), BYTES, {}),
    "empty matches": ("bytes", None, pre_sequence(split("(?=(\\d{3})+(?!\\d))"), split("x*"), byte_level(False)),
                      BYTES, {}),
    **{f"{behavior}, {'inverted' if invert else 'plain'}": (
        "bytes", None, pre_sequence(split("[aeiou]| ", behavior, invert), byte_level(False)), BYTES, {})
       for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous") for invert in (False, True)},
}
CONTROL = ["<s>", "</s>", "<|user|>", "<|assistant|>", "[INST]", "<｜User｜>", "word"]

CHOSEN = [
    "", " ", "   ", "\n", "a", " a", "a ", "  two  words ", "Hello, World! It's 2024.", "IT'S we'LL don't I'm 's 'S",
    "12345 1 22 333 4444", "x1y22z333", "3.14 1e-9 ١٢٣ ²³ Ⅳ ½ ①", "tab\tnew\nline\r\n\n end", "a\u00a0b\u3000c\u200bd",
    "naïve café e\u0301te\u0301 Å", "日本語のテキスト 漢字", "한국어 \u1100\u1161\u11a8", "हिन्दी ไทย עברית", "😀👩‍👩‍👧 🇩🇪",
    "<s>", "<s> </s>", " <s>Hello</s> ", "<s>\n<|user|>\n Hi <|assistant|> \n", "a<s>b</s>c", "[INST] x [/INST]",
    "<｜User｜>Hi<｜User｜>", "<s><s> <s>  <s>", "word words a word, sword word-word _word word_ word", "wordword \u0301word word²",
    "<s", "▁<s>▁", "a▁b ▁ c", "f(x)={a: [1, 2]}; // !!! ...", "foo_bar --> <tag/> #$%^&*`~|+=", "xxax aXx", "a1b2 3c",
    "1000000 12,345.67 -> 89", "end.\n\n\nStart  of   it", "x</s>\u0338y <s>\u0301",
]
ODD = [*" \t\n\r", "  ", "\u00a0", "\u3000", "\u200b", *"aeioxyzABZ", "'s", "'LL", "é", "e\u0301", "\u0301", "ß", "漢", "한", "ᄀ", "ᅡ",
       "😀", *"0123456789", "²", "½", "١", *".,!?-_/\\()[]{}<>|#$^&*+=~`@:;\"'", "▁", "…", "。", "the ", "Once upon", *CONTROL, *CONTROL]


def train(kind):
    # Without the control tokens: what is added is no token of the model.
    plain = [t for t in CHOSEN if not any(token in t for token in CONTROL)]
    words = plain + plain + ["the cat and the dog in the house", "Once upon a time there was"]
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                      show_progress=False)
    else:
        words = [w.replace(" ", "▁") for w in words]
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        special = ["<unk>", *(f"<0x{b:02X}>" for b in range(256))]
        alphabet = [chr(c) for c in range(0x21, 0x7F)] + list("▁éß漢字한국а½")
        trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=special, initial_alphabet=alphabet,
                                      limit_alphabet=len(alphabet), show_progress=False)
    tokenizer.train_from_iterator(words, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"type": "BPE", **{k: model[k] for k in ("unk_token", "fuse_unk", "byte_fallback")},
            "vocab": model["vocab"], "merges": model["merges"]}


def tokenizer_json(setting, trained):
    model, normalizer, pre_tokenizer, decoder, flags = setting
    size = len(trained[model]["vocab"])
    added = [{"id": size + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": i % 3 != 2, **flags} for i, content in enumerate(CONTROL)]
    return {"version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": None, "decoder": decoder}


def main():
    out = sys.argv[1]
    rng = random.Random(7)
    texts = CHOSEN
    if "--fuzz" in sys.argv:
        count, seed = map(int, sys.argv[sys.argv.index("--fuzz") + 1:])
        rng = random.Random(seed)
        texts = ["".join(rng.choice(ODD) for _ in range(rng.randint(1, 14))) for _ in range(count)]
    trained = {kind: train(kind) for kind in ("bytes", "text")}
    settings = []
    for name, setting in SETTINGS.items():
        parts = tokenizer_json(setting, trained)
        model = trained[setting[0]]
        tokenizer = Tokenizer.from_str(json.dumps({**parts, "model": model}))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        decoded = []
        # After a normalizer that changes their content, `tokenizers` decodes added tokens as it searches
        # for them, with the mark and in spite of skip_special_tokens.
        for i in range(0, 0 if setting[4].get("normalized") else len(texts), 5):
            decoded.append([ids[i], tokenizer.decode(ids[i], skip_special_tokens=False), tokenizer.decode(ids[i])])
        settings.append({"name": name, "model": setting[0], "parts": parts, "ids": ids, "decoded": decoded})
    with open(out, "w", encoding="utf-8") as f:
        json.dump({"models": trained, "texts": texts, "settings": settings}, f, ensure_ascii=True,
                  separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
