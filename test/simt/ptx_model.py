#!/usr/bin/env python3
"""Checks that a tiny model on the emulated device writes the same text with nvcc's PTX as with the C++
compiler's version of the kernels, for every attention kernel, element type and cache layout.

    python3 test/simt/ptx_model.py QWEN3_INFER MODEL PTX_FOLDER
"""
import os
import subprocess
import sys

CASES = [(attention, dtype, paged)
         for attention in ("mha", "flash1", "flash2") for dtype in ("fp32", "fp16", "bf16")
         for paged in (False, True)]


def answer(program, model, case, **environment):
    attention, dtype, paged = case
    command = [program, model, "-p", "What is 2 + 3?", "--think", "off", "--no-warm-up",
               "--device", "simt", "--attention", attention, "--dtype", dtype, *(["--paged-attention"] if paged else [])]
    run = subprocess.run(command, env=dict(os.environ, **environment), capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return run.stdout


def main(program, model, folder):
    failures = 0
    for case in CASES:
        expected, got = answer(program, model, case), answer(program, model, case, KUIPER_SIMT_PTX=folder)
        same = expected == got and expected.strip() != ""
        failures += not same
        if not same:
            print(f"{case}: {got!r} from PTX, {expected!r} from C++")
    print(f"{len(CASES) - failures} of {len(CASES)} answers are the same")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
