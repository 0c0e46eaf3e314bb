#!/usr/bin/env bash
# Brings the files of a model that Kuiper reads from the Hugging Face hub, or from the server that
# HF_ENDPOINT names, and checks them by size and hash. Started again it goes on where it was
# interrupted, and replaces what is damaged. HF_TOKEN opens models that need a login.
#
#   tools/get_model.sh Qwen/Qwen3-0.6B [DIR]      DIR: Qwen3-0.6B unless given
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ] || [[ $1 != ?*/?* ]] || [[ $1 == -* ]]; then
  echo "usage: tools/get_model.sh ORGANISATION/MODEL [DIR]" >&2
  exit 2
fi
model=$1
dir=${2:-${model#*/}}
check=$(dirname "$0")/check_download.py
if ! command -v python3 >/dev/null; then
  echo "error: python3 is missing: install python3 and python3-venv" >&2
  exit 1
fi

# The hub's own client, in a folder of its own where it is not installed.
hf=$(command -v hf || true)
if [ -z "$hf" ]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/kuiper/hf
  hf=$venv/bin/hf
  if [ ! -x "$hf" ]; then
    echo "installing huggingface_hub into $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet huggingface_hub
  fi
fi

# A damaged file is dropped by the first check and brought again.
for attempt in 1 2; do
  HF_HUB_DISABLE_TELEMETRY=1 "$hf" download "$model" --local-dir "$dir" \
    --include '*.safetensors' --include '*.safetensors.index.json' --include config.json \
    --include generation_config.json --include tokenizer.json --include tokenizer_config.json \
    --include tokenizer.model --include '*.jinja' --include preprocessor_config.json >/dev/null
  if python3 "$check" "$dir"; then
    printf 'Run it: build/demo/kuiper chat %q\n' "$dir"
    exit 0
  fi
  [ "$attempt" = 1 ] && echo "bringing the damaged files again" >&2
done
exit 1
