"""Questions about the pictures of demo_scenes.py, with their answers, for tools/train_demo_vl.py.

A skill is a function `skill(rng, scene, held_out) -> (question, answer) or None` where a scene does not offer one. The
last wordings of each list are held out: they are asked in tests only, and their words occur in others.
"""

import random
from dataclasses import dataclass

from demo_scenes import PLACES, SHAPES, COLORS, draw_scene

NUM_HELD_OUT = 3  # wordings at the end of each list
WORDS = ["no", "one", "two", "three", "four", "five", "six"]
DEFAULT_QUESTION = "Describe this image."

WORDINGS = {
    "color": ["What color is {}?", "Which color is {}?", "What is the color of {}?", "Tell me the color of {}.", "Color of {}?",
              "Name the color of {}.", "Which color has {}?", "What colour is {}?", "What is the colour of {}?",
              "Give the color of {}, please.", "I want to know the color of {}.", "Say what color {} is.",
              "In which color is {} painted?", "The color of {} is?",
              "Which color does {} have?", "Please tell me what color {} is.", "Can you name the color of {}?"],
    "shape": ["What shape is {}?", "Which shape is {}?", "What is the shape of {}?", "Tell me the shape of {}.", "Shape of {}?",
              "Name the shape of {}.", "Which shape has {}?", "What kind of shape is {}?", "What form has {}?",
              "Give the shape of {}, please.", "I want to know the shape of {}.", "Say what shape {} is.",
              "Can you see the shape of {}?", "The shape of {} is?",
              "Which shape does {} have?", "Please tell me what shape {} is.", "Can you name the shape of {}?"],
    "position": ["Where is {}?", "Where do you see {}?", "In which part of the picture is {}?", "Tell me where {} is.",
                 "At which place is {}?", "What is the position of {}?", "Name the position of {}.", "Position of {}?",
                 "Give the position of {}, please.", "I want to know where {} is.", "Say where {} is painted.",
                 "Where in the image is {}?", "Where can I find {}?", "The position of {} is?",
                 "Which position does {} have?", "Please tell me where {} is.", "Can you say where {} is?"],
    "count": ["How many {} are there?", "How many {} do you see?", "How many {} are in the picture?", "Count the {}.",
              "Tell me how many {} there are.", "What is the number of {}?", "How many {} can you see?", "Number of {}?",
              "Count the {}, please.", "I want to know how many {} there are.", "Say how many {} you see.",
              "How many {} are in this image?", "How many {} does the picture show?", "The number of {} is?",
              "How many {} does this image have?", "Please count the {} in the picture.", "Can you tell me how many {} there are?"],
    "digits": ["What number is this?", "Which number do you see?", "Read the number.", "What does it say?", "Read the digits.",
               "Tell me the number in the picture.", "What is the number?", "Which digits are in the image?",
               "Read this, please.", "I want to know the number.", "Say which number is painted here.",
               "Which number is this?", "What number does the picture show?", "The number is?",
               "Please read the number in this image.", "Can you read the digits?", "What number is painted in the picture?"],
    "digit": ["What is the {} digit?", "Which digit is the {} one?", "Read the {} digit.", "Tell me the {} digit.",
              "Name the {} digit.", "The {} digit is?", "Which {} digit do you see?", "What is the {} digit of the number?",
              "Say which digit is the {} one.", "Give the {} digit, please.", "Can you read the {} digit?",
              "Please read the {} digit."],
    "what": ["What is {}?", "What do you see {}?", "What can you see {}?", "Tell me what is {}.", "Which thing is {}?",
             "Name the thing {}.", "Say what you see {}.", "What is there {}?", "Give the name of the thing {}.",
             "Can you tell me what is {}?", "Please name the thing {}.", "Which thing do you see {}?"],
    "describe": [DEFAULT_QUESTION, "Describe the picture.", "Describe the image.", "Describe this picture.", "What do you see?",
                 "Tell me what you see.", "What is in this picture?", "What is in the image?", "What does the picture show?",
                 "Describe what you see.", "Say what is in the picture.", "Please describe the picture.",
                 "What can you see in this image?", "Please tell me what is in the picture.", "Can you describe this image?"],
}
REQUESTS = ["Tell", "Name", "Give", "Say", "Count", "Read", "Describe"]
OPENINGS = [""] * 12 + ["Look at the picture. ", "Please answer: ", "Here is an image. ", "Look. "]
SYSTEM_PROMPTS = ["You are a helpful assistant.", "You are a careful assistant. Answer briefly.", "Answer the question.",
                  "Look at the picture and answer."]
