#!/usr/bin/env python3
"""Counts in how many places one thing stands, and holds the numbers of docs/architecture.md.

Run as the ctest `counts`. What stands in few files can be changed or added to in few files; how large
a file, a class, a function and demo/ may become is counted here as well.

    python3 test/check_counts.py [ROOT]        fails for every number above its limit
    python3 test/check_counts.py --self-test
"""
import fnmatch
import pathlib
import re
import sys
import tempfile
from collections import defaultdict

SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}
MAX_FILE, MAX_KERNEL_FILE, MAX_CLASS, MAX_FUNCTION, MAX_DEMO = 400, 500, 500, 60, 4600

# What every checkpoint calls its tensors.
TENSORS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_norm", "k_norm",
           "embed_tokens", "lm_head", "input_layernorm", "post_attention_layernorm")
KV_FORMAT = "kuiper/*/kv_format.*"
KV_FORMAT_VALUE = r"KvFormat::Kind::k\w|\bkv\w*\b.*\"fp16\""
VIEW_TYPES = "kuiper/*/kv_view.h"
STRIDES_READ = (r"(?:\.s|\bstrides_?)\.(?:page_stride|layer_offset|head_stride|v_offset|token_stride|head_dim)\b|"
                r"[.>](?:layer_offset|v_offset)\b") + r"(?!\s*=[^=])"
# What may be more: {what: (limit, why)}.
EXCEPTIONS = {
    "files of the tensor name lm_head": (2, "config.json of a quantised model says that the head is none"),
    "files of the op Apply": (7, "two networks; kuiper/quant/scale_search.cpp measures errors of outputs with it"),
    "files of the op Attention": (7, "two networks; kuiper/ops/paged_attention.cpp offers it to other programs"),
    "files of the op QkNormRopeStore": (6, "two networks: the decoder and the vision tower"),
    "files of the op FillRandom": (6, "kernels/cuda/dense_gemm.cu makes up the matrices it measures with"),
}

# Comments, raw and plain strings, characters (no separators of digits), and what is between them.
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<=\d)'(?=\d)|'''
                   r''''(?:\\.|[^'\\\n])+'|(?:[^"'/R]|R(?!"))+|.''', re.DOTALL)


