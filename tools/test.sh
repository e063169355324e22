#!/usr/bin/env bash
# Runs the tests of a preset (release without an argument) and fails where any of them did not run.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Threads of one test and several tests at once would fight for the cores; let idle threads sleep.
export OMP_WAIT_POLICY=passive
ctest --preset "$preset" --parallel "$(nproc)" | tee "$log"
if grep -E '\*\*\*(Skipped|Not Run)|\(Disabled\)|\(Skipped\)|\(Not Run\)' "$log"; then
  echo "tools/test.sh: the tests above did not run; every test must" >&2
  exit 1
fi
