#!/usr/bin/env python3
"""Makes test/data/images: small picture files of every kind, and what Pillow and transformers make of them.

    python3 tools/make_image_goldens.py [OUT]      needs pillow 13, numpy, transformers 5.24, torch, torchvision

files.json      per picture file: width, height and SHA-256 of the RGB bytes after
                ImageOps.exif_transpose and transformers' convert_to_rgb; per animation those of every frame
resize.json     SHA-256 of what Pillow's bicubic filter makes of a generated picture: sha256 is Pillow's own,
                rows_first that of rows before columns, the order of Pillow up to 12
sizes.json      smart_resize of pictures and videos; frames that are sampled, and their times
patches.json    pixel_values of transformers' processor that scales with Pillow: shape, grid, SHA-256
"""
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps, ImageSequence, PngImagePlugin
from transformers.image_transforms import convert_to_rgb

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sha(data):
    return hashlib.sha256(bytes(data)).hexdigest()


def photo(rng, width, height):
    """Smooth colours, edges and a little noise, as [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [128 + 80 * np.sin(x / rng.uniform(3, 20) + rng.uniform(0, 6)) *
              np.cos(y / rng.uniform(3, 20) + rng.uniform(0, 6)) for _ in range(3)]
    pixels = np.stack(planes, axis=2)
    pixels[height // 3:height // 2, width // 4:width // 2] = [rng.randrange(256) for _ in range(3)]
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 6, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


# ---- files by kind: {name: bytes} ----


def jpegs(rng):
    files = {}
    for i in range(50):
        image = Image.fromarray(photo(rng, rng.randrange(1, 70), rng.randrange(1, 50)))
        options = dict(format="JPEG", quality=rng.choice([1, 10, 30, 50, 75, 90, 95, 100]),
                       subsampling=rng.choice(["4:4:4", "4:2:2", "4:2:0"]),
                       progressive=rng.random() < 0.3, optimize=rng.random() < 0.3)
        mode = rng.choice(["RGB", "RGB", "RGB", "RGB", "L", "CMYK"])
        if rng.random() < 0.2:
            options["restart_marker_blocks"] = rng.randrange(1, 5)
        files[f"{i:02}-{mode.lower()}.jpg"] = saved(image.convert(mode), **options)
    tall = Image.fromarray(photo(rng, 37, 41)).convert("YCbCr")
    # Pillow writes neither 4:4:0 nor YCCK: the sampling factors of the first component, and Adobe's
    # transform, are changed in the file. The pixels that come out are other ones, for both readers.
    data = bytearray(saved(tall, format="JPEG", subsampling="4:2:2"))
    at = data.index(b"\xff\xc0")
    data[at + 11] = 0x12
    files["sampling-440.jpg"] = bytes(data)
    data = bytearray(saved(Image.fromarray(photo(rng, 33, 20)).convert("CMYK"), format="JPEG"))
    data[data.index(b"Adobe") + 11] = 2
    files["ycck.jpg"] = bytes(data)
    data = bytearray(saved(Image.fromarray(photo(rng, 20, 20)), format="JPEG", keep_rgb=True))
    files["stored-rgb.jpg"] = bytes(data)
    return files


def oriented(rng):
    files = {}
    image = Image.fromarray(photo(rng, 23, 11))
    for orientation in range(0, 10):
        files[f"exif-{orientation}.jpg"] = saved(image, format="JPEG", exif=exif(orientation))
    files["exif-6.png"] = saved(image, format="PNG", exif=exif(6))
    files["exif-8.webp"] = saved(image, format="WEBP", lossless=True, exif=exif(8))
    xmp = ('<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>')
    files["xmp-3.jpg"] = saved(image, format="JPEG", xmp=(xmp % 3).encode())
    files["xmp-5.webp"] = saved(image, format="WEBP", lossless=True, xmp=(xmp % 5).encode())
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", xmp % 7)
    files["xmp-7.png"] = saved(image, format="PNG", pnginfo=info)
    block = exif(8)
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n", zip=True)
    files["raw-profile-8.png"] = saved(image, format="PNG", pnginfo=info)
    big = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    files["exif-big-endian-6.jpg"] = saved(image, format="JPEG", exif=b"Exif\0\0" + big)
    return files


def png(width, height, depth, color, samples, palette=None, transparent=None, interlaced=False):
    """A PNG of `samples` [height, width, channels], written by this function: Pillow writes few kinds."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    def rows(part):
        out = b""
        for row in part:
            bits = "".join(f"{int(v):0{depth}b}" for v in row.reshape(-1))
            bits += "0" * (-len(bits) % 8)
            out += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
        return out

    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b"".join(rows(samples[y::dy, x::dx]) for x, y, dx, dy in passes if samples[y::dy, x::dx].size)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0,
                                                               int(interlaced)))
    if palette is not None:
        data += chunk(b"PLTE", bytes(palette))
    if transparent is not None:
        data += chunk(b"tRNS", bytes(transparent))
    return data + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def pngs(rng):
    files = {}
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
    kinds = [(0, d) for d in (1, 2, 4, 8, 16)] + [(2, 8), (2, 16)] + [(3, d) for d in (1, 2, 4, 8)]
    kinds += [(4, 8), (4, 16), (6, 8), (6, 16)]
    names = {0: "gray", 2: "rgb", 3: "palette", 4: "gray-alpha", 6: "rgba"}
    for color, depth in kinds:
        for interlaced in (False, True):
            width, height = rng.randrange(1, 24), rng.randrange(1, 20)
            generator = np.random.default_rng(rng.randrange(1 << 30))
            samples = generator.integers(0, 1 << depth, (height, width, channels[color]))
            if depth == 16 and color == 0:
                samples[::2] = generator.integers(0, 300, samples[::2].shape)
            palette = generator.integers(0, 256, 3 << depth).tolist() if color == 3 else None
            transparent = None
            if interlaced and color == 3:
                transparent = generator.integers(0, 256, 1 << depth).tolist()
            elif interlaced and color in (0, 2):
                transparent = struct.pack(">" + "H" * channels[color], *[int(v) for v in samples[0, 0]])
            name = f"{names[color]}-{depth}{'-interlaced' if interlaced else ''}.png"
            files[name] = png(width, height, depth, color, samples, palette, transparent, interlaced)
    short = np.arange(16).reshape(4, 4, 1)
    files["palette-short.png"] = png(4, 4, 4, 3, short, palette=range(30))
    return files


