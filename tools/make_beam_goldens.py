#!/usr/bin/env python3
"""Makes test/data/beams.json: what Hugging Face's generate answers with beam search.

The models are random checkpoints of test/data/goldens (tools/make_goldens.py), and a bundled one for
stop strings, in FP32 with the eager attention. A case in which two candidates that compete are
closer than a margin is dropped and another one drawn, so that float noise decides nothing.

    python3 tools/make_beam_goldens.py            # writes test/data/beams.json
    python3 tools/make_beam_goldens.py --check    # makes it again and compares
"""
import argparse
import itertools
import json
import pathlib
import random
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "test" / "data" / "beams.json"
GOLDENS = "test/data/goldens/"
MODELS = [GOLDENS + m for m in ("qwen2-gqa7-d8-f32", "qwen3-gqa2-d128-f32", "qwen3-gqa8-d16-f32")]
MODEL_WITH_TEXT = "demo/models/tiny-qwen3"
WORDS = "the red cat of a small town has seven old clocks and no time".split()
WIDTHS = (1, 2, 3, 4, 8)
LENGTH_PENALTIES = (-1.0, 0.0, 0.6, 1.0, 2.0)
REPETITION_PENALTIES = (1.0, 1.0, 1.3, 0.8)
PROMPT_LENGTHS = (1, 3, 15, 16, 17, 33)
NEW_TOKENS = (1, 2, 7, 17, 40)
BIASES = (-100.0, -3.0, -0.5, 0.5, 3.0)

SUM_MARGIN = 1e-3  # between sums of log probabilities, each of which is good to about 1e-5
SCORE_MARGIN = 1e-4  # between scores, relative to them
NO_BEAM = -1e8  # transformers gives places without a beam -1e9


class Unclear(Exception):
    """Another implementation of the same definition may answer otherwise."""


def check_gaps(values, margin, relative):
    values = sorted(v for v in values.flatten().tolist() if v > NO_BEAM)
    for a, b in itertools.pairwise(values):
        if b - a < margin * (max(abs(a), abs(b)) if relative else 1):
            raise Unclear


class Watched:
    """A model whose beam searches raise Unclear when a decision is close."""

    def __init__(self, folder):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.model.generation_config = transformers.GenerationConfig()  # no ids of its own
        self.tokenizer = None
        if (folder / "tokenizer.json").exists():
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        for name in ("get_top_k_continuations", "update_finished_beams", "check_early_stop_heuristic"):
            original = getattr(self.model, "_" + name)
            setattr(self.model, "_" + name, self.wrap(original, getattr(self, name)))

    @staticmethod
    def wrap(original, watch):
        def run(**kwargs):
            result = original(**kwargs)
            watch(result, **kwargs)
            return result

        return run

    @staticmethod
    def get_top_k_continuations(result, **_):
        check_gaps(result[0], SUM_MARGIN, relative=False)

    @staticmethod
    def update_finished_beams(_, beam_scores, topk_log_probs, next_token_hits_stopping_criteria,
                              cur_len, decoder_prompt_len, length_penalty, **__):
        ended = topk_log_probs[next_token_hits_stopping_criteria]
        scores = ended / (cur_len + 1 - decoder_prompt_len) ** length_penalty
        check_gaps(torch.cat((beam_scores.flatten(), scores)), SCORE_MARGIN, relative=True)

    @staticmethod
    def check_early_stop_heuristic(_, running_beam_scores, beam_scores, is_sent_finished, cur_len,
                                   max_length, decoder_prompt_len, length_penalty, **__):
        # Stop strings ended so many candidates that transformers goes on with ended ones.
        if cur_len < max_length and running_beam_scores.min() < NO_BEAM:
            raise Unclear
        if not is_sent_finished.all():
            return
        best = running_beam_scores[0, :1] / (cur_len - decoder_prompt_len) ** length_penalty
        check_gaps(torch.cat((best, beam_scores.min()[None])), SCORE_MARGIN, relative=True)

    def answers(self, case):
        """[{"ids", "score"}], best first. A width of 1 is the greedy search, which has no scores."""
        prompt = torch.tensor([case["prompt"]])
        config = transformers.GenerationConfig(
            num_beams=case["width"],
            num_return_sequences=case["width"],
            length_penalty=case["length_penalty"],
            repetition_penalty=case["repetition_penalty"],
            early_stopping=False,
            max_new_tokens=case["max_new_tokens"],
            sequence_bias={(int(t),): b for t, b in case.get("logit_bias", {}).items()} or None,
            min_new_tokens=case.get("min_new_tokens"),
            eos_token_id=case["eos"] or None,
            stop_strings=case.get("stop"),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        with torch.no_grad():
            out = self.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=config,
                tokenizer=self.tokenizer,
            )
        generated = out.sequences[:, prompt.shape[1] :].tolist()
        if case["width"] == 1:
            for row in out.scores:
                check_gaps(torch.topk(row, 2)[0], SUM_MARGIN, relative=False)
            return [{"ids": generated[0]}]
        lengths = (out.beam_indices >= 0).sum(dim=1).tolist()
        scores = out.sequences_scores.tolist()
        return [
            {"ids": ids[:length], "score": float(f"{score:.7g}")}
            for ids, length, score in zip(generated, lengths, scores)
        ]


