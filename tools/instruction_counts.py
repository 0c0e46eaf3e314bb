#!/usr/bin/env python3
"""Counts the instructions of small prompts and decode steps, and holds them against the numbers checked in.

    tools/instruction_counts.py BENCH FILE            BENCH is build/tools/kuiper_bench, FILE test/data/instruction_counts.json
    tools/instruction_counts.py BENCH FILE --write    after a change that is meant

Seconds on a shared machine say little; instructions of one thread are the same in every run. callgrind counts them, which
knows AVX2 and no AVX-512, so these are the kernels for AVX2. A case that takes more than the file's tolerance is an error; one that
takes so much less is a note. Exit code 77, with the reason: valgrind is absent, the processor has no AVX2, or the compiler
is not the one of the file.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# The flags of a kind, and the file whose quantisation it has.
KINDS = {"bf16": ([], None), "fp16": (["--dtype", "fp16"], None), "int8 cache": (["--kv-cache-dtype", "int8"], None),
         "contiguous": (["--no-paged-attention"], None), "int4 weights": ([], "qwen3-0.6b-awq.json"),
         "int8 weights": (["--lm-head-dtype", "int8"], "qwen3-0.6b-w8.json")}
# Small, because callgrind computes a fused multiply-add lane by lane.
SHAPES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "vocab_size": 256, "eos_token_id": 0,
          "bos_token_id": 0}
# callgrind writes a file of what was counted whenever steps return, and one at the end.
COUNTED, STEPS = "kuiper::tools::BenchTurns*", "kuiper::tools::StepAll*"
# Lines for kuiper_bench --scenario turns, and what each file has; where it has more than one thing it is not used.
LINES = ["open 20 1", "step 4", "step 4", "close", "open 20 4", "step 4", "step 4", "close", "prefill 33 0"]
FILES = [None, "4 steps at 20", None, "4 steps of 4 sequences at 20", "prompt of 33"]
TOLERANCE = 0.02


def leave_out(reason):
    print(f"left out: {reason}")
    sys.exit(77)


def compiler_of(bench, folder):
    path = pathlib.Path(folder) / "scheduler.json"
    subprocess.run([bench, "--scenario", "scheduler", "--batch", "1", "--json", path], check=True, capture_output=True)
    return json.loads(path.read_text())["machine"]["compiler"]


def read_config(name):
    return json.loads((HERE / "bench_models" / name).read_text())


def count_all(bench, flags, quantised_as, folder):
    """-> {name of a line: instructions}"""
    out = pathlib.Path(folder) / "callgrind"
    config = pathlib.Path(folder) / "config.json"
    model = read_config("tiny.json") | SHAPES
    if quantised_as:
        model["quantization_config"] = read_config(quantised_as)["quantization_config"]
    config.write_text(json.dumps(model))
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
               f"--toggle-collect={COUNTED}", f"--dump-after={STEPS}", bench, "--scenario", "turns", "--invent",
               config, "--threads", "1", "--prompt-tokens", "33", "--context", "20", "--batch", "1,4", *flags]
    done = subprocess.run(command, input="".join(line + "\n" for line in LINES), capture_output=True, text=True)
    ready, *answers = done.stdout.splitlines() or [""]
    if done.returncode != 0 or len(answers) != len(LINES) or any(answer.startswith("error") for answer in answers):
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    if "(AVX2," not in ready:
        leave_out(f"the kernels are not those of AVX2 here: {ready}")
    counts = {}
    files = sorted(pathlib.Path(folder).glob("callgrind.*")) + [out]
    for file, name in zip(files, FILES, strict=True):
        count = next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("totals:"))
        if name:
            counts[name] = count
        file.unlink()
    return counts


def compare(old, new):
    """Prints the cases side by side; -> whether none takes more than it may."""
    worst = True
    for name, now in new.items():
        then = old.get(name)
        if then is None:
            print(f"{name}: {now}, not in the file: write it again")
            worst = False
            continue
        verdict = "ok" if abs(now - then) <= TOLERANCE * then else "MORE" if now > then else "less: write the file again"
        worst = worst and verdict != "MORE"
        print(f"{name}: {now}, {now / then - 1:+.2%}, {verdict}")
    return worst


def main(bench, path, *options):
    if not shutil.which("valgrind"):
        leave_out("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        compiler = compiler_of(bench, folder)
        write = list(options) == ["--write"]
        old = {} if write else json.loads(pathlib.Path(path).read_text())
        if not write and old["compiler"] != compiler:
            leave_out(f"the numbers are those of {old['compiler']}, and this is {compiler}")
        new = {f"{kind}: {name}": number for kind, (flags, quantised_as) in KINDS.items()
               for name, number in count_all(bench, flags, quantised_as, folder).items()}
    if not write:
        return 0 if compare(old["instructions"], new) else 1
    pathlib.Path(path).write_text(json.dumps({"compiler": compiler, "target": "AVX2", "instructions": new}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--write"]):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
