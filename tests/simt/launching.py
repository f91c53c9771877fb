"""Launches of compiled kernels on the CPU, every access and every barrier checked.

A launch runs once for each order of threads, on copies of the buffers with free space around them;
what the orders leave must be the same bits.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tests.simt.compiling import Compiled, runtime_library

Array: TypeAlias = np.ndarray[Any, Any]


class At(NamedTuple):
    """A place within a buffer, `offset` bytes from its first; several may lie in one.

    On the device the buffer would stand at this address, as far as a multiple of 256 is concerned.
    """

    buffer: Array
    offset: int
    stands_at: int = 0


Argument: TypeAlias = "Array | At | np.generic[Any]"
"""A buffer, a place within one, or a value."""
ORDERS = {"ascending": 0, "descending": 1, "rotated": 2}
REFUSED = 13
"""The fault whose text the stand-in of an instruction brings."""
GUARD = 4096
"""Bytes on both sides of a buffer that belong to nobody: the next one is two guards away."""


class DeviceFault(Exception):
    """What a kernel must not do; the text names the kernel, the line and the threads."""


class _Fault(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("is_write", ctypes.c_int),
        ("other_is_write", ctypes.c_int),
        ("thread", ctypes.c_uint),
        ("other_thread", ctypes.c_uint),
        ("line", ctypes.c_int),
        ("other_line", ctypes.c_int),
        ("caller", ctypes.c_void_p),
        ("other_caller", ctypes.c_void_p),
        ("region", ctypes.c_longlong),
        ("offset", ctypes.c_longlong),
        ("size", ctypes.c_ulonglong),
    )


class _Span(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("groups", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("warp_size", ctypes.c_uint),
        ("order", ctypes.c_int),
        ("dynamic", ctypes.c_size_t),
        ("shared", _Span),
        ("buffers", ctypes.POINTER(_Span)),
        ("buffer_count", ctypes.c_size_t),
        ("chained", ctypes.c_int),
        ("early", ctypes.c_longlong),
        ("cooperative", ctypes.c_int),
        ("unchecked", ctypes.c_int),
        ("cluster", ctypes.c_uint),
    )


@cache
def _runtime() -> ctypes.CDLL:
    return ctypes.CDLL(str(runtime_library()))


@cache
def _library(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


class _Memory:
    """Copies of arguments where a kernel finds them: buffers between guards, values in a row."""

    def __init__(self, arguments: Sequence[Argument], maps: Mapping[int, int]) -> None:
        stands_at = {id(each.buffer): each.stands_at for each in arguments if isinstance(each, At)}
        self.buffers = [_guarded(each, stands_at.get(id(each), 0)) for each in _buffers(arguments)]
        copies = {
            id(each): copy for each, copy in zip(_buffers(arguments), self.buffers, strict=True)
        }
        self.values = np.zeros((len(arguments), 2), np.uint64)
        for row, argument in zip(self.values.view(np.uint8), arguments, strict=True):
            if isinstance(argument, np.generic):
                value = argument
            else:
                buffer, offset = argument[:2] if isinstance(argument, At) else (argument, 0)
                value = np.uint64(copies[id(buffer)].ctypes.data + offset)
            row[: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)
        self.addresses: list[tuple[Array, int]] = []  # the first words of maps, as they were
        for number, of in maps.items():
            argument = arguments[number]
            copy = copies[id(argument.buffer if isinstance(argument, At) else argument)]
            first = copy.view(np.uint64)[:1]
            self.addresses.append((first, int(first[0])))
            first[0] = self.values[of, 0]
        start = self.values.ctypes.data
        self.pointers = np.arange(len(arguments), dtype=np.uint64) * np.uint64(16) + np.uint64(
            start
        )

    def results(self) -> list[Array]:
        """The buffers as a launch has left them."""
        for first, address in self.addresses:
            first[0] = address
        return self.buffers

    def spans(self) -> Any:
        held = [*self.buffers, self.values]
        return (_Span * len(held))(*(_Span(each.ctypes.data, each.nbytes) for each in held))


def _buffers(arguments: Sequence[Argument]) -> list[Array]:
    """Each buffer once."""
    held = (each.buffer if isinstance(each, At) else each for each in arguments)
    return list({id(each): each for each in held if isinstance(each, np.ndarray)}.values())


def _number_of(early: Sequence[Argument] | None, arguments: Sequence[Argument]) -> int:
    """The number among the buffers of the one that may be touched early; -1: none."""
    (buffer,) = _buffers(early or ()) or (None,)
    numbers = (n for n, each in enumerate(_buffers(arguments)) if each is buffer)
    return next(numbers, -1)


def _guarded(source: Array, stands_at: int) -> Array:
    """A copy that is as far from a multiple of 256, where a device's allocations may start, as what
    stands at this address.
    """
    memory = np.empty(source.nbytes + 2 * GUARD + 256, np.uint8)
    start = GUARD + (stands_at - memory.ctypes.data - GUARD) % 256
    copy = memory[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
    copy[...] = source
    return copy


def _three(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape, 1, 1, 1)[:3]


def _check_arguments(module: Compiled, name: str, arguments: Sequence[Argument]) -> None:
    sizes = (ctypes.c_uint * (len(arguments) + 1)).in_dll(
        _library(str(module.library)), f"sizes_{name}"
    )
    given = [each.nbytes if isinstance(each, np.generic) else 8 for each in arguments]
    if [*given, 0] != list(sizes):
        raise TypeError(f"{name}: arguments of {given} bytes; its parameters have {list(sizes)}")


def launch(
    module: Compiled,
    name: str,
    grid: Sequence[int],
    group: Sequence[int],
    arguments: Sequence[Argument],
    *,
    dynamic: int = 0,
    warp_size: int = 32,
    orders: Sequence[str] = tuple(ORDERS),
    early: Sequence[Argument] | None = None,
    maps: Mapping[int, int] = MappingProxyType({}),
    cluster: int = 1,
) -> None:
    """Runs `grid` groups of `group` threads (up to 3 axes each) and writes the arrays among the
    arguments; values are NumPy scalars of their parameters' types.

    `dynamic` is dynamic shared memory in bytes. With `early` the launch may begin before those
    ahead of it have ended, and touches nothing but that argument's buffer until it has waited for
    them. `maps` has the numbers of arguments that are tensor maps, each with that of the buffer
    which it is of: the copy's address is put in. So many groups are a `cluster`. Raises DeviceFault
    at the first access outside of every buffer, misaligned, or of shared memory that holds nothing;
    at a race, a divergent barrier, a deadlock; for a group larger than the launch bounds; where
    orders give other bits.
    """
    signature = module.kernels[name]
    threads = int(np.prod(group))
    if threads > signature.most_threads:
        raise DeviceFault(
            f"{name}: launched with {threads} threads, its bound is {signature.most_threads}"
        )
    _check_arguments(module, name, arguments)
    shape = _three(grid), _three(group)
    results = {
        order: _run(
            module, name, *shape, arguments, dynamic, warp_size, order, early, maps, cluster
        )
        for order in orders
    }
    first = results[orders[0]]
    for order, result in results.items():
        for number, (left, right) in enumerate(zip(first, result, strict=True)):
            if left.tobytes() != right.tobytes():
                raise DeviceFault(
                    f"{name}: buffer {number} differs between threads run {orders[0]} and {order}"
                )
    for target, source in zip(_buffers(arguments), first, strict=True):
        target[...] = source


def _run(
    module: Compiled,
    name: str,
    grid: tuple[int, ...],
    group: tuple[int, ...],
    arguments: Sequence[Argument],
    dynamic: int,
    warp_size: int,
    order: str,
    early: Sequence[Argument] | None,
    maps: Mapping[int, int],
    cluster: int,
) -> list[Array]:
    library = _library(str(module.library))
    memory = _Memory(arguments, maps)
    spans = memory.spans()
    begin, end = (ctypes.c_void_p * 2).in_dll(library, "simt_shared_bounds")
    request = _Launch(
        ctypes.cast(getattr(library, f"call_{name}"), ctypes.c_void_p),
        memory.pointers.ctypes.data,
        (ctypes.c_uint * 3)(*grid),
        (ctypes.c_uint * 3)(*group),
        warp_size,
        ORDERS[order],
        dynamic,
        _Span(begin, (end or 0) - (begin or 0)),
        spans,
        len(spans),
        early is not None,
        _number_of(early, arguments),
        cluster=cluster,
    )
    fault = _Fault()
    if _runtime().simt_launch(ctypes.byref(request), ctypes.byref(fault)):
        sizes = [each.size for each in spans]
        raise DeviceFault(f"{name}: {_worded(fault, module, group, grid, sizes)} ({order})")
    return memory.results()


def _worded(
    fault: _Fault,
    module: Compiled,
    group: tuple[int, ...],
    grid: tuple[int, ...],
    sizes: Sequence[int],
) -> str:
    thread, other = (_place(number, group, grid) for number in (fault.thread, fault.other_thread))
    refused = fault.kind == REFUSED
    line = fault.line or ("?" if refused else _line(module, fault.caller))
    other_line = fault.other_line or _line(module, fault.other_caller)
    does = "writes" if fault.is_write else "reads"
    did = "wrote" if fault.other_is_write else "read"
    where = f"byte {fault.offset} of {_region(fault.region, sizes)}"
    what = (
        "nothing",
        f"{does} {fault.size} bytes out of bounds, at {where}",
        f"{does} {fault.size} bytes at an address that is {fault.offset} beyond a multiple of them",
        f"{does} {where}, which {other} {did} at line {other_line} with no barrier between them",
        f"reads {where}, which nothing has written",
        f"indexes an array at {fault.offset}, beyond its declared size",
        f"waits at a barrier while {other} waits at that of line {other_line}",
        f"waits at a barrier while {other} has returned",
        f"waits for its warp while {other} waits at line {other_line}",
        f"waits for its warp, of which {other} waits at line {other_line}",
        f"shuffles from {other}, which is not there",
        f"{does} {where} before it has waited for earlier launches"
        if fault.size
        else "ends without having waited for earlier launches",
        f"waits for a counter to reach {fault.size}, which stands at {fault.offset}",
        ctypes.string_at(fault.caller).decode() if refused else "",
    )[fault.kind]
    return f"line {line}, {thread} {what}"


def _place(number: int, group: tuple[int, ...], grid: tuple[int, ...]) -> str:
    which, within = divmod(number, int(np.prod(group)))
    return f"thread {_index(within, group)} of group {_index(which, grid)}"


def _index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(number, shape, order="F"))


def _region(number: int, sizes: Sequence[int]) -> str:
    if number < 0:
        return "shared memory"
    name = "the values" if number == len(sizes) - 1 else f"buffer {number}"
    return f"{name} ({sizes[number]} bytes)"


def _line(module: Compiled, caller: int | None) -> str:
    """The line of the text where a call instruction before `caller` comes from."""
    program = shutil.which("addr2line")
    if caller is None or program is None:
        return "?"
    base = _base(str(module.library))
    command = [program, "-i", "-e", str(module.library), hex(caller - 1 - base)]
    frames = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"(?:<stdin>|kernel):(\d+)", frames)
    return lines[0] if lines else "?"


@cache
def _base(path: str) -> int:
    """Where the machine has loaded a library."""
    with open("/proc/self/maps") as maps:
        return min(int(line.split("-")[0], 16) for line in maps if path in line)
