#!/usr/bin/env bash
# The compiler's lines of README.md, without Bazel's: programs build from the public headers and libcudnn.so alone, and
# one of them runs. The C headers are C.
set -euo pipefail
out=${TEST_TMPDIR:-$(mktemp -d)}
for program in lenet resnet18 convolutions tagger translate verify_installation deploy/conv_bias_relu; do
  "${CXX:-g++}" -std=c++20 -Wall -Wextra -Werror -Iinclude/v9 "examples/$program.cc" -Lapi -l:libcudnn.so.9 -ldl \
    -o "$out/$(basename "$program")"
done
"${CC:-gcc}" -std=c11 -Wall -Wextra -Werror -Iinclude/v9 examples/scale_bias_relu.c -Lapi -l:libcudnn.so.9 -o "$out/c"
for generation in v8 v9; do
  echo '#include <kiln/miopen.h>' |
    "${CC:-gcc}" -x c -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -Iinclude/$generation -fsyntax-only -
done
LD_LIBRARY_PATH=api KILN_DEVICE=cpu "$out/conv_bias_relu"
