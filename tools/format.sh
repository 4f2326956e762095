#!/usr/bin/env bash
# clang-format-19 over our C++ files.
#   tools/format.sh            rewrites them
#   tools/format.sh --check    names those that would change; exit status 1 if there are any
#   tools/format.sh FILE…      these alone
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")/..
cd "$root"
check=false
if [ "${1:-}" = --check ]; then
  check=true
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
if ! $check; then
  exec clang-format-19 -i --style=file "${files[@]}"
fi
unformatted=$(clang-format-19 --dry-run --style=file "${files[@]}" 2>&1 |
  sed -n 's/^\([^ :]*\):[0-9].*-Wclang-format-violations.*/\1/p' | sort -u)
if [ -n "$unformatted" ]; then
  printf 'tools/format.sh would change:\n%s\n' "$unformatted"
  exit 1
fi
