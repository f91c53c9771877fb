"""Runs a row: its cells in one graph, compiled once, on a backend against two oracles.

Every cell is compared with the reference backend, within its error bounds, and with NumPy, SciPy or
PyTorch, within the tolerance table below; so is the reference.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.reference import evaluate_with_bounds
from luminal.base import dtypes
from luminal.base.errors import LuminalError
from luminal.frontend.scan import flatten
from luminal.hlir.attributes import InputAttrs
from luminal.hlir.verify import verify
from tests.conformance.rows import Array, Draw, Row, Shape
from tests.numerics.tolerance import compare

# How many units in the last place a result may be away from one computed in float64. 16-bit results
# are rounded once. float32 functions may be a few ulp off, float64 ones more, since NumPy's are
# not exact in float64 either.
ULP = {
    "float8_e4m3fn": 1.01,
    "float8_e5m2": 1.01,
    "float16": 1.01,
    "bfloat16": 1.01,
    "float32": 6.0,
    "float64": 64.0,
}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, -2.5, 3.0]
DIM_NAMES = {2: "b", 3: "c", 4: "d", 5: "e", 6: "f", 7: "g", 8: "h", 9: "i", 11: "k", 13: "m"}


@dataclass(frozen=True)
class Operand:
    """An operand of a cell: the array that is passed, its shape there, and what the op sees."""

    passed: Array
    shape: tuple[int | str, ...]
    prepare: Callable[[Any], Any]  # from the input Tensor to the one the op is called with
    seen: Array


@dataclass
class Cell:
    """One case, recorded: the names of its outputs, or the error that recording raised."""

    dtype: str
    kind: str
    operands: list[Operand]
    outputs: list[str]
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.kind}"


def failures(row: Row, chosen: Sequence[tuple[str, str]], backend: str = "cpu") -> dict[str, str]:
    """What is wrong with each failing one of the chosen cells, by "dtype class"."""
    graph = lm.Graph()
    cells = [_recorded(row, graph, dtype, kind) for dtype, kind in chosen]
    found = {cell.name: cell.error for cell in cells if cell.error is not None}
    running = [cell for cell in cells if cell.error is None]
    if not running:
        return found
    try:
        found |= _run(row, graph, running, backend)
    except (LuminalError, AssertionError) as error:
        if len(chosen) == 1:
            return {**found, running[0].name: f"{type(error).__name__}: {error}"}
        for cell in chosen:  # one at a time, to find the cell
            found |= failures(row, [cell], backend)
    return found


# --- operands -------------------------------------------------------------------------------------


def operands_of(row: Row, dtype: str, kind: str) -> list[Operand]:
    """What a cell is called with, drawn by its name."""
    rng = np.random.default_rng(zlib.crc32(f"{row.op} {dtype} {kind}".encode()))
    made = []
    for draw, shape in zip(row.draws, row.shapes[kind], strict=True):
        own = draw.dtype or dtype
        if kind == "special" and dtypes.dtype_of(own).is_float:
            array = dtypes.dtype_of(own).rounded(np.array(SPECIAL).reshape(shape))
        else:
            array = _drawn(rng, draw, shape, own)
        made.append(_passed(array, kind, first=not made, single=len(row.draws) == 1))
    return made


def _drawn(rng: np.random.Generator, draw: Draw, shape: Shape, dtype: str) -> Array:
    numpy = dtypes.dtype_of(dtype).numpy
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.dtype_of(dtype).is_float:
        return rng.uniform(draw.low, draw.high, shape).astype(numpy)
    low, high = max(draw.low, np.iinfo(numpy).min), min(draw.high, np.iinfo(numpy).max)
    return rng.integers(int(np.ceil(low)), int(np.floor(high)), shape, endpoint=True).astype(numpy)


def _passed(array: Array, kind: str, *, first: bool, single: bool) -> Operand:
    if kind == "view" and array.ndim:
        return _viewed(array)
    if kind == "broadcast" and single and first:
        one = array[:, :1] if array.ndim > 1 else array[:1]
        shape = array.shape
        return Operand(one, one.shape, lambda x: x.expand(shape), np.broadcast_to(one, shape))
    if kind == "dynamic":
        names = tuple(DIM_NAMES.get(n, n) for n in array.shape)
        return Operand(array, names, lambda x: x, array)
    return Operand(array, array.shape, lambda x: x, array)


def _viewed(array: Array) -> Operand:
    """Stored transposed, backwards and behind one element more along each dim; viewed right."""
    order = tuple(reversed(range(array.ndim)))
    wider = np.pad(
        np.flip(array, -1), [(1, 0)] * array.ndim, mode="edge" if array.size else "empty"
    )
    shape = array.shape

    def prepare(x: Any) -> Any:
        x = x.permute(order)
        for axis, extent in enumerate(shape):
            x = x.narrow(axis, 1, extent)
        return x.flip(-1)

    stored = np.ascontiguousarray(wider.transpose(order))
    return Operand(stored, stored.shape, prepare, array)


# --- recording and running ------------------------------------------------------------------------


def _recorded(row: Row, graph: lm.Graph, dtype: str, kind: str) -> Cell:
    cell = Cell(dtype, kind, operands_of(row, dtype, kind), [])
    stem = f"{dtype}_{kind}".replace("-", "_")
    if kind == "dynamic":
        for name in {n for operand in cell.operands for n in operand.shape if isinstance(n, str)}:
            graph.dim(name, 0, 64)
    try:
        tensors = []
        for k, operand in enumerate(cell.operands):
            x = graph.tensor(operand.shape, operand.passed.dtype, f"{stem}_in{k}")
            graph.values[f"{stem}_in{k}"] = operand.passed
            tensors.append(operand.prepare(x))
        for k, leaf in enumerate(flatten(row.call(*tensors))[0]):
            graph.output(leaf, f"{stem}_out{k}")
            cell.outputs.append(f"{stem}_out{k}")
    except (LuminalError, AttributeError, TypeError, NotImplementedError) as error:
        cell.error = f"{type(error).__name__}: {error}"
        graph.sinks = [
            sink for sink in graph.sinks if getattr(sink, "name", "") not in cell.outputs
        ]
    return cell


def _run(row: Row, recorder: lm.Graph, cells: list[Cell], backend: str) -> dict[str, str]:
    graph = recorder.graph()
    verify(graph)
    used = {node.attrs.name for node in graph.nodes() if isinstance(node.attrs, InputAttrs)}
    inputs = {name: array for name, array in recorder.values.items() if name in used}
    dims = {name: extent for extent, name in DIM_NAMES.items() if name in recorder.dims}
    bounded = evaluate_with_bounds(graph, inputs, dims).outputs
    computed = lm.compile(recorder, backend=backend)(inputs, dims=dims)
    found = {}
    for cell in cells:
        try:
            with np.errstate(all="ignore"):
                _check(row, cell, backend, bounded, computed)
        except (AssertionError, ValueError, TypeError) as error:
            found[cell.name] = f"{type(error).__name__}: {error}"
    return found


def _check(
    row: Row,
    cell: Cell,
    backend: str,
    bounded: Mapping[str, Any],
    computed: Mapping[str, Any],
) -> None:
    wide = [_wide(operand.seen) for operand in cell.operands]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of means of nothing and the like
        wanted = row.expected(*wide)
    expected = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    assert len(expected) == len(cell.outputs), f"{len(cell.outputs)} results, not {len(expected)}"
    for name, right in zip(cell.outputs, expected, strict=True):
        # Where special values meet a comparison much is unstable: the other oracle checks it.
        compare(computed[name], *bounded[name], name=f"{backend} and reference", max_unstable=1.0)
        for where, value in ((backend, computed[name]), ("reference", bounded[name].value)):
            _check_value(row, cell, f"{where} and {row.against}", value, np.asarray(right))


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if dtypes.dtype_of(array).is_float else array


def _check_value(row: Row, cell: Cell, what: str, value: Array, right: Array) -> None:
    dtype = row.result or cell.dtype
    if right.dtype.kind == "f":
        asked = dtypes.dtype_of(dtype)
        numpy = (asked if asked.is_float else dtypes.float32).numpy
    else:
        numpy = right.dtype
    assert value.dtype == numpy, f"{what}: dtype {value.dtype}, expected {numpy}"
    assert value.shape == right.shape, f"{what}: shape {value.shape}, expected {right.shape}"
    if right.dtype.kind != "f":
        wrong = np.asarray(value != right)
    else:
        wrong = ~_near(row, value, right, [operand.seen for operand in cell.operands])
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        seen = ", ".join(str(x.seen[at]) for x in cell.operands if x.seen.shape == wrong.shape)
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.size} differ; at {list(at)} "
            f"{value[at]!s}, expected {right[at]!s}; operands there {seen or '(other shapes)'}"
        )


def _near(row: Row, value: Array, right: Array, operands: list[Array]) -> Array:
    """Within the tolerance of its dtype of a result in float64; inf and NaN by position."""
    name = dtypes.dtype_of(value).name
    limits = dtypes.ml_dtypes.finfo(value.dtype)
    with np.errstate(all="ignore"):
        rounded = (
            dtypes.dtype_of(value).rounded(right).astype(np.float64)
        )  # beyond the range it is inf
    units = np.abs(rounded)
    if row.largest:
        largest = max(map(_largest, (rounded, *operands)))
        # Partial sums of n terms walk as far as sqrt(n) of one, and so do the errors of rounding
        # them; those of 16 bits are summed in 32 and rounded once.
        terms = max((x.size for x in operands), default=1) / max(rounded.size, 1)
        walk = math.sqrt(max(terms, 1.0)) if limits.bits > 16 else 1.0
        units = np.full_like(units, largest * walk)
    margin = ULP[name] * row.ulp * float(limits.eps) * units + float(limits.tiny)
    found = value.astype(np.float64)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    finite = np.isfinite(found) & np.isfinite(rounded)
    return np.asarray(same | (finite & (np.abs(found - right) <= margin)))


def _largest(array: Array) -> float:
    """The greatest finite magnitude."""
    size = np.abs(array.astype(np.float64))
    return float(np.max(size, where=np.isfinite(size), initial=0))
