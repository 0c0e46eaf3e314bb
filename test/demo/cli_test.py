#!/usr/bin/env python3
"""Runs the programs as people and scripts do and checks what docs/command_line.md
promises: streams, exit codes, messages, JSON, chats, terminals, signals.

    python3 test/demo/cli_test.py --bin build/demo [--source .] [--data ../shared/data] [TEST ...]

TEST is a file or a part of it: cli_chat, cli_chat.Chat. Uses only the standard library and the
models bundled in demo/models.
"""
import argparse
import os
import sys
import unittest

from cli_harness import ARGS

PARTS = ("batch", "chat", "errors", "eval", "images", "output", "people", "prompts", "quantize", "seeing", "serve", "terminal",
         "tools", "trace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of the programs")
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--source", default=here)
    parser.add_argument("--data", default=os.environ.get("KUIPER_TEST_DATA"))
    parser.add_argument("--models", help="default: SOURCE/demo/models")
    parser.add_argument("--turns", type=int, default=100, help="of a long chat")
    _, rest = parser.parse_known_args(namespace=ARGS)
    ARGS.data = os.environ.get("KUIPER_TEST_DATA") or ARGS.data or "../shared/data"
    ARGS.models = ARGS.models or os.path.join(ARGS.source, "demo", "models")
    tests = rest or ["cli_" + part for part in PARTS]
    unittest.main(module=None, argv=[sys.argv[0], *tests], verbosity=1)


if __name__ == "__main__":
    main()
