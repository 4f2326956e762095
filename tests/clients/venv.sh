# Sourced by the tests of this folder: make_venv sets `venv` to a folder with the packages of the file REQUIREMENTS. It is
# kept under ~/.cache/kiln/venv and made once; without it and without PyPI the test fails and says so.
venv_error() { echo "$(basename "$0"): $*" >&2; }

fill_venv() {
  local new=$1/.$2.$$
  mkdir -p "$1"
  # shellcheck disable=SC2064
  trap "rm -rf '$new'" RETURN
  "$python" -m venv "$new" || {
    venv_error "'$python -m venv' failed; on Debian it wants the package python3-venv"
    return 1
  }
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$REQUIREMENTS" || {
    venv_error "cannot install $(grep -v '^#' "$REQUIREMENTS" | tr '\n' ' ')from PyPI, and $1/$2 is not" \
      "there from an earlier run: this test wants the network once, and CPython of a version with wheels"
    return 1
  }
  # Another run may have been faster; either result is the same.
  mv -T "$new" "$1/$2" 2>/dev/null || [ -d "$1/$2" ]
}

make_venv() {
  local python=${PYTHON:-python3} key venvs
  REQUIREMENTS=${REQUIREMENTS:-requirements.txt}
  key=$("$python" -c 'import sys; print("py%d%d" % sys.version_info[:2])')-$(sha256sum "$REQUIREMENTS" | cut -c1-12)
  venvs=${XDG_CACHE_HOME:-${HOME:-${TEST_TMPDIR:-/tmp}}/.cache}/kiln/venv
  venv=$venvs/$key
  [ -d "$venv" ] || fill_venv "$venvs" "$key"
}

# The frontend refuses to start where it finds two CUDA runtimes, so the stand-in ($1 of CUDA 12, $2 of 13) takes the
# name of the one that this machine has, if any.
choose_cudart() {
  if { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libcudart\.so\.12 '; then
    cudart=$1
  else
    cudart=$2
  fi
}
