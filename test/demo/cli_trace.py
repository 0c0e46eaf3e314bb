"""What becomes of the blocks of a paged KV cache, as the programs tell it: --trace-kv,
--dump-block-table, -v, /paged, and the object `ran`."""
import json
import re

from cli_harness import CliTest

FIELDS = {"event", "request", "sequence", "logical", "page", "holders", "free"}
MORE = {"copy": {"from", "tokens"}, "swap_out": {"host"}, "swap_in": {"host"}, "swap_free": {"host"}}


class Replay:
    """The state of the pool after each event, from the lines of the trace alone."""

    def __init__(self, test, path):
        self.test, self.events, self.tables, self.host = test, [], {}, {}
        self.counts, self.at_most = {}, 0
        with open(path) as f:
            lines = [json.loads(line) for line in f]
        pool = lines[0]
        test.assertEqual(set(pool), {"event", "blocks", "block_size", "host_blocks"})
        test.assertEqual(pool["event"], "pool")
        self.blocks, self.block_size = pool["blocks"], pool["block_size"]
        self.free, self.cached, self.newest = self.blocks, set(), {}
        for event in lines[1:]:
            self.apply(event)

    def holders(self, page):
        held = sum(other == page for table in self.tables.values() for other in table.values())
        return held + (page in self.cached)

    def apply(self, event):
        test, kind = self.test, event["event"]
        test.assertEqual(set(event), FIELDS | MORE.get(kind, set()), event)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        page, place, sequence = event["page"], event["logical"], event["sequence"]
        before = self.holders(page) if page else None
        table = self.tables.setdefault(sequence, {})
        if kind in ("allocate", "share"):
            test.assertEqual(before == 0, kind == "allocate", event)
            self.free -= kind == "allocate"
            if sequence is None:
                test.assertNotIn(page, self.cached, event)
                self.cached.add(page)
            else:
                test.assertNotIn(place, table, event)
                table[place] = page
                # The last one is the table that the answer ended with.
                self.newest[event["request"], sequence] = [table[i] for i in sorted(table)]
        elif kind in ("release", "free", "evict"):
            if sequence is None:
                self.cached.remove(page)
            else:
                test.assertEqual(table.pop(place), page, event)
            test.assertEqual(self.holders(page) == 0, kind != "release", event)
            self.free += kind != "release"
        elif kind == "copy":
            test.assertEqual(table[place], page, event)
            test.assertGreater(self.holders(event["from"]), 0, event)
            test.assertTrue(0 < event["tokens"] < self.block_size, event)
        elif kind == "swap_out":
            test.assertEqual(table[place], page, event)
            test.assertNotIn(event["host"], self.host, event)
            self.host[event["host"]] = (sequence, place)
        else:
            test.assertEqual(self.host[event["host"]], (sequence, place), event)
            if kind == "swap_in":
                test.assertEqual(table[place], page, event)
            else:
                del self.host[event["host"]]
        if page:
            test.assertEqual(self.holders(page), event["holders"], event)
        test.assertEqual(event["free"], self.free, event)
        test.assertTrue(0 <= self.free <= self.blocks, event)
        self.at_most = max(self.at_most, self.blocks - self.free)

    def all_is_free(self):
        self.test.assertEqual(self.free, self.blocks)
        self.test.assertFalse(self.cached or self.host or any(self.tables.values()))


