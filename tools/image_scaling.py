#!/usr/bin/env python3
"""How far logits move with the library that scales a picture: what docs/images.md says about it.

    python3 tools/image_scaling.py MODEL PICTURE...    needs transformers 5.24, torch, torchvision, pillow 13

Compares Pillow 13, Pillow's order up to version 12 (rows first), and transformers' default processor, which
scales with torchvision. Each picture is taken as it is, cut to 90 x 70, and cut to a third of its width. Per
comparison: the share of values that differ, by how many levels of 255 at most, the largest difference of the
logits after the picture, and the divergence (nats) of the distributions, at most.
"""
import itertools
import sys

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps

BICUBIC = Image.Resampling.BICUBIC


def rows_first(picture, to):
    return picture.resize((to[0], picture.height), BICUBIC).resize(to, BICUBIC)


def logits_of(model, processor, inputs):
    text = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n"
    pads = inputs["image_grid_thw"].prod().item() // processor.image_processor.merge_size**2
    ids = processor.tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * pads), return_tensors="pt")["input_ids"]
    kinds = (ids == model.config.image_token_id).int()
    with torch.no_grad():
        logits = model(input_ids=ids, mm_token_type_ids=kinds, **inputs).logits[0].double()
    return logits[kinds[0].nonzero()[-1, 0]:]


def describe(row):
    return f"{row[0]:.2f} % of values, {row[1]:.0f} levels, logits {row[2]:.4f}, {row[3]:.1e} nats"


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.cuda.is_current_stream_capturing = lambda: False  # CUDA's libraries may be absent
    processor = transformers.AutoProcessor.from_pretrained(argv[0])
    default = processor.image_processor
    pillow = transformers.AutoImageProcessor.from_pretrained(argv[0], backend="pil")
    model = transformers.AutoModelForImageTextToText.from_pretrained(argv[0], dtype=torch.float32).eval()
    worst = {}
    for path in argv[1:]:
        whole = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        for picture in (whole, whole.crop((0, 0, 90, 70)), whole.crop((0, 0, whole.width // 3, whole.height))):
            inputs = {"Pillow 13": pillow(images=[picture], return_tensors="pt")}
            _, rows, columns = (inputs["Pillow 13"]["image_grid_thw"][0] * pillow.patch_size).tolist()
            inputs["Pillow 12"] = pillow(images=[rows_first(picture, (columns, rows))], return_tensors="pt")
            inputs["torchvision"] = default(images=[picture], return_tensors="pt")
            logits = {name: logits_of(model, processor, values) for name, values in inputs.items()}
            for one, other in itertools.combinations(inputs, 2):
                levels = (inputs[one]["pixel_values"] - inputs[other]["pixel_values"]).abs() * pillow.image_std[0] * 255
                p, q = logits[one].log_softmax(-1), logits[other].log_softmax(-1)
                row = np.array([(levels > 0.5).double().mean() * 100, levels.max().round(),
                                (logits[one] - logits[other]).abs().max(), (p.exp() * (p - q)).sum(-1).max()])
                name = f"{other} against {one}"
                same = "same" if (p.argmax(-1) == q.argmax(-1)).all() else "other"
                print(f"{path} {picture.width}x{picture.height}, {name}: {describe(row)}, {same} likeliest tokens")
                worst[name] = np.maximum(worst.get(name, row), row)
    for name, row in worst.items():
        print(f"at most, {name}: {describe(row)}")


if __name__ == "__main__":
    main(sys.argv[1:])
