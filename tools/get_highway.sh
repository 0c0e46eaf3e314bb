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

case "${1:-}" in
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' tools/get_highway.sh; exit 0 ;;
esac
if [ $# -gt 1 ]; then
  problem "there is more than one argument" "tools/get_highway.sh --help shows the usage" || exit 2
fi

check_folder build
scratch=$(mktemp -d build/highway.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
if [ $# -eq 1 ]; then
  file=$1
  [[ $file == /* ]] || file=$cd_from/$file
  [ -f "$file" ] || problem "there is no file $1" "download $url and give its path"
else
  need curl:curl ca-certificates
  echo "downloading Highway $version (2.2 MB)"
  file=$scratch/highway.tar.gz
  curl -fsSL --retry 2 --connect-timeout 20 -o "$file" "$url" ||
    problem "cannot download $url" "download it on another machine, then run: tools/get_highway.sh FILE"
fi

digest=$(sha256sum "$file" | cut -d' ' -f1)
[[ " ${sha256[*]} " == *" $digest "* ]] ||
  problem "${1:-$url} is not Highway $version: its SHA-256 is $digest, not ${sha256[0]}" \
    "download $url on another machine, then run: tools/get_highway.sh FILE"
mkdir "$scratch/files"
tar xzf "$file" -C "$scratch/files" --strip-components=1
rm -rf "$target"
mv "$scratch/files" "$target"
echo "Highway $version: $target"
