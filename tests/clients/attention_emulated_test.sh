#!/usr/bin/env bash
# Attention of cudnn-frontend on the emulated GPU (attention_emulated.py), of the architecture EMULATED_GPU_ARCH.
#   attention_emulated_test.sh LIBCUDNN LIBCUDA NVRTC CUDART_12 CUDART_13
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..
libcudnn=$root/$1 libcuda=$root/$2 nvrtc=$root/$3 cudart_12=$root/$4 cudart_13=$root/$5
shift 5

# shellcheck source=tests/clients/venv.sh
source venv.sh
make_venv
choose_cudart "$cudart_12" "$cudart_13"

export KILN_DEVICE=cuda KILN_LIBCUDA=$libcuda KILN_NVRTC=$nvrtc KILN_CACHE_DIR=${TEST_TMPDIR:-$(mktemp -d)}/kiln
export EMULATED_GPU_SMS=8 PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" attention_emulated.py --cudnn "$libcudnn" --cudart "$cudart" --libcuda "$libcuda" "$@"
