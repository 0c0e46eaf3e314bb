"""A model that calls a tool whenever it is offered one and tells the sum when a result is there, so that agents of any
client go their whole way. It knows no more than which token follows another one, and the chat template says with which
it begins. Uses only the standard library."""
import json
import os
import shutil
import struct

ANSWER = "The sum is 5."  # of every prompt without tools, or with a tool's result at its end
ARGUMENTS = {"a": 2, "b": 3}  # of the call of the tool `add`
CALLS, ANSWERS = "<|calls|>", "<|answers|>"
CHAINS = ([CALLS, "<tool_call>", '\n{"name": "add", "arguments": ', json.dumps(ARGUMENTS), "}\n", "</tool_call>", "<|im_end|>"],
          [ANSWERS, *ANSWER.partition("sum")[:2], ANSWER.partition("sum")[2], "<|im_end|>"])
BEGIN = """{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {{- '""" + CALLS + "' if tools and messages[-1].role != 'tool' else '" + ANSWERS + """' }}
{%- endif %}"""
SIZES = {"head_dim": 16, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
         "max_window_layers": 1, "num_key_value_heads": 1, "tie_word_embeddings": False, "torch_dtype": "float32"}


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write(path, content):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f)


def tensors(vocab, next_of):
    """{name: rows}: the layer adds nothing. Each token of `next_of` has a column of its own, where the head finds the
    next one; column 0 is that of all others, and nothing follows them."""
    h, f, d = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["head_dim"]
    q, layer = SIZES["num_attention_heads"] * d, "model.layers.0."
    column = {token: i + 1 for i, token in enumerate(next_of)}
    embedding = [[float(i == column.get(token, 0)) for i in range(h)] for token in range(vocab)]
    head = [[0.0] * h for _ in range(vocab)]
    for token, following in next_of.items():
        head[following][column[token]] = 100.0
    zeros = {"self_attn.q_proj": (q, h), "self_attn.k_proj": (d, h), "self_attn.v_proj": (d, h), "self_attn.o_proj": (h, q),
             "mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f)}
    ones = {layer + "input_layernorm": h, layer + "post_attention_layernorm": h, layer + "self_attn.q_norm": d,
            layer + "self_attn.k_norm": d, "model.norm": h}
    return {"model.embed_tokens": embedding, "lm_head": head, **{name: [1.0] * size for name, size in ones.items()},
            **{layer + name: [[0.0] * columns] * rows for name, (rows, columns) in zeros.items()}}


def write_safetensors(path, rows_of):
    header, data = {}, bytearray()
    for name, rows in rows_of.items():
        matrix = isinstance(rows[0], list)
        begin = len(data)
        for row in rows if matrix else [rows]:
            data += struct.pack(f"<{len(row)}f", *row)
        header[name + ".weight"] = {"dtype": "F32", "shape": [len(rows), len(rows[0])] if matrix else [len(rows)],
                                    "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_model(folder, base):
    """Makes the model in `folder`, with the tokenizer and the template of the model in `base`, a Qwen3."""
    os.makedirs(folder)
    shutil.copy(os.path.join(base, "generation_config.json"), folder)
    config, tokenizer = (read(os.path.join(base, name)) for name in ("config.json", "tokenizer.json"))
    words = read(os.path.join(base, "tokenizer_config.json"))
    id_of = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    for piece in (piece for chain in CHAINS for piece in chain):
        if piece not in id_of:
            id_of[piece] = max(id_of.values()) + 1
            token = {"content": piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                     "special": piece in (CALLS, ANSWERS)}
            tokenizer["added_tokens"].append({"id": id_of[piece], **token})
            words["added_tokens_decoder"][str(id_of[piece])] = token
    words["chat_template"] = words["chat_template"].partition("{%- if add_generation_prompt %}")[0] + BEGIN
    write(os.path.join(folder, "config.json"), {**config, **SIZES})
    write(os.path.join(folder, "tokenizer.json"), tokenizer)
    write(os.path.join(folder, "tokenizer_config.json"), words)
    next_of = {id_of[piece]: id_of[following] for chain in CHAINS for piece, following in zip(chain, chain[1:])}
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors(config["vocab_size"], next_of))
    return folder
