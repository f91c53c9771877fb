"""One OpInfo sample: its tensors become inputs of a graph, the results are compared with PyTorch's.

Failures are `Unequal`, or whatever the library raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import luminal as lm
from luminal.backends.reference import evaluate
from luminal.base import dtypes
from luminal.frontend.graph import Recorder
from luminal.hlir.attributes import InputAttrs

Check = Callable[[Any, Any], None]
"""Raises Unequal unless the library's results (first) are as good as PyTorch's (second)."""

# What results may differ by, by bytes: relative and absolute, `torch.testing`'s own tolerances, but
# an ulp of bfloat16. The relative one counts of the value and of the largest value beside it, since
# sums round in units of their largest term.
TOLERANCES = {2: (2.0**-7, 1e-5), 4: (1.3e-6, 1e-5), 8: (1e-7, 1e-7)}
# Arguments that say where and how PyTorch stores a tensor: a lazy value has no such place.
STORAGE = frozenset(["device", "layout", "memory_format", "pin_memory", "requires_grad"])
DTYPES = {
    getattr(torch, name): dtypes.dtype_of(name)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    ).split()
}


class Unequal(Exception):
    """A result that is not PyTorch's."""


class Unsupported(Exception):
    """A sample the library cannot be given."""


class Inputs:
    """Turns a sample's arguments into Tensors of `graph`."""

    def __init__(self, graph: Recorder, *, constant: bool = False, stem: str = "x") -> None:
        self.graph = graph
        self.stem = stem
        self.constant = constant  # pass integer and bool tensors as NumPy arrays
        self.count = 0

    def convert(self, x: Any) -> Any:
        """`x` with every torch thing in it as Luminal's."""
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        if isinstance(x, torch.dtype):
            if x not in DTYPES:
                raise Unsupported(f"dtype {x}")
            return DTYPES[x]
        if isinstance(x, torch.layout | torch.memory_format | torch.device):
            return None
        if isinstance(x, torch.Size):
            return tuple(x)
        if isinstance(x, list | tuple):
            parts = [self.convert(each) for each in x]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, dict):
            return {key: self.convert(each) for key, each in x.items() if key not in STORAGE}
        if isinstance(x, complex):
            raise Unsupported("a complex number")
        return x

    def _tensor(self, x: torch.Tensor) -> Any:
        if x.dtype not in DTYPES:
            raise Unsupported(f"a tensor of {x.dtype}")
        if x.layout is not torch.strided:
            raise Unsupported(f"a tensor stored as {x.layout}")
        array = array_of(x)
        if self.constant and not x.dtype.is_floating_point:
            return array if x.ndim else array.item()
        name = f"{self.stem}{self.count}"
        tensor = self.graph.tensor(array.shape, array.dtype, name)
        self.graph.values[name] = array
        self.count += 1
        return tensor


