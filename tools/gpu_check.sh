#!/usr/bin/env bash
# The acceptance test of a machine with a GPU: builds for the GPU that is there, or takes a bundle made
# elsewhere, then runs the tests that touch a device, NVIDIA's sanitizers, the guarantees end to end and
# the benchmarks, and writes one report. Every step runs, whatever failed before it.
#
#   tools/gpu_check.sh [--device cuda:N|simt] [--report FILE] [--quick]
#   tools/gpu_check.sh --make-bundle FILE.tar.gz [--arch LIST]     on the machine that builds
#   tools/gpu_check.sh --bundle FILE.tar.gz [OPTION...]            on the machine with the GPU
#
#   --device DEVICE   default cuda:0; simt runs the same steps on the emulated device
#   --report FILE     default gpu_report.md
#   --quick           leaves out the sanitizers and the large benchmarks
#   --arch LIST       as CMAKE_CUDA_ARCHITECTURES, e.g. "87-real" (default: those of the project)
#
# Exit code: 0 all passed, 1 a step failed, 2 usage, 8 there is no such device.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
device=cuda:0 report=gpu_report.md bundle='' make_bundle='' archs='' quick=no
folder=  # what a bundle is put together in
usage() {
  printf 'error: %s\nhint: the head of tools/gpu_check.sh lists the options\n' "$1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=yes; shift; continue ;;
    --device | --report | --bundle | --make-bundle | --arch) [ $# -ge 2 ] || usage "$1 needs a value" ;;
    *) usage "unknown option $1" ;;
  esac
  case "$1" in
    --device) device=$2 ;;
    --report) report=$2 ;;
    --bundle) bundle=$2 ;;
    --make-bundle) make_bundle=$2 ;;
    --arch) archs=$2 ;;
  esac
  shift 2
done
case "$device" in
  simt | cuda:[0-9] | cuda:[0-9][0-9]) ;;
  *) usage "--device: '$device' is not one of cuda:N, simt" ;;
esac

# Where a build has what a check runs.
programs=(demo/qwen3_infer tools/kuiper_bench test/ops/ops_test test/model/vision_test test/engine/device_test
  test/engine/engine_test test/simt/simt_test)

# build DIR TEST_SOURCE: configures and builds what a check runs. Device simt needs no nvcc.
build() {
  # shellcheck source=tools/packages.sh
  . "$here/tools/packages.sh"
  local options=(-DCMAKE_BUILD_TYPE=Release -DKUIPER_BUILD_TESTS=ON -DKUIPER_SIMT=ON
    "-DKUIPER_TEST_SOURCE_DIR=$2")
  if [ "$device" = simt ]; then
    options+=(-DKUIPER_CUDA=OFF)
  else
    options+=(-DKUIPER_CUDA=ON)
  fi
  [ -z "$archs" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$archs")
  (cd "$here" && need_build "${KUIPER_TEST_TOOLS[@]}" "${KUIPER_TEST_LIBRARIES[@]}" &&
    configure "$1" "${options[@]}" &&
    cmake --build "$1" -j "$(build_jobs)" --target "${programs[@]##*/}")
}

# A folder with everything a check needs but a driver, the C and C++ libraries and cuBLASLt of the same
# CUDA version (500 MB): programs, the libraries they load, the bundled models, the goldens of the tests
# and this script.
pack() {
  local target=$1 dir=$here/build-bundle
  build "$dir" .
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$folder"/kuiper/{bin,lib,tools,demo/models,test/data}
  cp "${programs[@]/#/$dir/}" "$folder/kuiper/bin/"
  ldd "$folder"/kuiper/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcublasLt)\.so' |
    xargs -I{} cp -L {} "$folder/kuiper/lib/"
  cp -r "$here"/demo/models/tiny-qwen3{,-vl} "$folder/kuiper/demo/models/"
  cp -r "$here"/test/data/{goldens,vision} "$folder/kuiper/test/data/"
  cp -r "$here"/tools/{gpu_check.sh,gpu_table.py,attention_torch.py,bench_models} "$folder/kuiper/tools/"
  commit_of_tree >"$folder/kuiper/COMMIT"
  tar -C "$folder" -czf "$target" kuiper
  printf '%s: %s, built from %s\n' "$target" "$(du -h "$target" | cut -f1)" "$(cat "$folder/kuiper/COMMIT")"
}

