"""Draws a case: sizes, activations, rules."""

import math
from dataclasses import dataclass

import torch

from case import DTYPES, NO_BUGS, Case, Projections, QkNorm, Rotary
from shapes import REAL, draw_sizes, layer, normal, real_activations
from visibility import sees_a_key

COMBINATIONS = [
    (),
    ("causal",),
    ("padding",),
    ("causal", "padding"),
    ("window",),
    ("causal", "window"),
    ("causal", "prefix"),
    ("documents",),
    ("causal", "documents"),
    ("mask",),
    ("causal", "mask"),
    ("padding", "mask"),
    ("causal", "padding", "window"),
    ("causal", "padding", "prefix"),
    ("padding", "documents"),
]
MODIFIERS = ("scale", "softcap", "bias", "alibi", "sink", "rotary", "qk-norm")


@dataclass
class Wish:
    """What a case must have for a class to be visible; None leaves it to chance."""

    shapes: tuple = ("probe", "square", "gqa", "cross", "larger", *REAL)
    parts: tuple = ()  # rules that must be there
    some_part: bool = False
    only: tuple | None = None  # exactly these rules
    # of MODIFIERS; projections, packed, wo, biases, square-out, output-extra, one-width,
    # same-heads; plain: no modifiers but those asked for
    features: tuple = ()
    stage: str | None = None
    layout: str | None = None
    empty_rows: bool = False
    policy: str | None = None
    gain: tuple = (1, 2)  # q is multiplied by something between
    value_gain: float = 1
    dtypes: tuple = tuple(DTYPES)
    style: str | None = None
    carries: tuple = ()


def draw(rng, wish, dtype, shape):
    """A Case, or None where the dice contradict the wish."""
    case = Case(shape, "real" if shape in REAL else "random", dtype)
    found = activations(case, rng, wish)
    case.style = wish.style or str(rng.choice(["eager", "fused"]))
    parts = draw_parts(rng, wish, case)
    if parts is None:
        return None
    set_corner(case, rng, wish, parts)
    set_rules(case, rng, wish, parts, found)
    set_modifiers(case, rng, wish, found)
    set_presentation(case, rng, wish)
    round_inputs(case)
    if not finite(case):
        return None
    empty = not sees_a_key(case, NO_BUGS).all()
    if empty != wish.empty_rows and not (empty and left_padded(case)):
        return None
    set_policy(case, rng, wish, empty)
    return case


def left_padded(case):
    return case.shape == "smollm2-layer11" and case.padding is not None


def activations(case, rng, wish):
    features, gain = wish.features, float(rng.uniform(*wish.gain))
    if case.shape in REAL:
        found = real_activations(rng, case.shape, whole="projections" in features)
        case.q, case.k, case.v = (
            found["q"] * (gain if max(wish.gain) > 2 else 1),
            found["k"],
            found["v"],
        )
        case.v = case.v * wish.value_gain
        (B, H, T, Dk), (_, Hkv, S, _) = case.q.shape, case.k.shape
        case.sizes = dict(B=B, H=H, Hkv=Hkv, T=T, S=S, Dk=Dk, Dv=case.v.shape[-1])
        if "projections" in features:
            real_projections(case, features)
    else:
        found = {}
        case.sizes = s = draw_sizes(rng, case.shape)
        if "one-width" in features:
            s["Dv"] = s["Dk"]
        if "same-heads" in features:
            s["Hkv"] = s["H"]
        case.q = normal(rng, s["B"], s["H"], s["T"], s["Dk"]) * gain
        case.k = normal(rng, s["B"], s["Hkv"], s["S"], s["Dk"]) * float(rng.uniform(0.7, 1.5))
        case.v = normal(rng, s["B"], s["Hkv"], s["S"], s["Dv"]) + normal(rng, s["Dv"]) * 0.3
        case.v = case.v * wish.value_gain
        if "projections" in features:
            random_projections(case, rng, features)
    if "wo" in features and case.wo is None:
        width = case.H * case.Dv if "square-out" in features else int(rng.integers(5, 40))
        width = case.sizes["D"] if case.projections else width
        case.sizes["D"] = width
        case.wo = normal(rng, width, case.H * case.Dv) / math.sqrt(case.H * case.Dv)
        case.bo = normal(rng, width) * 0.5 if "biases" in features or rng.random() < 0.5 else None
    case.sizes.setdefault("D", case.H * case.Dv)
    return found


