#!/usr/bin/env python3
"""Writes one model of random weights in the files of several engines.

    write_model.py CONFIG.json FOLDER [bf16|int8|int4]

CONFIG.json has the shapes of a Qwen3 or Qwen2 decoder (tools/bench_models). FOLDER gets config.json and
model.safetensors (BF16), and model-bf16.gguf and model-f16.gguf; of int8 and int4 model.safetensors in the form of
compressed-tensors and model-q8_0.gguf or model-q4_0.gguf, groups of 32 without zeros, embedding and head in BF16 and in Q8_0.
Weights are whole numbers from -127 to 127 (int4: -7 to 7) times a power of two, which all types hold, so every file says
the same. Needs numpy.
"""
import json
import pathlib
import struct
import sys

import numpy as np

GGUF_F32, GGUF_F16, GGUF_Q4_0, GGUF_Q8_0, GGUF_BF16 = 0, 1, 2, 8, 30
GGUF_BLOCKS = {GGUF_F32: (1, 4), GGUF_F16: (1, 2), GGUF_BF16: (1, 2), GGUF_Q4_0: (32, 18), GGUF_Q8_0: (32, 34)}  # elements, bytes
GGUF_FILE_TYPES = {GGUF_F16: 1, GGUF_Q4_0: 2, GGUF_Q8_0: 7, GGUF_BF16: 32}
GROUP = 32
SCALES = {8: 2.0 ** -11, 4: 2.0 ** -7}  # by bits of a code
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


def codes_of(index, shape, bits=8, grouped=False):
    """Codes of a tensor. With `grouped`, of matrices, each group has one at the end of the range, so that its scale can be found."""
    most = 2 ** (bits - 1) - 1
    codes = np.random.default_rng(index).integers(-most, most + 1, shape, np.int8)
    if grouped:
        codes[:, ::GROUP] = np.where(codes[:, ::GROUP] < 0, -most, most)
    return codes


def float_values(codes, bits=8):
    return codes.astype(np.float32) * np.float32(SCALES[bits])


def vector(index, name, shape):
    """A bias or a norm; norms are ones, so that activations neither grow nor vanish."""
    return np.ones(shape, np.float32) if name.endswith("norm.weight") else float_values(codes_of(index, shape))


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


def stored_type(kind, name, shape):
    """The GGUF type of a tensor where matrices have `kind`: vectors are in FP32, as the engines want them."""
    if len(shape) == 1:
        return GGUF_F32
    return GGUF_Q8_0 if kind == GGUF_Q4_0 and name in ("token_embd.weight", "output.weight") else kind


def gguf_bytes(index, name, shape, kind):
    if kind == GGUF_F32:
        return vector(index, name, shape)
    bits = 4 if kind == GGUF_Q4_0 else 8
    grouped = kind in (GGUF_Q4_0, GGUF_Q8_0)
    codes = codes_of(index, shape, bits, grouped)
    if not grouped:
        x = float_values(codes)
        return x.astype(np.float16) if kind == GGUF_F16 else bf16(x)
    groups = codes.reshape(-1, GROUP)
    if bits == 4:
        unsigned = (groups + 8).astype(np.uint8)
        groups = unsigned[:, :16] | unsigned[:, 16:] << 4
    scales = np.full((len(groups), 1), SCALES[bits], np.float16)
    return np.concatenate([scales.view(np.uint8), groups.view(np.uint8)], axis=1)


def write_gguf(c, path, kind):
    """Matrices in `kind`."""
    tensors, offset, infos = list(shapes(c)), 0, b""
    for _, name, shape in tensors:
        stored = stored_type(kind, name, shape)
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", stored, offset)
        elements, size = GGUF_BLOCKS[stored]
        offset += (int(np.prod(shape)) // elements * size + 31) // 32 * 32
    fields = metadata(c, GGUF_FILE_TYPES[kind])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(field(key, value) for key, value in fields.items()) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for index, (_, name, shape) in enumerate(tensors):
            data = gguf_bytes(index, name, shape, stored_type(kind, name, shape))
            file.write(data.tobytes() + bytes(-data.nbytes % 32))


def packed_words(codes, bits):
    """Codes of a row side by side in words, the first one lowest, as unsigned numbers."""
    unsigned = (codes.astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
    return unsigned if bits == 8 else unsigned[:, ::2] | unsigned[:, 1::2] << 4


def safetensors(c, bits):
    """(name, type, shape, function that makes the array) of each tensor; matrices in `bits`, 16 = BF16."""
    for index, (name, _, shape) in enumerate(shapes(c)):
        if len(shape) == 1:
            yield name, "BF16", shape, lambda i=index, n=name, s=shape: bf16(vector(i, n, s))
        elif bits == 16 or name in ("model.embed_tokens.weight", "lm_head.weight"):
            yield name, "BF16", shape, lambda i=index, s=shape: bf16(float_values(codes_of(i, s, 8, bits < 16)))
        else:
            rows, groups = shape[0], shape[1] // GROUP
            packed = lambda i=index, s=shape: packed_words(codes_of(i, s, bits, True), bits)
            yield f"{name}_packed", "I32", (rows, groups * bits), packed
            yield f"{name}_scale", "BF16", (rows, groups), lambda s=(rows, groups): bf16(np.full(s, SCALES[bits], np.float32))
            yield f"{name}_shape", "I64", (2,), lambda s=shape: np.array(s, np.int64)


def write_safetensors(c, path, bits=16):
    header, offset, tensors = {}, 0, list(safetensors(c, bits))
    for name, dtype, shape, _ in tensors:
        size = {"BF16": 2, "I32": 4, "I64": 8}[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, _, _, make in tensors:
            file.write(make().tobytes())


def quantization(bits):
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def write_model(config, folder, weights="bf16"):
    """Writes what is not there yet."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        c = json.loads(pathlib.Path(config).read_text())
    except ValueError as error:
        raise SystemExit(f"error: {config}: {error}")
    if not isinstance(c, dict) or c.get("model_type") not in ("qwen2", "qwen3"):
        raise SystemExit(f"error: {config} is no Qwen2 or Qwen3 decoder")
    bits = {"bf16": 16, "int8": 8, "int4": 4}[weights]
    if bits < 16:
        c["quantization_config"] = quantization(bits)
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    kinds = {16: [GGUF_BF16, GGUF_F16], 8: [GGUF_Q8_0], 4: [GGUF_Q4_0]}[bits]
    names = {GGUF_BF16: "bf16", GGUF_F16: "f16", GGUF_Q8_0: "q8_0", GGUF_Q4_0: "q4_0"}
    files = [("model.safetensors", lambda path: write_safetensors(c, path, bits))]
    files += [(f"model-{names[kind]}.gguf", lambda path, kind=kind: write_gguf(c, path, kind)) for kind in kinds]
    for name, write in files:
        if not (folder / name).exists():
            write(folder / (name + ".part"))
            (folder / (name + ".part")).rename(folder / name)
    return folder


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    write_model(*sys.argv[1:])
