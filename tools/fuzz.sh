#!/usr/bin/env bash
# Builds the fuzz targets with clang, ASan and UBSan into build-fuzz/ and runs each for a while.
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
need "${KUIPER_BUILD_TOOLS[@]}" "${KUIPER_BUILD_LIBRARIES[@]}" clang++:clang
heading "Build (build-fuzz/)"
# The targets run parsers, not kernels: one instruction set is enough and builds several times faster.
configure build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  "-DCMAKE_CXX_FLAGS=${CXXFLAGS:-} -DHWY_COMPILE_ONLY_STATIC" \
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" -DKUIPER_SANITIZE=address,undefined \
  -DKUIPER_BUILD_FUZZERS=ON -DKUIPER_BUILD_TESTS=OFF
cmake --build build-fuzz -j "$(build_jobs)" --target "${targets[@]/#/fuzz_}"

for target in "${targets[@]}"; do
  heading "Fuzz $target for $seconds s"
  mkdir -p "build-fuzz/corpus/$target"
  options=("-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    "-artifact_prefix=build-fuzz/failed-$target-")
  [ ! -f "test/fuzz/$target.dict" ] || options+=("-dict=test/fuzz/$target.dict")
  "build-fuzz/test/fuzz/fuzz_$target" "build-fuzz/corpus/$target" "test/fuzz/corpus/$target" \
    "${options[@]}" >"build-fuzz/$target.log" 2>&1 || {
    tail -n 80 "build-fuzz/$target.log"
    exit 1
  }
  grep -E '^(Done|stat::(number_of_executed_units|new_units_added)|#.*DONE)' "build-fuzz/$target.log"
done
step_done