# Where the toolkit or Python's packages of NVIDIA have it, separated by colons; find fails where one of the
# folders does not exist.
cublaslt_folders() {
  local packages
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' || echo /none)
  { find /usr/local/cuda*/ "$packages/nvidia" -name 'libcublasLt.so*' -printf '%h\n' 2>/dev/null || true; } |
    sort -u | paste -s -d:
}

commit_of_tree() {
  if [ -f "$here/COMMIT" ]; then
    cat "$here/COMMIT"
  else
    git -C "$here" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown
  fi
}

if [ -n "$make_bundle" ]; then
  pack "$make_bundle"
  exit
fi
if [ -n "$bundle" ]; then
  [ -f "$bundle" ] || usage "no such bundle: $bundle"
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  tar -C "$unpacked" -xzf "$bundle"
  options=(--device "$device" --report "$(realpath -m "$report")")
  [ "$quick" = no ] || options+=(--quick)
  "$unpacked/kuiper/tools/gpu_check.sh" "${options[@]}"
  exit
fi
report=$(realpath -m "$report")

if [ "$device" != simt ] && ! nvidia-smi -L >/dev/null 2>&1 && [ ! -e /dev/nvhost-gpu ]; then
  echo "error: no CUDA device found: there is nothing to check (--device simt runs the steps without one)" >&2
  exit 8
fi

# In a bundle the programs are there; in a source tree they are built for this machine.
cd "$here"
if [ -d bin ]; then
  library_path=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$(cublaslt_folders)
  export LD_LIBRARY_PATH=$library_path
  bin() { echo "bin/$1"; }
else
  if [ "$device" != simt ] && [ -z "$archs" ] && [ ! -f /etc/nv_tegra_release ]; then
    archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)-real
  fi
  build build-gpu "$here"
  bin() { find build-gpu -maxdepth 3 -xtype f -executable -name "$1" -print -quit; }
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export KUIPER_CACHE_DIR=$scratch/cache  # what --tune keeps is for this check alone
failures=0
: >"$scratch/summary"
: >"$scratch/details"

# step NAME COMMAND...: runs it, notes how it ended, and keeps the last lines of what it said.
step() { run_step none "$@"; }
# The same of what may be too large: exit code 7 is what our programs say when the memory does not suffice.
large_step() { run_step 7 "$@"; }

# run_step CODE NAME COMMAND...: a command that ends with CODE is left out.
run_step() {
  local too_large=$1 name=$2 start=$SECONDS verdict=passed code=0
  shift 2
  printf '== %s\n' "$name"
  "$@" >"$scratch/log" 2>&1 || code=$?
  if [ "$code" = "$too_large" ]; then
    verdict="left out: too large for this device"
  elif [ "$code" -ne 0 ]; then
    verdict=FAILED
    failures=$((failures + 1))
  fi
  printf -- '-- %s, %d s\n' "$verdict" $((SECONDS - start))
  printf '| %s | %s | %d s |\n' "$name" "$verdict" $((SECONDS - start)) >>"$scratch/summary"
  {
    # shellcheck disable=SC2016
    printf '\n### %s: %s\n\n`%s`\n\n```\n' "$name" "$verdict" "$*"
    tail -n 150 "$scratch/log"
    # shellcheck disable=SC2016
    printf '```\n'
  } >>"$scratch/details"
}
leave_out() {
  printf '== %s: left out, %s\n' "$1" "$2"
  printf '| %s | left out: %s | |\n' "$1" "$2" >>"$scratch/summary"
}

# A filter that matches nothing would pass: the device must really have been tested.
run_tests() {
  local program=$1 filter=$2
  shift 2
  "$@" "$(bin "$program")" --gtest_filter="$filter" --gtest_brief=1 |
    tee "$scratch/tests" || return 1
  ! grep -q ' 0 tests from' "$scratch/tests"
}

ids_of() { sed -n 's/^Output:.* ids=\([0-9a-f]*\).*/\1/p' "$1"; }

