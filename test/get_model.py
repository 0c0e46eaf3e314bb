"""tools/get_model.sh against a hub of its own on this machine: whole, interrupted, damaged."""
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

SOURCE = pathlib.Path(sys.argv[1])
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SKIPPED = 77  # CTest's SKIP_RETURN_CODE


class Hub(http.server.BaseHTTPRequestHandler):
    """The calls of the hub that `hf download` makes."""
    protocol_version = "HTTP/1.1"
    files = {}
    cut = {}  # after so many bytes the connection ends, once
    sent = []  # (name, first byte)

    def etag(self, name):
        data = self.files[name]
        if name.endswith(".safetensors"):
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def entry(self, name):
        entry = {"type": "file", "path": name, "size": len(self.files[name]), "oid": self.etag(name)}
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
        if path.startswith("/api/models/org/tiny/tree/"):
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
        headers["Content_Length"] = str(len(part))
        if self.command == "GET":
            self.sent.append((name, first))
            end = self.cut.pop(name, None)
            if end is not None:
                part = part[:end]
                self.close_connection = True
        self.reply(206 if first else 200, part, **headers)

    def log_message(self, *args):
        pass


class GetModel(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        model = SOURCE / "demo" / "models" / "tiny-qwen3"
        Hub.files = {p.name: p.read_bytes() for p in model.iterdir() if p.is_file()}
        Hub.files["pytorch_model.bin"] = b"not wanted"
        Hub.cut, Hub.sent = {}, []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                    "HF_HOME": str(self.dir / "home"), "HF_HUB_DISABLE_XET": "1", "NO_COLOR": "1"}
        self.target = self.dir / "tiny"

    def get(self, model="org/tiny"):
        return subprocess.run(["bash", SOURCE / "tools" / "get_model.sh", model, self.target],
                              env=self.env, capture_output=True, text=True, timeout=250)

    def assert_whole(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("all as the hub has them", run.stdout)
        wanted = [name for name in Hub.files
                  if name.endswith((".safetensors", ".jinja")) or
                  name in ("config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json")]
        self.assertGreaterEqual(len(wanted), 4)
        for name in wanted:
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

    def test_bad_calls(self):
        for model in ("tiny", "-h", "org/", "/tiny"):
            run = self.get(model)
            self.assertEqual(run.returncode, 2, model)
            self.assertIn("usage:", run.stderr)
        run = self.get("org/none")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("org/none", run.stderr)


if __name__ == "__main__":
    if shutil.which("hf") is None:
        print("skipped: the hub's client hf (huggingface_hub) is not installed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
