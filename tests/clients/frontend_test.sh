#!/usr/bin/env bash
# cudnn-frontend from PyPI on our libcudnn.so.9 and the CPU device (frontend_cpu.py).
#   frontend_test.sh LIBCUDNN CPU_PLUGIN CUDART_12 CUDART_13 [unittest's arguments]
# The packages of requirements.txt are kept in a venv under ~/.cache/kiln/venv, which is made once; without it
# and without PyPI the test fails and says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..
libcudnn=$root/$1 plugin=$root/$2 cudart_12=$root/$3 cudart_13=$root/$4
shift 4

python=${PYTHON:-python3}
key=$("$python" -c 'import sys; print("py%d%d" % sys.version_info[:2])')-$(sha256sum requirements.txt | cut -c1-12)
venvs=${XDG_CACHE_HOME:-${HOME:-${TEST_TMPDIR:-/tmp}}/.cache}/kiln/venv
venv=$venvs/$key

make_venv() {
  local new=$venvs/.$key.$$
  mkdir -p "$venvs"
  # shellcheck disable=SC2064
  trap "rm -rf '$new'" RETURN
  "$python" -m venv "$new" || {
    echo "frontend_test: '$python -m venv' failed; on Debian it wants the package python3-venv" >&2
    return 1
  }
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r requirements.txt || {
    echo "frontend_test: cannot install $(grep -v '^#' requirements.txt | tr '\n' ' ')from PyPI, and $venv is not" \
      "there from an earlier run: this test wants the network once, and CPython of a version with wheels" >&2
    return 1
  }
  # Another run may have been faster; either result is the same.
  mv -T "$new" "$venv" 2>/dev/null || [ -d "$venv" ]
}

[ -d "$venv" ] || make_venv

# The frontend refuses to start where it finds two CUDA runtimes, so the stand-in takes the name of the one
# that this machine has, if any.
cudart=$cudart_13
if { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libcudart\.so\.12 '; then cudart=$cudart_12; fi

export KILN_DEVICE=cpu KILN_CPU_PLUGIN=$plugin KILN_CACHE_DIR=${TEST_TMPDIR:-$(mktemp -d)}/kiln
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" frontend_cpu.py --cudnn "$libcudnn" --cudart "$cudart" "$@"
