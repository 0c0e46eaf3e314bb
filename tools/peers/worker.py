#!/usr/bin/env python3
"""A peer as a resident program that takes turns (tools/compare_peers.py): the lines of stdin and the answers
are those of `kuiper_bench --scenario turns`, but for `burst`.

    worker.py llama|ik|openvino|onnxruntime MODEL THREADS MAX_TOKENS MAX_BATCH CHUNK

MODEL is a GGUF file, for onnxruntime the folder that its model builder wrote. Runs in a Python that has the peer's package.
"""
import os
import sys
import time


def prompt(tokens, seed, vocab):
    """The ids of kuiper_bench's prompts."""
    return [(i * 7919 + seed * 104729 + 1) % vocab for i in range(tokens)]


def timed(step, count):
    """Seconds of so many calls."""
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


class Llama:
    """llama.cpp, or its fork ik_llama.cpp, by the C interface that the Python packages bring."""

    def __init__(self, lib, model, threads, max_tokens, max_batch, chunk):
        self.lib, self.chunk = lib, chunk
        lib.llama_backend_init()
        model_params = lib.llama_model_default_params()
        if hasattr(model_params, "repack_tensors"):
            model_params.repack_tensors = True  # rows interleaved, its fastest way
        self.model = lib.llama_model_load_from_file(model.encode(), model_params)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = max_tokens * max_batch, chunk, chunk
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max = max_batch
        if hasattr(params, "kv_unified"):
            params.kv_unified = False
        if hasattr(params, "flash_attn"):
            params.flash_attn = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("no context")
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(max(chunk, max_batch), 0, 1)

    def clear(self):
        if hasattr(self.lib, "llama_get_memory"):
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), False)
        else:
            self.lib.llama_kv_cache_clear(self.context)

    def decode(self, rows):
        """rows: (token, position, sequence, whether logits are wanted)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wanted
        if self.lib.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode failed")

    def best(self):
        """The id with the largest logit of the last row that wanted logits."""
        import numpy

        logits = self.lib.llama_get_logits_ith(self.context, -1)  # waits for them
        return int(numpy.ctypeslib.as_array(logits, (self.vocab,)).argmax())

    def read(self, ids, sequence):
        for first in range(0, len(ids), self.chunk):
            part = ids[first:first + self.chunk]
            self.decode([(token, first + i, sequence, first + i + 1 == len(ids)) for i, token in enumerate(part)])

    def prefill(self, tokens, seed):
        self.clear()
        begin = time.perf_counter()
        self.read(prompt(tokens, seed, self.vocab), 0)
        best = self.best()
        return time.perf_counter() - begin, best

    def open(self, context, batch):
        self.clear()
        for sequence in range(batch):
            self.read(prompt(context, sequence, self.vocab), sequence)
        self.best()
        self.length, self.sequences = context, batch

    def one_step(self):
        self.decode([(1, self.length, sequence, True) for sequence in range(self.sequences)])
        self.lib.llama_get_logits_ith(self.context, -1)  # waits for them
        self.length += 1

    def step(self, count):
        return timed(self.one_step, count)

    def close(self):
        self.clear()


class OpenVino:
    """OpenVINO GenAI: its continuous batching over paged attention, with its own defaults."""

    def __init__(self, model, threads, max_tokens, max_batch, chunk):
        import numpy
        import openvino
        import openvino_genai

        self.genai, self.openvino, self.numpy = openvino_genai, openvino, numpy
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = max(chunk, 2 * max_batch)
        scheduler.max_num_seqs = max_batch
        scheduler.cache_size = 0
        scheduler.num_kv_blocks = max_batch * (max_tokens // 16 + 4)
        scheduler.enable_prefix_caching = False
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.vocab, self.requests = int(os.environ["PEER_VOCAB"]), 0
        self.handles = []

    def add(self, ids, new_tokens):
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new_tokens, True, False
        config.apply_chat_template = False
        array = self.numpy.array([ids], self.numpy.int64)
        self.requests += 1
        return self.pipeline.add_request(self.requests, self.openvino.Tensor(array), config)

    def prefill(self, tokens, seed):
        handle = self.add(prompt(tokens, seed, self.vocab), 1)
        begin = time.perf_counter()
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        seconds = time.perf_counter() - begin
        return seconds, handle.read_all()[0].generated_ids[0]

    def open(self, context, batch):
        self.handles = [self.add(prompt(context, b, self.vocab), 1 << 20) for b in range(batch)]
        waiting = list(self.handles)
        while waiting:
            self.pipeline.step()
            waiting = [handle for handle in waiting if not handle.can_read()]

    def step(self, count):
        return timed(self.pipeline.step, count)

    def close(self):
        for handle in self.handles:
            handle.stop()
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()


class OnnxRuntime:
    """onnxruntime-genai: a generator per batch; its sampling is part of its steps."""

    def __init__(self, model, threads, max_tokens, max_batch, chunk):
        import onnxruntime_genai

        del chunk
        self.genai, self.max_tokens = onnxruntime_genai, max_tokens
        config = onnxruntime_genai.Config(model)
        config.overlay('{"model": {"decoder": {"session_options": {"intra_op_num_threads": %d}}}}' % threads)
        self.model = onnxruntime_genai.Model(config)
        self.vocab, self.max_batch = int(os.environ["PEER_VOCAB"]), max_batch

    def start(self, rows):
        import numpy

        params = self.genai.GeneratorParams(self.model)
        params.set_search_options(max_length=self.max_tokens, batch_size=len(rows), do_sample=False)
        self.generator = self.genai.Generator(self.model, params)
        self.generator.append_tokens(numpy.array(rows, numpy.int32))

    def prefill(self, tokens, seed):
        begin = time.perf_counter()
        self.start([prompt(tokens, seed, self.vocab)])
        self.generator.generate_next_token()
        seconds = time.perf_counter() - begin
        return seconds, int(self.generator.get_next_tokens()[0])

    def open(self, context, batch):
        self.start([prompt(context, b, self.vocab) for b in range(batch)])
        self.generator.generate_next_token()

    def step(self, count):
        return timed(self.generator.generate_next_token, count)

    def close(self):
        del self.generator


def make(kind, model, *numbers):
    if kind == "llama":
        import llama_cpp

        version = "llama.cpp of llama-cpp-python " + llama_cpp.__version__
        return Llama(llama_cpp, model, *numbers), version
    if kind == "ik":
        import ik_llama_cpp
        from ik_llama_cpp import _ctypes_api

        return Llama(_ctypes_api, model, *numbers), "ik_llama.cpp of ik-llama-cpp-python " + ik_llama_cpp.__version__
    if kind == "openvino":
        import openvino_genai

        return OpenVino(model, *numbers), "OpenVINO GenAI " + openvino_genai.get_version()
    import onnxruntime_genai

    return OnnxRuntime(model, *numbers), "onnxruntime-genai " + onnxruntime_genai.__version__


def answer(peer, line):
    verb, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    if verb == "prefill":
        return "%f %d" % peer.prefill(*numbers)
    if verb == "step":
        return "%f" % peer.step(*numbers)
    {"open": peer.open, "close": peer.close}[verb](*numbers)
    return "ok"


def main():
    if len(sys.argv) != 7:
        raise SystemExit(__doc__)
    # Libraries write to stdout; answers keep it to themselves.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    kind, model, *numbers = sys.argv[1:]
    peer, version = make(kind, model, *map(int, numbers))
    print("ready " + version, file=out)
    for line in sys.stdin:
        try:
            print(answer(peer, line), file=out)
        except Exception as error:  # the parent prints it
            print("error " + " ".join(str(error).split()), file=out)


if __name__ == "__main__":
    main()