def real_projections(case, features):
    stored = layer(case.shape)
    weights = {n: stored[f"{n}_proj.weight"] for n in "qkv"}
    biases = {n: stored.get(f"{n}_proj.bias") for n in "qkv"}
    packing = "by-input" if "packed" in features else None
    case.projections = Projections(stored["x"], None, weights, biases, packing)
    case.sizes["D"] = stored["x"].shape[-1]
    case.q = case.k = case.v = None
    if "wo" in features:
        case.wo, case.bo = stored["o_proj.weight"], stored.get("o_proj.bias")


def random_projections(case, rng, features):
    s = case.sizes
    square = "square-out" in features
    s["D"] = s["H"] * s["Dk"] if square else int(rng.integers(6, 48))
    cross = s["T"] != s["S"]
    rows = dict(q=s["H"] * s["Dk"], k=s["Hkv"] * s["Dk"], v=s["Hkv"] * s["Dv"])
    weights = {n: normal(rng, r, s["D"]) * 1.2 / math.sqrt(s["D"]) for n, r in rows.items()}
    biased = "biases" in features or rng.random() < 0.4
    biases = {n: normal(rng, r) * 0.5 if biased else None for n, r in rows.items()}
    packing = None
    if "packed" in features:
        can_interleave = s["H"] == s["Hkv"] and s["Dk"] == s["Dv"]
        packing = str(rng.choice(["by-input", "by-head"])) if can_interleave else "by-input"
    x = normal(rng, s["B"], s["T"], s["D"])
    x_kv = normal(rng, s["B"], s["S"], s["D"]) if cross else None
    case.projections = Projections(x, x_kv, weights, biases, packing)
    case.q = case.k = case.v = None


def draw_parts(rng, wish, case):
    if wish.only is not None:
        return wish.only
    fitting = [c for c in COMBINATIONS if set(wish.parts) <= set(c) and (c or not wish.some_part)]
    if "plain" in wish.features and not wish.parts:
        fitting = [()]
    if case.T != case.S:
        fitting = [c for c in fitting if "documents" not in c]
    return fitting[int(rng.integers(len(fitting)))] if fitting else None


def set_corner(case, rng, wish, parts):
    case.corner = str(rng.choice(["top-left", "bottom-right", "number"]))
    room = case.S - case.T
    if room < 0 and not wish.empty_rows:
        case.corner = "top-left"
    case.offset = {"top-left": 0, "bottom-right": room}.get(case.corner)
    if case.offset is None:
        case.offset = int(rng.integers(min(0, room), max(0, room) + 1))
        case.corner = str(case.offset)


