"""A server of a model, for the tests that ask it as other programs do."""
import itertools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request


class Server:
    """`with` gives the server when it is ready; then it must end with exit code 0 at SIGTERM."""

    numbers = itertools.count()

    def __init__(self, program, model, scratch, *args, name="tiny"):
        self.port_file = os.path.join(scratch, f"port-{next(self.numbers)}")
        self.process = subprocess.Popen([program, model, "--device", "cpu", "--port", "0", "--port-file", self.port_file,
                                         "--served-model-name", name, *args])

    def __enter__(self):
        end = time.monotonic() + 60
        while not os.path.exists(self.port_file) and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.05)
        with open(self.port_file, encoding="utf-8") as f:
            self.url = f"http://127.0.0.1:{int(f.read())}"
        while time.monotonic() < end:
            try:
                self.get("/health")
                return self
            except urllib.error.HTTPError:  # the model is being loaded
                time.sleep(0.05)
        self.process.kill()
        raise TimeoutError("the server does not become ready")

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"the server ended with {code}"

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as response:
            return response.read().decode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(url, body):
    """-> the object of the answer"""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def cached_tokens(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]
