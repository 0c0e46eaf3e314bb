#!/usr/bin/env python3
"""Trains the two small chat models in demo/models from nothing and writes them as Hugging Face folders.

    pip install torch transformers tokenizers
    python tools/train_demo_models.py --model all                  # train, save, evaluate, write the model cards
    python tools/train_demo_models.py --model qwen3 --eval-only    # measure a saved folder again

The data is made by demo_data.py while training runs, the tokenizer is a byte-level BPE trained on the same data, and the
networks are Qwen2ForCausalLM and Qwen3ForCausalLM, three million weights each. A seed and a number of steps decide
everything; one idle CPU core needs about an hour per model. What is published is measured on the saved BF16 files
through transformers, or kuiper_batch with --programs, by greedy decoding, on operands and lists that training never saw,
and in wordings that it never saw.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import demo_batch
import demo_card
import demo_data
import demo_facts
import demo_tokenizer
from demo_network import Learner, Network, save_weights

DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MAX_REGULAR_VOCAB = 1500
EVAL_SEED = 2026  # one test set for every run
TURN_WEIGHTS = {"qwen2.5": [40, 25, 20, 15], "qwen3": [80, 10, 7, 3]}  # qwen3 learns from the last turn only


# --- chat format: text pieces and whether the model is trained on them ------------------------------------------------

def render(family, chat, thinking, with_answer=True):
    """[(text, is_target)] of a conversation, equal to the family's official chat template."""
    head = chat.system if chat.system is not None else DEFAULT_SYSTEM if family == "qwen2.5" else None
    pieces = [(f"<|im_start|>system\n{head}<|im_end|>\n", False)] if head is not None else []
    for i, item in enumerate(chat.turns):
        last = i + 1 == len(chat.turns)
        prompt = f"<|im_start|>user\n{item.question}<|im_end|>\n<|im_start|>assistant\n"
        answer = item.reply(family == "qwen3" and thinking and last)
        if family == "qwen3" and last:
            if thinking:
                answer = f"<think>\n{item.thought}\n</think>\n\n{answer}"
            else:
                prompt += "<think>\n\n</think>\n\n"
        pieces.append((prompt, False))
        if not last or with_answer:
            pieces.append((answer + "<|im_end|>", last or family == "qwen2.5"))
            pieces.append(("\n", False))
    return pieces


def encode(tokenizer, conversations):
    """[(ids, targets)]; a target is the next token where it is trained on, else -100."""
    texts = [text for pieces in conversations for text, _ in pieces]
    encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
    samples = []
    for pieces in conversations:
        ids, mask = [], []
        for _, is_target in pieces:
            piece = next(encoded).ids
            ids += piece
            mask += [is_target] * len(piece)
        targets = [t if m else -100 for t, m in zip(ids[1:], mask[1:])] + [-100]
        samples.append((ids, targets))
    return samples


# --- tokenizer --------------------------------------------------------------------------------------------------------

def train_tokenizer(family, seed):
    rng = random.Random(seed)
    corpus = []
    for _ in range(40000):
        chat = demo_data.draw_chat(rng, f"tiny-{family}", [1, 0, 0, 0])
        corpus += [chat.system or "", "system\n", "user\n" + chat.turns[0].question, "assistant\n", chat.turns[0].answer]
        corpus += [DEFAULT_SYSTEM] if family == "qwen2.5" else ["\n" + chat.turns[0].thought + "\n", "\n\n"]
    return demo_tokenizer.train(corpus, MAX_REGULAR_VOCAB, with_thinking=family == "qwen3")


def make_config(family, tokenizer):
    end, eot = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    config = {
        "architectures": ["Qwen2ForCausalLM" if family == "qwen2.5" else "Qwen3ForCausalLM"],
        "attention_dropout": 0.0, "bos_token_id": eot, "eos_token_id": end, "hidden_act": "silu", "hidden_size": 256,
        "initializer_range": 0.02, "intermediate_size": 512, "max_position_embeddings": 4096, "max_window_layers": 4,
        "model_type": "qwen2" if family == "qwen2.5" else "qwen3", "num_attention_heads": 4, "num_hidden_layers": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
        # padded past the tokenizer, as the large models are
        "vocab_size": (tokenizer.get_vocab_size() + 16 + 63) // 64 * 64,
    }
    if family == "qwen3":
        config |= {"attention_bias": False, "head_dim": 64, "num_attention_heads": 6, "rope_scaling": None}
    return dict(sorted(config.items()))


# --- training ---------------------------------------------------------------------------------------------------------

