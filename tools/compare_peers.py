#!/usr/bin/env python3
"""This engine beside others on the same shapes and weights, in turns.

    tools/compare_peers.py --folder /tmp/peers --peers llama,openvino [--model tools/bench_models/qwen3-0.6b.json]

Each engine is a resident program; all but the one whose turn it is are stopped (SIGSTOP). A round is, for each cell and
each engine in an order that rotates: a read of memory by another resident program, then the engine. Ratios are those of
one round, the peer's time by ours (above 1: we are faster), and are printed as their median with quartiles. A sample during which other
programs took more than --max-foreign of a core is dropped. The ids that prompts lead to are compared as well.

Peers, each in a Python of its own (--python NAME=PATH, by default this one):
    llama        pip install llama-cpp-python (it builds llama.cpp from the sources it brings, for this machine)
    ik           ik-llama-cpp-python (docs/comparisons.md says how it is built); it reads the same file
    openvino     pip install openvino-genai (it computes in BF16 and takes its own type for keys and values)
    onnxruntime  pip install onnxruntime-genai; --onnx FOLDER, which its model builder wrote from FOLDER/model
Needs numpy. The random weights of the shapes are written to --folder first: 4 GB for Qwen3-0.6B. With --weights int8 and
int4 linear layers have groups of 32 (Q8_0 and Q4_0), the head 8 bits; peers quantise activations to 8 bits as well, we to nearly
16, or with --kuiper-flags "--weights copied --activation-dtype int8" to 8.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
STEPS = 4  # of a sample of decoding


def busy_ticks():
    """Ticks that all processors were busy."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4]


def last_words(path):
    """The last line of a log that names an error, or its last one."""
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if re.search("error|assert", line, re.IGNORECASE)]
    return (errors or lines or ["it said nothing"])[-1]


