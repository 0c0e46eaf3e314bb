#!/usr/bin/env bash
# Cross-compiles the CPU build for 64-bit ARM into build-aarch64/ and runs the unit tests under qemu.
# The ARM libraries are unpacked into build-aarch64/sysroot; the system gets a cross compiler and
# qemu, no foreign packages. Needs apt sources that carry arm64, as Debian's do.
#
#   tools/cross_aarch64.sh [CTEST OPTION...]
#   CXX=aarch64-linux-gnu-g++-11 tools/cross_aarch64.sh     with another cross compiler
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

build=$PWD/build-aarch64
sysroot=$build/sysroot

heading "Packages"
need "${KUIPER_BUILD_TOOLS[@]}" "${KUIPER_TEST_TOOLS[@]}" \
  aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static

heading "Libraries (build-aarch64/sysroot)"
[ -d "$sysroot" ] ||
  unpack_packages "$sysroot" arm64 "" "${KUIPER_BUILD_LIBRARIES[@]}" "${KUIPER_TEST_LIBRARIES[@]}" libhwy-dev
echo "$(du -sm "$sysroot" | cut -f1) MB"

heading "Build (build-aarch64/)"
configure build-aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release \
  ${CXX:+-DCMAKE_CXX_COMPILER=$CXX} -DKUIPER_SIMT=OFF
cmake --build build-aarch64 -j "$(build_jobs)" --target kuiper_unit_tests

heading "Tests under qemu"
# Left out are whole programs, which scripts would start past qemu, as death tests do and the examples are;
# tests of the kernel's memory, on which qemu-user passes neither advice nor limits; and one that measures time.
ctest --test-dir build-aarch64 --output-on-failure -j "$(nproc)" -L '_test$' \
  -E 'DeathTest|_example_|DropsThePageCache|WhatStaysInTheFileIsMapped|FailedGrowth|TakeLittleTime' "$@"
step_done
