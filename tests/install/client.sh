# shellcheck shell=bash disable=SC2034
# Sourced by the tests of installations: programs of clients, and what a test says when it fails.
#   out               a folder of this test's
#   program           a C program of a client, which checks its results
#   version           the version of this tree
#   cudnn_version N   that of the public headers of cuDNN N, as 9.28.1
#   needs PROGRAM     ends the test as skipped where the machine lacks the program
#   fail WORDS        ends the test as failed
#   expect GOT WANTED
#   run_client PROGRAM LD_LIBRARY_PATH [FOLDER]   runs it on the CPU; it has to take libcudnn from FOLDER

out=$(mktemp -d -p "${TEST_TMPDIR:-/tmp}")
program=examples/scale_bias_relu.c
version=$(<VERSION)
export KILN_CACHE_DIR=$out/cache

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

expect() { [ "$1" = "$2" ] || fail "got '$1', want '$2'"; }

needs() {
  command -v "$1" >/dev/null && return 0
  echo "SKIPPED: $1 is not installed"
  exit 0
}

cudnn_version() {
  awk '$1 == "#define" && $2 ~ /^CUDNN_(MAJOR|MINOR|PATCHLEVEL)$/ { number[$2] = $3 }
       END { print number["CUDNN_MAJOR"] "." number["CUDNN_MINOR"] "." number["CUDNN_PATCHLEVEL"] }' \
    "include/v$1/cudnn_version.h"
}

run_client() {
  local log=$out/client.log folder
  folder=$(readlink -f "${3:-$2}")
  LD_LIBRARY_PATH=$2 KILN_DEVICE=cpu KILN_LOG=info "$1" >"$log" 2>&1 || { cat "$log"; fail "$1 fails"; }
  grep -q '^0 of [0-9]* elements are wrong$' "$log" || { cat "$log"; fail "$1 does not say that it is right"; }
  grep -qF "$folder/libcudnn.so." "$log" || { cat "$log"; fail "$1 has not loaded a library of $folder"; }
}
