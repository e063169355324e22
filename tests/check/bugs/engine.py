"""The engine as one more right implementation: make_dumps.py --plugin engine:engine.

QKV_ENGINE_BINDING names the shared library that engine_binding.cpp makes.
"""

import ctypes
import os
from functools import cache

import torch

from attention import heads, staged
from case import DTYPES, NO_BUGS
from implementations import declare_empty_row
from positions import place


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


ARRAYS = (
    *("query", "key", "value", "bias", "mask", "padding", "sink", "lengths", "prefix", "slopes"),
    *("query_documents", "key_documents", "context", "weights", "log_sum_exp"),
)


class Call(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_int32) for n in ("dtype", "causal", "windowed")),
        *((n, ctypes.c_int32) for n in ("mask_drops", "padding_drops")),
        *((n, ctypes.c_int64) for n in ("offset", "left", "right")),
        *((n, ctypes.c_double) for n in ("scale", "softcap")),
        *((n, Array) for n in ARRAYS),
    ]


@cache
def library():
    loaded = ctypes.CDLL(os.environ["QKV_ENGINE_BINDING"])
    loaded.qkv_engine_forward.argtypes = [
        ctypes.POINTER(Call),
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    return loaded


def array(t):
    """t with axes of extent 1 in front, up to four."""
    t = t[(None,) * (4 - t.dim())]
    return Array(t.data_ptr(), (ctypes.c_int64 * 4)(*t.shape), (ctypes.c_int64 * 4)(*t.stride()))


def tensors_of(case, context, weights, lse):
    """What a call points at."""
    dtype = DTYPES[case.dtype]
    q, k, v = heads(case, NO_BUGS, dtype)
    q, k = place(q, k, case, NO_BUGS)
    given = {"query": q, "key": k, "value": v, "context": context}
    given |= {"weights": weights, "log_sum_exp": lse, "prefix": case.prefix}
    if case.padding is not None and case.padding_as == "lengths":
        given["lengths"] = case.padding.sum(-1)
    elif case.padding is not None:
        given["padding"] = case.padding if case.padding_as == "keep" else ~case.padding
    if case.mask is not None:
        given["mask"] = case.mask if case.mask_as == "keep" else ~case.mask
    for name in ("bias", "sink"):
        t = getattr(case, name)
        given[name] = t.to(dtype) if t is not None else None
    given |= {"slopes": case.alibi_slopes, "query_documents": case.query_documents}
    given["key_documents"] = case.key_documents
    return {name: t for name, t in given.items() if t is not None}


def engine(case, rng):
    dtype = DTYPES[case.dtype]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rows = (case.B, case.H, case.T)
    context = torch.full((*rows, case.Dv), float("nan"), dtype=wide)
    weights = torch.empty(*rows, case.S, dtype=wide) if "weights" in case.carries else None
    lse = torch.empty(*rows, dtype=wide) if "lse" in case.carries else None
    given = tensors_of(case, context, weights, lse)
    left, right = ((-1 if n is None else n) for n in case.window or (None, None))
    call = Call(
        dtype=("float64", "float32", "float16", "bfloat16").index(case.dtype),
        causal=case.causal,
        windowed=case.window is not None,
        mask_drops=case.mask_as == "drop",
        padding_drops=case.padding_as == "drop",
        offset=case.offset,
        left=left,
        right=right,
        scale=case.true_scale,
        softcap=case.softcap or 0,
        **{name: array(t) for name, t in given.items()},
    )
    message = ctypes.create_string_buffer(500)
    if library().qkv_engine_forward(call, message, len(message)):
        raise RuntimeError(f"the engine: {message.value.decode()}")
    declare_empty_row(case, "zero")
    shown = {"out": staged(context.to(dtype), case, NO_BUGS)}
    if weights is not None:
        shown["weights"] = weights.to(dtype)
    return shown | {"lse": lse} if lse is not None else shown
