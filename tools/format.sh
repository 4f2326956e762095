#!/usr/bin/env bash
# clang-format-19 over our C++ files.
#   tools/format.sh            rewrites them
#   tools/format.sh --check    names those that would change; exit status 1 if there are any
#   tools/format.sh FILE…      these alone
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")/..
cd "$root"
mode=(-i)
if [ "${1:-}" = --check ]; then
  mode=(--dry-run -Werror)
  shift
fi
if ! command -v clang-format-19 >/dev/null; then
  echo "clang-format-19 is not installed (apt-get install clang-format-19)" >&2
  exit 2
fi
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(git ls-files '*.h' '*.cc' '*.cuh' '*.c' | grep -v '^include/')
fi
clang-format-19 "${mode[@]}" --style=file "${files[@]}"
