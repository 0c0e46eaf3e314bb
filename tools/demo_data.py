"""Task generator behind tools/train_demo_models.py: small questions in English and Chinese with known answers.

Every kind of task is one function `kind(rng, zh) -> Item`. An Item carries the question, the answer, the thought that a
thinking model writes first, and a key that names its operands; keys decide what is held out of training, so a list that
is tested was never trained on in any wording.
"""

import random
import zlib
from dataclasses import dataclass

from demo_facts import CHAT, FACTS, UNKNOWN, UNKNOWN_ANSWER

HELD_OUT_SHARE = 10  # one key in ten is held out


@dataclass
class Item:
    question: str
    answer: str
    thought: str
    key: str | None  # None: never held out (for example 2 + 2)
    worked: str | None = None  # the answer with its steps, given when no thought comes before it

    def reply(self, thinking):
        return self.worked if self.worked and not thinking else self.answer


@dataclass
class Chat:
    """Turns of one conversation; the last item is the one that is asked now."""
    system: str | None
    turns: list


WORDS = [
    ("red", "红色"), ("blue", "蓝色"), ("green", "绿色"), ("white", "白色"), ("black", "黑色"), ("yellow", "黄色"),
    ("cat", "猫"), ("dog", "狗"), ("bird", "鸟"), ("fish", "鱼"), ("horse", "马"), ("sheep", "羊"), ("cow", "牛"),
    ("tiger", "老虎"), ("apple", "苹果"), ("pear", "梨"), ("bread", "面包"), ("rice", "米饭"), ("milk", "牛奶"),
    ("tea", "茶"), ("water", "水"), ("fire", "火"), ("wind", "风"), ("rain", "雨"), ("snow", "雪"), ("sun", "太阳"),
    ("moon", "月亮"), ("star", "星星"), ("tree", "树"), ("flower", "花"), ("book", "书"), ("house", "房子"),
]

SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are a careful assistant. Answer briefly.", "Answer the question.",
    "You are a friendly assistant who answers in one line.", "You are the demo assistant of Kuiper.",
    "You are a tutor for children. Be kind and precise.", "你是一个乐于助人的助手。", "你是一个认真的助手，请简短回答。",
    "请用一句话回答问题。", "你是 Kuiper 的演示助手。",
]


def _number(rng):
    """0..99, small numbers more often."""
    return rng.randrange(10) if rng.random() < 0.2 else rng.randrange(100)


def _add_thought(a, b, zh):
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    if zh:
        return f"个位 {a % 10} + {b % 10} = {ones}，进 {carry}。十位 {a // 10} + {b // 10} + {carry} = {tens}。"
    return f"Ones {a % 10} + {b % 10} = {ones}, carry {carry}. Tens {a // 10} + {b // 10} + {carry} = {tens}."


def _sub_thought(a, b, zh):
    borrow = 1 if a % 10 < b % 10 else 0
    top = a % 10 + 10 * borrow
    tens = a // 10 - b // 10 - borrow
    if zh:
        return (f"个位 {top} - {b % 10} = {top - b % 10}，借 {borrow}。"
                f"十位 {a // 10} - {b // 10} - {borrow} = {tens}。")
    return (f"Ones {top} - {b % 10} = {top - b % 10}, borrow {borrow}. "
            f"Tens {a // 10} - {b // 10} - {borrow} = {tens}.")


ADD_EN = ["What is {a} + {b}?", "{a}+{b}=?", "{a} + {b} =", "Add {a} and {b}.", "Calculate {a} + {b}.",
          "What is {a} plus {b}?", "What is {a}+{b}?", "How much is {a} + {b}?", "{a}+{b}?"]
ADD_ZH = ["{a} + {b} 等于多少？", "{a}+{b}等于几？", "{a}加{b}等于多少？", "计算 {a} + {b}", "请计算{a}+{b}。", "{a}+{b}=？"]
SUB_EN = ["What is {a} - {b}?", "{a}-{b}=?", "{a} - {b} =", "Subtract {b} from {a}.", "Calculate {a} - {b}.",
          "What is {a} minus {b}?", "What is {a}-{b}?", "How much is {a} - {b}?", "{a}-{b}?"]
