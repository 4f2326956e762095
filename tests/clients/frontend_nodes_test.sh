#!/usr/bin/env bash
# frontend_nodes.cc, compiled with the C++ headers of cudnn-frontend from PyPI, on our libcudnn.so.9 and the CPU
# device. Where there is no CUDA toolkit, whose headers the frontend includes, it says so and is done.
#   frontend_nodes_test.sh LIBCUDNN CPU_PLUGIN CUDART_12 CUDART_13
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..
libcudnn=$root/$1 plugin=$root/$2 cudart_12=$root/$3 cudart_13=$root/$4 include=$root/include/v9
cuda=${CUDA_HOME:-/usr/local/cuda}/include
if [ ! -e "$cuda/cuda_runtime.h" ]; then
  echo "SKIPPED: no CUDA headers in $cuda"
  exit 0
fi
# shellcheck source=tests/clients/venv.sh
source venv.sh
make_venv
choose_cudart "$cudart_12" "$cudart_13"

work=${TEST_TMPDIR:-$(mktemp -d)}
mkdir -p "$work/lib"
cp "$libcudnn" "$cudart" "$work/lib"
headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/include
"${CXX:-g++}" -std=c++20 -O0 -w -I"$headers" -I"$include" -isystem "$cuda" frontend_nodes.cc -o "$work/frontend_nodes" \
  "$work/lib/libcudnn.so.9" "$work/lib/$(basename "$cudart")"
export KILN_DEVICE=cpu KILN_CPU_PLUGIN=$plugin KILN_CACHE_DIR=$work/kiln LD_LIBRARY_PATH=$work/lib
exec "$work/frontend_nodes"
