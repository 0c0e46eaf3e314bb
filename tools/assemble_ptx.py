#!/usr/bin/env python3
"""Whether the assembler of an older CUDA, such as JetPack's, takes what this project's nvcc writes.

Lowers the `.version` of each PTX file to what that ptxas knows, assembles it and prints the number of
kernels. A file that is refused and a kernel that spills or uses a stack are errors. What the older
nvcc itself would make of the sources is not seen.

    pip install --target build/ptxas-12.2 nvidia-cuda-nvcc-cu12==12.2.140
    python3 tools/assemble_ptx.py --ptxas build/ptxas-12.2/nvidia/cuda_nvcc/bin/ptxas -- build/ptx/kernels/*.ptx
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kernel_table

# The newest PTX of each release of CUDA 12 (PTX ISA manual, section "Release History").
PTX_VERSION = {"12.0": "8.0", "12.1": "8.1", "12.2": "8.2", "12.3": "8.3", "12.4": "8.4", "12.5": "8.5",
               "12.6": "8.5", "12.8": "8.7", "12.9": "8.8"}


def release_of(ptxas):
    run = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True)
    release = re.search(r"release (\d+\.\d+)", run.stdout)[1]
    if release not in PTX_VERSION:
        sys.exit(f"{ptxas}: CUDA {release} is not one of {', '.join(PTX_VERSION)}")
    return release


def assemble(ptxas, version, source, folder):
    """-> (kernels, problems) of one file."""
    text = source.read_text()
    arch = re.search(r"^\.target (sm_\w+)", text, re.MULTILINE)[1]
    lowered = pathlib.Path(folder, source.name)
    lowered.write_text(re.sub(r"^\.version .*", f".version {version}", text, flags=re.MULTILINE))
    run = subprocess.run([ptxas, f"-arch={arch}", "-v", str(lowered), "-o", f"{lowered}.cubin"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return 0, [f"{source.name}: {run.stderr.strip().splitlines()[0]}"]
    rows = kernel_table.parse(run.stdout + run.stderr)
    return len(rows), [f"{source.name}: {row[0]} has a stack or spills" for row in rows if kernel_table.spills(row)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptxas", nargs="+", required=True)
    parser.add_argument("ptx", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for ptxas in args.ptxas:
            release = release_of(ptxas)
            with tempfile.TemporaryDirectory() as folder:
                jobs = [pool.submit(assemble, ptxas, PTX_VERSION[release], source, folder)
                        for source in args.ptx]
                results = [job.result() for job in jobs]
            problems = [problem for _, found in results for problem in found]
            print(f"CUDA {release}: {sum(count for count, _ in results)} kernels assembled")
            for problem in problems:
                print(f"error: CUDA {release}: {problem}")
            failed = failed or bool(problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
