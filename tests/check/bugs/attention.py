"""Attention as people write it, with every mistake of the catalogue to be switched on by its id.

The arithmetic is the dtype's own. In bfloat16 and float16 the weights are rounded before they meet
the values; the scores are rounded too where the style is "eager", and stay in float32 where it is
"fused".
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from case import DTYPES, NO_BUGS
from positions import place
from projections import merge, output_projection, project, split
from visibility import everything, query_key_positions, visible_parts


@dataclass
class Result:
    out: torch.Tensor  # at the stage of the case: [B,H,T,Dv], [B,T,H·Dv] or [B,T,D]
    q: torch.Tensor  # what entered the core, before rotary positions and norm
    k: torch.Tensor
    v: torch.Tensor
    weights: torch.Tensor  # what the values were multiplied with
    lse: torch.Tensor  # [B,H,T]


def run(case, bugs=NO_BUGS, dtype=None, style=None, seed=0):
    dtype = DTYPES[dtype or case.dtype]
    style = style or case.style
    q, k, v = heads(case, bugs, dtype)
    inputs = q, k, v
    q, k = place(q, k, case, bugs)
    if bugs("H4", "first-head"):
        q, k, v = q[:, :1].expand_as(q), k[:, :1].expand_as(k), v[:, :1].expand_as(v)
    k, v = for_every_query_head(k, v, case, bugs)
    q, k, v = exchange_axes(bugs, q, k, v)

    scores = scaled_scores(q, k, case, bugs, style)
    scores = modified(scores, case, bugs)
    weights, lse = softmax(scores, case, bugs)
    weights = spoiled(weights.to(dtype), case, bugs, seed)
    if bugs("E1", "v-scaled"):
        v = v * bugs("E1").parameters["factor"]
    context = weights @ v

    (context,) = exchange_axes(bugs, context)
    if bugs("H4", "mean-output"):
        context = context.mean(1, keepdim=True).expand_as(context)
    return Result(staged(context, case, bugs), *inputs, weights, lse)


def heads(case, bugs, dtype):
    if case.projections:
        q, k, v = project(case, bugs, dtype)
    elif bugs("H1") or bugs("H5", "split", "both"):
        q, k, v = (merge(t.to(dtype), NO_BUGS) for t in (case.q, case.k, case.v))
    else:
        return case.q.to(dtype), case.k.to(dtype), case.v.to(dtype)
    return split(q, case.H, bugs), split(k, case.Hkv, bugs), split(v, case.Hkv, bugs)


def for_every_query_head(k, v, case, bugs):
    group = case.H // case.Hkv
    if bugs("G1", "tiled"):
        return k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
    if bugs("G1", "keys-tiled"):
        return k.repeat(1, group, 1, 1), v.repeat_interleave(group, dim=1)
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def exchange_axes(bugs, *tensors):
    """H3: the axis that is attended over is not the one that the code believes it to be."""
    if bugs("H3", "over-batch"):
        return tuple(t.transpose(0, 2) for t in tensors)
    if bugs("H3", "over-heads"):
        return tuple(t.transpose(1, 2) for t in tensors)
    return tensors


def scale_of(case, bugs):
    scale = case.true_scale
    if bugs("S1") or bugs("S4"):
        return 1.0
    if bugs("S2"):
        return 1 / math.sqrt(case.H * case.Dk)
    if bugs("S3", "twice"):
        return scale * scale
    if bugs("S3", "inverted"):
        return 1 / scale
    if bugs("S3", "constant"):
        return bugs("S3").parameters["scale"]
    return scale


def scaled_scores(q, k, case, bugs, style):
    scale = scale_of(case, bugs)
    if bugs("N3"):
        raw = q @ k.transpose(-2, -1)  # +-inf above 65,504 in float16
        if bugs("N3", "saturated"):
            raw = torch.nan_to_num(raw)
        return raw * scale
    if style == "fused" and q.dtype != torch.float64:
        q, k = q.float(), k.float()
    raw = q @ k.transpose(-2, -1)
    if bugs("E1", "bias-scaled"):
        return (raw + case.bias.to(raw.dtype)) * scale
    return raw * scale


def capped(scores, cap):
    return cap * torch.tanh(scores / cap)


def modified(scores, case, bugs):
    """Softcap, bias, ALiBi."""
    if case.softcap and not bugs("E1", "softcap-missing", "softcap-after-mask"):
        scores = capped(scores, case.softcap)
    if case.bias is not None and not bugs("E1", "bias-scaled"):
        scores = scores + case.bias.to(scores.dtype)
    if case.alibi_slopes is not None:
        scores = scores + alibi(case, bugs).to(scores.dtype)
    return scores


def alibi(case, bugs):
    slopes, offset = case.alibi_slopes, case.offset
    if bugs("E1", "alibi-slope-from-zero"):
        slopes = slopes * slopes.max().pow(-1)  # 2^(-8i/H) from i = 0
    elif bugs("E1", "alibi-slope-one-for-all"):
        slopes = slopes[:1].expand_as(slopes)
    elif bugs("E1", "alibi-sign"):
        slopes = -slopes
    if bugs("E1", "alibi-corner"):
        offset = bugs("E1").parameters["offset"]
    query, key = query_key_positions(case, offset)
    return -slopes[None, :, None, None] * (query - key).abs()


def softmax(scores, case, bugs):
    """Weights and log-sum-exp of the visible scores."""
    parts = visible_parts(case, bugs)
    left_out = None  # visibility that M3 and M4 treat wrongly
    for bug in (bugs("M3"), bugs("M4")):
        if bug:
            wrong = list(parts) if bug.parameters["part"] == "all" else [bug.parameters["part"]]
            left_out = everything({name: parts[name] for name in wrong if name in parts}, case)
            parts = {name: part for name, part in parts.items() if name not in wrong}
    if bugs("M4", "times-mask"):
        scores = scores * left_out
    elif bugs("M4", "tiny-fill"):
        scores = scores.masked_fill(~left_out, -1e-9)
    elif bugs("M4", "tiny-added"):
        scores = scores + (~left_out).to(scores.dtype) * -1e-9
    elif bugs("M4", "one-zero-added"):
        scores = scores + left_out.to(scores.dtype)

    scores = filled(scores, parts, case, bugs)
    if bugs("E1", "softcap-after-mask"):
        scores = capped(scores, case.softcap)
    if case.sink is not None and not bugs("E1", "sink-missing"):
        sink = case.sink.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), dim=-1)
    if bugs("N1"):
        tile = bugs("N1").parameters["tile"]
        scores = functional.pad(scores, (0, -case.S % tile))  # k padded with zeros, and not masked

    weights, lse = normalised(scores, bugs)
    weights = weights[..., : case.S] if not bugs("H3") else weights
    if parts:
        empty = ~everything(parts, case).any(-1, keepdim=True)
        weights = weights.masked_fill(empty, 0) if empty_row(case, bugs) == "zero" else weights
        lse = lse.masked_fill(empty[..., 0], -math.inf) if case.sink is None else lse
    if bugs("M3"):
        weights = weights * left_out
    return weights, lse


def empty_row(case, bugs):
    return bugs("M6").parameters["gives"] if bugs("M6") else case.empty_row


def filled(scores, parts, case, bugs):
    if not parts:
        return scores
    lowest = torch.finfo(scores.dtype).min
    if bugs("M5", "overflow"):
        # Parts added one by one: two, or one and a negative score, pass the lowest number.
        for part in parts.values():
            scores = scores + (~part).to(scores.dtype) * lowest
        return scores
    fill = lowest if empty_row(case, bugs) == "mean" else -math.inf
    if bugs("M5", "finite"):
        fill = bugs("M5").parameters["fill"]
    return scores.masked_fill(~everything(parts, case), fill)


def normalised(scores, bugs):
    if bugs("N2", "exp2"):
        # exp2 for exp, without the factor log2 e
        highest = scores.amax(-1, keepdim=True)
        weights = torch.exp2(scores - highest)
        total = weights.sum(-1, keepdim=True)
        return weights / total, (highest + torch.log2(total)).squeeze(-1)
    axis = {"queries": -2, "heads": 1, "batch": 0}[bugs("X1").variant] if bugs("X1") else -1
    lse = scores.double().logsumexp(-1)
    if bugs("N2", "lse-base-2"):
        lse = lse / math.log(2)
    return torch.softmax(scores, dim=axis), lse


def spoiled(weights, case, bugs, seed):
    """What goes wrong between the softmax and the values."""
    if bugs("S4"):
        weights = weights * case.true_scale
    if bugs("D1"):
        torch.manual_seed(seed)
        weights = functional.dropout(weights, bugs("D1").parameters["rate"], training=True)
    if bugs("H4", "mean-weights"):
        weights = weights.mean(1, keepdim=True).expand_as(weights)
    if bugs("X2"):
        weights = weights.transpose(-2, -1)
    return weights


def staged(context, case, bugs):
    if case.stage == "heads":
        return context
    merged = merge(context, bugs)
    if case.stage == "projected" or bugs("Q4", "output-projection-extra"):
        return output_projection(merged, case, bugs)
    return merged
