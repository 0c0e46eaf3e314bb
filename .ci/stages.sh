# shellcheck shell=bash
# Sourced by .ci/run and .ci/long: how a stage runs and is reported.
# shellcheck source=tools/packages.sh
. tools/packages.sh

export CI=true
# The shared data set lies beside the project; without it tests must fail here, not skip.
export KUIPER_REQUIRE_TEST_DATA=1
need ccache:ccache clang-format:clang-format clang-tidy:clang-tidy shellcheck:shellcheck git:git
export CMAKE_CXX_COMPILER_LAUNCHER=ccache
# One clone's objects serve every other one: paths inside the clone count from its root.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

# Runs a README command in its own shell, with its own headings.
stage() {
  local start=$SECONDS
  printf '\n######## %s\n' "$*"
  "$@"
  printf '######## %s: %d s\n' "$*" $((SECONDS - start))
}

# leave_out WHAT WHY: for what cannot run here; the last line names it.
KUIPER_LEFT_OUT=
leave_out() {
  echo "left out: $1: $2"
  KUIPER_LEFT_OUT+="; left out: $1 ($2)"
}

everything_passed() {
  printf '\n######## everything passed: %d s%s\n' "$SECONDS" "$KUIPER_LEFT_OUT"
}

# sanitize TARGET CTEST_OPTION...: builds the target and runs tests under AddressSanitizer and
# UndefinedBehaviorSanitizer. The emulated CUDA device has sanitizer programs of its own in the ordinary build.
sanitize() {
  local target=$1
  shift
  need clang++:clang
  heading "Build (build-asan/)"
  configure_sanitized build-asan address,undefined -DKUIPER_SIMT=OFF -DKUIPER_WERROR=ON
  cmake --build build-asan -j "$(build_jobs)" --target "$target"
  heading "Tests with sanitizers"
  ctest --test-dir build-asan --output-on-failure -j "$(nproc)" "$@"
  step_done
}