def set_rules(case, rng, wish, parts, found):
    B, T, S = case.B, case.T, case.S
    case.causal = "causal" in parts
    if "prefix" in parts:
        case.prefix = torch.from_numpy(rng.integers(1, max(2, S // 2), B))
    if "window" in parts:
        left = int(rng.integers(1, max(2, min(S // 2, 12))))
        one_sided = case.causal or rng.random() < 0.6
        case.window = (left, 0 if one_sided else int(rng.integers(0, max(1, S // 3))))
    if "padding" in parts:
        if found.get("keep") is not None:
            case.padding, case.padding_as = found["keep"], str(rng.choice(["keep", "drop"]))
        else:
            lengths = torch.from_numpy(rng.integers(max(1, S // 3), S + 1, B))
            lengths[int(rng.integers(B))] = S
            case.padding = torch.arange(S) < lengths[:, None]
            case.padding_as = str(rng.choice(["lengths", "keep", "drop"]))
            if wish.empty_rows and case.causal and rng.random() < 0.5:
                case.padding, case.padding_as = case.padding.flip(-1), "keep"  # padded on the left
            elif wish.empty_rows:
                case.padding[int(rng.integers(B))] = False
    if "documents" in parts:
        case.query_documents = torch.stack([documents(rng, T) for _ in range(B)])
        case.key_documents = case.query_documents
    if "mask" in parts:
        shape = [(B, case.H, T, S), (B, 1, T, S), (1, case.H, T, S), (1, 1, T, S), (B, 1, 1, S)]
        mask = torch.from_numpy(rng.random(shape[int(rng.integers(len(shape)))]) < 0.75)
        mask[..., 0] = True
        if wish.empty_rows:
            mask[:, :, int(rng.integers(mask.shape[2]))] = False
        case.mask, case.mask_as = mask, str(rng.choice(["keep", "drop"]))


def documents(rng, length):
    count = int(rng.integers(2, max(3, min(5, length // 2 + 1))))
    return torch.from_numpy(rng.integers(0, count, length)).sort().values


def set_modifiers(case, rng, wish, found):
    features = wish.features
    chance = 0.0 if "plain" in features else 0.08
    want = {m for m in MODIFIERS if m in features or rng.random() < chance}
    positions = found.get("positions")
    if positions is not None:
        want.add("rotary")  # the layer was trained with them
    if "plain" in features:
        want &= set(features) | ({"rotary"} if positions is not None else set())
    B, H, T, S, Dk = case.B, case.H, case.T, case.S, case.Dk
    if "scale" in want:
        case.scale = float(rng.choice([0.2, 0.1, 0.3])) * float(rng.uniform(0.8, 1.2))
    if "softcap" in want:
        case.softcap = (
            float(rng.uniform(1.0, 4.0)) if "softcap" in features else float(rng.uniform(2, 30))
        )
    if "bias" in want:
        shape = [(B, H, T, S), (1, H, T, S), (1, 1, T, S), (B, 1, 1, S)][int(rng.integers(4))]
        case.bias = normal(rng, *shape)
    if "alibi" in want:
        case.alibi_slopes = 2.0 ** (-8.0 * torch.arange(1, H + 1, dtype=torch.float64) / H)
    if "sink" in want:
        case.sink = normal(rng, H) + 1
    if "qk-norm" in want:
        orders = ["before-rotary", "after-rotary"]
        weights = (1 + 0.3 * normal(rng, Dk) for _ in range(2))
        case.qk_norm = QkNorm(*weights, 1e-6, orders[int(rng.integers(2))])
    if "rotary" in want:
        set_rotary(case, rng, positions)


def set_rotary(case, rng, positions):
    width = case.Dk if rng.random() < 0.7 or case.Dk < 8 else 2 * int(rng.integers(2, case.Dk // 2))
    base, pairing = float(rng.choice([1e2, 1e3, 1e4, 5e5])), str(
        rng.choice(["halves", "interleaved"])
    )
    if positions is not None:
        case.rotary = Rotary(1e5, case.Dk, "halves", positions, positions)
        return
    key = torch.arange(case.S).expand(case.B, -1)
    query = (torch.arange(case.T) + max(0, case.offset)).expand(case.B, -1)
    case.rotary = Rotary(base, width, pairing, query, key)


def set_presentation(case, rng, wish):
    has_output = case.wo is not None and "output-extra" not in wish.features
    case.stage = wish.stage or ("projected" if has_output else str(rng.choice(["heads", "merged"])))
    case.layout = wish.layout or str(rng.choice(["BHTD", "BHTD", "BTHD", "TBHD", "BTD", "TBD"]))
    four, three = ["BHTD", "BTHD", "TBHD"], ["BTD", "TBD"]
    case.out_layout = str(rng.choice(four if case.stage == "heads" else three))
    case.carries = set(wish.carries)
    if "gradients" in case.carries:
        case.dout = normal(rng, case.B, case.H, case.T, case.Dv)


def rounded(t, dtype):
    return t.to(DTYPES[dtype]).double() if t is not None else None


def round_inputs(case):
    for name in ("q", "k", "v", "wo", "bo", "bias", "sink", "dout"):
        setattr(case, name, rounded(getattr(case, name), case.dtype))
    if case.alibi_slopes is not None:
        case.alibi_slopes = case.alibi_slopes.float().double()
    if case.qk_norm:
        case.qk_norm.query_weight = rounded(case.qk_norm.query_weight, case.dtype)
        case.qk_norm.key_weight = rounded(case.qk_norm.key_weight, case.dtype)
    p = case.projections
    if p:
        p.x, p.x_kv = rounded(p.x, case.dtype), rounded(p.x_kv, case.dtype)
        p.weights = {n: rounded(w, case.dtype) for n, w in p.weights.items()}
        p.biases = {n: rounded(b, case.dtype) for n, b in p.biases.items()}


def finite(case):
    """float16 holds no more than 65,504."""
    p = case.projections
    projected = [p.x, p.x_kv, *p.weights.values(), *p.biases.values()] if p else []
    given = [case.q, case.k, case.v, case.wo, case.bo, case.bias, *projected]
    return all(t is None or t.isfinite().all() for t in given)


def set_policy(case, rng, wish, empty):
    policies = ["zero", "mean", "nan"] if case.sink is None else ["zero"]
    case.empty_row = wish.policy or str(rng.choice(policies))
    case.empty_row_as = case.empty_row
    padded_queries = case.padding is not None and case.T == case.S
    if empty and left_padded(case) and not wish.empty_rows:
        case.empty_row_as = "any"
    if padded_queries and not wish.empty_rows and rng.random() < 0.12:
        case.read_rows = case.padding
