#!/usr/bin/env python3
"""Checks who includes whom, as the table of docs/architecture.md says.

Run as the ctest `layers`. Every #include of kuiper/, emulator/, demo/, bench/ and tools/ must be allowed
by the rule of its file; a header that is in no list is an error too, so that a new dependency is a decision.

    python3 tools/check_layers.py [ROOT]
    python3 tools/check_layers.py --self-test
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}

# Third-party headers by the name used in the rules. The first pattern that matches decides.
THIRD_PARTY = [
    ("glog", "glog/*"),
    ("json", "nlohmann/*"),
    ("sentencepiece", "sentencepiece*"),
    ("pcre2", "pcre2.h"),
    ("utf8proc", "utf8proc.h"),
    ("jpeg", "jpeglib.h"),
    ("jpeg", "jerror.h"),
    ("png", "png.h"),
    ("gif", "gif_lib.h"),
    ("webp", "webp/*"),
    ("highway", "hwy/*"),
    ("benchmark", "benchmark/*"),
    ("gtest", "g[tm]ock/*"),
    ("gtest", "gtest/*"),
    ("cuda", "cuda*"),
    ("cuda", "cublas*"),
    ("cuda", "cub/*"),
    ("cuda", "nv*/*"),
    ("boost", "boost/*"),
    ("zmq", "zmq.h"),
    ("simd", "*intrin.h"),
    ("simd", "arm_*.h"),
    ("sanitizer", "sanitizer/*"),
    ("posix", "sys/*"),
    ("posix", "linux/*"),
]
POSIX = {
    "cpuid.h", "cxxabi.h", "dirent.h", "dlfcn.h", "errno.h", "fcntl.h", "netdb.h", "netinet/in.h",
    "netinet/tcp.h", "poll.h", "pthread.h", "sched.h",
    "signal.h", "strings.h", "termios.h", "time.h", "ucontext.h", "unistd.h",
}
CONTAINERS = {
    "array", "deque", "forward_list", "functional", "list", "map", "memory", "optional", "queue",
    "set", "stack", "string", "unordered_map", "unordered_set", "vector",
}

LEAVES = ["std", "posix", "kuiper/base/*"]
IMAGE = LEAVES + ["kuiper/io/image/*"]
KERNEL = LEAVES + ["kuiper/ops/*", "kuiper/kernels/common/*"]
ENGINE_API = LEAVES + ["kuiper/io/*", "kuiper/engine/engine.h", "kuiper/engine/request.h",
                       "kuiper/engine/picture_config.h", "kuiper/engine/picture_prompt.h",
                       "kuiper/engine/run_comparison.h", "kuiper/engine/evaluation.h", "kuiper/kv/page_map.h",
                       "kuiper/kv/prefix_event.h",
                       "kuiper/quant/quantize_model.h"]
CHAT = ENGINE_API + ["kuiper/chat/*", "kuiper/jinja/*", "json"]
PUBLIC = ENGINE_API + ["kuiper/chat/*"]
HTTP = LEAVES + ["boost", "kuiper/server/http_*.h", "kuiper/server/listen_socket.h"]
REPORT = PUBLIC + ["kuiper/report/*", "json"]
COMMAND_LINE = LEAVES + ["kuiper/chat/variable.h", "kuiper/io/text_input.h", "kuiper/io/utf8.h", "kuiper/command_line/*"]
TOOL = PUBLIC + ["tools/*", "kuiper/command_line/*"]
DEMO = PUBLIC + ["demo/*", "kuiper/report/*", "kuiper/command_line/*", "kuiper/terminal/*"]
BENCH = TOOL + ["bench/*", "kuiper/model/*", "kuiper/ops/*", "kuiper/kv/*", "kuiper/kernels/cpu/*", "kuiper/engine/scheduler.h",
                "kuiper/engine/model_runner.h", "kuiper/engine/batch_builder.h", "json"]

# (files, what they may include); the first matching line decides.
RULES = [
    ("kuiper/base/json.cpp", LEAVES + ["json"]),
    ("kuiper/base/to_json.*", LEAVES + ["json"]),
    ("kuiper/base/*", LEAVES),
    ("kuiper/io/image/jpeg.cpp", IMAGE + ["jpeg"]),
    ("kuiper/io/image/png.cpp", IMAGE + ["png"]),
    ("kuiper/io/image/gif.cpp", IMAGE + ["gif"]),
    ("kuiper/io/image/webp.cpp", IMAGE + ["webp"]),
    ("kuiper/io/image/*", IMAGE),
    ("kuiper/io/*", LEAVES + ["kuiper/io/*", "sentencepiece", "pcre2", "utf8proc"]),
    ("kuiper/jinja/*", LEAVES + ["kuiper/jinja/*", "kuiper/io/utf8.h", "utf8proc"]),
    ("kuiper/kv/kv_cache.*", LEAVES + ["kuiper/kv/*", "kuiper/ops/*"]),
    ("kuiper/kv/swap_space.*", LEAVES + ["kuiper/kv/*", "kuiper/ops/*"]),
    ("kuiper/kv/*", LEAVES + ["kuiper/kv/*"]),
    ("kuiper/ops/*", LEAVES + ["kuiper/ops/*"]),
    ("kuiper/kernels/common/*", ["scalar std", "kuiper/base/*", "kuiper/ops/kv_view.h",
                                 "kuiper/kernels/common/*"]),
    ("kuiper/kernels/cpu/*", KERNEL + ["kuiper/kernels/cpu/*", "highway", "simd"]),
    ("emulator/*", ["std", "posix", "sanitizer", "emulator/*"]),
    ("kuiper/kernels/cuda/platform.h", LEAVES + ["cuda", "emulator/dialect.h"]),
    ("kuiper/kernels/cuda/*", KERNEL + ["kuiper/kernels/cuda/*", "cuda"]),
    ("kuiper/kernels/make_ops.cpp", KERNEL + ["kuiper/kernels/*/*_ops.h"]),
    ("kuiper/model/*", LEAVES + ["kuiper/model/*", "kuiper/ops/*", "kuiper/kv/*",
                                 "kuiper/io/image/vision_input.h", "json"]),
    ("kuiper/quant/*", LEAVES + ["kuiper/quant/*", "kuiper/model/*", "kuiper/ops/*", "kuiper/kv/kv_cache.h",
                                 "json"]),
    ("kuiper/engine/*", LEAVES + ["kuiper/engine/*", "kuiper/model/*", "kuiper/ops/*",
                                  "kuiper/kv/*", "kuiper/io/*"]),
    ("kuiper/chat/*", CHAT),
    ("kuiper/report/*", REPORT),
    ("kuiper/command_line/start_log.cpp", COMMAND_LINE + ["glog"]),
    ("kuiper/command_line/*", COMMAND_LINE),
    ("kuiper/terminal/*", LEAVES + ["kuiper/io/utf8.h", "kuiper/terminal/*", "kuiper/command_line/signals.h"]),
    ("kuiper/server/http_*", HTTP),
    ("kuiper/server/zmq_publisher.cpp", LEAVES + ["kuiper/server/kv_publisher.h", "zmq"]),
    ("kuiper/server/*", PUBLIC + ["kuiper/server/*", "json"]),
    ("demo/serve.cpp", DEMO + ["kuiper/server/server.h"]),
    ("demo/options.h", DEMO + ["kuiper/server/reasoning_field.h", "kuiper/server/kv_publisher.h"]),
    ("demo/console.cpp", DEMO + ["glog"]),
    ("demo/*", DEMO),
    # kuiper_pack rewrites weight files and kuiper_bench measures parts of the library by themselves.
    ("tools/kuiper_pack.cpp", TOOL + ["kuiper/model/*"]),
    ("bench/client.*", BENCH + ["kuiper/server/http_client.h"]),
    ("bench/server.*", BENCH + ["kuiper/server/server.h"]),
    ("bench/*", BENCH),
    ("tools/tool_args.cpp", TOOL + ["glog"]),
    ("tools/*", TOOL),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def kinds_of(header, quoted):
    """The names under which a rule may allow this header; empty when nobody knows it."""
    if quoted and header.split("/")[0] in ("kuiper", "emulator", "demo", "bench", "tools", "test"):
        return {header}
    for name, pattern in THIRD_PARTY:
        if fnmatch.fnmatchcase(header, pattern):
            return {name}
    if quoted:
        return set()
    if header in POSIX:
        return {"posix"}
    if re.fullmatch(r"[a-z_]+", header):
        return {"std"} if header in CONTAINERS else {"std", "scalar std"}
    return set()


def allowed(kinds, rule):
    return any(fnmatch.fnmatchcase(kind, entry) for kind in kinds for entry in rule)


def violations(root):
    """-> (number of files read, list of "file:line: what is wrong")."""
    found, files = [], 0
    for top in ("kuiper", "emulator", "demo", "bench", "tools"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            files += 1
            name = path.relative_to(root).as_posix()
            rule = next((r for pattern, r in RULES if fnmatch.fnmatchcase(name, pattern)), None)
            if rule is None:
                found.append(f"{name}:1: no rule for this file; add one to check_layers.py")
                continue
            text = path.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                where = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
                header = match.group(2)
                kinds = kinds_of(header, match.group(1) == '"')
                if not kinds:
                    found.append(f"{where}: unknown header {header}; ours are included from the "
                                 "repository root, others must be listed")
                elif not allowed(kinds, rule):
                    found.append(f"{where}: must not include {header}")
    return files, found


def self_test():
    """Each line is a file, an include in it, and whether the table allows it."""
    cases = [
        ("kuiper/base/tensor.h", "<cstdint>", True),
        ("kuiper/base/tensor.h", '"kuiper/io/utf8.h"', False),
        ("demo/console.cpp", "<glog/logging.h>", True),
        ("demo/chat.cpp", "<glog/logging.h>", False),
        ("kuiper/command_line/start_log.cpp", "<glog/logging.h>", True),
        ("kuiper/report/result_json.cpp", '"kuiper/engine/engine.h"', True),
        ("kuiper/report/result_json.cpp", '"kuiper/command_line/exit_code.h"', False),
        ("kuiper/command_line/args.cpp", '"kuiper/engine/engine.h"', False),
        ("kuiper/terminal/line_editor.cpp", '"kuiper/command_line/signals.h"', True),
        ("kuiper/terminal/line_editor.cpp", '"kuiper/command_line/args.h"', False),
        ("kuiper/base/status.h", "<glog/logging.h>", False),
        ("kuiper/base/json.cpp", "<nlohmann/json.hpp>", True),
        ("kuiper/base/json.h", "<nlohmann/json.hpp>", False),
        ("kuiper/base/to_json.h", "<nlohmann/json_fwd.hpp>", True),
        ("kuiper/io/tokenizer.cpp", "<nlohmann/json.hpp>", False),
        ("kuiper/io/tokenizer.cpp", '"kuiper/model/config.h"', False),
        ("kuiper/io/image/png.cpp", "<png.h>", True),
        ("kuiper/io/image/png.h", "<png.h>", False),
        ("kuiper/io/image/gif.cpp", '"kuiper/io/utf8.h"', False),
        ("kuiper/kv/kv_cache.cpp", '"kuiper/ops/compute_device.h"', True),
        ("kuiper/kv/block_pool.cpp", '"kuiper/ops/ops.h"', False),
        ("kuiper/ops/ops.h", '"kuiper/ops/kv_view.h"', True),
        ("kuiper/ops/ops.h", '"kuiper/kv/kv_cache.h"', False),
        ("kuiper/ops/arg_checker.cpp", '"kuiper/kernels/cpu/cpu_ops.h"', False),
        ("kuiper/kernels/common/visit.h", '"kuiper/ops/kv_view.h"', True),
        ("kuiper/kernels/common/visit.h", '"kuiper/ops/ops.h"', False),
        ("kuiper/kernels/common/rope_math.h", "<vector>", False),
        ("kuiper/kernels/common/rope_math.h", "<cmath>", True),
        ("kuiper/kernels/cpu/norm.cpp", '"hwy/highway.h"', True),
        ("kuiper/kernels/cpu/norm.cpp", "<cuda_runtime.h>", False),
        ("kuiper/kernels/cuda/norm.cu", "<cuda_runtime.h>", True),
        ("kuiper/kernels/cuda/norm.cu", '"kuiper/model/config.h"', False),
        ("kuiper/kernels/cuda/norm.cu", '"emulator/dialect.h"', False),
        ("kuiper/kernels/cuda/platform.h", '"emulator/dialect.h"', True),
        ("emulator/machine.cpp", '"kuiper/base/check.h"', False),
        ("kuiper/model/decoder.cpp", '"kuiper/kernels/cpu/cpu_ops.h"', False),
        ("kuiper/model/decoder.cpp", '"kuiper/engine/engine.h"', False),
        ("kuiper/engine/engine.cpp", '"kuiper/model/model.h"', True),
        ("kuiper/engine/engine.cpp", '"kuiper/kernels/make_ops.h"', False),
        ("kuiper/engine/engine.cpp", "<gflags/gflags.h>", False),
        ("kuiper/engine/engine.cpp", '"kuiper/chat/conversation.h"', False),
        ("kuiper/chat/request.cpp", '"kuiper/engine/request.h"', True),
        ("kuiper/chat/request.cpp", '"kuiper/engine/scheduler.h"', False),
        ("kuiper/chat/request.cpp", '"demo/flags.h"', False),
        ("kuiper/chat/request.cpp", "<glog/logging.h>", False),
        ("demo/cli.cpp", '"kuiper/engine/engine.h"', True),
        ("demo/cli.cpp", '"kuiper/chat/conversation.h"', True),
        ("demo/cli.cpp", '"kuiper/model/model.h"', False),
        ("demo/cli.cpp", '"cli.h"', False),
        ("demo/cli.cpp", "<boost/any.hpp>", False),
        ("demo/cli.cpp", '"kuiper/server/server.h"', False),
        ("kuiper/server/http_server.cpp", "<boost/asio/post.hpp>", True),
        ("kuiper/server/http_server.cpp", '"kuiper/engine/engine.h"', False),
        ("kuiper/server/server.cpp", "<boost/asio/post.hpp>", False),
        ("kuiper/engine/engine.cpp", '"kuiper/server/server.h"', False),
        ("kuiper/server/server.cpp", "<zmq.h>", False),
        ("kuiper/server/zmq_publisher.cpp", "<zmq.h>", True),
        ("tools/pack.cpp", '"kuiper/kernels/cpu/cpu_ops.h"', False),
        ("kuiper/attic/old.cpp", "<cstdint>", False),
    ]
    failures = 0
    for name, include, expected in cases:
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / name
            path.parent.mkdir(parents=True)
            path.write_text(f"// Comment\n  # include {include}\n")
            _, found = violations(pathlib.Path(scratch))
        if (not found) != expected:
            failures += 1
            print(f"self-test: {name} including {include}: expected "
                  f"{'allowed' if expected else 'refused'}, got {found}")
    print(f"self-test: {len(cases) - failures} of {len(cases)} cases as expected")
    return 1 if failures else 0


def main(argv):
    if argv == ["--self-test"]:
        return self_test()
    root = pathlib.Path(argv[0]) if argv else pathlib.Path(__file__).resolve().parent.parent
    files, found = violations(root)
    print("\n".join(found) if found else f"layers: {files} files obey the include table")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