def lzw(indices, bits):
    """GIF's codes for `indices`: a clear code before the table would need wider codes."""
    clear, width, every = 1 << bits, bits + 1, (1 << bits) - 2
    codes = []
    for i, index in enumerate(indices):
        if i % every == 0:
            codes.append(clear)
        codes.append(int(index))
    codes.append(clear + 1)
    value = sum(code << (width * i) for i, code in enumerate(codes))
    data = value.to_bytes((width * len(codes) + 7) // 8, "little")
    blocks = [data[i:i + 255] for i in range(0, len(data), 255)]
    return bytes([bits]) + b"".join(bytes([len(b)]) + b for b in blocks) + b"\0"


def gif(width, height, palette, frames, background=0):
    """frames: dicts of box (left, top, width, height), and what else a frame may have."""
    flags = 0x80 | 2 if palette is not None else 0
    out = b"GIF89a" + struct.pack("<HHBBB", width, height, flags, background, 0) + bytes(palette or b"")
    for frame in frames:
        left, top, w, h = frame["box"]
        if "dispose" in frame or "transparent" in frame or "delay" in frame:
            transparent = frame.get("transparent")
            out += b"!\xf9\x04" + struct.pack("<BHBB", frame.get("dispose", 0) << 2 | (transparent is not None),
                                              frame.get("delay", 0), transparent or 0, 0)
        local = frame.get("palette")
        flags = (0x80 | 2 if local is not None else 0) | (0x40 if frame.get("interlaced") else 0)
        out += b"," + struct.pack("<HHHHB", left, top, w, h, flags) + bytes(local or b"")
        out += lzw(frame["pixels"], 3)
    return out + b";"


def gifs(rng):
    files, skipped_words = {}, 46
    rng.getrandbits(32 * skipped_words)
    generator = np.random.default_rng(rng.randrange(1 << 30))
    image = Image.fromarray(photo(rng, 31, 17))
    files["still.gif"] = saved(image, format="GIF")
    files["gray.gif"] = saved(image.convert("L"), format="GIF")
    files["interlaced.gif"] = saved(image.quantize(16), format="GIF", interlace=1)

    def palette():
        return generator.integers(0, 256, 24).astype(np.uint8).tobytes()

    def frame(box, **more):
        return dict(box=box, pixels=generator.integers(0, 8, box[2] * box[3]), **more)

    files["offset.gif"] = gif(12, 9, palette(), [frame((3, 2, 5, 4))], background=5)
    files["offset-transparent.gif"] = gif(12, 9, palette(), [frame((3, 2, 5, 4), transparent=6)])
    files["beyond.gif"] = gif(6, 5, palette(), [frame((3, 2, 9, 8))])
    files["no-trailer.gif"] = gif(6, 5, palette(), [frame((0, 0, 6, 5))])[:-1]
    for dispose in range(4):
        for transparent in (None, 2):
            more = {} if transparent is None else {"transparent": transparent}
            files[f"dispose-{dispose}{'-transparent' if more else ''}.gif"] = gif(
                14, 11, palette(), [frame((0, 0, 14, 11), dispose=dispose, delay=10, **more),
                                    frame((2, 3, 6, 5), dispose=dispose, delay=10, **more),
                                    frame((5, 1, 7, 8), dispose=dispose, delay=0, **more),
                                    frame((0, 0, 4, 4), delay=20, **more)], background=3)
    frames = [frame((rng.randrange(4), rng.randrange(4), rng.randrange(1, 9), rng.randrange(1, 8)),
                    dispose=rng.randrange(4), palette=rng.choice([None, palette()]),
                    **rng.choice([{}, {"transparent": rng.randrange(8)}])) for _ in range(12)]
    files["mixed.gif"] = gif(12, 11, palette(), frames, background=1)
    frames = [frame((0, 0, 9, 7), interlaced=True, palette=palette(), delay=4) for _ in range(3)]
    files["local-palettes.gif"] = gif(9, 7, None, frames)
    return files


def webps(rng):
    files = {}
    image = Image.fromarray(photo(rng, 37, 23))
    alpha = Image.fromarray(np.random.default_rng(7).integers(0, 256, (23, 37)).astype(np.uint8))
    with_alpha = image.copy()
    with_alpha.putalpha(alpha)
    for name, picture in (("rgb", image), ("rgba", with_alpha)):
        files[f"{name}-lossless.webp"] = saved(picture, format="WEBP", lossless=True, exact=True)
        for quality in (10, 80):
            files[f"{name}-{quality}.webp"] = saved(picture, format="WEBP", quality=quality)
    frames = [Image.fromarray(photo(rng, 20, 16)) for _ in range(3)]
    frames[1].paste(frames[0].crop((0, 0, 10, 16)), (0, 0))
    files["animation.webp"] = saved(frames[0], format="WEBP", save_all=True, append_images=frames[1:],
                                    lossless=True, duration=[40, 120, 5])
    return files


def transparent(_):
    """Pictures of which a part is transparent, whole or by half, in every way that files have."""
    rng = random.Random(13)
    generator = np.random.default_rng(13)
    files = {}
    palette = generator.integers(0, 256, 48).tolist()
    indices = generator.integers(0, 16, (9, 14, 1))
    files["transparent-palette-one.png"] = png(14, 9, 4, 3, indices, palette, [255, 255, 255, 0, 255])
    files["transparent-palette-many.png"] = png(14, 9, 4, 3, indices, palette, [0, 255, 40, 0, 200, 1, 254])
    for depth in (1, 2, 4, 8, 16):
        for value in (0, 1, 3, 200, 300):
            if value >= 1 << depth:
                continue
            samples = generator.integers(0, 1 << depth, (11, 13, 1))
            samples[2:6, 3:9] = value
            samples[0, :4, 0] = [min(v, (1 << depth) - 1) for v in (44, 255, 256, 65535)]
            files[f"transparent-gray-{depth}-{value}.png"] = png(13, 11, depth, 0, samples,
                                                                transparent=struct.pack(">H", value))
    for depth in (8, 16):
        color = [200, 10, 77] if depth == 8 else [0x1234, 0x3456, 0x5678]
        samples = generator.integers(0, 1 << depth, (8, 12, 3))
        samples[2:5, 3:9] = color
        samples[6, :6] = [(v & 255) << (depth - 8) | v & 255 for v in color]
        files[f"transparent-rgb-{depth}.png"] = png(12, 8, depth, 2, samples, transparent=struct.pack(">3H", *color))
    every = np.zeros((256, 256, 4), np.uint8)
    every[..., :3], every[..., 3] = np.arange(256)[None, :, None], np.arange(256)[:, None]
    files["every-alpha.png"] = saved(Image.fromarray(every), format="PNG", optimize=True)
    image = Image.fromarray(photo(rng, 21, 17))
    image.putalpha(Image.fromarray(generator.integers(0, 256, (17, 21)).astype(np.uint8)))
    files["transparent-exif-6.png"] = saved(image, format="PNG", exif=exif(6))
    files["transparent-gray.png"] = saved(image.convert("LA"), format="PNG")
    files["transparent.gif"] = saved(image.quantize(7), format="GIF", transparency=3)
    colors = generator.integers(0, 256, 24).astype(np.uint8).tobytes()
    gray = bytes(v for i in range(8) for v in (i, i, i))
    pixels = generator.integers(0, 8, 99)
    files["transparent-gray.gif"] = gif(11, 9, gray, [dict(box=(0, 0, 11, 9), pixels=pixels, transparent=4)])
    files["transparent-no-color.gif"] = gif(11, 9, colors[:24], [dict(box=(1, 1, 9, 7), pixels=pixels[:63],
                                                                      transparent=200)], background=2)
    frames = [Image.new("RGBA", (20, 16)) for _ in range(3)]
    for i, frame in enumerate(frames):
        frame.paste((200, 30 * i, 90, 255 - 80 * i), (3 * i, 2, 3 * i + 9, 12))
    files["transparent-animation.webp"] = saved(frames[0], format="WEBP", save_all=True, append_images=frames[1:],
                                                lossless=True, exact=True, duration=100)
    return files


def videos(_):
    """An animation large enough for a video: a square that moves."""
    frames = []
    for i in range(6):
        frame = Image.new("RGB", (48, 40), (20, 40, 230))
        frame.paste((250, 220, 40), (6 * i, 12, 6 * i + 14, 26))
        frames.append(frame)
    return {"moving.webp": saved(frames[0], format="WEBP", save_all=True, append_images=frames[1:], lossless=True,
                                 duration=100)}


def describe(data):
    with Image.open(io.BytesIO(data)) as image:
        facts = dict(format=image.format)
        frames = getattr(image, "n_frames", 1)
        milliseconds = []
        if frames > 1 and image.format in ("GIF", "WEBP"):
            facts["frames"] = []
            for frame in ImageSequence.Iterator(image):
                facts["frames"].append(sha(convert_to_rgb(frame, return_numpy=True)))
                milliseconds.append(frame.info.get("duration", 0))
            facts["milliseconds"] = milliseconds
    with Image.open(io.BytesIO(data)) as image:
        rgb = convert_to_rgb(ImageOps.exif_transpose(image), return_numpy=True)
    return dict(width=rgb.shape[1], height=rgb.shape[0], sha256=sha(rgb), **facts)


# ---- numbers ----


def generated(width, height):
    """The picture that the tests make as well: bytes of a linear congruential generator, smoothed by none."""
    state, out = 12345, bytearray()
    for _ in range(width * height * 3):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 0xFF)
    return Image.frombytes("RGB", (width, height), bytes(out))