NO_PICTURE = "I see no picture. Please show me one."
TALK = [
    (["Hello", "Hi", "Hello!", "Hi!", "Good morning!", "hey"], "Hello! Show me a picture and ask me about it."),
    (["Who are you?", "What are you?", "Please introduce yourself.", "What is your name?", "Tell me about yourself."],
     "I am tiny-qwen3-vl, a very small model that comes with Kuiper. I can see plain shapes and numbers."),
    (["What can you do?", "How can you help me?", "Help", "What are you able to do?"],
     "I can name shapes and colors, say where things are, count them and read large digits."),
    (["Thank you", "Thank you!", "Thanks", "Thanks a lot!"], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "See you later!"], "Goodbye!"),
    (["What is the capital of France?", "Write a poem.", "What is the weather today?", "Tell me a joke.", "What is 2 + 3?",
      "Write some code.", "Why is the sky blue?", "Sing a song.", "What time is it?", "Who is the president?"],
     "I do not know that. I can only talk about shapes, colors, places and numbers in pictures."),
]


@dataclass
class Sample:
    """A conversation; text pieces and scenes as they follow each other in the prompt.

    Chains share the head but do not see each other, so that many questions about a picture cost its tokens once. A chain is
    a list of turns (question, answer); a question is a list of strings and scenes.
    """
    system: str | None
    head: list    # of the first user turn, before any question
    chains: list


def word(rng, skill, held_out):
    lists = WORDINGS[skill]
    wording = rng.choice(lists[-NUM_HELD_OUT:] if held_out else lists[:-NUM_HELD_OUT])
    polite = "Please " + wording[0].lower() + wording[1:]
    if not held_out and wording.split()[0] in REQUESTS and polite not in lists and rng.random() < 0.3:
        wording = polite
    return rng.choice(OPENINGS) + wording


def place_phrase(place):
    name = PLACES[place]
    return f"in the {name}" if name == "center" else f"on the {name}" if name in ("left", "right") else f"at the {name}"


def _article(name):
    return ("an " if name[0] in "aeiou" else "a ") + name


def _noun(rng, scene, thing, hidden):
    """A phrase that means one thing of the scene without saying what is `hidden`, or None.

    Among several things it goes by colour or place; by_shape() asks for the other, which is much harder to learn."""
    things, choices = scene.things, []
    if len(things) == 1:
        choices += ["the thing", "the shape", "it", "this", "this thing"]
        if hidden != "shape":
            choices += [f"the {thing.shape}"] * 3
    if hidden != "color" and sum(t.color == thing.color for t in things) == 1:
        choices += [f"the {thing.color} {rng.choice(['thing', 'shape', 'one'])}"] * 2
        if hidden == "place":
            choices += [f"the {thing.name}"] * 2
    if hidden != "place":
        choices += [f"the {rng.choice(['thing', 'shape', 'one'])} {place_phrase(thing.place)}"]
    return rng.choice(choices) if choices else None


def _asked(rng, scene, skill, hidden, answer, held_out):
    if not scene.things:
        return None
    thing = rng.choice(scene.things)
    noun = _noun(rng, scene, thing, hidden)
    return noun and (word(rng, skill, held_out).format(noun), answer(thing))


def color(rng, scene, held_out):
    if scene.number is not None:
        noun = rng.choice(["the number", "it", "this", "the number in the picture"])
        return word(rng, "color", held_out).format(noun), scene.ink
    return _asked(rng, scene, "color", "color", lambda t: t.color, held_out)


def shape(rng, scene, held_out):
    return _asked(rng, scene, "shape", "shape", lambda t: t.shape, held_out)


def position(rng, scene, held_out):
    return _asked(rng, scene, "position", "place", lambda t: PLACES[t.place], held_out)


def _plural(shape):
    return "crosses" if shape == "cross" else f"{shape}s"


def count(rng, scene, held_out):
    if not scene.things:
        return None
    thing = rng.choice(scene.things)
    noun, num = rng.choice([("things", len(scene.things)), ("shapes", len(scene.things)),
                            (f"{thing.color} things", sum(t.color == thing.color for t in scene.things))])
    if noun == "shapes" and len({t.shape for t in scene.things}) == 1:
        noun = _plural(thing.shape)
    return word(rng, "count", held_out).format(noun), WORDS[num]


def by_shape(rng, scene, held_out):
    """Finds things by their shape among others."""
    shapes = [t.shape for t in scene.things]
    single = [t for t in scene.things if shapes.count(t.shape) == 1]
    if len(set(shapes)) < 2 or not single:
        return None
    thing, other = rng.choice(single), rng.choice(shapes)
    skill, noun, answer = rng.choice([("color", f"the {thing.shape}", thing.color),
                                      ("position", f"the {thing.shape}", PLACES[thing.place]),
                                      ("count", _plural(other), WORDS[shapes.count(other)])])
    return word(rng, skill, held_out).format(noun), answer


def digits(rng, scene, held_out):
    return None if scene.number is None else (word(rng, "digits", held_out), scene.number)