class Worker:
    """A resident engine, stopped but for its turns."""

    def __init__(self, name, command, environment, log):
        self.name, self.log = name, log.name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        env={**os.environ, **environment})
        self.version = self.answer().removeprefix("ready ")
        self.stop()

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line or line.startswith("error"):
            raise RuntimeError(f"{self.name}: {line or 'ended: ' + last_words(self.log)}; see {self.log}")
        return line

    def own_ticks(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return int(words[11]) + int(words[12])

    def ask(self, line):
        """-> (the words of the answer, part of a core that other programs took)."""
        begin, others = time.perf_counter(), busy_ticks() - self.own_ticks()
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        words = self.answer().split()
        self.stop()
        foreign = (busy_ticks() - self.own_ticks() - others) / TICK / (time.perf_counter() - begin)
        return words, max(0.0, foreign)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def end(self):
        self.process.kill()
        self.process.wait()


def spread(values):
    """(median, lower quartile, upper quartile)"""
    if len(values) < 2:
        return (values[0],) * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, low, high


class Cell:
    """What is measured: prefill:TOKENS, or decode:CONTEXT:BATCH."""

    def __init__(self, text):
        kind, *numbers = text.split(":")
        numbers = [int(number) for number in numbers]
        if kind not in ("prefill", "decode") or len(numbers) != (1 if kind == "prefill" else 2) or min(numbers) < 1:
            raise argparse.ArgumentTypeError(f"'{text}' is neither prefill:TOKENS nor decode:CONTEXT:BATCH")
        self.name, self.prefills, self.tokens = text, kind == "prefill", numbers[0]
        self.batch = 1 if self.prefills else numbers[1]

    def begin(self, worker):
        if self.prefills:
            worker.ask(f"prefill {self.tokens} 0")  # touches memory for the first time
        else:
            worker.ask(f"open {self.tokens} {self.batch}")
            worker.ask(f"step {STEPS}")

    def sample(self, worker, seed):
        """-> (milliseconds of the prompt or of a step, the id of a prompt or None, foreign)"""
        if self.prefills:
            words, foreign = worker.ask(f"prefill {self.tokens} {seed}")
            return 1e3 * float(words[0]), int(words[1]), foreign
        words, foreign = worker.ask(f"step {STEPS}")
        return 1e3 * float(words[0]) / STEPS, None, foreign

    def end(self, worker):
        if not self.prefills:
            worker.ask("close")


def measure(cell, workers, yardstick, rounds, max_foreign):
    """-> rows of samples, one of each round: {name: (ms, GB/s before it)}, ids that differed, and how many were dropped."""
    names = list(workers)
    for name in names:
        cell.begin(workers[name])
    rows, differing, dropped = [], dict.fromkeys(names, 0), 0
    for r in range(rounds):
        row, ids = {}, {}
        for name in names[r % len(names):] + names[:r % len(names)]:
            gbps = float(yardstick.ask("burst")[0][0]) / 1e9
            ms, ids[name], foreign = cell.sample(workers[name], r)
            if foreign > max_foreign:
                dropped += 1
            else:
                row[name] = (ms, gbps)
        for name in names:
            differing[name] += ids[name] != ids[names[0]]
        rows.append(row)
    for name in names:
        cell.end(workers[name])
    return rows, differing, dropped


def summary(cell, workers, measured, ours="kuiper"):
    rows, differing, dropped = measured
    result = {"cell": cell.name, "dropped": dropped, "engines": {}}
    for name in workers:
        times = [row[name] for row in rows if name in row]
        pairs = [row[name][0] / row[ours][0] for row in rows if name in row and ours in row]
        engine = {"samples": len(times), "pairs": len(pairs), "other_ids": differing[name]}
        if times:
            engine["ms"], *engine["ms_quartiles"] = spread([ms for ms, _ in times])
            engine["gbps"] = statistics.median(gbps for _, gbps in times)
        if pairs:
            engine["ratio"], *engine["ratio_quartiles"] = spread(pairs)
        result["engines"][name] = engine
    return result


def show(result, names):
    cells = [result["cell"]]
    for name in names:
        engine = result["engines"][name]
        if "ms" not in engine:
            cells.append("-")
        elif name == names[0]:
            cells.append(f"{engine['ms']:.2f} ms at {engine['gbps']:.0f} GB/s")
        elif "ratio" in engine:
            low, high = engine["ratio_quartiles"]
            cells.append(f"{engine['ratio']:.2f} [{low:.2f}-{high:.2f}] n{engine['pairs']}")
        else:
            cells.append(f"{engine['ms']:.2f} ms")
    cells.append(str(result["dropped"]))
    print("| " + " | ".join(cells) + " |", flush=True)


def commands(args, model):
    """{name: (command, environment)}; ours first."""
    config = json.loads((model / "config.json").read_text())
    batch = max(cell.batch for cell in args.cells)
    tokens = max(cell.tokens for cell in args.cells) + STEPS * (args.rounds + 4) + 64
    of = lambda prefills: sorted({cell.tokens for cell in args.cells if cell.prefills == prefills}) or [16]
    numbers = lambda values: ",".join(map(str, values))
    ours = [args.bench, "--scenario", "turns", "--threads", str(args.threads)]
    head = [] if args.weights == "bf16" else ["--lm-head-dtype", "int8"]
    found = {"kuiper": (ours + ["--prompt-tokens", numbers(of(True)), "--context", numbers(of(False)), "--batch",
                                numbers(sorted({cell.batch for cell in args.cells})), "--decode-steps", str(STEPS),
                                "--repetitions", str(args.rounds + 1), "--chunk", str(args.chunk), *head, *args.kuiper_flags.split(),
                                str(model)], {})}
    of_llama = {"bf16": args.llama_type, "int8": "q8_0", "int4": "q4_0"}[args.weights]
    of_openvino = "f16" if args.weights == "bf16" else of_llama
    files = {"llama": f"model-{of_llama}.gguf", "ik": f"model-{of_llama}.gguf", "openvino": f"model-{of_openvino}.gguf"}
    pythons = dict(pair.split("=", 1) for pair in args.python)
    for name in args.peers:
        path = args.onnx if name == "onnxruntime" else model / files[name]
        found[name] = ([pythons.get(name, sys.executable), str(HERE / "peers/worker.py"), name, str(path), str(args.threads),
                        str(tokens), str(batch), str(args.chunk)], {"PEER_VOCAB": str(config["vocab_size"])})
    return found, ours + ["--invent", str(HERE / "bench_models/tiny.json"), "--batch", "1"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=HERE / "bench_models/qwen3-0.6b.json", help="config.json of the shapes")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the weights, and the log of the peers")
    parser.add_argument("--bench", default=str(HERE.parent / "build/tools/kuiper_bench"))
    parser.add_argument("--kuiper-flags", default="--weights copied", help="more flags of kuiper_bench")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=["llama", "openvino"])
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--onnx", help="the folder of onnxruntime's model")
    parser.add_argument("--weights", choices=["bf16", "int8", "int4"], default="bf16")
    parser.add_argument("--llama-type", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--cells", type=lambda text: [Cell(cell) for cell in text.split(",")],
                        default="prefill:128,prefill:512,prefill:2048,decode:16:1,decode:2048:1,decode:16:8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--chunk", type=int, default=512, help="tokens of a step of a prompt")
    parser.add_argument("--max-foreign", type=float, default=0.12)
    parser.add_argument("--json", help="write what was measured")
    args = parser.parse_args()
    if not 1 <= args.rounds <= 99 or args.threads < 1 or args.chunk < 1:
        parser.error("--rounds are from 1 to 99, --threads and --chunk 1 at least")
    unknown = set(args.peers) - {"llama", "ik", "openvino", "onnxruntime"}
    if unknown or ("onnxruntime" in args.peers) != bool(args.onnx):
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}" if unknown else "onnxruntime and --onnx go together")
    return args


