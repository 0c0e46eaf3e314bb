#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing (Debian, Ubuntu), builds into build/ and
# lets the bundled model answer one question twice, with a contiguous and with a paged KV cache; then
# lets the one that sees answer a question about a picture. Exits with 0 only if both answers are the
# same, text and token ids, and the last one is there.
#
#   tools/quickstart.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

prompt=${1:-Tell me a story about Kuiper.}
model=demo/models/tiny-qwen3
programs=(kuiper_program qwen_infer qwen3_infer qwen3_vl_infer kuiper_batch kuiper_server kuiper_pack kuiper_logits
  kuiper_bench)

heading "Packages"
need "${KUIPER_BUILD_TOOLS[@]}" "${KUIPER_BUILD_LIBRARIES[@]}"
need_highway

heading "Build (build/)"
if [ -f build/CMakeCache.txt ]; then
  configure build
else
  configure build -DCMAKE_BUILD_TYPE=Release -DKUIPER_BUILD_TESTS=OFF
fi
cmake --build build -j "$(build_jobs)" --target "${programs[@]}"

# ask NAME FLAG...: answer to NAME.txt, log to NAME.log.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ask() {
  local name=$1
  shift
  build/demo/qwen3_infer "$model" --prompt "$prompt" --max-tokens 512 "$@" \
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
  tools/test.sh                                            all tests
  build/demo/qwen3_infer $model -i         chat
  build/demo/qwen3_infer PATH/TO/Qwen3-0.6B -p "Hello"     a model of your own
  build/demo/qwen3_infer --help                            every flag; also docs/command_line.md
TEXT
