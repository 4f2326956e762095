#!/usr/bin/env bash
# Runs one class of cli_test.py, from the folder of the run files, where bazel puts tool and examples.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/cli/cli_test.py "$@"