def array_of(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """A torch tensor's values; bfloat16 as the library's NumPy type."""
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    if x.dtype is torch.bfloat16:
        return x.view(torch.uint16).numpy().copy().view(lm.bfloat16.numpy)
    return x.numpy().copy()


def leaves(x: Any) -> list[Any]:
    """The values in nested tuples, lists and dicts, in order; None is none."""
    if x is None:
        return []
    if isinstance(x, dict):
        return [leaf for each in x.values() for leaf in leaves(each)]
    if isinstance(x, tuple | list) and not isinstance(x, torch.Size):
        return [leaf for each in x for leaf in leaves(each)]
    return [x]


def torch_result(op: Callable[..., Any], sample: Any) -> Any:
    """What PyTorch computes, on copies: some ops write to their arguments."""
    torch.manual_seed(0)
    args, kwargs = _copied((sample.input, *sample.args)), _copied(sample.kwargs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return op(*args, **kwargs)


def _copied(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, list | tuple):
        parts = [_copied(each) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return {key: _copied(each) for key, each in x.items()} if isinstance(x, dict) else x


def luminal_results(
    fn: Callable[..., Any], sample: Any, backend: str, *, constant: bool = False
) -> list[Any]:
    """What `fn` gives for the sample, in order: arrays, and Python values as they are."""
    lm.reset()
    graph = lm.default_graph()
    inputs = Inputs(graph, constant=constant)
    args = inputs.convert((sample.input, *sample.args))
    found = leaves(fn(*args, **inputs.convert(sample.kwargs)))
    names = {}
    for position, value in enumerate(found):
        if isinstance(value, lm.Tensor):
            names[position] = f"result{position}"
            graph.output(value, names[position])
    if not names:
        return found
    arrays = computed(graph, backend)
    return [
        arrays[names[position]] if position in names else value
        for position, value in enumerate(found)
    ]


def computed(graph: Any, backend: str) -> Any:
    """Every output by name, for the values set on the graph."""
    frozen = graph.graph()
    if backend == "reference":
        return evaluate(frozen, graph.values, {})
    used = {node.attrs.name for node in frozen.nodes() if isinstance(node.attrs, InputAttrs)}
    executable = lm.compile(graph, backend=backend)
    return executable({name: x for name, x in graph.values.items() if name in used})


# --- comparison -----------------------------------------------------------------------------------


def equal(found: Sequence[Any], wanted: Any) -> None:
    """Same number of results; each of the same shape, dtype and, within the tolerance, values."""
    expected = leaves(wanted)
    if len(found) != len(expected):
        raise Unequal(f"{len(found)} results, PyTorch has {len(expected)}")
    for position, (x, y) in enumerate(zip(found, expected, strict=True)):
        at = f"result {position}: " if len(expected) > 1 else ""
        if isinstance(y, torch.Tensor):
            _equal_arrays(at, x, y)
        elif not _equal_python(x, y):
            raise Unequal(f"{at}{x!r}, PyTorch has {y!r}")


def _equal_python(x: Any, y: Any) -> bool:
    """A lazy graph's bool is a 0-d tensor; shapes are tuples."""
    if isinstance(y, torch.Size):
        return tuple(x) == tuple(y)
    return bool(x == y) if not isinstance(x, np.ndarray) else x.shape == () and bool(x == y)


def same_type(found: Sequence[Any], wanted: Any) -> None:
    """Same shapes and dtypes: for what holds no defined values, and for random numbers."""
    expected = leaves(wanted)
    if len(found) != len(expected):
        raise Unequal(f"{len(found)} results, PyTorch has {len(expected)}")
    for x, y in zip(found, expected, strict=True):
        _check_type("", x, y)


def equal_where_kept(found: Sequence[Any], wanted: Any) -> None:
    """As `same_type`, and equal where neither is 0: for what drops elements at random."""
    same_type(found, wanted)
    for x, y in zip(found, leaves(wanted), strict=True):
        kept = (array_of(y) != 0) & (x != 0)
        _equal_arrays("", np.where(kept, x, 0), torch.from_numpy(np.where(kept, array_of(y), 0)))


def equal_at(position: int) -> Check:
    """As `same_type`, and one result equal; the others are vectors with signs of their own."""

    def check(found: Sequence[Any], wanted: Any) -> None:
        same_type(found, wanted)
        equal([found[position]], leaves(wanted)[position])

    return check


def within(low: float, high: float) -> Check:
    """As `same_type`, and every value in low..high: for random numbers."""

    def check(found: Sequence[Any], wanted: Any) -> None:
        same_type(found, wanted)
        for x in found:
            wide = np.asarray(x, np.float64)
            if not np.all((wide >= low) & (wide <= high)):
                raise Unequal(f"values outside of {low}..{high}")

    return check


def _check_type(at: str, x: Any, y: torch.Tensor) -> None:
    if y.dtype not in DTYPES or y.layout is not torch.strided:
        raise Unsupported(f"a result of {y.dtype}, {y.layout}")
    if not isinstance(x, np.ndarray | np.generic):
        raise Unequal(f"{at}{x!r} is no tensor")
    if x.shape != tuple(y.shape):
        raise Unequal(f"{at}shape {x.shape}, PyTorch has {tuple(y.shape)}")
    if x.dtype != DTYPES[y.dtype].numpy:
        raise Unequal(f"{at}dtype {x.dtype}, PyTorch has {y.dtype}")


def _equal_arrays(at: str, x: Any, y: torch.Tensor) -> None:
    _check_type(at, x, y)
    wanted = array_of(y)
    if wanted.dtype.kind in "iub":
        wrong = np.asarray(x != wanted)
    else:
        found, expected = np.asarray(x, np.float64), wanted.astype(np.float64)
        relative, absolute = TOLERANCES[wanted.dtype.itemsize]
        largest = float(np.max(np.abs(expected), where=np.isfinite(expected), initial=0))
        margin = max(absolute, relative * largest)
        wrong = ~np.isclose(found, expected, rtol=relative, atol=margin, equal_nan=True)
    if wrong.any():
        first = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Unequal(
            f"{at}{int(wrong.sum())} of {wrong.size} values differ; "
            f"at {list(first)} {x[first]!s}, PyTorch has {wanted[first]!s}"
        )
