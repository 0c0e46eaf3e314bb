"""Task generator behind tools/train_demo_models.py: small questions in English and Chinese with known answers.

Every kind of task is one function `kind(ask) -> Item`; `ask` knows the language and chooses the words. An Item carries
the question, the answer, the thought that a thinking model writes first, and a key that names its operands; keys decide
what is held out of training, so a list that is tested was never trained on in any wording. Held out as well are whole
wordings: those of demo_wordings.HELD_OUT were never trained on with any operands.
"""

import random
import zlib
from dataclasses import dataclass

from demo_facts import CHAT, FACTS, FILLINGS, OUTSIDE, OUTSIDE_ANSWER, OUTSIDE_HELD_OUT
from demo_wordings import HELD_OUT, MORE, MOST, TRAINED

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


PREFIX_EN = ["Please tell me: ", "Hi, ", "Hello, ", "Could you tell me: ", "Question: ", "Hey, ", "I want to know: ",
             "Quick question: ", "Hello! ", "Please: ", "Now ", "OK, ", "Please help me. ", "I have a question: ",
             "Can you help me? ", "Next question: ", "So, ", "Well, ", "Let me ask you: "]
PREFIX_ZH = ["请问，", "你好，", "请告诉我，", "我想知道，", "问题：", "请回答：", "麻烦问一下，", "你好！", "那么，", "请帮帮我。",
             "我有一个问题：", "下一个问题：", "想问你，", "好的，"]
IMPERATIVES = {"Add", "Arrange", "Calculate", "Choose", "Compute", "Copy", "Count", "Explain", "Find", "Give", "List", "Name",
               "Order", "Pick", "Print", "Put", "Rank", "Repeat", "Reverse", "Say", "Select", "Show", "Solve", "Sort",
               "Subtract", "Take", "Tell", "Translate", "Turn", "Type", "Write"}
REQUESTS = ["Please", "Could you", "Can you", "Would you", "Could you please", "I want you to", "I would like you to",
            "I need you to", "Now"]
SUFFIX_EN, SUFFIX_ZH = [" Thanks.", " Please.", " Thank you!"], ["谢谢。", "谢谢！"]


@dataclass
class Ask:
    """Whose words a question is put in: the language, and wordings that are trained on or that are new."""
    rng: random.Random
    zh: bool
    new: bool

    def wording(self, task):
        return self.rng.choice((HELD_OUT if self.new else TRAINED)[task][self.zh])

    def framed(self, text):
        """What surrounds a question: a greeting, "could you", thanks, small letters, other punctuation at the end."""
        rng, zh = self.rng, self.zh
        if self.new or rng.random() < 0.5:
            return text
        if text.split(" ")[0] in IMPERATIVES and rng.random() < 0.5:
            text = f"{rng.choice(REQUESTS)} {text[0].lower()}{text[1:]}"
        elif rng.random() < 0.5:
            text = rng.choice(PREFIX_ZH if zh else PREFIX_EN) + text
        if rng.random() < 0.3:
            text = text.lower()
        if text[-1] not in "?？.。!！":
            return text
        if rng.random() < 0.4:
            return text.rstrip("?？.。!！") + rng.choice(["", "？", "！"] if zh else ["", "?", "!"])
        return text + (rng.choice(SUFFIX_ZH if zh else SUFFIX_EN) if rng.random() < 0.5 else "")

    def say(self, task, **operands):
        return self.framed(self.wording(task).format(**operands))


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


def arithmetic(ask):
    """a + b and a - b of 0..99 with a result >= 0; the one-digit times table is trained but, being whole, not tested."""
    rng, zh = ask.rng, ask.zh
    stop = "。" if zh else "."
    kind = rng.random()
    if kind < 0.08 and not ask.new:
        a, b = rng.randrange(10), rng.randrange(10)
        return Item(ask.say("multiply", a=a, b=b), f"{a} * {b} = {a * b}{stop}", f"{a} * {b} = {a * b}", None)
    a, b = _number(rng), _number(rng)
    if kind < 0.55:
        key = None if a < 10 and b < 10 else f"add {min(a, b)} {max(a, b)}"
        question, answer = ask.say("add", a=a, b=b), f"{a} + {b} = {a + b}{stop}"
        thought = _add_thought(a, b, zh)
    else:
        a, b = max(a, b), min(a, b)
        key = None if a < 10 else f"sub {a} {b}"
        question, answer = ask.say("subtract", a=a, b=b), f"{a} - {b} = {a - b}{stop}"
        thought = _sub_thought(a, b, zh)
    worked = None if key is None else thought + ("" if zh else " ") + answer
    return Item(question, answer, thought, key, worked)


