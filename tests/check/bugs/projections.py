"""From x to heads and from heads to the output, right and wrong."""

import torch
from torch.nn import functional


def pack(tensors, case, packing):
    """q, k, v with rows first (weights or biases) in one tensor."""
    if packing == "by-input":
        return torch.cat(tensors)
    by_head = [t.view(case.H, case.Dk, *t.shape[1:]) for t in tensors]
    return torch.stack(by_head, dim=1).flatten(0, 2)


def unpack(y, case, packing, order="qkv"):
    """y [B,T,rows] of a packed projection; `order` is who the code takes the pieces for."""
    if packing == "by-head":
        pieces = y.view(*y.shape[:2], case.H, 3, case.Dk).unbind(-2)
        pieces = [piece.flatten(-2) for piece in pieces]
    else:
        rows = {"q": case.H * case.Dk, "k": case.Hkv * case.Dk, "v": case.Hkv * case.Dv}
        pieces = y.split([rows[name] for name in order], dim=-1)
    named = dict(zip(order, pieces, strict=True))
    return [named[name] for name in "qkv"]


def packed_projection(case, bugs, dtype):
    """One matrix product for q, k and v, as fused layers do it."""
    projections, bug = case.projections, bugs("Q1")
    packing = projections.packing or "by-input"
    weight = pack([projections.weights[n].to(dtype) for n in "qkv"], case, packing)
    y = projections.x.to(dtype) @ weight.T
    if projections.biases["q"] is not None:
        y = y + pack([projections.biases[n].to(dtype) for n in "qkv"], case, packing)
    if bug.variant == "order":
        return unpack(y, case, packing, bug.parameters["order"])
    return unpack(y, case, "by-head" if packing == "by-input" else "by-input")


def project(case, bugs, dtype):
    """[B,T,H·Dk], [B,S,Hkv·Dk], [B,S,Hkv·Dv]."""
    projections = case.projections
    if bugs("Q1"):
        return packed_projection(case, bugs, dtype)
    weights, biases = dict(projections.weights), dict(projections.biases)
    if bugs("Q2"):
        for name, taken in bugs("Q2").parameters.items():
            weights[name], biases[name] = projections.weights[taken], projections.biases[taken]
    results = []
    for name in "qkv":
        x = (projections.x if name == "q" else projections.key_input).to(dtype)
        weight = weights[name].to(dtype)
        transposed = bugs("Q3") and name in bugs("Q3").parameters["of"]
        y = x @ weight if transposed else x @ weight.T
        missing = bugs("Q4", "bias-missing") and bugs("Q4").parameters["of"] == name
        if biases[name] is not None and not missing:
            y = y + biases[name].to(dtype)
        if bugs("Q4", "activation") and name in bugs("Q4").parameters["of"]:
            y = functional.relu(y)
        results.append(y)
    return results


def split(merged, heads, bugs):
    """[B,T,heads·Dh] -> [B,heads,T,Dh]"""
    batch, length = merged.shape[:2]
    if bugs("H1"):
        return merged.view(batch, heads, length, -1)
    if bugs("H5", "split", "both"):
        return merged.view(batch, length, -1, heads).permute(0, 3, 1, 2)
    return merged.view(batch, length, heads, -1).transpose(1, 2)


def merge(context, bugs):
    """[B,H,T,Dv] -> [B,T,H·Dv]"""
    batch, heads, length, width = context.shape
    if bugs("H2"):
        return context.contiguous().view(batch, length, heads * width)
    if bugs("H5", "merge", "both"):
        return context.permute(0, 2, 3, 1).reshape(batch, length, heads * width)
    return context.transpose(1, 2).reshape(batch, length, heads * width)


def output_projection(merged, case, bugs):
    if bugs("Q4", "output-projection-missing"):
        return merged
    weight = case.wo.to(merged.dtype)
    transposed = bugs("Q3") and "o" in bugs("Q3").parameters["of"]
    y = merged @ weight if transposed else merged @ weight.T
    missing = bugs("Q4", "bias-missing") and bugs("Q4").parameters["of"] == "o"
    if case.bo is not None and not missing:
        y = y + case.bo.to(merged.dtype)
    if bugs("Q4", "activation") and "o" in bugs("Q4").parameters["of"]:
        y = functional.relu(y)
    return y