class Trace(CliTest):
    def lines(self, path):
        with open(path) as f:
            return [json.loads(line) for line in f]

    def test_one_answer(self):
        trace, tables = self.path("trace"), self.path("tables")
        r = self.qwen3_run("-p", "Tell me a story", "-n", "40", "--ignore-eos", "--paged-attention",
                           "--page-size", "4", "--trace-kv", trace, "--dump-block-table", tables,
                           "-o", "json")
        plain = self.qwen3_run("-p", "Tell me a story", "-n", "40", "--ignore-eos", "-o", "json")
        self.assertEqual(r.json()["token_ids_fnv1a64"], plain.json()["token_ids_fnv1a64"])
        replay = Replay(self, trace)
        replay.all_is_free()
        self.assertEqual(set(replay.counts), {"allocate", "free"})
        (table,) = self.lines(tables)
        usage = r.json()["usage"]
        tokens = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        self.assertEqual(table, {"request": 1, "sample": 0, "custom_id": None, "block_size": 4,
                                 "tokens": tokens, "blocks": table["blocks"]})
        self.assertEqual(len(table["blocks"]), -(-tokens // 4))
        self.assertEqual(replay.newest, {(1, 1): table["blocks"]})
        self.assertEqual(replay.at_most, len(table["blocks"]))

    def test_samples_share_blocks_and_copy_the_last_one(self):
        trace, tables = self.path("trace"), self.path("tables")
        self.qwen3_run("-p", "Tell me a story", "-n", "30", "--temp", "1", "--num-samples", "3",
                       "--paged-attention", "--page-size", "16", "--prefix-cache", "--trace-kv",
                       trace, "--dump-block-table", tables)
        replay = Replay(self, trace)
        replay.all_is_free()
        self.assertGreater(replay.counts["share"], 2)
        self.assertGreater(replay.counts["copy"], 0)
        rows = self.lines(tables)
        self.assertEqual([row["sample"] for row in rows], [0, 1, 2])
        self.assertEqual(rows[0]["blocks"][0], rows[1]["blocks"][0], "the prompt is there once")

    def test_batches_under_pressure(self):
        requests = [{"custom_id": "r%d" % i, "prompt": [5 + i % 3] * 21 + [7 + i], "n": 1 + i % 2,
                     "temperature": 1, "max_tokens": 60, "ignore_eos": True} for i in range(12)]
        batch = self.path("in", "\n".join(map(json.dumps, requests)))
        args = ("-i", batch, "--page-size", "4", "--device", "cpu", "-c", "128", "--max-num-seqs", "4")
        answers = {}
        for name, more, kinds in (
                ("recompute", ("--num-blocks", "40"), {"evict", "share", "release", "copy"}),
                ("swap", ("--num-blocks", "40", "--preemption", "swap", "--no-prefix-cache"),
                 {"swap_out", "swap_in", "swap_free"}),
                ("slide", ("--num-blocks", "40", "--on-full", "slide", "-c", "64"), {"free"}),
                ("roomy", ("--num-blocks", "400"), {"share"})):
            trace, tables, out = self.path(name + "_trace"), self.path(name + "_tables"), self.path(name)
            r = self.ok(self.qwen3, *args, *more, "-o", out, "--trace-kv", trace,
                        "--dump-block-table", tables, name="kuiper_batch")
            replay = Replay(self, trace)
            replay.all_is_free()
            self.assertLessEqual(kinds, set(replay.counts), name)
            answers[name] = [line.get("token_ids_fnv1a64") or [c["token_ids_fnv1a64"] for c in line["choices"]]
                             for line in self.lines(out)]
            preempted = sum(map(int, re.search(r"(\d+) preemptions recomputed, (\d+) swapped", r.err).groups()))
            if name in ("recompute", "swap"):
                self.assertGreater(preempted, 0, name)
            rows = self.lines(tables)
            self.assertEqual(len(rows), sum(request["n"] for request in requests))
            self.assertEqual({row["custom_id"] for row in rows}, {r["custom_id"] for r in requests})
            newest = [[request, blocks] for (request, _), blocks in replay.newest.items()]
            for row in rows:
                self.assertIn([row["request"], row["blocks"]], newest)
        self.assertEqual(answers["recompute"], answers["roomy"], "watching changes no answer")
        self.assertEqual(answers["swap"], answers["roomy"])

    def test_files_are_opened_first(self):
        for flag in ("--trace-kv", "--dump-block-table"):
            r = self.fails(1, self.qwen3, "-p", "x", "-n", "2", "--paged-attention", "--device", "cpu",
                           flag, "/nonexistent/file", message="cannot write /nonexistent/file: No such file")
            self.assertNotIn("loaded", r.err)
            r = self.run_cli(self.qwen3, "-p", "x", "-n", "2", "--paged-attention", "--device", "cpu",
                             flag, "/dev/full")
            self.assertEqual(r.error_lines(), ["error: cannot write /dev/full: No space left on device"])
            self.assertEqual(r.rc, 1)
            contiguous = self.qwen3_run("-p", "x", "-n", "2", flag, self.path("none"))
            self.assertIn("note: " + flag + " has no effect without --paged-attention", contiguous.err)

    def test_verbose_lines_and_what_ran(self):
        args = ("-p", "Tell me a story", "-n", "20", "--ignore-eos", "--paged-attention", "--page-size", "8")
        r = self.qwen3_run(*args, "-v", "-o", "json", "--cuda-graph", "--attention", "flash2")
        lines = re.findall(r"(?m)^KV cache: (request 1, sequence 1: \w+ \[.*)$", r.err)
        self.assertRegex(lines[0], r"^request 1, sequence 1: allocate \[0\.\.\d+\] block 1\.\.\d+, \d+ free$")
        self.assertRegex(lines[-1], r"free \[0\.\.\d+\] block 1\.\.\d+, \d+ free$")
        before = r.err.index("paged KV cache before the request")
        self.assertLess(before, r.err.index("KV cache: request 1, sequence 1: allocate"))
        self.assertLess(r.err.index(": free [0.."), r.err.index("paged KV cache after the request"))
        ran = r.json()["ran"]
        self.assertEqual(json.loads(re.search(r"(?m)^ran: (.*)$", r.err)[1]), ran)
        self.assertTrue(ran["device"].startswith("cpu ("), ran)
        self.assertEqual({k: ran[k] for k in ("kv_layout", "page_size", "attention")},
                         {"kv_layout": "paged", "page_size": 8, "attention": "flash1"},
                         "flash2 is flash1 on the CPU")
        self.assertEqual((ran["dtype"], ran["kv_dtype"]), ("BF16", "BF16"))
        self.assertEqual((ran["steps_recorded"], ran["steps_replayed"], ran["steps_eager"]), (1, 17, 2))
        r = self.qwen3_run(*args[:5], "--attention", "mha", "--kv-cache-dtype", "fp32", "-o", "json")
        ran = r.json()["ran"]
        self.assertEqual((ran["kv_layout"], ran["page_size"], ran["kv_dtype"], ran["attention"]),
                         ("contiguous", None, "FP32", "mha"))
        self.assertEqual((ran["steps_recorded"], ran["steps_replayed"], ran["steps_eager"]), (0, 0, 20))
        self.assertNotIn("ran: ", r.err)

    def test_an_error_says_nothing_ran(self):
        r = self.run_cli("/nonexistent", "-p", "x", "-o", "json")
        self.assertEqual((r.json()["kv"]["layout"], r.json()["ran"]), (None, None))
        r = self.run_cli(self.qwen3, "-p", "x", "-o", "json", "--no-such-flag")
        self.assertEqual((r.json()["kv"]["layout"], r.json()["ran"]), (None, None))

    def test_types_of_keys_and_values(self):
        for kind in ("fp32", "fp16", "bf16", "int8", "fp8", "fp8_e4m3", "fp8_e5m2"):
            r = self.qwen3_run("-p", "Hello", "-n", "20", "--ignore-eos", "--verify-paged",
                               "--kv-cache-dtype", kind)
            self.assertTrue(r.out.startswith("identical: 20 tokens"), r.out)

    def test_chats_show_the_map_of_the_pool(self):
        trace = self.path("trace")
        r = self.qwen3_run("-i", "--paged-attention", "--prefix-cache", "-n", "30", "--trace-kv", trace,
                           stdin="/paged\nTell me a story\n/paged\n/clear\n/paged\n")
        Replay(self, trace).all_is_free()
        first, second, third = re.findall(r"(?m)^pool: (\d+) of (\d+) blocks free; so far (\d+) allocated",
                                          r.err)
        self.assertEqual((first[0], first[2]), (first[1], "0"))
        self.assertLess(int(second[0]), int(second[1]))
        self.assertEqual(third[0], third[1], "/clear gives all back")
        self.assertIn(", kept by the prefix cache", r.err)

    def test_swapping_within_one_memory_says_so(self):
        args = ("-p", "x", "-n", "2", "--paged-attention")
        note = "note: the swap space is the same memory as the KV cache's here"
        self.assertIn(note, self.qwen3_run(*args, "--preemption", "swap").err)
        self.assertNotIn(note, self.qwen3_run(*args).err)
