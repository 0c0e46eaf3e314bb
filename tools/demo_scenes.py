"""Pictures behind tools/train_demo_vl.py: things of plain shapes and colours in a grid of nine places, and numbers.

A Scene says what is in a picture; Draw paints it with Pillow. Scenes of one key have the same things in the same places;
one key in ten is held out, so a scene that is tested was never trained on, whatever its size, background or jitter.
"""

import functools
import math
import random
import zlib
from dataclasses import dataclass, field

import numpy
from PIL import Image, ImageDraw, ImageFont

HELD_OUT_SHARE = 10  # one key in ten is held out
COLORS = {"red": (220, 35, 35), "green": (40, 165, 60), "blue": (40, 80, 220), "yellow": (245, 220, 40),
          "orange": (245, 140, 25), "purple": (140, 50, 170), "black": (15, 15, 15), "white": (252, 252, 252)}
SHAPES = ["circle", "square", "triangle", "star", "heart", "cross"]
PLACES = ["top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right"]
GROUNDS = [(255, 255, 255), (0, 0, 0), (235, 235, 235), (200, 205, 210), (120, 120, 125), (60, 60, 65), (250, 240, 220),
           (215, 235, 250), (225, 245, 220), (250, 225, 230), (30, 40, 70)]
MAX_THINGS = 6
UNEVEN_SHARE = 0.4  # of the numbers of two digits that are trained: so a digit is seen as large as one that stands alone


@dataclass
class Thing:
    shape: str
    color: str
    place: int      # 0 to 8, by rows
    x: float        # centre and radius as shares of the picture's place
    y: float
    radius: float
    tilt: float     # radians

    @property
    def name(self):
        return f"{self.color} {self.shape}"


@dataclass
class Scene:
    ground: tuple
    things: list = field(default_factory=list)
    number: str | None = None
    ink: str | None = None  # colour of the number
    uneven: tuple | None = None  # height of each digit as a share of the number's; or all are equal
    seed: int = 0           # of what does not matter: the number's font and the noise

    @property
    def key(self):
        if self.number is not None:
            return self.number
        return " ".join(f"{t.name} {t.place}" for t in self.things)

    @property
    def held_out(self):
        return zlib.crc32(self.key.encode()) % HELD_OUT_SHARE == 0


def _far(color, ground):
    """Whether a colour is well seen on a ground."""
    return sum(abs(a - b) for a, b in zip(COLORS[color], ground)) > 150


def _things(rng, ground, num, alike):
    colors = [c for c in COLORS if _far(c, ground)]
    places = sorted(rng.sample(range(9), num))
    shape, color = rng.choice(SHAPES), rng.choice(colors)
    result = []
    for place in places:
        if alike < 2 and rng.random() < 0.7:
            shape = rng.choice(SHAPES)
        if alike < 1 or rng.random() < 0.3:
            color = rng.choice(colors)
        radius = rng.uniform(0.3, 0.47)
        if num == 1:
            radius *= rng.uniform(1.0, 2.6 if place == 4 else 1.2)
        room = max(0.0, 0.53 - radius) if num > 1 or place != 4 else 0.12
        result.append(Thing(shape, color, place, 0.5 + rng.uniform(-room, room), 0.5 + rng.uniform(-room, room), radius,
                            rng.uniform(-0.15, 0.15)))
    return result


def draw_scene(rng, kind, held_out):
    """A scene of one kind: "one" thing, "few" (2 or 3), "many" (1 to 6) or a "number"."""
    while True:
        scene = Scene(rng.choice(GROUNDS), seed=rng.randrange(1 << 30))
        if kind == "number":
            single = 0.3 if held_out else 0.15
            scene.number = str(rng.randrange(10) if rng.random() < single else rng.randrange(10, 100))
            scene.ink = rng.choice([c for c in COLORS if _far(c, scene.ground)])
            if not held_out and len(scene.number) == 2 and rng.random() < UNEVEN_SHARE:
                heights = [1.0, rng.uniform(0.3, 1.0)]
                scene.uneven = tuple(rng.sample(heights, 2))
        else:
            num = {"one": 1, "few": rng.randint(2, 3), "many": rng.randint(1, MAX_THINGS)}[kind]
            scene.things = _things(rng, scene.ground, num, rng.choice([0, 1, 2]) if kind == "many" else 0)
        if scene.held_out == held_out:
            return scene


# --- painting ---------------------------------------------------------------------------------------------------------

