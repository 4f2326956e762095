#!/usr/bin/env bash
# The generated parts of README.md, docs/tour.md and docs/scope.md against the tool of this build.
set -euo pipefail
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/tools/gen_readme.py" --check --kiln "$(readlink -f cli/kiln)"