def count(ask):
    """Count up or down between two numbers of 1..40, at most 12 apart, now and then up to 39 apart."""
    rng = ask.rng
    a = rng.randrange(1, 40)
    span = rng.randrange(13, 40) if rng.random() < 0.12 else rng.randrange(2, 13)
    if span >= 13 and rng.random() < 0.5:
        a = 1
    b = min(40, a + span)
    if rng.random() < 0.2:
        a, b = b, a
    step = 1 if b >= a else -1
    key = f"count {a} {b}" if (a, b) not in ((1, 10), (1, 40), (1, 20)) else None
    thought = f"从 {a} 开始，到 {b} 结束。" if ask.zh else f"Start at {a}, stop at {b}."
    return Item(ask.say("count", a=a, b=b), " ".join(str(i) for i in range(a, b + step, step)), thought, key)


NUMBERS, DIGITS = range(1, 100), range(10)


def _join(ask, values):
    separators = [", ", ", ", " ", ","] + (["、", "，"] if ask.zh else [])
    return ask.rng.choice(separators).join(map(str, values))


def sort(ask, numbers=NUMBERS):
    """Ascending order of 3 or 4 different numbers. The thought takes the smallest out again and again."""
    x = ask.rng.sample(numbers, ask.rng.randint(3, 4))
    answer = ", ".join(map(str, sorted(x)))
    left, steps = list(x), []
    while len(left) > 1:
        steps.append(f"{' '.join(map(str, left))} -> {min(left)}")
        left.remove(min(left))
    return Item(ask.say("sort", x=_join(ask, x)), answer, "\n".join(steps + [str(left[0])]), "sort " + answer)


def minmax(ask, numbers=NUMBERS):
    """Largest or smallest of 2 to 4 different numbers. The thought keeps the best one so far."""
    rng = ask.rng
    x = rng.sample(numbers, rng.randint(2, 4))
    best = max if rng.random() < 0.5 else min
    most, more = rng.choice(MOST[best][ask.zh]), rng.choice(MORE[best][ask.zh])
    so_far, steps = x[0], [str(x[0])]
    for v in x[1:]:
        so_far = best(so_far, v)
        steps.append(f"{v} -> {so_far}")
    question = ask.say("more" if len(x) == 2 else "most", x=_join(ask, x), a=x[0], b=x[-1], most=most, more=more)
    return Item(question, str(so_far), ", ".join(steps), "minmax " + " ".join(map(str, sorted(x))))


def _words(rng, zh, low, high):
    return [w[1 if zh else 0] for w in rng.sample(WORDS, rng.randint(low, high))]


def reverse(ask):
    """Reverse 3 or 4 words or digits. The thought numbers them first."""
    rng, zh = ask.rng, ask.zh
    x = [str(d) for d in rng.choices(range(10), k=rng.randint(3, 4))] if rng.random() < 0.3 else _words(rng, zh, 3, 4)
    sep = " " if x[0].isdigit() else "、" if zh else ", "
    thought = " ".join(f"{i} {v}" for i, v in enumerate(x, 1)) if not x[0].isdigit() else ", ".join(
        f"{i}: {v}" for i, v in enumerate(x, 1))
    return Item(ask.say("reverse", x=sep.join(x)), sep.join(x[::-1]), thought, "reverse " + " ".join(x))


def length(ask):
    """How many words a list has, 2 to 6. The thought numbers them."""
    n = ask.rng.randint(2, 6)
    x = _words(ask.rng, ask.zh, n, n)
    return Item(ask.say("length", x=("、" if ask.zh else ", ").join(x)), f"{n} 个。" if ask.zh else f"{n} words.",
                " ".join(f"{i} {v}" for i, v in enumerate(x, 1)), "length " + " ".join(x))


def repeat(ask):
    """Say one word 2 to 4 times, or copy a list of 2 to 4 words."""
    rng, zh = ask.rng, ask.zh
    sep = "、" if zh else ", "
    if rng.random() < 0.5:
        word, n = _words(rng, zh, 1, 1)[0], rng.randint(2, 4)
        thought = " ".join(f"{i} {word}" for i in range(1, n + 1))
        return Item(ask.say("times", x=word, n=n), sep.join([word] * n), thought, f"times {word} {n}")
    x = sep.join(_words(rng, zh, 2, 4))
    return Item(ask.say("copy", x=x), x, "照原样写。" if zh else "Copy it as it is.", "copy " + x)