def _outline(shape):
    """Corners of a shape around (0, 0), within a circle of radius 1 or little more."""
    if shape == "square":
        return [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]
    if shape == "triangle":
        return [(0, -0.95), (0.98, 0.8), (-0.98, 0.8)]
    if shape == "cross":
        a, b = 0.32, 0.95
        return [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]
    if shape == "star":
        points = [(1.05 if i % 2 == 0 else 0.42, math.pi * (i / 5 - 0.5)) for i in range(10)]
        return [(r * math.cos(a), r * math.sin(a)) for r, a in points]
    angles = [2 * math.pi * i / 40 for i in range(40)]
    if shape == "circle":
        return [(0.95 * math.cos(a), 0.95 * math.sin(a)) for a in angles]
    return [(math.sin(a) ** 3,  # heart
             -(13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)) / 16) for a in angles]


OUTLINES = {shape: _outline(shape) for shape in SHAPES}


def _paint_thing(pen, thing, width, height):
    row, column = divmod(thing.place, 3)
    x, y = (column + thing.x) * width / 3, (row + thing.y) * height / 3
    radius = thing.radius * min(width, height) / 3
    c, s = radius * math.cos(thing.tilt), radius * math.sin(thing.tilt)
    pen.polygon([(x + c * u - s * v, y + s * u + c * v) for u, v in OUTLINES[thing.shape]], COLORS[thing.color])


@functools.lru_cache(256)
def _glyphs(text, thick):
    """The number in Pillow's own font, as a mask cut to its ink."""
    font = ImageFont.load_default(96)
    mask = Image.new("L", (40 + 80 * len(text), 160))
    ImageDraw.Draw(mask).text((20, 20), text, 255, font, stroke_width=thick)
    return mask.crop(mask.getbbox())


def _uneven_glyphs(number, thick, heights):
    """The number's digits beside each other, each of its own height, as one mask; and where each ends."""
    whole = [_glyphs(digit, thick) for digit in number]
    parts = [m.resize((max(1, int(m.width * h)), max(1, int(m.height * h))), Image.BILINEAR) for m, h in zip(whole, heights)]
    gap, tallest = 12, max(m.height for m in parts)
    mask = Image.new("L", (sum(m.width + gap for m in parts) - gap, tallest))
    x, ends = 0, []
    for part in parts:
        mask.paste(part, (x, (tallest - part.height) // 2))
        x += part.width + gap
        ends.append(x - gap)
    return mask, ends


def _paint_number(image, scene, rng):
    """Paints it and returns [(digit, x, y)], the middle of each digit as shares of the picture."""
    thick = rng.randrange(6)
    if scene.uneven:
        mask, ends = _uneven_glyphs(scene.number, thick, scene.uneven)
    else:
        mask = _glyphs(scene.number, thick)
        ends = [mask.width * (i + 1) // len(scene.number) for i in range(len(scene.number))]
    middles = [(begin + end) / 2 / mask.width for begin, end in zip([0, *ends], ends)]
    share, width, height = rng.uniform(0.5, 0.85), *image.size
    scale = min(share * height / mask.height, 0.85 * width / mask.width)
    size = (max(1, int(mask.width * scale * rng.uniform(0.85, 1.0))), max(1, int(mask.height * scale)))
    mask = mask.resize(size, Image.BILINEAR).rotate(rng.uniform(-8, 8), Image.BILINEAR, expand=True)
    room = [max(0, image.size[i] - mask.size[i]) // 2 for i in (0, 1)]
    at = tuple(r + int(rng.uniform(-0.6, 0.6) * r) for r in room)
    image.paste(COLORS[scene.ink], (*at, at[0] + mask.width, at[1] + mask.height), mask)
    return [(digit, (at[0] + middle * mask.width) / width, (at[1] + mask.height / 2) / height)
            for digit, middle in zip(scene.number, middles)]


def paint(scene, width, height):
    """The scene as an RGB picture, and [(what, x, y)]: shapes and digits at their middles, as shares of the picture."""
    rng = random.Random(scene.seed)
    image = Image.new("RGB", (width, height), scene.ground)
    pen, marks = ImageDraw.Draw(image), []
    for thing in scene.things:
        _paint_thing(pen, thing, width, height)
        row, column = divmod(thing.place, 3)
        marks.append((thing.shape, (column + thing.x) / 3, (row + thing.y) / 3))
    if scene.number is not None:
        marks = _paint_number(image, scene, rng)
    # the colours vary a little from picture to picture, and half of the pictures are grainy
    tint = numpy.array([rng.randint(-12, 12) for _ in range(3)], numpy.int16)
    if rng.random() < 0.5:
        x, y = rng.randrange(GRAIN.shape[1] - width), rng.randrange(GRAIN.shape[0] - height)
        tint = tint + GRAIN[y:y + height, x:x + width, None]
    return Image.fromarray((numpy.asarray(image, dtype=numpy.int16) + tint).clip(0, 255).astype(numpy.uint8)), marks


GRAIN = numpy.random.Generator(numpy.random.PCG64(0)).integers(-6, 7, (512, 1024), numpy.int16)
