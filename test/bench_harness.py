"""What the tests of kuiper_bench share: how they run it, and how they read its tables and pictures."""
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

CELL = re.compile(r"[a-z][a-z0-9]*|[\d.]+[%x]?|-")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def rows_of(text, first):
    """The rows below each heading that begins with `first`, as dictionaries of its words."""
    rows, heading = [], None
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [first]:
            heading = words
        elif heading and len(words) == len(heading) and all(map(CELL.fullmatch, words)):
            rows.append({key: float(value.rstrip("%x")) if value[0].isdigit() else value
                         for key, value in zip(heading, words)})
        else:
            heading = None
    return rows


def table(bench, first, *options):
    done = run(bench, *options)
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout, first)


def refuses(bench, code, message, *options):
    done = run(bench, *options)
    assert done.returncode == code and not done.stdout and done.stderr.startswith(f"error: {message}"), done


def write(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def elements(path, name):
    return [e for e in ElementTree.parse(path).iter() if e.tag.endswith("}" + name)]


def main(*cases):
    """The case that the command line names: PROGRAM KUIPER_BENCH ROOT CASE."""
    bench, root, name = sys.argv[1:]
    {case.__name__: case for case in cases}[name.replace("-", "_")](bench, root)