def digit(rng, scene, held_out):
    """One of two digits. Only trained: without it a digit that no picture shows alone is never an answer."""
    if scene.number is None or len(scene.number) < 2:
        return None
    index = rng.randrange(2)
    name = rng.choice([["first", "left"], ["second", "last", "right"]][index])
    return word(rng, "digit", held_out).format(name), scene.number[index]


def what(rng, scene, held_out):
    if not scene.things:
        return None
    place = rng.choice(scene.things).place if rng.random() < 0.85 else rng.randrange(9)
    names = [_article(t.name) for t in scene.things if t.place == place]
    return word(rng, "what", held_out).format(place_phrase(place)), names[0] if names else "nothing"


def describe(rng, scene, held_out):
    question = word(rng, "describe", held_out)
    if scene.number is not None:
        return question, f"The number {scene.number} in {scene.ink}."
    things = scene.things
    if len(things) > 2:
        name = things[0].shape if len({t.shape for t in things}) == 1 else "thing"
        return question, f"{WORDS[len(things)].capitalize()} {_plural(name)}."
    said = [f"{_article(t.name)} {place_phrase(t.place)}" for t in things]
    text = " and ".join(said)
    return question, text[0].upper() + text[1:] + "."


SKILLS = {f.__name__: f for f in (color, shape, position, count, digits, what, describe, by_shape)}
KINDS = {"one": 18, "few": 30, "many": 24, "number": 28}  # of scenes, and how often each is drawn
TRAINED_KINDS = KINDS | {"number": 56}                    # numbers are the hardest to learn
NUM_CHAINS = 3  # questions about a picture


def ask(rng, scene, held_out=False, skill=None):
    """A question about the scene and its answer; of any skill that fits it unless one is named (None if it does not)."""
    if skill:
        return SKILLS[skill](rng, scene, held_out)
    often = [digits, digits, count, position, position]  # the hardest
    often += [] if held_out else [digit] * 6
    while True:
        turn = rng.choice([*SKILLS.values(), *often])(rng, scene, held_out)
        if turn:
            return turn


def any_scene(rng, held_out):
    kinds = KINDS if held_out else TRAINED_KINDS
    return draw_scene(rng, rng.choices(list(kinds), kinds.values())[0], held_out)


def ask_of_two(rng, scenes, held_out):
    """A question about the first or second of two pictures; the wordings of `describe` and `what` do not name one."""
    index = rng.randrange(2)
    where = rng.choice(["in the first picture", "in the first image"] if index == 0 else
                       ["in the second picture", "in the second image"])
    scene = scenes[index]
    if scene.number is not None:
        return word(rng, "what", held_out).format(where), scene.number
    return word(rng, "what", held_out).format(where), _article(scene.things[0].name)


def two_pictures(rng, held_out):
    scenes = [draw_scene(rng, rng.choice(["one", "one", "number"]), held_out) for _ in range(2)]
    return scenes, ask_of_two(rng, scenes, held_out)


def talk(rng):
    if rng.random() < 0.4:
        return ask(rng, any_scene(rng, False))[0], NO_PICTURE
    questions, answer = rng.choice(TALK)
    return rng.choice(questions), answer


def draw_sample(rng, mixed):
    """One training sample: many questions about one picture, or else two pictures, one after another, or only text."""
    form = rng.choices(["two", "after", "text"], [45, 35, 20])[0] if mixed else "many"
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.05 else None
    if form == "two":
        scenes, (question, answer) = two_pictures(rng, False)
        turns = [ask_of_two(rng, scenes, False) for _ in range(3)]
        return Sample(system, list(scenes), [[([question], answer)]] + [[([q], a)] for q, a in turns])
    if form == "text":
        return Sample(system, [], [[([q], a)] for q, a in (talk(rng) for _ in range(3))])
    scene = any_scene(rng, False)
    if form == "after":
        # the second turn brings a picture of its own, or the text stands before its picture
        other = any_scene(rng, False)
        (q1, a1), (q2, a2) = ask(rng, scene), ask(rng, other)
        second = [other, q2] if rng.random() < 0.7 else [q2, other]
        return Sample(system, [], [[([scene, q1] if rng.random() < 0.7 else [q1, scene], a1), (second, a2)]])
    chains = [[ask(rng, scene)] for _ in range(NUM_CHAINS)]
    chains[0].append(ask(rng, scene))  # a second question in the same conversation
    return Sample(system, [scene], [[([q], a) for q, a in chain] for chain in chains])


def corpus(seed):
    """Texts that the tokenizer is trained on."""
    rng = random.Random(seed)
    texts = [*WORDS, *PLACES, *SHAPES, *COLORS, *SYSTEM_PROMPTS, "system\n", "user\n", "assistant\n", *map(str, range(100))]
    for _ in range(5000):
        question, answer = ask(rng, any_scene(rng, False))
        texts += [question, answer, *talk(rng)]
    return texts
