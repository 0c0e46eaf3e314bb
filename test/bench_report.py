#!/usr/bin/env python3
"""bench_report.py KUIPER_BENCH ROOT CASE: what is kept of a benchmark: --json, --csv, --compare, plots, the tables
of tools/gpu_table.py, and what is told of the machine."""
import json
import os
import sys
import tempfile

from bench_harness import elements, main, refuses, rows_of, run, table, write


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
        assert done.stdout == "", "nothing is measured first"
    refuses(bench, 2, "--tolerance goes with --compare", "--tolerance", "5", "model")


if __name__ == "__main__":
    main(memory, gpu_table, report)
