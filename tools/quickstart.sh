#!/usr/bin/env bash
# From a fresh clone to a running kernel: installs what is missing, builds, and runs one fused graph
# (conv + scale + bias + relu, as cudnn-frontend writes it) against the f64 oracle. Takes no arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/prepare.sh
source tools/prepare.sh

graph=examples/graphs/conv_scale_bias_relu.json
out=build/quickstart

install_packages "${build_packages[@]}"
find_nvrtc

say "building the CLI and the libraries (the first time takes some minutes)"
targets=$(bazel_query 'filter("lib(cudnn\.so\.[89]|kiln_cpu\.so)$", kind(cc_binary, //...))')
# shellcheck disable=SC2086 # one label a word
bazel build --noshow_progress //cli:kiln $targets

# Side by side as an installation has them: the CLI finds the CPU plug-in in ../lib.
mkdir -p "$out/bin" "$out/lib"
install -m 755 "$(bazel_bin //cli:kiln)" "$out/bin/kiln"
for target in $targets; do
  install -m 755 "$(bazel_bin "$target")" "$out/lib/"
done

say "kiln run $graph"
"$out/bin/kiln" run "$graph"

say "kiln dump $graph --what cuda --arch sm_90a"
"$out/bin/kiln" dump "$graph" --what cuda --arch sm_90a | tee "$out/conv_scale_bias_relu.cu"

case $nvrtc_source in
  environment) say "NVRTC is the one that KILN_NVRTC names: $KILN_NVRTC" ;;
  toolkit) say "NVRTC came from the CUDA toolkit: $KILN_NVRTC" ;;
  wheels) say "NVRTC came from the PyPI wheels: export KILN_NVRTC=$KILN_NVRTC" ;;
  none) say "no NVRTC: CUDA source is printed, and graphs run on the CPU" ;;
esac
say "kept: $(find "$out/bin" "$out/lib" -type f | sort | tr '\n' ' ')"
