#!/bin/bash
# The committed headers, version scripts and tables are those that tools/gen_api.py writes. It runs on a copy, so
# that a change to a table of the specification is seen to be noticed.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp -rL tools api include "$tree"
cd "$tree"
chmod -R u+w .
python3 tools/gen_api.py --check || fail "generated files are stale"
sed -i 's/^cudnnMathType_t\tCUDNN_FMA_MATH\t3\t3$/cudnnMathType_t\tCUDNN_FMA_MATH\t3\t4/' api/spec/enums.tsv
if python3 tools/gen_api.py --check 2> message; then fail "a changed specification went unnoticed"; fi
grep -q include/v9/cudnn_graph.h message || fail "the stale header is not named: $(cat message)"
