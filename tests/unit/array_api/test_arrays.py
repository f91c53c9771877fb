"""Arrays of `lm.array_api`: when they are computed, what is compiled, whose memory they have."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.array_api import deferred

xp = lm.array_api
Array = xp.Array


def compiles(action: Callable[[], Any]) -> int:
    before = lm.compile_count()
    action()
    return lm.compile_count() - before


def start(x: Any) -> int:
    return np.asarray(x).ctypes.data


# --- when they are computed -----------------------------------------------------------------------


def chain(x: Any, n: float) -> float:
    y = xp.exp(x * n) + 1
    return float(xp.sum(y / (1 + y)))


def test_a_chain_compiles_once_for_its_shapes_and_dtypes() -> None:
    assert compiles(lambda: chain(xp.ones((3, 5)), 2.5)) == 1
    assert compiles(lambda: [chain(xp.full((3, 5), 0.1 * k), k / 3) for k in range(5)]) == 0
    assert compiles(lambda: chain(xp.ones((3, 6)), 2.5)) == 1
    assert compiles(lambda: chain(xp.ones((3, 5), dtype=xp.float64), 2.5)) == 1


def test_what_is_known_compiles_nothing() -> None:
    def look() -> None:
        x = xp.reshape(xp.arange(12, dtype=xp.float32) + 1.0, (3, 4))
        assert (x.shape, x.ndim, x.size, x.dtype, x.device) == ((3, 4), 2, 12, xp.float32, "cpu")
        assert len(x) == 3
        assert (x.mT.shape, x.T.shape) == ((4, 3), (4, 3))

    assert compiles(look) == 0
    assert compiles(lambda: repr(xp.zeros(3))) == 0


def test_one_run_computes_all_that_is_held() -> None:
    x = xp.linspace(0, 1, 7)
    y = xp.sin(x)
    z = y * y + 1
    assert compiles(lambda: float(xp.sum(z))) == 1
    assert compiles(lambda: (repr(y), repr(z))) == 0
    assert np.allclose(np.asarray(z), np.sin(np.linspace(0, 1, 7)) ** 2 + 1)


def test_what_was_computed_since_is_not_computed_again() -> None:
    x = xp.linspace(1, 2, 9)
    y = xp.log(x)
    part = xp.exp(y)
    z = part * y + part
    float(y[0])
    exact = np.linspace(1, 2, 9)
    assert np.allclose(np.asarray(z), exact * np.log(exact) + exact)
    ran = {node.op.name for node in _latest().executable.graph.nodes()}
    assert "Log" not in ran
    assert "Exp" in ran
    assert compiles(lambda: float(part[0])) == 0


def _latest() -> Any:
    """The program that ran last."""
    return next(reversed(deferred.programs._programs.values()))


def test_what_is_dropped_is_not_stored() -> None:
    x = xp.ones((3,)) * 3
    y = xp.sum((x * 2) + 1)
    assert float(y) == 21
    assert _latest().executable.interface.count("value") == 2  # x and y


def test_subscripts_compile_nothing() -> None:
    x = xp.ones((20,)) * 2
    float(x[0])
    assert compiles(lambda: [float(x[k]) + float(xp.zeros(3)[k % 3]) for k in range(20)]) == 0
    assert compiles(lambda: [x[k:] for k in range(20)]) == 0


def test_loops_that_read_nothing_are_computed_in_parts() -> None:
    def loop() -> Array:
        x = xp.zeros((4,))
        for _ in range(500):
            x = x * 0.5 + 1
        return x

    assert compiles(lambda: float(loop()[0])) <= 4
    assert compiles(lambda: float(loop()[0])) == 0
    assert float(loop()[0]) == 2


def test_many_operands_are_computed_one_by_one() -> None:
    parts = [xp.full((2,), k) * 2 for k in range(200)]
    assert compiles(lambda: np.asarray(xp.stack(parts))) <= 2
    assert np.asarray(xp.stack(parts))[:, 0].tolist() == [*range(0, 400, 2)]


def test_graphs_end_and_arrays_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MAX_NODES", 64)
    first, x = deferred.current(), xp.ones((2,)) + 1
    for count in itertools.count(2):
        y = xp.ones((2,)) * count  # never computed
        if deferred.current() is not first:
            break
    assert np.asarray(x + y).tolist() == [2 + count] * 2
    for _ in range(10 * deferred.MAX_NODES):
        x = x + 1
    assert len(deferred.current().builder) < 8 * deferred.MAX_NODES


def test_memory_goes_with_its_arrays() -> None:
    x = xp.ones((1000,))
    memory = weakref.ref(x._deferred.array())
    y = xp.sum(x)
    del x
    assert float(y) == 1000
    gc.collect()
    assert memory() is None


def test_threads_share_arrays() -> None:
    x = xp.arange(5) + 1
    found: list[Any] = []

    def work() -> None:
        found.append(float(xp.sum(x * 2)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [30.0] * 4


# --- values, whoever writes -----------------------------------------------------------------------


def test_what_was_recorded_keeps_its_operands() -> None:
    x = xp.ones((3,)) * 1
    y, part = x + 1, x[:2]
    x[0] = 7
    x += 1
    assert np.asarray(x).tolist() == [8, 2, 2]
    assert np.asarray(y).tolist() == [2, 2, 2]
    assert np.asarray(part).tolist() == [1, 1]


def test_writing_again_and_again_copies_once() -> None:
    x = xp.zeros((1000,))
    x[0] = 1
    place = x._deferred.array().ctypes.data
    for k in range(10):
        x[k] = k
    assert x._deferred.array().ctypes.data == place


def test_plus_is_another_array() -> None:
    x = xp.zeros((2,))
    x[0] = 1
    y = +x
    x[0] = 2
    assert np.asarray(y).tolist() == [1, 0]


def test_the_one_array_has_the_new_value() -> None:
    x = xp.zeros((2,))
    same, other = x, copy.deepcopy(x)
    x[1] = 5
    x *= 2
    assert np.asarray(same).tolist() == [0, 10]
    assert np.asarray(other).tolist() == [0, 0]


def test_shared_memory_is_read_when_the_operation_is_called() -> None:
    memory = np.ones(3, np.float32)
    for x in (xp.asarray(memory), xp.from_dlpack(memory), xp.from_dlpack(torch.from_numpy(memory))):
        assert start(x) == memory.ctypes.data
        memory[:] = 1
        y = x + 1
        z = x[1:] + 1
        memory[:] = 50
        assert np.asarray(y).tolist() == [2, 2, 2]
        assert np.asarray(z).tolist() == [2, 2]


def test_what_goes_out_is_settled_first() -> None:
    x = xp.ones((3,)) * 2
    float(x[0])
    y = x + 1
    taken = torch.from_dlpack(x)
    assert taken.data_ptr() == start(x)
    taken += 10
    assert np.asarray(y).tolist() == [3, 3, 3]
    z = x + 1
    taken += 10
    assert np.asarray(z).tolist() == [13, 13, 13]


def test_what_another_thread_recorded_is_settled_too() -> None:
    x = xp.ones((3,))
    made: list[Array] = []
    thread = threading.Thread(target=lambda: made.append(x + 1))
    thread.start()
    thread.join()
    torch.from_dlpack(x).zero_()
    assert np.asarray(made[0]).tolist() == [2, 2, 2]


def test_what_was_computed_and_written_to_is_computed_again() -> None:
    x = xp.ones((3,)) * 2
    y = x + 1
    torch.from_dlpack(x).zero_()
    assert np.asarray(y).tolist() == [3, 3, 3]
    assert np.asarray(x).tolist() == [0, 0, 0]


def test_numpy_gets_a_view_that_it_cannot_write() -> None:
    x = xp.ones((3,))
    view = np.asarray(x)
    assert not view.flags.writeable
    x[0] = 5
    assert view.tolist() == [1, 1, 1]
    assert np.array(x, copy=True).flags.writeable
    assert np.asarray(x, np.int8).dtype == np.int8


# --- asarray --------------------------------------------------------------------------------------


def test_asarray_takes_and_shares() -> None:
    assert xp.asarray([1, 2]).dtype is xp.int64
    assert xp.asarray(1.5).dtype is xp.float32
    assert xp.asarray([True]).dtype is xp.bool
    assert xp.asarray([[1], [2]], dtype=xp.float64).shape == (2, 1)
    assert xp.asarray(torch.ones(2, dtype=torch.bfloat16)).dtype is lm.bfloat16
    memory = np.ones(3)
    assert start(xp.asarray(memory, copy=False)) == memory.ctypes.data
    assert start(xp.asarray(memory, copy=True)) != memory.ctypes.data
    x = xp.asarray(memory)
    assert start(xp.asarray(x)) == start(x)
    assert start(xp.asarray(x, copy=True)) != start(x)
    assert xp.asarray(x, dtype=xp.float32).dtype is xp.float32
    assert xp.asarray([x, x]).shape == (2, 3)
    for given, dtype in (([1.0], None), (memory, xp.float32)):
        with pytest.raises(lm.InputError, match="copy=False, but a copy is needed"):
            xp.asarray(given, dtype=dtype, copy=False)
    with pytest.raises(lm.DTypeError, match="asarray: expected int8, got float64"):
        xp.asarray(memory, dtype=xp.int8)
    with pytest.raises(lm.InputError, match="device 'cuda:97'"):
        xp.asarray(1, device="cuda:97")
    with pytest.raises(lm.DTypeError, match="a list has no __dlpack__; use asarray"):
        xp.from_dlpack([1.0])


def test_arrays_from_nothing() -> None:
    made = {
        "arange": (xp.arange(3), np.arange(3)),
        "arange of floats": (xp.arange(1, 2, 0.25), np.arange(1, 2, 0.25, dtype=np.float32)),
        "arange of a dtype": (xp.arange(5, 0, -2, dtype=xp.uint8), np.uint8([5, 3, 1])),
        "arange of nothing": (xp.arange(3, 1), np.arange(3, 1)),
        "full": (xp.full((2,), 7), np.full(2, 7)),
        "full of a bool": (xp.full(2, True), np.full(2, True)),
        "zeros": (xp.zeros((2, 0)), np.zeros((2, 0), np.float32)),
        "empty": (xp.empty(3, dtype=xp.int8), np.zeros(3, np.int8)),
        "ones": (xp.ones(()), np.float32(1)),
        "eye": (xp.eye(2, 3, k=1, dtype=xp.int16), np.eye(2, 3, 1, np.int16)),
        "linspace": (xp.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=np.float32)),
        "linspace open": (xp.linspace(1, 0, 4, endpoint=False), np.float32([1, 0.75, 0.5, 0.25])),
        "zeros_like": (xp.zeros_like(xp.ones((2,), dtype=xp.int8)), np.zeros(2, np.int8)),
        "ones_like": (xp.ones_like(xp.zeros(2), dtype=xp.int8), np.ones(2, np.int8)),
        "full_like": (xp.full_like(xp.zeros(2), 3), np.float32([3, 3])),
        "empty_like": (xp.empty_like(xp.ones(2)), np.zeros(2, np.float32)),
    }
    for name, (found, expected) in made.items():
        assert np.asarray(found).dtype == np.asarray(expected).dtype, name
        assert np.array_equal(np.asarray(found), expected), name


# --- dtypes ---------------------------------------------------------------------------------------


def test_promotion_counts_0d_arrays_and_not_numbers() -> None:
    narrow, wide = xp.ones(3), xp.asarray(1.0, dtype=xp.float64)
    assert (narrow + wide).dtype is xp.float64  # elsewhere in Luminal, as in PyTorch: float32
    assert (narrow + 1.5).dtype is (1 + narrow).dtype is xp.float32
    assert (xp.ones(2, dtype=xp.int8) + xp.ones((), dtype=xp.uint8)).dtype is xp.int16
    assert xp.result_type(xp.int8, xp.ones(1, dtype=xp.int16), 5) is xp.int16
    assert xp.result_type(xp.int8, 1.5) is xp.float32
    assert xp.add(narrow, 1j).dtype is (1j * xp.ones(1)).dtype is xp.complex64
    assert (wide + 1j).dtype is xp.result_type(xp.complex64, wide) is xp.complex128
    with pytest.raises(lm.DTypeError, match="300 does not fit uint8"):
        xp.ones(1, dtype=xp.uint8) + 300
    with pytest.raises(lm.DTypeError, match="a str is no array of lm"):
        xp.add(narrow, "1")
    with pytest.raises(TypeError, match="unsupported operand"):
        narrow + "1"  # type: ignore[operator]
    with pytest.raises(lm.DTypeError, match="no array or dtype is given"):
        xp.result_type(1, 2.0)


def test_casts() -> None:
    assert xp.can_cast(xp.int8, xp.int16)
    assert xp.can_cast(xp.ones(1), xp.float64)
    for pair in ((xp.int16, xp.int8), (xp.int64, xp.float64), (xp.bool, xp.int8)):
        assert not xp.can_cast(*pair)
    x = xp.astype(xp.asarray([1.7, -1.7, 0.0]), xp.int8)
    assert np.asarray(x).tolist() == [1, -1, 0]
    assert np.asarray(xp.astype(x, xp.bool)).tolist() == [True, True, False]


def test_kinds_and_limits() -> None:
    assert xp.isdtype(xp.int8, "integral")
    assert xp.isdtype(xp.float32, ("bool", xp.float32))
    assert not xp.isdtype(xp.bool, "numeric")
    assert not xp.isdtype(xp.float32, "complex floating")
    assert xp.isdtype(xp.complex64, ("numeric",))
    assert not xp.isdtype(xp.complex64, "real floating")
    assert (xp.finfo(xp.complex128).dtype, xp.finfo(xp.complex64).bits) == (xp.float64, 32)
    assert xp.can_cast(xp.complex64, xp.complex128)
    assert xp.can_cast(xp.float32, xp.complex64)
    assert not xp.can_cast(xp.float64, xp.complex64)
    with pytest.raises(lm.InputError, match="kind 'float': takes one of 'bool', "):
        xp.isdtype(xp.int8, "float")
    limits, exact = xp.finfo(xp.float64), np.finfo(np.float64)
    assert (limits.bits, limits.eps, limits.max, limits.min) == (
        64,
        exact.eps,
        exact.max,
        exact.min,
    )
    assert (limits.smallest_normal, limits.dtype) == (exact.smallest_normal, xp.float64)
    assert xp.finfo(xp.ones(1)).bits == 32
    assert (xp.iinfo(xp.uint8).max, xp.iinfo(xp.ones(1, dtype=xp.int8)).min) == (255, -128)
    with pytest.raises(lm.DTypeError, match="finfo: i8 is no float"):
        xp.finfo(xp.int8)


def test_what_the_namespace_says_of_itself() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert (info.default_device(), info.devices()) == ("cpu", ["cpu"])
    assert info.default_dtypes()["real floating"] is xp.zeros(1).dtype
    assert info.default_dtypes()["integral"] is xp.arange(1).dtype
    assert info.default_dtypes()["indexing"] is xp.argmax(xp.ones(2)).dtype
    complexes, integers = info.dtypes(kind="complex floating"), info.dtypes(kind="integral")
    assert set(info.dtypes()) == {"bool", "float32", "float64", *complexes, *integers}
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"}
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert info.default_dtypes()["complex floating"] is xp.asarray(1j).dtype
    x = xp.ones(1)
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(lm.InputError, match=r"api_version '2030\.12': takes one of 2021\.12, "):
        x.__array_namespace__(api_version="2030.12")
    assert xp.broadcast_shapes((3, 1), (4,), ()) == (3, 4)
    with pytest.raises(lm.ShapeError, match=r"\(2,\), \(3,\) do not broadcast"):
        xp.broadcast_shapes((2,), (3,))


# --- Python's manners -----------------------------------------------------------------------------


def test_0d_arrays_are_numbers() -> None:
    x = xp.asarray(3)
    assert (bool(x), int(x), float(x), complex(x), [10, 20, 30, 40][x]) == (True, 3, 3.0, 3, 40)
    assert math.isclose(xp.asarray(2.5), 2.5)
    for read in (bool, int, float, complex):
        with pytest.raises(lm.ShapeError, match=r"an array of shape \(1,\); only 0-d ones"):
            read(xp.ones(1))
    with pytest.raises(lm.DTypeError, match="the array is float32, no integer"):
        [1][xp.asarray(0.0)]
    with pytest.raises(lm.ShapeError, match="a 0-d array has no length"):
        len(x)
    assert [int(each) for each in xp.arange(3)] == [0, 1, 2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_copies_and_pickles() -> None:
    x = xp.asarray([1.5, 2.5])
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert np.asarray(other).tolist() == [1.5, 2.5]
    bf16 = xp.astype(x, lm.bfloat16)
    assert np.asarray(pickle.loads(pickle.dumps(bf16))).dtype == ml_dtypes.bfloat16
    assert repr(x) == "Array([1.5, 2.5], dtype=float32)"
    assert x.to_device("cpu") is x
    with pytest.raises(lm.InputError, match="to_device: device 'cuda:97'"):
        x.to_device("cuda:97")


def test_operators_that_assign_keep_their_dtype_and_shape() -> None:
    x = xp.ones((2,), dtype=xp.int8)
    x += 1
    x -= xp.ones((), dtype=xp.int8)
    x *= 6
    x //= 2
    x %= 2
    x **= 2
    x <<= 3
    x >>= 1
    x |= 1
    x &= 7
    x ^= 2
    assert (np.asarray(x).tolist(), x.dtype) == ([7, 7], xp.int8)
    y = xp.eye(2)
    y /= 2
    y @= y
    assert np.asarray(y).tolist() == [[0.25, 0], [0, 0.25]]
    with pytest.raises(
        lm.DTypeError, match=r"keeps int8 .* the result is int16 .* write x = x \+ y"
    ):
        x += xp.ones((2,), dtype=xp.int16)
    with pytest.raises(lm.DTypeError, match=r"the result is int8 of shape \(3, 2\)"):
        x += xp.ones((3, 2), dtype=xp.int8)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a wide value": (
        lambda: xp.ones(2).__setitem__(0, xp.ones((), dtype=xp.float64)),
        lm.DTypeError, "x holds float32, the value float64; use astype",
    ),
    "a float in integers": (
        lambda: xp.arange(2).__setitem__(0, 1.5), lm.DTypeError, "got the float 1.5",
    ),
    "beyond the end": (lambda: xp.ones(2)[2], IndexError, "out of bounds"),
    "T of a cube": (lambda: xp.ones((1, 1, 1)).T, lm.ShapeError, "T: 3 dims, not 2; use mT"),
    "squeeze": (
        lambda: xp.squeeze(xp.ones((2,)), 0), lm.ShapeError, "dim 0 of .* has 2 elements, not 1",
    ),
    "nonzero of a number": (lambda: xp.nonzero(xp.asarray(1)), lm.ShapeError, "reshape it to"),
    "take without an axis": (
        lambda: xp.take(xp.ones((2, 2)), xp.asarray([0])), lm.ShapeError, "2 dims; give axis",
    ),
    "cumulative_sum without": (
        lambda: xp.cumulative_sum(xp.ones((2, 2))), lm.ShapeError, "2 dims; give axis",
    ),
    "repeat by floats": (
        lambda: xp.repeat(xp.ones(2), xp.ones(2)), lm.DTypeError, "counts are float32, no integers",
    ),
    "clip by wider bounds": (
        lambda: xp.clip(xp.ones(2), xp.zeros((), dtype=xp.float64)), lm.DTypeError, "a wider dtype",
    ),
    "imag": (lambda: xp.imag(xp.ones(1)), lm.DTypeError, "float32 has no imaginary part"),
    "shapes": (lambda: xp.ones(2) + xp.ones(3), lm.ShapeError, "broadcast"),
    "a Tensor": (lambda: xp.unique_values(lm.ones(2)), lm.DTypeError, "a Tensor is no array of"),
    "a singular matrix": (
        lambda: np.asarray(xp.linalg.inv(xp.zeros((2, 2)))), lm.InputError, "is singular",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_write(case: str) -> None:
    action, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        action()


def test_with_tensors_the_functions_record() -> None:
    cx = lm.Graph()
    x = cx.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = xp.std(x, axis=0) + xp.concat([x, x])[0]
    assert isinstance(y, lm.Tensor)
    assert y.tolist() == [2, 3]
