"""One rule for all data: every kind of array and list, at every place that takes one."""

from __future__ import annotations

import array as buffers
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm

F32 = np.float32
BF16 = lm.bfloat16.numpy


class OnlyDLPack:
    """An array that speaks nothing but today's DLPack, as JAX's."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class OldDLPack(OnlyDLPack):
    """The same from before versions were asked for."""

    def __dlpack__(self, stream: None = None) -> Any:  # type: ignore[override]
        return self._array.__dlpack__(stream=stream)


class OnlyArray:
    """An array that NumPy asks for with `__array__`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype)


# Each makes, of a NumPy array, an array of another kind with the same dtype.
ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "NumPy": lambda a: a,
    "NumPy, other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "torch": torch.tensor,
    "torch with gradient": lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
    "torch parameter": lambda a: torch.nn.Parameter(torch.tensor(a), a.dtype.kind == "f"),
    "torch, strided": lambda a: torch.tensor(np.stack([a, a], -1))[..., 0],
    "DLPack": OnlyDLPack,
    "old DLPack": OldDLPack,
    "__array__": OnlyArray,
    "memoryview": memoryview,
    "a list of arrays": lambda a: [np.asarray(each) for each in a],
    "a list of tensors": lambda a: list(torch.tensor(a)),
}


def _input(dtype: Any) -> Callable[[Any], Any]:
    def take(data: Any) -> Any:
        x = lm.Graph().tensor((2,), dtype, name="x").set(data)
        return x.graph.values["x"]

    return take


def _weight(dtype: Any) -> Callable[[Any], Any]:
    return lambda data: lm.Graph().weight((2,), dtype, name="x").set(data).parameter.numpy()


def _parameter(dtype: Any) -> Callable[[Any], Any]:
    def take(data: Any) -> Any:
        parameter = lm.Parameter((2,), dtype, "x")
        parameter.set(data)
        return parameter.numpy()

    return take


def _state(dtype: Any) -> Callable[[Any], Any]:
    def take(data: Any) -> Any:
        state = lm.State((2,), dtype, name="x")
        state.set(data)
        return state.numpy()

    return take


def _first_state(dtype: Any) -> Callable[[Any], Any]:
    return lambda data: lm.State((2,), dtype, data, "x").numpy()


def _call(dtype: Any) -> Callable[[Any], Any]:
    return lambda data: _identity(dtype)(x=data)["y"]


def _set(dtype: Any) -> Callable[[Any], Any]:
    def take(data: Any) -> Any:
        exe = _identity(dtype)
        exe.set(x=data)
        return exe()["y"]

    return take


def _module(dtype: Any) -> Callable[[Any], Any]:
    def take(data: Any) -> Any:
        module = lm.nn.Module()
        module.x = lm.Parameter((2,), dtype)  # type: ignore[attr-defined]
        module.load_state_dict({"x": data})
        return module.state_dict()["x"]

    return take


def _identity(dtype: Any) -> lm.Executable:
    cx = lm.Graph()
    cx.tensor((2,), dtype, name="x").output("y")
    return lm.compile(cx, backend="reference")


def _new_input(dtype: Any) -> Callable[[Any], Any]:
    return lambda data: lm.Graph().tensor(OnlyArray(data) if data is None else data, dtype).numpy()


def _constant(dtype: Any) -> Callable[[Any], Any]:
    return lambda data: lm.Graph().constant(data, dtype).value.node.attrs.array


