"""docs/examples/ray_serve.py under Ray Serve: an answer whole and streamed, and an end that breaks no stream.

    python3 test/demo/ray_serve_test.py SERVER MODEL

Ends with 77 (skipped) where the package ray is not installed.
"""
import glob
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request

from served import free_port, post

if importlib.util.find_spec("ray") is None:
    print("skipped: ray is not installed")
    sys.exit(77)

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "examples")
NAME = f"ray-{os.getpid()}"  # tells this server from all others


def servers():
    """How many servers of this test there are."""
    count = 0
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it has ended
            continue
        count += words[0] == b"kuiper_server" and NAME.encode() in words
    return count


def stream(url, lines):
    body = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines.extend(line for line in answer if line.strip())


def main():
    program, model = map(os.path.abspath, sys.argv[1:])
    os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
    os.environ["PYTHONPATH"] = EXAMPLES + os.pathsep + os.environ.get("PYTHONPATH", "")  # of the replicas
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    sys.path.insert(0, EXAMPLES)
    import ray
    from ray import serve

    import ray_serve
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as scratch:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1", _temp_dir=scratch)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        arguments = ["--served-model-name", NAME, "--device", "cpu", "--threads", "1", "--drain-timeout", "60"]
        serve.run(ray_serve.app({"model": model, "arguments": arguments}), name="kuiper", route_prefix="/")
        assert servers() == 1
        answer = post(url + "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 2 + 3?"}],
                                                     "temperature": 0})
        assert answer["model"] == NAME and "5" in answer["choices"][0]["message"]["content"], answer
        print("ok: an answer through Ray")

        lines = []
        reader = threading.Thread(target=stream, args=(url, lines))
        reader.start()
        while len(lines) < 10 and reader.is_alive():
            time.sleep(0.001)
        serve.delete("kuiper")
        reader.join()
        assert lines[-1].strip() == b"data: [DONE]" and b'"finish_reason":"length"' in lines[-2], lines[-2:]
        print("ok: a stream is whole when its deployment ends")
        end = time.monotonic() + 60
        while servers() > 0:
            assert time.monotonic() < end, "the server outlives its replica"
            time.sleep(0.1)
        print("ok: its server has ended")
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
