#!/usr/bin/env bash
# Installs qkv, static and shared, and builds tests/consumer against each through find_package and
# through pkg-config. The static one is the release build that `make` leaves in build/.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() {
  local kind=$1 build=$2 pkg_config_flags=$3
  local prefix=$scratch/$kind
  local libdir
  cmake --install "$build" --prefix "$prefix" >/dev/null
  "$prefix/bin/qkv" --version
  libdir=$(dirname "$(find "$prefix" -name pkgconfig -type d)")

  cmake -S tests/consumer -B "$scratch/$kind-consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
  cmake --build "$scratch/$kind-consumer"
  (cd "$scratch" && "$kind-consumer/consumer")
  echo "$kind, find_package: passed"

  local -a flags
  read -ra flags < <(PKG_CONFIG_PATH=$libdir/pkgconfig \
    pkg-config $pkg_config_flags --cflags --libs qkv)
  "${CXX:-c++}" -std=c++20 tests/consumer/main.cpp -o "$scratch/$kind-pkg-config" "${flags[@]}"
  (cd "$scratch" && LD_LIBRARY_PATH=$libdir "./$kind-pkg-config")
  echo "$kind, pkg-config: passed"
}

tools/build.sh release
check static build --static

cmake -S . -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DBUILD_SHARED_LIBS=ON \
  -DQKV_BUILD_TESTS=OFF -DQKV_TORCH=OFF >/dev/null
cmake --build "$scratch/build" --parallel "$(nproc)" >/dev/null
check shared "$scratch/build" ''
