#!/usr/bin/env bash
# Runs a check on the source tree itself, which is where the runfile's link leads.
#   run.sh CHECK…      checks of checks.py, or `selftest`, or `format`
set -euo pipefail
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
export PYTHONDONTWRITEBYTECODE=1
case $1 in
  selftest) exec python3 "$root/tests/style/checks_selftest.py" ;;
  format)
    if ! command -v clang-format-19 >/dev/null; then
      echo "SKIPPED: clang-format-19 is not installed"
      exit 0
    fi
    exec "$root/tools/format.sh" --check
    ;;
  *) exec python3 "$root/tests/style/checks.py" "$root" "$@" ;;
esac
