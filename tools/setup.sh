#!/usr/bin/env bash
# Installs what building and checking megamoe needs and this machine lacks: packages through apt,
# and a Python environment in build/venv with tools/requirements.txt. May be run again at any time.
#
#   tools/setup.sh           install what is missing (asks sudo when not root)
#   tools/setup.sh --check   only say what is missing; exit status 1 if anything is
#
# Tested on Debian 12. Written for Ubuntu 24.04 as well, not tested there.
# The CUDA toolkit is not installed from here: without nvcc everything but the kernels works.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 2
}

check_only=0
case "${1:-}" in
  '') ;;
  --check) check_only=1 ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) die "unknown argument '$1' (only --check is known)" ;;
esac

# The checks format with version 14 everywhere: other versions format differently.
packages=(
  gcc g++ cmake ninja-build ccache git ca-certificates make pkgconf binutils
  clang-format-14
  python3 python3-dev python3-venv
  libfmt-dev libcli11-dev nlohmann-json3-dev libeigen3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)

system_name() {
  [ -r /etc/os-release ] || die "no /etc/os-release: only Debian and Ubuntu are supported"
  (
    . /etc/os-release
    printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-unknown}"
  )
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "not root and no sudo: run as root: $*"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@"
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all ${#packages[@]} there"
    return 0
  fi
  say "packages missing: ${missing[*]}"
  [ "$check_only" -eq 0 ] || return 1
  # A list that cannot be refreshed is no error yet: the installation says what it could not find.
  apt_get update || say "apt-get update failed; going on with the lists that are there"
  apt_get install --yes --no-install-recommends "${missing[@]}" >/dev/null || return 1
  say "packages installed: ${#missing[@]}"
}

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

check_versions() {
  local gcc cmake
  gcc="$(g++ -dumpfullversion -dumpversion 2>/dev/null || true)"
  cmake="$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p' || true)"
  if ! version_at_least "${gcc:-0}" 12; then
    say "g++ is ${gcc:-missing}; 12 or newer is needed"
    return 1
  fi
  if ! version_at_least "${cmake:-0}" 3.25; then
    say "cmake is ${cmake:-missing}; 3.25 or newer is needed"
    return 1
  fi
  say "g++ $gcc, cmake $cmake"
}

install_venv() {
  local stamp=build/venv/requirements.sha256 want have=''
  want="$(sha256sum <tools/requirements.txt)"
  [ ! -r "$stamp" ] || have="$(cat "$stamp")"
  if [ "$have" = "$want" ] && build/venv/bin/python -c 'import numpy' 2>/dev/null; then
    say "build/venv: up to date"
    return 0
  fi
  say "build/venv: missing or older than tools/requirements.txt"
  [ "$check_only" -eq 0 ] || return 1
  mkdir -p build || return 1
  # One setup at a time: another run would take the half-made environment away.
  exec 9>build/setup.lock
  flock --wait 600 9 || return 1
  rm -rf build/venv
  # The system's own interpreter, so that a shim of a version manager in PATH changes nothing.
  /usr/bin/python3 -m venv build/venv || return 1
  build/venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -r tools/requirements.txt || return 1
  printf '%s\n' "$want" >"$stamp"
  say "build/venv: $(build/venv/bin/python -c 'import numpy; print("numpy", numpy.__version__)'), $(build/venv/bin/ruff --version)"
}

read -r system release <<<"$(system_name)"
case "$system $release" in
  'debian 12') say "Debian 12" ;;
  'ubuntu 24.04') say "Ubuntu 24.04 (not tested)" ;;
  *) say "$system $release (not tested; trying Debian's package names)" ;;
esac

status=0
install_packages || status=1
check_versions || status=1
install_venv || status=1
if nvcc="$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)"; then
  say "nvcc: $nvcc"
else
  say "nvcc: not found; the kernels are not built, everything else is"
fi
if [ "$status" -eq 0 ]; then
  say "ready"
else
  say "not ready"
fi
exit "$status"
