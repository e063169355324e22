#!/usr/bin/env python3
"""Makes padding-on-query-axis.safetensors: four heads of a real layer, recomputed with the mask on the wrong axis.

    .venv/bin/python data/padding_on_query_axis.py
"""

import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file

DATA = pathlib.Path(__file__).parent
SAMPLES, HEADS = slice(1, 4), slice(0, 4)

layer = load_file(DATA / "minilm-layer0.safetensors")
q, k, v = (np.ascontiguousarray(layer[name][SAMPLES, HEADS]) for name in "qkv")
keep = layer["attention_mask"][SAMPLES].astype(np.uint8)  # [B,S], 1: a token, 0: padding

scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
scores = np.where(keep[:, None, :, None] == 1, scores, np.float32(-1e9))  # wrong: meant is [:, None, None, :]
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)

tensors = {"q": q, "k": k, "v": v, "out": weights @ v, "key_padding": keep}
source = "all-MiniLM-L6-v2 (Apache-2.0), encoder layer 0, heads 0-3; mask as [B,1,T,1]"
save_file(tensors, DATA / "padding-on-query-axis.safetensors", {"key_padding_true": "keep", "source": source})
