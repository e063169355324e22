"""Without a mistake the generator's attention is PyTorch's; with one it is not."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from attention import alibi, for_every_query_head, run
from case import NO_BUGS
from catalogue import IDS, INJECTIONS
from draw import COMBINATIONS, MODIFIERS, Wish, draw
from gradients import backward
from injected import one_dump
from implementations import torch_autograd
from positions import place
from visibility import everything, visible_parts


def drawn(wish, shape, seed, tries=200):
    for attempt in range(tries):
        case = draw(np.random.default_rng([seed, attempt]), wish, "float64", shape)
        if case is not None:
            return case
    raise AssertionError(f"{shape}: no case for {wish}")


def by_torch(case, keep):
    """scaled_dot_product_attention with all scores in the mask; the sink is an added key."""
    q, k = place(case.q, case.k, case, NO_BUGS)
    k, v = for_every_query_head(k, case.v, case, NO_BUGS)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * case.true_scale
    if case.softcap:
        scores = torch.tanh(scores / case.softcap) * case.softcap
    extra = 0 if case.bias is None else case.bias
    if case.alibi_slopes is not None:
        extra = extra + alibi(case, NO_BUGS)
    mask = (scores + extra).masked_fill(~keep, -math.inf)
    if case.sink is not None:
        sink = case.sink[None, :, None, None].expand(case.B, case.H, case.T, 1)
        mask, v = torch.cat([mask, sink], -1), functional.pad(v, (0, 0, 0, 1))
    nothing = torch.zeros(case.B, case.H, 1, 1, dtype=torch.float64)
    query, key = nothing.expand(-1, -1, case.T, 1), nothing.expand(-1, -1, mask.shape[-1], 1)
    return functional.scaled_dot_product_attention(query, key, v, attn_mask=mask)


def sees(case, b, h, t, s):
    """The rules, one query and one key at a time."""
    position = t + case.offset
    if case.causal and s > position and not (case.prefix is not None and s < case.prefix[b]):
        return False
    if case.window is not None:
        left, right = case.window
        if s < position - left or s > position + right:
            return False
    if case.padding is not None and not case.padding[b, s]:
        return False
    if case.mask is not None and not case.mask.expand(case.B, case.H, case.T, case.S)[b, h, t, s]:
        return False
    return case.query_documents is None or bool(
        case.query_documents[b, t] == case.key_documents[b, s]
    )


@pytest.mark.parametrize("parts", COMBINATIONS, ids="+".join)
@pytest.mark.parametrize("modifier", [None, *MODIFIERS])
def test_equals_torch(parts, modifier):
    shapes = (
        ["square", "gqa", "larger"] if "documents" in parts else ["probe", "square", "cross", "mqa"]
    )
    for seed, shape in enumerate(shapes):
        case = drawn(
            Wish(only=parts, features=(modifier,) if modifier else (), stage="heads"), shape, seed
        )
        keep = everything(visible_parts(case, NO_BUGS), case)
        torch.testing.assert_close(run(case).out, by_torch(case, keep), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts", COMBINATIONS, ids="+".join)
def test_visibility_follows_the_rules(parts):
    case = drawn(Wish(only=parts), "gqa" if "documents" in parts else "probe", 3)
    keep = everything(visible_parts(case, NO_BUGS), case).expand(case.B, case.H, case.T, case.S)
    places = np.random.default_rng(4).integers(0, keep.shape, (600, 4))
    for b, h, t, s in places.tolist():
        assert bool(keep[b, h, t, s]) == sees(case, b, h, t, s), (b, h, t, s)


def test_grouped_heads_share_keys_in_order():
    case = drawn(Wish(only=("causal",), features=("plain",), stage="heads"), "gqa", 5)
    mask = torch.ones(case.T, case.S, dtype=torch.bool).tril()
    expected = functional.scaled_dot_product_attention(
        case.q, case.k, case.v, attn_mask=mask, scale=case.true_scale, enable_gqa=True
    )
    torch.testing.assert_close(run(case).out, expected, rtol=1e-12, atol=1e-12)


def test_projections_equal_multi_head_attention():
    wish = Wish(
        only=("causal",),
        features=("plain", "projections", "wo", "biases", "one-width", "square-out"),
    )
    case = drawn(wish, "square", 6)
    layer = torch.nn.MultiheadAttention(case.D, case.H, batch_first=True, dtype=torch.float64)
    p = case.projections
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([p.weights[n] for n in "qkv"]))
        layer.in_proj_bias.copy_(torch.cat([p.biases[n] for n in "qkv"]))
        layer.out_proj.weight.copy_(case.wo)
        layer.out_proj.bias.copy_(case.bo)
        future = ~torch.ones(case.T, case.S, dtype=torch.bool).tril()
        expected, _ = layer(p.x, p.x, p.x, attn_mask=future, need_weights=False)
    torch.testing.assert_close(run(case).out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", ["probe", "gqa", "square"])
def test_gradients_equal_autograd(shape):
    case = drawn(Wish(features=("plain", "bias"), stage="heads"), shape, 7)
    expected = torch_autograd(case, np.random.default_rng(7))
    for name, gradient in zip(("dq", "dk", "dv"), backward(case), strict=True):
        torch.testing.assert_close(gradient, expected[name], rtol=1e-11, atol=1e-12)


def test_rotary_positions_turn_scores_by_distance():
    case = drawn(Wish(features=("rotary", "plain"), stage="heads"), "square", 8)
    moved = drawn(Wish(features=("rotary", "plain"), stage="heads"), "square", 8)
    moved.rotary.query_positions = moved.rotary.query_positions + 9
    moved.rotary.key_positions = moved.rotary.key_positions + 9
    torch.testing.assert_close(run(case).out, run(moved).out, rtol=1e-11, atol=1e-11)


def test_every_class_of_the_catalogue_is_there():
    expected = (
        [f"M{n}" for n in range(1, 14)]
        + [f"S{n}" for n in range(1, 5)]
        + ["X1", "X2", "G1", "G2", "E1", "D1"]
    )
    expected += (
        [f"H{n}" for n in range(1, 6)] + [f"Q{n}" for n in range(1, 5)] + ["R1", "R2", "R3", "B1"]
    )
    expected += ["N1", "N2", "N3"]
    assert sorted(IDS) == sorted(expected)


@pytest.mark.parametrize("injection", INJECTIONS, ids=lambda i: f"{i.id}-{i.variant}")
def test_every_mistake_shows(injection):
    for turn, dtype in enumerate(injection.wish.dtypes):
        made = one_dump(np.random.default_rng([9, turn]), [injection], turn, injection.wish.dtypes)
        assert made and made["record"]["shows"], f"{injection.id} {injection.variant} in {dtype}"
        assert made["case"].dtype == dtype
