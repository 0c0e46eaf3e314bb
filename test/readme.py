"""The commands of the READMEs: those that run a program run here, and a terminal shows what the transcripts show.

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
