"""Writes the expected values of the attributions' tests, goldens/*.safetensors, with PyTorch's autograd, Captum, networkx and SciPy.

Run it in the virtual environment, with captum==0.9.0 besides: python tests/explain/make_explain_goldens.py
"""

import sys
from pathlib import Path

import captum.attr
import captum.metrics
import networkx
import scipy.stats
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "model"))
from make_torch_goldens import draw  # noqa: E402
from torch_decoder import Decoder  # noqa: E402
from torch.nn import functional as F  # noqa: E402

TOKENS, VOCABULARY, WIDTH, HEADS, LAYERS = 6, 11, 12, 3, 2
TOKEN, AGAINST = 4, 7


class Explained:
    """A decoder that starts from embeddings, tells its weights and goes without parts."""

    def __init__(self, decoder, target="logit"):
        self.decoder, self.target = decoder, target

    def embed(self, tokens):
        x = self.decoder.token_embedding(tokens)
        if self.decoder.position_embedding is not None:
            x = x + self.decoder.position_embedding.weight[: len(tokens)]
        return x[None]

    def baseline(self, count):
        x = self.decoder.token_embedding.weight.mean(0).expand(count, -1)
        if self.decoder.position_embedding is not None:
            x = x + self.decoder.position_embedding.weight[:count]
        return x[None]

    def layers(self, x, hidden=(), zeroed=(), layer=None, heads=(), parts=()):
        """Yields what each layer reads, its weights, and then the last residual stream."""
        for i, block in enumerate(self.decoder.blocks):
            here = layer is None or layer == i
            keep = torch.ones(x.shape[:2], dtype=torch.bool)
            if here:
                keep[:, list(hidden)] = False
            dead = [h for at, h in heads if at == i]

            def without_values(module, inputs, output, here=here):
                output = output.clone()
                if here:
                    output[:, list(zeroed)] = 0
                return output

            def without_heads(module, inputs, dead=dead):
                merged = inputs[0].clone()
                for h in dead:
                    merged[..., h * (WIDTH // HEADS) : (h + 1) * (WIDTH // HEADS)] = 0
                return (merged,)

            hooks = [
                block.attention.v_proj.register_forward_hook(without_values),
                block.attention.o_proj.register_forward_pre_hook(without_heads),
            ]
            added, weights = block.attention(block.attention_norm(x), keep)
            for hook in hooks:
                hook.remove()
            yield x, weights
            middle = 0
            if (i, "attention_skip") not in parts:
                middle = middle + x
            if (i, "attention") not in parts:
                middle = middle + added
            if isinstance(middle, int):
                middle = torch.zeros_like(x)
            mlp = block.mlp_out(F.gelu(block.mlp_in(block.mlp_norm(middle))))
            x = torch.zeros_like(x)
            if (i, "mlp_skip") not in parts:
                x = x + middle
            if (i, "mlp") not in parts:
                x = x + mlp
        yield x, None

    def __call__(self, x, **without):
        *_, (x, _) = self.layers(x, **without)
        return self.score(x)

    def score(self, x):
        x = self.decoder.final_norm(x[:, -1])
        head = self.decoder.token_embedding.weight if self.decoder.head is None else self.decoder.head.weight
        logits = F.linear(x, head)
        if self.target == "difference":
            return logits[:, TOKEN] - logits[:, AGAINST]
        if self.target == "log_probability":
            return logits.log_softmax(-1)[:, TOKEN]
        return logits[:, TOKEN]


def of_weights(model, x):
    """What reads attention weights, and their derivatives."""
    x = x.detach().requires_grad_()
    *layers, (last, _) = model.layers(x)
    for _, weights in layers:
        weights.retain_grad()
    target = model.score(last)
    target.sum().backward()
    values = {"target": target, "gradient.embeddings": x.grad[0]}
    rollout, relevance = torch.eye(TOKENS).double(), torch.eye(TOKENS).double()
    steps, norms, raw = [], [], []
    for i, (residual, weights) in enumerate(layers):
        block = model.decoder.blocks[i].attention
        values[f"residual.{i}"] = residual[0]
        values[f"weights.{i}"] = weights[0]
        values[f"gradient.weights.{i}"] = weights.grad[0]
        mean = weights[0].mean(0)
        raw.append(mean)
        steps.append(0.5 * mean + 0.5 * torch.eye(TOKENS))
        rollout = steps[-1] @ rollout
        positive = (weights[0] * weights.grad[0]).clamp(min=0).mean(0)
        values[f"gradient_times_attention.{i}"] = positive.sum(0)
        relevance = relevance + positive @ relevance

        normed = model.decoder.blocks[i].attention_norm(residual)
        v = block.v_proj(normed).view(TOKENS, block.kv_heads, -1).transpose(0, 1)
        v = v.repeat_interleave(block.heads // block.kv_heads, 0)
        out = block.o_proj.weight.view(WIDTH, HEADS, -1)
        delivered = torch.einsum("hts,hsd,ohd->htso", weights[0], v, out)
        values[f"norms.{i}"] = delivered.sum(0).norm(dim=-1)
        values[f"norms.{i}.1"] = delivered[1].norm(dim=-1)
        norms.append(values[f"norms.{i}"])
    values["raw"] = torch.stack(raw).mean(0)[-1]
    values["raw.1"] = raw[1][-1]
    values["attention_times_norm"] = torch.stack(norms).mean(0)[-1]
    values["rollout"] = rollout
    values["gradient_attention_rollout"] = relevance[-1]
    values["flow"] = flows(steps)
    return values


def flows(steps):
    graph = networkx.DiGraph()
    for i, step in enumerate(steps):
        for t in range(TOKENS):
            for s in range(TOKENS):
                graph.add_edge((i + 1, t), (i, s), capacity=step[t, s].item())
    source = (len(steps), TOKENS - 1)
    return torch.tensor(
        [networkx.maximum_flow_value(graph, source, (0, s)) for s in range(TOKENS)], dtype=torch.float64
    )


# (name, keyword arguments of Explained.layers)
INTERVENTIONS = [
    ("hidden", {"hidden": [1, 3]}),
    ("hidden_first", {"hidden": [0]}),
    ("hidden_layer", {"hidden": [2], "layer": 1}),
    ("zeroed", {"zeroed": [0, 4]}),
    ("zeroed_layer", {"zeroed": [1], "layer": 0}),
    ("heads", {"heads": [(0, 1), (1, 2)]}),
    ("attention", {"parts": [(0, "attention")]}),
    ("attention_skip", {"parts": [(1, "attention_skip")]}),
    ("mlp", {"parts": [(1, "mlp")]}),
    ("mlp_skip", {"parts": [(0, "mlp_skip")]}),
    ("layer", {"parts": [(0, "attention"), (0, "mlp")]}),
    ("many", {"hidden": [1], "zeroed": [2, 3], "heads": [(1, 0)], "parts": [(0, "mlp")]}),
]


def of_interventions(model, tokens, x):
    values = {name: model(x, **without) for name, without in INTERVENTIONS}
    values = {f"intervention.{name}": value for name, value in values.items()}
    shorter = tokens[[0, 2, 3, 5]]
    values["intervention.removed"] = model(model.embed(shorter))
    values["intervention.removed_and_hidden"] = model(model.embed(shorter), hidden=[1])
    plain = model(x)

    def falls(runs):
        return torch.cat([plain - run for run in runs])

    alone = range(TOKENS)
    values["occlusion.hide_key"] = falls(model(x, hidden=[t]) for t in alone)
    values["occlusion.zero_value"] = falls(model(x, zeroed=[t]) for t in alone)
    removed = [model(model.embed(torch.cat([tokens[:t], tokens[t + 1 :]]))) for t in range(TOKENS - 1)]
    values["occlusion.remove_token"] = falls([*removed, plain])
    return values


def of_captum(model, x, baseline):
    per_token = torch.arange(TOKENS)[None, :, None].expand(1, TOKENS, WIDTH)
    values = {"input_times_gradient": captum.attr.InputXGradient(model).attribute(x.detach().requires_grad_())}
    integrated = captum.attr.IntegratedGradients(model)
    for steps in (7, 14, 28, 56):
        scores = integrated.attribute(x, baseline, n_steps=steps, method="riemann_middle", internal_batch_size=8)
        values[f"integrated_gradients.{steps}"] = scores
    values = {name: value[0].sum(-1) for name, value in values.items()}
    ablation = captum.attr.FeatureAblation(model).attribute(x, baseline, feature_mask=per_token)
    values["occlusion.replace_token"] = ablation[0, :, 0]
    sliding = captum.attr.Occlusion(model).attribute(x, sliding_window_shapes=(1, WIDTH), baselines=baseline)
    # Captum weighs overlapping windows in float32.
    assert torch.allclose(sliding[0, :, 0].double(), ablation[0, :, 0], rtol=0, atol=1e-6)

    scores = values["integrated_gradients.28"]
    sets = torch.rand(20, TOKENS) < 0.5
    sets[:, -1] = False
    drawn = iter(sets)

    def perturb(inputs, baselines):
        masks = torch.stack([next(drawn) for _ in inputs]).double()[:, :, None].expand_as(inputs)
        return masks, inputs - masks * (inputs - baselines)

    spread = (scores / WIDTH)[None, :, None].expand_as(x)
    values["infidelity"] = captum.metrics.infidelity(
        model, perturb, x, spread, baselines=baseline, n_perturb_samples=len(sets), normalize=True
    )
    values["infidelity.sets"] = sets
    return values


def of_ranks(values):
    a, b = values["input_times_gradient"].detach(), values["occlusion.replace_token"].detach()
    tied = (2 * a / a.abs().max()).round()
    return {
        "tied": tied,
        "spearman": torch.tensor([scipy.stats.spearmanr(a, b)[0], scipy.stats.spearmanr(tied, b)[0]]),
        "kendall": torch.tensor([scipy.stats.kendalltau(a, b)[0], scipy.stats.kendalltau(tied, b)[0]]),
    }


def main():
    variants = {
        "learned": ({"heads": HEADS}, "logit"),
        "rotary": (
            {
                "heads": HEADS,
                "kv_heads": 1,
                "bias": True,
                "rotary": True,
                "window": 3,
                "tied": False,
                "rms": True,
            },
            "log_probability",
        ),
    }
    for name, (arguments, target) in variants.items():
        decoder = Decoder(VOCABULARY, TOKENS, WIDTH, LAYERS, 20, **arguments).double()
        draw(decoder)
        tokens = torch.randint(VOCABULARY, (TOKENS,))
        model = Explained(decoder, target)
        x, baseline = model.embed(tokens).detach(), model.baseline(TOKENS).detach()
        values = {"tokens": tokens, "difference": Explained(decoder, "difference")(x)}
        values |= {f"decoder.{key}": value for key, value in decoder.named_parameters()}
        values |= {"embeddings": x[0], "baseline": baseline[0]}
        values |= of_weights(model, x)
        with torch.no_grad():
            values |= of_interventions(model, tokens, x)
        values |= of_captum(model, x, baseline)
        values |= of_ranks(values)
        arrays = {key: value.detach().clone().contiguous() for key, value in values.items()}
        save_file(arrays, FOLDER / "goldens" / f"explain_{name}.safetensors")


if __name__ == "__main__":
    torch.manual_seed(17)
    (FOLDER / "goldens").mkdir(exist_ok=True)
    main()
