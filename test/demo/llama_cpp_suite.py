"""The tests that llama.cpp has for its own server, of what any server of OpenAI's and Anthropic's interfaces answers,
against kuiper_server. llama_cpp_expected.tsv says which of them fail here, and why.

    python3 test/demo/llama_cpp_suite.py SERVER MODELS [--rows] [TEST...]

KUIPER_LLAMA_CPP is a folder with tools/server/tests of llama.cpp and `venv`, which has the packages of its
requirements.txt; .ci/run makes it. Ends with 77 (skipped) where it is not set. A test that fails unexpectedly, fails
otherwise than the table says, or passes although the table says it fails, is an error. --rows prints each failure as
`test<TAB>what pytest says` instead, to write the table from.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from served import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ["basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ctx_shift", "security", "template",
         "tokenize", "tool_call"]


def read_table(path):
    """-> {test: (reason, pattern)}. A line `= REASON<TAB>PATTERN` begins the tests that fail for this reason with a
    message that has the pattern; a test without its parameters stands for all of them."""
    table, group = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("= "):
                group = tuple(line[2:].split("\t"))
            elif line and not line.startswith("#"):
                assert line not in table, f"{line} stands twice in the table"
                table[line] = group
    return table


def launcher(scratch, server, models):
    """The path of a program that can stand for llama-server."""
    path = os.path.join(scratch, "llama-server")
    variables = {"KUIPER_LLAMA_SERVER": os.path.abspath(server), "KUIPER_LLAMA_MODELS": os.path.abspath(models), "TMPDIR": scratch}
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable,
             os.path.join(HERE, "llama_server.py")]
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    os.chmod(path, 0o755)
    return path


def run(args, folder):
    """-> {test: (outcome, message)}"""
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.xml")
        tests = args.tests or [f"unit/test_{name}.py" for name in FILES]
        environment = {**os.environ, "LLAMA_SERVER_BIN_PATH": launcher(scratch, args.server, args.models),
                       "PORT": str(free_port()), "LLAMA_CACHE": scratch}
        environment.pop("PYTHONPATH", None)  # the packages are those that llama.cpp names
        done = subprocess.run(
            [os.path.join(folder, "venv", "bin", "python"), "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider",
             "--basetemp", os.path.join(scratch, "pytest"), f"--junitxml={report}", *tests],
            cwd=os.path.join(folder, "tools", "server", "tests"), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=1500, check=False)
        if not os.path.exists(report):
            raise RuntimeError(f"pytest made no report:\n{done.stdout}")
        found = {}
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname').removeprefix('unit.test_')}::{case.get('name')}"
            outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
            found[name] = ("passed", "") if outcome is None else (outcome.tag, first_line(outcome.get("message", "")))
        return found


def first_line(message):
    return message.strip().partition("\n")[0][:200]


def compare(found, table, is_whole):
    """Prints what passed and what failed as expected; -> [what is not as the table says]"""
    wrong, used, expected = [], set(), {}
    for test, (outcome, message) in found.items():
        entry = next((name for name in (test, test.partition("[")[0]) if name in table), None)
        used.add(entry)
        if entry is None:
            if outcome in ("failure", "error"):
                wrong.append(f"{test} fails: {message}")
        elif outcome == "passed":
            wrong.append(f"{test} passes: take it out of the table ({table[entry][0]})")
        elif not re.search(table[entry][1], message):
            wrong.append(f"{test} fails otherwise than expected ({table[entry][0]}): {message}")
        else:
            expected.setdefault(table[entry][0], []).append(test)
    if is_whole:
        wrong += [f"{name} stands in the table and was not run" for name in table if name not in used]
    passed = [test for test, (outcome, _) in found.items() if outcome == "passed"]
    print(f"{len(passed)} passed:", *passed, sep="\n  ")
    for reason, tests in expected.items():
        print(f"{len(tests)} fail as expected, {reason}:", *tests, sep="\n  ")
    skipped = [f"{test}: {message}" for test, (outcome, message) in found.items() if outcome == "skipped"]
    print(f"{len(skipped)} left out by themselves:", *skipped, sep="\n  ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("models", help="the folder of tiny-qwen3 and tiny-qwen3-vl")
    parser.add_argument("--rows", action="store_true", help="print the failures as rows of a table and compare nothing")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="as pytest takes them, e.g. unit/test_basic.py (default: all)")
    args = parser.parse_args()
    folder = os.environ.get("KUIPER_LLAMA_CPP")
    if not folder:
        print("skipped: KUIPER_LLAMA_CPP does not name a folder with llama.cpp's tests")
        sys.exit(77)
    found = run(args, os.path.abspath(folder))
    if args.rows:
        for test, (outcome, message) in found.items():
            if outcome in ("failure", "error"):
                print(f"{test}\t{message}")
        return
    wrong = compare(found, read_table(os.path.join(HERE, "llama_cpp_expected.tsv")), not args.tests)
    if wrong:
        print("error: not as test/demo/llama_cpp_expected.tsv says:", *wrong, sep="\n  ")
        sys.exit(1)


if __name__ == "__main__":
    main()
