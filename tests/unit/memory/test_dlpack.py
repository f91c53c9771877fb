"""DLPack both ways: one memory where it may be one, the protocol's arguments, who owns what."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base import dtypes
from luminal.memory import dlpack

pytestmark = pytest.mark.usefixtures("new_default_graph")

Array = np.ndarray[Any, Any]
F32 = np.float32
SHAPES = [(), (0, 3), (1,), (2, 3)]


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def start(array: Array) -> int:
    return array.ctypes.data


# --- out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_go_out_as_they_are(shape: tuple[int, ...], dtype: lm.DType) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, dtype)
    y = x if dtype.is_moved_only else x + x
    made = lm.compile(cx_output(cx, y), "reference")({x: np.ones(shape, dtype.numpy)})["y"]
    taken = torch.from_dlpack(lm.to_dlpack(made))
    assert str(taken.dtype) == f"torch.{dtype.name}"
    assert tuple(taken.shape) == shape
    assert taken.data_ptr() == start(made) or made.size == 0
    assert np.array_equal(lm.from_dlpack(taken).numpy(), made)


def cx_output(cx: lm.Graph, y: lm.Tensor) -> lm.Graph:
    y.output("y")
    return cx


def test_jax_takes_a_tensor() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    assert jnp.from_dlpack(lm.tensor([1.0, 2.0]) * 2).tolist() == [2, 4]


def test_numpy_takes_a_tensor() -> None:
    x = lm.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert np.from_dlpack(x * 2).tolist() == np.asarray(x * 2).tolist() == [[2, 4], [6, 8]]


READ_ONLY: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing said": ({}, True),
    "a new consumer": ({"max_version": (1, 0)}, True),
    "a copy": ({"copy": True}, True),
    "no copy": ({"copy": False, "max_version": (1, 0)}, False),
}


@pytest.mark.parametrize("case", READ_ONLY)
@pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16], ids=str)
def test_what_is_read_only_is_copied_unless_that_is_forbidden(case: str, dtype: lm.DType) -> None:
    options, is_copied = READ_ONLY[case]
    array = read_only(np.ones(3, dtype.numpy))
    taken = torch.from_dlpack(dlpack.Exported(dlpack.capsule_of(array, **options)))
    assert (taken.data_ptr() != start(array)) == is_copied
    assert taken.tolist() == [1, 1, 1]


def test_numpy_sees_that_memory_is_read_only() -> None:
    array = read_only(np.ones(3, F32))
    shared = np.from_dlpack(lm.to_dlpack(array), copy=False)
    assert start(shared) == start(array)
    assert not shared.flags.writeable


def test_a_copy_is_a_copy() -> None:
    x = lm.from_numpy(np.ones(3, F32))
    for copy, is_copied in ((None, False), (False, False), (True, True)):
        taken = torch.from_dlpack(x, copy=copy)
        assert (taken.data_ptr() != start(x.numpy())) == is_copied


def test_what_lies_backwards_is_copied() -> None:
    """PyTorch ends its process over a negative stride."""
    array = np.arange(4, dtype=F32)[::-1]
    assert torch.from_dlpack(lm.from_numpy(array)).tolist() == [3, 2, 1, 0]
    assert torch.from_dlpack(lm.to_dlpack(array)).tolist() == [3, 2, 1, 0]
    with pytest.raises(BufferError, match="lies backwards in memory"):
        torch.from_dlpack(lm.to_dlpack(array), copy=False)


REFUSED: dict[str, dict[str, Any]] = {
    "another device": {"dl_device": (2, 0)},
    "read-only, to a consumer that cannot be told": {"copy": False},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_given_is_a_buffer_error(case: str) -> None:
    with pytest.raises(BufferError):
        dlpack.capsule_of(read_only(np.ones(3, F32)), **REFUSED[case])


def test_states_and_parameters_hand_out_copies() -> None:
    for held in (lm.State((2,), init=3), lm.Parameter([3.0, 3.0])):
        assert torch.from_dlpack(held, copy=True).tolist() == [3, 3]
        with pytest.raises(BufferError, match="hands out copies; leave copy=False out"):
            held.__dlpack__(copy=False)


def test_asked_for_its_own_device() -> None:
    x = lm.from_numpy(np.ones(3, F32))
    assert np.from_dlpack(x, device="cpu").tolist() == [1, 1, 1]
    assert x.__dlpack_device__() == (dlpack.CPU, 0)


# --- whose memory it is ---------------------------------------------------------------------------


CONSUMERS: dict[str, Callable[[Array], Any]] = {
    "torch": lambda array: torch.from_dlpack(lm.to_dlpack(array)),
    "numpy": lambda array: np.from_dlpack(lm.to_dlpack(array)),
    "a view of it": lambda array: torch.from_dlpack(lm.to_dlpack(array))[10:],
    "its capsule": lambda array: lm.to_dlpack(array).__dlpack__(),
    "bfloat16 to torch": lambda array: torch.from_dlpack(lm.to_dlpack(array)),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_no_run_writes_where_a_consumer_looks(consumer: str) -> None:
    """Outputs are recycled; while someone has the memory, other runs write elsewhere."""
    dtype = lm.bfloat16 if consumer.startswith("bfloat16") else lm.float32
    cx = lm.Graph()
    x = cx.tensor((1000,), dtype, "x")
    exe = lm.compile(cx_output(cx, x * 2))
    held = [CONSUMERS[consumer](exe(x=np.full(1000, k, dtype.numpy))["y"]) for k in range(4)]
    gc.collect()
    for k in range(8):
        exe(x=np.full(1000, -k, dtype.numpy))
    for k, each in enumerate(held):
        taken = torch.from_dlpack(dlpack.Exported(each)) if consumer == "its capsule" else each
        assert set(taken.tolist()) == {2 * k}


def test_memory_comes_back_when_the_consumer_is_done() -> None:
    cx = lm.Graph()
    x = cx.tensor((1000,), name="x")
    exe = lm.compile(cx_output(cx, x * 2))
    ones = np.ones(1000, F32)
    places = {torch.from_dlpack(exe(x=ones)["y"]).data_ptr() for _ in range(20)}
    assert len(places) <= 2


# --- in -------------------------------------------------------------------------------------------


IN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "every second row": lambda x: x[::2],
    "from an offset": lambda x: x[1:, 2:],
    "one row for all": lambda x: x[:1].expand(3, -1),
    "empty": lambda x: x[:0],
    "0-d": lambda x: x[1, 2],
    "with a gradient": lambda x: x.clone().requires_grad_(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", IN)
def test_tensors_come_in_as_they_lie(case: str, dtype: torch.dtype) -> None:
    data = IN[case](torch.arange(12.0).reshape(3, 4).to(dtype))
    x = lm.from_dlpack(data)
    array = x.numpy()
    assert (x.dtype.name, x.shape) == (str(dtype)[6:], tuple(data.shape))
    assert start(array) == data.data_ptr() or array.size == 0
    assert (x * 2).tolist() == (data * 2).tolist()


def test_a_capsule_is_read_once() -> None:
    class Stale:
        capsule = np.ones(3, F32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **options: Any) -> Any:
            return self.capsule

    lm.from_dlpack(Stale())
    with pytest.raises(lm.DTypeError, match="a capsule is read once, this one is named b'used_"):
        lm.from_dlpack(Stale())
