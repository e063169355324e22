"""Writes dumps with known mistakes, and right ones, for tests of the check.

  make_dumps.py --out DIR --seed 1                       every class of the catalogue
  make_dumps.py --out DIR --seed 1 --classes M2 M7 --count 40 --dtype bfloat16
  make_dumps.py --out DIR --seed 1 --pairs               two mistakes at once
  make_dumps.py --out DIR --seed 1 --correct             right ones

DIR/index.json says of each file what is in it; the files do not. A seed decides everything, sizes
included.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from case import DTYPES
from catalogue import IDS
from correct import correct_dumps
from dump_file import metadata_of, storage, tensors_of, write
from injected import pair_dumps, single_dumps


def store(folder, number, made, rng):
    """One file and its line in the index."""
    case, record = made["case"], made["record"]
    stored = storage(case, rng)
    kind = ".npz" if stored != torch.bfloat16 and rng.random() < 0.06 else ".safetensors"
    weight_layout = made.get("weight_layout") or ("out-in" if rng.random() < 0.8 else "in-out")
    if case.projections and case.projections.packing:
        weight_layout = "out-in"
    lse_base = made.get("lse_base", "e")
    path = folder / f"dump-{number:05}{kind}"
    tensors = tensors_of(case, made["shown"], stored, weight_layout)
    write(path, tensors, metadata_of(case, tensors, weight_layout, lse_base))
    sizes = {name: case.sizes[name] for name in ("B", "H", "Hkv", "T", "S", "Dk", "Dv")}
    return {
        "file": path.name,
        **record,
        **describe(case),
        "sizes": sizes,
        "stored": str(stored)[6:],
    }


def describe(case):
    modifiers = ("scale", "softcap", "bias", "alibi_slopes", "sink", "rotary", "qk_norm")
    return {
        "dtype": case.dtype,
        "style": case.style,
        "shape": case.shape,
        "activations": case.source,
        "rules": case.parts,
        "modifiers": [m for m in modifiers if getattr(case, m) is not None],
        "stage": case.stage,
        "carries": sorted(case.carries),
        "empty_row": case.empty_row_as,
    }


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--classes", nargs="*", default=IDS, choices=IDS, metavar="ID")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--correct", action="store_true")
    parser.add_argument(
        "--count", type=int, help="dumps a class (24), pairs (240) or right ones (2000)"
    )
    parser.add_argument("--dtype", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--plugin", help="MODULE:FUNCTION: one more right implementation")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.correct:
        dumps = correct_dumps(options.seed, options.count or 2000, options.dtype, options.plugin)
    elif options.pairs:
        dumps = pair_dumps(options.seed, options.count or 240, options.classes, options.dtype)
    else:
        dumps = single_dumps(options.seed, options.count or 24, options.classes, options.dtype)
    rng = np.random.default_rng([options.seed, 2])
    index = [store(options.out, number, made, rng) for number, made in enumerate(dumps)]
    (options.out / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"{len(index)} dumps in {options.out}")


if __name__ == "__main__":
    main()
