#!/usr/bin/env python3
"""Writes test/server/kv_event_goldens.inc: a batch of KV events as msgspec encodes vLLM's structs.

    python3 tools/make_kv_event_goldens.py > test/server/kv_event_goldens.inc

Needs msgspec. The fields and options are those of vLLM's kv_events.py: 0.28 (maps) and 0.11 (arrays).
"""
from types import SimpleNamespace
from typing import Optional, Union

import msgspec


def structs(is_array):
    """vLLM's types, with events as arrays or as maps."""
    class Event(msgspec.Struct, array_like=is_array, omit_defaults=True, tag=True):
        pass

    class BlockStored(Event):
        block_hashes: list[int]
        parent_block_hash: Optional[int]
        token_ids: list[int]
        block_size: int
        lora_id: Optional[int]
        medium: Optional[str]
        lora_name: Optional[str]

    class BlockRemoved(Event):
        block_hashes: list[int]
        medium: Optional[str]

    class AllBlocksCleared(Event):
        pass

    class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
        ts: float
        events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
        data_parallel_rank: Optional[int] = None

    return SimpleNamespace(Batch=Batch, BlockStored=BlockStored, BlockRemoved=BlockRemoved,
                           AllBlocksCleared=AllBlocksCleared)


def batch(types):
    return types.Batch(1700000000.1, [
        types.BlockStored([5, 2**62 + 1], None, [1, 2, 300, 70000], 2, None, "GPU", None),
        types.BlockStored([9], 5, [3, 4], 2, None, "GPU", None),
        types.BlockRemoved([5, 9], "GPU"),
        types.AllBlocksCleared()], 0)


def main():
    print("// Made by tools/make_kv_event_goldens.py.")
    for name, is_array in (("kMapGolden", False), ("kArrayGolden", True)):
        text = msgspec.msgpack.encode(batch(structs(is_array))).hex()
        print(f"constexpr const char* {name} =")
        lines = [text[i:i + 88] for i in range(0, len(text), 88)]
        print("\n".join(f'    "{line}"' for line in lines) + ";")


if __name__ == "__main__":
    main()
