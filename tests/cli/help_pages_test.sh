#!/usr/bin/env bash
# The commands that README.md and docs/ name against the help of the tool of this build.
set -euo pipefail
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/tests/cli/help_pages_test.py" "$root" "$(readlink -f cli/kiln)"
