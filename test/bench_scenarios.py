#!/usr/bin/env python3
"""bench_scenarios.py KUIPER_BENCH ROOT SCENARIO: what a scenario prints, at a tiny size, is a table
whose figures say what they must on any machine."""
import os
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def table(bench, first, *options):
    """The rows below the heading that begins with `first`, as dictionaries of its words."""
    done = run(bench, *options)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    start = next(i for i, words in enumerate(lines) if words[:1] == [first])
    rows = [dict(zip(lines[start], words, strict=True)) for words in lines[start + 1 :]]
    return [
        {key: value if value.isalpha() else float(value.rstrip("%x")) for key, value in row.items()}
        for row in rows
    ]


def refuses(bench, code, message, *options):
    done = run(bench, *options)
    assert done.returncode == code and not done.stdout and done.stderr.startswith(f"error: {message}"), done


def throughput(bench, root):
    rows = table(bench, "context", "--scenario", "throughput", "--invent",
                 f"{root}/tools/bench_models/tiny.json", "--batch", "1,4,16", "--decode-steps", "8",
                 "--repetitions", "2")
    assert [row["batch"] for row in rows] == [1, 4, 16]
    assert rows[0]["multiple"] == 1
    assert rows[2]["multiple"] > 1
    for row in rows:
        expected = row["batch"] / row["ms/step"] * 1e3
        assert abs(row["tokens/s"] - expected) < 0.1 * expected, row


def prefix(bench, root):
    rows = table(bench, "system", "--scenario", "prefix", "--invent",
                 f"{root}/tools/bench_models/tiny.json", "--prompt-tokens", "256,500")
    assert [row["system"] for row in rows] == [256, 500]
    assert [row["cached"] for row in rows] == [256, 496]  # whole pages of 16
    for row in rows:
        assert 0 < row["warm_ms"] < row["cold_ms"], row


def memory(bench, root):
    with tempfile.TemporaryDirectory() as folder:
        series = os.path.join(folder, "series.csv")
        paged, contiguous = table(bench, "layout", "--scenario", "memory", "--csv", series)
        assert (paged["layout"], contiguous["layout"]) == ("paged", "contiguous")
        assert 0 < paged["waste"] < 4 < contiguous["waste"] < 100
        assert paged["sequences"] > contiguous["sequences"]
        assert paged["capacity"] <= 8 * 4096 and contiguous["capacity"] <= 8 * 4096

        with open(series) as file:
            lines = file.read().splitlines()
        assert lines[0] == "layout,step,seconds,sequences,tokens,capacity,waste"
        assert len(lines) == 1 + paged["steps"] + contiguous["steps"]
        for line in lines[1:]:
            _, _, _, sequences, tokens, capacity, waste = line.split(",")
            assert 0 < int(tokens) <= int(capacity) and int(sequences) > 0, line
            assert abs(1 - int(tokens) / int(capacity) - float(waste)) < 1e-4, line

        plots(root, folder, series)
    refuses(bench, 1, "cannot write /nowhere/x", "--scenario", "memory", "--csv", "/nowhere/x")
    refuses(bench, 2, "--scenario memory runs no model", "--scenario", "memory", "model")
    refuses(bench, 2, "--csv goes with --scenario memory", "--csv", "x.csv", "model")
    refuses(bench, 2, "--tune needs --device cuda:N", "--tune", "model")
    refuses(bench, 2, "--scenario: 'x' is not one of rates, ", "--scenario", "x")


def plots(root, folder, series):
    plot = [sys.executable, f"{root}/tools/plot_bench.py"]
    picture = os.path.join(folder, "series.png")
    done = run(*plot, series, picture)
    if done.returncode == 0:
        assert os.path.getsize(picture) > 1000
    else:
        assert done.returncode == 2 and "matplotlib is missing" in done.stderr, done
    for other in [f"{root}/README.md", os.path.join(folder, "absent")]:
        done = run(*plot, other, picture)
        assert done.returncode == 2 and done.stderr.startswith("error: "), done
        assert len(done.stderr.splitlines()) == 1, done


def scheduler(bench, root):
    rows = table(bench, "sequences", "--scenario", "scheduler", "--batch", "1,8")
    assert [row["sequences"] for row in rows] == [1, 8]
    for row in rows:
        assert 0 <= row["median_us/step"] <= row["p99_us/step"], row


if __name__ == "__main__":
    bench, root, scenario = sys.argv[1:]
    {"throughput": throughput, "prefix": prefix, "memory": memory, "scheduler": scheduler}[scenario](
        bench, root
    )
