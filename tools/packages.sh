# shellcheck shell=bash disable=SC2034
# Sourced by the scripts in tools/: which Debian or Ubuntu packages a job needs, and how they come.
# A tool counts as present when its command is found, whoever installed it; a library counts as
# present when dpkg says so. Nothing is installed that is there already.

# command:package
KUIPER_BUILD_TOOLS=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config)
KUIPER_BUILD_LIBRARIES=(libgoogle-glog-dev libgflags-dev nlohmann-json3-dev libsentencepiece-dev
  libpcre2-dev libutf8proc-dev libboost-dev libjpeg-dev libpng-dev libgif-dev libwebp-dev)
# What the build does without, each with what it is for: KV events of the server.
KUIPER_OPTIONAL_LIBRARIES=(libzmq3-dev)
KUIPER_TEST_TOOLS=(python3:python3)
KUIPER_TEST_LIBRARIES=(libgtest-dev)
# Highway is apart, since not every system has one that the CPU kernels were tested with: the oldest and the
# newest of those, and what tools/get_highway.sh brings. cmake/highway.cmake reads these lines.
KUIPER_HIGHWAY_OLDEST=1.0.3
KUIPER_HIGHWAY_NEWEST=1.4.0
KUIPER_HIGHWAY_VERSION=1.2.0

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

# problem ERROR HINT: one line says what is wrong, one what helps.
problem() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  return 1
}

can_be_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo true; }
}

# apt_get ARGUMENT...: runs apt-get as root. A terminal shows its progress. Its warnings and errors are
# left in apt_errors.
apt_get() {
  local run=(env DEBIAN_FRONTEND=noninteractive apt-get)
  [ "$(id -u)" -eq 0 ] || run=(sudo "${run[@]}")
  if [ -t 1 ]; then
    { apt_errors=$("${run[@]}" "$@" 2>&1 >&3); } 3>&1
  else
    apt_errors=$("${run[@]}" -qq "$@" 2>&1 >/dev/null)
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
    problem "${missing[*]} are missing, and this system has no apt-get to install them" \
      "install with the system's own package manager what these packages of Debian hold"
    return
  fi
  install_packages "${missing[@]}"
}

# The first of apt's warnings and errors.
apt_reason() {
  sed -n '/^[EW]: /{s///p;q}' <<<"$apt_errors"
}

install_packages() {
  local command="apt-get update && apt-get install --no-install-recommends $*" update=
  echo "packages: missing are $*"
  if ! can_be_root; then
    problem "installing packages takes root or sudo" "ask an administrator to run: $command"
    return
  fi
  echo "packages: reading apt's lists"
  # A source that cannot be reached matters only if a package cannot be installed in the end.
  apt_get -o APT::Update::Error-Mode=any update || update="; before that: $(apt_reason)"
  { apt-get install -qq --print-uris --no-install-recommends "$@" 2>/dev/null || true; } | awk '
    /^\047/ { count++; bytes += $3 }
    END { if (count) printf "packages: %d to download, %.0f MB; this may take a few minutes\n", count, bytes / 1e6 }'
  apt_get install -y --no-install-recommends "$@" ||
    problem "apt cannot install the packages: $(apt_reason)$update" \
      "if there was no network, start again once there is one; or run as root: $command"
}

# need_build NAME...: what a build needs, and NAME...
# shellcheck disable=SC2120  # quickstart needs no more
need_build() {
  need "${KUIPER_BUILD_TOOLS[@]}" "${KUIPER_BUILD_LIBRARIES[@]}" "$@"
  need_highway
}

