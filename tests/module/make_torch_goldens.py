"""Writes the expected values of the module's tests, goldens/*.safetensors, with PyTorch and NumPy.

Run it in the virtual environment: python tests/module/make_torch_goldens.py
"""

import math
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn

GOLDENS = Path(__file__).parent / "goldens"


def save(name, tensors, metadata=None):
    arrays = {
        key: np.ascontiguousarray(value.detach().numpy() if torch.is_tensor(value) else value)
        for key, value in tensors.items()
    }
    save_file(arrays, GOLDENS / f"{name}.safetensors", metadata)


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_(True)


def run(module, inputs, **arguments):
    """Forward and backward of nn.MultiheadAttention with random derivatives of output and weights."""
    sources = [inputs["query"], inputs.get("key", inputs["query"])]
    sources.append(inputs.get("value", sources[1]))
    output, weights = module(*sources, need_weights=True, average_attn_weights=False, **arguments)
    output_gradient = torch.randn_like(output)
    weights_gradient = torch.randn_like(weights)
    loss = (output * output_gradient).sum() + (weights * weights_gradient).sum()
    loss.backward()
    record = dict(inputs)
    record |= {f"module.{name}": p for name, p in module.named_parameters()}
    record |= {f"gradient.module.{name}": p.grad for name, p in module.named_parameters()}
    record |= {f"gradient.{name}": x.grad for name, x in inputs.items() if x.requires_grad}
    record["output"] = output
    record["weights"] = weights
    record["output_gradient"] = output_gradient
    record["weights_gradient"] = weights_gradient
    return record


def module_of(width, heads, **arguments):
    module = nn.MultiheadAttention(width, heads, batch_first=True, **arguments).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) / math.sqrt(width))
    return module


def attention_cases():
    batch, tokens, keys, width, heads = 2, 5, 7, 12, 3
    future = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), diagonal=1)
    padding = torch.tensor([[False] * 4 + [True], [False] * 5])

    cases = {}
    x = leaf(batch, tokens, width)
    cases["self"] = run(module_of(width, heads), {"query": x})

    x = leaf(batch, tokens, width)
    cases["causal_padded"] = run(
        module_of(width, heads, bias=False),
        {"query": x, "padding": padding},
        attn_mask=future,
        key_padding_mask=padding,
    )

    drop = torch.rand(tokens, keys) < 0.4
    drop[:, 2] = False
    cases["cross_boolean"] = run(
        module_of(width, heads, kdim=10, vdim=8),
        {
            "query": leaf(batch, tokens, width),
            "key": leaf(batch, keys, 10),
            "value": leaf(batch, keys, 8),
            "drop": drop,
        },
        attn_mask=drop,
    )

    bias = leaf(batch * heads, tokens, keys)
    cases["cross_bias"] = run(
        module_of(width, heads),
        {"query": leaf(batch, tokens, width), "key": leaf(batch, keys, width), "bias": bias},
        attn_mask=bias,
    )

    save(
        "nn_multihead_attention",
        {f"{case}.{name}": value for case, record in cases.items() for name, value in record.items()},
        {"num_heads": str(heads)},
    )


class Lesson(nn.Module):
    """Causal self attention with one matrix for queries, keys and values, as the lesson builds it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, padding):
        batch, tokens, width = x.shape
        heads = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) | padding[:, None, None, :]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        context = torch.einsum("bhts,bhsd->bthd", weights, v)
        return self.out(context.reshape(batch, tokens, width)), weights


def lesson():
    batch, tokens, width, heads = 2, 5, 16, 4
    module = Lesson(width, heads).double()
    x = leaf(batch, tokens, width)
    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    output, weights = module(x, padding)
    output.sum().backward()
    save(
        "lesson",
        {
            "query": x,
            "padding": padding,
            "output": output,
            "weights": weights,
            "gradient.query": x.grad,
            "module.qkv.weight": module.qkv.weight,
            "module.out.weight": module.out.weight,
            "gradient.module.qkv.weight": module.qkv.weight.grad,
            "gradient.module.out.weight": module.out.weight.grad,
        },
        {"num_heads": str(heads)},
    )


def rotary():
    """Pairs as complex numbers, times exp(i·angle)."""
    rng = np.random.default_rng(5)
    batch, heads, tokens, head_width = 2, 3, 4, 10
    x = rng.standard_normal((batch, heads, tokens, head_width))
    positions = np.array([[0, 1, 2, 3], [7, 0, 1000, 41]], dtype=np.int64)
    tensors = {"input": x, "positions": positions}
    for name, width, base in [("whole", head_width, 10000.0), ("part", 6, 500.0)]:
        frequencies = base ** (-np.arange(0, width, 2) / width)
        turn = np.exp(1j * positions[:, None, :, None] * frequencies)
        head = x[..., :width]
        halves = (head[..., : width // 2] + 1j * head[..., width // 2 :]) * turn
        pairs = (head[..., 0::2] + 1j * head[..., 1::2]) * turn
        rest = x[..., width:]
        tensors[f"{name}.halves"] = np.concatenate([halves.real, halves.imag, rest], axis=-1)
        interleaved = np.stack([pairs.real, pairs.imag], axis=-1).reshape(head.shape)
        tensors[f"{name}.interleaved"] = np.concatenate([interleaved, rest], axis=-1)
    save("rotary", tensors)


def rms_norm():
    x = leaf(2, 3, 4, 5)
    weight = leaf(5)
    output = nn.functional.rms_norm(x, (5,), weight, eps=1e-3)
    output_gradient = torch.randn_like(output)
    output.backward(output_gradient)
    save(
        "rms_norm",
        {
            "input": x,
            "weight": weight,
            "output": output,
            "output_gradient": output_gradient,
            "gradient.input": x.grad,
            "gradient.weight": weight.grad,
        },
    )


if __name__ == "__main__":
    torch.manual_seed(17)
    GOLDENS.mkdir(exist_ok=True)
    attention_cases()
    lesson()
    rotary()
    rms_norm()
