"""tools/get_model.sh against a hub of its own on this machine: whole, interrupted, damaged, and what it says of
each failure.
"""
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import stubs

SOURCE = pathlib.Path(sys.argv[1]).resolve()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SKIPPED = 77  # CTest's SKIP_RETURN_CODE


class Hub(http.server.BaseHTTPRequestHandler):
    """The calls of the hub that `hf download` makes."""
    protocol_version = "HTTP/1.1"
    files = {}
    cut = {}  # after so many bytes the connection ends, once
    sent = []  # (name, first byte)
    sizes = {}  # what the hub says of a file, if not the truth
    refusal = None  # (path, status, X-Error-Code) of an answer to requests whose path begins so

    def etag(self, name):
        data = self.files[name]
        if name.endswith(".safetensors"):
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def size(self, name):
        return self.sizes.get(name, len(self.files[name]))

    def entry(self, name):
        entry = {"type": "file", "path": name, "size": self.size(name), "oid": self.etag(name)}
        if name.endswith(".safetensors"):
            entry["lfs"] = {"oid": self.etag(name), "size": entry["size"], "pointerSize": 1}
        return entry

    def reply(self, code, body=b"", **headers):
        self.send_response(code)
        self.send_header("X-Repo-Commit", COMMIT)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if self.refusal and path.startswith(self.refusal[0]):
            self.reply(self.refusal[1], b"{}", X_Error_Code=self.refusal[2])
        elif path.startswith("/api/models/org/tiny/tree/"):
            body = json.dumps([self.entry(name) for name in self.files]).encode()
            self.reply(200, body, Content_Type="application/json")
        elif path.startswith("/api/models/org/tiny"):
            body = {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "private": False,
                    "siblings": [{"rfilename": name} for name in self.files]}
            self.reply(200, json.dumps(body).encode(), Content_Type="application/json")
        elif path.startswith("/org/tiny/resolve/"):
            self.send_file(path.split("/", 5)[5])
        else:
            self.reply(404, b"{}", X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def send_file(self, name):
        data, first = self.files[name], 0
        headers = {"ETag": f'"{self.etag(name)}"', "Accept_Ranges": "bytes"}
        if self.command == "GET" and "Range" in self.headers:
            first = int(self.headers["Range"].split("=")[1].split("-")[0])
            headers["Content_Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        part = data[first:]
        headers["Content_Length"] = str(self.size(name) - first)
        if self.command == "GET":
            self.sent.append((name, first))
            end = self.cut.pop(name, None)
            if end is not None:
                part = part[:end]
                self.close_connection = True
        self.reply(206 if first else 200, part, **headers)

    def log_message(self, *args):
        pass


PICTURE_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


class GetModel(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        model = SOURCE / "demo" / "models" / "tiny-qwen3"
        Hub.files = {p.name: p.read_bytes() for p in model.iterdir() if p.is_file()}
        for name in PICTURE_FILES:
            Hub.files[name] = b"{}"
        Hub.files["pytorch_model.bin"] = b"not wanted"
        Hub.cut, Hub.sent, Hub.sizes, Hub.refusal = {}, [], {}, None
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                    "HF_HOME": str(self.dir / "home"), "HF_HUB_DISABLE_XET": "1",
                    "XDG_CACHE_HOME": str(self.dir / "cache")}
        self.env.pop("HF_TOKEN", None)
        self.server = server
        self.target = self.dir / "tiny"

    def get(self, model="org/tiny"):
        """In another folder than the project's."""
        run = subprocess.run(["bash", SOURCE / "tools" / "get_model.sh", model], cwd=self.dir,
                             env=self.env, capture_output=True, text=True, timeout=250)
        self.assertNotIn("\x1b", run.stdout + run.stderr)
        return run

    def assert_fails(self, run, *words, by_hand=False):
        """One line says what is wrong; others are hints, after what was being done."""
        self.assertEqual(run.returncode, 1, run.stderr)
        lines = run.stderr.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("error: "))
        self.assertEqual([line[:6] for line in lines[first + 1:]], ["hint: "] * (1 + by_hand), run.stderr)
        self.assertEqual("copy by hand into" in run.stderr, by_hand, run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def wanted(self):
        return [name for name in Hub.files
                if name.endswith((".safetensors", ".jinja")) or
                name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                         *PICTURE_FILES)]

    def assert_whole(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("all as the hub has them", run.stdout)
        self.assertGreaterEqual(len(self.wanted()), 4)
        for name in self.wanted():
            self.assertEqual((self.target / name).read_bytes(), Hub.files[name], name)
        self.assertFalse((self.target / "pytorch_model.bin").exists())

    def test_brings_what_a_model_needs_once(self):
        self.assert_whole(self.get())
        sent = len(Hub.sent)
        self.assert_whole(self.get())
        self.assertEqual(len(Hub.sent), sent, "nothing is brought twice")

    def test_goes_on_after_an_interruption(self):
        Hub.files["large.safetensors"] = os.urandom(30_000_000)  # the client keeps blocks of 10 MB
        Hub.cut = {"large.safetensors": 25_000_000}
        self.assert_whole(self.get())
        parts = [first for name, first in Hub.sent if name == "large.safetensors"]
        self.assertEqual(parts[0], 0)
        self.assertGreater(parts[1], 0)

    def test_brings_damaged_files_again(self):
        self.assert_whole(self.get())
        for name, damage in (("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
                             ("config.json", lambda data: data[:-5])):
            path = self.target / name
            path.write_bytes(damage(path.read_bytes()))
            check = subprocess.run([SOURCE / "tools" / "check_download.py", self.target],
                                   capture_output=True, text=True)
            self.assertEqual(check.returncode, 1)
            self.assertIn(f"error: {path} is damaged", check.stderr)
            self.assertFalse(path.exists())
            self.assert_whole(self.get())

    def test_says_how_much_it_brings_and_how_to_run_it(self):
        Hub.files["large.safetensors"] = bytes(30_000_000)
        run = self.get()
        self.assert_whole(run)
        size = f"{sum(len(Hub.files[name]) for name in self.wanted()) / 1e9:.3f} GB"
        self.assertEqual(run.stderr, f"org/tiny: {len(self.wanted())} files, {size}, of which {size} are to be "
                                     "downloaded into tiny\n")
        kuiper = os.path.relpath(SOURCE / "build" / "demo" / "kuiper", os.path.realpath(self.dir))
        self.assertTrue(run.stdout.endswith(f"\nRun it: {kuiper} chat tiny\n"), run.stdout)
        (self.target / "large.safetensors").unlink()
        self.assertIn(f"{size}, of which 0.030 GB are to be downloaded", self.get().stderr)

    def test_a_terminal_shows_progress(self):
        code, shown = stubs.run_on_terminal(
            ["bash", SOURCE / "tools" / "get_model.sh", "org/tiny", self.target], self.env)
        self.assertEqual(code, 0, shown)
        self.assertIn("100%", shown)

    def test_bad_calls(self):
        for model in ("tiny", "-x", "org/", "/tiny"):
            run = self.get(model)
            self.assertEqual(run.returncode, 2, model)
            self.assertIn("usage:", run.stderr)
        run = self.get("--help")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("tools/get_model.sh ORGANISATION/MODEL [DIR]", run.stdout)

    def test_no_such_model(self):
        self.assert_fails(self.get("org/none"), "has no model org/none", "HF_TOKEN=TOKEN")

    def test_gated_model(self):
        Hub.refusal = ("/org/tiny/resolve/", 403, "GatedRepo")
        self.assert_fails(self.get(), "org/tiny is only given to users who accepted its terms", "HF_TOKEN=TOKEN")

    def test_wrong_token(self):
        Hub.refusal = ("/", 401, "")
        self.env["HF_TOKEN"] = "hf_wrong"
        self.assert_fails(self.get(), "HF_TOKEN")

    def test_model_without_safetensors(self):
        Hub.files = {"model.gguf": b"GGUF", "config.json": b"{}"}
        self.assert_fails(self.get(), "org/tiny has no *.safetensors files", "GGUF")

    def test_no_network(self):
        self.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
        self.assert_fails(self.get(), "http://127.0.0.1:9 cannot be reached", "HF_ENDPOINT=URL",
                          "config.json", "*.safetensors", by_hand=True)

    def test_broken_hub(self):
        Hub.refusal = ("/", 418, "")
        self.assert_fails(self.get(), "answers with HTTP status 418", "HF_ENDPOINT=URL", by_hand=True)

    def test_no_network_once_the_model_is_there(self):
        self.assert_whole(self.get())
        self.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
        self.assert_whole(self.get())
        (self.target / "config.json").unlink()
        self.assert_fails(self.get(), "cannot be reached", by_hand=True)

    def test_disk_full(self):
        Hub.sizes = {"model.safetensors": 10**18}
        self.assert_fails(self.get(), "1000000000.", "the disk is full: tiny has", "and 1000000000.", "are needed",
                          "another disk")
        self.assertEqual(Hub.sent, [])

    def machine(self, **more):
        """A machine without the hub's client, whose user is not root and has no sudo."""
        self.env["PATH"] = stubs.make_path(self.dir / "bin", id="echo 1000", apt_get="exit 1",
                                          dpkg_query="exit 1", **more)

    def test_no_python(self):
        self.machine()
        self.assert_fails(self.get(), "takes root or sudo", "apt-get install --no-install-recommends python3 python3-venv",
                          "*.safetensors", by_hand=True)

    def test_no_venv(self):
        self.machine(python3="exit 1")
        self.assert_fails(self.get(), "apt-get install --no-install-recommends python3-venv\n", by_hand=True)

    def test_no_package_index(self):
        self.machine(python3=f"""[[ $* != *huggingface_hub* ]] && exec '{sys.executable}' "$@" """)
        for name in [name for name in self.env if name.startswith("PIP_")]:
            del self.env[name]
        self.env.update(PIP_INDEX_URL="http://127.0.0.1:9/", PIP_CONFIG_FILE="/dev/null")
        self.assert_fails(self.get(), "pip cannot install huggingface_hub", "PIP_INDEX_URL=URL", by_hand=True)

    def test_disk_full_before_the_client_is_there(self):
        self.machine(python3="""[[ $* == *ensurepip* ]] || { echo "[Errno 28] No space left on device" >&2; exit 1; }""")
        self.assert_fails(self.get(), "the disk is full", "XDG_CACHE_HOME=FOLDER", by_hand=True)


if __name__ == "__main__":
    if shutil.which("hf") is None:
        print("skipped: the hub's client hf (huggingface_hub) is not installed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