# guarantees KIND: five runs of one prompt with this kind of attention that must give the same tokens:
# what the guarantees promise, through the program that people use.
guarantees() {
  local flags name first=''
  while read -r name flags; do
    # shellcheck disable=SC2086
    "$(bin qwen3_infer)" demo/models/tiny-qwen3 --device "$device" --max-tokens 96 --ignore-eos \
      --attention "$1" -p "Tell me a story about Kuiper." $flags >"$scratch/$name.txt" 2>"$scratch/$name.log" || {
      cat "$scratch/$name.log"
      return 1
    }
    printf '%-18s %s\n' "$name" "$(ids_of "$scratch/$name.log")"
    [ -n "$(ids_of "$scratch/$name.log")" ] || return 1
    first=${first:-$name}
    cmp "$scratch/$first.txt" "$scratch/$name.txt" || return 1
    [ "$(ids_of "$scratch/$first.log")" = "$(ids_of "$scratch/$name.log")" ] || return 1
  done <<'RUNS'
contiguous --no-paged-attention --no-cuda-graph
contiguous-graph --no-paged-attention --cuda-graph
paged --paged-attention --no-cuda-graph
paged-graph --paged-attention --cuda-graph
small-pages --paged-attention --block-size 1 --cuda-graph --max-num-batched-tokens 8
RUNS
  "$(bin qwen3_infer)" demo/models/tiny-qwen3 --device "$device" --max-tokens 48 --attention "$1" \
    -p "Tell me a story about Kuiper." --verify-paged
}

kind=${device%%:*}
step "Tensor cores and copies against plain loops and the emulated device" run_tests simt_test \
  "*WrappersTest*/$kind:*TensorCore*"
step "Operations" run_tests ops_test "*$kind*"
step "Whole models: logits of Hugging Face, guarantees to the bit" run_tests device_test "*$kind*"
step "Recorded steps" run_tests engine_test "*$kind*"
step "The vision tower" run_tests vision_test "*$kind*"
step "Guarantees end to end, tensor cores" guarantees flash2
step "Guarantees end to end, CUDA cores" guarantees flash1

if [ "$quick" = yes ]; then
  leave_out "compute-sanitizer" "--quick"
elif [ "$kind" = simt ]; then
  leave_out "compute-sanitizer" "it looks at GPUs; simt has AddressSanitizer and ThreadSanitizer"
elif ! command -v compute-sanitizer >/dev/null; then
  leave_out "compute-sanitizer" "it is not installed"
else
  # Death tests fork, which the tool does not follow.
  for tool in memcheck racecheck; do
    options=()
    [ "$tool" = racecheck ] || options+=(--report-api-errors no)  # one test asks for more memory than there is
    step "compute-sanitizer $tool" run_tests ops_test "*$kind*-*Death*:*LongContexts*:*Draws*" \
      compute-sanitizer --tool "$tool" --error-exitcode 99 "${options[@]}"
  done
fi

# Random weights in the shapes of real models, made on the device; nothing is downloaded. Rows that are
# missing are too large for its memory, and the log says so.
kuiper_bench() { "$(bin kuiper_bench)" --device "$device" "$@"; }
# bench MODEL TYPE LAYOUT OPTION...: with the fastest matrix products; the results also go to the table.
mkdir "$scratch/results"
bench() {
  local options=()
  [ "$3" = paged ] || options+=(--no-paged-attention)
  [ "$kind" = simt ] || options+=(--tune)
  kuiper_bench --invent "tools/bench_models/$1.json" --dtype "$2" "${options[@]}" "${@:4}" \
    --json "$scratch/results/$1-$2-$3.json"
}
# attention MODEL TYPE OPTION..., attention_torch the same: decode attention alone, ours and others'.
# cascade MODEL TYPE OPTION...: decode steps behind one system prompt.
attention() {
  kuiper_bench --scenario attention --invent "tools/bench_models/$1.json" --dtype "$2" "${@:3}"
}
cascade() {
  kuiper_bench --scenario cascade --invent "tools/bench_models/$1.json" --dtype "$2" "${@:3}"
}
# With the choices of --tune for the products of the bundled model, which the first time had none.
tuned_guarantees() {
  kuiper_bench demo/models/tiny-qwen3 --tune "${tiny[@]}" && guarantees auto
}
attention_torch() {
  python3 tools/attention_torch.py "tools/bench_models/$1.json" --device "$device" --dtype "$2" "${@:3}"
}

