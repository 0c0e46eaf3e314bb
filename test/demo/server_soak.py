#!/usr/bin/env python3
"""server_soak.py SERVER BENCH MODEL [options]: a server under load, as strangers treat it.

Idle connections beside active streams, clients that leave at any moment, a reader of one byte a second, a
signal in the midst of it, and all of that again for --seconds. Asserts what holds on any machine (every
page is free, memory is flat, streams end whole); prints the times, which need a quiet one. Linux only.

    test/demo/server_soak.py build/demo/kuiper_server build/tools/kuiper_bench demo/models/tiny-qwen3 \\
        --idle 1000 --streams 64 --disconnects 500 --seconds 600
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE = 300  # seconds; what goes well does not wait for it
MAX_IDLE_BYTES, MAX_GROWTH_BYTES = 50 << 20, 32 << 20
PAGES = 1024
IDLE_SECONDS = 60  # the server ends connections that are idle for 75


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "in vain: " + what
        time.sleep(0.02)


def body(**fields):
    return {"messages": [{"role": "user", "content": "Tell me a story about Kuiper."}], "max_tokens": 150,
            "ignore_eos": True, "stream": True, **fields}


class Server:
    def __init__(self, args, folder):
        self.port_file = os.path.join(folder, "port")
        if os.path.exists(self.port_file):
            os.remove(self.port_file)
        self.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [args.server, args.model, "--device", "cpu", "--threads", "1", "--port", "0", "--port-file", self.port_file,
             "--max-num-seqs", str(args.streams), "--max-queue", "100000", "--num-blocks", str(PAGES),
             "--answer-memory", "20000", "--max-context", "1024"],
            stdout=subprocess.DEVNULL, stderr=self.log,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        wait_for(lambda: os.path.exists(self.port_file) or self.process.poll() is not None, "the port")
        assert self.process.poll() is None, "the server did not start"
        with open(self.port_file, encoding="utf-8") as f:
            self.port = int(f.read())
        wait_for(lambda: self.get("/health")[0] == 200, "the model")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        found = re.search(rf"^kuiper:{name}{{[^}}]*}} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found.group(1))

    def hand_over(self):
        """-> [(upper bound in seconds, hand-overs up to it)] since the start."""
        lines = re.findall(r'^kuiper:hand_over_seconds_bucket{[^}]*le="([^"]+)"} (\S+)$', self.get("/metrics")[1],
                           re.MULTILINE)
        return [(float(bound.replace("+Inf", "inf")), float(count)) for bound, count in lines]

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as f:
            return 1024 * int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_empty(self):
        """Nobody's answer holds a page, by the server's own map and counts."""
        kv = json.loads(self.get("/kuiper/kv?once=1")[1])
        return (not re.search("[us]", kv["blocks"]) and not kv["sequences"]
                and self.metric("num_requests_running") == 0 and self.metric("num_requests_waiting") == 0)

    def send(self, fields, path="/v1/chat/completions", receive_buffer=0):
        """-> a socket whose request is on its way."""
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", self.port))
        text = json.dumps(fields)
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        return connection

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()


def load(args, server, requests, seed):
    """-> the results of so many requests, args.streams at a time."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run(
            [args.bench, "--scenario", "serve", "--url", f"http://127.0.0.1:{server.port}/v1", "--request-rate", "0",
             "--concurrency", str(args.streams), "--requests", str(requests), "--prompt-lengths", "uniform:8,64",
             "--answer-lengths", "200", "--seed", str(seed), "--json", file.name],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.load(file)


def share_percentile(before, after, share):
    """The upper bound of the bucket below which so large a share of the new entries lies."""
    total = after[-1][1] - before[-1][1]
    for (bound, new), (_, old) in zip(after, before):
        if new - old >= share * total:
            return bound
    return float("inf")


def share_below(before, after, bound):
    new = dict(after)[bound] - dict(before)[bound]
    return new / (after[-1][1] - before[-1][1])


