#!/usr/bin/env bash
# Every test that needs no GPU: the same preparation as quickstart, `bazel test //...`, then a minute of
# each fuzzer ($FUZZ_SECONDS says otherwise). The last line is "N passed, N failed, N skipped" (CI reads it), where a
# test that skipped any of its cases counts as skipped alone, and the lines before it say which and why, and where the
# time went. The exit
# status is 0 if nothing failed and something passed. With REQUIRE_ALL_TESTS=1, for machines that are to have all
# that tests ask for (nvcc, CUDA's headers, NVRTC, NVIDIA's cuDNN 9.19, clang-format-19), a skipped test has failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=tools/prepare.sh
source tools/prepare.sh

log=$(mktemp)
skips=$(mktemp)
profile=$(mktemp)
trap 'rm -f "$log" "$skips" "$profile"' EXIT
bazel_seconds=0 fuzz_seconds=0
passed=0 failed=0 skipped=0 testlogs=

finish() {
  if [ -s "$skips" ]; then
    say "not checked here:"
    sed 's/^/   /' "$skips"
  fi
  if [ "${REQUIRE_ALL_TESTS:-}" = 1 ] && [ "$skipped" -gt 0 ]; then
    say "REQUIRE_ALL_TESTS is set: the $skipped skipped count as failed"
    failed=$((failed + skipped))
    skipped=0
  fi
  say "time: build and tests $bazel_seconds s, fuzzers $fuzz_seconds s; seconds of actions, added:"
  [ ! -s "$profile" ] || python3 tools/times.py "$profile" || say "times: the profile is not readable"
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# Prints what the logs of a test's runs and shards say was not checked, one reason a line; without a log nobody knows.
skips_of() {
  local folder=${1#//} logs
  [ -n "$testlogs" ] || return 0
  mapfile -t logs < <(find -L "$testlogs/${folder/://}" -name test.log 2>/dev/null | sort)
  if [ ${#logs[@]} -eq 0 ]; then
    echo "it has no log in $testlogs"
  else
    awk -f tools/skips.awk "${logs[@]}"
  fi
}

# Adds the results in the log to the counts: bazel's summary has one line a test target. What a passed test skipped
# stands in its own log; SKIPPED in the summary is a target whose libraries the machine lacks.
count() {
  local label verdict reasons
  while read -r label verdict; do
    case $verdict in
      *FAILED* | *TIMEOUT* | *"NO STATUS"* | *"REMOTE FAILURE"*) failed=$((failed + 1)) ;;
      *SKIPPED*)
        skipped=$((skipped + 1))
        printf '%s: the machine lacks a library that it needs\n' "$label" >>"$skips"
        ;;
      *PASSED*)
        reasons=$(skips_of "$label")
        if [ -z "$reasons" ]; then
          passed=$((passed + 1))
        else
          skipped=$((skipped + 1))
          sed "s|^|$label: |" <<<"$reasons" >>"$skips"
        fi
        ;;
    esac
  done < <(grep -E '^//\S+ ' "$log")
}

install_packages "${build_packages[@]}" "${test_packages[@]}" || { failed=1; finish; }
find_nvrtc

# tests/clients fetches cudnn-frontend from PyPI once; of the environment, tests see only what is named.
network=()
for variable in HTTPS_PROXY https_proxy NO_PROXY no_proxy PIP_CERT PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
  if [ -n "${!variable:-}" ]; then network+=("--test_env=$variable"); fi
done

say "bazel test //... (libraries, programs and every test without the tags gpu and manual)"
SECONDS=0
bazel_quietly test --profile="$profile" --keep_going --nobuild_tests_only --test_summary=short \
  --test_tag_filters=-gpu,-manual "${network[@]}" //... 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
bazel_seconds=$SECONDS
testlogs=$(bazel info bazel-testlogs 2>/dev/null)
if [ ! -d "$testlogs" ]; then
  say "bazel's folder of test logs is not to be found: it is unknown what was skipped"
  failed=1
fi
count
# A build error may stop bazel before it prints a line for any test.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi

SECONDS=0
tools/fuzz.sh 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
fuzz_seconds=$SECONDS
testlogs=
count
if [ "$status" -ne 0 ] && ! grep -qE '^//\S+ +FAILED' "$log"; then failed=$((failed + 1)); fi

finish
