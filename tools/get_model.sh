#!/usr/bin/env bash
# Brings the files of a model that Kuiper reads from the Hugging Face hub, or from the server that
# HF_ENDPOINT names, and checks them by size and hash. The size is printed before the download starts.
# Started again it goes on where it was interrupted, and replaces what is damaged. HF_TOKEN opens models
# that need a login. Python and the hub's client are installed where they are missing, the client into a
# folder of its own.
#
#   tools/get_model.sh ORGANISATION/MODEL [DIR]      DIR: MODEL unless given
#   tools/get_model.sh Qwen/Qwen3-0.6B
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/packages.sh
. "$tools/packages.sh"

case "${1:-}" in
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$tools/get_model.sh"; exit 0 ;;
esac
if [ $# -lt 1 ] || [ $# -gt 2 ] || [[ $1 != ?*/?* ]] || [[ $1 == -* ]]; then
  echo "usage: tools/get_model.sh ORGANISATION/MODEL [DIR]" >&2
  exit 2
fi
model=$1
dir=${2:-${model#*/}}
files=(config.json generation_config.json '*.safetensors' '*.safetensors.index.json' tokenizer.json
  tokenizer_config.json tokenizer.model '*.jinja' processor_config.json preprocessor_config.json
  video_preprocessor_config.json chat_template.json)
client=huggingface_hub==2.4.0
venv=${XDG_CACHE_HOME:-$HOME/.cache}/kuiper/hf

# Ends the script where the files cannot come by themselves.
by_hand() {
  echo "hint: or copy by hand into $dir those files of $model that have these names: ${files[*]}" >&2
  exit 1
}

has_client() {
  "$1" -c 'import huggingface_hub as h; assert int(h.__version__.split(".")[0]) >= 2' 2>/dev/null
}

install_client() {
  local log step="python3 cannot make the folder $venv"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need python3:python3 python3-venv >&2 || return
  echo "installing $client into $venv" >&2
  if log=$(python3 -m venv --clear "$venv" 2>&1); then
    step="pip cannot install $client (is there a network?)"
    log=$("$venv/bin/pip" install --quiet --retries 1 --timeout 15 "$client" 2>&1) && return
  fi
  case "$log" in
    *"No space left"*) problem "the disk is full: the hub's client takes 60 MB in $venv" \
      "make room, or XDG_CACHE_HOME=FOLDER takes a folder on another disk" ;;
    *) problem "$step: ${log##*$'\n'}" \
      "PIP_INDEX_URL=URL takes a mirror of the Python package index, XDG_CACHE_HOME=FOLDER another folder" ;;
  esac
}

# The Python of an installed hf, the one on the path, or one of our own.
hf=$(command -v hf || true)
python=$(dirname "$(realpath "${hf:-/}")")/python3
has_client "$python" || python=python3
has_client "$python" || python=$venv/bin/python
has_client "$python" || install_client || by_hand

code=0
"$python" "$tools/download_model.py" "$model" "$dir" "${files[@]}" || code=$?
[ "$code" != 3 ] || by_hand  # the hub cannot be reached
[ "$code" = 0 ] || exit "$code"
printf 'Run it: %q chat %q\n' "$(realpath -m --relative-to=. "$tools/../build/demo/kuiper")" "$dir"