def resize_cases(rng):
    sizes = []
    for _ in range(40):
        width, height = rng.randrange(1, 90), rng.randrange(1, 90)
        to = rng.choice([1, 32, 64, rng.randrange(1, 200)]), rng.choice([1, 32, 64, rng.randrange(1, 200)])
        sizes.append((width, height, to))
    sizes += [(64, 33, to) for to in ((64, 33), (64, 96), (32, 33))]
    # Around the border between the two orders: the height shrinks by twice what the width shrinks by.
    sizes += [(70, 90, (60, height)) for height in (69, 70, 71)] + [(70, 90, (80, height)) for height in (89, 90, 91)]
    cases = []
    for width, height, to in sizes:
        picture = generated(width, height)
        rows = picture.resize((to[0], height), Image.Resampling.BICUBIC)
        cases.append(dict(width=width, height=height, to=list(to),
                          sha256=sha(picture.resize(to, Image.Resampling.BICUBIC).tobytes()),
                          rows_first=sha(rows.resize(to, Image.Resampling.BICUBIC).tobytes())))
    return cases


def size_cases(rng):
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as video_resize
    from transformers.video_utils import VideoMetadata
    images, videos, samples = [], [], []

    def side(low):
        return rng.choice([low, 16 * rng.randrange(2, 200), rng.randrange(low, 300), int(10 ** rng.uniform(1.6, 4.2))])

    def budget():
        low = rng.choice([1, 1024, 4096, 65536, 262144])
        return low, max(low, rng.choice([1024, 65536, 1003520, 16777216, rng.randrange(1024, 4000000)]))

    while len(images) < 200:
        height, width = side(1), side(1)
        if max(height, width) > 200 * min(height, width):
            continue
        low, high = budget()
        images.append([height, width, low, high, *smart_resize(height, width, 32, low, high)])
    while len(videos) < 100:
        frames, height, width = rng.randrange(2, 800), side(32), side(32)
        if max(height, width) > 200 * min(height, width):
            continue
        low, high = budget()
        high = max(high, low) * 24
        videos.append([frames, height, width, low, high, *video_resize(frames, height, width, 2, 32, low, high)])
    processor = Qwen3VLVideoProcessor()
    while len(samples) < 60:
        total = rng.choice([2, 3, 4, 5, 8, rng.randrange(2, 100), rng.randrange(2, 40000)])
        fps = rng.choice([24, 25, 30, 60, 29.97, 1, 0.5, 12.5, rng.uniform(0.2, 120)])
        indices = processor.sample_frames(VideoMetadata(total_num_frames=total, fps=fps)).tolist()
        times = Qwen3VLProcessor._calculate_timestamps(None, list(indices), fps, 2)
        samples.append(dict(total=total, fps=fps, count=len(indices), indices_sha256=sha(
            np.array(indices, dtype="<i4").tobytes()), first=indices[:6], last=indices[-6:],
            seconds=times[:3] + times[-3:]))
    return dict(images=images, videos=videos, samples=samples)