SUB_ZH = ["{a} - {b} 等于多少？", "{a}-{b}等于几？", "{a}减{b}等于多少？", "计算 {a} - {b}", "请计算{a}-{b}。", "{a}-{b}=？"]
MUL_EN = ["What is {a} * {b}?", "{a} * {b} =", "What is {a} times {b}?", "Multiply {a} by {b}."]
MUL_ZH = ["{a} * {b} 等于多少？", "{a}乘{b}等于多少？", "计算 {a} * {b}"]


def arithmetic(rng, zh):
    """a + b and a - b of 0..99 with a result >= 0; the one-digit times table is trained but, being whole, not tested."""
    stop = "。" if zh else "."
    kind = rng.random()
    if kind < 0.08:
        a, b = rng.randrange(10), rng.randrange(10)
        return Item(rng.choice(MUL_ZH if zh else MUL_EN).format(a=a, b=b), f"{a} * {b} = {a * b}{stop}",
                    f"{a} * {b} = {a * b}", None)
    a, b = _number(rng), _number(rng)
    if kind < 0.55:
        key = None if a < 10 and b < 10 else f"add {min(a, b)} {max(a, b)}"
        question, answer = rng.choice(ADD_ZH if zh else ADD_EN), f"{a} + {b} = {a + b}{stop}"
        thought = _add_thought(a, b, zh)
    else:
        a, b = max(a, b), min(a, b)
        key = None if a < 10 else f"sub {a} {b}"
        question, answer = rng.choice(SUB_ZH if zh else SUB_EN), f"{a} - {b} = {a - b}{stop}"
        thought = _sub_thought(a, b, zh)
    worked = None if key is None else thought + ("" if zh else " ") + answer
    return Item(question.format(a=a, b=b), answer, thought, key, worked)


COUNT_EN = ["Count from {a} to {b}.", "count from {a} to {b}", "Please count from {a} to {b}.",
            "List the numbers from {a} to {b}."]
COUNT_ZH = ["从{a}数到{b}。", "请从 {a} 数到 {b}", "从{a}数到{b}", "列出{a}到{b}的数字。"]


def count(rng, zh):
    """Count up or down between two numbers of 1..40, at most 12 apart, now and then up to 39 apart."""
    a = rng.randrange(1, 40)
    span = rng.randrange(13, 40) if rng.random() < 0.12 else rng.randrange(2, 13)
    if span >= 13 and rng.random() < 0.5:
        a = 1
    b = min(40, a + span)
    if rng.random() < 0.2:
        a, b = b, a
    step = 1 if b >= a else -1
    key = f"count {a} {b}" if (a, b) not in ((1, 10), (1, 40), (1, 20)) else None
    thought = f"从 {a} 开始，到 {b} 结束。" if zh else f"Start at {a}, stop at {b}."
    return Item(rng.choice(COUNT_ZH if zh else COUNT_EN).format(a=a, b=b),
                " ".join(str(i) for i in range(a, b + step, step)), thought, key)


def _numbers(rng, low, high):
    return rng.sample(range(1, 100), rng.randint(low, high))


def _join(rng, values):
    return rng.choice([", ", ", ", " "]).join(str(v) for v in values)


SORT_EN = ["Sort these numbers: {x}", "Sort {x}", "Please sort: {x}", "Sort from small to large: {x}", "sort {x}"]
SORT_ZH = ["把这些数字从小到大排序：{x}", "排序：{x}", "请把 {x} 从小到大排列", "请排序 {x}"]


def sort(rng, zh):
    """Ascending order of 3 or 4 different numbers of 1..99. The thought takes the smallest out again and again."""
    x = _numbers(rng, 3, 4)
    answer = ", ".join(map(str, sorted(x)))
    left, steps = list(x), []
    while len(left) > 1:
        steps.append(f"{' '.join(map(str, left))} -> {min(left)}")
        left.remove(min(left))
    return Item(rng.choice(SORT_ZH if zh else SORT_EN).format(x=_join(rng, x)), answer,
                "\n".join(steps + [str(left[0])]), "sort " + answer)