def batches(family, tokenizer, seed, tokens_per_batch, shares):
    """Endless (ids, rows, targets); conversations of similar length share a batch, so little is padding."""
    rng = random.Random(seed)
    while True:
        chats = [demo_data.draw_chat(rng, f"tiny-{family}", TURN_WEIGHTS[family], shares=shares) for _ in range(3000)]
        samples = encode(tokenizer, [render(family, c, thinking=rng.random() < 0.5) for c in chats])
        samples.sort(key=lambda s: len(s[0]))
        pool = [[]]
        for s in samples:
            if len(s[0]) * (len(pool[-1]) + 1) > tokens_per_batch and pool[-1]:
                pool.append([])
            pool[-1].append(s)
        rng.shuffle(pool)
        yield from map(collate, pool)


def collate(samples):
    width = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in samples])
    targets = torch.tensor([t + [-100] * (width - len(t)) for _, t in samples]).flatten()
    rows = (targets != -100).nonzero().flatten()
    return ids, rows, targets[rows]


@torch.no_grad()
def quick_accuracy(network, tokenizer, family, seed, n=50):
    """Share of held-out answers of which every token is the likeliest one: what greedy decoding would reproduce.
    By kind; "+" with a thought before, "*" in new wordings."""
    result = {}
    for kind in demo_data.KINDS:
        for thinking in ((True, False) if family == "qwen3" else (False,)):
            for new in (False, True):
                rng = random.Random(seed)
                items = [demo_data.draw(kind, rng, True, f"tiny-{family}", new) for _ in range(n)]
                samples = encode(tokenizer, [render(family, demo_data.Chat(None, [i]), thinking) for i in items])
                ids, rows, targets = collate(samples)
                wrong = rows[network(ids, rows).argmax(-1) != targets] // ids.shape[1]
                result[kind + "+" * thinking + "*" * new] = 1 - len(set(wrong.tolist())) / n
    return result


def train(family, args, out):
    torch.manual_seed(args.seed)
    old = out / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(old)) if args.resume else train_tokenizer(family, args.seed)
    config = make_config(family, tokenizer)
    network = Network(config)
    if args.resume:
        from safetensors.torch import load_file
        network.load_state_dict({n: w.float() for n, w in load_file(out / "model.safetensors").items()})
    learner = Learner(network)
    token_weight = torch.ones(config["vocab_size"])
    token_weight[config["eos_token_id"]] = 4.0  # to stop at the right place is one token of many, and hard when counting
    count = sum(p.numel() for p in network.parameters())
    print(f"{family}: {count} weights, {tokenizer.get_vocab_size()} tokens, vocab_size {config['vocab_size']}", flush=True)
    begin, seen, mean_loss, step = time.time(), 0, 0.0, 0
    data = batches(family, tokenizer, args.seed + 1, args.batch_tokens, args.shares)
    for step, (ids, rows, targets) in enumerate(data, 1):
        done = max(step / args.steps, (time.time() - begin) / 60 / args.minutes if args.minutes else 0)
        rate = args.rate * min(1.0, step / 50, (1 - done) / 0.8) if done < 1 else 0.0
        loss = F.cross_entropy(network(ids, rows).float(), targets, token_weight)
        loss.backward()
        learner.step(rate, step)
        seen, mean_loss = seen + ids.numel(), 0.98 * mean_loss + 0.02 * loss.item()
        if step % args.report_every == 0 or done >= 1:
            scores = quick_accuracy(learner.average, tokenizer, family, args.seed + 2)
            print(f"{family} step {step} {done:.0%} tokens {seen / 1e6:.1f}M {(time.time() - begin) / 60:.1f} min "
                  f"loss {mean_loss:.4f} | " + " ".join(f"{k} {v:.2f}" for k, v in scores.items()), flush=True)
            save(learner.average, tokenizer, config, family, out)
        if done >= 1:
            break
    record = out / "training.json"
    stages = json.loads(record.read_text())["stages"] if args.resume else []
    stages.append({"seed": args.seed, "steps": step, "tokens": seen, "batch_tokens": args.batch_tokens, "rate": args.rate}
                  | ({"shares": args.shares} if args.shares else {}))
    record.write_text(json.dumps({"weights": count, "stages": stages}, indent=2) + "\n")


