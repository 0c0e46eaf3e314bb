"""Which Highway a build takes: cmake/highway.cmake, need_highway of tools/packages.sh, tools/get_highway.sh.

usage: highway.py SOURCE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve()
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(scratch LANGUAGES CXX)
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
include(cmake/highway.cmake)
message(STATUS "links ${KUIPER_HIGHWAY_TARGET}")
"""


def value(name):
    return re.search(rf"^{name}=(.*)$", (SOURCE / "tools" / "packages.sh").read_text(), re.M)[1]


OLDEST, NEWEST, BROUGHT = (value(f"KUIPER_HIGHWAY_{which}") for which in ("OLDEST", "NEWEST", "VERSION"))


class Highway(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        for name in ("tools/packages.sh", "tools/get_highway.sh", "cmake/highway.cmake"):
            (self.dir / name).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE / name, self.dir / name)
        (self.dir / "stubs").mkdir()
        self.env = {**os.environ, "PATH": f"{self.dir}/stubs:{os.environ['PATH']}",
                    "PKG_CONFIG_LIBDIR": str(self.dir / "packages")}

    def stub(self, name, script):
        path = self.dir / "stubs" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run_in(self, *command):
        return subprocess.run(command, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)

    def system_has(self, version):
        (self.dir / "packages").mkdir(exist_ok=True)
        (self.dir / "packages" / "libhwy.pc").write_text(f"Name: libhwy\nDescription: -\nVersion: {version}\nLibs: -lhwy\n")

    def bring(self):
        folder = self.dir / "build" / f"highway-{BROUGHT}"
        (folder / "hwy").mkdir(parents=True)
        for name in ("highway.h", "abort.cc", "per_target.cc", "targets.cc"):
            (folder / "hwy" / name).touch()

    def configure(self):
        (self.dir / "CMakeLists.txt").write_text(PROJECT)
        (self.dir / "build" / "CMakeCache.txt").unlink(missing_ok=True)
        done = self.run_in("cmake", "-G", "Ninja", "-S", ".", "-B", "build")
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def test_cmake_refuses_what_is_too_old(self):
        self.system_has("0.16.0")
        code, text = self.configure()
        self.assertNotEqual(code, 0)
        self.assertIn(f"The system's Highway is 0.16.0, and Kuiper needs {OLDEST} or newer: run tools/get_highway.sh, "
                      f"which brings {BROUGHT} into build/", text)
        self.system_has(NEWEST)  # an upgrade; the same build folder
        self.assertEqual(self.run_in("cmake", "-G", "Ninja", "-S", ".", "-B", "build").returncode, 0)

    def test_cmake_names_both_ways_where_none_is(self):
        code, text = self.configure()
        self.assertNotEqual(code, 0)
        self.assertIn("libhwy was not found: apt-get install libhwy-dev, or run tools/get_highway.sh", text)

    def test_cmake_takes_what_was_tested(self):
        for version in (OLDEST, "1.0.7", NEWEST):
            self.system_has(version)
            code, text = self.configure()
            self.assertEqual(code, 0, text)
            self.assertIn(f"Highway {version}: the system's", text)
            self.assertIn("links PkgConfig::HWY", text)
            self.assertNotIn("Warning", text)

    def test_cmake_warns_of_what_is_newer(self):
        self.system_has("9.0.0")
        code, text = self.configure()
        self.assertEqual(code, 0, text)
        self.assertIn(f"was tested with Highway {OLDEST} to {NEWEST}, and the system's is 9.0.0", text)

    def test_cmake_prefers_what_was_brought(self):
        self.system_has(OLDEST)
        self.bring()
        code, text = self.configure()
        self.assertEqual(code, 0, text)
        self.assertIn("links kuiper_highway", text)

    def need_highway(self, candidate):
        """What need_highway does where apt offers `candidate` and nothing is installed."""
        self.stub("apt-cache", f"printf 'libhwy-dev:\\n  Installed: (none)\\n  Candidate: {candidate}\\n'")
        self.stub("dpkg-query", "exit 1")
        self.stub("apt-get", 'echo "apt-get $*" >>calls')
        self.stub("id", "echo 0")
        self.stub("curl", 'echo "curl $*" >>calls; exit 7')
        (self.dir / "calls").unlink(missing_ok=True)
        self.run_in("bash", "-c", ". tools/packages.sh; need_highway")
        calls = self.dir / "calls"
        return calls.read_text() if calls.exists() else ""

    def test_scripts_bring_what_the_system_lacks(self):
        for candidate in ("1.0.3-3+deb12u1", "1.0.7-8.1build1", "1.2.0-2+b2"):
            calls = self.need_highway(candidate)
            self.assertIn("libhwy-dev", calls, candidate)
            self.assertNotIn("curl -fsSL", calls, candidate)
        for candidate in ("0.16.0-1", "9.0.0-1", "(none)"):
            calls = self.need_highway(candidate)
            self.assertNotIn("libhwy-dev", calls, candidate)
            self.assertIn(f"highway-{BROUGHT}.tar.gz", calls, candidate)

    def test_scripts_install_nothing_where_one_is_there(self):
        self.system_has("1.2.0")
        self.assertEqual(self.need_highway("1.0.3-3"), "")
        self.system_has("0.16.0")
        self.bring()
        self.assertEqual(self.need_highway("0.16.0-1"), "")

    def get(self, *arguments):
        return self.run_in("tools/get_highway.sh", *arguments)

    def test_a_wrong_file_is_refused(self):
        (self.dir / "other.tar.gz").write_bytes(b"no archive")
        for file, words in (("other.tar.gz", f"other.tar.gz is not Highway {BROUGHT}: its SHA-256 is"),
                            ("none.tar.gz", "there is no file none.tar.gz")):
            done = self.get(file)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, f"^error: {words}.*\nhint: download https://.*\n$")
            self.assertEqual(list((self.dir / "build").iterdir()), [])

    def test_without_network_the_file_may_be_carried(self):
        self.stub("curl", "exit 6")
        done = self.get()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^error: cannot download https://.*\nhint: download it on another machine, "
                                      r"then run: tools/get_highway\.sh FILE\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
