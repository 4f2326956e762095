#!/usr/bin/env bash
# Runs the test in a folder of its own copies: Python finds modules beside the file that it is given.
set -euo pipefail
cd tests/pytorch
exec python3 judging_test.py
