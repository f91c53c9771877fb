"""A record of an architecture says all of it, for both kinds of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.loaders.fields import Fields
from luminal.loaders.write_gguf import save_gguf
from luminal.loaders.write_safetensors import save_safetensors
from luminal.models import architectures, convert
from luminal.models.architectures import architecture_of, read_decoder, records
from luminal.models.checkpoint import load_checkpoint
from luminal.models.decoder import Decoder
from luminal.models.gguf.export import gguf_model

FOLDER = Path(__file__).parent / "invented"
MOST_LINES = 25
CONFIG: dict[str, Any] = {
    "architectures": ["QuaggaForCausalLM"],
    "vocab_size": 40,
    "width": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "act": "gelu",
    "ln_eps": 1e-3,
}
IDS = np.array([[3, 14, 15, 9, 26, 5]])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random model of the invented architecture as a folder, under its own names."""
    monkeypatch.setattr(architectures, "__path__", [*architectures.__path__, str(FOLDER)])
    nn.init.manual_seed(0)
    record = architecture_of(CONFIG, tmp_path)
    model = Decoder(record.config(Fields(CONFIG, tmp_path)))
    rng = np.random.default_rng(0)
    weights = {
        record.original(name): np.asarray(rng.standard_normal(array.shape), np.float32)
        for name, array in model.state_dict().items()
    }
    save_safetensors(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def logits(model: Decoder) -> Any:
    graph = lm.Graph()
    model(graph.tensor(IDS.shape, lm.int32, "ids")).output("logits")
    return graph.compile(backend="reference")(ids=IDS.astype(np.int32))["logits"]


def test_a_plain_decoder_is_one_file_of_25_lines(folder: Path) -> None:
    (file,) = FOLDER.glob("*.py")
    assert len(file.read_text().splitlines()) <= MOST_LINES
    metadata, tensors = gguf_model(load_checkpoint(folder))
    save_gguf(folder / "m.gguf", tensors, metadata)
    assert metadata["general.architecture"] == "quagga"
    assert metadata["quagga.embedding_length"] == 16
    assert {"blk.1.attn_norm.bias", "blk.0.attn_output.weight"} <= tensors.keys()
    names = load_checkpoint(folder / "m.gguf").tensors.keys()
    assert names == load_checkpoint(folder).tensors.keys()
    assert {"trunk.h.0.ln_1.bias", "trunk.h.1.self_attn.out.weight"} <= names
    convert(folder / "m.gguf", folder / "again")
    plain, *others = (logits(read_decoder(folder / each)) for each in ("", "m.gguf", "again"))
    assert np.ptp(plain) > 1
    for other in others:
        np.testing.assert_array_equal(other, plain)


def test_a_record_is_found_in_the_file_that_is_called_like_it() -> None:
    """So that a start imports that file alone."""
    for name, file in (("LlamaForCausalLM", "llama"), ("GPTNeoXForCausalLM", "gpt_neox")):
        first = next(iter(records(name)))
        assert first.name == name, file
