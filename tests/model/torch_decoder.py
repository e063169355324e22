"""The decoder of src/model in PyTorch, and its attention with the bugs that can be injected, as they are written there."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def rotate(x, base=10000.0):
    """Rotary positions, pairs i and i + width/2, of [B,H,T,D]."""
    tokens, width = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    angles = torch.arange(tokens, dtype=x.dtype)[:, None] * frequencies
    a, b = x.chunk(2, dim=-1)
    return torch.cat(
        [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1
    )


class Attention(nn.Module):
    """Masks by masked_fill, −∞ by the rules first, then the padding; `change` is a name of attention_change.h."""

    def __init__(self, width, heads, kv_heads=None, bias=False, rotary=False, window=None, change=None):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.rotary, self.window, self.change = rotary, window, change
        self.head_width = width // heads
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head_width, bias=bias)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head_width, bias=bias)
        self.o_proj = nn.Linear(width, width, bias=bias)
        if change == "additive":
            self.matching = nn.Module()
            self.matching.weight = nn.Parameter(torch.empty(heads, self.head_width))

    def hidden(self, tokens):
        query = torch.arange(tokens)[:, None]
        key = torch.arange(tokens)[None, :]
        if self.change == "causal-dropped":
            return torch.zeros(tokens, tokens, dtype=torch.bool)
        if self.change == "prefix":
            return (key > query) & (key >= 2)
        ahead = 1 if self.change == "causal-off-by-one" else 0
        hidden = key > query + ahead
        if self.window is not None:
            extra = 1 if self.change == "window-off-by-one" else 0
            hidden = hidden | (query - key >= self.window + extra)
        return hidden

    def scores(self, q, k):
        if self.change == "cosine":
            q = q / (q.square().sum(-1, keepdim=True) + 1e-12).sqrt()
            k = k / (k.square().sum(-1, keepdim=True) + 1e-12).sqrt()
            return math.sqrt(self.head_width) * q @ k.mT
        if self.change == "additive":
            sums = torch.tanh(q[..., :, None, :] + k[..., None, :, :])
            return (sums * self.matching.weight[None, :, None, None, :]).sum(-1)
        scale = 1 / math.sqrt(self.head_width)
        scale = {"scale-missing": 1.0, "scale-twice": scale**2, "scale": 0.3}.get(self.change, scale)
        return scale * q @ k.mT

    def forward(self, x, keep):
        batch, tokens, width = x.shape
        change = self.change
        q = self.q_proj(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(batch, tokens, self.kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(batch, tokens, self.kv_heads, -1).transpose(1, 2)
        if self.rotary:
            q, k = rotate(q), rotate(k)
        group = self.heads // self.kv_heads
        if change == "kv-heads-tiled":
            k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

        scores = self.scores(q, k)
        hidden = self.hidden(tokens)[None, None].expand(scores.shape)
        drop = ~keep
        finite = {
            "padding-filled": drop[:, None, None, :],
            "padding-on-query-axis": drop[:, None, :, None],
            "padding-on-head-axis": drop[:, :, None, None],
        }.get(change)
        if finite is None and change != "padding-dropped":
            hidden = hidden | drop[:, None, None, :]
        if change != "mask-after-softmax":
            scores = scores.masked_fill(hidden, -math.inf)
        if finite is not None:
            scores = scores.masked_fill(finite, -1e9)

        axis = -2 if change == "softmax-over-queries" else -1
        # Lines that see nothing weigh nothing, and have no derivative.
        blind = (scores == -math.inf).all(axis, keepdim=True)
        weights = scores.masked_fill(blind, 0.0).softmax(axis).masked_fill(blind, 0.0)
        if change == "mask-after-softmax":
            weights = weights.masked_fill(hidden, 0.0)
        context = weights @ v
        if change != "merged-by-view":
            context = context.transpose(1, 2)
        return self.o_proj(context.reshape(batch, tokens, width)), weights


class Block(nn.Module):
    def __init__(self, norm, width, hidden, **attention):
        super().__init__()
        self.attention_norm = norm(width)
        self.attention = Attention(width, **attention)
        self.mlp_norm = norm(width)
        self.mlp_in = nn.Linear(width, hidden)
        self.mlp_out = nn.Linear(hidden, width)

    def forward(self, x, keep):
        x = x + self.attention(self.attention_norm(x), keep)[0]
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))


class Decoder(nn.Module):
    def __init__(self, vocabulary, context, width, layers, hidden, tied=True, rms=False, **attention):
        super().__init__()

        def norm(width):
            return nn.RMSNorm(width, eps=1e-5) if rms else nn.LayerNorm(width, eps=1e-5)

        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = None
        if not attention.get("rotary"):
            self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(norm, width, hidden, **attention) for _ in range(layers))
        self.final_norm = norm(width)
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, keep=None):
        if keep is None:
            keep = torch.ones_like(tokens, dtype=torch.bool)
        x = self.token_embedding(tokens)
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, keep)
        x = self.final_norm(x)
        return F.linear(x, self.token_embedding.weight) if self.head is None else self.head(x)

    def loss(self, tokens, targets, keep=None):
        logits = self(tokens, keep)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def optimizer(decoder, **arguments):
    """AdamW that leaves norms and biases undecayed."""
    matrices = [p for p in decoder.parameters() if p.dim() > 1]
    vectors = [p for p in decoder.parameters() if p.dim() == 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, **arguments)


def learning_rate(step, steps, peak, warmup, last_share=0.1):
    if step < warmup:
        return peak * (step + 1) / warmup
    done = min((step - warmup) / max(steps - 1 - warmup, 1), 1.0)
    return peak * (last_share + (1 - last_share) * 0.5 * (1 + math.cos(math.pi * done)))
