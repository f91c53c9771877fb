"""`lm.quantize`: packed layers compute what the values of their codes do; the report's numbers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import DTypeError, GraphError, InputError, LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.ggml.quantize import quantized
from luminal.nn.packed_floats import PACKED
from luminal.nn.quantization import KINDS, PackedWeight
from tests.close import close
from tests.long_share import long_but

Array = np.ndarray[Any, Any]
BITS = {"q8_0": 8, "q5_1": 5, "q5_0": 5, "q4_1": 4, "q4_0": 4, "int8": 8, "int4": 4}
FITTED = {
    "iq4_nl": 4, "q2_k": 2, "q3_k": 3, "q4_k": 4, "q5_k": 5, "q6_k": 6,
    "mxfp8": 8, "mxfp4": 4, "nvfp4": 4,
    **{f"{d}{by}": 8 for d in ("float8_e4m3fn", "float8_e5m2") for by in ("", "_tensor", "_block")},
}  # fmt: skip
"""Those whose codes need not be the nearest to each value: `test_fitted_blocks.py`."""


def layers() -> lm.nn.Sequential:
    lm.manual_seed(3)
    return lm.nn.Sequential(lm.nn.Embedding(50, 256), lm.nn.Linear(256, 96), lm.nn.Linear(96, 7))


def test_kinds() -> None:
    assert set(BITS | FITTED) == set(KINDS)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("kind", long_but(KINDS, ("int4", "q8_0", "q5_1", "q3_k", "iq4_nl")))
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
    close(exe({"ids": ids})["y"], hidden, ulp=16)
    close(lm.compile(cx, backend="reference")({"ids": ids})["y"], hidden)
    assert y.shape == (rows, 7)
    # The report tells the truth, and codes of so many bits are as near as they can be.
    for each in report.weights:
        values, found = before[each.name], dict(model.named_parameters())[each.name].numpy()
        error = found.astype(np.float64) - values
        assert each.max_error == np.abs(error).max()
        assert each.rms_error == pytest.approx(np.sqrt((error**2).mean()))
        # Codes are 2 ** bits steps apart over twice the greatest value, half of one off, in half
        # precision; one side has a step fewer, whose values may be a whole one off.
        least = (BITS | FITTED)[kind]
        if kind in BITS:
            assert each.max_error <= np.abs(values).max() * 2 / ((1 << least) - 2) * 1.01
        assert least < 8 * each.bytes_after / values.size <= least + 1
        assert each.kind.lower() == kind
    assert report.bytes_before == 4 * (50 + 96) * 256


def test_a_report_is_a_table() -> None:
    model = lm.nn.Linear(32, 4, bias=False)
    model.weight.set(np.tile(np.float32([127, -64]), (4, 16)))
    report = lm.quantize(model, "int8")
    rms = float(np.sqrt((127**2 + 64**2) / 2))
    assert report.weights == (PackedWeight("weight", "int8", 0.0, 0.0, rms, 512, 128 + 16),)
    lines = str(report).splitlines()
    assert [line.split() for line in lines] == [
        "weight type max error rms error of rms bytes packed".split(),
        ["weight", "int8", "0", "0", "0.00%", "512", "144"],
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
        InputError, match=r"nothing of this module can be q8_0: weight: its rows of 33"
    ):
        lm.quantize(lm.nn.Linear(33, 4, bias=False), "q8_0")
    values = model[1].weight.numpy().copy()
    values[1, 1] = np.inf
    model[1].weight.set(values)
    with pytest.raises(InputError, match=r"1\.weight has values that are not finite"):
        lm.quantize(model, "int8")
    assert not any(isinstance(p, Packed) for p in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_without_values_stay_as_they_are(kind: str) -> None:
    model = lm.nn.Module()
    model.rows, model.columns = (
        lm.Parameter(np.zeros(shape, np.float32)) for shape in ((0, 256), (3, 0))
    )
    model.whole = lm.Parameter(np.ones((2, 256), np.float32))
    assert lm.quantize(model, kind).kept == dict.fromkeys(("rows", "columns"), "has no values")
    assert isinstance(model.whole, Packed)


def test_they_are_not_trained() -> None:
    model = lm.nn.Linear(32, 4)
    lm.quantize(model, "int8")
    cx = lm.Graph()
    x = cx.tensor((2, 32), name="x")
    with pytest.raises(InputError, match="is packed as int8, which no program can assign; train a"):
        cx.assign(model.weight, x[:1, :].expand(4, 32))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names == ["bias"]


TOO_GREAT = {
    "q8_0": 1e7,
    "q4_0": 1e6,
    "q4_1": 1e5,
    "q5_0": 2e6,
    "q5_1": 1e5,
    "int4": 1e6,
    **{kind: 1e10 for kind in FITTED if kind not in PACKED},
    "int8": float(np.finfo(np.float32).max),
}


@pytest.mark.parametrize("kind", TOO_GREAT)
def test_values_beyond_the_scales_are_refused(kind: str) -> None:
    model = lm.nn.Sequential(lm.nn.Linear(256, 2), lm.nn.Linear(256, 2, bias=False))
    for factor in (1.0, 2e38 / TOO_GREAT[kind]):
        great = np.full((2, 256), TOO_GREAT[kind] * factor, np.float32)
        great[:, ::2] *= -1
        if kind == "int8" and factor != 1:
            continue
        model[1].weight.set(great)
        with pytest.raises(InputError, match=rf"1\.weight: holds .*, for which {kind}") as caught:
            lm.quantize(model, kind.upper())
        assert "skip=" in str(caught.value)
    assert not any(isinstance(p, Packed) for p in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [1e-45, 1e-40, 1e-20])
def test_tiny_values_are_near_zero(kind: str, value: float) -> None:
    model = lm.nn.Linear(256, 2, bias=False)
    model.weight.set(np.full((2, 256), value, np.float32))
    lm.quantize(model, kind)
    # scales are float16 and below: a hundredth is one step, and 6e-8 its least value
    np.testing.assert_allclose(model.weight.numpy(), value, rtol=0.02, atol=1e-8)


def packing_error(kind: str, values: Array) -> Array:
    """What is lost by packing a matrix."""
    with np.errstate(under="ignore"):
        packed = KINDS[kind].pack("w", values).numpy()
    return packed.astype(np.float64) - values


@pytest.mark.parametrize("kind", KINDS)
def test_small_values_lose_hardly_more(kind: str) -> None:
    """Scales of values near 1e-5 are no normal numbers of half precision."""
    values = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    usual = float(np.square(packing_error(kind, values)).mean() ** 0.5)
    for factor in (0.02, 1e-3, 1e-4, 3e-5):
        error = packing_error(kind, values * np.float32(factor))
        assert np.square(error).mean() ** 0.5 <= 1.1 * usual * factor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", long_but([1, 1e-3, 1e-5, 1e-6, 1e-7, 1e-10], {1, 1e-6}))
def test_no_block_is_worse_than_zeros(kind: str, factor: float) -> None:
    """Whatever of its scales half precision rounds away; groups of a block are of all sizes."""
    rng = np.random.default_rng(1)
    sizes = (10 ** rng.uniform(-9, 0, (32, 64, 1))).repeat(16, 2).reshape(32, 1024)
    normal = rng.standard_normal((32, 1024))
    size = 32 if kind == "int8" else KINDS[kind].size
    for shift in (0, 0.3, -0.3, 1, -1, 1000):
        values = (sizes * (normal + shift) * factor).astype(np.float32)
        blocks = np.square([values.astype(np.float64), packing_error(kind, values)])
        zeros, packed = blocks.reshape(2, -1, size).sum(2)
        assert (packed <= zeros * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", long_but(KINDS, ("int8", "q4_0", "q4_k", "iq4_nl")))
def test_state_dicts_hold_what_is_packed(kind: str, tmp_path: Any) -> None:
    one, other = layers(), layers()
    other.initialize(7)
    lm.quantize(one, kind, skip="2.")
    lm.quantize(other, kind, skip=["2."])
    function = lm.jit(other)
    ids = np.arange(5)
    assert not np.array_equal(function(ids), lm.jit(one)(ids))
    lm.save(tmp_path / "w.safetensors", one.state_dict())
    other.load_state_dict(lm.load(tmp_path / "w.safetensors"))
    names = {name.rpartition(f".{kind}.")[0] or name for name in other.state_dict()}
    assert names == set(layers().state_dict())
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    want = lm.jit(one)(ids)
    np.testing.assert_array_equal(function(ids), want)
    for copied in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        np.testing.assert_array_equal(lm.jit(copied)(ids), want)
        other.initialize(9)
        copied.load_state_dict(other.state_dict())
        np.testing.assert_array_equal(lm.jit(one)(ids), want)


def test_what_does_not_fit_packed_weights() -> None:
    model = lm.nn.Linear(64, 8)
    floats = model.state_dict()
    lm.quantize(model, "int8")
    state = model.state_dict()
    assert list(state) == ["weight.int8.codes", "weight.int8.scales", "bias"]
    with pytest.raises(LoadError, match="weight: is packed as int8, the state_dict has floats"):
        model.load_state_dict(floats)
    with pytest.raises(LoadError, match=r"expected int8\[8, 64\], got int16\[8, 64\]"):
        model.load_state_dict(state | {"weight.int8.codes": np.zeros((8, 64), np.int16)})
    other = lm.nn.Linear(64, 8)
    lm.quantize(other, "q8_0")
    with pytest.raises(LoadError, match=r"missing: weight\.int8\.codes; unexpected: weight\.q8_0"):
        model.load_state_dict(other.state_dict())
    with pytest.raises(
        LoadError, match=r"missing: weight; unexpected: weight\.int8\.codes"
    ) as caught:
        lm.nn.Linear(64, 8).load_state_dict(state)
    hint = "; weight is packed as int8 there: lm.quantize(module, 'int8') first"
    assert str(caught.value).endswith(hint)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_packed_weights_have_a_dtype(dtype: str) -> None:
    first, then = lm.nn.Linear(64, 8), lm.nn.Linear(64, 8)
    then.load_state_dict(first.state_dict())
    first.to(dtype)
    lm.quantize(first, "q8_0")
    lm.quantize(then, "q8_0")
    values = then.weight.numpy()
    then.to(dtype)
    x = np.ones((2, 64), dtypes.dtype_of(dtype).numpy)
    for model in (first, then):
        assert isinstance(model.weight, Packed)
        assert model.weight.dtype.name == dtype
        assert model.weight.numpy().dtype == lm.jit(model)(x).dtype == x.dtype
    np.testing.assert_array_equal(then.weight.numpy(), values.astype(x.dtype))
    cx = lm.Graph()
    (cx.weight_of(then.weight) + 0).output("w")
    np.testing.assert_array_equal(lm.compile(cx)({})["w"], then.weight.numpy())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(then)).weight.numpy().dtype, x.dtype)


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(DTypeError, match=r"quantize: takes an nn\.Module, got a ndarray"):
        lm.quantize(np.ones((2, 64)), "q8_0")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="quantize: skip=3; takes parts of names"):
        lm.quantize(lm.nn.Linear(64, 2), "q8_0", skip=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="save_gguf: the path comes first"):
        lm.save_gguf({}, "w.gguf")  # type: ignore[arg-type]


def test_an_optimizer_of_packed_weights_says_so() -> None:
    model = lm.nn.Linear(64, 2)
    lm.quantize(model, "q8_0")
    cx = lm.Graph()
    loss = model(cx.tensor((3, 64), name="x")).sum()
    with pytest.raises(GraphError, match=r"SGD\.step: its 1 parameters are packed .* no gradients"):
        lm.optim.SGD([model.weight], lr=0.1).step(loss)


def test_training_beside_packed_weights_resumes(tmp_path: Any) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 32, 64)).astype(np.float32)

    def fitted(epochs: int, folder: str) -> tuple[Any, Array]:
        is_resumed = (tmp_path / folder).exists()  # then it starts from other codes
        model = lm.nn.Sequential(lm.nn.Linear(64, 64), lm.nn.Linear(64, 64))
        model.initialize(2 if is_resumed else 1)
        lm.quantize(model, "int4", skip="1.")
        batches = lm.training.Batches(lm.training.ArrayDataset(x, y), 16, seed=1)
        optimizer = lm.optim.AdamW(model.parameters(), lr=0.01)
        loss = lm.nn.functional.mse_loss
        place = tmp_path / folder
        lm.training.fit(
            model, loss, batches, optimizer, epochs=epochs, checkpoint=place, resume=True
        )
        return model, model[0].weight.numpy()

    want, codes = fitted(2, "whole")
    fitted(1, "parts")
    found, same = fitted(2, "parts")
    np.testing.assert_array_equal(same, codes)
    np.testing.assert_array_equal(found[1].weight.numpy(), want[1].weight.numpy())


def test_no_rows_are_packed_too() -> None:
    blocks = quantized("w", np.zeros((0, 64), np.float32), "Q8_0")
    assert blocks.shape == (0, 2)
    empty = PackedWeight.of("w", "Q8_0", np.zeros((0, 64), np.float32), np.zeros((0, 64)), (0, 0))
    assert (empty.rms_error, empty.share, empty.bytes_after) == (0, 0, 0)
