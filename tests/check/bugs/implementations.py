"""Right implementations, written apart from each other, and things that look wrong and are not.

An implementation takes a case and gives its results by name, as observe.observed does, or None
where it cannot do the case. What it does with a row that sees no key it writes into the case, as
its author would declare it.
"""

import copy
import math

import numpy as np
import torch
from torch.nn import functional

from attention import alibi, for_every_query_head, heads, run, staged
from case import DTYPES, NO_BUGS
from observe import observed
from positions import place
from visibility import everything, visible_parts


def core_inputs(case):
    q, k, v = heads(case, NO_BUGS, DTYPES[case.dtype])
    q, k = place(q, k, case, NO_BUGS)
    return q, *for_every_query_head(k, v, case, NO_BUGS)


def visibility(case):
    return everything(visible_parts(case, NO_BUGS), case).expand(case.B, case.H, case.T, case.S)


def added(case):
    """Bias and ALiBi in float64, or None."""
    total = case.bias
    if case.alibi_slopes is not None:
        total = alibi(case, NO_BUGS) + (0 if total is None else total)
    return total


def declare_empty_row(case, gives):
    case.empty_row = gives
    case.empty_row_as = gives if case.empty_row_as != "any" else "any"


def torch_fused(case, rng):
    """scaled_dot_product_attention, with the mask as it likes it: boolean, added, or is_causal."""
    if case.softcap or case.sink is not None:
        return None
    q, k, v = core_inputs(case)
    keep, extra = visibility(case), added(case)
    top_left = case.parts == ["causal"] and case.offset == 0
    options = {}
    if extra is None and top_left:
        options["is_causal"] = True
    elif extra is None:
        options["attn_mask"] = keep if case.parts else None
    else:
        options["attn_mask"] = extra.expand_as(keep).masked_fill(~keep, -math.inf).to(q.dtype)
    context = functional.scaled_dot_product_attention(q, k, v, scale=case.true_scale, **options)
    if not keep.any(-1).all():
        declare_empty_row(case, "nan" if context[~keep.any(-1)].isnan().any() else "zero")
    return {"out": staged(context, case, NO_BUGS)}


def torch_by_hand(case, rng):
    return observed(case)


def torch_autograd(case, rng):
    """Gradients by PyTorch instead of by hand."""
    plain = not (case.projections or case.rotary or case.qk_norm or case.stage == "projected")
    if not plain or not visibility(case).any(-1).all():
        return None
    if case.v.abs().max() >= 2.0**160:
        return None  # float64 does not hold the squares of products of gradients
    case.carries = case.carries | {"gradients"}
    case.dout = torch.from_numpy(rng.standard_normal((case.B, case.H, case.T, case.Dv)))
    case.dout = case.dout.to(DTYPES[case.dtype]).double()
    leaves = copy.copy(case)
    leaves.stage = "heads"
    inputs = [t.to(DTYPES[case.dtype]).clone().requires_grad_() for t in (case.q, case.k, case.v)]
    leaves.q, leaves.k, leaves.v = inputs
    context = run(leaves).out
    gradients = torch.autograd.grad(context, inputs, case.dout.to(context.dtype))
    named = dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    return {"out": staged(context.detach(), case, NO_BUGS), **named}


def tiled_online(case, rng):
    """Keys tile by tile with a running maximum and sum; weights are rounded, then divided."""
    q, k, v = core_inputs(case)
    keep, extra = visibility(case), added(case)
    wide = q.dtype if q.dtype == torch.float64 else torch.float32
    tile = int(rng.choice([1, 3, 8, 16, 64]))
    highest = torch.full((case.B, case.H, case.T, 1), -math.inf, dtype=wide)
    total = torch.zeros_like(highest)
    context = torch.zeros(case.B, case.H, case.T, v.shape[-1], dtype=wide)
    if case.sink is not None:
        highest = case.sink.to(wide)[None, :, None, None].expand_as(highest)
        total = torch.ones_like(highest)
    for begin in range(0, case.S, tile):
        keys = slice(begin, begin + tile)
        scores = q.to(wide) @ k[:, :, keys].to(wide).transpose(-2, -1) * case.true_scale
        if case.softcap:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        if extra is not None:
            scores = scores + extra.expand_as(keep)[..., keys].to(wide)
        scores = scores.masked_fill(~keep[..., keys], -math.inf)
        reached = torch.maximum(highest, scores.amax(-1, keepdim=True))
        base = reached.masked_fill(reached == -math.inf, 0)
        shrink, weights = torch.exp(highest - base), torch.exp(scores - base)
        total = total * shrink + weights.sum(-1, keepdim=True)
        context = context * shrink + weights.to(q.dtype).to(wide) @ v[:, :, keys].to(wide)
        highest = reached
    declare_empty_row(case, "zero")
    context = torch.where(total > 0, context / total, 0).to(q.dtype)
    lse = torch.where(total > 0, highest + torch.log(total), -math.inf)
    shown = {"out": staged(context, case, NO_BUGS)}
    return shown | {"lse": lse.squeeze(-1)} if "lse" in case.carries else shown


