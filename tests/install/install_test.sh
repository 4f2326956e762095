#!/usr/bin/env bash
# tools/install.sh into folders of the test's: what is in the tree, and that C programs are built against it in each
# way that docs/install.md names, and run on the CPU with the library of that tree.
#   install_test.sh CASE
set -euo pipefail
# shellcheck source=tests/install/client.sh
source tests/install/client.sh

install() { tools/install.sh "$@" --built .; }

# grep reads all of its input: readelf must not find the pipe closed.
needs_library() { readelf -d "$1" | grep "NEEDED.*\[$2\]" >/dev/null; }

# Each library has the file that its SONAME names, and each of the generation has a link.
test_layout() {
  install "$out/kiln"
  cd "$out/kiln"
  for file in bin/kiln include/cudnn.h include/cudnn_graph.h include/kiln/miopen.h include/kiln/cudnn7.h \
    lib/libkiln_cpu.so lib/libkiln_miopen.so share/kiln/records/h100.txt share/doc/kiln/LICENSE; do
    [ -e "$file" ] || fail "$file is not there"
  done
  for library in lib/*.so.[0-9]*; do
    soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    expect "$soname" "${library#lib/}"
  done
  expect "$(readlink lib/libcudnn.so)" libcudnn.so.9
  for part in adv cnn ext graph heuristic ops engines_precompiled engines_runtime_compiled engines_tensor_ir; do
    expect "$(readlink "lib/libcudnn_$part.so")" "libcudnn_$part.so.9"
  done
  expect "$(find . ! -type d ! -name installed.txt | sed 's|^\./||' | LC_ALL=C sort)" "$(<share/kiln/installed.txt)"
  expect "$(bin/kiln --version | sed 's/, build.*//')" "kiln $version"
  expect "$(find . -xtype l)" ""
}

# The tree may be moved, and nothing in it names the place where it was installed.
test_compilers_line() {
  install "$out/first"
  mv "$out/first" "$out/moved"
  gcc -std=c11 -Wall -Wextra -Werror "$program" -I"$out/moved/include" -L"$out/moved/lib" -lcudnn -o "$out/c"
  run_client "$out/c" "$out/moved/lib"
  gcc -std=c11 "$program" -I"$out/moved/include" -L"$out/moved/lib" -Wl,--no-as-needed -lcudnn_graph -lcudnn_cnn \
    -lcudnn_ops -lcudnn -o "$out/parts"
  run_client "$out/parts" "$out/moved/lib"
  if grep -rlF "$out/first" "$out/moved"; then fail "files name the folder of the installation"; fi
}

test_pkg_config() {
  needs pkg-config
  install "$out/kiln"
  export PKG_CONFIG_PATH=$out/kiln/lib/pkgconfig
  expect "$(pkg-config --modversion kiln)" "$version"
  expect "$(pkg-config --modversion cudnn)" "$(cudnn_version 9)"
  for package in cudnn kiln; do
    # shellcheck disable=SC2046 # options are words
    gcc "$program" $(pkg-config --cflags --libs "$package") -o "$out/by_$package"
    run_client "$out/by_$package" "$out/kiln/lib"
  done
  [ -x "$(pkg-config --variable=kiln kiln)" ] || fail "kiln.pc does not know the tool"
}

# Targets of Kiln's own package, those that projects which look for cuDNN use, and a module that looks for files. CMake
# gives programs of a build tree the path of the library, so that they need no variable.
test_cmake() {
  needs cmake
  install "$out/kiln"
  project=$PWD/tests/install/project
  cmake -S "$project" -B "$out/build" -DCMAKE_PREFIX_PATH="$out/kiln" -DPROGRAM="$PWD/$program" \
    -DWANTED_VERSION="$(cudnn_version 9)" >"$out/log" 2>&1 || { cat "$out/log"; fail "cmake does not configure"; }
  cmake --build "$out/build" >"$out/log" 2>&1 || { cat "$out/log"; fail "cmake does not build"; }
  for name in by_kiln by_cudnn by_part by_module; do run_client "$out/build/$name" "" "$out/kiln/lib"; done
  if cmake -S "$project" -B "$out/newer" -DCMAKE_PREFIX_PATH="$out/kiln" -DPROGRAM="$PWD/$program" \
    -DWANTED_VERSION=10 >"$out/log" 2>&1; then
    fail "a tree of cuDNN 9 is taken for 10"
  fi
  grep -q "version: $(cudnn_version 9)" "$out/log" || { cat "$out/log"; fail "cmake does not say which version is there"; }
}

