"""Writes goldens/attention.safetensors: attention of many kinds as PyTorch computes it in float64.

Every mask is materialised here from its definition and every gradient comes from autograd, so that nothing is
shared with the library. Run with a Python that has torch and safetensors; the result is kept in the repository.
"""

import pathlib

import torch
from safetensors.torch import save_file

B, H, HKV, T, S, DK, DV = 3, 4, 2, 6, 9, 5, 7
GROUP = H // HKV
torch.manual_seed(20)
F64 = torch.float64

t = torch.arange(T)[:, None]
s = torch.arange(S)[None, :]
everything = torch.ones(B, H, T, S, dtype=torch.bool)
lengths = torch.tensor([9, 4, 0])
prefix = torch.tensor([0, 3, 9])
q_docs = torch.randint(0, 3, (B, T))
k_docs = torch.randint(0, 3, (B, S))
padding = torch.rand(B, S) < 0.3  # true: padded
cells = torch.rand(1, H, T, S) < 0.6  # true: keep
offsets = torch.tensor([-2, 0, 5])

MASKS = {
    "none": everything,
    "causal_top_left": everything & (s <= t),
    "causal_bottom_right": everything & (s <= t + S - T),
    "causal_offsets": everything & (s[None] <= t[None] + offsets[:, None, None])[:, None],
    "prefix": everything & ((s <= t)[None] | (s[None] < prefix[:, None, None]))[:, None],
    "window": everything & (s >= t + S - T - 3) & (s <= t + S - T + 1),
    "lengths": everything & (s < lengths[:, None, None, None]),
    "padding": everything & ~padding[:, None, None, :],
    "documents": everything & (q_docs[:, None, :, None] == k_docs[:, None, None, :]),
    "boolean": everything & cells,
    "causal_and_padding": everything & (s <= t) & ~padding[:, None, None, :],
}
DISTANCE = (t + S - T - s).abs().to(F64)
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=F64)
MODIFIERS = ["plain", "scale", "softcap", "bias", "bias_broadcast", "alibi", "sink", "all"]

tensors = {
    "query_documents": q_docs,
    "key_documents": k_docs,
    "padding": padding,
    "cells": cells,
}


def attention(q, k, v, keep, modifier, bias, sink):
    k = k.repeat_interleave(GROUP, dim=1)
    v = v.repeat_interleave(GROUP, dim=1)
    scale = 0.3 if modifier in ("scale", "all") else DK**-0.5
    scores = q @ k.transpose(-2, -1) * scale
    if modifier in ("softcap", "all"):
        scores = 1.5 * torch.tanh(scores / 1.5)
    if bias is not None:
        scores = scores + bias
    if modifier in ("alibi", "all"):
        scores = scores - SLOPES[:, None, None] * DISTANCE
    scores = scores.masked_fill(~keep, float("-inf"))
    if sink is not None:
        column = sink[None, :, None, None].expand(B, H, T, 1)
        scores = torch.cat([scores, column], dim=-1)
    lse = torch.logsumexp(scores, dim=-1)
    empty = lse == float("-inf")
    # A softmax over nothing is NaN in PyTorch; here it is 0, with no gradient.
    weights = torch.softmax(scores.masked_fill(empty[..., None], 0.0), dim=-1)
    weights = weights.masked_fill(empty[..., None], 0.0)[..., :S]
    return weights @ v, weights, lse, empty


for mask_name, keep in MASKS.items():
    for modifier in MODIFIERS:
        if mask_name not in ("none", "causal_and_padding") and modifier not in ("plain", "all"):
            continue
        q = torch.randn(B, H, T, DK, dtype=F64, requires_grad=True)
        k = torch.randn(B, HKV, S, DK, dtype=F64, requires_grad=True)
        v = torch.randn(B, HKV, S, DV, dtype=F64, requires_grad=True)
        inputs = {"query": q, "key": k, "value": v}
        bias = sink = None
        if modifier in ("bias", "all"):
            bias = torch.randn(B, H, T, S, dtype=F64, requires_grad=True)
        if modifier == "bias_broadcast":
            bias = torch.randn(1, H, 1, S, dtype=F64, requires_grad=True)
        if modifier in ("sink", "all"):
            sink = torch.randn(H, dtype=F64, requires_grad=True)
        if bias is not None:
            inputs["bias"] = bias
        if sink is not None:
            inputs["sink"] = sink
        context, weights, lse, empty = attention(q, k, v, keep, modifier, bias, sink)
        seeds = {
            "context": torch.randn_like(context),
            "weights": torch.randn_like(weights),
            "log_sum_exp": torch.randn_like(lse),
        }
        loss = (context * seeds["context"]).sum() + (weights * seeds["weights"]).sum()
        loss = loss + (lse * seeds["log_sum_exp"])[~empty].sum()
        gradients = torch.autograd.grad(loss, list(inputs.values()))
        name = f"{mask_name}.{modifier}"
        for key, value in inputs.items():
            tensors[f"{name}.{key}"] = value.detach()
        for key, value in zip(inputs, gradients):
            tensors[f"{name}.{key}_gradient"] = torch.nan_to_num(value)
        for key, value in seeds.items():
            tensors[f"{name}.{key}_seed"] = value
        tensors[f"{name}.context"] = context.detach()
        tensors[f"{name}.weights"] = weights.detach()
        tensors[f"{name}.log_sum_exp"] = lse.detach()

target = pathlib.Path(__file__).parent / "goldens" / "attention.safetensors"
save_file({k: v.contiguous() for k, v in tensors.items()}, str(target))
print(len(tensors), "tensors,", target.stat().st_size, "bytes")
