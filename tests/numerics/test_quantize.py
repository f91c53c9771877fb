"""`lm.quantize`: packed layers compute what the values of their codes do; the report's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.errors import InputError
from luminal.frontend.packed import Packed
from luminal.nn.quantization import KINDS, PackedWeight

Array = np.ndarray[Any, Any]
BITS = {"q8_0": 8, "q5_1": 5, "q5_0": 5, "q4_1": 4, "q4_0": 4, "int8": 8, "int4": 4}


def layers() -> lm.nn.Sequential:
    lm.manual_seed(3)
    return lm.nn.Sequential(lm.nn.Embedding(50, 128), lm.nn.Linear(128, 96), lm.nn.Linear(96, 7))


def test_kinds() -> None:
    assert set(BITS) == set(KINDS)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_compute_with_the_decoded_values(kind: str, rows: int) -> None:
    model = layers()
    before = model.state_dict()
    report = lm.quantize(model, kind, skip=["2."])
    skipped = dict.fromkeys(("2.weight", "2.bias"), "skipped")
    assert report.kept == {"1.bias": "is no matrix of floats"} | skipped
    table, linear, last = model
    assert isinstance(table.weight, Packed)
    assert isinstance(linear.weight, Packed)
    ids = np.random.default_rng(0).integers(0, 50, rows)
    cx = lm.Graph()
    (y := model(cx.tensor((rows,), "int64", name="ids"))).output("y")
    exe = lm.compile(cx)
    hidden = table.weight.numpy()[ids].astype(np.float64)
    for layer in (linear, last):
        hidden = hidden @ layer.weight.numpy().astype(np.float64).T + layer.bias.numpy()
    np.testing.assert_allclose(exe({"ids": ids})["y"], hidden, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        lm.compile(cx, backend="reference")({"ids": ids})["y"], hidden, rtol=0, atol=1e-5
    )
    assert y.shape == (rows, 7)
    # The report tells the truth, and codes of so many bits are as near as they can be.
    for each in report.weights:
        values, found = before[each.name], model.state_dict()[each.name]
        error = found.astype(np.float64) - values
        assert each.max_error == np.abs(error).max()
        assert each.rms_error == pytest.approx(np.sqrt((error**2).mean()))
        # Codes are 2 ** bits steps apart over twice the greatest value, half of one off, in half
        # precision; one side has a step fewer, whose values may be a whole one off.
        most = np.abs(values).max() * 2 / ((1 << BITS[kind]) - 2)
        assert each.max_error <= most * 1.01
        bits = 8 * each.bytes_after / values.size
        assert BITS[kind] < bits <= BITS[kind] + 1
    assert report.bytes_before == 4 * (50 + 96) * 128


def test_a_report_is_a_table() -> None:
    model = lm.nn.Linear(32, 4, bias=False)
    model.weight.set(np.tile(np.float32([127, -64]), (4, 16)))
    report = lm.quantize(model, "int8")
    rms = float(np.sqrt((127**2 + 64**2) / 2))
    assert report.weights == (PackedWeight("weight", 0.0, 0.0, rms, 512, 128 + 16),)
    lines = str(report).splitlines()
    assert [line.split() for line in lines] == [
        "weight max error rms error of rms bytes packed".split(),
        ["weight", "0", "0", "0.00%", "512", "144"],
        "all 512 144".split(),
        "1 weights as int8: 512 bytes to 144; rms errors up to 0.00% of a weight's".split(),
    ]


def test_tied_weights_stay_tied() -> None:
    model = layers()
    model[0].weight = model[1].weight
    lm.quantize(model, "q8_0")
    assert model[0].weight is model[1].weight


def test_what_is_refused_changes_nothing() -> None:
    model = layers()
    with pytest.raises(InputError, match="quantize: 'q3' is not known; it is one of q8_0, q4_0"):
        lm.quantize(model, "q3")
    with pytest.raises(
        InputError, match=r"nothing of this module can be q8_0: \{'weight': 'its rows"
    ):
        lm.quantize(lm.nn.Linear(33, 4, bias=False), "q8_0")
    values = model[1].weight.numpy().copy()
    values[1, 1] = np.inf
    model[1].weight.set(values)
    with pytest.raises(InputError, match=r"1\.weight has values that are not finite"):
        lm.quantize(model, "int8")
    assert not any(isinstance(p, Packed) for p in model.parameters())


def test_they_are_not_trained() -> None:
    model = lm.nn.Linear(32, 4)
    lm.quantize(model, "int8")
    cx = lm.Graph()
    x = cx.tensor((2, 32), name="x")
    with pytest.raises(InputError, match="is packed as int8, which no program can assign; train a"):
        cx.assign(model.weight, x[:1, :].expand(4, 32))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names == ["bias"]
