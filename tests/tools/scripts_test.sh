#!/usr/bin/env bash
# Runs scripts_test.py with python3.
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/tools/scripts_test.py
