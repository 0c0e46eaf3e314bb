# shellcheck shell=bash disable=SC2034
# Sourced by the scripts in tools/: which Debian or Ubuntu packages a job needs, and how they come.
# A tool counts as present when its command is found, whoever installed it; a library counts as
# present when dpkg says so. Nothing is installed that is there already.

# command:package
KUIPER_BUILD_TOOLS=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config)
KUIPER_BUILD_LIBRARIES=(libgoogle-glog-dev libgflags-dev nlohmann-json3-dev libsentencepiece-dev
  libpcre2-dev libutf8proc-dev libhwy-dev libboost-dev libjpeg-dev libpng-dev libgif-dev libwebp-dev)
# What the build does without, each with what it is for: KV events of the server.
KUIPER_OPTIONAL_LIBRARIES=(libzmq3-dev)
KUIPER_TEST_TOOLS=(python3:python3)
KUIPER_TEST_LIBRARIES=(libgtest-dev)

# heading TEXT: opens a step; the time the last one took is printed when the next one opens.
heading() {
  step_done
  printf '\n== %s\n' "$1"
  KUIPER_STEP_START=$SECONDS
}
step_done() {
  if [ -n "${KUIPER_STEP_START:-}" ]; then
    printf -- '-- %d s\n' $((SECONDS - KUIPER_STEP_START))
  fi
  KUIPER_STEP_START=
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "error: need root (or sudo) to run: $*" >&2
    return 1
  fi
}

is_installed() {
  dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed$'
}

# need NAME...: installs what is missing of "command:package" pairs and library packages.
need() {
  local name missing=()
  for name in "$@"; do
    case "$name" in
      *:*) command -v "${name%%:*}" >/dev/null || missing+=("${name#*:}") ;;
      *) ! command -v dpkg-query >/dev/null || is_installed "$name" || missing+=("$name") ;;
    esac
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: nothing is missing"
    return
  fi
  if ! command -v apt-get >/dev/null; then
    echo "error: missing, and there is no apt-get to install them: ${missing[*]}" >&2
    return 1
  fi
  echo "packages: installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# As many compiler processes as there are cores, but no more than memory allows (1.5 GB each).
build_jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kb / 1500000))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# configure DIR OPTION...: first configuration with Ninja; later ones keep the generator of DIR.
configure() {
  local dir=$1 generator=()
  shift
  [ -f "$dir/CMakeCache.txt" ] || generator=(-G Ninja)
  mkdir -p "$dir"
  cmake -S . -B "$dir" "${generator[@]}" "$@" >"$dir/configure.log" || { cat "$dir/configure.log"; return 1; }
}

# configure_sanitized DIR SANITIZERS OPTION...: with clang, which compiles with sanitizers twice as fast as GCC,
# and CPU kernels of one instruction set, as each takes minutes. On x86 that is AVX2; Highway's own choice is one
# that it emulates, the slowest of all to compile.
configure_sanitized() {
  local dir=$1 sanitizers=$2 march=
  shift 2
  [ "$(uname -m)" != x86_64 ] || march="-march=x86-64-v3 -maes -mpclmul"
  configure "$dir" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    "-DCMAKE_CXX_FLAGS=${CXXFLAGS:-} -DHWY_COMPILE_ONLY_STATIC $march" \
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" "-DKUIPER_SANITIZE=$sanitizers" "$@"
}
