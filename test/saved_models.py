"""Logits of models that transformers saved against its own: the folders of tools/make_saved_models.py.

    python3 test/saved_models.py TOOLS_DIR MODELS_DIR

TOOLS_DIR holds kuiper_logits and kuiper_pack.
"""
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

TOOLS, MODELS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TOLERANCE = 1e-3  # of logits up to about 15


def read_npy(path):
    """-> the float32 values of a file of NumPy's format 1."""
    data = path.read_bytes()
    header = struct.unpack_from("<H", data, 8)[0]
    assert b"<f4" in data[:10 + header], path
    return [value for value, in struct.iter_unpack("<f", data[10 + header:])]


class SavedModels(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def logits(self, model, folder, code=0):
        args = ["--ids", folder / "ids.txt", "--out", self.dir / "out.npy", "--dtype", "fp32"]
        if (folder / "image.png").exists():
            args += ["--image", folder / "image.png", "--video", folder / "video", "--video-fps", "2"]
        run = subprocess.run([TOOLS / "kuiper_logits", model, *args], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stderr if code else read_npy(self.dir / "out.npy")

    def expect_logits(self, model, folder):
        expected, found = read_npy(folder / "logits.npy"), self.logits(model, folder)
        self.assertEqual(len(found), len(expected))
        worst = max(range(len(found)), key=lambda i: abs(found[i] - expected[i]))
        self.assertAlmostEqual(found[worst], expected[worst], delta=TOLERANCE, msg=f"element {worst}")

    def test_logits_are_those_of_transformers(self):
        folders = [path for path in sorted(MODELS.iterdir()) if path.is_dir()]
        self.assertEqual({path.name.split("-")[0] for path in folders},
                         {"qwen2", "qwen3", "llama", "mistral", "qwen3vl"})
        for folder in folders:
            with self.subTest(folder.name):
                self.expect_logits(folder, folder)

    def test_a_container_carries_the_processor(self):
        folder = MODELS / "qwen3vl-tied"
        packed = self.dir / "packed.bin"
        subprocess.run([TOOLS / "kuiper_pack", folder, packed], check=True, timeout=120)
        self.expect_logits(packed, folder)

    def test_older_files_count_after_processor_config(self):
        folder, model = MODELS / "qwen3vl-tied", self.dir / "model"
        shutil.copytree(folder, model)
        for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
            (model / name).write_text("{}")
        self.expect_logits(model, folder)
        for name in ("processor_config.json", "preprocessor_config.json"):
            (model / name).unlink()
        self.assertIn('preprocessor_config.json is missing, and so is "image_processor"',
                      self.logits(model, folder, code=3))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