PLACES = {
    "input": _input,
    "weight": _weight,
    "parameter": _parameter,
    "state": _state,
    "init": _first_state,
    "call": _call,
    "exe.set": _set,
    "load_state_dict": _module,
    "tensor": _new_input,
    "constant": _constant,
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Callable[[Any], Callable[[Any], Any]]:
    """Of a dtype, a function that takes data there and gives what was stored."""
    return PLACES[request.param]


@pytest.fixture(params=ARRAYS)
def kind(request: pytest.FixtureRequest) -> Callable[[np.ndarray], Any]:
    """Of a NumPy array, another kind of array."""
    return ARRAYS[request.param]


CASES = [
    # what comes, the dtype asked for, and is it taken?
    (np.array([1.5, np.nan], F32), "float32", True),
    (np.array([1.5, np.inf], np.float64), "float32", True),
    (np.array([0.1, 1.0], np.float64), "float32", True),  # rounded: the dtype decides, no value
    (np.array([1e300, 1.0], np.float64), "float32", True),
    (np.array([1.5, 0.1], np.float64), "float16", False),
    (np.array([1.0, 2.0], F32), "int64", False),
    (np.array([1.0, 0.0], F32), "bool", False),
    (np.array([1.5, 2.0], F32), "float64", True),
    (np.array([3, -4], np.int64), "int32", True),
    (np.array([2**40, 1], np.int64), "int32", False),
    (np.array([2**40, 1], np.int64), "float32", False),
    (np.array([2, 1], np.int64), "bool", False),
    (np.array([True, False]), "float32", True),
]


def test_arrays_are_converted_where_no_element_changes(place: Any, kind: Any) -> None:
    for data, dtype, taken in CASES:
        if taken:
            with np.errstate(over="ignore"):
                wanted = data.astype(dtype)
            np.testing.assert_array_equal(place(dtype)(kind(data)), wanted)
            continue
        wanted = rf"expected {dtype}, got {data.dtype}; pass x\.(astype|to)\("
        with pytest.raises((lm.DTypeError, lm.LoadError), match=wanted):
            place(dtype)(kind(data))


@pytest.mark.parametrize("numbers", [[0.1, 2.0], (0.1, 2), [np.float64(0.1), 2]], ids=str)
def test_numbers_take_the_dtype_asked_for(place: Any, numbers: Any) -> None:
    if not (place is _new_input and isinstance(numbers, tuple)):  # there a tuple is a shape
        for dtype in (lm.float32, lm.float64, lm.bfloat16):
            expected = np.array(numbers).astype(dtype.numpy)
            np.testing.assert_array_equal(place(dtype)(numbers), expected)
        with pytest.raises((lm.DTypeError, lm.LoadError), match="expected int64, got floats"):
            place("int64")(numbers)
        with pytest.raises((lm.DTypeError, lm.LoadError), match="expected bool, got floats"):
            place(bool)(numbers)


def test_integers_that_do_not_fit_are_refused(place: Any) -> None:
    np.testing.assert_array_equal(place("int8")([1, -128]), [1, -128])
    np.testing.assert_array_equal(place("bool")([1, 0]), [True, False])
    for dtype, data in (("int8", [1, 128]), ("uint8", [1, -1]), ("bool", [2, 0])):
        with pytest.raises((lm.DTypeError, lm.LoadError), match=f"does not fit {dtype}"):
            place(dtype)(data)


def test_bfloat16_of_torch_keeps_its_bits(place: Any) -> None:
    bits = np.array([0x3F81, 0xFF80], np.uint16)
    tensor = torch.tensor(bits.view(np.int16)).view(torch.bfloat16)
    for data in (tensor, torch.nn.Parameter(tensor), OnlyDLPack(tensor), list(tensor)):
        np.testing.assert_array_equal(place(lm.bfloat16)(data).view(np.uint16), bits)
        np.testing.assert_array_equal(place(lm.float32)(data), bits.view(BF16).astype(F32))
    with pytest.raises((lm.DTypeError, lm.LoadError), match="expected bfloat16, got float32; pass"):
        place(lm.bfloat16)(torch.tensor([0.1, 1.0]))


# --- without a dtype asked for --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "uint8", "bool"])
def test_arrays_keep_their_dtype(kind: Any, dtype: str) -> None:
    data = np.array([1, 0]).astype(dtype)
    cx = lm.Graph()
    made = kind(data) if dtype != "uint8" else data
    for x in (cx.tensor(made), cx.constant(made)):
        assert x.dtype.name == dtype
        assert x.shape == (2,)


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        (0.5, "float32"),
        (np.float64(0.5), "float32"),
        (np.float16(0.5), "float16"),
        (3, "int64"),
        (np.int8(3), "int8"),
        (True, "bool"),
        ([1, 2.5], "float32"),
        ([[1], [2]], "int64"),
        ([], "float32"),
        (range(3), "int64"),
        ([np.float64(1), 2], "float32"),
        (buffers.array("d", [1.0]), "float64"),
        ([np.zeros(2), [1.0, 2.0]], "float64"),
        ([torch.zeros(2, dtype=torch.bfloat16)], "bfloat16"),
    ],
    ids=str,
)
def test_numbers_have_the_default_dtype_of_pytorch(numbers: Any, dtype: str) -> None:
    cx = lm.Graph()
    assert cx.tensor(numbers).dtype.name == cx.constant(numbers).dtype.name == dtype


