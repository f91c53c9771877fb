"""RWKV-7 against a plain PyTorch forward of its equations, one token after the other."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from luminal.models.architectures import read_decoder
from luminal.models.checkpoint import load_checkpoint
from luminal.models.gguf.export import gguf_model
from tests.models.decoder_checks import check_greedy_tokens, check_logits, check_texts_in_step
from tests.models.public_gguf import check_written, write_public
from tests.models.tiny_architectures import VOCABULARY

torch = pytest.importorskip("torch")
HIDDEN, INNER, HEAD, LAYERS, RANK = 24, 40, 6, 3, 5
HEADS = HIDDEN // HEAD


def random_weights() -> dict[str, Any]:
    """Under the names of the flash-linear-attention library."""
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embeddings.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "model.norm.bias": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "model.layers.0.pre_norm.weight": (HIDDEN,),
        "model.layers.0.pre_norm.bias": (HIDDEN,),
    }
    for number in range(LAYERS):
        path = f"model.layers.{number}"
        for norm in ("attn_norm", "ffn_norm", "attn.g_norm"):
            shapes[f"{path}.{norm}.weight"] = shapes[f"{path}.{norm}.bias"] = (HIDDEN,)
        for name in "rwkvag":
            shapes[f"{path}.attn.x_{name}"] = (1, 1, HIDDEN)
        for name in "rkvo":
            shapes[f"{path}.attn.{name}_proj.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{path}.attn.k_k"] = shapes[f"{path}.attn.k_a"] = (HIDDEN,)
        shapes[f"{path}.attn.r_k"] = (HEADS, HEAD)
        for name in "wavg" if number else "wag":
            shapes[f"{path}.attn.{name}_lora.lora.0.weight"] = (RANK, HIDDEN)
            shapes[f"{path}.attn.{name}_lora.lora.2.weight"] = (HIDDEN, RANK)
            if name != "g":
                shapes[f"{path}.attn.{name}_lora.lora.2.bias"] = (HIDDEN,)
        shapes[f"{path}.ffn.x_k"] = (HIDDEN,)
        shapes[f"{path}.ffn.key.weight"] = (INNER, HIDDEN)
        shapes[f"{path}.ffn.value.weight"] = (HIDDEN, INNER)
    return {name: torch.randn(shape) * 0.4 for name, shape in shapes.items()}


def logits_of(w: dict[str, Any], ids: Any) -> Any:
    """Of one text (s,), in float64."""
    functional = torch.nn.functional
    w = {name: value.double().squeeze() for name, value in w.items()}

    def norm(path: str, x: Any) -> Any:
        return functional.layer_norm(x, (HIDDEN,), w[f"{path}.weight"], w[f"{path}.bias"], 1e-5)

    def low_rank(path: str, x: Any, activation: Any) -> Any:
        inner = activation(w[f"{path}.lora.0.weight"] @ x)
        return w[f"{path}.lora.2.weight"] @ inner + w.get(f"{path}.lora.2.bias", 0)

    seen = [torch.zeros(2, HIDDEN).double() for _ in range(LAYERS)]
    memories = [torch.zeros(HEADS, HEAD, HEAD).double() for _ in range(LAYERS)]
    found = []
    for token in ids:
        x = norm("model.layers.0.pre_norm", w["model.embeddings.weight"][token])
        first = None
        for number in range(LAYERS):
            path = f"model.layers.{number}.attn"
            now = norm(f"model.layers.{number}.attn_norm", x)
            r, u, k, v, a, g = (
                now + (seen[number][0] - now) * w[f"{path}.x_{name}"] for name in "rwkvag"
            )
            seen[number][0] = now
            r, k, values = (
                w[f"{path}.{name}_proj.weight"] @ each
                for name, each in (("r", r), ("k", k), ("v", v))
            )
            # the paper's decay, exp(-exp(-1/2 - softplus(-d)))
            d = low_rank(f"{path}.w_lora", u, torch.tanh)
            decay = torch.exp(-torch.exp(-functional.softplus(-d) - 0.5)).reshape(HEADS, HEAD)
            rate = torch.sigmoid(low_rank(f"{path}.a_lora", a, lambda y: y))
            gate = low_rank(f"{path}.g_lora", g, torch.sigmoid)
            if first is None:
                first = values
            else:
                share = torch.sigmoid(low_rank(f"{path}.v_lora", v, lambda y: y))
                values = values + (first - values) * share
            removed = functional.normalize((k * w[f"{path}.k_k"]).reshape(HEADS, HEAD), dim=-1)
            k = k * (1 + (rate - 1) * w[f"{path}.k_a"])
            r, k, values, rate = (each.reshape(HEADS, HEAD) for each in (r, k, values, rate))
            memory = memories[number]
            corrected = memory @ removed[:, :, None] @ (removed * rate)[:, None, :]
            memory = memory * decay[:, None, :] - corrected + values[:, :, None] * k[:, None, :]
            memories[number] = memory
            y = (memory @ r[:, :, None]).reshape(1, HIDDEN)
            scale, bias = w[f"{path}.g_norm.weight"], w[f"{path}.g_norm.bias"]
            y = functional.group_norm(y, HEADS, scale, bias, HEAD * 1e-5)[0]
            bonus = (r * k * w[f"{path}.r_k"]).sum(-1, keepdim=True) * values
            x = x + w[f"{path}.o_proj.weight"] @ ((y + bonus.reshape(-1)) * gate)
            path = f"model.layers.{number}.ffn"
            now = norm(f"model.layers.{number}.ffn_norm", x)
            mixed = now + (seen[number][1] - now) * w[f"{path}.x_k"]
            seen[number][1] = now
            x = x + w[f"{path}.value.weight"] @ torch.relu(w[f"{path}.key.weight"] @ mixed) ** 2
        found.append(w["lm_head.weight"] @ norm("model.norm", x))
    return torch.stack(found)


def written(folder: Path) -> Any:
    """The model's forward; its weights and configuration are in the folder."""
    from safetensors.torch import save_file

    weights = random_weights()
    save_file(weights, folder / "model.safetensors")
    config = {
        "architectures": ["RWKV7ForCausalLM"],
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "head_dim": HEAD,
        "hidden_act": "sqrelu",
        **{f"{name}_low_rank_dim": RANK for name in ("decay", "a", "v", "gate")},
    }
    (folder / "config.json").write_text(json.dumps(config))

    def forward(ids: Any) -> Any:
        return SimpleNamespace(logits=torch.stack([logits_of(weights, row) for row in ids]).float())

    return forward


