"""What `cmake --install` brings: stripped programs, one of them under six names, and what the README says about
find_package(kuiper), as it is written there.

usage: install_test.py SOURCE BUILD CMAKE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, CMAKE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
LINKS = ("qwen_infer", "qwen3_infer", "qwen3_vl_infer", "kuiper_batch", "kuiper_server")
PROGRAMS = ("kuiper", "kuiper_bench", "kuiper_logits", "kuiper_pack")


def run(*command, **kwargs):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.prefix = self.dir / "prefix"

    def install(self, prefix, **environment):
        """On a machine that has nothing but CMake."""
        run(CMAKE, "--install", BUILD, "--prefix", prefix, env={"PATH": "/nonexistent", **environment})

    def check_programs(self, folder):
        self.assertEqual({path.name for path in folder.iterdir()}, {*LINKS, *PROGRAMS})
        for name in LINKS:
            self.assertEqual(os.readlink(folder / name), "kuiper")
            self.assertIn(f"usage: {name} MODEL", run(folder / name, "--help"))
        self.assertIn("usage: kuiper COMMAND", run(folder / "kuiper", "--help"))
        self.assertIn("usage: kuiper_bench", run(folder / "kuiper", "bench", "--help"))
        if "CMAKE_BUILD_TYPE:STRING=Release\n" not in (BUILD / "CMakeCache.txt").read_text():
            return
        for name in PROGRAMS:
            self.assertNotIn(b"\0.symtab\0", (folder / name).read_bytes(), name + " is not stripped")

    def test_programs(self):
        (self.prefix / "bin").mkdir(parents=True)
        shutil.copy(BUILD / "demo" / "kuiper", self.prefix / "bin" / "qwen_infer")  # of an installation with copies
        self.install(self.prefix)
        self.check_programs(self.prefix / "bin")
        self.install("/usr", DESTDIR=str(self.dir / "root"))
        self.check_programs(self.dir / "root" / "usr" / "bin")

    def test_links_of_the_build(self):
        for name in LINKS:
            self.assertEqual(os.readlink(BUILD / "demo" / name), "kuiper")

    def test_find_package_as_the_readme_has_it(self):
        self.install(self.prefix)
        text = (SOURCE / "README.md").read_text(encoding="utf-8")
        lists, = re.findall(r"^```cmake\n(.*?)^```$", text, re.M | re.S)
        commands, = re.findall(r"^(cmake .*-DCMAKE_PREFIX_PATH=PREFIX.*)$", text, re.M)
        commands = re.sub(r" +#.*", "", commands).replace("PREFIX_PATH=PREFIX", f"PREFIX_PATH={self.prefix}")
        app = self.dir / "app"
        app.mkdir()
        (app / "CMakeLists.txt").write_text(lists)
        shutil.copy(SOURCE / "docs" / "examples" / "generate.cpp", app / "main.cpp")
        run("bash", "-e", "-c", commands, cwd=self.dir)
        answer = run(app / "build" / "app", SOURCE / "demo" / "models" / "tiny-qwen3", "What is 2 + 3?")
        self.assertIn("2 + 3 = 5", answer)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
