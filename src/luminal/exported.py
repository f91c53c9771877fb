"""Programs that `Executable.export` wrote, run again without a compiler.

The file is a shared object of one symbol, which points to a record of what the program takes and
gives, and of the functions that run it. `include/luminal.h` has the same record for C.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from luminal.backends.cpu import hwcaps
from luminal.backends.cpu.shared_object import SEGMENT, SYMBOL, VERSION
from luminal.base.dtypes import DType, dtype_of
from luminal.base.errors import DimError, InputError, LoadError, ShapeError
from luminal.memory.arrays import Array, address, aligned_empty
from luminal.memory.data import array_of

CPUINFO = Path("/proc/cpuinfo")
_PROT_READ, _MAP_PRIVATE, _MAP_FIXED = 1, 2, 0x10  # on Linux, the only system of such files

_Address, _Int, _Text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p


class _Dim(ctypes.Structure):
    _fields_ = (("name", _Text), ("least", _Int), ("most", _Int))


class _Value(ctypes.Structure):
    _fields_ = (
        ("name", _Text), ("dtype", _Text), ("itemsize", _Int), ("rank", _Int), ("shape", _Text),
        ("axes", ctypes.POINTER(_Int)),
    )  # fmt: skip


class _State(ctypes.Structure):
    _fields_ = (*_Value._fields_, ("bytes", _Int), ("data", ctypes.POINTER(_Address)))


def _counted(name: str, kind: Any) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return (f"n_{name}", _Int), (name, ctypes.POINTER(kind))


class _Model(ctypes.Structure):
    _fields_ = (
        ("version", _Int), ("title", _Text), ("cpu", _Text),
        *_counted("features", _Text), *_counted("dims", _Dim), *_counted("inputs", _Value),
        *_counted("outputs", _Value), *_counted("states", _State), *_counted("messages", _Text),
        ("weights", _Address), ("weight_bytes", _Int), ("weight_file", _Text), ("stamp", _Text),
        ("memory", _Int),
        ("shapes", ctypes.CFUNCTYPE(None, _Address, _Address)),
        ("run", ctypes.CFUNCTYPE(_Int, _Address, _Address, _Address, _Int)),
        ("reset", ctypes.CFUNCTYPE(None)),
    )  # fmt: skip


class Argument:
    """An input or output of an exported program: its name, dtype, and shape as text."""

    def __init__(self, row: Any) -> None:
        self.name: str = row.name.decode()
        self.dtype: DType = dtype_of(row.dtype.decode())
        self.shape: str = row.shape.decode()
        self.ndim: int = row.rank
        self.axes = tuple(row.axes[k] for k in range(row.rank))
        """Of each axis the number of the dim that it is, or -1."""

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.short}{self.shape}"


class ExportedProgram:
    """A program from a file: `program(x=array)` runs it and gives its outputs by name.

    Several threads may call; one runs at a time. `memory` are the bytes that runs use beside
    weights, arguments and results.
    """

    def __init__(self, path: Path, model: Any) -> None:
        self.path = path
        self._model = model
        self._lock = threading.Lock()
        self.title: str = model.title.decode()
        self.memory: int = model.memory
        self.inputs = tuple(map(Argument, _rows(model, "inputs")))
        self.outputs = tuple(map(Argument, _rows(model, "outputs")))
        self.dims = {d.name.decode(): (d.least, d.most) for d in _rows(model, "dims")}
        """The least and the greatest value of each dim."""

    def __repr__(self) -> str:
        return f"ExportedProgram({self.path.name}: {self.title})"

    @property
    def states(self) -> dict[str, Array]:
        """Copies of the States' values, by name."""
        with self._lock:
            return {row.name.decode(): self._state(row).copy() for row in self._states()}

    def reset(self) -> None:
        """Gives States the values with which they were exported."""
        with self._lock:
            self._model.reset()

    def __call__(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        threads: int = 0,
        **named: Any,
    ) -> dict[str, Array]:
        """Runs once with arrays by name. `dims`: those that no input's shape gives bare; `threads`:
        at most so many, 0 for all CPUs.

        Raises InputError, DTypeError, ShapeError, DimError; States are then as they were.
        """
        arrays = self._arrays({**(inputs or {}), **named})
        if not _is_int(threads):
            raise InputError(f"threads: {threads!r} is not an int; 0 takes all CPUs")
        values = self._dims(arrays, dict(dims or {}))
        with self._lock:
            shapes = self._shapes(values)
            for argument, array, shape in zip(self.inputs, arrays, shapes, strict=False):
                if array.shape != shape:
                    raise ShapeError(
                        f"{argument.name}: expected shape {shape}, which is {argument.shape} with "
                        f"{self._told(values)}, got {array.shape}"
                    )
            results = [
                aligned_empty(shape, output.dtype)
                for output, shape in zip(self.outputs, shapes[len(arrays) :], strict=True)
            ]
            pointers = (_addresses(arrays), _addresses(results))
            numbers = (_Int * max(len(values), 1))(*values)
            number = self._model.run(numbers, *pointers, threads)
            # The next run may write another text there.
            wrong = self._model.messages[number].decode(errors="replace") if number else ""
        if wrong:
            raise InputError(wrong + self._with(values))
        return {o.name: array for o, array in zip(self.outputs, results, strict=True)}

    # --- arguments

    def _arrays(self, named: dict[str, Any]) -> list[Array]:
        names = [argument.name for argument in self.inputs]
        strange, missing = named.keys() - {*names}, [n for n in names if n not in named]
        if strange or missing:
            wrong = f"unknown: {', '.join(sorted(strange))}; " if strange else ""
            lacks = f"missing: {', '.join(missing)}; " if missing else ""
            raise InputError(f"inputs: {wrong}{lacks}it takes {', '.join(names) or 'nothing'}")
        arrays = []
        for argument in self.inputs:
            array = array_of(named[argument.name], argument.dtype, argument.name)
            if array.ndim != argument.ndim:
                raise ShapeError(
                    f"{argument.name}: expected {argument.ndim} dimensions {argument.shape}, "
                    f"got {array.shape}"
                )
            arrays.append(np.require(array, requirements=("C", "A")))
        return arrays

    def _dims(self, arrays: Sequence[Array], dims: dict[str, int]) -> list[int]:
        names = [*self.dims]
        for name, value in dims.items():
            if name not in self.dims:
                told = ", ".join(self.dims) or "none"
                raise DimError(f"{name}: no such dim; the dims are {told}")
            if not _is_int(value):
                raise DimError(f"{name}: {value!r} is not an int")
        source = dict.fromkeys(dims, "dims")
        for argument, array in zip(self.inputs, arrays, strict=True):
            for number, extent in zip(argument.axes, array.shape, strict=True):
                if number < 0:
                    continue
                name = names[number]
                earlier = dims.setdefault(name, extent)
                if earlier != extent:
                    raise DimError(
                        f"{name}: {source[name]} says {earlier}, {argument.name} of shape "
                        f"{array.shape} says {extent}; all occurrences of a dim agree"
                    )
                source.setdefault(name, argument.name)
        for name, (least, most) in self.dims.items():
            if name not in dims:
                raise DimError(
                    f'{name}: no input\'s shape gives this dim; pass dims={{"{name}": n}}'
                )
            if not least <= dims[name] <= most:
                raise DimError(f"{name}: {dims[name]} is outside {least}..{most} of this file")
        return [int(dims[name]) for name in self.dims]

    def _shapes(self, values: Sequence[int]) -> list[tuple[int, ...]]:
        ranks = [argument.ndim for argument in (*self.inputs, *self.outputs)]
        extents = (_Int * max(sum(ranks), 1))()
        self._model.shapes((_Int * max(len(values), 1))(*values), extents)
        numbers = iter(extents)
        return [tuple(next(numbers) for _ in range(rank)) for rank in ranks]

    def _told(self, values: Sequence[int]) -> str:
        pairs = zip(self.dims, values, strict=True)
        return ", ".join(f"{name} = {value}" for name, value in pairs) or "no dims"

    def _with(self, values: Sequence[int]) -> str:
        return f" (with {self._told(values)})" if values else ""

    # --- states

    def _states(self) -> Iterator[Any]:
        return _rows(self._model, "states")

    def _state(self, row: Any) -> Array:
        argument = Argument(row)
        data = (ctypes.c_char * row.bytes).from_address(row.data[0])
        extents = [int(n) for n in argument.shape[1:-1].split(", ") if n]
        return np.frombuffer(data, argument.dtype.numpy).reshape(extents)


