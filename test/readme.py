"""The commands of the READMEs: those that run a program run here, and a terminal shows what the transcripts
show. Both READMEs say the same.

usage: readme.py SOURCE FOLDER_OF_THE_PROGRAMS
"""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

SOURCE, PROGRAMS = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text):
    """The lines of sh blocks that call a program, or compare what programs wrote, without comments."""
    for block in blocks(text, "sh"):
        for line in block.splitlines():
            line = re.sub(r"\s+#.*", "", line)
            if re.match(r"(echo .*\| *)?build/demo/|diff ", line):
                yield line


def shown(raw):
    """What stays on a terminal: text without colours, and without lines that were overwritten."""
    text = raw.decode().replace("\r\n", "\n")
    text = re.sub(r"[^\n]*\r\x1b\[K", "", text)
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def without_speed(text):
    """The same on every machine: tokens per second differ, and a note about a GPU that the build does not use."""
    text = re.sub(r"(?m)^note: running on the CPU; .*\n", "", text)
    return re.sub(r"[\d.]+/s\b", "N/s", text)


# The headings of README.md in their order, each with the one of README.zh.md.
SECTIONS = {
    "Kuiper": "Kuiper", "Why Kuiper": "为什么用 Kuiper", "How fast": "速度", "Run": "运行", "Build": "编译",
    "Systems": "支持的系统", "Use as a library": "作为库使用", "Guarantees": "保证", "Measure": "测量", "Status": "现状",
    "How it is built": "内部结构", "Licence": "许可证"}


def read(name):
    return (SOURCE / name).read_text(encoding="utf-8")


def sections(text):
    """-> {heading: the text below it, to the next heading of any level}"""
    found, heading, in_code = {}, "", False
    for line in text.splitlines(keepends=True):
        in_code ^= line.startswith("```")
        if not in_code and re.match("#+ ", line):
            heading = line.strip("# \n")
        found[heading] = found.get(heading, "") + line
    return found


def code(text):
    """The code blocks of a section without their comments."""
    return [(language, re.sub(r"(?:^|[ \t]+)#.*", "", block, flags=re.M).splitlines())
            for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]


def links(text):
    return re.findall(r"\]\(([^)]+)\)", text)


def numbers(text):
    """The numbers of a section, sorted; not those of its code and links, which are compared as they are."""
    text = re.sub(r"^```.*?^```$|\]\([^)]+\)", "", text, flags=re.M | re.S)
    return sorted(re.findall(r"\d+(?:\.\d+)*", text))


def tables(text):
    """The numbers in each cell of each row of the tables of a section."""
    return [[numbers(cell) for cell in row.split("|")] for row in re.findall(r"^\|(.*)\|$", text, re.M)]


def anchor(heading):
    """What follows the # in a link to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Languages(unittest.TestCase):
    """README.zh.md says what README.md says, section by section."""

    def setUp(self):
        self.english, self.chinese = (sections(read(name)) for name in ("README.md", "README.zh.md"))

    def same(self, what, translate=lambda found: found):
        for heading, other in SECTIONS.items():
            self.assertEqual(translate(what(self.english[heading])), what(self.chinese[other]), f"{heading} / {other}")

    def test_sections(self):
        self.assertEqual(list(self.english), list(SECTIONS))
        self.assertEqual(list(self.chinese), list(SECTIONS.values()))

    def test_code(self):
        self.same(code)

    def test_tables(self):
        self.same(tables)

    def test_numbers(self):
        self.same(numbers)

    def test_links(self):
        own = {"#" + anchor(heading): "#" + anchor(other) for heading, other in SECTIONS.items()}
        own["README.zh.md"] = "README.md"
        self.same(lambda text: sorted(links(text)), lambda found: sorted(own.get(link, link) for link in found))

    def test_speed(self):
        ratios = [number for row in tables(self.english["How fast"])[2:] for cell in row[1:] for number in cell]
        self.assertGreater(len(ratios), 20)
        for ratio in ratios:
            self.assertIn(f"| {ratio} (", read("docs/comparisons.md"))

    def test_anchors(self):
        for name in ("README.md", "README.zh.md"):
            for link in links(read(name)):
                file, _, place = link.partition("#")
                if place:
                    self.assertIn(place, map(anchor, sections(read(file or name))), f"{name}: {link}")


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "demo").symlink_to(SOURCE / "demo")
        # In the place of the model that get_model.sh brings.
        (self.dir / "Qwen3-0.6B").symlink_to(SOURCE / "demo" / "models" / "tiny-qwen3")
        (self.dir / "build").mkdir()
        (self.dir / "build" / "demo").symlink_to(PROGRAMS)

    def run_line(self, line):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.dir,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr}")
        return done.stdout

    def run_on_terminal(self, line):
        """All that a terminal of 80 columns shows of the command."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        process = subprocess.Popen(["bash", "-c", line], cwd=self.dir, stdin=slave, stdout=slave, stderr=slave,
                                   start_new_session=True, env={**environment, "TERM": "xterm"})
        os.close(slave)
        raw = b""
        try:
            while part := os.read(master, 65536):
                raw += part
        except OSError:  # the program has ended, and no other has the terminal
            pass
        os.close(master)
        self.assertEqual(process.wait(timeout=250), 0, f"{line}\n{raw.decode()}")
        return shown(raw)

    def check(self, name, least):
        text = (SOURCE / name).read_text(encoding="utf-8")
        lines = list(commands(text))
        self.assertGreaterEqual(len(lines), least)
        for line in lines:
            self.run_line(line)
        transcripts = [part for session in blocks(text, "console")
                       for part in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.M)]
        self.assertGreaterEqual(len(transcripts), 3)
        for command, output in transcripts:
            self.assertEqual(without_speed(self.run_on_terminal(command)), without_speed(output), command)

    def test_english(self):
        self.check("README.md", 5)

    def test_chinese(self):
        self.check("README.zh.md", 8)

    def test_the_example_is_where_its_page_says(self):
        text = (SOURCE / "docs" / "paged_attention.md").read_text(encoding="utf-8")
        path, = re.findall(r"^build/(\S+)", "".join(blocks(text, "sh")), re.M)
        done = subprocess.run([PROGRAMS.parent / path], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "token 20: 10"), done.stderr)

    def test_links(self):
        for name in ("README.md", "README.zh.md"):
            text = (SOURCE / name).read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
                self.assertTrue((SOURCE / target).exists(), f"{name}: {target}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
