#!/usr/bin/env bash
# Runs the tests of a bundle (tools/bundle.sh) on a GPU host: one line a test, then "N passed, N failed, N skipped". A
# test that skipped any of its cases counts as skipped alone; with REQUIRE_ALL_TESTS=1 it has failed.
#   run_gpu_tests.sh [-t SECONDS] [PATTERN]     PATTERN: an extended regular expression on the names
# Logs go to logs/ beside this script, or to $GPU_TEST_LOGS where the bundle cannot be written.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

seconds=600
if [ "${1:-}" = -t ]; then
  seconds=$2
  shift 2
fi
pattern=${1:-.}
logs=${GPU_TEST_LOGS:-$here/logs}
mkdir -p "$logs"

export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KILN_ABORT_ON_CHECK=1
# A cache of its own, so that the tests compile what this bundle generates.
KILN_CACHE_DIR=${KILN_CACHE_DIR:-$(mktemp -d)}
export KILN_CACHE_DIR
# Bazel's contract for tests, as far as ours use it: they run in the repository's root.
export TEST_SRCDIR=$here TEST_WORKSPACE=data TEST_TMPDIR=$KILN_CACHE_DIR/tmp
mkdir -p "$TEST_TMPDIR"
cd "$here/data" || exit 1

passed=0 failed=0 skipped=0
while IFS= read -r name; do
  [[ $name =~ $pattern ]] || continue
  start=$(date +%s.%N)
  timeout -k 10 "$seconds" "$here/bin/$name" >"$logs/$name.log" 2>&1
  status=$?
  took=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  skips=$(awk -f "$here/skips.awk" "$logs/$name.log")
  case $status in
    0) verdict=${skips:+SKIPPED} verdict=${verdict:-PASSED} ;;
    124 | 137) verdict="TIMEOUT after $seconds s" ;;
    *) verdict="FAILED with status $status" ;;
  esac
  printf '%-40s %s in %s s\n' "$name" "$verdict" "$took"
  if [ $status -eq 0 ] && [ -z "$skips" ]; then
    passed=$((passed + 1))
  elif [ $status -eq 0 ]; then
    skipped=$((skipped + 1))
    sed 's/^/   not checked: /' <<<"$skips"
  else
    failed=$((failed + 1))
    grep -E '^\[ +FAILED|Failure|error|check failed' "$logs/$name.log" | head -n 20
    tail -n 15 "$logs/$name.log"
  fi
done <"$here/tests.txt"

if [ "${REQUIRE_ALL_TESTS:-}" = 1 ] && [ "$skipped" -gt 0 ]; then
  printf 'REQUIRE_ALL_TESTS is set: the %d skipped count as failed\n' "$skipped"
  failed=$((failed + skipped)) skipped=0
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
