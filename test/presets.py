"""CMakePresets.json on a tiny project: the presets work in a folder that tools/quickstart.sh has configured.

usage: presets.py SOURCE CMAKE CTEST
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, CMAKE, CTEST = sys.argv[1:4]
PRESETS = pathlib.Path(SOURCE) / "CMakePresets.json"
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(tiny LANGUAGES NONE)
option(KUIPER_BUILD_TESTS "" ON)
option(KUIPER_SIMT "" ${KUIPER_BUILD_TESTS})
if(KUIPER_BUILD_TESTS)
  enable_testing()
  add_test(NAME one COMMAND ${CMAKE_COMMAND} -E true)
  if(KUIPER_SIMT)
    add_test(NAME two COMMAND ${CMAKE_COMMAND} -E true)
  endif()
endif()
"""


class Presets(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        shutil.copy(PRESETS, self.dir)
        (self.dir / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        self.presets = json.loads(PRESETS.read_text(encoding="utf-8"))

    def run_tool(self, *command):
        return subprocess.run(command, cwd=self.dir, capture_output=True, text=True, timeout=60)

    def call(self, *command):
        done = self.run_tool(*command)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_a_folder_without_tests_is_an_error_until_the_preset_configures_it(self):
        names = [preset["name"] for preset in self.presets["testPresets"]]
        self.assertEqual(names, ["cpu", "cuda", "asan"])
        for name in names:
            with self.subTest(name):
                folder = next(preset["binaryDir"] for preset in self.presets["configurePresets"]
                              if preset["name"] == name).replace("${sourceDir}", str(self.dir))
                self.call(CMAKE, "-S", ".", "-B", folder, "-G", "Ninja", "-DKUIPER_BUILD_TESTS=OFF")
                empty = self.run_tool(CTEST, "--preset", name)
                self.assertNotEqual(empty.returncode, 0, empty.stdout)
                self.assertIn("No tests were found", empty.stdout + empty.stderr)
                self.call(CMAKE, "--preset", name)
                self.call(CMAKE, "--build", "--preset", name)
                self.assertIn("100% tests passed, 0 tests failed out of 2",
                              self.call(CTEST, "--preset", name))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
