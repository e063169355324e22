#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS]
#
# Builds the fuzz targets (they are part of the build with the address sanitizer), runs each for so
# many seconds (20 without an argument) from the seeds in tests/fuzz/corpus, and fails on a finding, or
# where the targets together reach less than 90 % of the lines of the readers.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-20}
build=build-asan-ubsan
work=$build/fuzz-work
tools/build.sh asan-ubsan >/dev/null
rm -rf "$work"
mkdir -p "$work"

targets=("$build"/fuzz/*)
for target in "${targets[@]}"; do
  name=$(basename "$target")
  mkdir "$work/$name"
  echo "$name: $seconds s"
  LLVM_PROFILE_FILE=$work/$name.profraw "$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=512 -artifact_prefix="$work/" -print_final_stats=1 \
    "$work/$name" "tests/fuzz/corpus/$name" >"$work/$name.log" 2>&1 || {
    tail -60 "$work/$name.log"
    echo "$name: the input that did it lies in $work" >&2
    exit 1
  }
  grep -E 'number_of_executed_units' "$work/$name.log"
done

llvm-profdata merge -o "$work/all.profdata" "$work"/*.profraw
mapfile -t readers < <(git ls-files 'src/io/*.cpp' | grep -v -E 'writer|output')
mapfile -t more_objects < <(printf -- '-object\n%s\n' "${targets[@]:1}")
llvm-cov report -instr-profile="$work/all.profdata" "${targets[0]}" "${more_objects[@]}" \
  "${readers[@]}" |
  awk '/^TOTAL/ { print "lines of the readers reached: " $10; exit !($10 + 0 >= 90) }'
