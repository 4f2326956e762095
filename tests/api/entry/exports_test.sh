#!/bin/bash
# A libcudnn exports exactly the functions of its version script, each with its version node, under its SONAME.
# Arguments: the library, the script, the generation.
set -eu
library=$1 script=$2 node=libcudnn.so.$3
fail() { echo "FAIL: $*" >&2; exit 1; }

soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = "$node" ] || fail "SONAME is '$soname', not $node"

wanted=$(sed -n "s/^ *\\(cudnn[A-Za-z0-9_]*\\);\$/\\1@@$node/p" "$script" | sort)
# Lower-case letters are local symbols, but for u and i, which are global; A is the version node.
exported=$(nm -D --defined-only "$library" | awk '$2 !~ /[Abdrt]/ {print $3}' | sort)
[ -n "$wanted" ] || fail "$script names no function"
[ "$exported" = "$wanted" ] || fail "exports differ: $(diff <(echo "$wanted") <(echo "$exported"))"

# No CUDA library is linked: driver and NVRTC are found at run time, the CPU target is a plug-in.
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for name in libcuda libcudart libnvrtc libcublas libLLVM; do
  [[ $needed != *$name* ]] || fail "$library needs $name"
done

# A thread-local object at an offset that is known when the library is loaded: its relocation names the object, or
# adds its offset. (gold writes neither where the object is local to a file, which then shares the library's first bytes.)
offsets=$(readelf -rW "$library" | awk '$3 ~ /TPOFF64$/ && $0 ~ /<null>/')
[ -z "$offsets" ] || fail "thread-local objects without a place, which must not be local to a file: $offsets"
echo "$node exports $(wc -l <<< "$exported") functions"
