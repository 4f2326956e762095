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

say "building the CLI and the libraries (some ten minutes on two cores, seconds once they are built)"
# A folder of an older checkout has no list of what was installed.
[ -f "$out/share/kiln/installed.txt" ] || rm -rf "$out"
tools/install.sh "$out"

cuda=$out/conv_scale_bias_relu.cu
say "the CUDA C++ that $graph becomes for sm_90a (kept in $cuda)"
"$out/bin/kiln" dump "$graph" --what cuda --arch sm_90a | tee "$cuda"
if [ "$nvrtc_source" != none ]; then
  if "$out/bin/kiln" dump "$graph" --what ptx --arch sm_90a >"${cuda%.cu}.ptx"; then
    say "NVRTC compiles it: $(wc -l <"${cuda%.cu}.ptx") lines of PTX in ${cuda%.cu}.ptx"
  else
    say "$KILN_NVRTC does not compile it for sm_90a; the reason stands above"
  fi
fi

say "the same graph, run here on random data"
"$out/bin/kiln" run "$graph"
cat <<EOF
        check: against an interpreter of the graph in double precision, every element within its tolerance
        kernel: one for the four operations; the path below it is its source in the kernel cache
EOF

case $nvrtc_source in
  environment) say "NVRTC is the one that KILN_NVRTC names: $KILN_NVRTC" ;;
  toolkit) say "NVRTC came from the CUDA toolkit: $KILN_NVRTC" ;;
  wheels) say "NVRTC came from the PyPI wheels; in other shells: export KILN_NVRTC=$KILN_NVRTC" ;;
  none) say "there is no NVRTC here: CUDA is printed but not compiled, and graphs run on the CPU" ;;
esac
say "the tool is $out/bin/kiln, headers and libraries are in $out/include and $out/lib (docs/install.md); try"
printf '        %-64s %s\n' \
  "$out/bin/kiln explain examples/graphs/softmax.kiln" "which kernels a graph becomes, and why" \
  "$out/bin/kiln doctor" "what was found on this machine" \
  "tools/test.sh" "every test that needs no GPU"
