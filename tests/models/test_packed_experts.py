"""gpt-oss with packed experts (MXFP4): logits as transformers' with the weights that it unpacks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LoadError
from luminal.models import convert
from luminal.models.architectures import decoder_of, read_decoder
from luminal.models.checkpoint import load_checkpoint
from luminal.models.quantized.told import told
from tests.models.decoder_checks import check_logits, saved
from tests.models.tiny_architectures import TINY, VARIANTS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
PACKED = ("gate_up_proj", "down_proj")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model whose experts are packed in the folder."""
    from safetensors.torch import load_file, save_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    whole = {**TINY["gpt_oss"].options, "hidden_size": 64, "intermediate_size": 32}
    monkeypatch.setitem(VARIANTS, "packed", TINY["gpt_oss"]._replace(options=whole))
    model = saved("packed", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    draw = torch.Generator().manual_seed(0)
    state = model.state_dict()
    for name in [name for name in weights if name.endswith(PACKED)]:
        experts, inner, outer = weights.pop(name).shape
        blocks = torch.randint(256, (experts, outer, inner // 32, 16), generator=draw)
        scales = torch.randint(120, 127, (experts, outer, inner // 32), generator=draw)
        weights[f"{name}_blocks"] = blocks.to(torch.uint8)
        weights[f"{name}_scales"] = scales.to(torch.uint8)
        state[name].copy_(
            convert_moe_packed_tensors(
                weights[f"{name}_blocks"], weights[f"{name}_scales"], dtype=torch.float32
            )
        )
    save_file(weights, tmp_path / "model.safetensors")
    change(tmp_path, quantization_config={"quant_method": "mxfp4"})
    return model


def change(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_logits(theirs: Any, tmp_path: Path) -> None:
    check_logits(theirs, read_decoder(tmp_path), "reference")


def test_a_gguf_file_of_it(theirs: Any, tmp_path: Path) -> None:
    change(tmp_path, swiglu_limit=7.0)  # what readers of the format take it to be
    convert(tmp_path, tmp_path / "m.gguf")
    wanted, found = (read_decoder(each).state_dict() for each in (tmp_path, tmp_path / "m.gguf"))
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_what_is_refused(theirs: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    change(tmp_path, quantization_config={"quant_method": "hqq"})
    with pytest.raises(LoadError, match="quant_method='hqq' is not supported; 'mxfp4' is"):
        read_decoder(tmp_path)
    change(tmp_path, quantization_config={"quant_method": "mxfp4"})
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("model.layers.1.mlp.experts.down_proj_scales")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=r"down_proj_blocks' has shape .*its scales have None"):
        read_decoder(tmp_path)


def test_what_is_told_of_them(theirs: Any, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tmp_path, keep_quantized=True)
    text = told(checkpoint, decoder_of(checkpoint), keep=True)
    assert re.fullmatch(r"MXFP4: (\d+) matrices, \1 decoded \(experts become bfloat16\)", text)


def test_a_scale_that_is_no_number(theirs: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {name: np.array(array) for name, array in lm.load(path).items()}
    name = next(name for name in tensors if name.endswith("down_proj_scales"))
    tensors[name][0, 0, 0] = 255
    lm.save(path, tensors)
    with pytest.raises(LoadError, match=r"down_proj_scales' holds 255, which is NaN"):
        read_decoder(tmp_path)
