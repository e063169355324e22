"""Sizes and activations to draw from: random ones and the recorded layers of data/."""

from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file

DATA = Path(__file__).resolve().parents[3] / "data"
RANDOM = ("probe", "square", "gqa", "mqa", "cross", "tiny", "larger", "token-heads", "batch-heads")
REAL = ("minilm-layer0", "minilm-layer4", "smollm2-layer11")


def pairwise_different(rng):
    """What separates most classes: no size equals another."""
    while True:
        kv_heads, group = int(rng.integers(2, 4)), int(rng.integers(2, 4))
        keys = int(rng.integers(8, 26))
        sizes = dict(
            B=int(rng.integers(2, 6)),
            H=kv_heads * group,
            Hkv=kv_heads,
            T=int(rng.integers(5, keys)),
            S=keys,
            Dk=2 * int(rng.integers(2, 9)),
            Dv=int(rng.integers(3, 14)),
        )
        if len(set(sizes.values())) == len(sizes):
            return sizes


def draw_sizes(rng, shape):
    def between(low, high):
        return int(rng.integers(low, high + 1))

    if shape == "probe":
        return pairwise_different(rng)
    width = 2 * between(2, 8)
    tokens = between(4, 22)
    kv_heads, group = between(2, 3), between(2, 3)
    sizes = dict(B=between(2, 4), H=between(2, 5), T=tokens, S=tokens, Dk=width, Dv=width)
    if shape == "gqa":
        sizes |= dict(H=kv_heads * group, Hkv=kv_heads, Dv=between(3, 16))
    elif shape == "mqa":
        sizes |= dict(H=between(2, 6), Hkv=1)
    elif shape == "cross":
        sizes |= (
            dict(S=tokens + between(1, 9)) if rng.random() < 0.6 else dict(T=tokens + between(1, 9))
        )
    elif shape == "tiny":
        sizes |= dict(B=between(1, 2), H=between(1, 3), T=between(1, 2), S=between(1, 3))
        sizes |= dict(Dk=2 * between(1, 4), Dv=between(1, 5))
    elif shape == "larger":
        tokens = between(150, 210)
        sizes |= dict(B=between(1, 2), H=2, T=tokens, S=tokens)
    elif shape == "token-heads":
        tokens = between(3, 8)
        sizes |= dict(H=tokens, T=tokens, S=tokens)
    elif shape == "batch-heads":
        sizes |= dict(B=sizes["H"])
    sizes.setdefault("Hkv", sizes["H"])
    return sizes


@cache
def layer(name):
    return {
        key: t.double() if t.is_floating_point() else t
        for key, t in load_file(DATA / f"{name}.safetensors").items()
    }


def real_activations(rng, shape, whole=False):
    """q, k, v and what belongs to them: some samples, heads, tokens of a recorded layer, or all."""
    stored = layer(shape)
    before_rotary = "q_before_rope" in stored
    q, k = (stored[n + "_before_rope"] if before_rotary else stored[n] for n in "qk")
    found = dict(q=q, k=k, v=stored["v"], keep=stored["attention_mask"].bool())
    found["positions"] = stored["position_ids"] if before_rotary else None
    if whole:
        return found
    samples, heads, length = q.shape[0], k.shape[1], q.shape[2]
    group = q.shape[1] // heads
    chosen = sorted(rng.choice(samples, int(rng.integers(2, samples + 1)), replace=False).tolist())
    kept = sorted(
        rng.choice(heads, int(rng.integers(2, min(heads, 4) + 1)), replace=False).tolist()
    )
    queries = [h * group + g for h in kept for g in range(group)]
    tokens = int(rng.integers(12, length + 1))
    tokens = slice(0, tokens) if shape.startswith("minilm") else slice(length - tokens, length)
    found |= dict(
        q=q[chosen][:, queries, tokens],
        k=k[chosen][:, kept, tokens],
        v=found["v"][chosen][:, kept, tokens],
    )
    found["keep"] = found["keep"][chosen, tokens]
    if before_rotary:
        found["positions"] = found["positions"][chosen, tokens]
    return found


def normal(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape))
