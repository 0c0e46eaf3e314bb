#!/usr/bin/env python3
"""Trains demo/models/tiny-qwen3-vl from nothing and writes it as a Hugging Face folder.

    pip install torch transformers tokenizers pillow
    python tools/train_demo_vl.py                  # trains and saves
    python tools/train_demo_vl.py --resume         # goes on from the last checkpoint
    python tools/eval_demo_vl.py                   # measures the saved folder and writes the model card

The pictures are drawn by demo_scenes.py while training runs, the questions come from demo_vl_data.py, and the network is
Qwen3VLForConditionalGeneration of three million weights. A seed and a number of steps decide everything. What is published
is measured on the saved BF16 files by tools/eval_demo_vl.py.
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

import demo_tokenizer
import demo_vl_card
import demo_vl_data
from demo_network import Learner, is_saved, save_weights
from demo_vl_batch import MARKS, NUM_HINTS, Batches, Encoder
from demo_vl_network import VlNetwork

ROOT = Path(__file__).parent.parent
MAX_REGULAR_VOCAB = 700


def make_config(tokenizer):
    ids = {name: tokenizer.token_to_id(f"<|{name}|>") for name in
           ("im_end", "endoftext", "image_pad", "video_pad", "vision_start", "vision_end")}
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": ids["endoftext"], "dtype": "bfloat16",
        "eos_token_id": ids["im_end"], "head_dim": 64, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.02,
        "intermediate_size": 256, "max_position_embeddings": 4096, "model_type": "qwen3_vl_text", "num_attention_heads": 4,
        "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default"},
        "rope_theta": 10000.0, "tie_word_embeddings": True, "use_cache": True,
        # padded past the tokenizer, as the large models are
        "vocab_size": (tokenizer.get_vocab_size() + 16 + 63) // 64 * 64,
    }
    vision = {
        "deepstack_visual_indexes": [1, 2], "depth": 4, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 128,
        "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 256, "model_type": "qwen3_vl", "num_heads": 2,
        "num_position_embeddings": 64, "out_hidden_size": text["hidden_size"], "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": ids["image_pad"], "model_type": "qwen3_vl",
        "text_config": text, "tie_word_embeddings": True, "video_token_id": ids["video_pad"], "vision_config": vision,
        "vision_end_token_id": ids["vision_end"], "vision_start_token_id": ids["vision_start"],
    }


def held_out_batches(tokenizer, seed, num):
    """{skill: batch} of scenes and wordings that training does not draw."""
    result = {}
    for skill in demo_vl_data.SKILLS:
        rng, samples = random.Random(seed), []
        while len(samples) < num:
            scene = demo_vl_data.any_scene(rng, True)
            turn = demo_vl_data.ask(rng, scene, True, skill)
            if turn:
                samples.append(demo_vl_data.Sample(None, [scene], [[([turn[0]], turn[1])]]))
        result[skill] = Encoder(tokenizer, (128, 96)).batch(samples, rng)
    return result


@torch.no_grad()
def quick_accuracy(network, batches):
    """Share of held-out answers of which every token is the likeliest one: what greedy decoding would reproduce.

    And the share of what stands in the pictures that the tower alone can name."""
    result, seen = {}, []
    for skill, batch in batches.items():
        tokens, deep, said = network.look(batch)
        wrong = batch.rows[network(batch, tokens, deep).argmax(-1) != batch.targets] // batch.ids.shape[1]
        result[skill] = 1 - len(set(wrong.tolist())) / len(batch.ids)
        marks = batch.hints[..., 0]
        seen.append((said[..., :len(MARKS)].argmax(-1) == marks)[marks > 0])
    return result, torch.cat(seen).float().mean().item()


def losses(network, batch, only_hints):
    """Of the answers, and of what the tower says about each token: without that it learns to see very slowly."""
    tokens, deep, said = network.look(batch)
    loss = 0.0
    for part, truth in zip(said.float().flatten(0, 1).split(NUM_HINTS, -1), batch.hints.flatten(0, 1).unbind(-1)):
        rare = torch.ones(part.shape[-1]).scatter(0, torch.tensor(0), 0.3)  # most tokens show nothing
        loss = loss + 0.5 * F.cross_entropy(part, truth, rare)
    return loss if only_hints else loss + F.cross_entropy(network(batch, tokens, deep).float(), batch.targets)


def train(args, out):
    torch.manual_seed(args.seed)
    saved = torch.load(args.checkpoint, weights_only=True) if args.resume else None
    if not saved:
        out.mkdir(parents=True, exist_ok=True)
        corpus = demo_vl_data.corpus(args.seed)
        demo_tokenizer.train(corpus, MAX_REGULAR_VOCAB, with_thinking=False).save(str(out / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    config = make_config(tokenizer)
    network = VlNetwork(config, sum(NUM_HINTS))
    learner = Learner(network)
    step, seconds, best, stages = 0, 0.0, 0.0, []
    if saved:
        step, seconds, best, stages = (saved[name] for name in ("step", "seconds", "best", "stages"))
        learner.load_state_dict(saved["learner"])
    stages.append({"first_step": step + 1, "seed": args.seed, "batch": args.batch, "tower_alone_to": args.look_steps})
    print(f"{tokenizer.get_vocab_size()} tokens, from step {step}", flush=True)
    tests = held_out_batches(tokenizer, args.seed + 2, args.quick_size)
    batches = torch.utils.data.DataLoader(
        Batches(str(out / "tokenizer.json"), args.seed + 1, step + 1, args.batch), batch_size=None, num_workers=1,
        prefetch_factor=8)
    begin, mean_loss = time.process_time() - seconds, None  # without the time that other programs take
    for step, batch in enumerate(batches, step + 1):
        done = max(step / args.steps, (time.process_time() - begin) / 60 / args.minutes if args.minutes else 0)
        rate = args.rate * min(1.0, step / 50, (1 - done) / 0.8) if done < 1 else 0.0
        loss = losses(network, batch, only_hints=step <= args.look_steps)
        loss.backward()
        learner.step(rate, step)
        mean_loss = loss.item() if mean_loss is None else 0.98 * mean_loss + 0.02 * loss.item()
        if step % args.report_every == 0 or done >= 1:
            scores, looked = quick_accuracy(learner.average, tests)
            seconds = time.process_time() - begin
            print(f"step {step} {done:.0%} {seconds / 60:.1f} min loss {mean_loss:.4f} | look {looked:.2f} "
                  + " ".join(f"{k} {v:.2f}" for k, v in scores.items()), flush=True)
            if sum(scores.values()) >= best:
                best = sum(scores.values())
                save_weights(learner.average, out)
            args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"step": step, "seconds": seconds, "best": best, "stages": stages, "learner": learner.state_dict()},
                       args.checkpoint)
        if done >= 1:
            break
    demo_vl_card.write_files(out, tokenizer, config)
    demo_vl_card.write_samples(out)
    weights = sum(p.numel() for n, p in network.named_parameters() if is_saved(n))
    (out / "training.json").write_text(json.dumps(
        {"weights": weights, "steps": step, "minutes": round(seconds / 60), "stages": stages}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "demo" / "models" / "tiny-qwen3-vl")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "build" / "tiny-qwen3-vl.pt", help="state of the training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2800)
    parser.add_argument("--minutes", type=float, default=0, help="end after so much processor time; the result then depends on the machine")
    parser.add_argument("--batch", type=int, default=48, help="samples of a step")
    parser.add_argument("--look-steps", type=int, default=1200, help="first steps, which train the tower alone")
    parser.add_argument("--report-every", type=int, default=100)
    parser.add_argument("--quick-size", type=int, default=100, help="held-out questions per skill while training")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rates")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(args.threads)
    train(args, args.out)


if __name__ == "__main__":
    main()