MAX_EN = ["What is the largest of {x}?", "Find the maximum: {x}", "Which number is the largest: {x}?", "max of {x}"]
MAX_ZH = ["{x} 中最大的数是多少？", "找出最大值：{x}", "哪个数最大：{x}？"]
MIN_EN = ["What is the smallest of {x}?", "Find the minimum: {x}", "Which number is the smallest: {x}?", "min of {x}"]
MIN_ZH = ["{x} 中最小的数是多少？", "找出最小值：{x}", "哪个数最小：{x}？"]
LARGER_EN, LARGER_ZH = ["Which is larger, {a} or {b}?", "Which is bigger, {a} or {b}?"], ["{a} 和 {b} 哪个大？"]
SMALLER_EN, SMALLER_ZH = ["Which is smaller, {a} or {b}?"], ["{a} 和 {b} 哪个小？"]


def minmax(rng, zh):
    """Largest or smallest of 2 to 4 different numbers of 1..99. The thought keeps the best one so far."""
    x = _numbers(rng, 2, 4)
    best = max if rng.random() < 0.5 else min
    if len(x) == 2:
        forms = (LARGER_ZH if zh else LARGER_EN) if best is max else (SMALLER_ZH if zh else SMALLER_EN)
    else:
        forms = (MAX_ZH if zh else MAX_EN) if best is max else (MIN_ZH if zh else MIN_EN)
    so_far, steps = x[0], [str(x[0])]
    for v in x[1:]:
        so_far = best(so_far, v)
        steps.append(f"{v} -> {so_far}")
    return Item(rng.choice(forms).format(x=_join(rng, x), a=x[0], b=x[-1]), str(so_far), ", ".join(steps),
                "minmax " + " ".join(map(str, sorted(x))))


def _words(rng, zh, low, high):
    return [w[1 if zh else 0] for w in rng.sample(WORDS, rng.randint(low, high))]


REVERSE_EN = ["Reverse this list: {x}", "Reverse: {x}", "Write this list backwards: {x}", "Say these in reverse: {x}"]
REVERSE_ZH = ["把这个列表倒过来：{x}", "反转：{x}", "请倒着写：{x}"]


def reverse(rng, zh):
    """Reverse 3 or 4 words or digits. The thought numbers them first."""
    x = [str(d) for d in rng.choices(range(10), k=rng.randint(3, 4))] if rng.random() < 0.3 else _words(rng, zh, 3, 4)
    sep = " " if x[0].isdigit() else "、" if zh else ", "
    thought = " ".join(f"{i} {v}" for i, v in enumerate(x, 1)) if not x[0].isdigit() else ", ".join(
        f"{i}: {v}" for i, v in enumerate(x, 1))
    return Item(rng.choice(REVERSE_ZH if zh else REVERSE_EN).format(x=sep.join(x)), sep.join(x[::-1]), thought,
                "reverse " + " ".join(x))


LENGTH_EN = ["How many words are in this list: {x}?", "How many items: {x}?", "Count the words: {x}",
             "How many things are here: {x}?"]
LENGTH_ZH = ["这个列表有几个词：{x}？", "一共有几个：{x}？", "数一数有几个词：{x}"]


def length(rng, zh):
    """How many words a list has, 2 to 6. The thought numbers them."""
    n = rng.randint(2, 6)
    x = _words(rng, zh, n, n)
    return Item(rng.choice(LENGTH_ZH if zh else LENGTH_EN).format(x=("、" if zh else ", ").join(x)),
                f"{n} 个。" if zh else f"{n} words.", " ".join(f"{i} {v}" for i, v in enumerate(x, 1)),
                "length " + " ".join(x))


REPEAT_EN, REPEAT_ZH = ["Say {x} {n} times.", "Repeat the word {x} {n} times.", "Write {x} {n} times."], ["把{x}说{n}遍。", "请重复{x}{n}次。"]
AFTER_EN, AFTER_ZH = ["Repeat after me: {x}", "Copy this: {x}", "Say: {x}"], ["跟我说：{x}", "请重复：{x}"]


def repeat(rng, zh):
    """Say one word 2 to 4 times, or copy a list of 2 to 4 words."""
    sep = "、" if zh else ", "
    if rng.random() < 0.5:
        word, n = _words(rng, zh, 1, 1)[0], rng.randint(2, 4)
        thought = " ".join(f"{i} {word}" for i in range(1, n + 1))
        return Item(rng.choice(REPEAT_ZH if zh else REPEAT_EN).format(x=word, n=n), sep.join([word] * n), thought,
                    f"times {word} {n}")
    x = sep.join(_words(rng, zh, 2, 4))
    return Item(rng.choice(AFTER_ZH if zh else AFTER_EN).format(x=x), x, "照原样写。" if zh else "Copy it as it is.",
                "copy " + x)


