#!/usr/bin/env python3
"""bench_scenarios.py KUIPER_BENCH ROOT SCENARIO: what a scenario prints, at a tiny size, is a table
whose figures say what they must on any machine."""
import json
import os
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree


CELL = re.compile(r"[a-z][a-z0-9]*|[\d.]+[%x]?|-")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def rows_of(text, first):
    """The rows below each heading that begins with `first`, as dictionaries of its words."""
    rows, heading = [], None
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [first]:
            heading = words
        elif heading and len(words) == len(heading) and all(map(CELL.fullmatch, words)):
            rows.append({key: float(value.rstrip("%x")) if value[0].isdigit() else value
                         for key, value in zip(heading, words)})
        else:
            heading = None
    return rows


def table(bench, first, *options):
    done = run(bench, *options)
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout, first)


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
        multiple = row["tokens_per_s"] / rows[0]["tokens_per_s"]
        assert abs(row["multiple"] - multiple) < 0.01 + 0.01 * multiple, row
        expected = row["batch"] / row["ms"] * 1e3
        assert abs(row["tokens_per_s"] - expected) < 0.1 * expected, row
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
        assert row["ms"] >= 0 and row["gflops"] > 0 and row["machine_gflops"] > 0, row
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
    rows = table(bench, "layout", "--scenario", "memory", "--block-size", "1,64,256")
    assert [row["page"] for row in rows] == [1, 64, 256, 4096], rows
    assert sorted(rows, key=lambda row: row["waste"]) == rows and rows[0]["waste"] == 0, rows
    refuses(bench, 2, "--tune needs --device cuda:N", "--tune", "model")
    refuses(bench, 2, "--scenario: 'x' is not one of rates, ", "--scenario", "x")


def attention(bench, root):
    shapes = ["--scenario", "attention", "--invent", f"{root}/tools/bench_models/tiny.json"]
    rows = table(bench, "attention", *shapes, "--context", "1,100", "--batch", "1,3", "--block-size",
                 "8,16", "--repetitions", "2")
    assert [(row["context"], row["batch"], row["attention"], row["page"]) for row in rows] == [
        (context, batch, layout, page) for context in (1, 100) for batch in (1, 3)
        for layout, page in (("paged", 8), ("paged", 16), ("contiguous", "row"))]
    for row in rows:
        # K and V of 2 heads of 64 in 2 bytes.
        rate = row["context"] * row["batch"] * 2 * 2 * 64 * 2 / row["us_per_layer"] / 1e3
        assert abs(row["gbps"] - rate) <= 0.06 + 0.01 * rate, row
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
                result.update(device="cuda:0 (NVIDIA H200, sm_90, 132 SMs)",
                              yardsticks={"read_gbps": 4, "copy_gbps": 3})
                for row in result["rows"]:
                    row.update(ms=ms, tokens_per_s=tokens)
                with open(path, "w") as file:
                    json.dump(result, file)
            done = tabulate()
            assert done.returncode == code and done.stdout.count("MISSED") == missed, done
            assert "read 4.0 GB/s, copy 3.0 GB/s" in done.stdout, done.stdout


def layout(bench, root):
    """Contexts around a page and of three pages and a bit; pages of one token, of 16 and of 256."""
    shapes = ["--scenario", "layout", "--invent", f"{root}/tools/bench_models/tiny.json"]
    rows = table(bench, "phase", *shapes, "--context", "15,16,17,49", "--batch", "1,3", "--block-size",
                 "1,16,256", "--decode-steps", "4", "--repetitions", "3")
    assert [(row["context"], row["batch"], row["page"], row["phase"]) for row in rows] == [
        (context, batch, page, phase) for context in (15, 16, 17, 49) for batch in (1, 3)
        for page in (1, 16, 256) for phase in ("attention", "step")]
    for row in rows:
        assert row["paged_ms"] > 0 and row["contiguous_ms"] > 0 and row["pairs"] == 3, row
        assert 0 < row["low"] <= row["ratio"] <= row["high"], row
    done = run(bench, *shapes, "--context", "4096", "--batch", "1000000")
    assert done.returncode == 0 and "left out: no room for two KV caches" in done.stderr, done
    refuses(bench, 2, "--chunk goes with --scenario rates, ", *shapes, "--chunk", "8")
    refuses(bench, 2, "--block-size", *shapes, "--block-size", "3")