_loaded: dict[tuple[int, int], ExportedProgram] = {}  # by device and number of the file
_lock = threading.Lock()


def load_exported(path: str | Path) -> ExportedProgram:
    """The program in a file that `Executable.export` wrote. Trust it as you trust a program.

    A process loads a file once: who loads it again gets the same program, with the same States; one
    that replaces the file is another. Raises LoadError where there is no such file, where it is
    damaged, and where this CPU lacks what its code needs.
    """
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise LoadError(f"{path}: there is no such file")
    with _lock:
        status = file.stat()
        key = status.st_dev, status.st_ino
        program = _loaded.get(key)
        if program is None:
            program = _loaded[key] = _load(path, file)
        return program


def _load(path: str | Path, file: Path) -> ExportedProgram:
    _check_whole(file)
    # The system's loader takes a path that it has seen for the file that it had then.
    again = sum(program.path == file for program in _loaded.values())
    spelled = os.path.join(file.parent, *["."] * again, file.name)
    try:
        library = ctypes.CDLL(spelled)
        model = _Model.in_dll(library, SYMBOL)
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: is no exported program for this system: {error}") from None
    if model.version != VERSION:
        raise LoadError(
            f"{path}: has version {model.version} of the format, and this Luminal reads {VERSION}; "
            "export it anew"
        )
    wanted = [model.features[k].decode() for k in range(model.n_features)]
    lacks = [flag for flag in wanted if flag not in _flags(wanted)]
    if lacks:
        raise LoadError(
            f"{path}: needs a CPU with {', '.join(lacks)} (it was made for {model.cpu.decode()}); "
            "export it with LUMINAL_TARGET=avx2 or baseline"
        )
    if model.weights:
        _map_weights(file.parent / model.weight_file.decode(), model)
    return ExportedProgram(file, model)


