"""What the command line tests share: running a program, checking how it ended."""
import argparse
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

ARGS = argparse.Namespace()  # filled by cli_test.py
CRASHES = (134, 139, -6, -11, -7, -8)


def program(name):
    """In the folder of the programs or, in a build tree, in that of the tools beside it."""
    path = os.path.join(ARGS.bin, name)
    return path if os.path.exists(path) else os.path.join(ARGS.bin, "..", "tools", name)


def data(path):
    return os.path.join(ARGS.data, path)


def default_signals():
    """A test run in the background must not pass its ignored signals on."""
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def fnv1a64(ids):
    value = 0xCBF29CE484222325
    for i in ids:
        for byte in struct.pack("<i", i):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % value


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def error_lines(self):
        return [line for line in self.err.splitlines() if line.startswith("error:")]

    def json(self):
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        return json.loads(lines[0])


class CliTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.qwen3 = os.path.join(ARGS.models, "tiny-qwen3")
        cls.qwen25 = os.path.join(ARGS.models, "tiny-qwen2.5")
        for path in (cls.qwen3, cls.qwen25):
            assert os.path.isfile(os.path.join(path, "config.json")), "no bundled model " + path

    def shared_data(self, name):
        """The path of a file of the data set beside the project; without it the test is skipped, or fails in CI."""
        path = data(name)
        if not os.path.exists(path):
            if os.environ.get("KUIPER_REQUIRE_TEST_DATA") == "1":
                self.fail("missing " + path)
            self.skipTest("no " + path)
        return path

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="kuiper_cli_")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name, content=None):
        path = os.path.join(self.dir, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
        return path

    def run_cli(self, *args, stdin=b"", name="qwen3_infer", env=None, closed=()):
        """`closed`: numbers of the standard streams that the program finds closed."""
        if isinstance(stdin, str):
            stdin = stdin.encode()

        def prepare():
            default_signals()
            for number in closed:
                os.close(number)

        args = [arg if isinstance(arg, bytes) else str(arg) for arg in args]
        done = subprocess.run([program(name), *args], input=stdin, capture_output=True,
                              timeout=300, env={**os.environ, **(env or {})}, preexec_fn=prepare)
        self.assertNotIn(done.returncode, CRASHES, done.stderr)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *args, **kwargs):
        result = self.run_cli(*args, **kwargs)
        self.assertEqual(result.rc, 0, result.err)
        return result

    def qwen3_run(self, *args, **kwargs):
        return self.ok(self.qwen3, "--device", "cpu", *args, **kwargs)

    def fails(self, code, *args, message=None, hint=None, **kwargs):
        """Exit code, exactly one `error:` line, at most two hints, an empty stdout."""
        result = self.run_cli(*args, **kwargs)
        self.assertEqual(result.rc, code, result.err)
        self.assertEqual(len(result.error_lines()), 1, result.err)
        self.assertEqual(result.out, "")
        if message is not None:
            self.assertIn(message, result.error_lines()[0])
        if hint is not None:
            self.assertRegex(result.err, "(?m)^hint: .*" + hint)
        after = result.err[result.err.index("error:"):].splitlines()[1:]
        self.assertLessEqual(len(after), 2, result.err)
        for line in after:
            self.assertTrue(line.startswith("hint: "), line)
        return result


class Process:
    """A running program with pipes; reads with a time limit."""

    def __init__(self, args, stdin=subprocess.PIPE):
        self.p = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, preexec_fn=default_signals)

    def read(self, seconds=120):
        ready, _, _ = select.select([self.p.stdout], [], [], seconds)
        assert ready, "no output in time"
        return os.read(self.p.stdout.fileno(), 65536)

    def finish(self, more=None, seconds=120):
        out, err = self.p.communicate(more, timeout=seconds)
        return self.p.returncode, out, err

    def wait_for_line(self, start):
        """Reads stderr up to the line that begins so."""
        line = b""
        while not line.startswith(start):
            line = self.p.stderr.readline()
            assert line, "the program ended without the line " + start.decode()
