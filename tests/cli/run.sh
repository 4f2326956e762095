#!/usr/bin/env bash
# Runs one class of cli_test.py (or of CLI_TEST), from the folder of the run files, where bazel puts tool and examples.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec python3 "tests/cli/${CLI_TEST:-cli_test.py}" "$@"