tiny=(--context "1,16" --batch "1,2" --prompt-tokens 32 --decode-steps 4 --repetitions 1)
if [ "$kind" = simt ] || [ "$quick" = yes ]; then
  for layout in paged contiguous; do
    step "Benchmark: tiny, $layout" bench tiny bf16 "$layout" "${tiny[@]}"
  done
  step "Decode attention: tiny" attention tiny bf16 --context 64 --batch 1,2 --decode-steps 4 --repetitions 1
  step "Shared prompt: tiny" cascade tiny bf16 --prompt-tokens 64 --batch 1,3 --decode-steps 4 --repetitions 1
  leave_out "Decode attention of torch" "--quick or --device simt"
else
  for model in qwen3-0.6b qwen2.5-7b qwen3-8b; do
    large_step "Benchmark: $model FP16" bench "$model" fp16 paged --context 1,1024,8192,32768 --batch 1,8,32 \
      --prompt-tokens 512,2048
  done
  for model in qwen3-0.6b-awq qwen3-8b-awq; do  # what docs/jetson.md predicts
    large_step "Benchmark: $model FP16" bench "$model" fp16 paged --context 16 --batch 1 --prompt-tokens 512 \
      --lm-head-dtype int8
  done
  large_step "Benchmark: qwen2.5-7b FP32" bench qwen2.5-7b fp32 paged --context 1,1024,8192,32768 --batch 1,8,32 \
    --prompt-tokens 512,2048
  large_step "Benchmark: qwen3-8b FP16, contiguous" bench qwen3-8b fp16 contiguous --context 1,1024,8192 \
    --batch 1,8 --prompt-tokens 512
  large_step "Shared prompt: qwen3-0.6b FP16" cascade qwen3-0.6b fp16 --prompt-tokens 2000,8000 --batch 8,32
  for type in fp16 bf16 fp32; do
    shapes=(qwen3-8b "$type" --context "1024,8192,32768" --batch "1,8,32")
    large_step "Decode attention: qwen3-8b ${type^^}" attention "${shapes[@]}"
    if python3 -c "import torch; torch.zeros(1, device='$device')" 2>/dev/null; then
      step "Decode attention of torch: qwen3-8b ${type^^}" attention_torch "${shapes[@]}"
    else
      leave_out "Decode attention of torch: qwen3-8b ${type^^}" "no torch that uses $device"
    fi
  done
fi
if [ "$kind" = simt ]; then
  leave_out "Guarantees end to end, tuned" "simt has no products to tune"
else
  step "Guarantees end to end, tuned" tuned_guarantees
fi
if command -v python3 >/dev/null; then
  step "Table and goals" python3 tools/gpu_table.py "$scratch/results"
else
  leave_out "Table and goals" "no python3"
fi

verdict="all steps passed"
[ "$failures" -eq 0 ] || verdict="$failures steps FAILED"
{
  printf '# GPU check: %s\n\n' "$verdict"
  printf '* commit: %s\n* date: %s\n' "$(commit_of_tree)" "$(date -u '+%Y-%m-%d %H:%M UTC')"
  printf '* device: %s\n* machine: %s, %s cores, %s\n' "$device" "$(uname -srm)" "$(nproc)" \
    "$(awk '/^MemTotal:/ {printf "%.0f GB", $2 / 1e6}' /proc/meminfo)"
  if [ "$kind" = cuda ] && command -v nvidia-smi >/dev/null; then
    printf '* GPU: %s\n' "$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap \
      --format=csv,noheader -i "${device#cuda:}")"
  fi
  [ ! -f /etc/nv_tegra_release ] || printf '* Jetson: %s\n' "$(head -1 /etc/nv_tegra_release)"
  printf '* build: %s\n\n' "$("$(bin qwen3_infer)" --version)"
  printf '| step | result | time |\n|---|---|---|\n'
  cat "$scratch/summary"
  printf '\n## What the steps said (the last lines)\n'
  cat "$scratch/details"
} >"$report"
printf '\n%s; report: %s\n' "$verdict" "$report"
[ "$failures" -eq 0 ]