def turns(bench, root):
    """The lines that tools/compare_peers.py writes, and some that are wrong."""
    options = ["--scenario", "turns", "--invent", f"{root}/tools/bench_models/tiny.json", "--batch", "1,3", "--context",
               "16,40", "--prompt-tokens", "24"]
    lines = ["burst", "prefill 24 0", "prefill 24 0", "prefill 24 1", "open 40 3", "step 4", "prefill 24 0", "step 0",
             "step 2", "close", "open 16 1", "step 4", "close", "close", "jump", "open 17 0", "prefill 24 2"]
    done = subprocess.run([bench, *options], input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done
    ready, *answers = done.stdout.splitlines()
    assert ready.startswith("ready kuiper ") and len(answers) == len(lines), done.stdout
    answers = list(zip(lines, answers))
    assert float(answers[0][1]) > 0
    ids = [answer.split()[1] for line, answer in answers if line.startswith("prefill") and "error" not in answer]
    assert len(ids) == 4 and ids[0] == ids[1] and ids[0] != ids[2], ids
    assert [answer for line, answer in answers if line.startswith(("open", "close"))][:4] == ["ok"] * 4, answers
    assert all(float(answers[i][1]) > 0 for i in (5, 8, 11)), answers
    assert [i for i, (_, answer) in enumerate(answers) if answer.startswith("error ")] == [6, 7, 13, 14, 15], answers
    refuses(bench, 2, "--json goes with --scenario", *options, "--json", "x.json")


def write(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def jetson(folder):
    """A machine's /proc and /sys as on a Jetson in mode 2, which draws 5 V x 2 A."""
    rail = "sys/class/hwmon/hwmon3/"
    write(folder, {
        "proc/cpuinfo": "processor\t: 0\nprocessor\t: 1\n", "proc/meminfo": "MemTotal:  8388608 kB\n",
        "proc/loadavg": "0.25 0.50 0.75 1/100 1\n", "proc/stat": "cpu  100 0 0 900 0 0 0 0 0 0\n",
        "proc/device-tree/model": "NVIDIA Jetson Orin Nano\0", "proc/sys/kernel/osrelease": "5.15-tegra\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "729600\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1510400\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/class/thermal/thermal_zone0/temp": "41500\n", "sys/class/thermal/thermal_zone2/temp": "47250\n",
        "sys/class/hwmon/hwmon0/name": "pwmfan\n", rail + "name": "ina3221\n",
        rail + "in1_label": "VDD_IN\n", rail + "in1_input": "5000\n", rail + "curr1_input": "2000\n",
        rail + "in2_label": "VDD_CPU_GPU_CV\n", rail + "in2_input": "5000\n", rail + "curr2_input": "900\n",
        "var/lib/nvpmodel/status": "pmode:0002\n",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n",
    })


def report(bench, root):
    """--json, --csv, --compare, and what is told of the machine."""
    with tempfile.TemporaryDirectory() as folder:
        path, sheet = os.path.join(folder, "old.json"), os.path.join(folder, "rows.csv")
        jetson(os.path.join(folder, "jetson"))
        rates = ["--invent", f"{root}/tools/bench_models/tiny.json", "--batch", "1,2", "--prompt-tokens", "24",
                 "--repetitions", "2", "--block-size", "4,16"]
        done = run(bench, *rates, "--json", path, "--csv", sheet, "--host-root", os.path.join(folder, "jetson"))
        assert done.returncode == 0, done
        rows = rows_of(done.stdout, "phase")
        assert [(row["phase"], row["batch"], row["page"]) for row in rows] == [
            row for page in (4, 16) for row in (("decode", 1, page), ("decode", 2, page), ("prefill", 1, page))]
        with open(path) as file:
            old = json.load(file)
        assert old["scenario"] == "rates" and old["version"].startswith("kuiper "), old
        machine = old["machine"]
        assert machine.pop("compiler") and "build" in machine
        machine.pop("build")
        assert machine == {
            "board": "NVIDIA Jetson Orin Nano", "cpus": 2, "clock": "729-1510 MHz", "governor": "schedutil",
            "memory_gib": 8, "huge_pages": "madvise", "kernel": "5.15-tegra", "load": "0.25",
            "power_mode": "MAXN_SUPER (2)", "temperature": 47.25}, machine
        bursts = old["yardsticks"]["read_gbps"]
        assert 0 < bursts["least"] <= bursts["low"] <= bursts["median"] <= bursts["high"] <= bursts["most"]
        assert bursts["bursts"] == 2 * (2 * 9 + 3) and old["yardsticks"]["power_rails"] == "VDD_IN"
        for row in old["rows"]:
            low, high = row["ms_quartiles"]
            assert 0 < low <= row["ms"] <= high and row["samples"] == (8 if row["phase"] == "decode" else 2), row
            tokens = row["tokens"] if row["phase"] == "prefill" else row["batch"]
            # 10 W; the mean of the steps on a busy machine is not their median.
            assert 0 < row["joules_per_token"] and row["tokens_per_s"] > 0, row
            if row["phase"] == "prefill":  # two samples: the median is the mean
                assert row["joules_per_token"] >= 10 * row["ms"] / 1e3 / tokens * 0.999, row
            assert row["of_roof"] >= 0.999 * max(row["of_memory"], row["of_peak"]) * 0.5, row
        with open(sheet) as file:
            lines = file.read().splitlines()
        assert len(lines) == 1 + len(rows) and lines[0].startswith("phase,tokens,batch,page,ms,ms_quartiles_low,ms_quartiles_high,"), lines
        assert lines[1].startswith('"decode",16,1,"4",'), lines
        compares(bench, path, old, rates)


def compares(bench, path, old, rates):
    """Reports that were ten thousand times as slow and as fast."""
    def compare(factor, *options):
        for row, then in zip(old["rows"], before):
            row["ms"] = then["ms"] * factor
            row["ms_quartiles"] = [quartile * factor for quartile in then["ms_quartiles"]]
            row["of_roof"] = then["of_roof"] / factor
        with open(path, "w") as file:
            json.dump(old, file)
        return run(bench, *rates, "--compare", path, *options)

    before = json.loads(json.dumps(old["rows"]))
    done = compare(1e4)
    rows = [row for row in rows_of(done.stdout, "phase") if "verdict" in row]
    assert done.returncode == 0 and [row["verdict"] for row in rows] == ["ok"] * 6, done
    assert all(0 < row["low"] <= row["speed"] <= row["high"] for row in rows), rows
    done = compare(1e-4, "--tolerance", "50")
    rows = [row for row in rows_of(done.stdout, "phase") if "verdict" in row]
    assert done.returncode == 1 and [row["verdict"] for row in rows] == ["slower"] * 6, done
    assert "error: 6 of 6 rows are more than 50 % slower than in " in done.stderr, done.stderr
    old["rows"] = before = before[:1]
    done = compare(1e4)  # rows that only one of them has are not compared
    assert done.returncode == 0 and done.stdout.count(" ok ") == 1, done
    for text, message in [("{}", "is no report of --scenario rates"), ("{", "")]:
        with open(path, "w") as file:
            file.write(text)
        done = run(bench, *rates[:2], "--batch", "1", "--prompt-tokens", "8", "--repetitions", "1", "--compare", path)
        assert done.returncode == 5 and message in done.stderr, done
    refuses(bench, 2, "--tolerance goes with --compare", "--tolerance", "5", "model")


def plots(root, folder, series):
    """SVG of the series, and of a report whose places in the picture can be told."""
    plot = [sys.executable, f"{root}/tools/plot_bench.py"]
    picture, report = os.path.join(folder, "series.svg"), os.path.join(folder, "report.json")
    done = run(*plot, series, picture)
    assert done.returncode == 0, done
    lines = elements(picture, "polyline")
    assert len(lines) == 2 and elements(picture, "style")[0].text.count("prefers-color-scheme: dark") == 1
    rows = [{"phase": "decode", "tokens": tokens, "batch": batch, "ms": 10.0, "ms_quartiles": [8.0, 20.0],
             "tokens_per_s": 100.0 * batch, "gbps": 10.0, "machine_gbps": 20.0, "gflops": 5.0 * batch,
             "machine_gflops": 100.0} for tokens in (16, 32) for batch in (1, 2, 4)]
    rows.append({"phase": "prefill", "tokens": 64, "batch": 1, "ms": 1.0, "tokens_per_s": 5.0})
    write(folder, {"report.json": json.dumps({"rows": rows})})
    assert run(*plot, report, picture).returncode == 0
    places = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
              for line in elements(picture, "polyline")]
    assert len(places) == 2 and places[0] == places[1], places
    (x1, y1), (x2, y2), (x4, y4) = places[0]  # both axes begin at 0
    assert abs((x4 - x2) - 2 * (x2 - x1)) < 0.3 and abs((y4 - y2) - 2 * (y2 - y1)) < 0.3 and y4 < y1, places
    bar = next(line for line in elements(picture, "line") if line.get("stroke") and float(line.get("x1")) == x1)
    assert abs((float(bar.get("y2")) - y1) - (y2 - y1) * 0.25) < 0.3, "100 tokens/s, 125 at the faster quartile"
    assert run(*plot, report, picture, "--roofline").returncode == 0
    assert len(elements(picture, "polyline")) == 3 and elements(picture, "polyline")[0].get("class") == "roof"
    for other in [f"{root}/README.md", os.path.join(folder, "absent"), report]:
        options = ["--x", "page"] if other == report else []
        done = run(*plot, other, picture, *options)
        assert done.returncode == 2 and done.stderr.startswith("error: "), done
        assert len(done.stderr.splitlines()) == 1, done


def elements(path, name):
    return [e for e in ElementTree.parse(path).iter() if e.tag.endswith("}" + name)]


def scheduler(bench, root):
    rows = table(bench, "sequences", "--scenario", "scheduler", "--batch", "1,8")
    assert [row["sequences"] for row in rows] == [1, 8]
    for row in rows:
        assert 0 <= row["us"] <= row["p99_us"] and row["build_us"] > 0, row


if __name__ == "__main__":
    bench, root, scenario = sys.argv[1:]
    {
        "throughput": throughput,
        "prefix": prefix,
        "cascade": cascade,
        "latency": latency,
        "attention": attention,
        "layout": layout,
        "report": report,
        "turns": turns,
        "memory": memory,
        "vision": vision,
        "scheduler": scheduler,
        "serve": serve,
        "server-cost": server_cost,
        "gpu_table": gpu_table,
    }[scenario](bench, root)
