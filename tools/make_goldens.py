#!/usr/bin/env python3
"""Makes test/data/goldens: tiny random checkpoints and the logits Hugging Face computes with them.

Every checkpoint has the shape of a family the engine must run, with random norm weights and biases
so that a dropped bias, a swapped norm or a wrong head mapping moves the logits. The reference is
transformers in FP32 with the eager attention; see test/data/README.md for the layout.

    python3 tools/make_goldens.py            # writes test/data/goldens
    python3 tools/make_goldens.py --check    # makes them again elsewhere and compares
"""
import argparse
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "test" / "data" / "goldens"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclasses.dataclass
class Case:
    """One checkpoint. head_dim None: not written, so that hidden / heads must be used."""

    arch: str
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    tied: bool
    head_dim: int | None = None
    theta: float = 1e6
    eps: float = 1e-6
    rope: dict | None = None
    options: dict = dataclasses.field(default_factory=dict)  # further keys of config.json
    bare: bool = False  # saved as the model without its head: no prefix in the names of tensors
    tokens: int = 49  # three pages of 16 and one more
    shard_bytes: int | None = None
    # config.json as released in 2024: "torch_dtype", rope "type", no layer_types where some slide
    old_keys: bool = False
    dtypes: tuple = ("f32",)


# The attention groups (heads / kv_heads) are 1, 2, 5, 7 and 8, as in the released models.
CASES = {
    "qwen2-gqa7-d8": Case("Qwen2", 56, 7, 1, 40, 120, tied=True, dtypes=("f32", "bf16", "f16")),
    "qwen2-gqa1-d64": Case("Qwen2", 64, 1, 1, 40, 96, tied=False, theta=1e4),
    "qwen2-gqa2-yarn": Case(
        "Qwen2", 48, 6, 3, 40, 104, tied=True,
        # Shorter than the input: the scaling holds for every position, not for the late ones only.
        rope={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24},
        old_keys=True,
    ),
    "qwen3-gqa2-d128": Case(
        "Qwen3", 32, 2, 1, 40, 96, tied=True, head_dim=128, dtypes=("f32", "bf16", "f16")
    ),
    "qwen3-gqa2-d64-long": Case("Qwen3", 24, 4, 2, 40, 96, tied=False, head_dim=64, tokens=150),
    "qwen3-gqa5-d16-sharded": Case(
        "Qwen3", 24, 10, 2, 40, 112, tied=False, head_dim=16, eps=1e-2, shard_bytes=80_000
    ),
    "qwen3-gqa8-d16": Case("Qwen3", 40, 16, 2, 24, 128, tied=True, head_dim=16, theta=5e6),
    "qwen3-gqa2-d64-yarn": Case(
        "Qwen3", 24, 2, 1, 40, 96, tied=False, head_dim=64, theta=1e4,
        # Pairs 0..3 are unscaled, pairs 16.. are fully scaled, the ramp lies between.
        rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    ),
    "llama-gqa8-d8": Case("Llama", 64, 8, 1, 40, 96, tied=False, theta=5e5, eps=1e-5),
    "llama-gqa2-llama3": Case(
        "Llama", 32, 2, 1, 24, 64, tied=True, head_dim=32, theta=1e4,
        # Wavelengths up to 64 stay, those from 256 on are stretched, the others in part.
        rope={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 256},
    ),
    "qwen2-gqa2-linear": Case(
        "Qwen2", 32, 2, 1, 24, 64, tied=True, rope={"type": "linear", "factor": 4.0}, old_keys=True
    ),
    # The input is longer than the trained length, so the table belongs to its 49 tokens.
    "llama-gqa2-dynamic": Case(
        "Llama", 32, 2, 1, 24, 64, tied=True, theta=1e4, rope={"rope_type": "dynamic", "factor": 4.0},
        options={"max_position_embeddings": 24},
    ),
    "llama-gqa2-longrope": Case(
        "Llama", 32, 2, 1, 24, 64, tied=True, theta=1e4,
        rope={"rope_type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(8)],
              "long_factor": [1.0 + 0.75 * i for i in range(8)]},
        options={"original_max_position_embeddings": 48},
    ),
    "qwen2-gqa2-yarn-mscale": Case(
        "Qwen2", 32, 2, 1, 24, 64, tied=True,
        rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "mscale": 1.5,
              "mscale_all_dim": 0.5},
    ),
    # One layer of two slides; 150 tokens outgrow the window on all layouts of pages.
    "qwen3-gqa2-d16-sliding": Case(
        "Qwen3", 32, 4, 2, 24, 64, tied=True, head_dim=16, tokens=150,
        options={"use_sliding_window": True, "sliding_window": 33, "max_window_layers": 1},
    ),
    "qwen2-gqa2-sliding": Case(
        "Qwen2", 32, 4, 2, 24, 64, tied=True, old_keys=True,
        options={"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "mistral-gqa2-sliding": Case(
        "Mistral", 32, 4, 2, 24, 64, tied=False, theta=1e4, options={"sliding_window": 15}
    ),
    "qwen3-gqa2-d16-bare": Case("Qwen3", 32, 4, 2, 24, 64, tied=True, head_dim=16, bare=True),
    # A size of head for tensor cores, and a window less than a tile of theirs.
    "qwen3-gqa2-d64-sliding": Case(
        "Qwen3", 24, 2, 1, 24, 64, tied=True, head_dim=64, dtypes=("bf16",),
        options={"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
}


def make_config(case):
    options = dict(
        vocab_size=case.vocab,
        hidden_size=case.hidden,
        intermediate_size=case.intermediate,
        num_hidden_layers=2,
        num_attention_heads=case.heads,
        num_key_value_heads=case.kv_heads,
        max_position_embeddings=256,
        rope_theta=case.theta,
        rms_norm_eps=case.eps,
        tie_word_embeddings=case.tied,
        bos_token_id=0,
        eos_token_id=1,
    )
    if case.head_dim is not None:
        options["head_dim"] = case.head_dim
    if case.rope is not None:
        options.update(rope_scaling=dict(case.rope))
        if "original_max_position_embeddings" in case.rope:
            length = case.rope["original_max_position_embeddings"] * case.rope["factor"]
            options.update(max_position_embeddings=int(length))
    options.update(case.options)
    return getattr(transformers, case.arch + "Config")(**options)


def randomise(model, tied, generator):
    """Scales that keep attention scores around 2 and logits in the single digits."""
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        fan_in = parameter.shape[-1]
        if name.endswith("norm.weight"):
            value = 1 + 0.25 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "q_proj" in name or "k_proj" in name:
            value = 1.4 * noise / fan_in**0.5
        elif "lm_head" in name or ("embed_tokens" in name and tied):
            value = 2.5 * noise / fan_in**0.5
        elif "embed_tokens" in name:
            value = noise
        else:
            value = 1.2 * noise / fan_in**0.5
        parameter.data.copy_(value)


def use_old_keys(path):
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    if config["use_sliding_window"]:
        config.pop("layer_types")
    if config["rope_scaling"] is not None:
        config["rope_scaling"].pop("rope_type", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_case(case, dtype, seed, folder):
    generator = torch.Generator().manual_seed(seed)
    model_class = getattr(transformers, case.arch + "ForCausalLM")
    config = make_config(case)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    randomise(model, case.tied, generator)
    ids = torch.randint(2, case.vocab, (case.tokens,), generator=generator)

    model = model.to(DTYPES[dtype])
    options = {} if case.shard_bytes is None else {"max_shard_size": case.shard_bytes}
    saved = model.model if case.bare else model
    saved.save_pretrained(folder, safe_serialization=True, **options)
    for path in folder.iterdir():
        path.chmod(0o644)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.old_keys:
        use_old_keys(folder / "config.json")

    # From here on the file's own (rounded) weights, in FP32.
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    with torch.no_grad():
        logits = model.eval()(ids[None]).logits[0]
    assert 1 < logits.abs().max() < 30, logits.abs().max()
    np.save(folder / "logits.npy", logits.numpy().astype(np.float32))
    rows = [" ".join(map(str, row.tolist())) for row in ids.split(16)]
    (folder / "ids.txt").write_text("\n".join(rows) + "\n")


def write_all(root):
    for seed, (name, case) in enumerate(CASES.items(), start=20250):
        for dtype in case.dtypes:
            folder = root / f"{name}-{dtype}"
            folder.mkdir(parents=True)
            write_case(case, dtype, seed, folder)


def compare(made, kept):
    """Problems between two golden folders: weights to the bit, logits within float noise."""
    names = {p.relative_to(made) for p in made.rglob("*") if p.is_file()}
    names_kept = {p.relative_to(kept) for p in kept.rglob("*") if p.is_file()}
    problems = [f"only on one side: {name}" for name in sorted(names ^ names_kept)]
    for name in sorted(names & names_kept):
        if name.suffix == ".npy":
            a, b = np.load(made / name), np.load(kept / name)
            if a.shape != b.shape or np.abs(a - b).max() > 2e-5:
                problems.append(f"logits differ: {name}")
        elif name.name == "config.json":
            a, b = (json.loads((folder / name).read_text()) for folder in (made, kept))
            a.pop("transformers_version"), b.pop("transformers_version")
            if a != b:
                problems.append(f"differs: {name}")
        elif (made / name).read_bytes() != (kept / name).read_bytes():
            problems.append(f"differs: {name}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch) / "goldens"
        write_all(made)
        if check:
            problems = compare(made, GOLDENS)
            print("\n".join(problems) or "goldens: equal")
            return 1 if problems else 0
        shutil.rmtree(GOLDENS, ignore_errors=True)
        shutil.copytree(made, GOLDENS)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {GOLDENS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
