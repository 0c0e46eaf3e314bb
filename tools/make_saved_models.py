#!/usr/bin/env python3
"""Saves a tiny random model of every supported family with the installed transformers, and its logits.

    python3 tools/make_saved_models.py DIR         needs transformers, torch, torchvision, pillow, numpy

Each folder of DIR holds what save_pretrained of a model wrote (config.json, generation_config.json, the
weights in BF16), ids.txt and logits.npy: float32 [T, vocab], computed in FP32 with these weights. Those of
Qwen3-VL also hold processor_config.json as the processor wrote it, image.png, and the folder video with four
frames. versions.json says what made them. test/saved_models.py compares Kuiper with such a DIR.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import PIL
import torch
import transformers
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCAB, IMAGE_PAD, VIDEO_PAD, VISION_START, VISION_END = 48, 40, 41, 42, 43
FAMILIES = ("Qwen2", "Qwen3", "Llama", "Mistral", "Qwen3VL")
SHARD_BYTES = 10000
PICTURE = 24, 32  # rows, columns; they need no scaling
IMAGE_SETTINGS = dict(patch_size=4, size=dict(shortest_edge=256, longest_edge=2048), image_mean=[0.25, 0.5, 0.5],
                      image_std=[0.5, 0.25, 0.5])
VIDEO_SETTINGS = {**IMAGE_SETTINGS, "size": dict(shortest_edge=256, longest_edge=8192)}


def make_config(family, tied):
    sizes = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=8, max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
                 tie_word_embeddings=tied)
    if family != "Qwen3VL":
        return getattr(transformers, f"{family}Config")(**sizes)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_interleaved": True, "mrope_section": [2, 1, 1]}
    tower = dict(in_channels=3, patch_size=4, temporal_patch_size=2, spatial_merge_size=2, depth=2, hidden_size=16,
                 num_heads=2, intermediate_size=24, num_position_embeddings=16, deepstack_visual_indexes=[0],
                 hidden_act="gelu_pytorch_tanh", out_hidden_size=16)
    return transformers.Qwen3VLConfig(text_config={**sizes, "rope_parameters": rope}, vision_config=tower,
                                      image_token_id=IMAGE_PAD, video_token_id=VIDEO_PAD,
                                      vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
                                      tie_word_embeddings=tied)


def make_model(family, tied):
    kind = "ForConditionalGeneration" if family == "Qwen3VL" else "ForCausalLM"
    torch.manual_seed(len(family) + 100 * tied)
    model = getattr(transformers, family + kind)(make_config(family, tied))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            low = 0.5 if name.endswith("norm.weight") or ".norm" in name and name.endswith("weight") else -0.5
            parameter.data.uniform_(low, low + 1)
        else:
            parameter.data.normal_(0, 1 if "embed_tokens" in name else 1.5 / parameter[0].numel()**0.5)
    return model.to(torch.bfloat16)


def make_processor(folder):
    """Writes processor_config.json; returns the processor. Its tokenizer is that of a bundled model."""
    processor = transformers.AutoProcessor.from_pretrained(ROOT / "demo" / "models" / "tiny-qwen3-vl")
    for part, settings in ((processor.image_processor, IMAGE_SETTINGS), (processor.video_processor, VIDEO_SETTINGS)):
        for name, value in settings.items():
            setattr(part, name, value)
    with tempfile.TemporaryDirectory() as scratch:
        processor.save_pretrained(scratch)
        shutil.copyfile(pathlib.Path(scratch) / "processor_config.json", folder / "processor_config.json")
        return transformers.AutoProcessor.from_pretrained(scratch)


def picture_inputs(folder, rng):
    """Writes a transparent picture and a video; returns the model's inputs but for the text."""
    processor = make_processor(folder)
    Image.fromarray(rng.integers(0, 256, (*PICTURE, 4)).astype(np.uint8)).save(folder / "image.png")
    (folder / "video").mkdir()
    frames = rng.integers(0, 256, (4, *PICTURE, 3)).astype(np.uint8)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / "video" / f"{i}.png")
    inputs = dict(processor.image_processor(images=[Image.open(folder / "image.png")], return_tensors="pt"))
    inputs.update(processor.video_processor(videos=[frames], do_sample_frames=False, return_tensors="pt"))
    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def make(family, tied, folder):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    make_model(family, tied).save_pretrained(folder, **({} if tied else {"max_shard_size": SHARD_BYTES}))
    # What is saved counts, so it is read again.
    model = transformers.AutoModelForImageTextToText if family == "Qwen3VL" else transformers.AutoModelForCausalLM
    model = model.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = rng.integers(2, IMAGE_PAD, 14).tolist()
    inputs = {}
    if family == "Qwen3VL":
        inputs = picture_inputs(folder, rng)
        image = [VISION_START] + [IMAGE_PAD] * 12 + [VISION_END]
        frame = [VISION_START] + [VIDEO_PAD] * 12 + [VISION_END]
        ids = ids[:3] + image + ids[3:6] + frame + ids[6:8] + frame + ids[8:]
        inputs["mm_token_type_ids"] = torch.tensor([[(i == IMAGE_PAD) + 2 * (i == VIDEO_PAD) for i in ids]])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), **inputs).logits[0].numpy()
    (folder / "ids.txt").write_text(" ".join(map(str, ids)) + "\n")
    np.save(folder / "logits.npy", logits)
    print(f"{folder.name}: {len(list(folder.glob('*.safetensors')))} files of weights, "
          f"largest logit {np.abs(logits).max():.2f}")


def main(argv):
    if len(argv) != 1:
        sys.exit("usage: make_saved_models.py DIR")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # transformers asks this of CUDA's libraries even on a CPU, where they may be absent.
    torch.cuda.is_current_stream_capturing = lambda: False
    root = pathlib.Path(argv[0])
    for family in FAMILIES:
        for name, tied in (("tied", True), ("untied-sharded", False)):
            make(family, tied, root / f"{family.lower()}-{name}")
    versions = {m.__name__: m.__version__ for m in (transformers, torch, PIL, np)}
    (root / "versions.json").write_text(json.dumps(versions) + "\n")
    for path in root.rglob("*.*"):
        path.chmod(0o644)


if __name__ == "__main__":
    main(sys.argv[1:])
