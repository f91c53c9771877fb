"""Works: one function each, in Luminal and for its peers, on the same random arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import torch

import luminal as lm
from bench.block import EFFORT, Call
from bench.limits import Counted
from bench.pair import NOTHING, TOLERANCE, compare
from bench.row import KEPT, Row, Rows

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class Work:
    """What is computed: `ours` of Tensors, one for each input and in their order.

    `torch` is the same of PyTorch's, None where the spelling is; `compiled` lets torch.compile try
    too. `numpy` and `jax` are functions of their arrays, of jax behind its module. `prepared` are
    further peers, which make a call of PyTorch's tensors. `weights` are inputs that a model would
    own. `counted` is what one call does. `quick`: this row stands for others where time is short.
    """

    name: str
    target: float
    inputs: Mapping[str, Array]
    ours: Function
    torch: Function | None = None
    numpy: Function | None = None
    jax: Function | None = None
    compiled: bool = False
    prepared: Mapping[str, Function] = field(default_factory=dict)
    weights: frozenset[str] = field(default=frozenset())
    counted: Counted = NOTHING
    tolerance: float = TOLERANCE
    quick: bool = False


def rows_of(works: Iterable[Work]) -> Rows:
    """A row each; where time is short, the quick ones."""
    for work in works:
        if EFFORT.asks_for(work.name) and (work.quick or not EFFORT.quick):
            yield row_of(work)


def row_of(work: Work) -> Row:
    """The best peer's time over ours."""
    if work.name in KEPT:
        return KEPT[work.name]
    peers = _torch(work)
    if work.numpy is not None:
        peers["NumPy"] = partial(work.numpy, *work.inputs.values())
    if work.jax is not None and find_spec("jax") and not EFFORT.quick:
        peers["JAX"] = _jax(work.jax, work.inputs.values())
    return compare(work.name, compiled(work), peers, work.target, work.counted, work.tolerance)


def compiled(work: Work) -> Call:
    """A call of ours, its inputs passed anew each time, its weights with the first."""
    cx = lm.Graph()
    leaves = [
        (cx.weight if name in work.weights else cx.tensor)(array.shape, array.dtype, name=name)
        for name, array in work.inputs.items()
    ]
    work.ours(*leaves).output("y")
    executable = lm.compile(cx)
    executable(dict(work.inputs))
    given = {name: array for name, array in work.inputs.items() if name not in work.weights}
    return lambda: executable(given)["y"]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Random numbers."""
    drawn = np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)
    return drawn.astype(dtype, copy=False)


def tensor(array: Array) -> torch.Tensor:
    """PyTorch's view of an array, of bfloat16 too."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _torch(work: Work) -> dict[str, Call]:
    function = work.torch or work.ours
    tensors = [tensor(array) for array in work.inputs.values()]
    peers: dict[str, Call] = {"PyTorch": partial(function, *tensors)}
    peers |= {name: prepare(*tensors) for name, prepare in work.prepared.items()}
    if work.compiled and not EFFORT.quick:
        torch._dynamo.reset()
        peers["torch.compile"] = partial(torch.compile(function), *tensors)
    return peers


def _jax(function: Function, arrays: Iterable[Array]) -> Call:
    import jax

    held = [jax.device_put(array) for array in arrays]
    call = jax.jit(partial(function, jax))
    return lambda: call(*held).block_until_ready()
