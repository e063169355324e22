"""Writes a case and what came out as a dump; docs/dump.md has the names."""

import json

import numpy as np
import torch
from safetensors.torch import save

from case import DTYPES, NO_BUGS
from projections import merge, pack


def laid_out(t, layout):
    """t [B,heads,length,width]"""
    if layout == "BTD":
        return merge(t, NO_BUGS)
    if layout == "TBD":
        return merge(t, NO_BUGS).transpose(0, 1)
    return t.permute({"BHTD": (0, 1, 2, 3), "BTHD": (0, 2, 1, 3), "TBHD": (2, 0, 1, 3)}[layout])


def out_laid_out(t, case):
    if case.stage == "heads":
        return laid_out(t, case.out_layout)
    return t.transpose(0, 1) if case.out_layout == "TBD" else t


def tensors_of(case, shown, stored, weight_layout="out-in"):
    """Everything by name: q, k, v as they were meant or, beside x and weights, as the code had them."""
    tensors = {}

    def put(name, t):
        if t is not None:
            tensors[name] = t.to(stored) if t.is_floating_point() else t

    for name in "qkv":
        t = shown.get(name, getattr(case, name))
        put(name, laid_out(t, case.layout) if t is not None else None)
    if case.projections:
        put_projections(put, case, weight_layout)
    put("wo", case.wo if weight_layout == "out-in" or case.wo is None else case.wo.T)
    put("bo", case.bo)
    put_rules(put, tensors, case)

    put("out", out_laid_out(shown["out"], case))
    if "out2" in shown:
        put("out2", out_laid_out(shown["out2"], case))
    if "weights" in shown:
        put("weights", shown["weights"])
    if "lse" in shown:
        tensors["lse"] = shown["lse"].to(torch.promote_types(stored, torch.float32))
    if "dq" in shown:
        dout = laid_out(case.dout, case.out_layout)
        put("dout", dout)
        for name in ("dq", "dk", "dv"):
            put(name, laid_out(shown[name], case.layout))
    return {name: t.clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}


def put_projections(put, case, weight_layout):
    p = case.projections
    put("x", p.x)
    put("x_kv", p.x_kv)
    turn = (lambda w: w) if weight_layout == "out-in" else (lambda w: w.T)
    if p.packing:
        put("wqkv", turn(pack([p.weights[n] for n in "qkv"], case, p.packing)))
        if p.biases["q"] is not None:
            put("bqkv", pack([p.biases[n] for n in "qkv"], case, p.packing))
        return
    for name in "qkv":
        put(f"w{name}", turn(p.weights[name]))
        put(f"b{name}", p.biases[name])


def put_rules(put, tensors, case):
    if case.padding is not None:
        if case.padding_as == "lengths":
            put("lengths", case.padding.sum(-1))
        else:
            put("key_padding", case.padding if case.padding_as == "keep" else ~case.padding)
    if case.mask is not None:
        put("mask", case.mask if case.mask_as == "keep" else ~case.mask)
    put("query_documents", case.query_documents)
    if case.key_documents is not None and case.T != case.S:
        put("key_documents", case.key_documents)
    put("prefix", case.prefix)
    put("bias", case.bias)
    put("sink", case.sink)
    if case.alibi_slopes is not None:
        tensors["alibi_slopes"] = case.alibi_slopes.float()
    if case.rotary:
        put("query_positions", case.rotary.query_positions)
        put("key_positions", case.rotary.key_positions)
    if case.qk_norm:
        put("q_norm", case.qk_norm.query_weight)
        put("k_norm", case.qk_norm.key_weight)
    put("read_rows", case.read_rows)


def metadata_of(case, tensors, weight_layout="out-in", lse_base="e"):
    """What was meant. Nothing in it depends on what the code did wrong."""
    told = {
        "dtype": case.dtype,
        "source": case.source,
        "out_stage": case.stage,
        "out_layout": case.out_layout,
    }
    told |= {"heads": case.H, "kv_heads": case.Hkv, "empty_row": case.empty_row_as}
    if "q" in tensors:
        told["layout"] = case.layout
    place = case.corner if case.T != case.S or case.offset else "true"
    if case.causal:
        told["causal"] = place
    elif case.window is not None or case.alibi_slopes is not None:
        told["corner"] = "top-left" if place == "true" else place
    if case.window is not None:
        for side, keys in zip(("left", "right"), case.window, strict=True):
            if keys is not None:
                told[f"window_{side}"] = keys
    if case.padding is not None and case.padding_as != "lengths":
        told["key_padding_true"] = case.padding_as
    if case.mask is not None:
        told["mask_true"] = case.mask_as
    for name in ("scale", "softcap"):
        if getattr(case, name) is not None:
            told[name] = getattr(case, name)
    if case.rotary:
        told |= {"rotary_base": case.rotary.base, "rotary_width": case.rotary.width}
        told["rotary_pairing"] = case.rotary.pairing
    if case.qk_norm:
        told |= {"qk_norm_epsilon": case.qk_norm.epsilon, "qk_norm_order": case.qk_norm.order}
    if case.projections and case.projections.packing:
        told["packing"] = case.projections.packing
    if case.projections or case.wo is not None:
        told["weight_layout"] = weight_layout
    if "lse" in tensors:
        told["lse_base"] = lse_base
    return told


def text(value):
    return repr(value) if isinstance(value, float) else str(value)


def write(path, tensors, metadata):
    """A safetensors file or, by its ending, an .npz file (which has no bfloat16)."""
    if path.suffix == ".npz":
        arrays = {name: t.numpy() for name, t in tensors.items()}
        told = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
        np.savez(path, **arrays, metadata=told)
        return
    path.write_bytes(save(tensors, {key: text(value) for key, value in metadata.items()}))


def storage(case, rng):
    """The dtype of the file: the one that ran, or float32 around a narrow one."""
    narrow = case.dtype in ("bfloat16", "float16")
    return torch.float32 if narrow and rng.random() < 0.25 else DTYPES[case.dtype]
