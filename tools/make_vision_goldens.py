#!/usr/bin/env python3
"""Makes test/data/vision: what Hugging Face transformers computes with tiny random Qwen3-VL models.

Two kinds of folders, see test/data/README.md: `tiny` is a whole checkpoint with logits of prompts that
hold pictures; the others are towers whose heads have the sizes of the released models, with the output
of every stage. Their weights and all pictures are numbers of a formula (hashed), so they take no space.
The reference is FP32 with the eager attention.

    python3 tools/make_vision_goldens.py            # writes test/data/vision
    python3 tools/make_vision_goldens.py --check    # makes them again elsewhere and compares
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "test" / "data" / "vision"
TOLERANCE = 2e-5  # between machines
IMAGE_PAD, VIDEO_PAD, VISION_START, VISION_END, VOCAB = 90, 91, 92, 93, 96
PATCH_VALUES = 3 * 2 * 4 * 4  # pictures of the tests have patches of 4x4 pixels
NUM_GREEDY = 10


def hashed(name, count):
    """-> float64 [count] in [-1, 1), multiples of 2^-23: of the name and the index only."""
    seed = np.uint32(zlib.crc32(name.encode()))
    h = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + seed
    for shift, factor in ((16, 2246822519), (13, 3266489917)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)).astype(np.float64) / 2**23 - 1


def spread(name, shape):
    """-> (center, radius) of a tensor's values, so that no part of the network vanishes in the sums."""
    fan_in = int(np.prod(shape[1:]))
    if name.endswith("norm.weight") or ".norm1." in name or ".norm2." in name or "_norm." in name:
        return (1.0, 0.5) if name.endswith("weight") else (0.0, 0.5)
    if name.endswith("norm.bias") or name.endswith("bias"):
        return 0.0, 0.5
    if "embed" in name:
        return 0.0, 1.0 if len(shape) == 2 else round(2 / fan_in**0.5, 3)
    return 0.0, round((3.5 if ".qkv." in name or "q_proj" in name or "k_proj" in name else 2.0) / fan_in**0.5, 3)


def make_config(vision, text):
    base = dict(vocab_size=VOCAB, num_hidden_layers=3, intermediate_size=24, max_position_embeddings=512,
                rope_theta=1e4, bos_token_id=0, eos_token_id=1)
    tower = dict(in_channels=3, patch_size=4, temporal_patch_size=2, spatial_merge_size=2,
                 hidden_act="gelu_pytorch_tanh", out_hidden_size=text["hidden_size"])
    return transformers.Qwen3VLConfig(
        text_config={**base, **text}, vision_config={**tower, **vision}, image_token_id=IMAGE_PAD,
        video_token_id=VIDEO_PAD, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
        tie_word_embeddings=text["tie_word_embeddings"], attn_implementation="eager")


def text_part(**changes):
    rope = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
    return {**dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1, head_dim=16, rope_scaling=rope,
                   tie_word_embeddings=True), **changes}


SMALL_TEXT = text_part(hidden_size=8, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=3,
                       tie_word_embeddings=False)
# Heads of 64 and 72; deepstack of 2 and 3; sizes of tables and of the wide layers that are no power of two.
TOWERS = {
    "heads-of-64": (dict(hidden_size=64, num_heads=1, depth=3, intermediate_size=100, num_position_embeddings=49,
                         deepstack_visual_indexes=[0, 1]), SMALL_TEXT),
    "heads-of-72": (dict(hidden_size=72, num_heads=1, depth=4, intermediate_size=90, num_position_embeddings=36,
                         deepstack_visual_indexes=[0, 2, 3]), SMALL_TEXT),
}
# One token; one row, one column of tokens; odd aspect; a video.
GRIDS = [(1, 2, 2), (1, 2, 10), (1, 10, 2), (1, 6, 4), (3, 4, 2)]
TINY = (dict(hidden_size=16, num_heads=2, depth=3, intermediate_size=24, num_position_embeddings=25,
             deepstack_visual_indexes=[0, 2]), text_part())


def picture(name, grid):
    """-> [t * h * w, PATCH_VALUES]: what a processor would make of a picture."""
    count = int(np.prod(grid))
    return hashed(name, count * PATCH_VALUES).astype(np.float32).reshape(count, PATCH_VALUES)


def make_model(vision, text):
    config = make_config(vision, text)
    model = transformers.Qwen3VLForConditionalGeneration(config).eval()
    tensors = {}
    for name, parameter in model.named_parameters():
        center, radius = spread(name, tuple(parameter.shape))
        values = center + radius * hashed(name, parameter.numel())
        parameter.data.copy_(torch.from_numpy(values.astype(np.float32)).reshape(parameter.shape))
        tensors[name] = {"shape": list(parameter.shape), "center": center, "radius": radius}
    return model, tensors


def save_config(model, folder):
    model.config.architectures = ["Qwen3VLForConditionalGeneration"]
    model.config.dtype = model.config.text_config.dtype = torch.float32
    model.config.save_pretrained(folder)
    (folder / "config.json").chmod(0o644)


