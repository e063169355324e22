"""Runs PyTorch's own attention for `qkv align`.

    python torch_align.py REQUEST.safetensors RESULTS.safetensors

The request's metadata "calls" is a JSON list of {"function", "heads", "inputs"}; the tensors of call i are
named "INPUTS.NAME", its results "i.NAME". src/check/peer.h says what the names mean. Prints the number of each
call before it runs. Exits with 3 where a package is missing.
"""

import json
import math
import platform
import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)


class LessonAttention(torch.nn.Module):
    """The lesson's section 5: one fused projection, causal, no biases."""

    def __init__(self, model_width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(model_width, 3 * model_width, bias=False)
        self.out = torch.nn.Linear(model_width, model_width, bias=False)

    def forward(self, x):
        batch, tokens, model_width = x.shape
        head_width = model_width // self.heads
        query, key, value = (
            part.view(batch, tokens, self.heads, head_width).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(head_width)
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(diagonal=1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        context = (weights @ value).transpose(1, 2).contiguous()
        return self.out(context.view(batch, tokens, model_width)), weights


def draw_lesson(heads, inputs):
    """The lesson's section 6: the same draws in the same order."""
    batch, tokens, model_width = 2, 5, 16
    torch.manual_seed(17)
    x = torch.randn(batch, tokens, model_width, dtype=torch.float64)
    mine = LessonAttention(model_width, heads).double()
    torch.nn.MultiheadAttention(model_width, heads, bias=False, batch_first=True).double()
    return {
        "query": x,
        "in_proj_weight": mine.qkv.weight,
        "out_proj.weight": mine.out.weight,
        "attn_mask": torch.ones(tokens, tokens, dtype=torch.bool).triu(diagonal=1),
        "output_gradient": torch.randn_like(x),
        "weights_gradient": torch.randn(batch, heads, tokens, tokens, dtype=x.dtype),
    }


def gradients(loss_name, loss, leaves):
    found = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)
    return {f"{loss_name}.{name}": gradient for name, gradient in zip(leaves, found)}


def run_lesson_class(heads, inputs):
    x = inputs["query"].requires_grad_()
    module = LessonAttention(x.shape[-1], heads).to(x.dtype)
    with torch.no_grad():
        module.qkv.weight.copy_(inputs["in_proj_weight"])
        module.out.weight.copy_(inputs["out_proj.weight"])
    leaves = {"query": x, "in_proj_weight": module.qkv.weight, "out_proj.weight": module.out.weight}
    output, weights = module(x)
    random = (output * inputs["output_gradient"]).sum()
    weighted = random + (weights * inputs["weights_gradient"]).sum()
    return {
        "output": output,
        "weights": weights,
        **gradients("sum", output.sum(), leaves),
        **gradients("random", random, leaves),
        **gradients("weighted", weighted, leaves),
    }


def make_module(heads, inputs):
    parameters = {name: tensor for name, tensor in inputs.items() if "proj" in name}
    query = inputs["query"]
    module = torch.nn.MultiheadAttention(
        query.shape[-1],
        heads,
        bias="in_proj_bias" in parameters,
        kdim=inputs.get("key", query).shape[-1],
        vdim=inputs.get("value", query).shape[-1],
        batch_first=True,
        dtype=query.dtype,
    )
    module.load_state_dict(parameters)
    return module


def run_module(heads, inputs):
    """Both ways through nn.MultiheadAttention: without the weights it takes its fused kernels."""
    module = make_module(heads, inputs)
    leaves = {n: inputs[n].requires_grad_() for n in ("query", "key", "value") if n in inputs}
    query = inputs["query"]
    tokens = (query, inputs.get("key", query), inputs.get("value", query))
    masks = {n: inputs[n] for n in ("attn_mask", "key_padding_mask") if n in inputs}
    if masks.get("attn_mask", query).dtype.is_floating_point and "key_padding_mask" in masks:
        # PyTorch wants both masks of one type: a float padding mask is added.
        masks["key_padding_mask"] = torch.zeros(
            masks["key_padding_mask"].shape, dtype=query.dtype
        ).masked_fill(masks["key_padding_mask"], float("-inf"))
    leaves.update(module.named_parameters())

    output, _ = module(*tokens, **masks, need_weights=False)
    results = {
        "output": output,
        **gradients("sum", output.sum(), leaves),
        **gradients("random", (output * inputs["output_gradient"]).sum(), leaves),
    }
    if "attn_mask" in masks and masks["attn_mask"].dtype.is_floating_point:
        leaves["attn_mask"] = masks["attn_mask"].requires_grad_()
    output, weights = module(*tokens, **masks, need_weights=True, average_attn_weights=False)
    loss = (output * inputs["output_gradient"]).sum() + (weights * inputs["weights_gradient"]).sum()
    return {
        **results,
        "output_with_weights": output,
        "weights": weights,
        **gradients("weighted", loss, leaves),
    }


FUNCTIONS = {
    "draw the lesson's case": draw_lesson,
    "the lesson's class": run_lesson_class,
    "nn.MultiheadAttention": run_module,
}


def main():
    request_path, results_path = sys.argv[1:]
    results = {}
    with safe_open(request_path, framework="pt") as request:
        names = request.keys()
        for i, call in enumerate(json.loads(request.metadata()["calls"])):
            print(i, flush=True)
            prefix = call["inputs"] + "."
            inputs = {n.removeprefix(prefix): request.get_tensor(n) for n in names if n.startswith(prefix)}
            if not inputs:  # those that an earlier call drew
                inputs = {
                    n.removeprefix(prefix): tensor.clone()
                    for n, tensor in results.items()
                    if n.startswith(prefix)
                }
            for name, tensor in FUNCTIONS[call["function"]](call["heads"], inputs).items():
                results[f"{i}.{name}"] = tensor.detach().contiguous()
    version = f"PyTorch {torch.__version__} in Python {platform.python_version()}"
    save_file(results, results_path, metadata={"version": version})


if __name__ == "__main__":
    main()
