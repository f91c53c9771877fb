"""Adapters kept apart: the logits are those of the model into which each is merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.dtypes import int32
from luminal.base.errors import InputError, LoadError
from luminal.models.adapters import read_adapter
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from luminal.models.decoder import Decoder
from luminal.models.named_adapters import keep_apart
from luminal.nn.adapted import of_rows
from tests.models.decoder_checks import saved
from tests.models.small_adapters import ALPHA, PREFIX, R, adapter, base, pairs
from tests.models.tiny_architectures import TINY

Array = np.ndarray[Any, Any]
IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)


def logits(model: Decoder, number: int | None = None, backend: str = "cpu") -> Array:
    """Of IDS, by the adapter of a number; None: by the model as any other program has it."""
    graph = lm.Graph()
    ids = graph.tensor((graph.dim("s", 1, 32),), int32, "ids")
    with of_rows(None if number is None else model.adapters, graph, 1):
        hidden = model.model(ids)
    model.logits(hidden).output("y")
    numbers = {} if number is None else {"adapters": np.array([number], np.int32)}
    return lm.compile(graph, backend=backend)({"ids": IDS, **numbers})["y"]


def apart(folder: Path, **adapters: Path) -> Decoder:
    checkpoint = load_checkpoint(folder, with_tokenizer=False)
    model = decoder_of(checkpoint)
    keep_apart(model, checkpoint, {name: read_adapter(a) for name, a in adapters.items()})
    return model


def check(folder: Path, backend: str = "cpu", **adapters: Path) -> None:
    """Number 0 is the model, and each other one what merging gives."""
    model = apart(folder, **adapters)
    plain = logits(model, backend=backend)
    np.testing.assert_array_equal(
        logits(decoder_of(load_checkpoint(folder)), backend=backend), plain
    )
    # Zeros are added, but a product that has something beside it may be summed in another order;
    # tests/serve/test_adapters.py has a model where it is not.
    assert np.abs(logits(model, 0, backend) - plain).max() < 2e-6 * np.abs(plain).max()
    for number, merged in enumerate(adapters.values(), 1):
        wanted = logits(decoder_of(load_checkpoint(folder, adapter=merged)), backend=backend)
        assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
        error = np.abs(logits(model, number, backend) - wanted).max() / np.abs(wanted).max()
        assert error < 2e-5, (number, error)  # float32, a few dozen roundings


def test_each_number_is_its_adapter(tmp_path: Path) -> None:
    """Of other ranks, scales and matrices."""
    tensors = base(tmp_path / "m")
    small = {name: array / 8 for name, array in pairs(tensors, ("q_proj", "up_proj")).items()}
    rng = np.random.default_rng(5)
    other = {
        name: rng.standard_normal(array.shape).astype(np.float32) / 8
        for name, array in pairs(tensors, ("q_proj", "down_proj"), 7).items()
    }
    first = adapter(tmp_path / "a", small)
    second = adapter(
        tmp_path / "b", other, r=7, use_rslora=True, target_modules=["q_proj", "down_proj"]
    )
    check(tmp_path / "m", "reference", one=first, two=second)


LATENT = "kv_b_proj is read otherwise than as a Linear, .*luminal merge MODEL ADAPTER OUT"
MERGED_ONLY = dict.fromkeys(("deepseek_v2", "deepseek_v3", "minicpm3"), LATENT)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in TINY if name != "exaone"]
)  # other names in files
def test_every_architecture(name: str, tmp_path: Path) -> None:
    """An adapter of all its Linears, by their names in files."""
    torch = pytest.importorskip("torch")
    from transformers.pytorch_utils import Conv1D

    theirs = saved(name, tmp_path / "m")
    stored = load_checkpoint(tmp_path / "m", with_tokenizer=False).tensors
    linears = {
        path: part
        for path, part in theirs.named_modules()
        if isinstance(part, torch.nn.Linear | Conv1D)
        # Some have other names in files, and routers of experts are no Linear here.
        and f"{path}.weight" in stored
        and path != "lm_head"
        and "router" not in path
    }
    rng = np.random.default_rng(7)
    added: dict[str, Array] = {}
    turned = any(isinstance(part, Conv1D) for part in linears.values())
    for path, part in linears.items():
        rows, columns = part.weight.shape[::-1] if turned else part.weight.shape
        for key, shape in (("A", (R, columns)), ("B", (rows, R))):
            array = rng.standard_normal(shape).astype(np.float32)
            added[f"{PREFIX}{path}.lora_{key}.weight"] = array / 8
    folder = adapter(tmp_path / "a", added, target_modules="all-linear", fan_in_fan_out=turned)
    if name in MERGED_ONLY:
        with pytest.raises((InputError, LoadError), match=MERGED_ONLY[name]):
            check(tmp_path / "m", one=folder)
    else:
        check(tmp_path / "m", one=folder)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dora": ({"use_dora": True}, "it is a DoRA"),
    "whole": ({}, "it replaces 'lm_head.weight' as a whole"),
    "embedding": ({"target_modules": ["embed_tokens"]}, "it changes the embedding"),
    "bias": ({}, "it changes the bias of 'model.layers.0.self_attn.q_proj'"),
    "head": ({"target_modules": ["lm_head"]}, "it changes 'lm_head', which is no Linear"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_only_be_merged(name: str, tmp_path: Path) -> None:
    settings, text = REFUSED[name]
    tensors = base(tmp_path / "m")
    query = f"{PREFIX}model.layers.0.self_attn.q_proj"
    added = pairs(tensors, ("q_proj",))
    settings = {"target_modules": ["q_proj"], **settings}
    if name == "dora":
        added[f"{query}.lora_magnitude_vector"] = np.ones(64, np.float32)
    elif name == "whole":
        added[f"{PREFIX}lm_head.weight"] = tensors["lm_head.weight"] + 1
    elif name == "embedding":
        table = f"{PREFIX}model.embed_tokens"
        rows, columns = tensors["model.embed_tokens.weight"].shape
        added = {
            f"{table}.lora_embedding_A": np.ones((R, rows), np.float32),
            f"{table}.lora_embedding_B": np.ones((columns, R), np.float32),
        }
    elif name == "bias":
        added[f"{query}.lora_B.bias"] = np.ones(64, np.float32)
    else:
        added = pairs(tensors, ("lm_head",))
    folder = adapter(tmp_path / "a", added, **settings)
    with pytest.raises(LoadError, match=rf"{text}.*luminal merge MODEL ADAPTER OUT") as raised:
        apart(tmp_path / "m", one=folder)
    assert str(folder) in str(raised.value)


def test_an_adapter_of_another_model(tmp_path: Path) -> None:
    tensors = base(tmp_path / "m")
    added = pairs(tensors, ("q_proj",))
    renamed = {key.replace("layers.0", "layers.7"): array for key, array in added.items()}
    folder = adapter(tmp_path / "a", renamed, target_modules=["q_proj"])
    with pytest.raises(LoadError, match=r"layers\.7.*which the model does not have"):
        apart(tmp_path / "m", one=folder)
    wide = {key: np.repeat(a, 2, -1) if "_A" in key else a for key, a in added.items()}
    folder = adapter(tmp_path / "b", wide, target_modules=["q_proj"])
    with pytest.raises(LoadError, match=r"must add to a matrix \[64, 64\] .* one of \[64, 128\]"):
        apart(tmp_path / "m", one=folder)
    folder = adapter(tmp_path / "c", added, target_modules=["q_proj"], r=R + 1)
    with pytest.raises(LoadError, match=rf"must be a matrix of rank {R + 1}"):
        apart(tmp_path / "m", one=folder)


assert ALPHA != R  # or a scale that is left out would not show
