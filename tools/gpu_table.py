#!/usr/bin/env python3
"""The results of kuiper_bench --json as tables, and whether they reach the goals.

    tools/gpu_table.py FOLDER

FOLDER holds NAME-paged.json and NAME-contiguous.json, NAME being a model and its type. Goals count on
CUDA devices only: the paged layout within 1 % of the contiguous one, and on an H200 the tokens per
second below. Exit code: 0 all goals are reached, 1 one is missed, 2 there are no results.
"""
import json
import pathlib
import sys

# Tokens per second of one sequence that has just begun.
H200_GOALS = {"qwen3-8b-fp16": 240, "qwen2.5-7b-fp16": 258, "qwen2.5-7b-fp32": 132,
              "qwen3-0.6b-fp16": 1900}


def table(heading, rows):
    """A table in Markdown; nothing without rows."""
    if rows:
        print("\n| " + " | ".join(heading) + " |")
        print("|" + "---|" * len(heading))
        for row in rows:
            print("| " + " | ".join(str(cell) for cell in row) + " |")


def percent(ratio):
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def phase(result, name):
    return [row for row in result["rows"] if row["phase"] == name]


def steps(result):
    """(context, batch) -> milliseconds of a decode step."""
    return {(row["tokens"], row["batch"]): row["ms"] for row in phase(result, "decode")}


def layouts(results):
    """(name, context, batch, paged ms / contiguous ms) of what was measured in both layouts."""
    for name, paged in results.items():
        contiguous = results.get(name.replace("-paged", "-contiguous"))
        if name.endswith("-paged") and contiguous:
            others = steps(contiguous)
            for key, ms in steps(paged).items():
                if key in others:
                    yield name.removesuffix("-paged"), *key, ms / others[key]


def goals(results):
    """Rows of (what, wanted, measured, verdict)."""
    for name, context, batch, ratio in layouts(results):
        if name.startswith("tiny-"):
            continue  # launches, which nothing else takes the time of
        yield (f"{name}, context {context}, batch {batch}: paged / contiguous", "at most 1.01",
               f"{ratio:.3f}", "reached" if ratio <= 1.01 else "MISSED")
    for model, wanted in H200_GOALS.items():
        result = results.get(model + "-paged", {"device": "", "rows": []})
        first = [row for row in phase(result, "decode") if row["tokens"] == row["batch"] == 1]
        if "H200" in result["device"] and first:
            measured = first[0]["tokens_per_s"]
            yield (f"{model}: tokens/s of one sequence", wanted, f"{measured:.0f}",
                   "reached" if measured >= wanted else "MISSED")


def main():
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.json")) if len(sys.argv) == 2 else []
    results = {path.stem: json.loads(path.read_text()) for path in paths}
    if not results:
        print("error: no results: usage: tools/gpu_table.py FOLDER", file=sys.stderr)
        return 2
    first = next(iter(results.values()))
    print(f"{first['version']}; {first['device']}")
    rates = [result["yardsticks"] for result in results.values() if "copy_gbps" in result["yardsticks"]]
    if rates:
        print(f"read {max(r['read_gbps'] for r in rates):.1f} GB/s, "
              f"copy {max(r['copy_gbps'] for r in rates):.1f} GB/s (read + written)")
    table(("decode", "context", "batch", "ms per step", "tokens/s", "GB/s", "of read bandwidth"),
          [(name, row["tokens"], row["batch"], f"{row['ms']:.3f}", f"{row['tokens_per_s']:.1f}",
            f"{row['gbps']:.1f}", percent(row["of_memory"]))
           for name, result in results.items() for row in phase(result, "decode")])
    table(("prefill", "tokens", "ms", "tokens/s", "TFLOP/s"),
          [(name, row["tokens"], f"{row['ms']:.2f}", f"{row['tokens_per_s']:.0f}",
            f"{row['gflops'] / 1e3:.2f}")
           for name, result in results.items() for row in phase(result, "prefill")])
    cuda = {name: r for name, r in results.items() if r["device"].startswith("cuda")}
    verdicts = list(goals(cuda))
    table(("goal", "wanted", "measured", ""), verdicts)
    if not verdicts:
        print("\nno goals: they are for CUDA devices")
    return 1 if any(row[3] == "MISSED" for row in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
