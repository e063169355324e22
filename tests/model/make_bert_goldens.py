"""Writes goldens/bert, the folder of a tiny random BERT in float64, and goldens/bert.safetensors, what PyTorch computes with it.

Run it in the virtual environment: python tests/model/make_bert_goldens.py
"""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

FOLDER = Path(__file__).parent / "goldens"


def tiny():
    config = BertConfig(
        vocab_size=13,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=7,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config._attn_implementation = "eager"
    model = BertModel(config, add_pooling_layer=False).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                around = 1.0 if "LayerNorm.weight" in name else 0.0
                parameter.copy_(0.2 * torch.randn_like(parameter) + around)
            else:
                parameter.copy_(torch.randn_like(parameter) / math.sqrt(parameter.shape[1]))
    return model


def main():
    torch.manual_seed(17)
    model = tiny()
    tokens = torch.randint(1, 13, (3, 6))  # PyTorch takes no gradient of the padding token 0
    keep = torch.ones(3, 6, dtype=torch.bool)
    keep[1, 4:] = False
    keep[2, 1:] = False
    words = []
    model.embeddings.word_embeddings.register_forward_hook(lambda *call: call[2].retain_grad() or words.append(call[2]))
    attended = []
    for layer in model.encoder.layer:
        dense = layer.attention.output.dense
        dense.register_forward_hook(lambda *call: call[2].retain_grad() or attended.append(call[2]))
    result = model(tokens, attention_mask=keep.long(), output_attentions=True)
    for weights in result.attentions:
        weights.retain_grad()
    output = result.last_hidden_state
    mask = keep[:, :, None].double()
    means = (output * mask).sum(1) / mask.sum(1)
    vectors = torch.nn.functional.normalize(means, dim=-1)
    of_output = torch.randn_like(output)
    of_vectors = torch.randn_like(vectors)
    ((output * of_output).sum() + (vectors * of_vectors).sum()).backward()

    values = {
        "tokens": tokens,
        "keep": keep,
        "output": output,
        "vectors": vectors,
        "of_output": of_output,
        "of_vectors": of_vectors,
        "gradient.embedding": words[0].grad,
    }
    for i, (weights, added) in enumerate(zip(result.attentions, attended)):
        values[f"weights.{i}"] = weights
        values[f"gradient.weights.{i}"] = weights.grad
        values[f"gradient.attention_output.{i}"] = added.grad
    values |= {f"gradient.{name}": p.grad for name, p in model.named_parameters()}
    save_file({k: v.detach().clone().contiguous() for k, v in values.items()}, FOLDER / "bert.safetensors")
    model.save_pretrained(FOLDER / "bert")


if __name__ == "__main__":
    main()
