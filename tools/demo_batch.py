"""Asks a demo model questions through kuiper_batch, greedily: for the tools that measure one without transformers."""

import json
import subprocess
import tempfile
from pathlib import Path


def request(chat, thinking):
    """The body of one request: the turns of a demo_data.Chat, whose last question is asked."""
    messages = [{"role": "system", "content": chat.system}] if chat.system is not None else []
    for item in chat.turns:
        messages += [{"role": "user", "content": item.question}, {"role": "assistant", "content": item.reply(False)}]
    return {"messages": messages[:-1], "max_tokens": 300, "temperature": 0, "repetition_penalty": 1.0,
            "chat_template_kwargs": {"enable_thinking": thinking}}


def accuracy(programs, model, bodies, expected, threads=0):
    """Share of requests whose answer is the expected one."""
    with tempfile.TemporaryDirectory() as name:
        asked, given = Path(name) / "requests.jsonl", Path(name) / "answers.jsonl"
        asked.write_text("".join(json.dumps({"custom_id": str(i), "body": body}, ensure_ascii=False) + "\n"
                                 for i, body in enumerate(bodies)))
        subprocess.run([programs / "kuiper_batch", model, "--input", asked, "--output", given, "--quiet",
                        "--max-num-seqs", "32", *(["--threads", str(threads)] if threads else [])], check=True)
        answers = [json.loads(line) for line in given.read_text().splitlines()]
    right = 0
    for answer in answers:
        text = answer["response"]["body"]["choices"][0]["message"]["content"]
        right += (text or "").strip() == expected[int(answer["custom_id"])]
    return right / len(bodies)
