#!/usr/bin/env bash
# Installs what is missing, builds everything into build/ and runs every test.
#
#   tools/test.sh [CTEST OPTION...]          e.g. tools/test.sh -R kv
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

heading "Packages"
need_build "${KUIPER_TEST_TOOLS[@]}" "${KUIPER_TEST_LIBRARIES[@]}"

heading "Build (build/)"
# The CUDA kernels are tested on the emulated device, GPU or not.
options=(-DKUIPER_BUILD_TESTS=ON -DKUIPER_SIMT=ON)
[ -f build/CMakeCache.txt ] || options+=(-DCMAKE_BUILD_TYPE=Release)
configure build "${options[@]}"
cmake --build build -j "$(build_jobs)"

heading "Tests"
ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
step_done
