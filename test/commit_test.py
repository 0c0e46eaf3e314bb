"""cmake/commit.cmake: the commit of a checkout, with git and where git is not installed.

usage: commit_test.py SOURCE CMAKE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, CMAKE = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
SCRIPT = """
include(${MODULE})
kuiper_commit(${TREE} commit head)
message("${commit}|${head}")
"""
GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
       "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name).resolve()
        (self.dir / "script.cmake").write_text(SCRIPT)

    def commit(self, tree, path="/nonexistent"):
        """What the function returns, by default where git is not installed."""
        done = subprocess.run([CMAKE, f"-DMODULE={SOURCE}/cmake/commit.cmake", f"-DTREE={tree}", "-P",
                               self.dir / "script.cmake"], env={**os.environ, "PATH": path}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        commit, head = done.stderr.strip().split("|")
        self.assertEqual(bool(head), (tree / ".git").exists())
        self.assertTrue(not head or os.path.isfile(head), head)
        return commit

    def test_files_say_what_git_says(self):
        if shutil.which("git") is None:
            self.skipTest("git is not installed")
        tree = self.dir / "tree"

        def git(*args, folder=tree):
            return subprocess.run(["git", "-C", folder, *args], env={**os.environ, **GIT}, check=True,
                                  capture_output=True, text=True).stdout.strip()

        tree.mkdir()
        git("init", "-q", "-b", "main")
        self.assertEqual(self.commit(tree), "", "there is no commit yet")
        git("commit", "-q", "--allow-empty", "-m", "one")
        hashes = [git("rev-parse", "--short=7", "HEAD")]
        self.assertEqual(self.commit(tree), hashes[0])
        self.assertEqual(self.commit(tree, os.environ["PATH"]), hashes[0])
        git("pack-refs", "--all")
        self.assertEqual(self.commit(tree), hashes[0], "in packed-refs")
        git("worktree", "add", "-q", "-b", "topic/a", self.dir / "linked")
        git("commit", "-q", "--allow-empty", "-m", "two", folder=self.dir / "linked")
        hashes.append(git("rev-parse", "--short=7", "topic/a"))
        self.assertNotEqual(*hashes)
        self.assertEqual(self.commit(self.dir / "linked"), hashes[1], "a linked worktree")
        git("checkout", "-q", "--detach", "topic/a")
        self.assertEqual(self.commit(tree), hashes[1], "detached")

    def test_an_archive_has_none(self):
        outer = self.dir / "outer"
        (outer / ".git").mkdir(parents=True)
        (outer / ".git" / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
        self.assertEqual(self.commit(outer), "0123456")
        (outer / "archive").mkdir()
        for path in ("/nonexistent", os.environ["PATH"]):
            self.assertEqual(self.commit(outer / "archive", path), "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
