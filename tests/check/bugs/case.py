"""What an attention is given and what it is meant to do: the truth that a dump's metadata tell."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass
class Rotary:
    base: float
    width: int
    pairing: str  # halves, interleaved
    query_positions: torch.Tensor  # [B,T]
    key_positions: torch.Tensor  # [B,S]


@dataclass
class QkNorm:
    query_weight: torch.Tensor  # [Dk]
    key_weight: torch.Tensor
    epsilon: float = 1e-6
    order: str = "before-rotary"


@dataclass
class Projections:
    """Weights are [out, in]."""

    x: torch.Tensor  # [B,T,D]
    x_kv: torch.Tensor | None  # [B,S,D]
    weights: dict  # q, k, v
    biases: dict  # q, k, v: tensor or None
    packing: str | None = None  # by-input, by-head: the file holds one wqkv

    @property
    def key_input(self):
        return self.x if self.x_kv is None else self.x_kv


@dataclass
class Case:
    """Tensors are float64 and hold values of `dtype`."""

    shape: str
    source: str
    dtype: str
    q: torch.Tensor | None = None  # [B,H,T,Dk]
    k: torch.Tensor | None = None  # [B,Hkv,S,Dk]
    v: torch.Tensor | None = None  # [B,Hkv,S,Dv]
    sizes: dict = field(default_factory=dict)  # B H Hkv T S Dk Dv D
    projections: Projections | None = None
    wo: torch.Tensor | None = None  # [D,H·Dv]
    bo: torch.Tensor | None = None

    causal: bool = False
    offset: int = 0  # key position of query 0
    corner: str = "top-left"  # what the metadata call it
    prefix: torch.Tensor | None = None  # [B]
    window: tuple | None = None  # keys on the left, on the right; None is unbounded
    padding: torch.Tensor | None = None  # [B,S], true: takes part
    padding_as: str = "lengths"  # lengths, keep, drop
    mask: torch.Tensor | None = None  # broadcasts to [B,H,T,S], true: takes part
    mask_as: str = "keep"
    query_documents: torch.Tensor | None = None
    key_documents: torch.Tensor | None = None

    scale: float | None = None
    softcap: float | None = None
    bias: torch.Tensor | None = None
    alibi_slopes: torch.Tensor | None = None  # [H]
    sink: torch.Tensor | None = None  # [H]
    rotary: Rotary | None = None
    qk_norm: QkNorm | None = None

    empty_row: str = "zero"  # what the code gives: zero, mean, nan
    empty_row_as: str = "zero"  # what the metadata say; or any
    read_rows: torch.Tensor | None = None  # [B,T]
    style: str = "eager"  # scores rounded to the dtype, or kept in float32: fused

    stage: str = "heads"  # heads, merged, projected
    layout: str = "BHTD"
    out_layout: str = "BHTD"
    carries: set = field(default_factory=set)  # gradients, lse, weights, out2, heads
    dout: torch.Tensor | None = None  # [B,H,T,Dv]

    def __getattr__(self, name: str) -> Any:
        sizes = self.__dict__.get("sizes", {})
        if name in sizes:
            return sizes[name]
        raise AttributeError(name)

    @property
    def true_scale(self):
        return 1 / math.sqrt(self.Dk) if self.scale is None else self.scale

    @property
    def parts(self):
        """Names of the rules that hide keys."""
        have = {
            "causal": self.causal,
            "prefix": self.prefix is not None,
            "window": self.window is not None,
            "padding": self.padding is not None,
            "documents": self.query_documents is not None,
            "mask": self.mask is not None,
        }
        return [name for name, there in have.items() if there]


@dataclass
class Bug:
    id: str
    variant: str = ""
    parameters: dict = field(default_factory=dict)


class Bugs:
    """What to get wrong: `bugs("M2")` is the Bug or None, `bugs("M8", "diagonal")` of a variant."""

    def __init__(self, *bugs):
        self.all = {bug.id: bug for bug in bugs}

    def __call__(self, identifier, *variants):
        bug = self.all.get(identifier)
        return bug if bug and (not variants or bug.variant in variants) else None


NO_BUGS = Bugs()
