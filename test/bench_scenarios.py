#!/usr/bin/env python3
"""bench_scenarios.py KUIPER_BENCH ROOT CASE: what a scenario prints, at a tiny size, is a table
whose figures say what they must on any machine."""
import subprocess
import sys

from bench_harness import main, refuses, run, table


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
    refuses(bench, 2, "sequences grow to ", "--scenario", "throughput", "--invent",
            f"{root}/tools/bench_models/tiny.json", "--context", "1000000")


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


def scheduler(bench, root):
    rows = table(bench, "sequences", "--scenario", "scheduler", "--batch", "1,8")
    assert [row["sequences"] for row in rows] == [1, 8]
    for row in rows:
        assert 0 <= row["us"] <= row["p99_us"] and row["build_us"] > 0, row


if __name__ == "__main__":
    main(throughput, prefix, latency, cascade, vision, attention, layout, turns, scheduler)
