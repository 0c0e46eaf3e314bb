#!/usr/bin/env python3
"""bench_scenarios.py KUIPER_BENCH ROOT SCENARIO: what a scenario prints, at a tiny size, is a table
whose figures say what they must on any machine."""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


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
    # No time is compared with another run's: the machine may be busy with other tests.
    for row in rows:
        multiple = row["tokens/s"] / rows[0]["tokens/s"]
        assert abs(row["multiple"] - multiple) < 0.01 + 0.01 * multiple, row
        expected = row["batch"] / row["ms/step"] * 1e3
        assert abs(row["tokens/s"] - expected) < 0.1 * expected, row
    # The first sequences decode for long while the prompts of the others come in small chunks, and
    # must not end meanwhile: kuiper_bench fails when one does.
    for layout in [[], ["--no-paged-attention"]]:
        rows = table(bench, "context", "--scenario", "throughput", "--invent",
                     f"{root}/tools/bench_models/tiny.json", "--context", "16,160", "--batch", "1,8",
                     "--chunk", "16", "--decode-steps", "4", "--repetitions", "1", *layout)
        assert len(rows) == 4, rows


def prefix(bench, root):
    rows = table(bench, "system", "--scenario", "prefix", "--invent",
                 f"{root}/tools/bench_models/tiny.json", "--prompt-tokens", "256,500",
                 "--repetitions", "1")  # a median of ratios is another number than the ratio of medians
    assert [row["system"] for row in rows] == [256, 500]
    assert [row["cached"] for row in rows] == [256, 496]  # whole pages of 16
    for row in rows:
        assert row["warm_ms"] > 0 and row["cold_ms"] > 0, row
        percent = 100 * row["warm_ms"] / row["cold_ms"]
        assert abs(row["warm/cold"] - percent) < 0.1 + 0.01 * percent, row


def latency(bench, root):
    rows = table(bench, "policy", "--scenario", "latency", "--invent",
                 f"{root}/tools/bench_models/tiny.json", "--prompt-tokens", "64,256", "--context", "16",
                 "--decode-steps", "4", "--repetitions", "2", "--latency-target", "0.001")
    assert [(row["policy"], row["prompt"]) for row in rows] == [
        (policy, prompt) for prompt in (64, 256) for policy in ("throughput", "latency")]
    for row in rows:
        assert 0 < row["p50_ms"] <= row["p99_ms"], row
        assert row["alone_ms"] > 0 and row["first_ms"] > 0, row
    refuses(bench, 2, "--latency-target goes with --scenario latency", "--latency-target", "1", "model")


def cascade(bench, root):
    rows = table(bench, "system", "--scenario", "cascade", "--invent",
                 f"{root}/tools/bench_models/tiny.json", "--prompt-tokens", "256", "--batch", "2,5",
                 "--chunk", "8", "--decode-steps", "4", "--repetitions", "3")
    assert [(row["system"], row["questions"]) for row in rows] == [(256, 2), (256, 5)]
    for row in rows:
        assert row["with_ms"] > 0 and row["without_ms"] > 0 and row["speed-up"] > 0, row


def vision(bench, root):
    config = f"{root}/test/data/vision/heads-of-72/config.json"
    rows = table(bench, "stage", "--scenario", "vision", "--invent", config, "--image-side", "16,64",
                 "--repetitions", "1")
    stages = ["patches", "embedding", "blocks", "merger", "deepstack", "all"]
    assert [(row["stage"], row["side"]) for row in rows] == [(s, n) for n in (16, 64) for s in stages]
    for row in rows:
        assert row["ms"] >= 0 and row["GFLOP/s"] > 0 and row["machine"] > 0, row
    tiny = f"{root}/tools/bench_models/tiny.json"
    refuses(bench, 2, "the model has no vision tower", "--scenario", "vision", "--invent", tiny)
    refuses(bench, 2, "--image-side 20 is not a multiple of 8", "--scenario", "vision", "--invent", config,
            "--image-side", "20")
    refuses(bench, 2, "--image-side goes with --scenario vision", "--image-side", "64", "model")


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


def attention(bench, root):
    shapes = ["--scenario", "attention", "--invent", f"{root}/tools/bench_models/tiny.json"]
    rows = table(bench, "attention", *shapes, "--context", "1,100", "--batch", "1,3",
                 "--repetitions", "2")
    assert [(row["context"], row["batch"], row["attention"]) for row in rows] == [
        (context, batch, layout) for context in (1, 100) for batch in (1, 3)
        for layout in ("paged", "contiguous")]
    for row in rows:
        # K and V of 2 heads of 64 in 2 bytes.
        rate = row["context"] * row["batch"] * 2 * 2 * 64 * 2 / row["us/layer"] / 1e3
        assert abs(row["GB/s"] - rate) <= 0.06 + 0.01 * rate, row
    # What is larger than any machine's memory, here petabytes, is left out.
    done = run(bench, *shapes, "--context", "1000000", "--batch", "1000000")
    assert done.returncode == 0 and done.stderr.count("left out: no room") == 2, done
    refuses(bench, 2, "--attention: 'x' is not one of", *shapes, "--attention", "x")
    for option in [["--tune"], ["--no-paged-attention"], ["--chunk", "8"], ["--prompt-tokens", "8"]]:
        refuses(bench, 2, f"{option[0]} goes with --scenario rates, ", *shapes, *option)
    for other in [f"{root}/README.md", f"{root}/absent"]:
        done = run(sys.executable, f"{root}/tools/attention_torch.py", other)
        assert done.returncode == 1 and done.stderr.startswith("error: "), done
        assert len(done.stderr.splitlines()) == 1, done


