#!/usr/bin/env bash
# Runs data_test.py on the source tree itself, which is where the runfile's link leads.
exec python3 -B tests/bench/corpus/data_test.py "$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")"
