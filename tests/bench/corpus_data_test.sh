#!/usr/bin/env bash
# Runs corpus_data_test.py on the source tree itself, which is where the runfile's link leads.
exec python3 -B tests/bench/corpus_data_test.py "$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")"
