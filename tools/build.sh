#!/usr/bin/env bash
# Builds a preset (release without an argument) on all cores. QKV_WERROR=ON in the environment makes
# warnings errors, as CI does.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
cmake --preset "$preset" ${QKV_WERROR:+-DQKV_WERROR="$QKV_WERROR"} "$@" >/dev/null
cmake --build --preset "$preset" --parallel "$(nproc)"
