#!/usr/bin/env bash
# Every test that needs no GPU: the same preparation as quickstart, `bazel test //...`, then a minute of
# each fuzzer ($FUZZ_SECONDS says otherwise). The last line is "N passed, N failed" (CI reads it); the exit
# status says the same.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=tools/prepare.sh
source tools/prepare.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# Adds the results in the log to the counts: bazel's summary has one line a test target.
count() {
  passed=$((passed + $(grep -cE '^//\S+ .*\bPASSED\b' "$log")))
  failed=$((failed + $(grep -cE '^//\S+ .*\b(FAILED|TIMEOUT|NO STATUS|REMOTE FAILURE)\b' "$log")))
}

install_packages "${build_packages[@]}" "${test_packages[@]}" || { failed=1; finish; }
find_nvrtc

# tests/clients fetches cudnn-frontend from PyPI once; of the environment, tests see only what is named.
network=()
for variable in HTTPS_PROXY https_proxy NO_PROXY no_proxy PIP_CERT PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
  if [ -n "${!variable:-}" ]; then network+=("--test_env=$variable"); fi
done

say "bazel test //... (libraries, programs and every test without the tags gpu and manual)"
bazel_quietly test --keep_going --nobuild_tests_only --test_summary=short \
  --test_tag_filters=-gpu,-manual "${network[@]}" //... 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
count
# A build error may stop bazel before it prints a line for any test.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi

tools/fuzz.sh 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
count
if [ "$status" -ne 0 ] && ! grep -qE '^//\S+ +FAILED' "$log"; then failed=$((failed + 1)); fi

finish
