#!/usr/bin/env python3
"""bench_serve.py KUIPER_BENCH ROOT CASE: the load on a server, and what a server costs beside its engine."""
import json
import os
import sys
import tempfile

from bench_harness import elements, main, refuses, rows_of, run, table


def latencies(text):
    """{name: {heading: milliseconds}} of the table of --scenario serve."""
    return {row["latency"]: row for row in rows_of(text, "latency")}


def serve(bench, root):
    """The load of a seed is the same every time; the table and the files agree."""
    model = f"{root}/demo/models/tiny-qwen3"
    load = ["--scenario", "serve", model, "--requests", "12", "--warm-up", "3", "--request-rate", "200",
            "--prompt-lengths", "uniform:5,40", "--answer-lengths", "lognormal:8,0.7,30", "--seed", "7"]
    with tempfile.TemporaryDirectory() as folder:
        plans = []
        for name in ("a", "b"):
            result, sheet, plot = (os.path.join(folder, f"{name}.{kind}") for kind in ("json", "csv", "svg"))
            done = run(bench, *load, "--json", result, "--csv", sheet, "--ttft-slo", "600000")
            assert done.returncode == 0, done.stderr
            with open(result) as file:
                report = json.load(file)
            rows = latencies(done.stdout)
            assert "requests 12, answered 12, failed 0, " in done.stdout and "goodput 100.0%" in done.stdout, done
            assert (report["requests"], report["answered"], report["good"], report["errors"]) == (12, 12, 12, {})
            assert list(rows) == ["ttft", "itl", "e2e", "late"] and len(report["rows"]) == 4, rows
            for row, kept in zip(rows.values(), report["rows"]):
                assert 0 <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["max_ms"] and row["rate"] == 200, row
                assert all(abs(kept[key] - row[key]) < 0.006 for key in row if key.endswith("ms")), (row, kept)
            with open(sheet) as file:
                assert [line.split(",")[0] for line in file] == ["latency", '"ttft"', '"itl"', '"e2e"', "latency", '"late"']
            calls = report["calls"]
            for call in calls:
                first = call["planned_s"] + call["ttft_ms"] / 1e3
                assert call["planned_s"] <= call["sent_s"] <= first <= call["ended_s"] + 1e-9, call
                assert 1 + len(call["itl_ms"]) == call["tokens"], call
                assert call["ttft_ms"] + sum(call["itl_ms"]) <= call["e2e_ms"] + 1e-6, call
            assert report["tokens"] == sum(call["tokens"] for call in calls)
            assert len({call["prompt_tokens"] for call in calls}) > 3 and len({call["tokens"] for call in calls}) > 3
            # Of the nearest rank, from the planned time: a sample of the calls themselves.
            first = sorted(call["ttft_ms"] for call in calls)
            assert (report["rows"][0]["p50_ms"], report["rows"][0]["max_ms"]) == (first[5], first[11])
            plans.append([(call["planned_s"], call["prompt_tokens"], call["tokens"]) for call in calls])
            drawn = run(sys.executable, f"{root}/tools/plot_bench.py", result, plot)
            assert drawn.returncode == 0 and len(elements(plot, "polyline")) == 3, drawn
            course = ("--x", "planned_s", "--y", "ttft_ms")
            drawn = run(sys.executable, f"{root}/tools/plot_bench.py", result, plot, *course)
            assert drawn.returncode == 0 and len(elements(plot, "circle")) == 12, drawn
        done = run(bench, *load, "--compare", result, "--tolerance", "99")
        assert done.returncode == 0, done
        compared = [row for row in rows_of(done.stdout, "latency") if "verdict" in row]
        assert {"ttft", "e2e"} <= {row["latency"] for row in compared} <= {"ttft", "itl", "e2e"}, done.stdout
        assert plans[0] == plans[1]
        lines = os.path.join(folder, "lines.jsonl")
        with open(lines, "w") as file:
            for body in ({"messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 5},
                         {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 3}},
                         {"messages": 3}):
                file.write(json.dumps(body) + "\n")
        done = run(bench, "--scenario", "serve", model, "--requests", "6", "--request-rate", "0", "--input", lines,
                   "--concurrency", "1", "--ttft-slo", "0.000001")
        assert done.returncode == 0, done.stderr
        assert "requests 6, answered 4, failed 2" in done.stdout and "failed 2: status 400" in done.stdout, done
        assert "goodput 0.0%" in done.stdout, done
        rows = latencies(done.stdout)
        assert rows["late"]["max_ms"] > 0, "those that had to wait were late"
        assert rows["e2e"]["max_ms"] >= rows["late"]["p50_ms"], "which is part of what they took"
    for code, message, options in [
            (2, "--prompt-lengths: \"0\" is no distribution", [model, "--prompt-lengths", "0"]),
            (2, "--answer-lengths: \"uniform:9,3\" is no", [model, "--answer-lengths", "uniform:9,3"]),
            (2, "a server needs a tokenizer", ["--invent", f"{root}/tools/bench_models/tiny.json"]),
            (2, "--url is a server with a model of its own", [model, "--url", "http://localhost:1"]),
            (2, "cannot use the address https://x", ["--url", "https://x"]),
            (5, "cannot read /no/file", [model, "--input", "/no/file"])]:
        refuses(bench, code, message, "--scenario", "serve", *options)
    refuses(bench, 2, "--url goes with --scenario serve", "--url", "http://localhost:1", model)


def server_cost(bench, root):
    cost = ["--scenario", "server-cost", f"{root}/demo/models/tiny-qwen3", "--batch", "1,2", "--decode-steps", "100",
            "--repetitions", "3"]
    with tempfile.TemporaryDirectory() as folder:
        result, plot = os.path.join(folder, "cost.json"), os.path.join(folder, "cost.svg")
        rows = table(bench, "batch", *cost, "--json", result)
        assert [row["batch"] for row in rows] == [1, 2]
        for row in rows:
            assert row["engine_tokens_per_s"] > 0 and 0 < row["least"] <= row["ratio"] <= row["most"], row
            assert row["engine_cpu"] > 0 and abs(row["ms"] * row["tokens_per_s"] / 1e3 - row["batch"]) < 0.2, row
        drawn = run(sys.executable, f"{root}/tools/plot_bench.py", result, plot)
        assert drawn.returncode == 0 and len(elements(plot, "circle")) == 2, drawn
        done = run(bench, *cost, "--compare", result, "--tolerance", "99")
        assert done.returncode == 0 and [row["batch"] for row in rows_of(done.stdout, "batch") if "verdict" in row] == [1, 2]


if __name__ == "__main__":
    main(serve, server_cost)
