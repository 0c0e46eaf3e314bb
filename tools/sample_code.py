#!/usr/bin/env python3
"""Prints random comments and functions, for a reader who has not seen them before to judge.

The rule (docs/conventions.md): at most one of twenty comments and one of twenty functions may need a second reading.

    tools/sample_code.py [SEED [NUMBER]]        20 of each from kuiper/, emulator/, demo/, bench/ and tools/
"""
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))
from check_counts import blocks, read  # noqa: E402
from check_words import comment_blocks  # noqa: E402

LINES_AFTER = 12  # shown after a comment


def main(argv):
    chosen, number = random.Random(int(argv[0]) if argv else 1), int(argv[1]) if len(argv) > 1 else 20
    sources = read(ROOT, "kuiper", "emulator", "demo", "bench", "tools")
    comments = [(s, line) for s in sources for line, _ in comment_blocks(s.text)]
    functions = [(s, line, count) for s in sources for kind, _, _, count, line in blocks(s) if kind == "function"]
    for source, line in chosen.sample(comments, number):
        print(f"== comment {source.name}:{line}")
        print("\n".join(source.text.splitlines()[line - 1:line - 1 + LINES_AFTER]), "\n")
    for source, line, count in chosen.sample(functions, number):
        print(f"== function {source.name}:{line}")
        print("\n".join(source.text.splitlines()[line - 1:line - 1 + count]), "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
