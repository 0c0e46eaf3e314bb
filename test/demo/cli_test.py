#!/usr/bin/env python3
"""Runs the programs as people and scripts do and checks what docs/command_line.md
promises: streams, exit codes, messages, JSON, chats, terminals, signals.

    python3 test/demo/cli_test.py --bin build/demo [--source .] [--data ../shared/data] [TEST ...]

Uses only the standard library and the models bundled in demo/models.
"""
import argparse
import os
import sys
import unittest

from cli_batch import *  # noqa: F401,F403 - unittest finds the test cases here
from cli_chat import *  # noqa: F401,F403
from cli_errors import *  # noqa: F401,F403
from cli_harness import ARGS
from cli_output import *  # noqa: F401,F403
from cli_terminal import *  # noqa: F401,F403
from cli_tools import *  # noqa: F401,F403
from cli_trace import *  # noqa: F401,F403


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of the programs")
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--source", default=here)
    parser.add_argument("--data", default=os.environ.get("KUIPER_TEST_DATA"))
    parser.add_argument("--models", help="default: SOURCE/demo/models")
    _, rest = parser.parse_known_args(namespace=ARGS)
    ARGS.data = os.environ.get("KUIPER_TEST_DATA") or ARGS.data or "../shared/data"
    ARGS.models = ARGS.models or os.path.join(ARGS.source, "demo", "models")
    unittest.main(argv=[sys.argv[0], *rest], verbosity=1)


if __name__ == "__main__":
    main()