def beside_idle_connections(args, server):
    load(args, server, 2 * args.streams, 1)  # touches the memory of so many streams
    before, resident = server.hand_over(), server.resident()
    idle = []
    for _ in range(args.idle):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", "/ping")
        connection.getresponse().read()
        idle.append(connection)
    health, ended = [], threading.Event()

    def watch():
        while not ended.wait(0.1):
            begin = time.monotonic()
            assert server.get("/health")[0] == 200
            health.append(time.monotonic() - begin)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.monotonic()
    result = load(args, server, args.requests, 2)
    connected = server.metric("http_connections")
    ended.set()
    watcher.join()
    after, grown = server.hand_over(), server.resident() - resident
    assert result["answered"] == result["requests"], result["errors"]
    are_kept = time.monotonic() - begin < IDLE_SECONDS  # a busy machine may take longer than the server waits
    assert connected > args.idle or not are_kept, f"{connected} connections"
    assert args.any_memory or grown <= MAX_IDLE_BYTES, f"{grown / 2**20:.1f} MB more"
    for connection in idle[:: max(1, len(idle) // 50)] if are_kept else []:  # they are still there
        connection.request("GET", "/ping")
        assert connection.getresponse().read() is not None
    for connection in idle:
        connection.close()
    print(f"{args.idle} idle and {args.streams} active: {result['tokens'] / result['seconds']:.0f} tokens/s; "
          f"from a step to its writes p50 <= {1e3 * share_percentile(before, after, 0.5):g} ms, "
          f"p99 <= {1e3 * share_percentile(before, after, 0.99):g} ms of {after[-1][1] - before[-1][1]:.0f}, "
          f"{100 * share_below(before, after, 0.005):.1f} % within 5 ms; "
          f"/health p50 {1e3 * statistics.median(health):.1f} ms, worst {1e3 * max(health):.1f} ms; "
          f"{grown / 2**20:.1f} MB more")


KINDS = [lambda: body(), lambda: body(stream=False), lambda: body(n=3, temperature=1),
         lambda: body(beam_width=2, temperature=0), lambda: body(prompt="x " * 400, messages=None)]


def clients_that_leave(args, server, dice):
    """They are queued, in their prompt, decoding, or have several answers, and leave."""
    before, seen = server.metric("requests_aborted_total"), 0
    while seen < args.disconnects:
        count = min(2 * args.streams, args.disconnects - seen)
        connections = []
        for _ in range(count):
            fields = {key: value for key, value in dice.choice(KINDS)().items() if value is not None}
            path = "/v1/completions" if "prompt" in fields else "/v1/chat/completions"
            connections.append(server.send(fields, path))
        dice.shuffle(connections)
        for connection in connections:
            if dice.random() < 0.2:
                time.sleep(dice.random() * 0.02)
            connection.close()
        seen += count
    wait_for(server.is_empty, "pages of clients that left")
    print(f"{seen} clients left, {server.metric('requests_aborted_total') - before:.0f} before their answer ended; "
          f"every page is free")


def slow_reader(args, server, pairs):
    """Rates of all others beside a reader of a byte a second, and beside one that reads as it comes, in turns."""
    ratios = []
    for pair in range(pairs):
        rates = []
        for is_slow in (False, True):
            reader, ended = server.send(body(max_tokens=900), receive_buffer=2048 if is_slow else 0), threading.Event()

            def read(reader=reader, ended=ended, is_slow=is_slow):
                while not ended.is_set() and reader.recv(1 if is_slow else 65536):
                    ended.wait(1 if is_slow else 0)

            thread = threading.Thread(target=read)
            thread.start()
            result = load(args, server, args.requests // 2, 10 + pair)
            assert result["answered"] == result["requests"], result["errors"]
            rates.append(result["tokens"] / result["seconds"])
            ended.set()
            reader.shutdown(socket.SHUT_RDWR)
            thread.join()
            reader.close()
        ratios.append(rates[1] / rates[0])
    wait_for(server.is_empty, "pages of the slow reader")
    print(f"beside a reader of a byte a second: {100 * statistics.median(ratios):.1f} % of the tokens "
          f"({', '.join(f'{100 * r:.1f}' for r in ratios)})")


def signal_under_load(args, server):
    """Every stream that has begun ends whole."""
    streams = [server.send(body(max_tokens=400)) for _ in range(args.streams)]
    texts = [connection.recv(4096) for connection in streams]
    server.process.send_signal(signal.SIGTERM)
    for i, connection in enumerate(streams):
        while part := connection.recv(65536):
            texts[i] += part
        connection.close()
    whole = sum(text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and b'"finish_reason":"length"' in text for text in texts)
    assert whole == len(texts), f"{len(texts) - whole} of {len(texts)} streams broke"
    assert server.process.wait(timeout=PATIENCE) == 0
    print(f"SIGTERM: {whole} of {len(texts)} streams ended whole")


def soak(args, server, dice):
    """Memory and pages after rounds of load and of clients that leave."""
    end, resident = time.monotonic() + args.seconds, []
    while time.monotonic() < end or len(resident) < 2:
        assert load(args, server, args.requests // 2, len(resident))["errors"] == {}
        clients_that_leave(args, server, dice)
        resident.append(server.resident())
    early = statistics.median(resident[: max(1, len(resident) // 3)])
    late = statistics.median(resident[-max(1, len(resident) // 3):])
    assert args.any_memory or late - early <= MAX_GROWTH_BYTES, [round(r / 2**20, 1) for r in resident]
    print(f"{len(resident)} rounds in {args.seconds} s: {early / 2**20:.1f} MB resident early, {late / 2**20:.1f} MB late")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("bench")
    parser.add_argument("model")
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=640, help="of a load")
    parser.add_argument("--disconnects", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=5, help="of rates with a slow reader and without")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--idle-only", action="store_true", help="streams beside idle connections, and no more")
    parser.add_argument("--any-memory", action="store_true", help="sanitizers keep what is freed")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args, folder)
        try:
            beside_idle_connections(args, server)
            if args.idle_only:
                return
            slow_reader(args, server, args.pairs)
            clients_that_leave(args, server, dice)
            soak(args, server, dice)
            signal_under_load(args, server)
        finally:
            server.stop()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
