"""Steps of networks of transformers, with the smallest configurations."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from in_torchvision import load
from registry import TorchStep, register
from torch_modules import functional, nn, torch


def library() -> Any:
    load()  # transformers looks at torchvision
    return importlib.import_module("transformers")


class Logits(nn.Module):
    """A model of transformers as a function of tensors to the logits, a row for each label."""

    def __init__(self, model: Any, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Any) -> Any:
        arguments = dict(zip(self.names, tensors, strict=True))
        logits = self.model(**arguments, return_dict=True).logits
        return logits.flatten(0, -2)


TOKENS = [[1, 5, 5, 2], [9, 0, 1, 3]]
MASK = [[1, 1, 1, 1], [1, 1, 1, 0]]


def network(name: str, make: Callable[[], Any]) -> None:
    """Registers a step with AdamW. Its epsilon is above rounding: attention has no gradient for the
    biases of keys but that."""

    def build() -> TorchStep:
        torch.manual_seed(0)
        module, inputs, labels = make()
        optimiser = torch.optim.AdamW(module.parameters(), lr=1e-3, eps=1e-4)
        return TorchStep(module, functional.cross_entropy, optimiser, inputs, labels)

    register(f"transformers/{name}", build)


def _text(model: Any) -> tuple[Any, ...]:
    """A classifier of two sentences."""
    inputs = (torch.tensor(TOKENS), torch.tensor(MASK))
    return Logits(model, "input_ids", "attention_mask"), inputs, torch.tensor([0, 1])


def _next(model: Any) -> tuple[Any, ...]:
    """A language model."""
    tokens = torch.tensor(TOKENS)
    return Logits(model, "input_ids"), tokens, tokens.roll(-1, 1).flatten()


SMALL = {
    "vocab_size": 12,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 6,
}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _bert() -> tuple[Any, ...]:
    hf = library()
    return _text(hf.BertForSequenceClassification(hf.BertConfig(**SMALL, **STILL)))


def _distilbert() -> tuple[Any, ...]:
    hf = library()
    sizes = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    config = hf.DistilBertConfig(vocab_size=12, max_position_embeddings=6, **sizes, **still)
    return _text(hf.DistilBertForSequenceClassification(config))


def _gpt2() -> tuple[Any, ...]:
    hf = library()
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 12, "n_positions": 6}
    return _next(
        hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=12, use_cache=False, bos_token_id=0, eos_token_id=0, **sizes, **still
            )
        )
    )


def _llama() -> tuple[Any, ...]:
    hf = library()
    config = hf.LlamaConfig(**SMALL, num_key_value_heads=1, use_cache=False)
    return _next(hf.LlamaForCausalLM(config))


def _t5() -> tuple[Any, ...]:
    hf = library()
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}
    config = hf.T5Config(
        vocab_size=12, **sizes, dropout_rate=0.0, decoder_start_token_id=0, use_cache=False
    )
    model = hf.T5ForConditionalGeneration(config)
    tokens = torch.tensor(TOKENS)
    module = Logits(model, "input_ids", "decoder_input_ids")
    return module, (tokens, tokens.flip(1)), tokens.flatten()


def _vit() -> tuple[Any, ...]:
    hf = library()
    sizes = {
        key: SMALL[key] for key in SMALL if key not in ("vocab_size", "max_position_embeddings")
    }
    config = hf.ViTConfig(**sizes, **STILL, image_size=8, patch_size=4)
    model = hf.ViTForImageClassification(config)
    return Logits(model, "pixel_values"), torch.randn(2, 3, 8, 8), torch.tensor([0, 1])


network("bert", _bert)
network("distilbert", _distilbert)
network("gpt2", _gpt2)
network("llama", _llama)
network("t5", _t5)
network("vit", _vit)
