#!/bin/bash
# Every function of cuDNN that PyTorch, CuPy, JAX, TensorFlow and Transformer Engine ask for is exported, under the version
# node that they ask for; and a program that calls them all starts with LD_BIND_NOW=1, which resolves each at once.
# Arguments: libcudnn.so.8, libcudnn.so.9, the interface's functions.tsv, the lists of names.
#
# A name with a node (NAME@NODE) is an undefined symbol of a client's binary: it has to be there. Other lists are of clients
# that look functions up, and hold names of C++ and of older releases too: of those, what the interface of 9 has is asked
# of libcudnn.so.9, and what 8.9.1 alone has, of libcudnn.so.8. CuPy 13's is of .so.8.
set -eu
library8=$1 library9=$2 functions=$3
shift 3
fail() { echo "FAIL: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

exported() { nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@@/@/' | sort; }
exported "$library8" > "$work/exported8"
exported "$library9" > "$work/exported9"
column() { awk -F '\t' -v name="$1" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) c = i; next} $c == "y" {print $1}' "$functions" | sort; }
column in_8.9.1 > "$work/interface8"
column in_9.28.1 > "$work/interface9"

for list in "$@"; do
  grep '@' "$list" | sort -u > "$work/nodes" || true
  grep -v '@' "$list" | sort -u > "$work/names" || true
  if [[ $list == *so.8.txt ]]; then
    comm -12 "$work/names" "$work/interface8" > "$work/of8"
    : > "$work/of9"
  else
    comm -12 "$work/names" "$work/interface9" > "$work/of9"
    comm -12 <(comm -23 "$work/names" "$work/of9") "$work/interface8" > "$work/of8"
  fi
  { cat "$work/nodes"; sed 's/$/@libcudnn.so.8/' "$work/of8"; sed 's/$/@libcudnn.so.9/' "$work/of9"; } | sort > "$work/wanted"
  # Fewer would mean that the list was not read.
  case $(basename "$list") in
    torch*) least=83 ;;
    cupy*) least=136 ;;
    jax*) least=250 ;;
    tf*) least=10 ;;
    te*) least=4 ;;
    *) fail "$list is of no client that is known here" ;;
  esac
  [ "$(wc -l < "$work/wanted")" -ge $least ] || fail "$list has $(wc -l < "$work/wanted") functions of cuDNN, not $least"
  missing=$(comm -23 "$work/wanted" <(sort "$work/exported8" "$work/exported9"))
  [ -z "$missing" ] || fail "$(basename "$list") asks for functions that are not exported: $missing"
  cat "$work/wanted" >> "$work/all"
  echo "$(basename "$list"): $(wc -l < "$work/wanted") functions"
done

for generation in 8 9; do
  library=library$generation
  grep "@libcudnn.so.$generation\$" "$work/all" | sed 's/@.*//' | sort -u > "$work/calls"
  {
    sed 's/.*/void &(void);/' "$work/calls"
    echo 'int main(int count, char** arguments) { (void)arguments; if (count < 9) return 0;'
    sed 's/.*/&();/' "$work/calls"
    echo 'return 1; }'
  } > "$work/program.c"
  cc -o "$work/program" "$work/program.c" "${!library}" -Wl,--allow-shlib-undefined,-z,lazy
  bound=$(nm -D --undefined-only "$work/program" | grep -c "@libcudnn.so.$generation\$") || true
  [ "$bound" = "$(wc -l < "$work/calls")" ] || fail "$bound functions of $(wc -l < "$work/calls") have their node"
  LD_BIND_NOW=1 LD_LIBRARY_PATH=$(dirname "$(realpath "${!library}")") "$work/program" || fail "libcudnn.so.$generation: the program does not start"
  echo "libcudnn.so.$generation: a program with $bound functions starts"
done