class Source:
    """A file: its text, the text without comments, and without comments and literals; all with the
    lines of the file."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        code, bare = [], []
        for match in TOKEN.finditer(text):
            token = match.group()
            lines = "\n" * token.count("\n")
            if token.startswith(("//", "/*")):
                code.append(lines)
                bare.append(lines)
            elif len(token) > 1 and token[0] in "\"'" or token.startswith('R"'):
                code.append(token)
                bare.append('""' + lines)
            else:
                code.append(token)
                bare.append(token)
        self.code, self.bare = "".join(code), "".join(bare)

    def literals(self):
        return (m.group() for m in TOKEN.finditer(self.code) if m.group()[0] == '"' or m.group()[:2] == 'R"')

    def num_code_lines(self):
        return sum(1 for line in self.code.splitlines() if line.strip())


def read(root, *tops):
    return [Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
            for top in tops for path in sorted((root / top).rglob("*")) if path.suffix in SUFFIXES]


HEAD = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?((?:\w+::)*\w+)(?:\s+final)?\s*(?::[^{};()]*)?$")
FUNCTION = re.compile(r"([\w~]+(?:::(?:[\w~]+|operator\s*\S+))*|operator\s*\S+)\s*\(")
NAMESPACE = re.compile(r"\b(?:namespace\b[\w:\s]*|extern\s*\"\")$")


def blocks(source):
    """-> (kind, name, is in a class, number of lines, first line) of every class, and of every function
    that no other holds."""
    text, found = source.bare, []
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.MULTILINE)
    stack, start = [], 0  # of (kind, name, where its head begins)
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group()
        inside = stack[-1][0] if stack else "namespace"
        if sign == "{":
            head = text[start:at]
            begin = start + len(head) - len(head.lstrip())
            stripped = head.strip()
            kind, name = "other", ""
            if inside in ("namespace", "class"):
                head_of_class = HEAD.search(re.sub(r"<[^<>{}]*>", "", stripped))
                function = FUNCTION.search(stripped)
                if NAMESPACE.search(stripped):
                    kind = "namespace"
                elif head_of_class and "enum" not in stripped.split():
                    kind, name = "class", head_of_class.group(1)
                elif function:
                    kind, name = "function", re.sub(r"<[^<>]*>", "", function.group(1))
            stack.append((kind, name, begin))
        elif sign == "}" and stack:
            kind, name, begin = stack.pop()
            if kind in ("class", "function"):
                outer = "::".join(n for k, n, _ in stack if k == "class")
                whole = f"{outer}::{name}" if outer else name
                found.append((kind, whole, bool(outer), text.count("\n", begin, at) + 1, text.count("\n", 0, begin) + 1))
            if kind == "other" and inside not in ("namespace", "class"):
                continue
        if sign != "{" or inside in ("namespace", "class"):
            start = at + 1
    return found


def class_sizes(sources):
    """-> {class: lines}: its definition, what its members' definitions take elsewhere, and the rest of a
    file (helpers, comments) of which it has at least half."""
    defined, parts = set(), []
    for source in sources:
        folder = source.name.rsplit("/", 1)[0]
        own, total = defaultdict(int), 0
        for kind, name, inner, lines, _ in blocks(source):
            if inner:
                continue
            total += lines
            if kind == "class":
                defined.add((folder, name))
                own[folder, name] += lines
            elif "::" in name:
                own[folder, name.rsplit("::", 1)[0]] += lines
        for owner, lines in own.items():
            rest = source.text.count("\n") - total if 2 * lines >= total else 0
            rest += total - sum(own.values()) if rest else 0
            parts.append((owner, lines + rest))
    sizes = defaultdict(int)
    for owner, lines in parts:
        if owner in defined:
            sizes[owner] += lines
    return sizes


def files_with(sources, pattern, within=lambda source: [source.code]):
    compiled = re.compile(pattern)
    return [source.name for source in sources if any(compiled.search(text) for text in within(source))]


def one_thing_in_few_places(root):
    """-> (what, number, limit, where it stands)."""
    kuiper, demo, test = read(root, "kuiper"), read(root, "demo"), read(root, "test")
    bare = lambda source: [source.bare]
    found = files_with(kuiper + demo, r"\bmin[_-]p\b")
    yield "files of a sampling parameter (min_p)", len(found), 7, found
    found = files_with((s for s in kuiper + demo if not fnmatch.fnmatchcase(s.name, KV_FORMAT)), KV_FORMAT_VALUE)
    yield "files of a value of --kv-cache-dtype", len(found), 2, found
    for name in TENSORS:  # an op may call an argument so
        found = files_with((s for s in kuiper if not s.name.startswith("kuiper/ops/")), rf"\b{name}\b", Source.literals)
        yield f"files of the tensor name {name}", len(found), 1, found
    ops = sorted({name for source in kuiper if source.name == "kuiper/ops/op_args.h"
                  for name in re.findall(r"\bstruct (\w+)Args\b", source.bare)})
    for op in ops:
        # Of its tests the first: others use it to prepare theirs.
        found = files_with(kuiper, rf"\b{op}Args\b", bare) + files_with(test, rf"\b{op}Args\b", bare)[:1]
        yield f"files of the op {op}", len(found), 5, found
    found = files_with(kuiper, r"--[a-z]", Source.literals)
    yield "files of kuiper/ that name a command-line flag", len(found), 0, found
    found = files_with(read(root, "kuiper", "demo", "bench", "tools"), r"(?i)json::parse\b", bare)
    yield "files that read JSON without ParseJson", len(found), 0, found
    found = files_with((s for s in kuiper if not fnmatch.fnmatchcase(s.name, VIEW_TYPES)), STRIDES_READ, bare)
    yield "files that read fields of KvStrides", len(found), 0, found


def sizes(root):
    sources = read(root, "kuiper", "emulator", "demo", "bench", "tools")
    for source in sources:
        limit = MAX_KERNEL_FILE if source.name.startswith("kuiper/kernels/") else MAX_FILE
        yield "lines of " + source.name, source.text.count("\n"), limit, []
        if limit == MAX_FILE:
            for kind, name, _, lines, _ in blocks(source):
                if kind == "function":
                    yield f"lines of the function {name}", lines, MAX_FUNCTION, [source.name]
    for (folder, name), lines in class_sizes(sources).items():
        yield f"lines of the class {name}", lines, MAX_CLASS, [folder]
    yield "lines of code in demo/", sum(s.num_code_lines() for s in read(root, "demo")), MAX_DEMO, []


def counts(root):
    return [*one_thing_in_few_places(root), *sizes(root)]


def above(root):
    """-> a line for each number above its limit."""
    limited = [(what, number, EXCEPTIONS.get(what, (limit,))[0], where)
               for what, number, limit, where in counts(root)]
    return [f"{what}: {number}, at most {limit}: {' '.join(where)}"
            for what, number, limit, where in limited if number > limit]


def self_test():
    """Each case is a file, its text and a number that must be found in it."""
    body = "".join(f"  int f{i}();\n" for i in range(30))
    member = "void A::F() {\n" + "  G();\n" * 50 + "}\n"
    cases = [
        ("kuiper/engine/a.h", "float min_p = 0;  // x", "files of a sampling parameter (min_p)", 1),
        ("kuiper/engine/a.h", "int n;  // min_p", "files of a sampling parameter (min_p)", 0),
        ("kuiper/model/a.cpp", 'auto s = "a.q_proj.weight";', "files of the tensor name q_proj", 1),
        ("kuiper/model/a.cpp", "int q_proj;  // \"q_proj\"", "files of the tensor name q_proj", 0),
        ("kuiper/ops/op_args.h", "struct EmbedArgs {\n};", "files of the op Embed", 1),
        ("kuiper/kv/a.cpp", 'Bad("see --page-size");', "files of kuiper/ that name a command-line flag", 1),
        ("kuiper/kv/a.cpp", "--a; // \"--b\"", "files of kuiper/ that name a command-line flag", 0),
        ("kuiper/kv/a.cpp", "Json j = Json::parse(s);", "files that read JSON without ParseJson", 1),
        ("kuiper/kernels/cpu/a.cpp", "x = view.s.v_offset;", "files that read fields of KvStrides", 1),
        ("kuiper/ops/kv_view.h", "x = s.v_offset;", "files that read fields of KvStrides", 0),
        ("demo/a.cpp", "int a;\n\n// b\n/* c\n d */ int e;\n", "lines of code in demo/", 2),
        ("demo/a.cpp", f"class A final : public B {{\n{body}}};\n{member}", "lines of the class A", 84),
        ("demo/a.cpp", f"namespace n {{\nstruct A {{\n{body}}};\n}}\nvoid F() {{\n}}\n", "lines of the class A", 36),
        ("demo/a.cpp", member, "lines of the function A::F", 52),
        ("demo/a.cpp", "template <typename T>\nint F(T t)\n    requires B<T> {\n  return R\"(\n}{)\";\n}\n",
         "lines of the function F", 6),
        ("demo/a.cpp", "int F() {\n  return G(1'000, '{', 2'000);\n}\nint b() {\n}", "lines of the function F", 3),
        ("demo/a.cpp", "int a = 1;\nint b;\n", "lines of demo/a.cpp", 2),
    ]
    failures = 0
    for name, text, what, expected in cases:
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            found = {what: number for what, number, _, _ in counts(pathlib.Path(scratch))}.get(what)
        if found != expected:
            failures += 1
            print(f"self-test: {what} in {text[:60]!r}: expected {expected}, got {found}")
    print(f"self-test: {len(cases) - failures} of {len(cases)} cases as expected")
    return 1 if failures else 0


def main(argv):
    if argv == ["--self-test"]:
        return self_test()
    root = pathlib.Path(argv[0]) if argv else pathlib.Path(__file__).resolve().parent.parent
    found, total = above(root), len(counts(root))
    print("\n".join(found) if found else f"counts: {total} numbers within their limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
