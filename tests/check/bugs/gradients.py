"""The backward pass by hand, right and wrong."""

import torch

from attention import for_every_query_head, run
from case import DTYPES, NO_BUGS


def backward(case, bugs=NO_BUGS, dtype=None, style=None):
    """dq, dk, dv of a case without rotary positions, norms, softcap and projections."""
    dtype = DTYPES[dtype or case.dtype]
    style = style or case.style
    name = next(key for key, value in DTYPES.items() if value == dtype)
    weights = run(case, NO_BUGS, name, style).weights
    q, k, v, dout = (t.to(dtype) for t in (case.q, case.k, case.v, case.dout))
    k, v = for_every_query_head(k, v, case, NO_BUGS)
    wide = torch.float32 if style == "fused" and dtype != torch.float64 else dtype

    p = weights.to(wide)
    if bugs("B1", "stale-sample"):
        p = p[-1:].expand_as(p)  # one buffer for all samples: the last one is still in it
    elif bugs("B1", "stale-head"):
        p = p[:, -1:].expand_as(p)
    dv = p.to(dtype).transpose(-2, -1) @ dout
    dp = dout.to(wide) @ v.to(wide).transpose(-2, -1)
    if bugs("B1", "row-sum-missing"):
        ds = p * dp
    else:
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    if not bugs("B1", "scale-missing"):
        ds = ds * case.true_scale
    ds = ds.to(dtype)
    dq, dk = ds @ k, ds.transpose(-2, -1) @ q
    return dq, of_group(dk, case, bugs), of_group(dv, case, bugs)


def of_group(gradient, case, bugs):
    """[B,H,S,D] -> [B,Hkv,S,D]"""
    grouped = gradient.unflatten(1, (case.Hkv, case.H // case.Hkv))
    if bugs("G2", "first-head"):
        return grouped[:, :, 0]
    if bugs("G2", "last-head"):
        return grouped[:, :, -1]  # assigned in a loop, never added
    return grouped.sum(2)
