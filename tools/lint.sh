#!/usr/bin/env bash
# Formatting of every tracked C++ file, and clang-tidy over every source of the library and the command.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/format.sh --check
cmake --preset debug -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -B build-lint >/dev/null
git ls-files 'src/*.cpp' 'cli/*.cpp' |
  xargs -P "$(nproc)" -n 1 clang-tidy -p build-lint --quiet 2>/dev/null
