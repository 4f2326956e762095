# shellcheck shell=bash disable=SC2034
# Sourced by the other scripts: makes a machine ready to build Kiln. Nothing here asks a question.
#
#   install_packages PKG…   Debian packages that are missing, through apt-get (with sudo if not root)
#   find_nvrtc              sets nvrtc_source to environment, toolkit, wheels or none; exports KILN_NVRTC, CUDA_HOME
#   bazel_quietly COMMAND … bazel, without its notes on itself
#   bazel_query QUERY       labels of the targets that it finds; fails, with Bazel's words, where the query does

# Bazel and the caches need a home, which some CI containers do not name.
export HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}

repository_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheels_root=${XDG_CACHE_HOME:-$HOME/.cache}/kiln/cuda
NVRTC_VERSION=13.0.88
CUDA_HEADERS_VERSION=13.0.96
CUDA_CRT_VERSION=13.0.88

build_packages=(
  bazel-bootstrap g++ git python3
  libcli11-dev libfmt-dev libgmock-dev libgtest-dev libspdlog-dev libxxhash-dev nlohmann-json3-dev
  llvm-19-dev
)
# The fuzzers' compiler, the Python package that drives our library in tests/clients, and what programs are built with
# against an installation in tests/install.
test_packages=(
  clang-19 libclang-rt-19-dev clang-format-19 python3-pip python3-venv
  cmake make pkg-config
)

say() { printf '== %s\n' "$*"; }

install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    say "no Debian here: install by hand the equivalents of: $*"
    return 0
  fi
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all there"
    return 0
  fi
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "packages: missing ${missing[*]}; run as root, or install sudo"
      return 1
    fi
    sudo=(sudo)
  fi
  say "packages: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if "${sudo[@]}" apt-get update -qq >"$log" 2>&1 &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 30 "$log"
  rm -f "$log"
  say "packages: apt-get failed, see above"
  return 1
}

# The first libnvrtc.so that is a file, of those a toolkit or the loader's cache knows.
toolkit_nvrtc() {
  local candidate
  for candidate in "${CUDA_HOME:-/usr/local/cuda}"/{lib64,lib,targets/x86_64-linux/lib}/libnvrtc.so* \
    $(ldconfig -p 2>/dev/null | sed -n 's/.*libnvrtc\.so[.0-9]* .*=> //p'); do
    case $candidate in *alt*) continue ;; esac
    if [ -f "$candidate" ]; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# PyPI's wheels are zip files: download and unpack, no environment needed.
unpack_wheels() {
  local wheels
  wheels=$(mktemp -d) || return 1
  if python3 -m pip download -q --no-deps --only-binary=:all: --dest "$wheels" \
    "nvidia-cuda-nvrtc==$NVRTC_VERSION" "nvidia-cuda-runtime==$CUDA_HEADERS_VERSION" \
    "nvidia-cuda-crt==$CUDA_CRT_VERSION" >"$wheels/log" 2>&1; then
    rm -rf "$wheels_root.new"
    mkdir -p "$wheels_root.new"
    for wheel in "$wheels"/*.whl; do
      python3 -m zipfile -e "$wheel" "$wheels_root.new" || return 1
    done
    rm -rf "$wheels_root"
    mv "$wheels_root.new" "$wheels_root"
    rm -rf "$wheels"
    return 0
  fi
  tail -n 2 "$wheels/log" >&2
  rm -rf "$wheels"
  return 1
}

find_nvrtc() {
  local found
  nvrtc_source=none
  if [ -n "${KILN_NVRTC:-}" ] && [ -f "$KILN_NVRTC" ]; then
    nvrtc_source=environment
    say "NVRTC: $KILN_NVRTC, as KILN_NVRTC says"
    return 0
  fi
  if found=$(toolkit_nvrtc); then
    nvrtc_source=toolkit
    export KILN_NVRTC=$found
    say "NVRTC: $found, of the CUDA toolkit"
    return 0
  fi
  if [ ! -d "$wheels_root" ]; then
    say "NVRTC: no CUDA toolkit; fetching the PyPI wheels into $wheels_root"
    install_packages python3-pip || true
    unpack_wheels || true
  fi
  found=$(find "$wheels_root" -name 'libnvrtc.so*' ! -name '*alt*' -type f 2>/dev/null | head -n 1) || true
  if [ -n "$found" ]; then
    nvrtc_source=wheels
    export KILN_NVRTC=$found
    CUDA_HOME=$(dirname "$(dirname "$found")")
    export CUDA_HOME
    say "NVRTC: $found, of the PyPI wheels"
    return 0
  fi
  say "NVRTC: none; going on with the CPU target alone"
}

# Bazel's command with its arguments: errors and warnings, and progress where somebody watches.
bazel_quietly() {
  local command=$1 progress=--noshow_progress
  shift
  if [ -t 2 ]; then progress=--show_progress; fi
  bazel "$command" "$progress" --ui_event_filters=-info "$@"
}

# Labels of the targets that a query finds. A query that fails is not one that finds nothing: its message is shown
# and its status returned, so that a caller must take the answer into a variable (`x=$(bazel_query …) || exit`), since
# `< <(bazel_query …)` loses the status.
bazel_query() {
  local log status=0
  log=$(mktemp)
  (cd "$repository_root" && bazel query --noshow_progress "$1" 2>"$log") || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    say "bazel query failed with status $status: $1" >&2
  fi
  rm -f "$log"
  return "$status"
}
