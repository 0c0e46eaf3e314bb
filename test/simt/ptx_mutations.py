#!/usr/bin/env python3
"""Mutates the inline assembly of kernels/cuda and expects the tests to detect each mutation.

A mutant is a textual change of one wrapper. nvcc compiles test/simt/wrappers.cu, which uses every wrapper in
a kernel with known results, to PTX. The tests of the wrappers run it on the emulated device and must fail.
Without a change they must pass, and every asm statement must have a mutant.

    python3 test/simt/ptx_mutations.py ROOT SIMT_TEST NVCC [FLAG...]
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = "kuiper/kernels/cuda"
COPY, ACCESS, MMA = (f"{FOLDER}/{name}.cuh" for name in ("async_copy", "memory_access", "mma"))
WRAPPERS = "test/simt/wrappers.cu"
FOR_LATER = ("kernel_order.cuh",)  # not used in code for sm_87; tools/sass_lint.py checks sm_90
LOAD = r'''asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];\n" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                           \
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))                \
                 : "memory");'''
F16 = "row.col.f32.f16.f16.f32 \"\n        \"{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}"
BF16 = F16.replace("f16", "bf16")

# (description, file, text, replacement)
MUTANTS = [
    ("copy or zero: the number of bytes forgotten", COPY, "[%0], [%1], 16, %2;", "[%0], [%1], 16;"),
    ("copy or zero: always valid", COPY, "\"r\"(valid ? 16 : 0)", "\"r\"(16)"),
    ("copy or zero: valid the wrong way round", COPY, "\"r\"(valid ? 16 : 0)", "\"r\"(valid ? 0 : 16)"),
    ("copy or zero: half of the bytes", COPY, "\"r\"(valid ? 16 : 0)", "\"r\"(valid ? 8 : 0)"),
    ("copy: addresses swapped", COPY, "[%0], [%1], 16;", "[%1], [%0], 16;"),
    ("copy: half of the bytes", COPY, "[%0], [%1], 16;", "[%0], [%1], 16, 8;"),
    ("copy: another place", COPY, "[%0], [%1], 16;", "[%0], [%1+16], 16;"),
    ("small copy: addresses swapped", COPY, "[%0], [%1], 8;", "[%1], [%0], 8;"),
    ("small copy: half of the bytes", COPY, "[%0], [%1], 8;", "[%0], [%1], 8, 4;"),
    ("small copy: another place", COPY, "[%0], [%1], 8;", "[%0], [%1+8], 8;"),
    ("copy: the generic address", COPY, "static_cast<uint32_t>(__cvta_generic_to_shared(p))",
     "static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p))"),
    ("commit forgotten", COPY, "asm volatile(\"cp.async.commit_group;\\n\" ::: \"memory\");", ""),
    ("wait forgotten", COPY, "asm volatile(\"cp.async.wait_group %0;\\n\" ::\"n\"(kGroupsLeft) : \"memory\");",
     ""),
    ("wait: one group less", COPY, "\"n\"(kGroupsLeft)", "\"n\"(kGroupsLeft + 1)"),
    ("wait: a register for the number", COPY, "::\"n\"(kGroupsLeft)", "::\"r\"(kGroupsLeft)"),
    ("load: registers out of order", ACCESS, "{%0, %1, %2, %3}", "{%0, %1, %3, %2}"),
    ("load: two of four registers", ACCESS, ".v4.u32 {%0, %1, %2, %3}", ".v2.u32 {%0, %1}"),
    ("load: the next address", ACCESS, "[%4];", "[%4+16];"),
    ("load: a misaligned address", ACCESS, "[%4];", "[%4+8];"),
    ("matrix: .trans forgotten", MMA, "(LoadMatrixTransposed, \".trans\")", "(LoadMatrixTransposed, \"\")"),
    ("matrix: .trans too many", MMA, "(LoadMatrix, \"\")", "(LoadMatrix, \".trans\")"),
    ("matrix: registers out of order", MMA, "{%0,%1,%2,%3}, [%4];", "{%0,%2,%1,%3}, [%4];"),
    ("matrix: two registers", MMA, "m8n8.x4\" trans \".shared.b16 {%0,%1,%2,%3}",
     "m8n8.x2\" trans \".shared.b16 {%0,%1}"),
    ("matrix: the next row", MMA, "[%4];\\n\"", "[%4+16];\\n\""),
    ("matrix: may move across barriers", MMA, LOAD, LOAD.replace(" volatile", "").replace(": \"memory\"", "")),
    ("matrix: the generic address", MMA, "static_cast<uint32_t>(__cvta_generic_to_shared(row))",
     "static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row))"),
    ("lanes of a shuffle", WRAPPERS, "kAllLanes = 0xffffffffu", "kAllLanes = 0xffff7fffu"),
]
for kind, text in (("f16", F16), ("bf16", BF16)):
    other = "bf16" if kind == "f16" else "f16"
    MUTANTS += [
        (f"mma {kind}: A out of order", MMA, text, text.replace("%5,%6", "%6,%5")),
        (f"mma {kind}: B out of order", MMA, text, text.replace("{%8,%9}", "{%9,%8}")),
        (f"mma {kind}: D out of order", MMA, text, text.replace("{%0,%1,%2,%3}, {%4", "{%0,%2,%1,%3}, {%4")),
        (f"mma {kind}: C out of order", MMA, text, text.replace("%9}, {%0,%1,%2,%3}", "%9}, {%2,%3,%0,%1}")),
        (f"mma {kind}: three registers of A", MMA, text, text.replace("%6,%7}", "%6}")),
        (f"pairs {kind}: operands swapped", MMA, f"fma.rn.{kind}x2 %0, %1, %2, %3",
         f"fma.rn.{kind}x2 %0, %1, %3, %2"),
        (f"pairs {kind}: the other type", MMA, f"fma.rn.{kind}x2", f"fma.rn.{other}x2"),
        (f"mma {kind}: the other type", MMA, text,
         text.replace(f"{kind}.{kind}", f"{other}.{other}", 1)),
    ]


def assembly(root):
    """-> {(file, begin, end)} of every asm statement of the wrappers."""
    found = set()
    for path in sorted((root / FOLDER).iterdir()):
        if path.suffix in (".cu", ".cuh", ".h") and path.name not in FOR_LATER:
            for match in re.finditer(r"\basm\b[^;]*?\((?:\"(?:\\.|[^\"\\])*\"|[^;\"])*;", path.read_text()):
                found.add((f"{FOLDER}/{path.name}", *match.span()))
    return found


def touches(text, mutant, span):
    begin = text.find(mutant[2])
    return begin < span[1] and span[0] < begin + len(mutant[2])


def run(root, program, compile_ptx, mutant):
    """-> whether the tests pass, and their output."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        source = root / WRAPPERS
        if mutant:
            _, name, old, new = mutant
            text = (root / name).read_text()
            if text.count(old) != 1:
                sys.exit(f"{mutant[0]}: {text.count(old)} times in {name}: {old}")
            changed = scratch / "include" / name
            changed.parent.mkdir(parents=True)
            changed.write_text(text.replace(old, new))
            if name == WRAPPERS:
                source = changed
        (scratch / "ptx").mkdir()
        command = [*compile_ptx, "-I", str(scratch / "include"), "-I", str(root), str(source), "-o",
                   str(scratch / "ptx/wrappers.ptx")]
        compiled = subprocess.run(command, capture_output=True, text=True)
        if compiled.returncode != 0:
            sys.exit(f"{mutant and mutant[0]}: nvcc fails:\n{compiled.stdout}{compiled.stderr}")
        tests = subprocess.run([program, "--gtest_filter=*WrappersTest*/simt", "--gtest_brief=1"],
                               env=dict(os.environ, KUIPER_SIMT_PTX=str(scratch / "ptx")),
                               capture_output=True, text=True, timeout=300)
        if mutant is None and not re.search(r"PASSED  \] [1-9]", tests.stdout):
            return False, tests.stdout + tests.stderr
        return tests.returncode == 0, tests.stdout + tests.stderr


def main(argv):
    root, program, compile_ptx = pathlib.Path(argv[0]), argv[1], argv[2:]
    problems = []
    for name, begin, end in sorted(assembly(root)):
        text = (root / name).read_text()
        if not any(m[1] == name and touches(text, m, (begin, end)) for m in MUTANTS):
            problems.append(f"no mutant of {name}: {' '.join(text[begin:end].split())}")
    passes, output = run(root, program, compile_ptx, None)
    if not passes:
        problems.append(f"the tests fail without a mistake:\n{output}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda mutant: run(root, program, compile_ptx, mutant), MUTANTS)
        for mutant, (passes, output) in zip(MUTANTS, results):
            said = re.search(r"^simt: .*", output, re.MULTILINE)
            failed = len(set(re.findall(r"^\[  FAILED  \] (\w\S+),", output, re.MULTILINE)))
            print(f"{mutant[0]}: {'NOT SEEN' if passes else said[0] if said else f'{failed} tests fail'}")
            if passes:
                problems.append(f"not seen: {mutant[0]}")
    print("\n".join(problems) if problems else f"{len(MUTANTS)} of {len(MUTANTS)} mistakes seen")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
