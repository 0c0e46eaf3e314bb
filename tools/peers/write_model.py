#!/usr/bin/env python3
"""Writes one model of random weights in the files of several engines.

    write_model.py CONFIG.json FOLDER

CONFIG.json has the shapes of a Qwen3 or Qwen2 decoder (tools/bench_models). FOLDER gets config.json and
model.safetensors (BF16), and model-bf16.gguf and model-f16.gguf. Weights are whole numbers from -127 to 127
times a power of two: BF16 and FP16 hold all of them, so every file says the same. Needs numpy.
"""
import json
import pathlib
import shutil
import struct
import sys

import numpy as np

GGUF_F32, GGUF_F16, GGUF_BF16 = 0, 1, 30
# Every byte as a character, as byte-level BPE writes it.
BYTES = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 else chr(256 + i)
         for i, b in enumerate(range(256))]


def shapes(c):
    """(name in Hugging Face's files, name in GGUF, shape) of each tensor, in their order."""
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim", hidden // heads)
    yield "model.embed_tokens.weight", "token_embd.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        hf, gg = f"model.layers.{i}.", f"blk.{i}."
        for name, other, rows in [("q", "q", heads * dim), ("k", "k", kv * dim), ("v", "v", kv * dim)]:
            yield f"{hf}self_attn.{name}_proj.weight", f"{gg}attn_{other}.weight", (rows, hidden)
            if c["model_type"] == "qwen2":
                yield f"{hf}self_attn.{name}_proj.bias", f"{gg}attn_{other}.bias", (rows,)
        yield f"{hf}self_attn.o_proj.weight", f"{gg}attn_output.weight", (hidden, heads * dim)
        if c["model_type"] == "qwen3":
            yield f"{hf}self_attn.q_norm.weight", f"{gg}attn_q_norm.weight", (dim,)
            yield f"{hf}self_attn.k_norm.weight", f"{gg}attn_k_norm.weight", (dim,)
        for name in ["gate", "up"]:
            yield f"{hf}mlp.{name}_proj.weight", f"{gg}ffn_{name}.weight", (c["intermediate_size"], hidden)
        yield f"{hf}mlp.down_proj.weight", f"{gg}ffn_down.weight", (hidden, c["intermediate_size"])
        yield f"{hf}input_layernorm.weight", f"{gg}attn_norm.weight", (hidden,)
        yield f"{hf}post_attention_layernorm.weight", f"{gg}ffn_norm.weight", (hidden,)
    yield "model.norm.weight", "output_norm.weight", (hidden,)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", "output.weight", (c["vocab_size"], hidden)


def values(index, name, shape):
    """FP32 values of a tensor; norms are ones, so that activations neither grow nor vanish."""
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    codes = np.random.default_rng(index).integers(-127, 128, shape, np.int8)
    return codes.astype(np.float32) * np.float32(2.0 ** -11)


def bf16(x):
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, value):
    """A key and its value as GGUF writes them."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return text(key) + struct.pack("<IB", 7, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    kind, items = (8, b"".join(map(text, value))) if isinstance(value[0], str) else (
        5, struct.pack(f"<{len(value)}i", *value))
    return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + items


def metadata(c, file_type):
    arch, heads = c["model_type"], c["num_attention_heads"]
    dim = c.get("head_dim", c["hidden_size"] // heads)
    words = BYTES + [f"w{i}" for i in range(256, c["vocab_size"])]
    return {
        "general.architecture": arch, "general.name": "random", "general.file_type": file_type,
        f"{arch}.context_length": c["max_position_embeddings"], f"{arch}.embedding_length": c["hidden_size"],
        f"{arch}.block_count": c["num_hidden_layers"], f"{arch}.feed_forward_length": c["intermediate_size"],
        f"{arch}.attention.head_count": heads, f"{arch}.attention.head_count_kv": c["num_key_value_heads"],
        f"{arch}.attention.key_length": dim, f"{arch}.attention.value_length": dim,
        f"{arch}.rope.freq_base": float(c["rope_theta"]),
        f"{arch}.attention.layer_norm_rms_epsilon": float(c["rms_norm_eps"]),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [1] * (len(words) - 1) + [3], "tokenizer.ggml.merges": [BYTES[32] + " " + BYTES[32]],
        "tokenizer.ggml.bos_token_id": len(words) - 1, "tokenizer.ggml.eos_token_id": len(words) - 1,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": "{{ messages[0].content }}",
    }


def write_gguf(c, path, kind):
    """Matrices in `kind`; vectors in FP32, as the engines want them."""
    tensors, offset, infos = list(shapes(c)), 0, b""
    for _, name, shape in tensors:
        stored = kind if len(shape) == 2 else GGUF_F32
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", stored, offset)
        size = int(np.prod(shape)) * (4 if stored == GGUF_F32 else 2)
        offset += (size + 31) // 32 * 32
    fields = metadata(c, 1 if kind == GGUF_F16 else 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(field(key, value) for key, value in fields.items()) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for index, (name, _, shape) in enumerate(tensors):
            x = values(index, name, shape)
            if len(shape) == 2:
                x = x.astype(np.float16) if kind == GGUF_F16 else bf16(x)
            file.write(x.tobytes() + bytes(-x.nbytes % 32))


def write_safetensors(c, path):
    header, offset, tensors = {}, 0, list(shapes(c))
    for name, _, shape in tensors:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for index, (name, _, shape) in enumerate(tensors):
            file.write(bf16(values(index, name, shape)).tobytes())


def write_model(config, folder):
    """Writes what is not there yet."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    c = json.loads(pathlib.Path(config).read_text())
    if c["model_type"] not in ("qwen2", "qwen3"):
        raise SystemExit(f"error: {config} is no Qwen2 or Qwen3 decoder")
    shutil.copy(config, folder / "config.json")
    for name, write in [("model.safetensors", lambda path: write_safetensors(c, path)),
                        ("model-bf16.gguf", lambda path: write_gguf(c, path, GGUF_BF16)),
                        ("model-f16.gguf", lambda path: write_gguf(c, path, GGUF_F16))]:
        if not (folder / name).exists():
            write(folder / (name + ".part"))
            (folder / (name + ".part")).rename(folder / name)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    write_model(*sys.argv[1:])
