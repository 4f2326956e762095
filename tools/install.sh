#!/usr/bin/env bash
# Installs Kiln below a folder: headers, libraries with the links that `-lcudnn` finds, the tool, tuning records, and
# the files by which CMake and pkg-config find them (docs/install.md). The tree may be moved afterwards.
#   tools/install.sh PREFIX [--generation 9|8] [--no-cpu] [--built FOLDER]
#   tools/install.sh PREFIX --remove
#
#   --generation   whose headers and links are installed (9); the libraries of both always are
#   --no-cpu       without the CPU plug-in, which needs LLVM
#   --built        takes what Bazel has built from this folder, without building anything
#   --remove       removes what an installation brought
#
# PREFIX/share/kiln/installed.txt lists what was installed. A new installation removes what an older one brought and it
# does not, and overwrites nothing that is not in that list: NVIDIA's library keeps its files.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n 's/^#   \(tools.*\)/usage: \1/p' tools/install.sh >&2
  exit 2
}

fail() {
  printf 'install: %s\n' "$*" >&2
  exit 1
}

absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$caller" "$1" ;;
  esac
}

prefix='' generation=9 with_cpu=true built='' remove=false
while [ $# -gt 0 ]; do
  case $1 in
    --generation) generation=${2:-}; shift ;;
    --no-cpu) with_cpu=false ;;
    --built) built=$(absolute "${2:?--built needs a folder}"); shift ;;
    --remove) remove=true ;;
    -*) usage ;;
    *)
      [ -z "$prefix" ] || usage
      prefix=$(absolute "$1")
      ;;
  esac
  shift
done
[ -n "$prefix" ] || usage
[[ $generation =~ ^[89]$ ]] || fail "there is no generation '$generation'; 9 and 8 are there"

list=share/kiln/installed.txt

# Removes the files that are named on stdin, and the folders below PREFIX that this leaves empty.
remove_files() {
  local path folder
  while IFS= read -r path; do
    rm -f "$prefix/$path"
    folder=$(dirname "$path")
    while [ "$folder" != . ] && rmdir "$prefix/$folder" 2>/dev/null; do folder=$(dirname "$folder"); done
  done
}

if $remove; then
  [ -f "$prefix/$list" ] || fail "nothing to remove: there is no $prefix/$list"
  installed=$(<"$prefix/$list")
  remove_files <<<"$installed"$'\n'"$list"
  exit 0
fi

version=$(<VERSION)
# A number of cudnn_version.h.
cudnn_number() { awk -v name="CUDNN_$1" '$1 == "#define" && $2 == name { print $3 }' "include/v$generation/cudnn_version.h"; }
cudnn_version=$(cudnn_number MAJOR).$(cudnn_number MINOR).$(cudnn_number PATCHLEVEL)

# The libraries that stand beside libcudnn.so in cuDNN's packages: each has a version script.
parts_of() {
  local map
  for map in api/sublibraries/libcudnn_*.so."$1".map; do
    map=${map##*/libcudnn_}
    printf '%s\n' "${map%%.so.*}"
  done
}

libraries=(api/libcudnn.so.9 api/libcudnn.so.8 api/miopen/libkiln_miopen.so.1)
for other in 9 8; do
  for part in $(parts_of "$other"); do libraries+=("api/sublibraries/libcudnn_$part.so.$other"); done
done
if $with_cpu; then libraries+=(runtime/cpu/libkiln_cpu.so); fi

if [ -z "$built" ]; then
  # shellcheck source=tools/prepare.sh
  source tools/prepare.sh
  targets=(//cli:kiln)
  for library in "${libraries[@]}"; do targets+=("//${library%/*}:${library##*/}"); done
  bazel_quietly build "${targets[@]}"
  built=$(bazel info bazel-bin 2>/dev/null)
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,include/kiln,lib/pkgconfig,lib/cmake/Kiln,lib/cmake/CUDNN,share/kiln,share/doc/kiln}

add() { install -m "$1" "$2" "$stage/$3"; }

for library in "${libraries[@]}"; do
  [ -f "$built/$library" ] || fail "$built/$library is not there: it has not been built"
  add 644 "$built/$library" lib/
done
[ -f "$built/cli/kiln" ] || fail "$built/cli/kiln is not there: it has not been built"
add 755 "$built/cli/kiln" bin/kiln

# Links by which a linker finds them: -lcudnn, -lcudnn_ops.
ln -s "libcudnn.so.$generation" "$stage/lib/libcudnn.so"
mapfile -t parts < <(parts_of "$generation")
for part in "${parts[@]}"; do ln -s "libcudnn_$part.so.$generation" "$stage/lib/libcudnn_$part.so"; done

for header in include/v"$generation"/*.h; do add 644 "$header" include/; done
add 644 include/kiln/cudnn7.h include/kiln/
# MIOpen's calls are a client of cuDNN 9: with the headers of 8 a program would load both libraries.
if [ "$generation" = 9 ]; then
  add 644 include/kiln/miopen.h include/kiln/
  ln -s libkiln_miopen.so.1 "$stage/lib/libkiln_miopen.so"
fi

# Records and networks (docs/tuning.md); BUILD files are Bazel's.
(cd share/kiln && find . ! -type d ! -name BUILD -print0) | while IFS= read -r -d '' file; do
  mkdir -p "$stage/share/kiln/$(dirname "$file")"
  add 644 "share/kiln/$file" "share/kiln/$file"
done
add 644 LICENSE share/doc/kiln/
add 644 CHANGELOG.md share/doc/kiln/

# fill TEMPLATE FILE PACKAGE_VERSION: the template with the values of this installation.
cmake_parts=${parts[*]}
fill() {
  sed -e "s/@VERSION@/$version/g" -e "s/@CUDNN_VERSION@/$cudnn_version/g" -e "s/@GENERATION@/$generation/g" \
    -e "s/@PARTS@/$cmake_parts/g" -e "s/@PACKAGE_VERSION@/${3:-}/g" "tools/install/$1" >"$stage/lib/$2"
  chmod 644 "$stage/lib/$2"
}
fill KilnConfig.cmake cmake/Kiln/KilnConfig.cmake
fill version.cmake cmake/Kiln/KilnConfigVersion.cmake "$version"
fill cudnn-config.cmake cmake/CUDNN/cudnn-config.cmake
fill version.cmake cmake/CUDNN/cudnn-config-version.cmake "$cudnn_version"
fill cudnn.pc pkgconfig/cudnn.pc
fill kiln.pc pkgconfig/kiln.pc

files=$(cd "$stage" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort)
older=
if [ -f "$prefix/$list" ]; then older=$(<"$prefix/$list"); fi
foreign=()
while IFS= read -r file; do
  if [ -e "$prefix/$file" ] || [ -L "$prefix/$file" ]; then
    grep -qxF -- "$file" <<<"$older" || foreign+=("$file")
  fi
done <<<"$files"
if [ ${#foreign[@]} -gt 0 ]; then
  fail "$prefix/${foreign[0]} is there and no file of Kiln's (${#foreign[@]} such files): nothing was installed"
fi

printf '%s\n' "$files" >"$stage/$list"
chmod 644 "$stage/$list"
mkdir -p "$prefix"
# Running programs keep the libraries that they have mapped: each file is a new one.
cp -R --no-dereference --remove-destination "$stage/." "$prefix/"
if [ -n "$older" ]; then
  { LC_ALL=C comm -23 <(printf '%s\n' "$older" | LC_ALL=C sort) <(printf '%s\n' "$files"); } | remove_files
fi
printf 'install: Kiln %s with the headers of cuDNN %s in %s\n' "$version" "$cudnn_version" "$prefix"
