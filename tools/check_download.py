#!/usr/bin/env python3
"""Checks what `hf download --local-dir DIR` brought against the hashes that the hub gave for it.

The client keeps them beside the files: DIR/.cache/huggingface/download/NAME.metadata has the commit
and the ETag, which is the SHA-256 of a file in git-lfs and the blob id of git for any other. A file
that does not match is removed, so that the next download brings it again.
"""
import hashlib
import pathlib
import sys


def digest(path, etag):
    """The hash of the kind that `etag` is, or None if it is of no known kind."""
    if len(etag) == 64:
        made = hashlib.sha256()
    elif len(etag) == 40:
        made = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    else:
        return None
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    return made.hexdigest()


def check(root):
    """Prints a line per file that is damaged and returns (files, bytes, damaged files)."""
    notes = root / ".cache" / "huggingface" / "download"
    files = size = damaged = 0
    for note in sorted(notes.rglob("*.metadata")):
        name = note.relative_to(notes).as_posix().removesuffix(".metadata")
        etag = note.read_text().splitlines()[1].strip()
        path = root / name
        if not path.is_file():
            problem = "is missing"
        elif digest(path, etag) != etag:
            problem = f"is damaged ({path.stat().st_size} bytes do not have the hash {etag})"
        else:
            files += 1
            size += path.stat().st_size
            continue
        print(f"error: {path} {problem}", file=sys.stderr)
        damaged += 1
        note.unlink()
        path.unlink(missing_ok=True)
    return files, size, damaged


def report(root):
    """Prints what is wrong, or that all is well, and returns the exit code."""
    files, size, damaged = check(root)
    if damaged:
        return 1
    if files == 0:
        print(f"error: {root} has no files that hf downloaded", file=sys.stderr)
        return 1
    if not (root / "config.json").is_file():
        print(f"error: {root} has no config.json: that is no model in Hugging Face's form",
              file=sys.stderr)
        return 1
    print(f"{root}: {files} files, {size / 1e9:.3f} GB, all as the hub has them")
    return 0


def main():
    if len(sys.argv) != 2:
        print("usage: check_download.py DIR", file=sys.stderr)
        return 2
    return report(pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