def test_logits(tmp_path: Path) -> None:
    theirs = written(tmp_path)
    check_logits(theirs, read_decoder(tmp_path), "reference")
    check_texts_in_step(theirs, read_decoder(tmp_path), "reference")


@pytest.mark.long
def test_files_in_gguf(tmp_path: Path) -> None:
    """As the public converter writes them, which is as we write them; and a folder of them."""
    theirs, path = written(tmp_path), tmp_path / "m.gguf"
    checkpoint = load_checkpoint(tmp_path)
    folder = {key: np.asarray(array) for key, array in checkpoint.tensors.items()}
    write_public("rwkv7", checkpoint.config, folder, path)
    check_logits(theirs, read_decoder(path), "reference")
    check_written(*gguf_model(checkpoint), path)
    again = load_checkpoint(path)
    assert again.tensors.keys() == folder.keys()
    for key, array in folder.items():
        np.testing.assert_array_equal(again.tensors[key], array, key)


@pytest.mark.long
def test_compiled_logits_and_greedy_tokens(tmp_path: Path) -> None:
    theirs = written(tmp_path)
    check_logits(theirs, read_decoder(tmp_path), "cpu")
    check_texts_in_step(theirs, read_decoder(tmp_path), "cpu")
    check_greedy_tokens(theirs, tmp_path, "cpu")