def patch_cases():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    cases = []
    for width, height, low, high in ((100, 60, 65536, 16777216), (320, 256, 4096, 65536), (32, 32, 1024, 1024),
                                     (33, 200, 4096, 65536)):
        processor = Qwen2VLImageProcessorPil(patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                                             min_pixels=low, max_pixels=high)
        out = processor(generated(width, height), return_tensors="np")
        values = out["pixel_values"].astype("<f4")
        cases.append(dict(width=width, height=height, min=low, max=high, shape=list(values.shape),
                          grid=out["image_grid_thw"][0].tolist(), sha256=sha(values.tobytes()),
                          first=[float(v) for v in values[0, :4]], last=[float(v) for v in values[-1, -4:]]))
    processor = Qwen2VLImageProcessorPil(patch_size=16, image_mean=[0.48145466, 0.4578275, 0.40821073],
                                         image_std=[0.26862954, 0.26130258, 0.27577711], min_pixels=1024,
                                         max_pixels=16384)
    values = processor(generated(50, 70), return_tensors="np")["pixel_values"].astype("<f4")
    cases.append(dict(width=50, height=70, min=1024, max=16384, clip=True, shape=list(values.shape),
                      sha256=sha(values.tobytes())))
    return cases


def main(argv):
    if int(PIL.__version__.split(".")[0]) < 13:
        sys.exit("error: this needs Pillow 13: older versions scale in another order")
    out = pathlib.Path(argv[0]) if argv else ROOT / "test/data/images"
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(20240607)
    facts = {}
    for make in (jpegs, oriented, pngs, gifs, webps, videos, transparent):
        for name, data in make(rng).items():
            (out / name).write_bytes(data)
            facts[name] = describe(data)
    documents = {"files": dict(pillow=PIL.__version__, files=facts), "resize": resize_cases(rng),
                 "sizes": size_cases(rng), "patches": patch_cases()}
    for name, document in documents.items():
        lines = json.dumps(document, indent=0 if name == "files" else None)
        (out / f"{name}.json").write_text(lines + "\n")
    total = sum(p.stat().st_size for p in out.iterdir())
    print(f"{len(facts)} picture files, {total} bytes in {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
