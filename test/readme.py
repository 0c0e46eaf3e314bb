"""The commands of the READMEs: those that run a program run here, and print what is shown.

usage: readme.py SOURCE FOLDER_OF_THE_PROGRAMS
"""
import pathlib
import re
import subprocess
import sys
import tempfile
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


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "demo").symlink_to(SOURCE / "demo")
        (self.dir / "build").mkdir()
        (self.dir / "build" / "demo").symlink_to(PROGRAMS)

    def run_line(self, line):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.dir,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr}")
        return done.stdout

    def check(self, name, least):
        text = (SOURCE / name).read_text(encoding="utf-8")
        lines = list(commands(text))
        self.assertGreaterEqual(len(lines), least)
        for line in lines:
            self.run_line(line)
        for session in blocks(text, "console"):
            for command, output in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", session, re.M):
                self.assertEqual(self.run_line(command), output, command)

    def test_english(self):
        self.check("README.md", 5)

    def test_chinese(self):
        self.check("README.zh.md", 8)

    def test_links(self):
        for name in ("README.md", "README.zh.md"):
            text = (SOURCE / name).read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
                self.assertTrue((SOURCE / target).exists(), f"{name}: {target}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