def save(network, tokenizer, config, family, out):
    save_weights(network, out)
    tokenizer.save(str(out / "tokenizer.json"))
    for name, data in (("config", config), ("generation_config", demo_card.generation_config(family, config)),
                       ("tokenizer_config", demo_card.tokenizer_config(family, tokenizer, config))):
        (out / f"{name}.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


# --- evaluation of the saved files ------------------------------------------------------------------------------------

def held_out_chats(kind, family, n, new=False):
    """Up to n different held-out questions of one kind, `new` in held-out wordings too; `kind` None mixes all kinds into
    chats of three turns."""
    rng, seen, chats = random.Random(EVAL_SEED), set(), []
    for _ in range(20 * n):
        kinds = [kind] if kind else rng.choices(list(demo_data.KINDS), k=3)
        items = [demo_data.draw(k, rng, True, f"tiny-{family}", new) for k in kinds]
        if items[-1].question not in seen and len(chats) < n:
            seen.add(items[-1].question)
            chats.append(demo_data.Chat(None if kind else rng.choice([None, *demo_data.SYSTEM_PROMPTS]), items))
    return chats


def prompt_of(hf_tokenizer, chat, thinking):
    messages = [{"role": "system", "content": chat.system}] if chat.system is not None else []
    for item in chat.turns:
        messages += [{"role": "user", "content": item.question}, {"role": "assistant", "content": item.reply(False)}]
    return hf_tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True,
                                            enable_thinking=thinking)


@torch.no_grad()
def accuracy(model, hf_tokenizer, family, chats, thinking):
    """Greedy decoding from the official chat template; an answer counts when it is equal to the expected text."""
    prompts = [prompt_of(hf_tokenizer, c, thinking) for c in chats]
    for prompt, chat in zip(prompts, chats):
        assert prompt == "".join(text for text, _ in render(family, chat, thinking, with_answer=False))
    right = 0
    order = sorted(range(len(chats)), key=lambda i: len(prompts[i]))
    for part in (order[i:i + 200] for i in range(0, len(order), 200)):
        batch = hf_tokenizer([prompts[i] for i in part], return_tensors="pt", padding=True, padding_side="left")
        out = model.generate(**batch, do_sample=False, temperature=None, top_p=None, top_k=None, max_new_tokens=300,
                             repetition_penalty=1.0)
        for i, text in zip(part, hf_tokenizer.batch_decode(out[:, batch["input_ids"].shape[1]:])):
            text = text.split("<|im_end|>")[0]
            if family == "qwen3" and thinking:
                text = text.split("</think>\n\n")[-1] if text.startswith("<think>\n") else "no thought"
            right += text == chats[i].turns[-1].reply(family == "qwen3" and thinking)
    return right / len(chats)


def evaluate(family, args, out):
    if args.programs:
        measure = lambda chats, thinking: demo_batch.accuracy(
            args.programs, out, [demo_batch.request(c, thinking) for c in chats],
            [c.turns[-1].reply(family == "qwen3" and thinking) for c in chats], args.threads)
    else:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16).eval()
        hf_tokenizer = AutoTokenizer.from_pretrained(out)
        measure = lambda chats, thinking: accuracy(model, hf_tokenizer, family, chats, thinking)
    table = []
    for kind in [*demo_data.KINDS, None]:
        table.append([kind or "third turn of a chat"])
        for new in (False, True):
            chats = held_out_chats(kind, family, args.eval_size, new)
            modes = (True, False) if family == "qwen3" else (False,)
            table[-1] += [len(chats), *(measure(chats, m) for m in modes)]
        print(demo_card.table_line(table[-1]), flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["qwen2.5", "qwen3", "all"], default="all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "demo" / "models",
                        help="folder that receives tiny-qwen2.5 and tiny-qwen3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--minutes", type=float, default=0, help="end earlier; the result then depends on the machine")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--report-every", type=int, default=250)
    parser.add_argument("--eval-size", type=int, default=200, help="held-out questions per kind")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rates")
    parser.add_argument("--shares", type=json.loads, default={},
                        help="JSON object: kinds of task and their shares, where not those of demo_data.KINDS")
    parser.add_argument("--resume", action="store_true", help="go on from the weights and the tokenizer in the folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--eval-only", action="store_true")
    parser.add_argument("--programs", type=Path, help="folder of kuiper_batch: measure with it, not with transformers")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(args.threads)
    for family in ["qwen2.5", "qwen3"] if args.model == "all" else [args.model]:
        out = args.out / f"tiny-{family}"
        if not args.eval_only:
            train(family, args, out)
        table = evaluate(family, args, out)
        read = lambda name: json.loads((out / name).read_text())
        vocab = Tokenizer.from_file(str(out / "tokenizer.json")).get_vocab_size()
        demo_card.write_card(family, out, table, read("training.json"), read("config.json"), vocab,
                             len(demo_facts.FACTS), demo_data, "`kuiper_batch`" if args.programs else "transformers")


if __name__ == "__main__":
    main()
