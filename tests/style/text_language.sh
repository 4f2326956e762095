#!/usr/bin/env bash
# docs/text_language.md against the program that prints it, of this build.
set -euo pipefail
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/tools/gen_text_language.py" --check "$(readlink -f tools/text_language)"
