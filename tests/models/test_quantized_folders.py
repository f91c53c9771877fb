"""Folders that other programs have quantised: the values of each format's definition, in files of
its layout, read as floats and kept packed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.models import quantized
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from luminal.models.llama import Llama
from tests.close import close_each, close_to_greatest
from tests.long_share import long_but
from tests.models.packings import (
    FORMS,
    SIZES,
    VOCABULARY,
    Array,
    Tensors,
    gptq,
    saved,
    tensors_of,
    write,
)

SHORT = "gptq 4 bits", "awq", "bitsandbytes nf4", "compressed int4, asymmetric"


def floats_of(values: Tensors) -> Llama:
    lm.manual_seed(0)
    floats = Llama(SIZES).eval()
    floats.load_state_dict({name: value.astype(np.float32) for name, value in values.items()})
    return floats


def logits(model: Any) -> Array:
    cx = lm.Graph()
    model(cx.tensor((2, 9), lm.int32, "ids")).output("logits")
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 9), np.int32)
    return np.asarray(lm.compile(cx)(ids=ids)["logits"])


def check_value(name: str, found: Array, wanted: Array) -> None:
    """The float32 of the value; off by the rounding of a scale that is computed."""
    close_each(found, wanted.astype(np.float32), 4, name)


@pytest.mark.parametrize("name", FORMS)
def test_values_are_those_of_the_definition(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    values = saved(tmp_path, form)
    plain = load_checkpoint(tmp_path, keep_quantized=False)
    assert plain.tensors.keys() == values.keys()
    for weight, value in values.items():
        check_value(weight, np.asarray(plain.tensors[weight], np.float32), value)
    kept = load_checkpoint(tmp_path, keep_quantized=True)
    packed = {key: each for key, each in kept.tensors.items() if isinstance(each, Packed)}
    assert {each.kind for each in packed.values()} == ({form.kept} if form.kept else set())
    assert not form.kept or packed.keys() == {key for key in values if "_proj." in key}
    for weight, each in packed.items():
        check_value(weight, each.numpy(), values[weight])
    assert kept.packing is not None
    assert kept.packing.matrices == 7
    assert sum(kept.packing.decoded.values()) == 7 - len(packed)


@pytest.mark.parametrize("name", long_but(FORMS, SHORT))
def test_products_are_those_of_the_values(name: str) -> None:
    """Of one matrix that stays packed, decoded where it is read and by bytes."""
    form = FORMS[name]
    rows, columns = 48 if "3 bits" not in name else 64, 96
    tensors, values = form.pack(np.random.default_rng(1), rows, columns)
    named = {f"m.{part}": array for part, array in tensors.items()}
    weight = quantized.read(named, form.section, True, Path("c"), Path("w")).tensors["m.weight"]
    cx = lm.Graph()
    x = cx.tensor((3, columns), name="x")
    if form.kept is not None:
        weight.product(x).output("bytes")  # of decoded values, where codes are no integers
        weight = cx.packed(weight)
    (x @ cx.constant(weight).T if form.kept is None else x @ weight.T).output("floats")
    data = np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)
    results = lm.compile(cx)(x=data)
    wanted = data.astype(np.float64) @ values.T
    close_to_greatest(results["floats"], wanted, 1e-5)
    if form.kept is not None:
        close_to_greatest(results["bytes"], wanted, 0.02)  # x has 7 bits
        if form.kept.startswith("grouped"):
            assert np.abs(results["bytes"] - wanted).max() > 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", long_but(FORMS, SHORT[:1]))
def test_logits_are_those_of_the_values(name: str, tmp_path: Path) -> None:
    values = saved(tmp_path, FORMS[name])
    wanted = logits(floats_of(values))
    kept = decoder_of(load_checkpoint(tmp_path, keep_quantized=True))
    close_to_greatest(logits(kept), wanted, 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMS)
def test_text_is_that_of_the_values(name: str, tmp_path: Path) -> None:
    values = saved(tmp_path, FORMS[name])
    models = [lm.models.load(tmp_path, keep_quantized=keeps) for keeps in (False, True)]
    floats = lm.models.LanguageModel(floats_of(values), models[0].tokenizer)
    texts = [list(each.tokens([5, 9, 7], 12)) for each in (floats, *models)]
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) > 3
    count = 7 if FORMS[name].kept else 0
    first, second = (each.stats.weights for each in models)
    assert "7 matrices, 7 decoded (keep_quantized=True keeps them)" in first
    assert (f"7 packed as {FORMS[name].kept}" if count else "7 decoded (") in second
    assert second in models[1].stats.text()


def test_files_of_the_first_programs(tmp_path: Path) -> None:
    form = gptq(4)
    values = saved(tmp_path, form)
    section = {"bits": 4, "group_size": 32, "desc_act": False}
    write(tmp_path, tensors_of(form)[0], None, {"quantize_config.json": section})
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.tensors.keys() == values.keys()
    assert checkpoint.packing is not None
    assert checkpoint.packing.method == "GPTQ, 4 bits, groups of 32"


def test_rotations_of_gptq(tmp_path: Path) -> None:
    form = FORMS["gptq 4 bits"]
    tensors, _ = tensors_of(form)
    write(tmp_path, tensors, {**form.section, "rotation": None})
    load_checkpoint(tmp_path)
    write(tmp_path, tensors, {**form.section, "rotation": "hadamard"})
    with pytest.raises(
        LoadError, match=r"GPTQ: 'rotation' is .*hadamard.* which is not read; take"
    ):
        load_checkpoint(tmp_path)


def test_a_packed_matrix_of_a_module_left_out(tmp_path: Path) -> None:
    form = FORMS["awq"]
    section = {**form.section, "modules_to_not_convert": ["lm_head", "mlp.up_proj"]}
    write(tmp_path, tensors_of(form)[0], section)
    text = r"layers.0.mlp.up_proj' is packed, though modules_to_not_convert .* has 'mlp.up_proj'"
    with pytest.raises(LoadError, match=text):
        load_checkpoint(tmp_path)


def test_biases_of_zeros_that_the_model_does_not_have(tmp_path: Path) -> None:
    """AutoGPTQ wrote one for every matrix; one that is not zero changes what is computed."""
    form = FORMS["gptq 4 bits"]
    tensors, _ = tensors_of(form)
    names = [name for name in tensors if name.endswith(".qweight")]
    more = {
        name.replace("qweight", "bias"): np.zeros(tensors[name].shape[1], np.float16)
        for name in names
    }
    write(tmp_path, tensors | more, form.section)
    decoder_of(load_checkpoint(tmp_path))
    last = names[-1].replace("qweight", "bias")
    more[last] = more[last] + np.float16(0.1)
    write(tmp_path, tensors | more, form.section)
    with pytest.raises(LoadError, match=f"unexpected: {last}$"):
        decoder_of(load_checkpoint(tmp_path))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["gptq 4 bits", "bitsandbytes 8 bits"])
def test_matrices_of_gpt2_are_packed_the_other_way_round(
    name: str, keep: bool, tmp_path: Path
) -> None:
    """Its files of floats have them as (in, out), and all methods pack them as (out, in)."""
    form, square = FORMS[name], "transformer.h.0.attn.c_proj"
    parts, values = form.pack(np.random.default_rng(0), 64, 64)
    table = np.ones((VOCABULARY, 64), np.float32)
    tensors = {f"{square}.{part}": array for part, array in parts.items()}
    write(tmp_path, tensors | {"transformer.wte.weight": table}, form.section)
    config = {"architectures": ["GPT2LMHeadModel"], "quantization_config": form.section}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = load_checkpoint(tmp_path, keep_quantized=keep)
    check_value(square, checkpoint.tensors[f"{square}.weight"], values.T)
    assert checkpoint.packing is not None
    assert checkpoint.packing.decoded == (
        {"matrices that multiply from the right": 1} if keep else {}
    )


@pytest.mark.parametrize("place", ["input", "output", "k_cache", "weight_input", None])
def test_rotations_of_each_run_are_refused(place: str | None, tmp_path: Path) -> None:
    form = FORMS["compressed int4"]
    group = {"type": "hadamard", "apply": [{"targets": ["Linear"], "location": place}]}
    said = {"config_groups": {"u": group}} if place else {}
    write(tmp_path, tensors_of(form)[0], {**form.section, "transform_config": said})
    if place in (None, "weight_input"):
        load_checkpoint(tmp_path)
        return
    with pytest.raises(LoadError, match=f"transform_config .* turns the '{place}' of modules in"):
        load_checkpoint(tmp_path)
