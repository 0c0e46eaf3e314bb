#!/usr/bin/env python3
"""Decode attention by others, at the shapes and in the table of kuiper_bench --scenario attention.

torch.nn.functional.scaled_dot_product_attention in two ways, and FlashInfer's paged decode where it can be
imported. One query per sequence over the keys and values of all layers, one layer after the other; on
CUDA the layers are recorded as a graph, as kuiper_bench does. `machine` is the rate at which torch sums
a large array.

    tools/attention_torch.py CONFIG.json [--device cpu|cuda:N] [--dtype fp16|bf16|fp32]
                             [--context LIST] [--batch LIST]
"""
import argparse
import json
import statistics
import sys
import time

PAGE_SIZE = 16


def integers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="config.json of a model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["fp16", "bf16", "fp32"], default="bf16")
    parser.add_argument("--context", type=integers, default=[1024, 8192])
    parser.add_argument("--batch", type=integers, default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=3)
    return parser.parse_args()


class Bench:
    """Times steps on a device; a step is a function of no arguments."""

    def __init__(self, torch, device, steps, repetitions):
        self.torch, self.device = torch, torch.device(device)
        self.steps, self.repetitions = steps, repetitions
        self.array = torch.ones(1 << 28, dtype=torch.float32, device=self.device)
        self.machine = self.array.nbytes / self.seconds(lambda: self.array.sum())

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def seconds(self, step):
        """Of one step: the median of repetitions, after one that is not counted."""
        times = []
        for _ in range(self.repetitions + 1):
            self.sync()
            begin = time.perf_counter()
            for _ in range(self.steps):
                step()
            self.sync()
            times.append((time.perf_counter() - begin) / self.steps)
        return statistics.median(times[1:])

    def recorded(self, step):
        """The step as a CUDA graph, or itself on the CPU."""
        if self.device.type != "cuda":
            return step
        step()
        self.sync()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            step()
        return graph.replay


def sdpa(grouped, torch, shape, context, batch, options):
    """Contiguous keys and values. `grouped` passes the heads that share a KV head as the rows of one
    query, which is the same for decoding; otherwise torch is told that heads are shared."""
    layers, heads, kv_heads, dim = shape
    q_shape = (kv_heads, heads // kv_heads) if grouped else (heads, 1)
    q = torch.randn(batch, *q_shape, dim, **options)
    kv = [torch.randn(2, batch, kv_heads, context, dim, **options) for _ in range(layers)]

    def step():
        for k, v in kv:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=not grouped)

    return step


def flashinfer_decode(flashinfer, torch, shape, context, batch, options):
    layers, heads, kv_heads, dim = shape
    pages = -(-context // PAGE_SIZE)
    q = torch.randn(batch, heads, dim, **options)
    kv = [torch.randn(batch * pages, 2, PAGE_SIZE, kv_heads, dim, **options) for _ in range(layers)]
    integer = {"dtype": torch.int32, "device": options["device"]}
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=options["device"])
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    wrapper.plan(
        torch.arange(batch + 1, **integer) * pages,
        # Sequences that grew together have their pages side by side.
        (torch.arange(pages, **integer) * batch + torch.arange(batch, **integer)[:, None]).flatten(),
        torch.full((batch,), context - (pages - 1) * PAGE_SIZE, **integer),
        heads, kv_heads, dim, PAGE_SIZE, q_data_type=options["dtype"], kv_data_type=options["dtype"],
    )

    def step():
        for layer in kv:
            wrapper.run(q, layer)

    return step


def kernels(torch, args):
    found = {"sdpa-gqa": lambda *rest: sdpa(False, torch, *rest),
             "sdpa-rows": lambda *rest: sdpa(True, torch, *rest)}
    if args.device.startswith("cuda") and args.dtype != "fp32":
        try:
            import flashinfer

            found["flashinfer"] = lambda *rest: flashinfer_decode(flashinfer, torch, *rest)
        except ImportError:
            print("note: flashinfer is not installed and left out", file=sys.stderr)
    return found


def read_shape(path):
    """Layers, heads, KV heads and the size of a head."""
    try:
        with open(path) as file:
            config = json.load(file)
        heads = config["num_attention_heads"]
        return (config["num_hidden_layers"], heads, config["num_key_value_heads"],
                config.get("head_dim", config["hidden_size"] // heads))
    except OSError as error:
        sys.exit(f"error: cannot read {path}: {error.strerror}")
    except (KeyError, TypeError, ValueError):
        sys.exit(f"error: {path} is not the config.json of a model")


def is_out_of_memory(torch, error):
    # On the CPU torch raises a bare RuntimeError.
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or \
        "DefaultCPUAllocator" in str(error)


def main():
    args = parse()
    shape = read_shape(args.config)
    try:
        import torch
    except ImportError:
        sys.exit("error: torch is not installed\nhint: python3 -m pip install torch")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[args.dtype]
    options = {"dtype": dtype, "device": args.device}
    try:
        bench = Bench(torch, args.device, args.steps, args.repetitions)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        sys.exit(f"error: torch cannot use {args.device}: {str(error).splitlines()[0]}")
    name = torch.cuda.get_device_name(args.device) if bench.device.type == "cuda" else \
        f"{torch.get_num_threads()} threads"
    print("torch %s, %s (%s), %s, %d layers of %d heads and %d KV heads of %d"
          % (torch.__version__, args.device, name, args.dtype.upper(), *shape))
    print("%-10s %7s %6s %12s %9s %12s %9s"
          % ("attention", "context", "batch", "us_per_layer", "gbps", "machine_gbps", "of_memory"))
    layers, _, kv_heads, dim = shape
    for context in args.context:
        for batch in args.batch:
            for kernel, make in kernels(torch, args).items():
                try:
                    seconds = bench.seconds(bench.recorded(make(shape, context, batch, options)))
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(torch, error):
                        raise
                    print(f"note: {kernel}, {batch} x {context} tokens are left out: no memory",
                          file=sys.stderr)
                    continue
                rate = 2 * layers * batch * context * kv_heads * dim * dtype.itemsize / seconds
                print("%-10s %7d %6d %12.2f %9.1f %12.1f %8.1f%%"
                      % (kernel, context, batch, seconds / layers * 1e6, rate / 1e9,
                         bench.machine / 1e9, rate / bench.machine * 100), flush=True)


if __name__ == "__main__":
    main()