def numpy_by_hand(case, rng):
    """einsum and exp in the dtype; bfloat16 is not NumPy's."""
    if case.dtype == "bfloat16":
        return None
    kind = np.dtype(case.dtype).type
    wide = np.float32 if kind == np.float16 else kind
    q, k, v = (t.numpy() for t in core_inputs(case))
    scores = np.einsum("bhtd,bhsd->bhts", q.astype(wide), k.astype(wide)) * wide(case.true_scale)
    if case.softcap:
        scores = wide(case.softcap) * np.tanh(scores / wide(case.softcap))
    extra = added(case)
    if extra is not None:
        scores = scores + extra.numpy().astype(wide)
    scores = np.where(visibility(case).numpy(), scores, -np.inf)
    if case.sink is not None:
        sink = np.broadcast_to(case.sink.numpy()[None, :, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([sink.astype(wide), scores], axis=-1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
    weights = weights[..., 1:] if case.sink is not None else weights
    context = weights.astype(kind).astype(wide) @ v.astype(wide)
    declare_empty_row(case, "nan" if case.sink is None else "zero")
    return {"out": staged(torch.from_numpy(context.astype(kind)), case, NO_BUGS)}


# What is not a bug.


def renormalised(case, rng):
    """Mask after the softmax, and the rest divided by its sum."""
    if not case.parts or case.sink is not None or not visibility(case).any(-1).all():
        return None
    q, k, v = core_inputs(case)
    wide = q.dtype if q.dtype == torch.float64 else torch.float32
    scores = q.to(wide) @ k.to(wide).transpose(-2, -1) * case.true_scale
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    if added(case) is not None:
        scores = scores + added(case).to(wide)
    weights = torch.softmax(scores, -1) * visibility(case)
    total = weights.sum(-1, keepdim=True)
    if total.min() < 1e-6:
        return None  # the sum of the visible weights has lost its digits: that is a bug
    context = (weights / total).to(q.dtype) @ v
    return {"out": staged(context, case, NO_BUGS)}


def split_scale(case, rng):
    """The root of the scale on q and on k."""
    if case.rotary or case.qk_norm or case.projections:
        return None
    scaled, root = copy.copy(case), math.sqrt(case.true_scale)
    dtype = DTYPES[case.dtype]
    scaled.q, scaled.k = ((t.to(dtype) * root).double() for t in (case.q, case.k))
    scaled.scale = 1.0
    return observed(scaled)


def equal_shift(case, rng):
    """Rotary positions of q and k counted from somewhere else."""
    if not case.rotary or (case.qk_norm and case.qk_norm.order == "after-rotary"):
        return None  # weights of a norm that comes later belong to places, not to distances
    shifted, shift = copy.copy(case), int(rng.integers(1, 40))
    shifted.rotary = copy.copy(case.rotary)
    shifted.rotary.query_positions = case.rotary.query_positions + shift
    shifted.rotary.key_positions = case.rotary.key_positions + shift
    return observed(shifted)


def far_fill(case, rng):
    """A finite fill below every score."""
    if not case.parts:
        return None
    declare_empty_row(case, "mean" if case.sink is None else "zero")
    return observed(case)


def alibi_of_the_key(case, rng):
    """slope·s where slope·(s − t) is meant: with causal order every row moves by a constant."""
    if case.alibi_slopes is None or not case.causal or case.prefix is not None or case.softcap:
        return None
    if case.sink is not None or case.dtype in ("bfloat16", "float16") or "lse" in case.carries:
        return None
    moved = copy.copy(case)
    keys = torch.arange(case.S, dtype=torch.float64)
    ramp = case.alibi_slopes[None, :, None, None] * keys
    moved.bias = ramp if case.bias is None else case.bias + ramp
    moved.alibi_slopes = None
    return observed(moved)


def key_bias_left_out(case, rng):
    """A bias of the keys adds the same to every score of a row."""
    if (
        not case.projections
        or case.projections.biases["k"] is None
        or case.rotary
        or case.qk_norm
        or case.softcap
    ):
        return None
    if case.sink is not None or case.dtype in ("bfloat16", "float16") or "lse" in case.carries:
        return None
    without = copy.copy(case)
    without.projections = copy.copy(case.projections)
    without.projections.biases = {**case.projections.biases, "k": None}
    return observed(without)


IMPLEMENTATIONS = {
    f.__name__: f for f in (torch_fused, torch_by_hand, torch_autograd, tiled_online, numpy_by_hand)
}
NOT_A_BUG = {
    f.__name__: f
    for f in (renormalised, split_scale, equal_shift, far_fill, alibi_of_the_key, key_bias_left_out)
}


def plugin(name):
    """MODULE:FUNCTION with an implementation's signature, such as engine:engine."""
    module, function = name.split(":")
    return getattr(__import__(module), function)
