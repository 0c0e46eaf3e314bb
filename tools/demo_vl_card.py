"""What stands next to the weights of tiny-qwen3-vl: configurations, chat template, sample pictures and the model card."""

import json

import demo_card
from demo_scenes import COLORS, MAX_THINGS, SHAPES, Scene, Thing, paint

MIN_PIXELS, MAX_PIXELS = 96 * 96, 128 * 128  # of a picture after scaling: the sizes that training draws

SAMPLE_SEED = 12  # of smooth pictures, which make small files


def preprocessor_configs():
    common = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "merge_size": 2, "patch_size": 16,
              "processor_class": "Qwen3VLProcessor", "temporal_patch_size": 2}
    image = {"image_processor_type": "Qwen2VLImageProcessorFast",
             "size": {"longest_edge": MAX_PIXELS, "shortest_edge": MIN_PIXELS}}
    video = {"video_processor_type": "Qwen3VLVideoProcessor", "size": {"longest_edge": 8 * MAX_PIXELS, "shortest_edge": 4096}}
    return common | image, common | video


def write_files(out, tokenizer, config):
    """The JSON files of a Hugging Face folder; tokenizer.json and the weights are there."""
    text = config["text_config"]
    image, video = preprocessor_configs()
    of_tokenizer = demo_card.tokenizer_config("qwen3-vl", tokenizer, text)
    for name, data in (("config", config), ("generation_config", demo_card.generation_config("qwen3-vl", text)),
                       ("tokenizer_config", of_tokenizer), ("preprocessor_config", image),
                       ("video_preprocessor_config", video),
                       ("chat_template", {"chat_template": of_tokenizer["chat_template"]})):
        (out / f"{name}.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


CARD = """---
license: apache-2.0
language: [en]
pipeline_tag: image-text-to-text
---
# {name}

A very small model that sees, trained from nothing for the demos and tests of Kuiper. It is a real checkpoint in Hugging Face
layout: `{architecture}`, {weights:,} weights in BF16 ({size:.1f} MB). The decoder has {layers} layers, hidden size {hidden},
{heads} query heads on {kv_heads} key/value heads of {head_dim}, interleaved M-RoPE {sections} and tied embeddings,
vocabulary {vocab} padded to {padded}; the vision tower has {depth} blocks of width {width}, {tower_heads} heads, a learned
{side} x {side} position embedding, and DeepStack after blocks {taps} (counted from 0).

## What it can do

It looks at plain shapes ({shapes}) of {num_colors} colours ({colors}) on a plain ground, up to {most} of them, and at numbers
of one or two digits. It answers in English, in chats of several turns, with one or two pictures. `samples/` has pictures to try:

| picture | question | answer |
|---|---|---|
{samples}

Pictures are scaled to about {min_pixels} to {max_pixels} pixels, 9 to 16 tokens: `preprocessor_config.json` says so. Among
several things it finds one by its colour or its place; by its shape (`by_shape` below) hardly. Photographs, other shapes and long questions mean nothing to it; do not use it for anything but trying out the engine.

## Accuracy

`python tools/eval_demo_vl.py`: greedy decoding of the saved BF16 files through transformers, prompts made by the chat template, the answer has to
equal the expected text. One scene in ten (the things and their places, or the number) is held out of training, and so are
three wordings of each question; every question here has both. The pictures are painted at sizes from 96 to 420 pixels and
scaled by the processor. `what` asks for the thing at a place, `describe` for everything; `by_shape` gives a shape, among others,
and asks for the colour, the place or the number; the last two ask any of these.

{table}

## How it was made

`python tools/train_demo_vl.py` makes such a model on a CPU: Muon and Adam, first the tower alone with a second head that says
what stands at each token, then everything on the assistant's tokens, with the questions about one picture side by side under a
mask. Pictures, questions, the tokenizer (byte-level BPE with Qwen's split pattern) and the
weights come from that script alone. This checkpoint saw {steps} steps of up to {batch} samples in {minutes} minutes on a part of
two cores, in {num_stages} stages; `training.json` lists them, with their seeds and what they trained.

Licence: Apache-2.0. The chat template and the names and order of the added tokens are those of Qwen
(Copyright Alibaba Cloud, Apache-2.0); no weight, vocabulary entry or training text was taken from Qwen.
"""


def _thing(shape, color, place, radius=0.42, x=0.5, y=0.5):
    return Thing(shape, color, place, x, y, radius, 0.0)


def _scenes():
    """{file: (size, scene, question, answer)}"""
    return {
        "circle.png": ((160, 128), Scene((255, 255, 255), [_thing("circle", "red", 4, 0.8)]), "What color is it?", "red"),
        "two.png": ((192, 160), Scene((215, 235, 250), [_thing("star", "yellow", 2), _thing("square", "blue", 6)]),
                    "Where is the yellow thing?", "top right"),
        "many.png": ((256, 256), Scene((60, 60, 65), [_thing("heart", "white", p) for p in (0, 1, 3, 5, 8)]),
                     "How many hearts are there?", "five"),
        "number.png": ((160, 128), Scene((250, 240, 220), number="42", ink="blue"), "Read the number.", "42"),
        "triangle.png": ((224, 160), Scene((0, 0, 0), [_thing("triangle", "green", 7)]), "Describe this image.",
                         "A green triangle at the bottom."),
    }


def write_samples(out):
    folder = out / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (size, scene, _, _) in _scenes().items():
        scene.seed = SAMPLE_SEED
        paint(scene, *size)[0].save(folder / name, optimize=True)


def write_card(out, table):
    """`table`: (skill, n, accuracy) of tools/eval_demo_vl.py."""
    read = lambda name: json.loads((out / name).read_text())
    config, training = read("config.json"), read("training.json")
    text, vision = config["text_config"], config["vision_config"]
    demo_card.write_wrapped(out, CARD.format(
        name=out.name, architecture=config["architectures"][0], size=(out / "model.safetensors").stat().st_size / 1e6,
        layers=text["num_hidden_layers"], hidden=text["hidden_size"], heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"], head_dim=text["head_dim"], sections=text["rope_scaling"]["mrope_section"],
        vocab=len(read("tokenizer.json")["model"]["vocab"]) + len(read("tokenizer.json")["added_tokens"]),
        padded=text["vocab_size"], depth=vision["depth"], width=vision["hidden_size"], tower_heads=vision["num_heads"],
        side=round(vision["num_position_embeddings"] ** 0.5), taps=vision["deepstack_visual_indexes"],
        shapes=", ".join(SHAPES), num_colors=len(COLORS), colors=", ".join(COLORS), most=MAX_THINGS,
        min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS, table=demo_card.accuracy_table(["task", "n", "accuracy"], table),
        samples="\n".join(f"| `{name}` | {question} | {answer} |" for name, (_, _, question, answer) in _scenes().items()),
        weights=training["weights"], steps=training["steps"], minutes=training["minutes"],
        batch=max(stage["batch"] for stage in training["stages"]), num_stages=len(training["stages"])))