def save(path, engines, results):
    """Writes what is there so far, if it is wanted."""
    if path:
        versions = {name: worker.version for name, worker in engines.items()}
        pathlib.Path(path).write_text(json.dumps({"versions": versions, "cells": results}, indent=1) + "\n")


def start(args, model, workers):
    """Starts the yardstick and the engines, which become `workers` one by one. -> the engines by name"""
    found, yardstick_command = commands(args, model)
    with open(args.folder / "peers.log", "w") as log:
        workers["yardstick"] = Worker("yardstick", yardstick_command, {}, log)
        for name, (command, environment) in found.items():
            workers[name] = Worker(name, command, environment, log)
    return {name: workers[name] for name in found}


def compare(args, engines, yardstick):
    """Measures all cells and prints them. What is there stays in the file when something ends it."""
    for name, worker in engines.items():
        print(f"{name}: {worker.version}")
    print(f"{pathlib.Path(args.model).stem}, {args.threads} threads, {args.rounds} rounds; a peer's cell is its time by ours")
    print("\n| cell | " + " | ".join(engines) + " | dropped |\n|" + "---|" * (len(engines) + 2), flush=True)
    results = []
    save(args.json, engines, results)
    for cell in args.cells:
        measured = measure(cell, engines, yardstick, args.rounds, args.max_foreign)
        results.append(summary(cell, engines, measured) | {"rounds": measured[0]})
        show(results[-1], list(engines))
        save(args.json, engines, results)
    for result in results:
        others = {name: e["other_ids"] for name, e in result["engines"].items() if e["other_ids"]}
        if others:
            print(f"note: {result['cell']}: prompts that led to another id than ours: {others}")


def main():
    args = options()
    workers = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # no stopped program stays behind
    try:
        sys.path.insert(0, str(HERE / "peers"))
        from write_model import write_model

        suffix = "" if args.weights == "bf16" else "-" + args.weights
        model = write_model(args.model, args.folder / (pathlib.Path(args.model).stem + suffix), args.weights)
        engines = start(args, model, workers)
        compare(args, engines, workers["yardstick"])
    except (ImportError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        for worker in workers.values():
            worker.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
