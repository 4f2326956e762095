#!/usr/bin/env bash
# Which attention graphs of cudnn-frontend are one kernel (attention_fused.py), on stand-ins for CUDA's driver and NVRTC.
#   attention_fused_test.sh LIBCUDNN KILN LIBCUDA NVRTC CUDART_12 CUDART_13
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..
libcudnn=$root/$1 kiln=$root/$2 libcuda=$root/$3 nvrtc=$root/$4 cudart_12=$root/$5 cudart_13=$root/$6
shift 6

# shellcheck source=tests/clients/venv.sh
source venv.sh
make_venv
choose_cudart "$cudart_12" "$cudart_13"

export KILN_DEVICE=cuda KILN_LIBCUDA=$libcuda KILN_NVRTC=$nvrtc KILN_CACHE_DIR=${TEST_TMPDIR:-$(mktemp -d)}/kiln
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" attention_fused.py --cudnn "$libcudnn" --cudart "$cudart" --kiln "$kiln" "$@"
