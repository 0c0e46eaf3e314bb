#!/usr/bin/env bash
# Builds the fuzz targets with clang, ASan and UBSan into build-fuzz/ and runs each for a while, one per core.
# New inputs stay in build-fuzz/corpus; an input that fails is kept there and ends the run.
#
#   tools/fuzz.sh [SECONDS PER TARGET] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

seconds=${1:-30}
[ $# -eq 0 ] || shift
if [ $# -gt 0 ]; then
  targets=("$@")
else
  mapfile -t targets < <(sed -n 's/^kuiper_fuzz(\([a-z0-9_]*\))$/\1/p' test/fuzz/CMakeLists.txt)
fi
[ ${#targets[@]} -gt 0 ] || { echo "error: no fuzz targets" >&2; exit 1; }

heading "Packages"
need_build clang++:clang
heading "Build (build-fuzz/)"
configure_sanitized build-fuzz address,undefined -DKUIPER_BUILD_FUZZERS=ON -DKUIPER_BUILD_TESTS=OFF
cmake --build build-fuzz -j "$(build_jobs)" --target "${targets[@]/#/fuzz_}"

# fuzz TARGET SECONDS: its statistics, or the end of its log if an input failed.
fuzz() {
  mkdir -p "build-fuzz/corpus/$1"
  local log=build-fuzz/$1.log options=("-max_total_time=$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    "-artifact_prefix=build-fuzz/failed-$1-")
  [ ! -f "test/fuzz/$1.dict" ] || options+=("-dict=test/fuzz/$1.dict")
  "build-fuzz/test/fuzz/fuzz_$1" "build-fuzz/corpus/$1" "test/fuzz/corpus/$1" "${options[@]}" >"$log" 2>&1 || {
    printf 'failed: %s\n%s\n' "$1" "$(tail -n 80 "$log")"
    return 255 # ends xargs
  }
  printf '%s: %s\n' "$1" "$(grep -E '^(Done|stat::(number_of_executed_units|new_units_added)|#.*DONE)' "$log")"
}
export -f fuzz
heading "Fuzz each target for $seconds s"
# libFuzzer uses one core.
# shellcheck disable=SC2016 # bash -c expands it
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz "$@"' _ {} "$seconds"
step_done
