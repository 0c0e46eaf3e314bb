"""KV events of kuiper_server as programs receive them that follow vLLM: pyzmq, and msgspec with vLLM's structs.

    python3 test/demo/kv_events_client.py SERVER MODEL

Ends with 77 (skipped) where pyzmq and msgspec are not installed, or the server was built without libzmq.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

from served import Server, cached_tokens, post

sys.path.append(os.path.join(os.path.dirname(__file__), "../../tools"))
try:
    import msgspec
    import zmq
    from make_kv_event_goldens import structs
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

PAGE = 4
TOPIC = b"kv-events"


class Tree:
    """What a router keeps: the tokens up to the end of each block, by its hash."""

    def __init__(self):
        self.paths = {}
        self.num_removed = 0
        self.num_cleared = 0

    def apply(self, event):
        kind = type(event).__name__
        if kind == "AllBlocksCleared":
            self.paths.clear()
            self.num_cleared += 1
        elif kind == "BlockRemoved":
            assert event.medium == "GPU"
            for block in event.block_hashes:
                assert not [p for p in self.paths.values() if len(p) > len(self.paths[block])
                            and p[:len(self.paths[block])] == self.paths[block]], "others follow this block"
                del self.paths[block]
                self.num_removed += 1
        else:
            assert (event.block_size, event.medium, event.lora_id) == (PAGE, "GPU", None)
            assert len(event.token_ids) == PAGE * len(event.block_hashes)
            path = () if event.parent_block_hash is None else self.paths[event.parent_block_hash]
            for i, block in enumerate(event.block_hashes):
                assert block not in self.paths and 0 < block < 1 << 63
                path += tuple(event.token_ids[PAGE * i:PAGE * (i + 1)])
                self.paths[block] = path

    def depth(self, tokens):
        """The length of the longest prefix of `tokens` that is there, in whole blocks."""
        paths = set(self.paths.values())
        length = 0
        while tuple(tokens[:length + PAGE]) in paths and length + PAGE <= len(tokens):
            length += PAGE
        return length


class Follower:
    def __init__(self, decoder):
        self.decoder, self.tree, self.next = decoder, Tree(), 0
        self.socket = None

    def take(self, number, payload):
        assert number == self.next, (number, self.next)
        self.next += 1
        batch = self.decoder.decode(payload)
        assert abs(batch.ts - time.time()) < 600 and batch.data_parallel_rank == 0
        for event in batch.events:
            self.tree.apply(event)

    def until(self, condition, what):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, what
            if self.socket.poll(100):
                topic, number, payload = self.socket.recv_multipart()
                assert topic == TOPIC
                self.take(int.from_bytes(number, "big"), payload)
        print("ok:", what)


def replayed(context, endpoint, first):
    """-> [(number, payload)] as the replay socket gives them."""
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", b"bad"])  # is not answered
    socket.send_multipart([b"", first.to_bytes(8, "big")])
    found = []
    while True:
        assert socket.poll(60000), "no answer to the request"
        empty, number, payload = socket.recv_multipart()
        assert empty == b""
        if not payload:
            assert int.from_bytes(number, "big", signed=True) == -1
            socket.close()
            return found
        found.append((int.from_bytes(number, "big"), payload))


def complete(server, prompt, **fields):
    """-> (all ids of prompt and answer, how many of the prompt were cached)"""
    answer = post(server.url + "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 9, "ignore_eos": True,
                                                   "return_token_ids": True, **fields})
    choice = answer["choices"][0]
    return choice["prompt_token_ids"] + choice["token_ids"], cached_tokens(answer)


def subscriber(context, endpoint, most=1000):
    """A socket that lets so many messages wait to be read."""
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, most)
    socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
    socket.connect(endpoint)
    return socket


def catch_up(context, follower, server, publish, replay):
    """Subscribes late: gets what it missed from the replay, and goes on with what comes. -> ids of prompts and answers"""
    texts = [complete(server, list(range(100, 100 + PAGE - 1)))[0]]
    end = time.monotonic() + 60
    while not (missed := replayed(context, replay, 0)):
        assert time.monotonic() < end, "nothing can be sent again"
    for number, payload in missed:
        follower.take(number, payload)
    follower.socket = subscriber(context, publish)
    while not follower.socket.poll(100):  # until the subscription is there
        texts.append(complete(server, list(range(200 + 10 * len(texts), 205 + 10 * len(texts))), max_tokens=4)[0])
        assert time.monotonic() < end, "nothing is published"
    topic, number, payload = follower.socket.recv_multipart()
    assert topic == TOPIC
    for again in replayed(context, replay, follower.next):
        if again[0] < int.from_bytes(number, "big"):
            follower.take(*again)
    follower.take(int.from_bytes(number, "big"), payload)
    return texts


def is_whole(tree, text):
    """The tree has what the server has computed of the text: all but the last token, in whole blocks."""
    return tree.depth(text) == (len(text) - 1) // PAGE * PAGE


def follow(context, server, publish, replay, form):
    follower = Follower(msgspec.msgpack.Decoder(structs(form == "array").Batch))
    texts = catch_up(context, follower, server, publish, replay)
    print("ok: what was missed comes again,", form)
    texts += [complete(server, list(range(100, 100 + n)))[0] for n in (PAGE, PAGE + 1, 3 * PAGE)]
    follower.until(lambda: all(is_whole(follower.tree, t) for t in texts[-3:]), "the tree has all computed blocks")
    for text in texts[-3:]:
        cached = complete(server, text + [7])[1]
        assert cached == follower.tree.depth(text), (cached, follower.tree.depth(text))
    print("ok: the server finds what the tree says")
    salted = complete(server, list(range(300, 320)), cache_salt="a")[0]
    for i in range(12):  # more than the cache holds
        texts.append(complete(server, list(range(400 + 20 * i, 420 + 20 * i)))[0])
    follower.until(lambda: is_whole(follower.tree, texts[-1]), "the newest is there")
    assert follower.tree.num_removed > 0 and follower.tree.depth(texts[0]) == follower.tree.depth(salted) == 0
    blocks = json.loads(server.get("/kuiper/kv?once=1"))["blocks"]
    assert len(follower.tree.paths) == blocks.count("c"), (len(follower.tree.paths), blocks)
    print("ok: evicted blocks are gone, the tree is as large as the cache")
    return follower


def check(program, model, scratch, form):
    publish, replay = (f"ipc://{scratch}/{name}-{form}" for name in ("events", "replay"))
    context = zmq.Context()
    with Server(program, model, scratch, "--block-size", str(PAGE), "--kv-events-endpoint", publish,
                "--kv-events-replay-endpoint", replay, "--kv-events-topic", TOPIC.decode(), "--kv-events-format", form,
                "--num-blocks", "40", "--max-context", "128") as server:
        idle = subscriber(context, publish, 1)  # who never reads holds up nobody
        subscriber(context, publish).close(linger=0)
        follower = follow(context, server, publish, replay, form)
    assert not idle.closed
    follower.until(lambda: follower.tree.num_cleared == 1 and not follower.tree.paths, "the end clears the tree")
    context.destroy(linger=0)


def refused(*command):
    """-> (exit code, what is said) of a server that does not start"""
    done = subprocess.run([*command, "--device", "cpu", "--port", "0"], stderr=subprocess.PIPE, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stderr


def main():
    program, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        code, text = refused(program, model, "--kv-events-endpoint", "nowhere")
        assert code == 2 and "--kv-events-endpoint" in text, (code, text)
        if "libzmq" in text:
            print("skipped:", text)
            sys.exit(77)
        code, text = refused(program, model, "--kv-events-replay-endpoint", "tcp://127.0.0.1:*")
        assert code == 2 and "--kv-events-replay-endpoint needs --kv-events-endpoint" in text, text
        code, text = refused(program, model, "--kv-events-endpoint", "tcp://127.0.0.1:*", "--no-prefix-cache")
        assert code == 2 and "--kv-events-endpoint needs paging and the prefix cache" in text, text
        for form in ("map", "array"):
            check(program, model, scratch, form)


if __name__ == "__main__":
    main()
