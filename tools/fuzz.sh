#!/usr/bin/env bash
# Runs every target tagged "fuzz" (kiln_fuzzer) under libFuzzer with ASan and UBSan.
#   tools/fuzz.sh [SECONDS_EACH]        default $FUZZ_SECONDS or 60; prints "//label PASSED" or "FAILED" for each
# A target's seeds are the files of <package>/<name>_corpus/; a crash is left in build/fuzz/<name>/.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=tools/prepare.sh
source tools/prepare.sh

seconds=${1:-${FUZZ_SECONDS:-60}}
labels=$(bazel_query 'attr(tags, "\bfuzz\b", kind(cc_binary, //...))') || exit 1
if [ -z "$labels" ]; then
  say "fuzz: the query finds no target, though the tree has fuzzers"
  exit 1
fi
mapfile -t targets <<<"$labels"
say "fuzz: building ${#targets[@]} targets with clang-19, ASan and UBSan"
bazel_quietly build --config=fuzz "${targets[@]}" || exit 1
bin=$(bazel info --config=fuzz bazel-bin 2>/dev/null)

# Fuzzers that share a core run longer, so that each has its seconds of one.
cores=$(nproc)
if [ "${#targets[@]}" -gt "$cores" ]; then
  wall=$(((seconds * ${#targets[@]} + cores - 1) / cores))
else
  wall=$seconds
fi

fuzz_one() {
  local label=$1 path name work seeds
  path=${label#//}
  name=${path#*:}
  work=$PWD/build/fuzz/$name
  seeds=${path%%:*}/${name}_corpus
  mkdir -p "$work/corpus"
  local folders=("$work/corpus")
  [ -d "$seeds" ] && folders+=("$PWD/$seeds")
  if KILN_ABORT_ON_CHECK=1 KILN_LOG=off timeout $((wall + 120)) "$bin/${path/://}" \
    -max_total_time="$wall" -timeout=$((20 * wall / seconds)) -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$work/" "${folders[@]}" >"$work/log" 2>&1; then
    printf '%s PASSED (%s runs)\n' "$label" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")"
  else
    tail -n 60 "$work/log"
    printf '%s FAILED (log and input in %s)\n' "$label" "$work"
    return 1
  fi
}

# All at once, each one thread, for as long as it takes until each has had its seconds of a core.
pids=()
for label in "${targets[@]}"; do
  fuzz_one "$label" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
