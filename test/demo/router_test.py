"""Two servers behind SGLang's router: conversations spread over both, and each turn goes where those before it are cached.

    python3 test/demo/router_test.py SERVER MODEL

Ends with 77 (skipped) where the package sglang-router is not installed.
"""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from served import Server, cached_tokens, free_port, post

if importlib.util.find_spec("sglang_router") is None:
    print("skipped: sglang-router is not installed")
    sys.exit(77)

NUM_CHATS, PAGE = 6, 4


class Router:
    def __init__(self, scratch, servers, *options):
        self.servers = servers
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(scratch, f"router-{port}.log"), "w+", encoding="utf-8")
        # The port of its own metrics must be free as well.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--policy",
             "cache_aware", *options, "--prometheus-port", str(free_port()), "--worker-urls",
             *(server.url for server in servers)],
            stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/readiness").close()
                if len(self.loads()) == len(self.servers):
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        self.log.seek(0)
        raise TimeoutError("the router does not become ready:\n" + self.log.read())

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGKILL)  # it waits long for connections that idle
        self.process.wait(timeout=60)
        self.log.close()

    def loads(self):
        """How many requests wait for each server, in the order of their addresses."""
        with urllib.request.urlopen(self.url + "/workers") as response:
            workers = json.load(response)["workers"]
        return [worker["load"] for worker in sorted(workers, key=lambda worker: worker["url"])]


def chat(url, messages, **fields):
    return post(url + "/v1/chat/completions", {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 24,
                                               "chat_template_kwargs": {"enable_thinking": False}, **fields})


def total(server, name):
    """A counter of the server, over all its labels."""
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith(f"kuiper:{name}_total")]
    return sum(float(line.split()[-1]) for line in lines)


def name_of(answer):
    """What all requests of one server begin with."""
    return answer["id"].removeprefix("chatcmpl-")[:16]


def at_once(router, chats, hold):
    """The next answer of each conversation, asked for one after the other while earlier ones are not answered.
    `hold`: no server answers before all were asked. -> (answers, the requests that waited for each server)"""
    answers, loads = [None] * len(chats), None

    def ask(i):
        answers[i] = chat(router.url, chats[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(chats))]
    for server in router.servers if hold else ():
        server.process.send_signal(signal.SIGSTOP)
    try:
        end = time.monotonic() + 60
        for i, thread in enumerate(threads):
            thread.start()
            while hold and sum(loads := router.loads()) <= i:
                assert time.monotonic() < end, (i, loads)
                time.sleep(0.01)
    finally:
        for server in router.servers if hold else ():
            server.process.send_signal(signal.SIGCONT)
    for thread in threads:
        thread.join()
    return answers, loads


def check_turns(router):
    servers = router.servers
    names = [name_of(chat(server.url, [{"role": "user", "content": "Hi"}])) for server in servers]
    requests = [total(server, "request_success") for server in servers]
    chats = [[{"role": "user", "content": f"{'Count to %d. ' % i * 8}What is {i} + 3?"}] for i in range(NUM_CHATS)]
    homes, known = [], [0] * NUM_CHATS  # which server has a conversation, and tokens of its last prompt
    for turn in range(3):
        hits = [total(server, "prefix_cache_hits") for server in servers]
        answers, _ = at_once(router, chats, hold=turn == 0)
        found = [names.index(name_of(answer)) for answer in answers]
        if turn == 0:
            homes = found
            assert sorted(homes) == [0] * (NUM_CHATS // 2) + [1] * (NUM_CHATS // 2), homes
            print("ok: conversations spread over both servers:", homes)
        assert found == homes, (turn, found, homes)
        for i, answer in enumerate(answers):
            # The template ends a prompt in another way than it writes the answer in the next one.
            assert cached_tokens(answer) >= known[i] - 3 * PAGE, (i, cached_tokens(answer), known)
            known[i] = answer["usage"]["prompt_tokens"]
            chats[i].append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            chats[i].append({"role": "user", "content": "And 4 + 1?"})
        for s, server in enumerate(servers):
            rise = total(server, "prefix_cache_hits") - hits[s]
            assert rise == sum(cached_tokens(a) for a, home in zip(answers, homes) if home == s), (turn, s, rise)
            assert turn == 0 or rise > 0
    print("ok: each turn goes to the server that has the pages of those before it")
    shares = [total(server, "request_success") - before for server, before in zip(servers, requests)]
    assert shares == [3 * NUM_CHATS / 2] * 2, shares


def check_shared_beginning(router, expected):
    """Prompts that begin alike stay together until the loads differ by more than --balance-abs-threshold."""
    system = {"role": "system", "content": "You answer briefly, in one sentence, and you are polite to everybody. " * 4}
    chats = [[system, {"role": "user", "content": f"What is {i} + 5?"}] for i in range(NUM_CHATS)]
    _, loads = at_once(router, chats, hold=True)
    assert sorted(loads) == expected, loads
    print("ok: a beginning that is shared, requests of the servers:", loads)


def check_bodies(router):
    stream = urllib.request.Request(router.url + "/v1/chat/completions", json.dumps({
        "model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 5}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(stream, timeout=120) as response:
        assert response.read().decode().endswith("data: [DONE]\n\n")
    text = post(router.url + "/v1/completions", {"model": "tiny", "prompt": "The red", "max_tokens": 5})
    assert text["choices"][0]["finish_reason"] in ("length", "stop"), text
    print("ok: streams and completions pass")
    try:
        chat(router.url, [{"role": "user", "content": "Hi"}], no_stop_trim=True)
        raise AssertionError("a bad request passed")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and json.load(error)["error"]["param"] == "no_stop_trim"
    print("ok: errors pass as they are")


def main():
    program, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        options = (program, model, scratch, "--block-size", str(PAGE))
        with Server(*options) as first, Server(*options) as second:
            with Router(scratch, (first, second)) as router:
                check_turns(router)
                check_shared_beginning(router, [0, NUM_CHATS])
                check_bodies(router)
            with Router(scratch, (first, second), "--balance-abs-threshold", "1") as router:
                check_shared_beginning(router, [2, NUM_CHATS - 2])


if __name__ == "__main__":
    main()
