#!/usr/bin/env bash
# docs/engines.md against the heads of the engines' files and the registry of this build.
set -euo pipefail
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/tools/gen_engines.py" --check "$(readlink -f tools/engines)"
