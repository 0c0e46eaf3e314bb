#!/usr/bin/env python3
"""What the kernels move and execute at the shapes of real models, counted from nvcc's PTX.

Runs build/test/simt/kernel_shapes over the PTX of the kernels (docs/simt.md) and prints a line per
shape and kernel: bytes asked of each memory, requests of warps, 32-byte sectors per request,
wavefronts of shared memory for each one that would do without bank conflicts, the bytes of copies
that a thread has under way when it waits, and instructions of warps by kind per token or per KiB of
weights or cache. With --check FILE the result is compared with a table made before: any number that
rose is an error (bytes under way: that fell), and so is a hot kernel with more conflicts than
--max-conflicts.

    python3 tools/kernel_traffic.py > docs/kernel_traffic.tsv
    python3 tools/kernel_traffic.py --check docs/kernel_traffic.tsv
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_COMPARED = 77  # what ctest takes for a skipped test
COUNTS = ["launches", "dynamic_shared", "global_requests", "global_bytes", "sectors", "shared_requests", "shared_bytes",
          "wavefronts", "copies_under_way"]
MORE_IS_BETTER = ["copies_under_way"]  # bytes of a thread when it waits
RATIOS = ["sectors_per_request", "conflicts"]
KINDS = ["integer", "float", "convert", "move", "tensor", "shuffle", "global_load", "global_store",
         "shared_load", "shared_store", "generic_load", "generic_store", "matrix_load", "async_copy",
         "atomic", "parameter_load", "barrier", "branch"]
COLUMNS = ["shape", "kernel", "unit", *COUNTS, *RATIOS, *KINDS]
TEXTS = 3  # of the columns


def short(kernel):
    """A kernel as docs/kernel_table.tsv names it."""
    name = re.sub(r"^void ", "", kernel).replace("kuiper::cuda::", "").replace("kuiper::", "")
    return name[:name.rindex("(")] if name.endswith(")") else name


def ratio(number, of):
    return number / of if of else 0.0


def row_of(report):
    """From a line of kernel_shapes, a dictionary, to one as in COLUMNS."""
    numbers = {name: int(report[name]) for name in [*COUNTS, "ideal_wavefronts", *KINDS]}
    ratios = [ratio(numbers["sectors"], numbers["global_requests"]),
              ratio(numbers["wavefronts"], numbers["ideal_wavefronts"])]
    return [report["shape"], short(report["kernel"]), report["unit"], *(str(numbers[name]) for name in COUNTS),
            *(f"{x:.3f}" for x in ratios), *(f"{numbers[kind] / float(report['units']):.6g}" for kind in KINDS)]


def measure(program, ptx):
    """-> (rows, names of hot ones with the line of the PTX that has most of their conflicts)."""
    run = subprocess.run([program, ptx], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"error: {program} ends with {run.returncode}\n{run.stderr}")
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    reports = [dict(zip(lines[0], line)) for line in lines[1:]]
    rows = [row_of(report) for report in reports]
    return rows, {tuple(row[:2]): report["worst_line"] for row, report in zip(rows, reports)
                  if report["hot"] == "1"}


def release_of(ptx):
    """The release of nvcc that wrote the files: "13.0"."""
    for path in sorted(pathlib.Path(ptx).glob("*.ptx")):
        if match := re.search(r"release (\d+\.\d+)", path.read_text()[:2000]):
            return match[1]
    sys.exit(f"error: no PTX of nvcc in {ptx}; build the target kuiper_ptx")


def conflicts(rows, hot, limit):
    """-> list of hot kernels above the limit."""
    at = COLUMNS.index("conflicts")
    return [f"{row[0]}: {row[1]}: {row[at]} wavefronts for each that is needed, at most {limit}; most at "
            f"{hot[tuple(row[:2])]}" for row in rows if tuple(row[:2]) in hot and float(row[at]) > limit]


def compare(rows, table):
    """-> (what is worse than the table says, how many numbers are better)."""
    known = {tuple(row[:2]): row for row in table}
    problems, better = [], 0
    for row in rows:
        where = f"{row[0]}: {row[1]}"
        expected = known.pop(tuple(row[:2]), None)
        if expected is None:
            problems.append(f"{where}: not in the table")
            continue
        for column, value, limit in list(zip(COLUMNS, row, expected))[TEXTS:]:
            rise = (float(value) - float(limit)) * (-1 if column in MORE_IS_BETTER else 1)
            if rise > 0:
                problems.append(f"{where}: {column} {value}, the table says {limit}")
            better += rise < 0
    return problems + [f"{shape}: {kernel}: in the table but did not run" for shape, kernel in known], better


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/test/simt/kernel_shapes")
    parser.add_argument("--ptx", default=ROOT / "build/ptx/kernels", help="the folder of the PTX")
    parser.add_argument("--max-conflicts", type=float, default=1.11)
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="compare with this table")
    args = parser.parse_args()
    release = release_of(args.ptx)
    rows, hot = measure(args.program, args.ptx)
    if not args.check:
        print(f"# nvcc {release}")
        for row in [COLUMNS, *rows]:
            print("\t".join(row))
        return
    first, names, *table = (line.split("\t") for line in args.check.read_text().splitlines())
    problems, better = conflicts(rows, hot, args.max_conflicts), 0
    same = first == [f"# nvcc {release}"]
    if names != COLUMNS:
        problems.append(f"{args.check}: other columns than those of this program; make it again")
    elif same:
        worse, better = compare(rows, table)
        problems += worse
    for problem in problems:
        print(f"error: {problem}")
    if problems:
        sys.exit(1)
    if not same:
        print(f"{args.check} is of {first[0][2:]}, the PTX here of nvcc {release}: only conflicts were checked")
        sys.exit(NOT_COMPARED)
    print(f"{len(rows)} kernels and shapes, none worse than {args.check}" +
          (f"; {better} numbers are better: make the table again" if better else ""))


if __name__ == "__main__":
    main()