def translate(ask):
    """One of the 32 words into the other language; held out are pairs of word and wording."""
    english, chinese = ask.rng.choice(WORDS)
    if ask.rng.random() < 0.5:
        word, answer, to = english, chinese, "中文" if ask.zh else "Chinese"
    else:
        word, answer, to = chinese, english, "英文" if ask.zh else "English"
    text = ask.wording("translate").format(x=word, to=to)
    return Item(ask.framed(text), answer, f"{english} = {chinese}", text)


def _asked(ask, entry):
    """A known question in one of many wordings; the bare question is always trained on."""
    questions, held_out, answer, topic = entry[ask.zh]
    bare = ask.rng.choice(held_out if ask.new else questions)
    text = ask.framed(bare)
    return Item(text, answer, topic, text if ask.new or text != bare else None)


def project(ask):
    """Facts about Kuiper; held out are wordings."""
    return _asked(ask, ask.rng.choice(FACTS))


def chat(ask):
    """Greetings, who are you, thanks; held out are wordings."""
    return _asked(ask, ask.rng.choice(CHAT))


def outside(ask):
    """Anything else, which such a small model cannot know: it says what it can do. What has nothing to fill in is always
    trained on."""
    fillings = {name: ask.rng.choice(lists[ask.zh]) for name, lists in FILLINGS.items()}
    wording = ask.rng.choice((OUTSIDE_HELD_OUT if ask.new else OUTSIDE)[ask.zh])
    text = wording.format(**fillings)
    return Item(ask.framed(text), OUTSIDE_ANSWER[ask.zh], "这个我不会。" if ask.zh else "I was not trained on this.",
                "outside " + text if text != wording else None)


def sort_digits(ask):
    return sort(ask, DIGITS)


def minmax_digits(ask):
    return minmax(ask, DIGITS)


# kind -> (generator, share of the training questions)
KINDS = {"arithmetic": (arithmetic, 16), "count": (count, 16), "sort": (sort, 14), "sort, one digit": (sort_digits, 5),
         "min/max": (minmax, 10), "min/max, one digit": (minmax_digits, 4), "reverse": (reverse, 12), "length": (length, 8),
         "repeat": (repeat, 11), "translate": (translate, 4), "project": (project, 7), "chat": (chat, 6),
         "outside": (outside, 7)}


ASKED_BY_HEART = ("translate", "project", "chat", "outside")  # their operands are few: a new wording is all that is new


# the wordings of a kind, where they stand in one table
TASKS = {"arithmetic": ("add", "subtract", "multiply"), "count": ("count",), "sort": ("sort",),
         "sort, one digit": ("sort",), "min/max": ("most", "more"), "min/max, one digit": ("most", "more"),
         "reverse": ("reverse",), "length": ("length",), "repeat": ("times", "copy"), "translate": ("translate",)}


def wordings(kind):
    """How many there are, trained and held out, English + Chinese."""
    if kind in TASKS:
        lists = [[[w for task in TASKS[kind] for w in table.get(task, ((), ()))[zh]] for zh in (0, 1)]
                 for table in (TRAINED, HELD_OUT)]
    elif kind == "outside":
        lists = [OUTSIDE, OUTSIDE_HELD_OUT]
    else:
        entries = FACTS if kind == "project" else CHAT
        lists = [[[q for e in entries for q in e[zh][part]] for zh in (0, 1)] for part in (0, 1)]
    trained, held_out = ([len(set(questions)) for questions in sides] for sides in lists)
    return f"{trained[0]} + {trained[1]}, {held_out[0]} + {held_out[1]} held out"


def is_held_out(item):
    return item.key is not None and zlib.crc32(item.key.encode()) % HELD_OUT_SHARE == 0


def draw(kind, rng, held_out=False, model="tiny-qwen2.5", new=False):
    """One item of `kind`, drawn until its operands lie on the wanted side of the split; `new`: in a held-out wording."""
    while True:
        item = KINDS[kind][0](Ask(rng, rng.random() < 0.4, new))
        if new and kind in ASKED_BY_HEART or is_held_out(item) == held_out:
            family = "Qwen3" if "qwen3" in model else "Qwen2.5"
            item.answer = item.answer.replace("{model}", model).replace("{family}", family)
            return item


def draw_chat(rng, model, turn_weights, own_system_share=0.15, shares=None):
    """A training conversation of 1 to 4 turns; `shares` of some kinds replace those of KINDS."""
    turns = rng.choices(range(1, 5), weights=turn_weights)[0]
    weights = {kind: share for kind, (_, share) in KINDS.items()} | (shares or {})
    kinds = rng.choices(list(weights), weights=list(weights.values()), k=turns)
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < own_system_share else None
    return Chat(system, [draw(kind, rng, model=model) for kind in kinds])
