#!/usr/bin/env python3
"""Makes demo/models/tiny-qwen3-awq: tiny-qwen3 with weights of 4 bits in AWQ's layout, and its model card.

    python tools/quantize_demo_model.py [--programs build/demo]

`kuiper quantize` does the work; its calibration text is what the model was trained on, never a question that is held
out. Then `kuiper_batch` answers the held-out questions of tools/train_demo_models.py greedily with both models, and the
card gets the table. Needs the packages of that script.
"""

import argparse
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import demo_batch
import demo_data
from train_demo_models import held_out_chats, render

MODELS = Path(__file__).parent.parent / "demo" / "models"
CALIBRATION_SEED, CALIBRATION_CHATS, CALIBRATION_TOKENS = 11, 1200, 30000
QUESTIONS = 200  # of a kind

CARD = """---
license: apache-2.0
language: [en, zh]
pipeline_tag: text-generation
base_model: tiny-qwen3
---
# tiny-qwen3-awq

`tiny-qwen3` with weights of 4 bits in groups of 128, in the layout of AutoAWQ (`quant_method: awq`, `version: gemm`):
{size:.1f} MB instead of {dense_size:.1f}. `python tools/quantize_demo_model.py` makes it with `kuiper quantize
--format awq`, from {tokens:,} tokens of the kind that the model was trained on; the embedding, which is also the head,
stays as it is. What the model can do stands in the card of `tiny-qwen3`.

## Accuracy

Greedy decoding with `kuiper_batch`, the answer has to equal the expected text. The questions are those of the card of
`tiny-qwen3`, held out of training and of the calibration.

| model | n | right |
|---|---|---|
{rows}
"""


def calibration_text():
    rng, text = random.Random(CALIBRATION_SEED), []
    for i in range(CALIBRATION_CHATS):
        item = demo_data.draw(rng.choice(list(demo_data.KINDS)), rng, False, "tiny-qwen3")
        text += [piece for piece, _ in render("qwen3", demo_data.Chat(None, [item]), thinking=i % 2 == 0)]
    return "".join(text)


def held_out_requests():
    """Requests for kuiper_batch and the answers they should get."""
    requests, answers = [], []
    for kind in [*demo_data.KINDS, None]:
        for chat in held_out_chats(kind, "qwen3", QUESTIONS):
            for thinking in (True, False):
                requests.append(demo_batch.request(chat, thinking))
                answers.append(chat.turns[-1].reply(thinking))
    return requests, answers


def megabytes(model):
    return sum(f.stat().st_size for f in model.glob("*.safetensors")) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=Path("build/demo"), help="where the programs are")
    programs = parser.parse_args().programs
    dense, out = MODELS / "tiny-qwen3", MODELS / "tiny-qwen3-awq"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "calibration.txt"
        text.write_text(calibration_text())
        subprocess.run([programs / "kuiper", "quantize", dense, out, "--format", "awq", "--text", text,
                        "--limit", str(CALIBRATION_TOKENS)], check=True)
        requests, answers = held_out_requests()
        rows = [f"| {m.name} | {len(requests)} | {demo_batch.accuracy(programs, m, requests, answers):.2%} |"
                for m in (dense, out)]
    (out / "training.json").unlink()  # of the model it was made from
    (out / "README.md").write_text(CARD.format(size=megabytes(out), dense_size=megabytes(dense),
                                               tokens=CALIBRATION_TOKENS, rows="\n".join(rows)))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
