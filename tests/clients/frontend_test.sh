#!/usr/bin/env bash
# cudnn-frontend from PyPI on our libcudnn.so.9 and the CPU device: frontend_cpu.py, or what PROGRAM names.
#   frontend_test.sh LIBCUDNN CPU_PLUGIN CUDART_12 CUDART_13 [the program's arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..
libcudnn=$root/$1 plugin=$root/$2 cudart_12=$root/$3 cudart_13=$root/$4
shift 4

# shellcheck source=tests/clients/venv.sh
source venv.sh
make_venv
choose_cudart "$cudart_12" "$cudart_13"

# Kernels are kept in the user's cache, so that the five tests of the same programs compile them once.
export KILN_DEVICE=cpu KILN_CPU_PLUGIN=$plugin
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" "${PROGRAM:-frontend_cpu.py}" --cudnn "$libcudnn" --cudart "$cudart" "$@"
