#!/usr/bin/env bash
# From a program that was never tuned to one that runs on records: capture, tune, merge, export, deploy. README.md
# explains the steps; this runs them and checks that the program takes what was found.
#   walk.sh [PROGRAM [KILN]]
# KILN_DEVICE chooses the device, $WALK_DIR the folder for files (else a new one), $WALK_BUDGET the seconds for each of
# the two parts that are tuned (else 60).
set -euo pipefail
program=$(realpath "${1:-./conv_bias_relu}")
kiln=$(realpath "${2:-build/quickstart/bin/kiln}")
work=${WALK_DIR:-$(mktemp -d)}
mkdir -p "$work"
say() { printf '\n== %s\n' "$*"; }
# Nothing that this user measured before is to count.
export KILN_RECORDS_DIR=$work/none KILN_CACHE_DIR=$work/cache
mkdir -p "$work/none"

say "the program, once, with what it computes captured"
KILN_TUNE=off KILN_CAPTURE=$work/captured "$program"
ls "$work/captured"

say "tuned in two parts, as two machines with the same GPU would"
for part in 1 2; do
  KILN_RECORDS_DIR=$work/machine$part "$kiln" tune "$work/captured" --shard $part/2 --budget "${WALK_BUDGET:-60}" --jobs 2
done

say "their records in one file, and the fastest of each problem to ship"
"$kiln" records merge "$work/all.txt" "$work/machine1" "$work/machine2"
"$kiln" records export "$work/ship.txt" "$work/all.txt"
"$kiln" records verify "$work/ship.txt"
"$kiln" records list "$work/ship.txt"

say "deployed: what it takes, and how fast that is"
KILN_TUNE=records KILN_RECORDS=$work/ship.txt KILN_WHY=1 "$program" 2>"$work/why.txt"
taken=$(sed -n 's/^kiln: .*: group [0-9]*: takes \([a-z0-9_]*\) \([^ ]*\), modelled.*/\1 \2/p' "$work/why.txt" | sort -u)
shipped=$(sed -n 's/.*\tengine=\([a-z0-9_]*\)[^\t]*\tknobs=\([^\t]*\)\t.*/\1 \2/p' "$work/ship.txt" | sort -u)
printf '%s\n' "$taken"
# The heuristics look at some others, too.
missing=$(comm -13 <(printf '%s\n' "$taken") <(printf '%s\n' "$shipped"))
if [ -z "$shipped" ] || [ -n "$missing" ]; then
  printf 'of the records these were not taken: %s\n' "${missing:-there are none}"
  exit 1
fi
say "the records are among it; the files are in $work"
