#!/bin/bash
# Each public header of both generations compiles alone and pedantically, as C99 and as C++, with CUDA's
# headers in reach (if the machine has any) and without.
set -eu
status=0
check() {  # compiler, language options, header, generation, further options
  if ! printf '#include <stddef.h>\n#include "%s"\nextern int kiln_unused_;\n' "$3" |
      $1 $2 -Wall -Wextra -pedantic -Werror -fsyntax-only -Iinclude/v$4 ${5:-} -; then
    echo "FAIL: $1 $2: v$4/$3 ${5:-}" >&2
    status=1
  fi
}
cuda=""
folder=${CUDA_HOME:-/usr/local/cuda}/include
if [ -f "$folder/cuda_runtime_api.h" ]; then
  cuda="-isystem $folder"
else
  echo "SKIPPED: no CUDA headers in $folder"
fi
count=0
for generation in 8 9; do
  for path in include/v$generation/*.h; do
    header=$(basename "$path")
    check gcc "-x c -std=c99" "$header" $generation
    check g++ "-x c++ -std=c++11" "$header" $generation
    [ -z "$cuda" ] || check gcc "-x c -std=c99" "$header" $generation "$cuda"
    count=$((count + 1))
  done
done
[ $count -ge 17 ] || { echo "FAIL: only $count headers found" >&2; status=1; }
exit $status
