#!/usr/bin/env bash
# Brings the sources of Highway, which the CPU kernels are written with, to build/highway-VERSION, where
# CMake prefers them to the system's. For systems whose package is older or newer than the versions that
# Kuiper was tested with (cmake/highway.cmake).
#
#   tools/get_highway.sh            downloads the release
#   tools/get_highway.sh FILE       takes a file that was downloaded on another machine
set -euo pipefail
cd_from=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

version=$KUIPER_HIGHWAY_VERSION
url=https://github.com/google/highway/releases/download/$version/highway-$version.tar.gz
# The release's own file, and the same sources as Debian packs them (highway_VERSION.orig.tar.gz).
sha256=(58e9d5d41d6573ad15245ad76aec53a69499ca7480c092d899c4424812ed906f
  7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
target=build/highway-$version

fail() {
  printf 'error: %s\n' "$@" >&2
  exit 1
}

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
[ $# -le 1 ] || fail "one file at most: tools/get_highway.sh [FILE]"

mkdir -p build
scratch=$(mktemp -d build/highway.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
if [ $# -eq 1 ]; then
  file=$1
  [[ $file == /* ]] || file=$cd_from/$file
  [ -f "$file" ] || fail "$1 is no file"
else
  need curl:curl ca-certificates
  echo "downloading Highway $version (2.2 MB)"
  file=$scratch/highway.tar.gz
  curl -fsSL --retry 2 --connect-timeout 20 -o "$file" "$url" ||
    fail "cannot download $url; download it on another machine, then run: tools/get_highway.sh FILE"
fi

digest=$(sha256sum "$file" | cut -d' ' -f1)
[[ " ${sha256[*]} " == *" $digest "* ]] ||
  fail "${1:-$url} is not Highway $version: its SHA-256 is $digest, and ${sha256[0]} was expected"
mkdir "$scratch/files"
tar xzf "$file" -C "$scratch/files" --strip-components=1
rm -rf "$target"
mv "$scratch/files" "$target"
echo "Highway $version: $target"
