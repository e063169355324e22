"""Writes the expected values of the model's tests, goldens/*.safetensors, with PyTorch.

Run it in the virtual environment: python tests/model/make_torch_goldens.py
"""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch_decoder import Attention, Decoder, learning_rate, optimizer

FOLDER = Path(__file__).parent
TEXT = FOLDER.parents[1] / "data" / "alice.txt"


def save(name, tensors):
    arrays = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    save_file(arrays, FOLDER / "goldens" / f"{name}.safetensors")


def draw(module):
    """Weights of a size that keeps activations of the order of 1; norms around 1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(0.2 * torch.randn_like(parameter) + (1.0 if "norm.weight" in name else 0.0))
            else:
                parameter.copy_(torch.randn_like(parameter) / math.sqrt(parameter.shape[1]))


def record(module, prefix=""):
    values = {f"{prefix}{name}": p for name, p in module.named_parameters()}
    return values | {f"gradient.{prefix}{name}": p.grad for name, p in module.named_parameters()}


def padding(samples, tokens):
    """Left, right, none, in turn."""
    keep = torch.ones(samples, tokens, dtype=torch.bool)
    keep[0, :2] = False
    keep[1, tokens - 1 :] = False
    return keep


# Changes that a test knows by these names: the bugs, and what is another attention and no bug.
CHANGES = [
    ("none", {}),
    ("prefix", {}),
    ("scale", {}),
    ("cosine", {}),
    ("additive", {}),
    ("causal-dropped", {}),
    ("causal-off-by-one", {}),
    ("window-off-by-one", {"window": 2}),
    ("mask-after-softmax", {}),
    ("padding-dropped", {}),
    ("padding-filled", {}),
    ("padding-on-query-axis", {}),
    ("padding-on-head-axis", {}),
    ("scale-missing", {}),
    ("scale-twice", {}),
    ("softmax-over-queries", {}),
    ("merged-by-view", {}),
    ("kv-heads-tiled", {"kv_heads": 2}),
]


def changed_attention():
    samples, tokens, width, heads = 3, 4, 12, 4  # as many tokens as heads, for the head axis
    keep = padding(samples, tokens)
    tensors = {"keep": keep}
    for change, arguments in CHANGES:
        module = Attention(width, heads, bias=True, change=change, **arguments).double()
        draw(module)
        x = torch.randn(samples, tokens, width, dtype=torch.float64, requires_grad=True)
        output, weights = module(x, keep)
        output_gradient = torch.randn_like(output)
        output.backward(output_gradient)
        values = record(module, "attention.") | {
            "x": x,
            "gradient.x": x.grad,
            "weights": weights,
            "output": output,
            "output_gradient": output_gradient,
        }
        tensors |= {f"{change}.{name}": value for name, value in values.items()}
    save("changed_attention", tensors)


def decoders():
    samples, tokens, vocabulary = 3, 6, 11
    variants = {
        "learned": {"heads": 3},
        "rotary": {
            "heads": 3,
            "kv_heads": 1,
            "bias": True,
            "rotary": True,
            "window": 3,
            "tied": False,
            "rms": True,
        },
    }
    for name, arguments in variants.items():
        decoder = Decoder(vocabulary, tokens, 12, 2, 20, **arguments).double()
        draw(decoder)
        inputs = torch.randint(vocabulary, (10, samples, tokens))
        targets = torch.randint(vocabulary, (10, samples, tokens))
        targets[:, :, 2] = -1
        keep = padding(samples, tokens)
        targets[:, ~keep] = -1

        logits = decoder(inputs[0], keep)
        loss = decoder.loss(inputs[0], targets[0], keep)
        loss.backward()
        values = record(decoder)
        values = {key: value.detach().clone() for key, value in values.items()}
        values |= {"keep": keep, "tokens": inputs, "targets": targets, "logits": logits, "loss": loss}
        values |= ten_steps(decoder, inputs, targets, keep)
        save(f"decoder_{name}", values)


def ten_steps(decoder, inputs, targets, keep):
    """A batch a step, the gradients clipped to norm 1."""
    adamw = optimizer(decoder, lr=0.0, weight_decay=0.1)
    losses, norms = [], []
    for step in range(10):
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step, 10, 0.02, 3)
        adamw.zero_grad()
        loss = decoder.loss(inputs[step], targets[step], keep)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0).item())
        adamw.step()
        losses.append(loss.item())
    trained = {f"trained.{name}": p for name, p in decoder.named_parameters()}
    return trained | {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "norms": torch.tensor(norms, dtype=torch.float64),
    }


def text_training():
    """A small model on the text that comes with the program, in float32: each step's batch by where its sequences begin."""
    steps, samples, tokens, width = 300, 16, 32, 32
    text = torch.tensor(list(TEXT.read_bytes()))
    decoder = Decoder(128, tokens, width, 2, 4 * width, heads=4)
    draw(decoder)
    with torch.no_grad():
        decoder.token_embedding.weight.mul_(0.2)
        decoder.position_embedding.weight.mul_(0.2)
    values = {f"initial.{name}": p.detach().clone() for name, p in decoder.named_parameters()}
    split = len(text) * 9 // 10
    starts = torch.randint(split - tokens, (steps, samples))
    held_out = torch.randint(split, len(text) - tokens, (64,))

    def batch(at):
        rows = torch.stack([text[start : start + tokens + 1] for start in at])
        return rows[:, :-1], rows[:, 1:]

    adamw = optimizer(decoder, lr=0.0, weight_decay=0.01)
    losses = []
    for step in range(steps):
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step, steps, 3e-3, 20)
        adamw.zero_grad()
        loss = decoder.loss(*batch(starts[step]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        adamw.step()
        losses.append(loss.item())
    with torch.no_grad():
        final = decoder.loss(*batch(held_out))
    save(
        "text_training",
        values
        | {
            "starts": starts,
            "held_out": held_out,
            "losses": torch.tensor(losses, dtype=torch.float64),
            "held_out_loss": final.double(),
        },
    )
    print(f"text: first loss {losses[0]:.4f}, last {losses[-1]:.4f}, held out {final.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(17)
    (FOLDER / "goldens").mkdir(exist_ok=True)
    changed_attention()
    decoders()
    text_training()