def latencies(lines):
    """{name: {heading: milliseconds}} of the table of --scenario serve."""
    start = next(i for i, line in enumerate(lines) if line.startswith("latency "))
    heads = lines[start].split()[1:]
    rows = (line.split() for line in lines[start + 1 :])
    return {row[0]: dict(zip(heads, map(float, row[1:]), strict=True)) for row in rows}


def serve(bench, root):
    """The load of a seed is the same every time; the table and the files agree."""
    model = f"{root}/demo/models/tiny-qwen3"
    load = ["--scenario", "serve", model, "--requests", "12", "--warm-up", "3", "--request-rate", "200",
            "--prompt-lengths", "uniform:5,40", "--answer-lengths", "lognormal:8,0.7,30", "--seed", "7"]
    with tempfile.TemporaryDirectory() as folder:
        plans = []
        for name in ("a", "b"):
            result, plot = os.path.join(folder, f"{name}.json"), os.path.join(folder, f"{name}.svg")
            done = run(bench, *load, "--json", result, "--svg", plot, "--ttft-slo", "600000")
            assert done.returncode == 0, done.stderr
            with open(result) as file:
                report = json.load(file)
            rows = latencies(done.stdout.splitlines())
            assert "requests 12, answered 12, failed 0, " in done.stdout and "goodput 100.0%" in done.stdout, done
            assert (report["requests"], report["answered"], report["good"], report["errors"]) == (12, 12, 12, {})
            for name, row in rows.items():
                assert 0 <= row["p50"] <= row["p90"] <= row["p99"] <= row["max"], row
                assert all(abs(report[name][key] - row[key]) < 0.006 for key in row), (name, row, report[name])
            calls = report["calls"]
            for call in calls:
                assert call["planned_s"] <= call["sent_s"] <= call["arrivals_s"][0] <= call["ended_s"], call
                assert len(call["arrivals_s"]) == call["tokens"], call
            assert report["tokens"] == sum(call["tokens"] for call in calls)
            assert len({call["prompt_tokens"] for call in calls}) > 3 and len({call["tokens"] for call in calls}) > 3
            # Of the nearest rank, from the planned time: a sample of the calls themselves.
            first = sorted(1e3 * (call["arrivals_s"][0] - call["planned_s"]) for call in calls)
            assert abs(report["ttft_ms"]["p50"] - first[5]) < 1e-6 and abs(report["ttft_ms"]["max"] - first[11]) < 1e-6
            plans.append([(call["planned_s"], call["prompt_tokens"], call["tokens"]) for call in calls])
            plot = xml.etree.ElementTree.parse(plot).getroot()
            assert plot.tag.endswith("svg") and len(list(plot.iter("{http://www.w3.org/2000/svg}circle"))) == 12
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
        rows = latencies(done.stdout.splitlines())
        assert rows["late_ms"]["max"] > 0, "those that had to wait were late"
        assert rows["e2e_ms"]["max"] >= rows["late_ms"]["p50"], "which is part of what they took"
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
    rows = table(bench, "sequences", "--scenario", "server-cost", f"{root}/demo/models/tiny-qwen3", "--batch", "1",
                 "--decode-steps", "100", "--repetitions", "3")
    assert [row["sequences"] for row in rows] == [1]
    for row in rows:
        assert row["engine_t/s"] > 0 and row["server_t/s"] > 0, row
        assert 0 < row["least"] <= row["ratio"] <= row["most"] and row["engine_cpu"] > 0, row


def gpu_table(bench, root):
    """tools/gpu_table.py on results of kuiper_bench, and on some that miss the goals."""
    with tempfile.TemporaryDirectory() as folder:
        def tabulate():
            return run(sys.executable, f"{root}/tools/gpu_table.py", folder)

        assert tabulate().returncode == 2
        for layout in ["paged", "contiguous"]:
            options = [] if layout == "paged" else ["--no-paged-attention"]
            done = run(bench, "--invent", f"{root}/tools/bench_models/tiny.json", *options, "--batch",
                       "1", "--context", "1", "--prompt-tokens", "16", "--repetitions", "1", "--json",
                       os.path.join(folder, f"qwen3-0.6b-fp16-{layout}.json"))
            assert done.returncode == 0, done.stderr
        done = tabulate()
        assert done.returncode == 0 and "no goals" in done.stdout, done
        assert done.stdout.count("\n| qwen3-0.6b-fp16-paged | ") == 2, done.stdout
        for paged_ms, tokens, code, missed in [(1.0, 1900, 0, 0), (1.02, 1900, 1, 1), (2, 100, 1, 2)]:
            for layout, ms in [("paged", paged_ms), ("contiguous", 1.0)]:
                path = os.path.join(folder, f"qwen3-0.6b-fp16-{layout}.json")
                with open(path) as file:
                    result = json.load(file)
                result.update(device="cuda:0 (NVIDIA H200, sm_90, 132 SMs)", read_gbps=4, copy_gbps=3)
                for row in result["rows"]:
                    row.update(ms=ms, tokens_per_s=tokens)
                with open(path, "w") as file:
                    json.dump(result, file)
            done = tabulate()
            assert done.returncode == code and done.stdout.count("MISSED") == missed, done
            assert "read 4.0 GB/s, copy 3.0 GB/s" in done.stdout, done.stdout


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
    {
        "throughput": throughput,
        "prefix": prefix,
        "cascade": cascade,
        "latency": latency,
        "attention": attention,
        "memory": memory,
        "vision": vision,
        "scheduler": scheduler,
        "serve": serve,
        "server-cost": server_cost,
        "gpu_table": gpu_table,
    }[scenario](bench, root)