# Highway: what was brought, else the system's where it is one of the tested versions, else it is brought.
need_highway() {
  local brought=build/highway-$KUIPER_HIGHWAY_VERSION version
  if [ -d "$brought" ]; then
    echo "Highway: $brought"
    return
  fi
  version=$(pkg-config --modversion libhwy 2>/dev/null) && is_tested_highway "$version" && return
  version=$(apt-cache policy libhwy-dev 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p') || version=
  if is_tested_highway "$version"; then
    need libhwy-dev
  else
    echo "Highway: the system has ${version:-none}, and a version from $KUIPER_HIGHWAY_OLDEST to $KUIPER_HIGHWAY_NEWEST is needed"
    tools/get_highway.sh
  fi
}

is_tested_highway() {
  [ -n "$1" ] && printf '%s\n' "$KUIPER_HIGHWAY_OLDEST" "$1" "$KUIPER_HIGHWAY_NEWEST" | sort -V -C
}

# private_apt FOLDER ARCHITECTURE SUITE: makes an apt that knows nothing of this system in FOLDER; call it as
# apt-get -c FOLDER/apt.conf. SUITE is one of Debian's, from where this Debian has its packages; "" stands for
# the sources of this system.
private_apt() {
  local apt=$1 architecture=$2 suite=$3 mirror
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  printf '%s "%s";\n' Dir::State "$apt/state" Dir::State::status "$apt/status" Dir::Cache "$apt/cache" \
    APT::Architecture "$architecture" APT::Architectures "$architecture" APT::Sandbox::User "$(id -un)" \
    APT::Install-Recommends false quiet 2 >"$apt/apt.conf"
  [ -n "$suite" ] || return 0
  # shellcheck disable=SC2016  # apt expands these
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(SUITE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" && $3 !~ /-/ {print $4; exit}')
  if [ -z "$mirror" ]; then
    problem "packages of $suite can only be had on a Debian system" "run this on Debian"
    return
  fi
  printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
    deb "$mirror" "$suite" deb-src "$mirror" "$suite" >"$apt/sources.list"
  printf '%s "%s";\n' Dir::Etc::SourceList "$apt/sources.list" Dir::Etc::SourceParts - >>"$apt/apt.conf"
}

# unpack_packages FOLDER ARCHITECTURE SUITE NAME...: unpacks packages with all that they depend on but the headers
# of the C library, which are the compiler's.
unpack_packages() {
  local folder=$1 apt=$1.apt package
  private_apt "$apt" "$2" "$3"
  shift 3
  apt-get -c "$apt/apt.conf" update
  apt-get -c "$apt/apt.conf" install --download-only -y "$@"
  rm -rf "$folder.part"
  mkdir "$folder.part"
  for package in "$apt"/cache/archives/*.deb; do
    [[ ${package##*/} =~ ^(libc6|libcrypt|linux-libc)-dev_ ]] || dpkg-deb -x "$package" "$folder.part"
  done
  rm -rf "$apt"
  mv "$folder.part" "$folder"
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

# check_folder DIR: stops where DIR was made in another place, or by root.
check_folder() {
  local dir=$1 home=
  if [ -r "$dir/CMakeCache.txt" ]; then
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt")
  fi
  if [ -n "$home" ] && ! [ "$home" -ef . ]; then
    problem "$dir was made for the project in $home, not for the one in $PWD" \
      "rm -rf $dir, then start again: the build begins anew"
  elif ! mkdir -p "$dir" 2>/dev/null; then
    problem "$(id -un) cannot make the folder $dir in $PWD" "take a folder of your own for the project"
  elif [ -n "$(find "$dir" -maxdepth 1 ! -type l ! -writable; find "$dir" -type d ! -writable 2>/dev/null)" ]; then
    problem "$(id -un) cannot write into all of $dir: was it made with sudo or by root?" \
      "sudo chown -R $(id -un) $dir, then start again"
  fi
}

# configure DIR OPTION...: first configuration with Ninja; later ones keep the generator of DIR.
configure() {
  local dir=$1 generator=()
  shift
  check_folder "$dir" || return
  [ -f "$dir/CMakeCache.txt" ] || generator=(-G Ninja)
  cmake -S . -B "$dir" "${generator[@]}" "$@" >"$dir/configure.log" || { cat "$dir/configure.log"; return 1; }
}

# announce_build DIR TARGET...: how many steps the build has left, and about how long they take. Measured:
# 338 steps in 515 s on two cores, AMD's Zen 4, that had other work for a part of the time.
announce_build() {
  local dir=$1 steps jobs minutes
  shift
  jobs=$(build_jobs)
  steps=$(cmake --build "$dir" --target "$@" -- -n | grep -c '^\[') || return 0
  minutes=$(((steps * 29 / 10 / jobs + 59) / 60))
  echo "$steps steps, $jobs at a time: about $minutes min if the cores are AMD's Zen 4, longer on slower ones"
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
