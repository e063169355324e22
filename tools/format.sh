#!/usr/bin/env bash
# Formats every tracked C++ file; with --check only tells what differs.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
if [[ ${1:-} == --check ]]; then mode=(--dry-run --Werror); fi
git ls-files -z '*.h' '*.cpp' | xargs -0 -r .venv/bin/clang-format "${mode[@]}"
