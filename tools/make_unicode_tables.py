#!/usr/bin/env python3
"""Makes kuiper/io/unicode_tables.inc: characters as Hugging Face's `tokenizers` sees them.

    python3 tools/make_unicode_tables.py            # writes the file
    python3 tools/make_unicode_tables.py --check    # makes it again and compares

Needs: pip install tokenizers==0.22.2 unicodedata2==18.0.0

Which characters are letters, marks, numbers and white space is asked of the splitter itself, and which
characters its older normaliser knows is asked of the normaliser; the values of those that it knows
(combining classes and canonical decompositions, which Unicode never changes) come from unicodedata2.
The tables are written as numbers of variable length in 64 printable characters (`numbers`).
"""
import argparse
import itertools
import pathlib
import sys

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "kuiper" / "io" / "unicode_tables.inc"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
KINDS = {1: r"\p{L}", 2: r"\p{M}", 3: r"\p{N}", 4: r"\s"}  # the values of CharKind
NOT_INERT = 255
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def numbers(values):
    """Base 32, most significant digit first; every digit but the last is 32 higher."""
    out = []
    for value in values:
        digits = [value & 31]
        while value := value >> 5:
            digits.append(32 + (value & 31))
        out.extend(ALPHABET[d] for d in reversed(digits))
    return "".join(out)


def zigzag(value):
    return 2 * value if value >= 0 else -2 * value - 1


def runs(values):
    """`values` of all code points -> [(length, value)]"""
    return [(len(list(group)), value) for value, group in itertools.groupby(values)]


def kinds():
    values = [0] * 0x110000
    text = "".join(map(chr, CODE_POINTS))
    for kind, pattern in KINDS.items():
        for part, _ in pre_tokenizers.Split(Regex(f"[^{pattern}]+"), "removed").pre_tokenize_str(text):
            for c in part:
                assert values[ord(c)] == 0, hex(ord(c))
                values[ord(c)] = kind
    return runs(values)


def known_class(c):
    """The combining class that the normaliser gives a character: Unicode's, or 0 if it is too new."""
    value = unicodedata2.combining(c)
    if value == 0:
        return 0
    # Next to a mark of another class an unknown character stays where it is.
    pair = c + "\u0334" if value > 1 else "\u0345" + c
    return value if NFD("a" + pair) != "a" + pair else 0


def decompositions():
    """-> [(code point, first, second or None, whether first + second compose)]"""
    found = []
    for c in map(chr, CODE_POINTS):
        parts = unicodedata2.decomposition(c)
        if not parts or parts.startswith("<") or NFD(c) == c or "\uac00" <= c <= "\ud7a3":
            continue  # Hangul syllables are arithmetic
        first, *rest = [int(part, 16) for part in parts.split()]
        second = rest[0] if rest else None
        composes = second is not None and NFC(chr(first) + chr(second)) == c
        found.append((ord(c), first, second, composes))
    return found


def combining(pairs):
    """The combining class of what has one, and NOT_INERT for others that may change in NFC."""
    change = {second for _, _, second, composes in pairs if composes}
    change.update(range(0x1161, 0x1176), range(0x11A8, 0x11C3))  # Hangul vowels and final consonants
    values = [0] * 0x110000
    for c in CODE_POINTS:
        values[c] = known_class(chr(c)) or (NOT_INERT if c in change or NFC(chr(c)) != chr(c) else 0)
    return runs(values)


def encode_decompositions(pairs):
    out, last, last_first, last_second = [], 0, 0, 0
    for code, first, second, composes in pairs:
        out += [code - last, 2 * zigzag(first - last_first) + (second is not None)]
        if second is not None:
            out.append(2 * zigzag(second - last_second) + composes)
            last_second = second
        last, last_first = code, first
    return out


def literal(name, count, values):
    text = numbers(values)
    lines = [f'    "{text[i:i + 94]}"' for i in range(0, len(text), 94)]
    return f"constexpr int kNum{name} = {count};\nconstexpr std::string_view k{name} =\n" + "\n".join(lines) + ";\n"


def make():
    kind_runs, pairs = kinds(), decompositions()
    class_runs = combining(pairs)
    return "".join([
        f"// Made by tools/make_unicode_tables.py with tokenizers {tokenizers.__version__} and unicodedata2 "
        f"{unicodedata2.unidata_version}.\n\n",
        "// Runs of code points of one CharKind: 8 * length + kind.\n",
        literal("Kinds", len(kind_runs), [8 * length + kind for length, kind in kind_runs]),
        "\n// Runs of code points of one combining class, or 255: 256 * length + class.\n",
        literal("Combining", len(class_runs), [256 * length + value for length, value in class_runs]),
        "\n// Canonical decompositions; unicode_tables.h reads them.\n",
        literal("Decompositions", len(pairs), encode_decompositions(pairs)),
        f"constexpr int kNumCompositions = {sum(pair[3] for pair in pairs)};\n",
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there")
    check = parser.parse_args().check
    text = make()
    if not check:
        OUT.write_text(text)
    equal = OUT.read_text() == text
    print("tables: equal" if equal else f"differs: {OUT}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
