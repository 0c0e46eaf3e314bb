#!/usr/bin/env python3
"""Holds apart what the demo models are trained on and what their cards measure; the ctest `demo_wordings`.

Every task has at least 30 wordings that are trained on and six that are held out, in each language. No training question
is one of the held-out wordings: not in small letters, with other punctuation or behind a greeting either.

    python3 test/demo_wordings.py ROOT
"""
import pathlib
import random
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv.pop(1)) / "tools"))
import demo_data  # noqa: E402
import demo_facts  # noqa: E402
import demo_wordings  # noqa: E402

DRAWS = 5000
NUMBERS = ("a", "b", "n")


def bare(text):
    """Letters, digits and signs of arithmetic, small."""
    return re.sub(r"[^\w+*=-]", "", text.lower())


def pattern(wording, fields):
    """What a wording looks like with anything filled in, as bare text."""
    parts = re.split(r"\{(\w+)\}", wording)
    return "".join(re.escape(bare(p)) if i % 2 == 0 else fields(p) for i, p in enumerate(parts))


def filled_in(task):
    numbers = task in ("sort", "most", "more")
    most, more = ("|".join({w for lists in table.values() for side in lists for w in side})
                  for table in (demo_wordings.MOST, demo_wordings.MORE))
    words = "|".join(w for pair in demo_data.WORDS for w in pair)
    kinds = {"x": r"\d+" if numbers else rf"(?:{words}|\d)+", "to": "(?:chinese|english|中文|英文)",
             "most": f"(?:{most})", "more": f"(?:{more})"}
    return lambda name: r"\d+" if name in NUMBERS else kinds[name]


def held_out_patterns(kind):
    if kind in demo_data.TASKS:
        return [pattern(w, filled_in(task)) for task in demo_data.TASKS[kind]
                for side in demo_wordings.HELD_OUT.get(task, ()) for w in side]
    if kind == "outside":
        return [pattern(w, lambda name: f"(?:{'|'.join(bare(f) for s in demo_facts.FILLINGS[name] for f in s)})")
                for side in demo_facts.OUTSIDE_HELD_OUT for w in side]
    entries = demo_facts.FACTS if kind == "project" else demo_facts.CHAT
    return [re.escape(bare(q)) for entry in entries for side in entry for q in side[1]]


class DemoWordings(unittest.TestCase):
    def test_thirty_wordings_are_trained_and_six_held_out(self):
        for kind in demo_data.KINDS:
            trained, held_out = ([int(n) for n in re.findall(r"\d+", part)]
                                 for part in demo_data.wordings(kind).split(","))
            self.assertGreaterEqual(min(trained), 30, kind)
            self.assertGreaterEqual(min(held_out), 6, kind)

    def test_no_training_question_is_a_held_out_wording(self):
        before = (*demo_data.PREFIX_EN, *demo_data.PREFIX_ZH, *demo_data.REQUESTS)
        greetings = sorted({bare(p) for p in before}, key=len, reverse=True)
        thanks = {bare(s) for s in (*demo_data.SUFFIX_EN, *demo_data.SUFFIX_ZH)}
        for kind in demo_data.KINDS:
            rng, held_out = random.Random(1), re.compile("|".join(held_out_patterns(kind)))
            for new in (False, True):
                for _ in range(DRAWS if not new else 300):
                    text = bare(demo_data.draw(kind, rng, new, "tiny-qwen3", new).question)
                    starts = [""] + [g for g in greetings if text.startswith(g)]
                    ends = [""] + [t for t in thanks if text.endswith(t)]
                    found = any(held_out.fullmatch(text[len(s):len(text) - len(e)]) for s in starts for e in ends)
                    self.assertEqual(found, new, text)

    def test_training_draws_no_held_out_operands(self):
        for kind in demo_data.KINDS:
            rng = random.Random(2)
            for held_out in (False, True):
                keys = {demo_data.draw(kind, rng, held_out).key for _ in range(200)}
                self.assertTrue(all(demo_data.is_held_out(demo_data.Item("", "", "", k)) == held_out for k in keys))


if __name__ == "__main__":
    unittest.main()
