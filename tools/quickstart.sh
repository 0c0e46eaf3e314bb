#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing (Debian, Ubuntu; with sudo if you are not
# root), builds into build/ and lets the bundled model answer one question twice, with a contiguous and
# with a paged KV cache; then lets the one that sees answer a question about a picture. Exits with 0
# only if both answers are the same, text and token ids, and the last one is there. It says how much
# there is to download and about how long the build takes. Interrupted, it may be started again; when
# everything is built it takes a second.
#
#   tools/quickstart.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

case "${1:-}" in
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' tools/quickstart.sh; exit 0 ;;
  -*) problem "there is no option $1" "tools/quickstart.sh --help shows the usage" || exit 2 ;;
esac
if [ $# -gt 1 ]; then
  problem "there is more than one argument" "write the prompt in quotes: tools/quickstart.sh \"$*\"" || exit 2
fi

prompt=${1:-Tell me a story about Kuiper.}
model=demo/models/tiny-qwen3
programs=(kuiper_program qwen_infer qwen3_infer qwen3_vl_infer kuiper_batch kuiper_server kuiper_pack kuiper_logits
  kuiper_bench)
check_folder build

heading "Packages"
# shellcheck disable=SC2119  # the prompt is no package
need_build

heading "Build (build/)"
if [ -f build/CMakeCache.txt ]; then
  configure build
else
  configure build -DCMAKE_BUILD_TYPE=Release -DKUIPER_BUILD_TESTS=OFF
fi
announce_build build "${programs[@]}"
cmake --build build -j "$(build_jobs)" --target "${programs[@]}"

# ask NAME FLAG...: answer to NAME.txt, log to NAME.log.
scratch=$(mktemp -d build/quickstart.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
ask() {
  local name=$1
  shift
  build/demo/qwen3_infer "$model" "--prompt=$prompt" --max-tokens 512 "$@" \
    >"$scratch/$name.txt" 2>"$scratch/$name.log" || {
    local code=$?
    cat "$scratch/$name.log" >&2
    return $code
  }
  cat "$scratch/$name.txt"
  grep -E '^(Paged Attention:|PagedKVCache: page_size|Prefill:|Decode:|Output:)' "$scratch/$name.log" |
    sed 's/^/    /'
}

heading "Contiguous KV cache: $prompt"
ask contiguous
heading "Paged KV cache: $prompt"
ask paged --paged-attention
step_done

# The runs must really have used the two layouts and really have said something, or an equal answer
# would prove nothing.
ids() { sed -n 's/^Output:.* ids=\([0-9a-f]*\).*/\1/p' "$scratch/$1.log"; }
verdict() { printf '\n%s\n' "$1"; }
if ! grep -q '^Paged Attention: disabled' "$scratch/contiguous.log" ||
  ! grep -q '^Paged Attention: enabled' "$scratch/paged.log" ||
  ! grep -q '^Assistant: .' "$scratch/paged.txt" || [ -z "$(ids paged)" ]; then
  verdict "FAILED: one of the runs had another layout than asked for, or no answer"
  exit 1
fi
if ! diff "$scratch/contiguous.txt" "$scratch/paged.txt" || [ "$(ids contiguous)" != "$(ids paged)" ]; then
  verdict "FAILED: paged and contiguous answers differ"
  exit 1
fi
verdict "OK: paged and contiguous answers are the same (token ids $(ids paged))"

sight=demo/models/tiny-qwen3-vl
question="Where is the yellow thing?"
heading "A picture, $sight/samples/two.png: $question"
build/demo/qwen3_vl_infer "$sight" --image "$sight/samples/two.png" --prompt "$question" --quiet
step_done

cat <<TEXT

Where to go next:
  build/demo/kuiper chat $model  chat with the bundled model
  tools/get_model.sh Qwen/Qwen3-0.6B             brings an ordinary model: 1.5 GB, with the help of Python
  build/demo/kuiper chat Qwen3-0.6B              chat with it
  build/demo/kuiper serve Qwen3-0.6B             the same over HTTP, with a page for the browser
  build/demo/kuiper --help                       all commands; docs/command_line.md has every flag
  tools/test.sh                                  all tests: takes longer than this, and nothing above needs it
TEXT