def draw_settings(width, length_penalty, dice):
    return {
        "width": width,
        "length_penalty": length_penalty,
        "repetition_penalty": dice.choice(REPETITION_PENALTIES),
        "max_new_tokens": dice.choice(NEW_TOKENS),
    }


def draw_case(model, settings, dice):
    """A clear case, or Unclear."""
    vocab = model.model.config.vocab_size
    prompt = [dice.randrange(2, vocab) for _ in range(dice.choice(PROMPT_LENGTHS))]
    case = {"prompt": prompt, **settings, "eos": []}
    answers = model.answers(case)
    if dice.random() < 0.75:  # ids that answers hold shall end them
        case["eos"] = sorted({dice.choice(dice.choice(answers)["ids"]) for _ in range(2)})
        answers = model.answers(case)
    return {**case, "answers": answers}


def draw_case_with_biases(model, settings, dice):
    """Biases of tokens that answers hold and of others, and ends that come too early."""
    case = draw_case(model, settings, dice)
    vocab = model.model.config.vocab_size
    ids = {dice.choice(dice.choice(case["answers"])["ids"]) for _ in range(2)}
    ids |= {dice.randrange(2, vocab) for _ in range(3)}
    case["logit_bias"] = {str(token): dice.choice(BIASES) for token in sorted(ids)}
    answers = model.answers(case)
    case["eos"] = sorted({dice.choice(dice.choice(answers)["ids"]) for _ in range(2)})
    case["min_new_tokens"] = dice.randint(1, case["max_new_tokens"])
    return {**case, "answers": model.answers(case)}


def draw_case_with_stop_string(model, settings, dice):
    """The same with a string of the answers' text, which ends some of them."""
    text = " ".join(dice.choices(WORDS, k=dice.randint(1, 8)))
    prompt = model.tokenizer.encode(text, add_special_tokens=False)
    case = {"prompt": prompt, **settings, "eos": []}
    text = model.tokenizer.decode(dice.choice(model.answers(case))["ids"])
    if any(mark in text for mark in ("\ufffd", "<", ">")):  # half a character, a control token
        raise Unclear
    begin = dice.randrange(max(1, len(text) - 4))
    case["stop"] = [text[begin : begin + dice.randint(1, 4)]]
    return {**case, "answers": model.answers(case)}


def make_cases():
    cases, dropped = [], 0
    dice, other_dice = random.Random(20260), random.Random(20261)
    plan = [(name, draw_case, WIDTHS, LENGTH_PENALTIES, dice) for name in MODELS]
    plan.append((MODEL_WITH_TEXT, draw_case_with_stop_string, (2, 3), LENGTH_PENALTIES, dice))
    plan += [(name, draw_case_with_biases, (1, 2, 3), (0.0, 1.0), other_dice) for name in MODELS]
    for name, draw, widths, length_penalties, dice in plan:
        model = Watched(ROOT / name)
        for width, length_penalty in itertools.product(widths, length_penalties):
            settings = draw_settings(width, length_penalty, dice)
            while True:
                try:
                    cases.append({"model": name, **draw(model, settings, dice)})
                    break
                except Unclear:
                    dropped += 1
    return cases, dropped


def same(made, kept):
    """Whether two lists of cases are the same but for float noise."""
    def plain(cases):
        cases = json.loads(json.dumps(cases))
        scores = [a.pop("score", 0) for case in cases for a in case["answers"]]
        return cases, scores

    (made, made_scores), (kept, kept_scores) = plain(made), plain(kept)
    close = all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(made_scores, kept_scores))
    return made == kept and close


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    cases, dropped = make_cases()
    print(f"{len(cases)} cases; {dropped} with close decisions were dropped")
    if check:
        equal = same(cases, json.loads(OUTPUT.read_text())["cases"])
        print("beams.json: " + ("equal" if equal else "differs"))
        return 0 if equal else 1
    lines = ",\n".join(json.dumps(case) for case in cases)
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    OUTPUT.write_text(f'{{"made_by": "{made_by}",\n"cases": [\n{lines}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
