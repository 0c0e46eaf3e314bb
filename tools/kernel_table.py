#!/usr/bin/env python3
"""Registers, shared memory, stack and spills of every CUDA kernel, as ptxas reports them.

Compiles kuiper/kernels/cuda/*.cu for each architecture (or reads logs of `nvcc -Xptxas -v`) and
prints one line per kernel. With --check FILE the result is compared with a table made before: more
registers or shared memory than the table says are an error, and so are a stack and spills, whatever
it says.

    python3 tools/kernel_table.py --arch 87 90 > docs/kernel_table.tsv
    python3 tools/kernel_table.py --arch 87 90 --check docs/kernel_table.tsv
    python3 tools/kernel_table.py --log build.log

tools/sass_lint.py reads what --keep FOLDER leaves.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-O3", "-fmad=false", "-Werror", "all-warnings", "-Xptxas", "-v"]
HOST_FLAGS = ["-Xcompiler", "-Wall,-Wextra,-Werror,-ffp-contract=off"]
COLUMNS = ["kernel", "sm", "registers", "shared", "stack", "spill_stores", "spill_loads"]

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")


def parse(log):
    """-> list of rows as in COLUMNS, with mangled names."""
    rows, entry, stack = [], None, (0, 0, 0)
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entry, stack = match.groups(), (0, 0, 0)
        elif match := STACK.search(line):
            stack = tuple(int(x) for x in match.groups())
        elif entry and (match := USED.search(line)):
            name, arch = entry
            rows.append([name, arch, int(match[1]), int(match[2] or 0), *stack])
            entry = None
    return rows


def spills(row):
    return any(row[COLUMNS.index("stack"):])


def demangle(rows):
    names = "\n".join(row[0] for row in rows)
    result = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True)
    for row, name in zip(rows, result.stdout.splitlines()):
        name = name.replace("kuiper::cuda::(anonymous namespace)::", "").replace("kuiper::", "")
        name = re.sub(r"^void ", "", name)
        row[0] = re.sub(r"\((int|bool)\)", "", name).rsplit("(", 1)[0].replace("cuda::", "")
    return sorted(rows, key=lambda row: (row[0], row[1]))


def compile_one(nvcc, source, arch, output, with_host):
    """The log of one file for one architecture; without the host part only what ptxas reads is made."""
    mode = ["-c", *HOST_FLAGS] if with_host else ["-cubin"]
    command = [*nvcc, *FLAGS, f"-arch=sm_{arch}", *mode, "-I", str(ROOT), str(source), "-o", output]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"{source.name} does not compile for sm_{arch}:\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr


def compile_log(nvcc, archs, folder):
    """Every file for every architecture, as many at a time as there are cores, the largest first; leaves
    STEM_ARCH.o in the folder."""
    command = [*(["ccache"] if shutil.which("ccache") else []), nvcc]
    sources = sorted((ROOT / "kuiper/kernels/cuda").glob("*.cu"), key=lambda p: -p.stat().st_size)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_one, command, source, arch, f"{folder}/{source.stem}_{arch}.o",
                            arch == archs[0])
                for source in sources for arch in archs]
        try:
            return "\n".join(job.result() for job in jobs)
        except RuntimeError as error:
            pool.shutdown(cancel_futures=True)
            sys.exit(str(error))


def compare(rows, table):
    """-> list of what is worse than the table says."""
    known = {}
    for line in table.splitlines()[1:]:
        fields = line.split("\t")
        known[tuple(fields[:2])] = [int(x) for x in fields[2:]]
    problems = []
    for row in rows:
        name, arch, *values = row
        expected = known.pop((name, arch), None)
        where = f"{name} sm_{arch}"
        if expected is None:
            problems.append(f"{where}: not in the table")
            continue
        for column, value, limit in zip(["registers", "shared"], values, expected):
            if value > limit:
                problems.append(f"{where}: {column} {value}, the table says {limit}")
        if spills(row):
            problems.append(f"{where}: has a stack or spills")
    problems += [f"{name} sm_{arch}: in the table but not built" for name, arch in known]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", nargs="+", default=["87", "90"])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--log", type=pathlib.Path, help="read this log instead of compiling")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="leave what was compiled here")
    parser.add_argument("--check", type=pathlib.Path, help="compare with this table")
    args = parser.parse_args()
    if args.log:
        log = args.log.read_text()
    elif args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        for old in args.keep.glob("*_[0-9]*.o"):
            old.unlink()
        log = compile_log(args.nvcc, args.arch, args.keep)
    else:
        with tempfile.TemporaryDirectory() as folder:
            log = compile_log(args.nvcc, args.arch, folder)
    rows = demangle(parse(log))
    if not rows:
        sys.exit("no kernel found")
    if not args.check:
        print("\t".join(COLUMNS))
        for row in rows:
            print("\t".join(str(x) for x in row))
        if any(map(spills, rows)):
            sys.exit("kernels have a stack or spills: --check says which")
        return
    problems = compare(rows, args.check.read_text())
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(f"{len(rows)} kernels as in {args.check}")


if __name__ == "__main__":
    main()