def test_in_an_operation_numbers_are_weak_and_arrays_are_not() -> None:
    x = lm.Graph().tensor((2,), name="x")
    for weak in (0.1, np.float64(0.1), np.float32(0.1), np.sqrt(2), 3, [0.1, 0.2]):
        assert (x * weak).dtype is (weak * x).dtype is lm.float32
    for strong in (np.array([0.1, 0.2]), torch.tensor([0.1, 0.2], dtype=torch.float64)):
        assert (x * strong).dtype is lm.float64  # as PyTorch's
    assert (x @ torch.ones(2, requires_grad=True)).dtype is lm.float32


def test_torch_tensors_are_operands_and_indices() -> None:
    cx = lm.Graph()
    x = cx.tensor((4, 2), name="x")
    (x[torch.tensor([1, -1])] + torch.nn.Parameter(torch.tensor([10.0, 20.0]))).output("rows")
    x.gather(0, torch.tensor([[3, 0]])).output("gathered")
    lm.where(torch.tensor([True, False]), x, torch.tensor(7.0)).output("picked")
    x.repeat_interleave(torch.tensor([0, 2, 0, 1]), 0).output("repeated")
    data = np.arange(8, dtype=F32).reshape(4, 2)
    found = lm.compile(cx, backend="reference")(x=torch.from_numpy(data))
    np.testing.assert_array_equal(found["rows"], data[[1, -1]] + [10, 20])
    np.testing.assert_array_equal(found["gathered"], [[6, 1]])
    np.testing.assert_array_equal(found["picked"][:, 1], 7)
    np.testing.assert_array_equal(found["repeated"], data[[1, 1, 3]])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ("text", lm.DTypeError, "x: 'text' is not made of numbers"),
        (None, lm.DTypeError, "x: None is not made of numbers"),
        ({1: 2}, lm.DTypeError, "x: a dict is not an array; pass a list"),
        ([[1.0, 2.0], [3.0]], lm.ShapeError, "x: rows of unequal lengths"),
        ([np.ones(2), np.ones(3)], lm.ShapeError, "x: rows of unequal lengths"),
        (np.ones(2) + 1j, lm.DTypeError, r"x: expected float32, got complex128; pass x\.astype"),
        (np.ma.masked_equal([1.0, 2.0], 2), lm.DTypeError, r"x: a masked array; pass x\.filled"),
        (torch.ones(2, dtype=torch.complex64), lm.DTypeError, "expected float32, got complex64"),
        (torch.ones(2, device="meta"), lm.LuminalError, "x: .*meta"),
        (torch.ones(2).to_sparse(), lm.LuminalError, "x: a Tensor of torch.float32 cannot be read"),
        (torch.ones(2).to(torch.float8_e5m2fnuz), lm.DTypeError, "a Tensor of .*e5m2fnuz"),
        ([10**30, 1], lm.DTypeError, "does not fit int64 or uint64"),
    ],
    ids=str,
)
def test_what_is_no_array_is_refused_by_name(data: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        lm.Graph().tensor((2,), name="x").set(data)


def test_an_array_elsewhere_is_refused_with_the_fix() -> None:
    class Elsewhere(OnlyDLPack):
        device = "cuda:1"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    with pytest.raises(lm.InputError, match=r"x: the array is on device cuda:1, .* as x\.cpu\(\)"):
        lm.Graph().tensor((2,), name="x").set(Elsewhere(np.ones(2, F32)))


# --- whose memory it is ---------------------------------------------------------------------------


def test_inputs_of_torch_are_borrowed_and_weights_are_copied() -> None:
    exe = _identity("float32")
    x = torch.zeros(2)
    exe(x=x)
    x += 5
    assert exe()["y"].tolist() == [5, 5]
    for make in (torch.zeros, lambda n: OldDLPack(torch.zeros(n)), lambda n: np.zeros(n, F32)):
        given = make(2)
        parameter = lm.Parameter((2,))
        parameter.set(given)
        getattr(given, "_array", given)[:] = 9
        assert parameter.numpy().tolist() == [0, 0]
    frozen = np.zeros(2, F32)
    frozen.flags.writeable = False
    parameter.set(frozen)
    assert parameter.numpy() is frozen


def test_a_tensor_of_torch_outlives_its_name() -> None:
    exe = _identity(lm.bfloat16)
    exe(x=torch.full((2,), 3.0, dtype=torch.bfloat16))
    _ = [torch.full((2,), 8.0, dtype=torch.bfloat16) for _ in range(100)]
    assert exe()["y"].tolist() == [3, 3]


def test_outputs_go_into_tensors_of_torch() -> None:
    exe = _identity("float32")
    y = torch.zeros(2)
    exe({"x": [1, 2]}, out={"y": y})
    exe({"x": [1, 2]}, out=y)
    assert y.tolist() == [1, 2]
    with pytest.raises(lm.InputError, match="out: y takes a NumPy array, got OnlyArray"):
        exe(out={"y": OnlyArray(y)})


def test_dtypes_of_torch_are_taken_by_name() -> None:
    cx = lm.Graph()
    assert cx.tensor((2,), torch.bfloat16).dtype is lm.bfloat16
    assert cx.tensor((2,)).to(torch.int8).dtype is lm.int8
    assert cx.tensor((2,), torch.complex64).dtype is lm.complex64
    with pytest.raises(lm.DTypeError, match="complex32 is not an element type"):
        cx.tensor((2,), torch.complex32)


def test_complex_numbers_come_in_by_every_name() -> None:
    ours: Any = lm
    a = np.array([1 + 2j, 3j], np.complex64)
    for z in (
        ours.tensor(a),
        ours.tensor(a.astype(">c8")),
        ours.from_numpy(a),
        ours.from_dlpack(a),
        ours.as_tensor(a),
        ours.as_tensor(torch.tensor(a).conj()).conj(),
        ours.as_tensor([1 + 2j, 3j]),
        ours.asarray(a.astype(np.complex128), dtype=lm.complex64),
    ):
        found = z.numpy()
        assert found.dtype == a.dtype
        np.testing.assert_array_equal(found, a)
    assert ours.as_tensor([1, 2], dtype="complex128").dtype is lm.complex128
    assert ours.as_tensor(z) is ours.from_dlpack(z) is z
    assert ours.as_tensor(z, lm.complex128).dtype is lm.complex128


def test_complex_numbers_share_their_memory() -> None:
    """Whoever writes there later is read, however the array lies."""
    a = np.arange(12).reshape(3, 4) * np.complex64(1 + 1j)
    theirs = torch.tensor(a)
    views: list[Any] = [
        lm.as_tensor(a), lm.from_numpy(a.T[::-1, 1:]), lm.from_dlpack(theirs), lm.as_tensor(a[0, 0])
    ]  # fmt: skip
    a[...], theirs[...] = 7j, 7j
    assert all((z.numpy() == 7j).all() for z in views[:3])
    assert views[3].numpy() == 0  # of a number of NumPy's there is no memory
    assert (lm.tensor(a).numpy() == 7j).all()
