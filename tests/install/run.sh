#!/usr/bin/env bash
# Runs a test that is written in Python, from the folder of the run files.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec python3 "tests/install/$1"
