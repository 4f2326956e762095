#!/bin/bash
# Each public header of both generations compiles alone and pedantically, as C and as C++ of each standard, with CUDA's
# headers in reach (if the machine has any) and without.
set -eu
status=0
check() {  # compiler, language, standard, header, generation, further options
  if ! printf '#include "%s"\nextern int kiln_unused_;\n' "$4" |
      "$1" -x "$2" "-std=$3" -Wall -Wextra -Werror -pedantic-errors -fsyntax-only "-Iinclude/v$5" "${@:6}" -; then
    echo "FAIL: $1 -std=$3: v$5/$4 ${*:6}" >&2
    status=1
  fi
}
cuda=()
folder=${CUDA_HOME:-/usr/local/cuda}/include
if [ -f "$folder/cuda_runtime_api.h" ]; then
  cuda=(-isystem "$folder")
else
  echo "SKIPPED: no CUDA headers in $folder"
fi
count=0
for generation in 8 9; do
  for path in include/v$generation/*.h; do
    header=$(basename "$path")
    for standard in c99 c11; do check gcc c $standard "$header" $generation; done
    for standard in c++11 c++17 c++20; do check g++ c++ $standard "$header" $generation; done
    if [ ${#cuda[@]} -gt 0 ]; then
      check gcc c c99 "$header" $generation "${cuda[@]}"
      # CUDA's headers for C++ take most of a second, and every other header of ours stands in this one.
      [ "$header" != cudnn.h ] || for standard in c++11 c++17 c++20; do
        check g++ c++ $standard "$header" $generation "${cuda[@]}"
      done
    fi
    count=$((count + 1))
  done
done
[ $count -ge 17 ] || { echo "FAIL: only $count headers found" >&2; status=1; }
exit $status
