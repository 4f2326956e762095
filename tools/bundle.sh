#!/usr/bin/env bash
# Collects what a GPU host without a toolchain needs to run our GPU tests and benchmarks: the driver and
# NVRTC are all it must have.
#   tools/bundle.sh [FOLDER]           default dist/bundle; replaced if it exists
#
#   FOLDER/bin/          kiln, and every test and benchmark tagged "gpu"
#   FOLDER/lib/          libcudnn.so.9, libcudnn.so.8, libkiln_cpu.so where it was built, and other shared
#                        libraries that the host may lack
#   FOLDER/data/         the files that they read, under their paths in the repository
#   FOLDER/share/        tuning records
#   FOLDER/run_gpu_tests.sh, skips.awk
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/prepare.sh
source tools/prepare.sh

max_megabytes=100
out=${1:-dist/bundle}
case $out in
  /*) ;;
  *) out=$PWD/$out ;;
esac

labels=$(bazel_query 'attr(tags, "\bgpu\b", kind(cc_test, //...))')
mapfile -t tests <<<"$labels"
labels=$(bazel_query 'attr(tags, "\bgpu\b", kind(cc_binary, //...))')
mapfile -t benches <<<"$labels"
labels=$(bazel_query 'filter("lib(cudnn\.so\.[89]|kiln_cpu\.so|kiln_miopen\.so\.1)$", kind(cc_binary, //...))')
mapfile -t libraries <<<"$labels"
programs=("${tests[@]}" "${benches[@]}" //cli:kiln)

say "building ${#programs[@]} programs and ${#libraries[@]} libraries"
bazel build --noshow_progress "${programs[@]}" "${libraries[@]}"
bin_root=$(bazel info bazel-bin 2>/dev/null)

output_of() {
  local path=${1#//}
  printf '%s/%s\n' "$bin_root" "${path/://}"
}

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/data"

# add FILE FOLDER: a stripped copy. Two targets of one name would hide each other.
add() {
  local name
  name=$(basename "$1")
  if [ -e "$2/$name" ]; then
    say "bundle: two targets are named $name"
    exit 1
  fi
  install -m 755 "$1" "$2/$name"
  strip --strip-unneeded "$2/$name"
}

for target in "${libraries[@]}"; do add "$(output_of "$target")" "$out/lib"; done
for target in "${programs[@]}"; do add "$(output_of "$target")" "$out/bin"; done

# Files that a program reads stand in its runfiles; libraries among them become links to lib/.
copy_data() {
  local runfiles=$1.runfiles/kiln file path
  [ -d "$runfiles" ] || return 0
  while IFS= read -r -d '' file; do
    path=${file#"$runfiles"/}
    [ "$runfiles/$path" = "$1.runfiles/kiln/${1#"$bin_root"/}" ] && continue
    [ -e "$out/data/$path" ] && continue
    mkdir -p "$out/data/$(dirname "$path")"
    if [ -e "$out/lib/$(basename "$path")" ]; then
      ln -s "$(realpath -m --relative-to="$out/data/$(dirname "$path")" "$out/lib/$(basename "$path")")" \
        "$out/data/$path"
    elif [ -e "$out/bin/$(basename "$path")" ]; then
      ln -s "$(realpath -m --relative-to="$out/data/$(dirname "$path")" "$out/bin/$(basename "$path")")" \
        "$out/data/$path"
    else
      cp -L "$file" "$out/data/$path"
    fi
  done < <(find -L "$runfiles" -type f -print0)
}
for target in "${programs[@]}"; do copy_data "$(output_of "$target")"; done

# Shared libraries of this machine that the host may lack. glibc, libstdc++, the driver and NVRTC are the
# host's; LLVM is too large, and only the CPU plug-in needs it.
host_has='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util)\.so.*|libstdc\+\+\.so.*|libgcc_s\.so.*|lib(cuda|nvrtc|nvidia).*|libLLVM.*|libcudnn.*|libkiln_.*)$'
find "$out/bin" "$out/lib" -type f -not -name 'libkiln_cpu.so' -print0 |
  xargs -0 -n 1 ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while IFS= read -r library; do
    name=$(basename "$library")
    if ! [[ $name =~ $host_has ]] && [ ! -e "$out/lib/$name" ]; then
      install -m 644 "$library" "$out/lib/$name"
    fi
  done

for target in "${tests[@]}"; do printf '%s\n' "${target##*:}"; done >"$out/tests.txt"
install -m 755 tools/run_gpu_tests.sh "$out/run_gpu_tests.sh"
install -m 644 tools/skips.awk "$out/skips.awk"
# Records are found from the library's folder.
cp -R share "$out/"
cp LICENSE "$out/"
git rev-parse HEAD >"$out/revision.txt" 2>/dev/null || true

megabytes=$(($(du -sk "$out" | cut -f1) / 1024))
say "bundle: $out, $megabytes MB, ${#tests[@]} tests, ${#benches[@]} benchmarks"
if [ "$megabytes" -ge "$max_megabytes" ]; then
  say "bundle: over its limit of $max_megabytes MB:"
  du -ak "$out" | sort -rn | head -n 12
  exit 1
fi
