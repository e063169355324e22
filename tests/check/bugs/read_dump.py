"""Reads a dump by docs/dump.md alone, and computes what it should hold, in float64."""

import json
import math

import numpy as np
import torch
from safetensors import safe_open


def load(path):
    """Tensors in float64 (or as they are, where they are not real numbers) and metadata as text."""
    if path.suffix == ".npz":
        arrays = dict(np.load(path))
        told = {k: str(v) for k, v in json.loads(arrays.pop("metadata").tobytes()).items()}
        tensors = {name: torch.from_numpy(a) for name, a in arrays.items()}
    else:
        with safe_open(path, "pt") as file:
            told, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    return {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}, told


def four_axes(t, layout, heads):
    """[B,heads,length,width]"""
    if layout in ("BTD", "TBD"):
        t = t.transpose(0, 1) if layout == "TBD" else t
        return t.reshape(*t.shape[:2], heads, -1).transpose(1, 2)
    return t.permute({"BHTD": (0, 1, 2, 3), "BTHD": (0, 2, 1, 3), "TBHD": (1, 2, 0, 3)}[layout])


def projected(tensors, told, heads, kv_heads):
    x = tensors["x"]
    x_kv = tensors.get("x_kv", x)
    turned = told.get("weight_layout", "out-in") == "in-out"
    if "wqkv" in tensors:
        rows = tensors["wqkv"].T if turned else tensors["wqkv"]
        y = x @ rows.T + tensors.get("bqkv", 0)
        if told.get("packing", "by-input") == "by-head":
            q, k, v = y.reshape(*y.shape[:2], heads, 3, -1).unbind(3)
        else:
            width = y.shape[-1] // (heads + 2 * kv_heads)
            q, k, v = y.split([heads * width, kv_heads * width, kv_heads * width], -1)
        q, k, v = (t.flatten(2) for t in (q, k, v))
    else:
        w = {n: tensors[f"w{n}"].T if turned else tensors[f"w{n}"] for n in "qkv"}
        q = x @ w["q"].T + tensors.get("bq", 0)
        k, v = (x_kv @ w[n].T + tensors.get(f"b{n}", 0) for n in "kv")
    return four_axes(q, "BTD", heads), four_axes(k, "BTD", kv_heads), four_axes(v, "BTD", kv_heads)


def offset_of(told, queries, keys):
    corner = told.get("causal", "false")
    corner = told.get("corner", "top-left") if corner == "false" else corner
    named = {"true": 0, "top-left": 0, "bottom-right": keys - queries}
    return named[corner] if corner in named else int(corner)


def visible(tensors, told, sizes):
    batch, heads, queries, keys = sizes
    position = torch.arange(queries)[:, None] + offset_of(told, queries, keys)
    key = torch.arange(keys)[None, :]
    keep = torch.ones(batch, heads, queries, keys, dtype=torch.bool)
    if told.get("causal", "false") != "false":
        prefix = tensors.get("prefix", torch.zeros(batch, dtype=torch.int64))
        keep &= ((key <= position)[None] | (key[None] < prefix[:, None, None]))[:, None]
    if "window_left" in told:
        keep &= key >= position - int(told["window_left"])
    if "window_right" in told:
        keep &= key <= position + int(told["window_right"])
    if "lengths" in tensors:
        keep &= (key < tensors["lengths"][:, None])[:, None, None]
    if "key_padding" in tensors:
        keep &= (tensors["key_padding"].bool() == (told["key_padding_true"] == "keep"))[
            :, None, None
        ]
    if "mask" in tensors:
        keep &= tensors["mask"].bool() == (told["mask_true"] == "keep")
    if "query_documents" in tensors:
        documents = tensors["query_documents"]
        other = tensors.get("key_documents", documents)
        keep &= (documents[:, :, None] == other[:, None, :])[:, None]
    return keep


def rms(x, weight, told):
    return (
        x
        / (x.square().mean(-1, keepdim=True) + float(told.get("qk_norm_epsilon", 1e-6))).sqrt()
        * weight
    )


def turned(x, positions, told):
    width = int(told.get("rotary_width", x.shape[-1]))
    result = x.clone()
    halves = told.get("rotary_pairing", "halves") == "halves"
    for i in range(width // 2):
        a, b = (i, i + width // 2) if halves else (2 * i, 2 * i + 1)
        angle = positions.double()[:, None, :] * float(told["rotary_base"]) ** (-2 * i / width)
        result[..., a] = x[..., a] * angle.cos() - x[..., b] * angle.sin()
        result[..., b] = x[..., b] * angle.cos() + x[..., a] * angle.sin()
    return result


def placed(q, k, tensors, told):
    def norm(q, k):
        if "q_norm" not in tensors:
            return q, k
        return rms(q, tensors["q_norm"], told), rms(k, tensors["k_norm"], told)

    after = told.get("qk_norm_order", "before-rotary") == "after-rotary"
    q, k = (q, k) if after else norm(q, k)
    if "rotary_base" in told:
        q, k = turned(q, tensors["query_positions"], told), turned(
            k, tensors["key_positions"], told
        )
    return norm(q, k) if after else (q, k)


def expected(tensors, told):
    """`out` at its stage and in its layout, and the log-sum-exp."""
    heads, kv_heads = int(told["heads"]), int(told["kv_heads"])
    if "x" in tensors:
        q, k, v = projected(tensors, told, heads, kv_heads)
    else:
        layout = told.get("layout", "BHTD")
        q = four_axes(tensors["q"], layout, heads)
        k, v = (four_axes(tensors[n], layout, kv_heads) for n in "kv")
    width = q.shape[-1]
    q, k = placed(q, k, tensors, told)
    groups = torch.arange(heads) // (heads // kv_heads)
    k, v = k[:, groups], v[:, groups]
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * float(told.get("scale", 1 / math.sqrt(width)))
    if "softcap" in told:
        cap = float(told["softcap"])
        scores = cap * torch.tanh(scores / cap)
    scores = scores + tensors.get("bias", 0)
    batch, _, queries, keys = scores.shape
    if "alibi_slopes" in tensors:
        place = torch.arange(queries)[:, None] + offset_of(told, queries, keys)
        scores = (
            scores - tensors["alibi_slopes"][:, None, None] * (place - torch.arange(keys)).abs()
        )
    keep = visible(tensors, told, scores.shape)
    scores = scores.masked_fill(~keep, -math.inf)
    sink = (
        tensors["sink"][None, :, None, None]
        if "sink" in tensors
        else torch.tensor(-math.inf).double()
    )
    lse = torch.logaddexp(scores.logsumexp(-1, keepdim=True), sink.expand(batch, heads, queries, 1))
    context = (scores - lse).exp() @ v
    empty = ~keep.any(-1, keepdim=True)
    policy = told.get("empty_row", "zero")
    given = {"zero": 0.0, "nan": math.nan, "any": 0.0}.get(policy)
    fill = v.mean(2, keepdim=True) if given is None else torch.full((), given, dtype=v.dtype)
    context = torch.where(empty, fill, context)
    if told["out_stage"] == "heads":
        order = {"BHTD": (0, 1, 2, 3), "BTHD": (0, 2, 1, 3), "TBHD": (2, 0, 1, 3)}
        return context.permute(order[told["out_layout"]]), lse[..., 0], empty
    out = context.transpose(1, 2).flatten(2)
    if told["out_stage"] == "projected":
        weight = tensors["wo"].T if told.get("weight_layout") == "in-out" else tensors["wo"]
        out = out @ weight.T + tensors.get("bo", 0)
    return (out.transpose(0, 1) if told["out_layout"] == "TBD" else out), lse[..., 0], empty