# Another generation takes the place of the first: its headers and links, and no others.
test_generation_8() {
  install "$out/kiln"
  install "$out/kiln" --generation 8
  [ -e "$out/kiln/include/cudnn_ops_infer.h" ] || fail "a header of cuDNN 8 is not there"
  [ ! -e "$out/kiln/include/cudnn_graph.h" ] || fail "a header of cuDNN 9 is left"
  [ ! -L "$out/kiln/lib/libcudnn_graph.so" ] || fail "a link of cuDNN 9 is left"
  [ -e "$out/kiln/lib/libcudnn.so.9" ] || fail "programs of cuDNN 9 have lost their library"
  gcc "tests/install/version.c" -I"$out/kiln/include" -L"$out/kiln/lib" -lcudnn -o "$out/c"
  expect "$(LD_LIBRARY_PATH=$out/kiln/lib "$out/c")" "$(cudnn_version 8 | awk -F. '{ print $1 * 1000 + $2 * 100 + $3 }')"
  needs_library "$out/c" libcudnn.so.8 || fail "the program is not linked with libcudnn.so.8"
}

test_no_cpu() {
  install "$out/kiln"
  install "$out/kiln" --no-cpu
  [ ! -e "$out/kiln/lib/libkiln_cpu.so" ] || fail "the CPU plug-in is there"
  "$out/kiln/bin/kiln" --version >/dev/null
}

# An installation overwrites no file of others, and leaves nothing when it is removed.
test_foreign_files() {
  mkdir -p "$out/usr/include" "$out/usr/lib"
  echo theirs >"$out/usr/include/cudnn.h"
  if message=$(install "$out/usr" 2>&1); then fail "a header of others was overwritten"; fi
  grep -q "include/cudnn.h is there and no file of Kiln's (1 such files)" <<<"$message" || fail "it says: $message"
  expect "$(find "$out/usr" -type f)" "$out/usr/include/cudnn.h"
  rm "$out/usr/include/cudnn.h"
  echo theirs >"$out/usr/lib/libother.so"
  install "$out/usr"
  tools/install.sh "$out/usr" --remove
  expect "$(find "$out/usr" ! -type d)" "$out/usr/lib/libother.so"
  [ ! -e "$out/usr/share" ] || fail "empty folders are left"
  if tools/install.sh "$out/usr" --remove 2>/dev/null; then fail "what is not there was removed"; fi
}

test_usage() {
  for arguments in "" "a b" "a --generation 7" "a --wrong"; do
    # shellcheck disable=SC2086 # arguments are words
    if install $arguments >/dev/null 2>&1; then fail "'$arguments' was taken"; fi
  done
  if message=$(tools/install.sh "$out/kiln" --built "$out" 2>&1); then fail "an empty folder was taken for built"; fi
  grep -q "has not been built" <<<"$message" || fail "it says: $message"
  [ ! -e "$out/kiln" ] || fail "half a tree is left"
}

# The compilers' lines of the pages are true: each builds, in a folder that has an installation where tools/quickstart.sh
# leaves it. A small program stands in for the reader's, and for examples, which take long to compile and are built by
# //examples:plain_build_test.
test_documented() {
  needs pkg-config
  local pages=(README.md docs/install.md docs/clients.md docs/porting.md examples/README.md examples/deploy/README.md)
  install "$out/work/build/quickstart"
  cp "$program" "$out/work/program.c"
  cp tests/install/miopen_program.cc "$out/work/program.cc"
  cp tests/install/version.c "$out/work/example.cc"
  for page in "${pages[@]}"; do
    # Lines of programs' text, and between backticks.
    # shellcheck disable=SC2016 # the backticks are Markdown's
    lines=$(sed -n 's/^\(.*`\)\{0,1\}\(g[c+][c+] [^`#]*-[lL-][^`#]*\).*/\2/p' "$page")
    [ -n "$lines" ] || fail "$page has no compiler's line"
    while IFS= read -r line; do
      example=$(grep -o 'examples/[^ ]*' <<<"$line" || true)
      [ -z "$example" ] || [ -f "$example" ] || fail "$page: there is no $example"
      line=${line//PREFIX/"$out/work/build/quickstart"}
      [ -z "$example" ] || line=${line//"$example"/example.cc}
      (cd "$out/work" && bash -c "$line -o built") || fail "$page: $line"
      needs_library "$out/work/built" 'lib\(cudnn.so.9\|kiln_miopen.so.1\)' || fail "$page: not linked with Kiln: $line"
      [[ $line != *program.c\ * ]] || run_client "$out/work/built" "$out/work/build/quickstart/lib"
    done <<<"$lines"
  done
}

"test_$1"
