#!/usr/bin/env bash
# Runs report_test.py with python3.
exec python3 tests/bench/report/report_test.py -v