def _map_weights(file: Path, model: Any) -> None:
    """Maps the file of weights to the place that the library keeps free for them."""
    stamp = model.stamp
    try:
        with open(file, "rb") as stream:
            head, size = stream.read(len(stamp)), stream.seek(0, os.SEEK_END)
            if head != stamp or size < SEGMENT + model.weight_bytes:
                raise LoadError(
                    f"{file}: these are not the weights of this program, or not all of them; it "
                    f"needs {SEGMENT + model.weight_bytes:,} bytes of stamp {stamp.decode()[:12]}"
                )
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = _Address
            libc.mmap.argtypes = (_Address, ctypes.c_size_t, *(ctypes.c_int,) * 3, _Int)
            how = _PROT_READ, _MAP_PRIVATE | _MAP_FIXED
            place = libc.mmap(model.weights, model.weight_bytes, *how, stream.fileno(), SEGMENT)
            if place != model.weights:
                raise LoadError(f"{file}: cannot be mapped: {os.strerror(ctypes.get_errno())}")
    except OSError as error:
        raise LoadError(f"{file}: the program's weights: {error.strerror}") from None


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _rows(model: Any, name: str) -> Iterator[Any]:
    rows = getattr(model, name)
    return (rows[k] for k in range(getattr(model, f"n_{name}")))


def _addresses(arrays: Sequence[Array]) -> Any:
    return (_Address * max(len(arrays), 1))(*map(address, arrays))


def _flags(wanted: Sequence[str]) -> frozenset[str]:
    """What the CPU says that it can do; all that is wanted where the system does not tell."""
    if platform.machine() == hwcaps.MACHINE:
        able = hwcaps.features(*hwcaps.words())
        return frozenset(name for name, is_there in able.items() if is_there)
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return frozenset(wanted)
    line = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split()) or frozenset(wanted)


def _check_whole(file: Path) -> None:
    """Raises LoadError unless the file is as long as its own header says: the system's loader would
    map what is not there, and end the process when it reads that.
    """
    with open(file, "rb") as stream:
        head = stream.read(64)
        size = stream.seek(0, os.SEEK_END)
    if len(head) < 64 or not head.startswith(b"\x7fELF\x02\x01"):
        raise LoadError(f"{file}: is no exported program: it has another format")
    sections, rows = int.from_bytes(head[40:48], "little"), int.from_bytes(head[60:62], "little")
    if size != sections + rows * 64:
        raise LoadError(
            f"{file}: has {size:,} bytes of {sections + rows * 64:,}; it was cut, copy it again"
        )
