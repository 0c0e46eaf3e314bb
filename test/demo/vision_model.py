"""A random Qwen3-VL of a few thousand weights in Hugging Face's layout, with the tokenizer of a bundled
model, and pictures to show it. Uses only the standard library."""
import json
import os
import random
import shutil
import struct
import zlib

TEXT = {"attention_bias": False, "head_dim": 16, "hidden_act": "silu", "hidden_size": 32,
        "intermediate_size": 32, "max_position_embeddings": 4096, "num_attention_heads": 2,
        "num_hidden_layers": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2],
                         "rope_type": "default"},
        "model_type": "qwen3_vl_text", "tie_word_embeddings": True}
VISION = {"deepstack_visual_indexes": [0, 1], "depth": 2, "hidden_act": "gelu_pytorch_tanh",
          "hidden_size": 16, "in_channels": 3, "intermediate_size": 24, "num_heads": 2,
          "num_position_embeddings": 25, "out_hidden_size": 32, "patch_size": 16,
          "spatial_merge_size": 2, "temporal_patch_size": 2, "model_type": "qwen3_vl"}
PROCESSOR = {"size": {"shortest_edge": 1024, "longest_edge": 262144}, "patch_size": 16,
             "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5] * 3,
             "image_std": [0.5] * 3}


def shapes(vocab, depth):
    """{name: shape} of all tensors, with so many layers of the tower."""
    h, f, d = TEXT["hidden_size"], TEXT["intermediate_size"], TEXT["head_dim"]
    q, kv = TEXT["num_attention_heads"] * d, TEXT["num_key_value_heads"] * d
    text, found = "model.language_model.", {}
    found[text + "embed_tokens.weight"] = [vocab, h]
    found[text + "norm.weight"] = [h]
    for i in range(TEXT["num_hidden_layers"]):
        layer = text + f"layers.{i}."
        found.update({layer + "input_layernorm.weight": [h],
                      layer + "post_attention_layernorm.weight": [h],
                      layer + "self_attn.q_proj.weight": [q, h],
                      layer + "self_attn.k_proj.weight": [kv, h],
                      layer + "self_attn.v_proj.weight": [kv, h],
                      layer + "self_attn.o_proj.weight": [h, q],
                      layer + "self_attn.q_norm.weight": [d],
                      layer + "self_attn.k_norm.weight": [d],
                      layer + "mlp.gate_proj.weight": [f, h], layer + "mlp.up_proj.weight": [f, h],
                      layer + "mlp.down_proj.weight": [h, f]})
    v, patch = VISION["hidden_size"], VISION["patch_size"]

    def linear(name, rows, columns):
        found[name + ".weight"], found[name + ".bias"] = [rows, columns], [rows]

    def norm(name, size):
        found[name + ".weight"], found[name + ".bias"] = [size], [size]

    tower = "model.visual."
    found[tower + "patch_embed.proj.weight"] = [v, 3, 2, patch, patch]
    found[tower + "patch_embed.proj.bias"] = [v]
    found[tower + "pos_embed.weight"] = [VISION["num_position_embeddings"], v]
    for i in range(depth):
        block = tower + f"blocks.{i}."
        norm(block + "norm1", v)
        norm(block + "norm2", v)
        linear(block + "attn.qkv", 3 * v, v)
        linear(block + "attn.proj", v, v)
        linear(block + "mlp.linear_fc1", VISION["intermediate_size"], v)
        linear(block + "mlp.linear_fc2", v, VISION["intermediate_size"])
    mergers = [(tower + "merger", v)]
    mergers += [(tower + f"deepstack_merger_list.{k}", 4 * v)
                for k in range(len(VISION["deepstack_visual_indexes"]))]
    for merger, size in mergers:
        norm(merger + ".norm", size)
        linear(merger + ".linear_fc1", 4 * v, 4 * v)
        linear(merger + ".linear_fc2", VISION["out_hidden_size"], 4 * v)
    return found


def write_safetensors(path, tensors):
    """`tensors`: {name: shape}; values are drawn, but norms, which are 1, and biases, which are 0."""
    draw = random.Random(1)
    header, data = {}, bytearray()
    for name, shape in tensors.items():
        count = 1
        for side in shape:
            count *= side
        is_norm = len(shape) == 1 and "norm" in name and name.endswith(".weight")
        values = [1.0] * count if is_norm else (
            [0.0] * count if name.endswith(".bias") else [draw.gauss(0, 0.2) for _ in range(count)])
        begin = len(data)
        data += struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_model(folder, tokenizer_of, depth=VISION["depth"]):
    """A model in `folder`, with so many layers of the tower; `tokenizer_of` is the folder of one whose
    tokenizer has the vision tokens."""
    os.makedirs(folder, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer_of, name), folder)
    config = os.path.join(folder, "tokenizer_config.json")
    with open(config) as f:
        special = json.load(f)
    special.pop("chat_template", None)  # the built-in renderer of the family writes prompts
    with open(config, "w") as f:
        json.dump(special, f)
    with open(os.path.join(folder, "tokenizer.json")) as f:
        added = {token["content"]: token["id"] for token in json.load(f)["added_tokens"]}
    with open(os.path.join(tokenizer_of, "config.json")) as f:
        vocab = json.load(f)["vocab_size"]
    text = {**TEXT, "vocab_size": vocab, "bos_token_id": added["<|endoftext|>"],
            "eos_token_id": added["<|im_end|>"]}
    whole = {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
             "torch_dtype": "float32", "tie_word_embeddings": True, "text_config": text,
             "vision_config": {**VISION, "depth": depth}, "image_token_id": added["<|image_pad|>"],
             "video_token_id": added["<|video_pad|>"],
             "vision_start_token_id": added["<|vision_start|>"],
             "vision_end_token_id": added["<|vision_end|>"]}
    for name, content in (("config.json", whole), ("preprocessor_config.json", PROCESSOR)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f)
    write_safetensors(os.path.join(folder, "model.safetensors"), shapes(vocab, depth))
    return folder


def png(width, height, color):
    """The bytes of a picture: `color` fading into its opposite from left to right."""
    row = bytes((c * (width - x) + (255 - c) * x) // width for x in range(width) for c in color)
    return png_of(width, height, row * height)


def png_of(width, height, rgb):
    """The bytes of a picture of the pixels `rgb`, row by row."""
    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content
                + struct.pack(">I", zlib.crc32(kind + content)))

    rows = b"".join(b"\0" + rgb[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