def write_tower(name, vision, text, folder):
    model, tensors = make_model(vision, text)
    visual = model.model.visual
    stages = {}
    for grid in GRIDS:
        key = "x".join(map(str, grid))
        patches = torch.from_numpy(picture(key, grid))
        hooks = []

        def keep(stage, module):
            hooks.append(module.register_forward_hook(
                lambda _, __, out: stages.__setitem__(f"{key}.{stage}", out.detach().numpy().copy())))

        keep("patches", visual.patch_embed)
        hooks.append(visual.blocks[0].register_forward_pre_hook(
            lambda _, args: stages.__setitem__(f"{key}.embedding", args[0].numpy().copy())))
        for i, block in enumerate(visual.blocks):
            keep(f"block{i}", block)
        keep("merger", visual.merger)
        for i, merger in enumerate(visual.deepstack_merger_list):
            keep(f"deepstack{i}", merger)
        with torch.no_grad():
            visual(patches, grid_thw=torch.tensor([grid]))
        for hook in hooks:
            hook.remove()
    folder.mkdir(parents=True)
    save_config(model, folder)
    save_file(stages, folder / "stages.safetensors")
    (folder / "stages.safetensors").chmod(0o644)
    (folder / "tensors.json").write_text(json.dumps({"tensors": tensors, "grids": GRIDS}) + "\n")
    print(f"{name}: {len(stages)} stages, largest {max(float(np.abs(v).max()) for v in stages.values()):.3g}")


def image(grid):
    """The tokens of a picture."""
    return [VISION_START] + [IMAGE_PAD] * (grid[0] * grid[1] * grid[2] // 4) + [VISION_END]


def video(grid):
    """The tokens of a video: each frame behind tokens that would tell its time."""
    ids = []
    for frame in range(grid[0]):
        ids += [40 + frame, 7, VISION_START] + [VIDEO_PAD] * (grid[1] * grid[2] // 4) + [VISION_END]
    return ids


def prompts():
    """-> {name: (ids, grids of images, grids of videos)}."""
    text = lambda name, n: [2 + int(v) for v in np.floor((hashed(name, n) + 1) / 2 * 80)]
    a, b, c, clip = (1, 4, 6), (1, 2, 10), (1, 8, 2), (3, 4, 4)
    return {
        "text": (text("text", 19), [], []),
        "start": (image(a) + text("start", 6), [a], []),
        "middle": (text("before", 5) + image(a) + text("behind", 4), [a], []),
        "end": (text("end", 7) + image(b), [b], []),
        "two": (text("two", 3) + image(b) + image(a) + text("after two", 5), [b, a], []),
        "three": (image(c) + text("x", 2) + image(a) + text("y", 1) + image(b) + text("z", 3), [c, a, b], []),
        "wide": (text("wide", 4) + image((1, 10, 14)) + text("after wide", 20), [(1, 10, 14)], []),
        "video": (text("video", 3) + video(clip) + text("after video", 5), [], [clip]),
        "both": (image(a) + text("both", 2) + video(clip) + text("after both", 4), [a], [clip]),
    }


def run_prompt(model, name, ids, images, videos):
    """-> (entry of prompts.json, logits [S, vocab])."""
    inputs = {"input_ids": torch.tensor([ids])}
    entry = {"ids": ids, "pictures": []}
    for kind, grids, values, sizes in (("image", images, "pixel_values", "image_grid_thw"),
                                       ("video", videos, "pixel_values_videos", "video_grid_thw")):
        names = [f"{name}.{kind}{i}" for i in range(len(grids))]
        entry["pictures"] += [{"kind": kind, "grid": list(g), "name": n} for g, n in zip(grids, names)]
        if grids:
            inputs[values] = torch.from_numpy(np.concatenate([picture(n, g) for n, g in zip(names, grids)]))
            inputs[sizes] = torch.tensor(grids)
    with torch.no_grad():
        positions, delta = model.model.get_rope_index(
            inputs["input_ids"], inputs.get("image_grid_thw"), inputs.get("video_grid_thw"))
        logits = model(**inputs).logits[0]
        greedy = model.generate(**inputs, do_sample=False, max_new_tokens=NUM_GREEDY, eos_token_id=VOCAB + 1,
                                pad_token_id=0)[0, len(ids):]
    top = torch.topk(logits[-1], 2).values
    entry.update(positions=positions[:, 0].tolist(), delta=int(delta[0, 0]), greedy=greedy.tolist())
    print(f"tiny {name}: {len(ids)} ids, delta {entry['delta']}, margin {float(top[0] - top[1]):.3f}")
    return entry, logits.numpy()


def write_tiny(folder):
    model, _ = make_model(*TINY)
    model.save_pretrained(folder, safe_serialization=True)
    save_config(model, folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "generation_config.json").unlink(missing_ok=True)
    entries, logits = {}, {}
    for name, (ids, images, videos) in prompts().items():
        entries[name], logits[name] = run_prompt(model, name, ids, images, videos)
    save_file(logits, folder / "logits.safetensors")
    (folder / "logits.safetensors").chmod(0o644)
    (folder / "prompts.json").write_text(json.dumps(entries) + "\n")


def write_all(root):
    for name, (vision, text) in TOWERS.items():
        write_tower(name, vision, text, root / name)
    write_tiny(root / "tiny")


def differences(root):
    """-> a line for each file under GOLDENS that is not what lies in `root`."""
    found = sorted(p.relative_to(GOLDENS) for p in GOLDENS.rglob("*") if p.is_file())
    made = sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())
    if found != made:
        return [f"other files: {set(found) ^ set(made)}"]
    lines = []
    for name in made:
        if name.suffix == ".json":
            same = (root / name).read_text() == (GOLDENS / name).read_text()
            lines += [] if same else [f"{name} differs"]
            continue
        old, new = load_file(GOLDENS / name), load_file(root / name)
        if old.keys() != new.keys():
            lines.append(f"{name}: other tensors")
            continue
        worst = max(float(np.abs(old[k] - new[k]).max()) for k in old)
        lines += [] if worst <= TOLERANCE else [f"{name}: differs by {worst}"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if not check:
        shutil.rmtree(GOLDENS, ignore_errors=True)
        write_all(GOLDENS)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        write_all(pathlib.Path(scratch))
        lines = differences(pathlib.Path(scratch))
    print("\n".join(lines) if lines else "as committed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
