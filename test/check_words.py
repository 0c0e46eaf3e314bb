#!/usr/bin/env python3
"""Counts expressions that make comments and documents hard to read; no count may rise (docs/conventions.md).

Run as the ctest `words`. When a count has fallen, lower its limit below.

    python3 test/check_words.py [ROOT]               fails for every count above its limit
    python3 test/check_words.py --list [PATH...]     prints every place, of these files and folders only
    python3 test/check_words.py --self-test
"""
import pathlib
import re
import sys
from collections import defaultdict

from check_counts import SUFFIXES, TOKEN

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("kuiper", "emulator", "demo", "bench", "tools", "test")
DOCUMENTS = ("README.md", "docs/*.md")
MAX_WORDS, MAX_LINE = 30, 160

# In comments: {what: (expression, limit)}. Each is searched in a block of comment lines, joined by spaces.
IN_COMMENTS = {
    "comments that begin with Of, Who, Whose, Those, These, One that, Behind, Beside":
        (r"^(?:Of|Who|Whose|Those|These|One that|Behind|Beside)\s", 1),
    "comments that begin with The same of, for, in, with, as": (r"^The same (?:of|for|in|with|as)\b", 0),
    "comments that begin with of, that, those, whose, whom": (r"^(?:of|that|those|whose|whom)\s", 1),
    "comments with behind, beside": (r"\b[Bb](?:ehind|eside)\b", 0),
    "comments with tell, told": (r"\b(?:[Tt]ells?|[Tt]old|untold)\b", 0),
    "comments with who, whom, somebody, nobody, everybody":
        (r"\b(?:[Ww]ho|whom|[Ss]omebody|[Nn]obody|[Ee]verybody|[Ww]hoever)\b", 0),
    "comments with go on": (r"\b(?:goes|go|going|went) on\b", 0),
    "comments with is no": (r"(?<!there )(?<!There )\b(?:is|are|was|were) no [a-z]", 0),
    "comments with so many, as many as": (r"\b(?:so many|as many as)\b", 1),
    "comments that begin or end with ...": (r"^\.\.\.|\.\.\.$", 0),
}
# In documents, line by line.
IN_DOCUMENTS = {
    "documents: sentences that begin with Of, Who, Whose, Beside, Behind":
        (r"(?:^|[.:;|(] )(?:Of|Who|Whose|Beside|Behind)\s", 0),
    "documents: behind, beside, told, tells, whoever, somebody, nobody, everybody":
        (r"\b(?:behind|beside|told|tells|whoever|somebody|nobody|everybody)\b", 0),
}
LONG_COMMENTS, LONG_DOCUMENTS = "comments: sentences above 30 words", "documents: sentences above 30 words"
LONG_LINES = "documents: lines above 160 characters"
LONG = {LONG_COMMENTS: 4, LONG_DOCUMENTS: 0, LONG_LINES: 0}


def comment_blocks(text):
    """-> (line, text) of each comment; whole-line comments that follow one another are one."""
    blocks, at, open_line = [], 0, -1
    for match in TOKEN.finditer(text):
        token = match.group()
        if not token.startswith(("//", "/*")):
            continue
        line = text.count("\n", at, match.start()) + (blocks[-1][2] if blocks else 1)
        at = match.start()
        body = re.sub(r"^(?://+|/\*+)|\*/$", "", token).strip()
        end = text.find("\n", match.end())
        around = text[text.rfind("\n", 0, match.start()) + 1:match.start()] + text[match.end():end if end >= 0 else None]
        alone = not around.strip()
        if alone and blocks and open_line == line - 1:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + " " + body, line)
        else:
            blocks.append((line, body, line))
        open_line = line if alone else -1
    return [(line, body) for line, body, _ in blocks]


def paragraphs(text):
    """-> (line, text) of each paragraph and list item of a document, without code and tables."""
    found, begin, lines, in_code = [], 0, [], False

    def close():
        if lines:
            found.append((begin, " ".join(lines)))
            lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            in_code = not in_code
        if in_code or not stripped or stripped[0] in "|#`<":
            close()
            continue
        if re.match(r"(?:[-*]|\d+\.)\s", stripped):
            close()
        if not lines:
            begin = number
        lines.append(stripped)
    close()
    return found


def long_sentences(text):
    text = re.sub(r"`[^`]*`", "X", text)
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if len(sentence.split()) > MAX_WORDS]


def places(root, names=None):
    """-> (what, file, line, text) of everything that is counted."""
    wanted = lambda name: names is None or any(name == n or name.startswith(n.rstrip("/") + "/") for n in names)
    for top in FOLDERS:
        for path in sorted((root / top).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or not wanted(name):
                continue
            for line, block in comment_blocks(path.read_text(encoding="utf-8")):
                for what, (expression, _) in IN_COMMENTS.items():
                    for _ in re.finditer(expression, block):
                        yield what, name, line, block
                for sentence in long_sentences(block):
                    yield LONG_COMMENTS, name, line, sentence
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if not wanted(name):
                continue
            text = path.read_text(encoding="utf-8")
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > MAX_LINE and not line.startswith("|"):
                    yield LONG_LINES, name, number, line
                for what, (expression, _) in IN_DOCUMENTS.items():
                    for _ in re.finditer(expression, line):
                        yield what, name, number, line
            for number, paragraph in paragraphs(text):
                for sentence in long_sentences(paragraph):
                    yield LONG_DOCUMENTS, name, number, sentence


def above(root):
    """-> a line for each count above its limit."""
    found = defaultdict(list)
    for what, name, line, _ in places(root):
        found[what].append(f"{name}:{line}")
    limits = {what: limit for what, (_, limit) in (IN_COMMENTS | IN_DOCUMENTS).items()} | LONG
    return [f"{what}: {len(found[what])}, at most {limit}; see python3 test/check_words.py --list"
            for what, limit in limits.items() if len(found[what]) > limit]


def self_test():
    cases = [
        (comment_blocks("int a;  // of b\n// One\n// two.\nint c;\n  // Three\n"),
         [(1, "of b"), (2, "One two."), (5, "Three")]),
        (comment_blocks("/* x */ int a;\n// y\n"), [(1, "x"), (2, "y")]),
        (comment_blocks('auto a = "// no";\n// 1\n'), [(2, "1")]),
        (paragraphs("# T\nA b\nc.\n\n- d\n- e\n```\nf\n```\n| g |\n"), [(2, "A b c."), (5, "- d"), (6, "- e")]),
        (len(long_sentences("a " * 30 + "b. c")), 1),
        (long_sentences("a " * 15 + "b. " + "c " * 15), []),
        (long_sentences("`" + "a " * 40 + "` b"), []),
    ]
    failed = [f"self-test: expected {expected}, got {got}" for got, expected in cases if got != expected]
    print("\n".join(failed) if failed else f"self-test: {len(cases)} cases as expected")
    return 1 if failed else 0


def main(argv):
    if argv == ["--self-test"]:
        return self_test()
    if argv[:1] == ["--list"]:
        for what, name, line, text in places(ROOT, argv[1:] or None):
            print(f"{name}:{line}: [{what}] {text[:160]}")
        return 0
    found = above(pathlib.Path(argv[0]) if argv else ROOT)
    print("\n".join(found) if found else "words: every count within its limit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
