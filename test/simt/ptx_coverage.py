#!/usr/bin/env python3
"""Checks that every kernel of the CUDA build was launched from its PTX. Reads the reports that the programs of
other tests wrote (KUIPER_SIMT_PTX_REPORT), one line per kernel.

    python3 test/simt/ptx_coverage.py REPORT...
"""
import collections
import pathlib
import sys


def main(paths):
    launches, instructions = collections.Counter(), {}
    for path in paths:
        lines = pathlib.Path(path).read_text().splitlines()
        for line in lines[1:]:
            kernel, count, _, _, executed, total, *_ = line.split("\t")
            launches[kernel] += int(count)
            most = instructions.get(kernel, (0, 0))[0]
            instructions[kernel] = (max(most, int(executed)), int(total))
    never = [kernel for kernel, (executed, _) in instructions.items() if launches[kernel] == 0]
    executed, total = (sum(pair[n] for pair in instructions.values()) for n in (0, 1))
    for kernel in sorted(never):
        print(f"never launched: {kernel}")
    print(f"{len(instructions) - len(never)} of {len(instructions)} kernels launched, "
          f"{100 * executed / max(total, 1):.1f} % of their instructions executed")
    return 1 if never or not instructions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