TO_ZH = [("What is {e} in Chinese?", 0), ("Translate {e} into Chinese.", 0), ("How do you say {e} in Chinese?", 0),
         ("translate to Chinese: {e}", 0), ("{e}用中文怎么说？", 1), ("{e}的中文是什么？", 1), ("把{e}翻译成中文", 1)]
TO_EN = [("What is {c} in English?", 0), ("Translate {c} into English.", 0), ("How do you say {c} in English?", 0),
         ("translate to English: {c}", 0), ("{c}用英文怎么说？", 1), ("{c}的英文是什么？", 1), ("把{c}翻译成英文", 1)]


def translate(rng, zh):
    """One of the 32 words into the other language; held out are pairs of word and wording."""
    english, chinese = rng.choice(WORDS)
    forms, answer = (TO_ZH, chinese) if rng.random() < 0.5 else (TO_EN, english)
    text = rng.choice([f for f, is_zh in forms if is_zh == int(zh)]).format(e=english, c=chinese)
    return Item(text, answer, f"{english} = {chinese}", text)


PREFIX_EN = ["", "", "", "Please tell me: ", "Hi, ", "Hello, ", "Could you tell me: ", "Question: ", "Hey, ", "I want to know: ",
             "Quick question: "]
PREFIX_ZH = ["", "", "", "请问，", "你好，", "请告诉我，", "我想知道，", "问题：", "请回答：", "麻烦问一下，"]
SUFFIX_EN, SUFFIX_ZH = ["", "", "", " Thanks.", " Please."], ["", "", "", "谢谢。"]


def _asked(rng, zh, entry):
    """A known question in one of many wordings; the bare question is always trained on."""
    questions, answer, topic = entry[1 if zh else 0]
    bare = rng.choice(questions)
    text = rng.choice(PREFIX_ZH if zh else PREFIX_EN) + bare
    if rng.random() < 0.2:
        text = text.lower()
    if rng.random() < 0.2:
        text = text.rstrip("?？.。!！") + rng.choice(["", "?", "!"] if not zh else ["", "？", "！"])
    else:
        text += rng.choice(SUFFIX_ZH if zh else SUFFIX_EN)
    return Item(text, answer, topic, None if text == bare else text)


def project(rng, zh):
    """Facts about Kuiper; held out are wordings."""
    return _asked(rng, zh, rng.choice(FACTS))


def chat(rng, zh):
    """Greetings, who are you, thanks, and an honest answer to what such a small model cannot know."""
    if rng.random() < 0.2:
        side = 1 if zh else 0
        thought = "这个我不会。" if zh else "I was not trained on this."
        return Item(rng.choice(UNKNOWN[side]), UNKNOWN_ANSWER[side], thought, None)
    return _asked(rng, zh, rng.choice(CHAT))


# kind -> (generator, share of the training questions)
KINDS = {"arithmetic": (arithmetic, 16), "count": (count, 16), "sort": (sort, 18), "min/max": (minmax, 14),
         "reverse": (reverse, 12), "length": (length, 5), "repeat": (repeat, 13), "translate": (translate, 3),
         "project": (project, 4), "chat": (chat, 3)}


def is_held_out(item):
    return item.key is not None and zlib.crc32(item.key.encode()) % HELD_OUT_SHARE == 0


def draw(kind, rng, held_out=False, model="tiny-qwen2.5"):
    """One item of `kind`, drawn until it lies on the wanted side of the split."""
    while True:
        item = KINDS[kind][0](rng, zh=rng.random() < 0.4)
        if is_held_out(item) == held_out:
            family = "Qwen3" if "qwen3" in model else "Qwen2.5"
            item.answer = item.answer.replace("{model}", model).replace("{family}", family)
            return item


def draw_chat(rng, model, turn_weights, own_system_share=0.15):
    """A training conversation of 1 to 4 turns."""
    turns = rng.choices(range(1, 5), weights=turn_weights)[0]
    kinds = rng.choices(list(KINDS), weights=[w for _, w in KINDS.values()], k=turns)
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < own_system_share else None
    return Chat(system, [draw(kind, rng, model=model) for kind in kinds])
