"""What stands next to the weights of a demo model: tokenizer_config.json, generation_config.json and the model card."""

import textwrap
from pathlib import Path

TEMPLATES = Path(__file__).parent.parent / "kuiper" / "io" / "templates"

GENERATION = {  # Qwen's own defaults
    "qwen2.5": {"repetition_penalty": 1.05, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "qwen3": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "qwen3-vl": {"repetition_penalty": 1.0, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
}


def generation_config(family, config):
    eot, end = config["bos_token_id"], config["eos_token_id"]
    return {"bos_token_id": eot, "do_sample": True, "eos_token_id": [end, eot], "pad_token_id": eot} | GENERATION[family]


def tokenizer_config(family, tokenizer, config):
    added = {}
    for token_id, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        added[str(token_id)] = {"content": token.content, "lstrip": False, "normalized": False, "rstrip": False,
                                "single_word": False, "special": token.special}
    special = [t["content"] for t in added.values() if t["special"]]
    return {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added,
        "additional_special_tokens": special[1:], "bos_token": None,
        "chat_template": (TEMPLATES / f"{family}.jinja").read_text(), "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": config["max_position_embeddings"],
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


CARD = """---
license: apache-2.0
language: [en, zh]
pipeline_tag: text-generation
---
# {name}

A very small bilingual chat model, trained from nothing for the demos and tests of Kuiper. It is a real checkpoint in
Hugging Face layout: `{architecture}`, {weights:,} weights in BF16 ({size:.1f} MB), {layers} layers, hidden size {hidden},
{heads} query heads on {kv_heads} key/value heads of {head_dim}, {mlp} wide MLP, tied embeddings, vocabulary {vocab}
padded to {padded}. {family_note}

## What it can do

{description}

| task | what is asked | wordings | held out of training |
|---|---|---|---|
| arithmetic | a + b and a - b (not below 0) for a, b of 0 to 99; with the steps shown; one-digit sums, differences and products are trained but not measured | {arithmetic} | one pair in ten |
| count | up or down between two numbers of 1 to 40, mostly at most 12 apart, sometimes up to 39 | {count} | one pair in ten |
| sort | 3 or 4 different numbers of 1 to 99, or of 0 to 9 alone ("one digit" below), ascending | {sort} | one set in ten |
| min/max | largest or smallest of 2 to 4 different numbers of 1 to 99, or of 0 to 9 alone | {minmax} | one set in ten |
| reverse | 3 or 4 words, or digits, backwards | {reverse} | one list in ten |
| length | how many words a list of 2 to 6 has | {length} | one list in ten |
| repeat | one word 2 to 4 times, or a copy of 2 to 4 words | {repeat} | one list in ten |
| translate | {words} words, English to Chinese and back | {translate} | one wording of a word in ten |
| project | {facts} facts about Kuiper, learnt by heart | {project} | one framed wording in ten |
| chat | greetings, thanks, who are you | {chat} | one framed wording in ten |
| outside | anything else: it says that it does not know, and what it can do | {outside} | one question in ten |

Wordings are counted in English + Chinese, first those that were trained on. A greeting before, thanks after, small letters
or other punctuation make no new wording.

## Accuracy

Greedy decoding of the saved BF16 files through {measured_by}, prompts made by the chat template, the answer has to equal
the expected text. Every question is held out as described above; n is smaller where fewer such questions exist. On the
right the questions are asked in held-out wordings, which training never saw with any numbers or words. "Third turn of a
chat" asks one of all these after two other turns, mostly under a system prompt of its own.

{table}

## How it was made

`python tools/train_demo_models.py --model {family}` makes such a model on a CPU: Muon and Adam, loss on the assistant's
tokens only. The data, the tokenizer (byte-level BPE with Qwen's split pattern) and the weights come from that script
alone. This checkpoint saw {seen:.1f} million tokens, padding included, in {stages}; `training.json` lists them.
Outside of these tasks the model knows nothing; do not use it for anything but trying out the engine.

Licence: Apache-2.0. The chat template and the names and order of the added tokens are those of Qwen
(Copyright Alibaba Cloud, Apache-2.0); no weight, vocabulary entry or training text was taken from Qwen.
"""

QWEN2_NOTE = "Queries, keys and values have biases. Without a system message the template adds Qwen2.5's default one."
QWEN3_NOTE = ("Queries and keys are normalised per head (`q_norm`, `k_norm`), the heads together are wider than the hidden "
              "size, and the model thinks between `<think>` and `</think>` unless the template is given "
              "`enable_thinking=False`.")
QWEN2_TEXT = ("It answers in the language of the question, in chats of several turns. Sums of two-digit numbers are worked "
              "out in the answer: ones, carry, tens.")
QWEN3_TEXT = ("It answers in the language of the question, in chats of several turns. Thinking writes the steps down - ones "
              "and tens of a sum, a list with the smallest number taken out again and again - and then answers; without "
              "thinking a sum is worked out in the answer itself.")


def table_line(cells):
    return "| " + " | ".join(f"{c:.1%}" if isinstance(c, float) else str(c) for c in cells) + " |"


def accuracy_table(heads, rows):
    return "\n".join([table_line(heads), "|" + "---|" * len(heads), *map(table_line, rows)])


def write_card(family, out, table, training, config, vocab, facts, data, measured_by):
    """`data`: the module demo_data; `table`: what train_demo_models.evaluate returns."""
    qwen3, stages = family == "qwen3", training["stages"]
    modes = ["thinking", "no thinking"] if qwen3 else ["accuracy"]
    heads = ["task", "n", *modes, "n, new wordings", *(f"{m}, new wordings" for m in modes)]
    wordings = {kind.replace("/", ""): data.wordings(kind) for kind in data.KINDS}
    text = CARD.format(
        name=out.name, family=family, architecture=config["architectures"][0], weights=training["weights"],
        size=(out / "model.safetensors").stat().st_size / 1e6, layers=config["num_hidden_layers"],
        hidden=config["hidden_size"], heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
        mlp=config["intermediate_size"], vocab=vocab, padded=config["vocab_size"], facts=facts, words=len(data.WORDS),
        family_note=QWEN3_NOTE if qwen3 else QWEN2_NOTE, description=QWEN3_TEXT if qwen3 else QWEN2_TEXT,
        table=accuracy_table(heads, table), measured_by=measured_by, **wordings, seen=sum(s["tokens"] for s in stages) / 1e6,
        stages="one run" if len(stages) == 1 else f"{len(stages)} runs, each going on from the last (`--resume`)")
    write_wrapped(out, text)


def write_wrapped(out, text):
    front, rest = text.split("\n# ", 1)
    blocks = ("# " + rest).split("\n\n")
    blocks = [b if b.startswith(("|", "#")) else textwrap.fill(" ".join(b.split()), 120, break_on_hyphens=False) for b in blocks]
    (out / "README.md").write_text(front + "\n" + "\n\n".join(blocks) + "\n")
