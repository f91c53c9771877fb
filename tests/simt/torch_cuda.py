"""Tensors of PyTorch's device "cuda" on a machine without one, for tests in a process of their own.

Their memory is the stand-in driver's, and their operators are those of the CPU: an operator waits
for its operands, computes on the same memory, and queues its results in the stream that is
PyTorch's current one. So what another library queues elsewhere is seen only by who waits for it.
PyTorch's CPU build takes such tensors by DLPack; `torch_cuda.cpp`, which is to be loaded before it,
has what it asks of a device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch._C._dynamo.guards import _reinterpret_tensor  # type: ignore[attr-defined]
from torch.utils._pytree import tree_map

from luminal.memory import dlpack_device
from luminal.torch_backend.types import dtype_of
from tests.simt import torch_library
from tests.simt.stand_in import CUDA

_UNWRITTEN = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
POISON = 0xCB
"""What is in memory that was given back: a run that still reads or writes it is seen."""
STREAMS: dict[int, int] = {}
"""The stream that is current, by device."""
USED: Counter[str] = Counter()
"""How often PyTorch ran an operator on the device."""


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL(CUDA)


def _done(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error: {status}")


class _Block:
    """Memory of the device, kept for the next tensor of its size when no tensor has it any more: as
    PyTorch does, at once, since all that PyTorch has queued comes before what it queues next.
    """

    free: ClassVar[defaultdict[int, list[int]]] = defaultdict(list)

    def __init__(self, size: int) -> None:
        kept = self.free[size]
        self.address = kept.pop() if kept else _allocated(max(1, size))
        weakref.finalize(self, _let_go, self.address, size).atexit = False


def _allocated(size: int) -> int:
    address = ctypes.c_uint64()
    _done(_driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address.value


def _let_go(address: int, size: int) -> None:
    at, stream = ctypes.c_uint64(address), ctypes.c_void_p(STREAMS[0])
    _driver().cuMemsetD8Async(at, ctypes.c_ubyte(POISON), ctypes.c_size_t(size), stream)
    _Block.free[size].append(address)


def new(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, index: int) -> Any:
    """A tensor of the device, which nothing has written."""
    reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    count = reach if prod(size) else 0
    block = _Block(count * dtype.itemsize)
    return _reinterpret_tensor(_over(block.address, count, dtype, index, block), size, stride)


def _over(address: int, count: int, dtype: torch.dtype, index: int, owner: Any) -> Any:
    """So many elements at an address, as a tensor of the device that keeps their owner."""
    device = dlpack_device.CUDA, index
    capsule = dlpack_device.exported(address, (count,), dtype_of(dtype), device, owner, None)
    return torch._C._from_dlpack(capsule)  # type: ignore[attr-defined]


def of_host(x: torch.Tensor) -> torch.Tensor:
    """A tensor of the CPU in the same memory."""
    count = x.untyped_storage().nbytes()
    if not count:
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype)
    memory = (ctypes.c_uint8 * count).from_address(x.untyped_storage().data_ptr())
    held = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    whole = torch.empty(0, dtype=x.dtype)
    return whole.set_(held, x.storage_offset(), x.size(), x.stride())


def _wait() -> None:
    _done(_driver().cuStreamSynchronize(ctypes.c_void_p(STREAMS[0])))


def _queue(target: torch.Tensor, value: torch.Tensor) -> None:
    """Queues a copy of what has been computed into a tensor of the device."""
    size = target.untyped_storage().nbytes()
    if not size:
        return
    source, address = value.untyped_storage().data_ptr(), target.untyped_storage().data_ptr()
    stream = ctypes.c_void_p(STREAMS[0])
    copy = _driver().cuMemcpyHtoDAsync_v2
    _done(copy(ctypes.c_uint64(address), ctypes.c_void_p(source), ctypes.c_size_t(size), stream))


def _aside(x: torch.Tensor) -> torch.Tensor:
    """A tensor of the host with a copy of all the memory that a tensor of the device has."""
    held = of_host(x).untyped_storage().clone()
    return torch.empty(0, dtype=x.dtype).set_(held, x.storage_offset(), x.size(), x.stride())


def _operator(op: Any, *args: Any, **named: Any) -> Any:
    """Any operator, by the CPU's kernels."""
    name = op._schema.name.rpartition("::")[2]
    USED[name] += 1
    if name not in _UNWRITTEN:
        _wait()
    apart: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by address of storage
    index = torch_exchange(-1)

    def lowered(x: Any) -> Any:
        nonlocal index
        if isinstance(x, torch.device):
            index = x.index if x.index is not None else index
            return torch.device("cpu")
        if not isinstance(x, torch.Tensor) or x.device.type != "cuda":
            return x
        index = x.device.index
        whole, held = apart.setdefault(x.untyped_storage().data_ptr(), (x, _aside(x)))
        of = held.untyped_storage()
        if x is whole:
            return held
        return torch.empty(0, dtype=x.dtype).set_(of, x.storage_offset(), x.size(), x.stride())

    lowered_args, lowered_named = tree_map(lowered, args), tree_map(lowered, named)
    results = op(*lowered_args, **lowered_named)
    written = [
        (x, y)
        for argument, x, y in _pairs(op, args, named, lowered_args, lowered_named)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    for x, y in written:
        if x.size() != y.size():
            x.data = new(y.size(), y.stride(), y.dtype, x.device.index)
        _queue(x, y)
    held_by = {held.untyped_storage().data_ptr(): whole for whole, held in apart.values()}

    def raised(y: Any) -> Any:
        if not isinstance(y, torch.Tensor):
            return y
        for x, lowered_x in written:
            if y is lowered_x:
                return x
        if (of := held_by.get(y.untyped_storage().data_ptr())) is not None and y.numel():
            if y.dtype is of.dtype:
                start = y.storage_offset() - of.storage_offset()
                return _reinterpret_tensor(of, y.size(), y.stride(), start)
            count = of.untyped_storage().nbytes() // y.dtype.itemsize
            address = of.untyped_storage().data_ptr()
            flat = _over(address, count, y.dtype, of.device.index, of)
            return _reinterpret_tensor(flat, y.size(), y.stride(), y.storage_offset())
        x = new(y.size(), y.stride(), y.dtype, index)
        if name not in _UNWRITTEN:
            _queue(x, y)
        return x

    if name in ("_local_scalar_dense", "equal", "is_nonzero"):
        return results
    return tree_map(raised, results)


def _pairs(op: Any, args: Any, named: Any, low_args: Any, low_named: Any) -> Iterator[Any]:
    """Each argument of the schema that is a tensor, with the tensor and its copy."""
    for position, argument in enumerate(op._schema.arguments):
        if position < len(args):
            x, y = args[position], low_args[position]
        elif argument.name in named:
            x, y = named[argument.name], low_named[argument.name]
        else:
            continue
        several = zip(x, y, strict=True) if isinstance(x, list | tuple) else [(x, y)]
        for a, b in several:
            if isinstance(a, torch.Tensor) and a.device.type == "cuda":
                yield argument, a, b


def _copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """copy_: within the device, and between it and the host."""
    USED["copy_"] += 1
    _wait()
    value = of_host(source) if source.device.type == "cuda" else source
    if target.device.type == "cuda":
        aside = _aside(target)
        aside.copy_(value)
        _queue(target, aside)
    else:
        target.copy_(value)
    return target


torch_exchange: Any = None


def stream() -> int:
    """A new stream of the driver's."""
    at = ctypes.c_void_p()
    _done(_driver().cuStreamCreateWithPriority(ctypes.byref(at), 1, 0))
    assert at.value
    return at.value


@contextmanager
def device(index: int) -> Iterator[None]:
    """`torch.cuda.device`."""
    before = torch_exchange(index)
    try:
        yield
    finally:
        torch_exchange(before)


def install() -> list[torch.library.Library]:
    """From here on tensors of the device "cuda" can be made; what it returns is to be kept."""
    global torch_exchange
    torch_exchange = ctypes.CDLL(str(torch_library.library())).torch_exchange_device
    torch_cuda: Any = torch.cuda
    torch_cuda._lazy_init = lambda: None
    torch_cuda.device = device
    torch_cuda.current_stream = lambda index=0: SimpleNamespace(cuda_stream=STREAMS[0])
    torch_cuda.synchronize = lambda index=0: _wait()
    _done(_driver().cuInit(0))
    STREAMS[0] = stream()
    every, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_operator, "CUDA")
    own.impl("copy_", _copied, "CUDA")
    return [every, own]
