#!/usr/bin/env bash
# Builds two commits and compares what their programs compute: token ids, texts, log probabilities
# and the bits of all logits, in every mode that must not change them. It uses nothing of a commit but
# its command lines, so the commits may differ in everything else. Models and prompts are those of the
# working tree. Exits with 0 only if every case ran and is equal.
#
#   tools/compare_commits.sh A B [PATTERN]     PATTERN: an extended regular expression of case names
#
# Builds are kept in build/compare/SHA. JOBS=N runs so many cases at a time (as many as cores).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
pattern=${3:-.}
work=$PWD/build/compare
models=$PWD/demo/models
goldens=$PWD/test/data/goldens
programs=(qwen_infer qwen3_infer kuiper_batch kuiper_logits)
sha_a=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "error: no commit $1" >&2; exit 2; }
sha_b=$(git rev-parse --verify --quiet "$2^{commit}") || { echo "error: no commit $2" >&2; exit 2; }

# build SHA: the programs come to lie in build/compare/SHA/build/{demo,tools}.
build() {
  local tree=$work/$1 options=(-DCMAKE_BUILD_TYPE=Release -DKUIPER_SIMT=ON -DKUIPER_CUDA=OFF -DKUIPER_BUILD_TESTS=OFF)
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    [ -n "$(ccache --get-config base_dir)" ] || export CCACHE_BASEDIR=$tree CCACHE_NOHASHDIR=1
  fi
  if [ ! -f "$tree/CMakeLists.txt" ]; then
    rm -rf "$tree"
    mkdir -p "$tree"
    git archive "$1" | tar -x -C "$tree"
  fi
  echo "== build $(git log -1 --format='%h %s' "$1")"
  if ! { cmake -S "$tree" -B "$tree/build" -G Ninja "${options[@]}" &&
    cmake --build "$tree/build" -j "$(nproc)" --target "${programs[@]}"; } >"$tree.log" 2>&1; then
    tail -n 40 "$tree.log" >&2
    echo "error: $1 does not build" >&2
    exit 2
  fi
}

