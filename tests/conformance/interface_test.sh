#!/usr/bin/env bash
# Runs interface_test.py with python3.
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/conformance/interface_test.py
