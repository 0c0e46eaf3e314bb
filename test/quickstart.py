"""What tools/quickstart.sh and test.sh say and do on machines of this test's making, where nothing is built.

usage: quickstart.py SOURCE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import stubs

SOURCE = pathlib.Path(sys.argv[1]).resolve()
CMAKE = r"""
echo "cmake $*" >>"$LOG"
case "$*" in
  -S*)
    mkdir -p build
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >build/CMakeCache.txt
    echo "-- Configuring done" ;;
  *" -n") for ((i = 1; i <= 338; i++)); do echo "[$i/338] step"; done ;;
  *)
    mkdir -p build/demo
    cat >build/demo/qwen3_infer <<'END'
#!/bin/bash
echo "qwen3_infer $*" >>"$LOG"
echo "Assistant: hello"
[[ $* != *--paged-attention* ]] || state=enabled
[[ $* == *--quiet* ]] || printf 'Paged Attention: %s\nOutput: 1 token ids=0a\n' "${state:-disabled}" >&2
END
    cp build/demo/qwen3_infer build/demo/qwen3_vl_infer
    chmod +x build/demo/* ;;
esac
"""
APT = r"""
echo "apt-get $*" >>"$LOG"
case "$*" in
  *--print-uris*)
    [ -z "$APT_ERROR" ] || exit 100
    printf "'http://a/%s' %s.deb %d SHA256:00\n" one one 60000000 two two 45000000 ;;
  *) echo "the progress of apt"; [ -z "$APT_ERROR" ] || { echo "$APT_ERROR" >&2; exit 100; } ;;
esac
"""
NO_NETWORK = "E: Failed to fetch http://a/one  Temporary failure resolving 'a'"


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.dir.chmod(0o755)  # for another user, too
        self.log = self.dir / "log"
        self.root = self.make_project("project")

    def make_project(self, name):
        """A folder with the two scripts; others that they call do nothing."""
        root = self.dir / name
        (root / "tools").mkdir(parents=True)
        text = ""
        for script in ("packages.sh", "quickstart.sh", "test.sh"):
            shutil.copy(SOURCE / "tools" / script, root / "tools")
            text += (root / "tools" / script).read_text(encoding="utf-8")
        for script in set(re.findall(r"tools/\w+\.sh", text)):
            if not (root / script).exists():
                (root / script).write_text("#!/bin/sh\n")
                (root / script).chmod(0o755)
        return root

    def machine(self, uid=0, installed=False, apt_error="", **more):
        shutil.rmtree(self.dir / "bin", ignore_errors=True)
        tools = dict.fromkeys(("g++", "ninja", "pkg_config", "python3", "ctest"), "")
        path = stubs.make_path(
            self.dir / "bin", **tools, cmake=CMAKE, apt_get=APT, nproc="echo 2",
            id=f"[ $1 = -u ] && echo {uid} || echo someone",
            dpkg_query="echo install ok installed" if installed else "exit 1", **more)
        self.env = {"PATH": path, "LOG": str(self.log), "APT_ERROR": apt_error, "TMPDIR": "/nonexistent"}

    def run_script(self, *arguments, script="quickstart.sh", **more):
        self.log.write_text("")
        self.log.chmod(0o666)
        bash = self.dir / "bin" / "bash"
        return subprocess.run([bash, self.root / "tools" / script, *arguments], env=self.env, cwd=self.dir,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **more)

    def calls(self):
        return self.log.read_text().splitlines()

    def assert_fails(self, run, error, hint, code=1):
        """stderr is two lines."""
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertRegex(run.stderr, rf"\Aerror: [^\n]*{error}[^\n]*\nhint: [^\n]*{hint}[^\n]*\n\Z")

    def test_says_what_is_coming_before_it_comes(self):
        self.machine()
        run = self.run_script("Tell me more")
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)
        self.assertRegex(run.stdout, r"packages: missing are .*libboost-dev")
        self.assertIn("packages: 2 to download, 105 MB; this may take a few minutes\n", run.stdout)
        jobs, minutes = re.search(r"\n338 steps, (\d) at a time: about (\d+) min ", run.stdout).groups()
        self.assertAlmostEqual(int(minutes), 16 / int(jobs), delta=1)
        self.assertNotIn("the progress of apt", run.stdout)
        self.assertIn("OK: paged and contiguous answers are the same", run.stdout)
        calls = "\n".join(self.calls())
        self.assertRegex(calls, r"(?s)\Aapt-get [^\n]*update\n.*--print-uris.*apt-get -qq install -y "
                                r".*cmake -S .*-- -n\ncmake --build .*qwen3_infer .*--prompt=Tell me more ")
        after = run.stdout.split("Where to go next:")[1]
        for word in ("tools/get_model.sh Qwen/Qwen3-0.6B", "kuiper chat", "kuiper serve", "tools/test.sh"):
            self.assertIn(word, after)
        self.assertEqual([path for path in (self.root / "build").iterdir() if "quickstart" in path.name], [])

    def test_installs_nothing_that_is_there(self):
        self.machine(installed=True)
        run = self.run_script()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("packages: nothing is missing\n", run.stdout)
        self.assertFalse([call for call in self.calls() if call.startswith("apt-get")])

    def test_a_terminal_shows_the_progress_of_apt(self):
        self.machine(apt_error=NO_NETWORK)
        code, shown = stubs.run_on_terminal(
            [self.dir / "bin" / "bash", self.root / "tools" / "quickstart.sh"], self.env)
        self.assertEqual(code, 1, shown)
        self.assertEqual(shown.count("the progress of apt"), 2)  # update and install
        self.assertNotIn("-qq update", self.log.read_text())

    def test_help_and_bad_calls_do_nothing(self):
        self.machine()
        for option in ("-h", "--help"):
            run = self.run_script(option)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn("tools/quickstart.sh [PROMPT]\n", run.stdout)
        self.assert_fails(self.run_script("--prompt"), "there is no option --prompt", "--help", code=2)
        self.assert_fails(self.run_script("Tell", "me"), "more than one argument", 'quickstart.sh "Tell me"', code=2)
        self.assertEqual(self.calls(), [])
        self.assertFalse((self.root / "build").exists())

    def test_no_network(self):
        self.machine(apt_error=NO_NETWORK)
        self.assert_fails(self.run_script(), "apt cannot install the packages: Failed to fetch http://a/one",
                          "if there was no network, start again .* apt-get install .*libboost-dev")

    def test_no_root(self):
        hint = "ask an administrator to run: apt-get update && apt-get install .*libboost-dev"
        for script in ("quickstart.sh", "test.sh"):
            self.machine(uid=1000)
            self.assert_fails(self.run_script(script=script), "installing packages takes root or sudo", hint)
            self.machine(uid=1000, sudo="exit 1")
            self.assert_fails(self.run_script(script=script), "installing packages takes root or sudo", hint)
            self.assertEqual(self.calls(), [])
        self.machine(uid=1000, sudo='echo "sudo $*" >>"$LOG"; exec "$@"', true="")
        self.assertEqual(self.run_script().returncode, 0)
        self.assertIn("sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y", self.log.read_text())

    def test_no_apt(self):
        self.machine()
        (self.dir / "bin" / "apt-get").unlink()
        self.assert_fails(self.run_script(), "libboost-dev.* are missing, and this system has no apt-get", "package manager")

    def test_moved_folder(self):
        self.machine(installed=True)
        self.assertEqual(self.run_script().returncode, 0)
        self.root = self.root.rename(self.dir / "elsewhere")
        for script in ("quickstart.sh", "test.sh"):
            self.assert_fails(self.run_script(script=script), f"build was made for the project in {self.dir}/project",
                              "rm -rf build")
            self.assertEqual(self.calls(), [])
        (self.dir / "project").symlink_to(self.root)  # the same folder by another name
        self.assertEqual(self.run_script().returncode, 0)

    def test_folder_of_another_user(self):
        self.machine(uid=1000, installed=True)
        self.assertEqual(self.run_script().returncode, 0)
        user = {"user": 65534, "group": 65534} if os.getuid() == 0 else {}
        kept = self.root / "build" / "CMakeCache.txt"
        for path, mode in ((kept, 0o444), (self.root / "build" / "demo", 0o555), (self.root / "build", 0o555)):
            for other in (self.root / "build").rglob("*"):
                other.chmod(0o777)
            (self.root / "build").chmod(0o777)
            path.chmod(mode)
            for script in ("quickstart.sh", "test.sh"):
                run = self.run_script(script=script, **user)
                self.assert_fails(run, "someone cannot write into all of build", "sudo chown -R someone build")
                self.assertNotIn("Configuring done", run.stdout)
                self.assertEqual(self.calls(), [])
        self.root.joinpath("build").chmod(0o777)
        shutil.rmtree(self.root / "build")
        self.root.chmod(0o555)
        self.assert_fails(self.run_script(**user), "someone cannot make the folder build", "folder of your own")
        self.root.chmod(0o755)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