# make_inputs DIR: prompts, requests, and a tokenizer that fits the vocabulary of the goldens.
make_inputs() {
  python3 - "$1" "$goldens" <<'PYTHON'
import json, pathlib, random, sys

out, goldens = map(pathlib.Path, sys.argv[1:])
dice = random.Random(1)
words = "the red cat of a small town has seven old clocks and no time 你好 café <think> 3.14".split()

def text(count):
    return " ".join(dice.choices(words, k=count))

(out / "short.txt").write_text("Tell me about " + text(30))
(out / "long.txt").write_text("Tell me a story. " + text(230))
(out / "chat.txt").write_text("".join(text(20) + "\n" for _ in range(3)) + "/regen\n" + text(9) + "\n")

def body(i, max_tokens):
    """Greedy and sampled, samples, beams, penalties, filters, stop strings and budgets."""
    made = {"max_tokens": dice.randint(1, max_tokens), "seed": i, "temperature": dice.choice([0, 0.8])}
    made["ignore_eos"] = i % 2 == 0
    kind = i % 10
    if kind == 1:
        made.update(n=3, temperature=1)
    elif kind == 2:
        made.update(n=2, beam_width=4, length_penalty=0.5, temperature=0)
    elif kind == 3:
        made.update(presence_penalty=0.7, frequency_penalty=0.5, repetition_penalty=1.3)
    elif kind == 4:
        made.update(top_k=20, top_p=0.9, temperature=1)
    elif kind == 5:
        made.update(min_p=0.05, temperature=1.2)
    elif kind == 6:
        made.update(stop=["e", "the "])
    elif kind == 7:
        made.update(reasoning_budget=4)
    elif kind == 8:
        made.update(beam_width=3, temperature=0, repetition_penalty=1.2)
    return made

def lines(name, count, max_tokens, prompt_of):
    with open(out / name, "w") as file:
        for i in range(count):
            request = prompt_of(i)
            url = "/v1/chat/completions" if "messages" in request else "/v1/completions"
            file.write(json.dumps({"custom_id": f"r{i}", "url": url, "body": {**request, **body(i, max_tokens)}}) + "\n")

def chat(num_words):
    shared = [{"role": "system", "content": "You are a clerk. " + text(num_words * 2 // 3)}]
    def prompt(i):
        user = text(dice.randint(1, num_words))
        if i % 5 == 4:
            return {"prompt": user}
        return {"messages": shared * (i % 2) + [{"role": "user", "content": user}]}
    return prompt

def ids(i):
    start = [] if i % 2 else list(range(2, 22))
    return {"prompt": start + [dice.randrange(2, 60) for _ in range(dice.randint(1, 40))]}

lines("200.jsonl", 200, 30, chat(60))
# For the emulated device, which takes as long for one token as the CPU for a hundred.
lines("10.jsonl", 10, 8, chat(12))
lines("ids.jsonl", 20, 30, ids)
# 20 further tokens cross the boundaries of pages of 16, and of those of 256.
(out / "ids.txt").write_text(" ".join(str(3 + 7 * i % 1400) for i in range(300)))

vocab = {name: i for i, name in enumerate(["<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])}
special = [{"id": i, "content": name, "special": True, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False} for name, i in vocab.items()]
for code in range(63, 119):  # with the others 60: the smallest vocabulary of a golden has 64
    vocab[chr(code)] = len(vocab)
level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
(out / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level,
    "post_processor": None, "decoder": level,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": []}}))
PYTHON
}

# One line per case: name, tab, a pattern that the output must hold for the case to prove anything
# (or nothing), tab, program and arguments. @out is a folder of this run of this commit.
add() { printf '%s\t%s\t%s\n' "$1" "$2" "${*:3}"; }
infer() {  # NAME MODEL PROMPT TOKENS FLAG...
  local program=qwen_infer
  [ "$2" != tiny-qwen3 ] || program=qwen3_infer
  add "$1" '' "$program $models/$2 -f @in/$3.txt -n $4 -q --ignore-eos --dump-tokens @out/ids.txt --dump-logits @out/logits.npy ${*:5}"
}
batch() {  # NAME PATTERN MODEL REQUESTS FLAG...
  add "$1" "$2" "kuiper_batch $3 --input @in/$4.jsonl --output @out/answers.jsonl ${*:5}"
}
logits() {  # NAME MODEL IDS FLAG...
  add "$1" '' "kuiper_logits $2 --ids $3 --out @out/logits.npy ${*:4}"
}

cases() {
  local model device layout graph chunk prompt golden name
  local contiguous='' paged='--paged-attention --page-size'
  local layouts=("$contiguous" "$paged 1" "$paged 16" "$paged 256")
  for model in tiny-qwen2.5 tiny-qwen3; do
    for device in cpu simt; do
      local run="$device/$model" on="--device $device"
      for layout in "${layouts[@]}"; do
        name=${layout:-contiguous}
        name=${name/$paged/pages of}
        for graph in --cuda-graph --no-cuda-graph; do
          for chunk in 1 5 512; do
            prompt=short
            # Steps of few tokens through a long prompt take the emulated device a minute.
            [ $device$chunk = simt1 ] || [ $device$chunk = simt5 ] || prompt=long
            infer "$run/$name, $graph, chunks of $chunk" $model $prompt 20 "$on" "$layout" $graph \
              --max-num-batched-tokens $chunk
          done
        done
        infer "$run/$name, sampled" $model short 20 "$on" "$layout" --temp 0.9 --top-k 30 --top-p 0.9 \
          --seed 5 --repetition-penalty 1.1
        logits "$run/$name, prompt" "$models/$model" @in/ids.txt "$on" "$layout" --chunk 100
      done
      for type in fp16 bf16 fp32; do
        infer "$run/--dtype $type" $model short 8 "$on" "$paged 16" --dtype $type --cuda-graph
      done
      infer "$run/--kv-cache-dtype fp16" $model short 8 "$on" "$paged 16" --kv-cache-dtype fp16
      for kind in mha flash1 flash2; do
        infer "$run/--attention $kind" $model long 8 "$on" "$paged 16" --attention $kind
      done
      infer "$run/--deterministic strict" $model short 8 "$on" "$paged 16" --deterministic strict
      infer "$run/--on-full slide" $model short 40 "$on" "$paged 16" --on-full slide --max-context 96
      name="qwen3_infer"
      [ $model = tiny-qwen3 ] || name=qwen_infer
      add "$run/samples, log probabilities" '"logprobs"' "$name $models/$model -f @in/short.txt $on -n 12 -o json" \
        "--num-samples 3 --temp 1 --logprobs 3 --seed 3 $paged 4"
      add "$run/beams" '"score"' "$name $models/$model -f @in/short.txt $on -n 12 -o json --beam-width 4 $paged 4"
      add "$run/chat with a prefix cache" '"cached_tokens":[1-9]' "$name $models/$model -i $on -n 12 -o json" \
        "--temp 0.7 --seed 1 --prefix-cache --history-thinking keep $paged 4 <@in/chat.txt"
      add "$run/chat, contiguous, with a prefix cache" '"cached_tokens":[1-9]' "$name $models/$model -i $on -n 12" \
        "-o json --prefix-cache --history-thinking keep <@in/chat.txt"
      local requests=200
      [ $device = cpu ] || requests=10
      local full=(--preemption recompute --num-blocks 40 --page-size 8 --max-context 256)
      [ $device = cpu ] || full=(--preemption recompute --num-blocks 24 --page-size 4 --max-context 96)
      batch "$run/batch" ' [1-9][0-9]* of [0-9]* prompt tokens reused' "$models/$model" $requests "$on" --page-size 4 --max-num-seqs 4
      batch "$run/batch, eager, no cache" '' "$models/$model" $requests "$on" --no-cuda-graph --no-prefix-cache
      batch "$run/batch, contiguous" '' "$models/$model" $requests "$on" --no-paged-attention --max-context 512
      batch "$run/batch, chunks of 5" '' "$models/$model" 10 "$on" --max-num-batched-tokens 5 --max-num-seqs 5
      batch "$run/batch, latency" '' "$models/$model" 10 "$on" --policy latency
      batch "$run/batch, recompute" '[1-9][0-9]* preemptions recomputed' "$models/$model" $requests "$on" "${full[@]}"
      batch "$run/batch, swap" '[1-9][0-9]* swapped' "$models/$model" $requests "$on" "${full[@]/recompute/swap}"
      batch "$run/batch, --on-full stop" '' "$models/$model" $requests "$on" "${full[@]}" --on-full stop
    done
  done
  for golden in "$goldens"/*; do
    for device in cpu simt; do
      local run="$device/${golden##*/}"
      for layout in "${layouts[@]}"; do
        name=${layout:-contiguous}
        for chunk in 1 5 512; do
          logits "$run/${name/$paged/pages of}, chunks of $chunk" "$golden" "$golden/ids.txt" \
            "--device $device" "$layout" --chunk $chunk
        done
      done
      batch "$run/batch" '' "$golden" ids --tokenizer @in/tokenizer.json --device $device --page-size 4
      batch "$run/batch, recompute" '' "$golden" ids --tokenizer @in/tokenizer.json --device $device \
        --page-size 4 --num-blocks 40 --preemption recompute --max-num-batched-tokens 7 --max-num-seqs 7
    done
  done
}

# run_one SHA DIR COMMAND: exit code, output without times, and the hash of every file it wrote.
run_one() {
  local tree=$work/$1 out=$2 command=$3 code=0 program folder=demo input=/dev/null
  rm -rf "$out"
  mkdir -p "$out"
  command=${command//@out/$out}
  command=${command//@in/$inputs}
  if [[ $command == *' <'* ]]; then
    input=${command##* <}
    command=${command% <*}
  fi
  program=${command%% *}
  [ "$program" != kuiper_logits ] || folder=tools
  # shellcheck disable=SC2086 # the words of a case hold no blanks
  "$tree/build/$folder/$program" ${command#* } <"$input" >"$out/stdout" 2>"$out/stderr" || code=$?
  {
    echo "exit code $code"
    sed -E 's/"timing":\{[^}]*\},?//g' "$out/stdout"
    (cd "$out" && find . -type f ! -name stdout ! -name stderr ! -name result ! -name schedule -exec sha256sum {} + | sort -k2)
  } >"$out/result"
  # How the work was scheduled may differ; a line says so.
  grep '^KV cache: [0-9]* of' "$out/stderr" >"$out/schedule" || true
}

# run_case LINE: "VERDICT name" to the file of the case.
run_case() {
  local name proof command where verdict
  IFS=$'\t' read -r name proof command <<<"${1//$'\t\t'/$'\t-\t'}"
  where=$results/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9.\n' _)
  run_one "$sha_a" "$where.a" "$command"
  run_one "$sha_b" "$where.b" "$command"
  if ! cmp -s "$where.a/result" "$where.b/result"; then
    verdict=DIFFERENT
  elif ! grep -q '^exit code 0$' "$where.a/result"; then
    verdict=FAILED
  elif [ "$proof" != - ] && ! grep -Eq "$proof" "$where.a/result" "$where.a/stderr"; then
    verdict=VOID
  else
    verdict=equal
    cmp -s "$where.a/schedule" "$where.b/schedule" || name+=" (scheduled otherwise)"
    rm -rf "$where.a" "$where.b"
  fi
  printf '%-9s  %s\n' $verdict "$name" | tee "$where.verdict"
}

build "$sha_a"
build "$sha_b"
results=$work/results
inputs=$work/inputs
rm -rf "$results" "$inputs"
mkdir -p "$results" "$inputs"
make_inputs "$inputs"
export work inputs results sha_a sha_b
export -f run_case run_one
echo "== compare $(git rev-parse --short "$sha_a") with $(git rev-parse --short "$sha_b")"
cases | grep -E "^[^	]*($pattern)" | tr -s ' ' >"$results/cases"
export KUIPER_CACHE_DIR=$work/no-tuned-products
# shellcheck disable=SC2016 # bash -c expands it
xargs -d '\n' -P "${JOBS:-$(nproc)}" -n 1 bash -c 'run_case "$1"' _ <"$results/cases"

count() { cat "$results"/*.verdict | grep -c "^$1 " || true; }
total=$(wc -l <"$results/cases")
equal=$(count equal)
if [ "$equal" -eq "$total" ] && [ "$total" -gt 0 ]; then
  echo "OK: $total cases, all equal"
else
  echo "NOT EQUAL: of $total cases $(count DIFFERENT) differ, $(count FAILED) end with an error," \
    "$(count VOID) did not do what they are for; see $results"
  exit 1
fi
