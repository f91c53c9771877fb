"""Random programs recorded in the library and run in PyTorch side by side, for their gradients.

A program grows a pool of values from a few variables: each step takes values of the pool, so that
variables are shared, broadcast, sliced, gathered, reduced, and carried through scans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch

import luminal as lm
from luminal.frontend.graph import Recorder

LARGEST = 200  # elements of a value
STEEPEST = 50.0  # magnitude beyond which a value is squashed, so that no rounding is blown up

Array = np.ndarray[Any, Any]


class Pair(NamedTuple):
    """One value, as a Tensor of ours and as PyTorch's."""

    ours: lm.Tensor
    theirs: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self.theirs.shape)


Step = Callable[["Growth"], "Pair | None"]


@dataclass
class Growth:
    """A program that grows."""

    graph: Recorder
    rng: Random
    stem: str
    variables: list[Pair] = field(default_factory=list)
    pool: list[Pair] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def variable(self, shape: tuple[int, ...]) -> None:
        """A new variable, drawn from the program's own numbers."""
        name = f"{self.stem}v{len(self.variables)}"
        draw = np.random.default_rng(self.rng.randrange(2**32)).uniform(-1.5, 1.5, shape)
        self.values[name] = np.asarray(draw)
        theirs = torch.from_numpy(self.values[name]).requires_grad_()
        self.variables.append(Pair(self.graph.tensor(shape, "float64", name), theirs))
        self.pool.append(self.variables[-1])

    def pick(self, least: int = 0) -> Pair | None:
        """A value with at least so many dims."""
        fitting = [pair for pair in self.pool if len(pair.shape) >= least]
        return self.rng.choice(fitting) if fitting else None

    def axis(self, x: Pair) -> int:
        """A dim of x."""
        return self.rng.randrange(len(x.shape))

    def add(self, step: Step) -> None:
        """Applies a step; what it gives joins the pool unless it is large."""
        found = step(self)
        if found is None or found.theirs.numel() > LARGEST:
            return
        self.steps.append(step.__name__)
        with torch.no_grad():
            top = float(found.theirs.abs().max()) if found.theirs.numel() else 0.0
        if top > STEEPEST:
            found = Pair(found.ours.tanh(), found.theirs.tanh())
        self.pool.append(found)


@dataclass(frozen=True)
class Program:
    """Names of outputs with the gradients, the values set, and what PyTorch has for them."""

    names: list[str]
    values: Mapping[str, Array]
    wanted: list[Array]
    steps: list[str]

    def wrong(self, found: Mapping[str, Array], margin: float) -> list[str]:
        """A line for each gradient that is not PyTorch's within a share of its largest."""
        lines = []
        for name, wanted in zip(self.names, self.wanted, strict=True):
            known = ~np.isnan(wanted)  # the norm at 0 has no second derivative in PyTorch
            size = 1 + float(np.abs(wanted).max(where=known, initial=0))
            distance = float(np.abs(found[name] - wanted).max(where=known, initial=0))
            if not distance <= margin * size:
                lines.append(f"{name}: {distance} of {size}, after {', '.join(self.steps)}")
        return lines


def grown(graph: Recorder, rng: Random, stem: str = "", *, again: bool = False) -> Program:
    """A program of two or three variables and up to ten steps; gradients are outputs of `graph`.

    `again`: those of a weighted sum of the gradients.
    """
    growth = Growth(graph, rng, stem)
    for _ in range(rng.randint(2, 3)):
        growth.variable(tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3))))
    for _ in range(rng.randint(3, 10)):
        growth.add(rng.choice(STEPS))
    loss = weighted(graph, growth.pool[-3:])
    ours = [pair.ours for pair in growth.variables]
    theirs = [pair.theirs for pair in growth.variables]
    first = _torch_gradients(loss.theirs, theirs)
    found = [Pair(*pair) for pair in zip(lm.grad(loss.ours, ours), first, strict=True)]
    if again:
        loss = weighted(graph, found)
        second = _torch_gradients(loss.theirs, theirs)
        found = [Pair(*pair) for pair in zip(lm.grad(loss.ours, ours), second, strict=True)]
    names = [f"{stem}g{k}" for k in range(len(found))]
    for name, pair in zip(names, found, strict=True):
        pair.ours.output(name)
    arrays = [pair.theirs.detach().numpy() for pair in found]
    return Program(names, growth.values, arrays, growth.steps)


def weighted(graph: Recorder, pairs: Sequence[Pair]) -> Pair:
    """The sum of all elements times fixed numbers."""
    loss, total = graph.constant(0.0, "float64"), torch.zeros((), dtype=torch.float64)
    for pair in pairs:
        weights = np.cos(np.arange(pair.theirs.numel(), dtype=np.float64)).reshape(pair.shape)
        loss = loss + (pair.ours * graph.constant(weights)).sum()
        total = total + (pair.theirs * torch.from_numpy(weights)).sum()
    return Pair(loss, total)


def _torch_gradients(
    total: torch.Tensor, variables: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in variables]
    found = torch.autograd.grad(
        total, variables, allow_unused=True, materialize_grads=True, create_graph=True
    )
    return [torch.zeros(g.shape, dtype=g.dtype) if g._is_zerotensor() else g for g in found]


# --- by element -----------------------------------------------------------------------------------

UNARY: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda x: x.tanh(), torch.tanh),
    (lambda x: x.sigmoid(), torch.sigmoid),
    (lambda x: x.relu(), torch.relu),
    (lambda x: x.abs(), torch.abs),
    (lambda x: x.sin() * x, lambda x: x.sin() * x),
    (lambda x: (-x * x).exp(), lambda x: (-x * x).exp()),
    (lambda x: (x * x + 0.5).log(), lambda x: (x * x + 0.5).log()),
    (lambda x: (x * x + 1).sqrt(), lambda x: (x * x + 1).sqrt()),
    (lambda x: 1 / (x * x + 1), lambda x: 1 / (x * x + 1)),
    (lambda x: x.clip(-0.5, 1.0), lambda x: x.clip(-0.5, 1.0)),
    (lambda x: x.erf() ** 3, lambda x: x.erf() ** 3),
    (lambda x: x.gelu(), torch.nn.functional.gelu),
]


def unary(growth: Growth) -> Pair | None:
    x = growth.pick()
    assert x is not None
    ours, theirs = growth.rng.choice(UNARY)
    return Pair(ours(x.ours), theirs(x.theirs))


def _broadcast(x: Pair, y: Pair) -> bool:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


def _fitting(growth: Growth, x: Pair) -> Pair:
    """A value that broadcasts with x; x itself does."""
    return growth.rng.choice([y for y in growth.pool if _broadcast(x, y)])


def binary(growth: Growth) -> Pair | None:
    x = growth.pick()
    assert x is not None
    y = _fitting(growth, x)
    kind = growth.rng.randrange(6)
    if kind == 0:
        return Pair(x.ours + y.ours, x.theirs + y.theirs)
    if kind == 1:
        return Pair(x.ours * y.ours, x.theirs * y.theirs)
    if kind == 2:
        return Pair(x.ours - y.ours, x.theirs - y.theirs)
    if kind == 3:
        return Pair(x.ours.maximum(y.ours), torch.maximum(x.theirs, y.theirs))
    if kind == 4:
        return Pair(x.ours / (y.ours.abs() + 1), x.theirs / (y.theirs.abs() + 1))
    return Pair(
        lm.where(x.ours < y.ours, x.ours * 2, y.ours),
        torch.where(x.theirs < y.theirs, x.theirs * 2, y.theirs),
    )


# --- movements ------------------------------------------------------------------------------------


def permuted(growth: Growth) -> Pair | None:
    x = growth.pick(2)
    if x is None:
        return None
    order = growth.rng.sample(range(len(x.shape)), len(x.shape))
    return Pair(x.ours.permute(*order), x.theirs.permute(*order))


def sliced(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis = growth.axis(x)
    start = growth.rng.randrange(x.shape[axis])
    stop = growth.rng.randint(start + 1, x.shape[axis])
    key = (*(slice(None),) * axis, slice(start, stop, growth.rng.choice([1, 1, 2])))
    return Pair(x.ours[key], x.theirs[key])


def moved(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis, kind = growth.axis(x), growth.rng.randrange(5)
    if kind == 0:
        return Pair(x.ours.flip(axis), x.theirs.flip(axis))
    if kind == 1:
        by = growth.rng.randint(-2, 3)
        return Pair(x.ours.roll(by, axis), x.theirs.roll(by, axis))
    if kind == 2:
        return Pair(x.ours.reshape(-1), x.theirs.reshape(-1))
    if kind == 3:
        around = (growth.rng.randint(0, 2), growth.rng.randint(0, 2))
        pads = [0, 0] * (len(x.shape) - 1 - axis) + list(around)
        whole = [(0, 0)] * len(x.shape)
        whole[axis] = around
        return Pair(lm.pad(x.ours, whole), torch.nn.functional.pad(x.theirs, pads))
    shape = (growth.rng.randint(1, 3), *x.shape)
    return Pair(x.ours.expand(shape), x.theirs.expand(shape))


def windows(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis = growth.axis(x)
    size = growth.rng.randint(1, x.shape[axis])
    step = growth.rng.randint(1, 2)
    starts = range(0, x.shape[axis] - size + 1, step)
    parts = [x.ours.narrow(axis, k, size) for k in starts]
    ours = lm.stack(parts, axis).movedim(axis + 1, -1)
    return Pair(ours, x.theirs.unfold(axis, size, step))


def joined(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis = growth.axis(x)
    same = [y for y in growth.pool if y.shape == x.shape]
    others = [growth.rng.choice(same) for _ in range(growth.rng.randint(1, 2))]
    parts = [x, *others]
    if growth.rng.random() < 0.5:
        ours, theirs = lm.stack([p.ours for p in parts], axis), torch.stack
    else:
        ours, theirs = lm.concat([p.ours for p in parts], axis), torch.cat
    return Pair(ours, theirs([p.theirs for p in parts], axis))


# --- reductions and orders ------------------------------------------------------------------------


def reduced(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis, keep = growth.axis(x), growth.rng.random() < 0.4
    kind = growth.rng.choice(["sum", "mean", "amax", "amin", "prod", "logsumexp", "norm", "max"])
    ours, theirs = getattr(x.ours, kind), getattr(x.theirs, kind)
    if kind == "norm":
        return Pair(ours(2, axis, keep), theirs(2, axis, keep))
    if kind == "max":
        return Pair(ours(axis, keep).values, theirs(axis, keep).values)
    return Pair(ours(axis, keepdim=keep), theirs(axis, keepdim=keep))


def ordered(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis, kind = growth.axis(x), growth.rng.randrange(6)
    if kind == 0:
        return Pair(x.ours.cumsum(axis), x.theirs.cumsum(axis))
    if kind == 1:
        return Pair(x.ours.cumprod(axis), x.theirs.cumprod(axis))
    if kind == 2:
        return Pair(x.ours.cummax(axis).values, x.theirs.cummax(axis).values)
    if kind == 3:
        falling = growth.rng.random() < 0.5
        ours = x.ours.sort(axis, descending=falling).values
        return Pair(ours, torch.sort(x.theirs, dim=axis, descending=falling, stable=True).values)
    if kind == 4:
        return Pair(x.ours.softmax(axis), x.theirs.softmax(axis))
    return Pair(x.ours.log_softmax(axis), x.theirs.log_softmax(axis))


def product(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    fitting = [y for y in growth.pool if len(y.shape) == 2 and y.shape[0] == x.shape[-1]]
    if not fitting:
        return Pair(x.ours @ x.ours.mT, x.theirs @ x.theirs.mT) if len(x.shape) > 1 else None
    y = growth.rng.choice(fitting)
    return Pair(x.ours @ y.ours, x.theirs @ y.theirs)


# --- memory ---------------------------------------------------------------------------------------


def _places(growth: Growth, count: int, extent: int) -> Array:
    return np.array([growth.rng.randrange(extent) for _ in range(count)], np.int64)


def gathered(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis = growth.axis(x)
    places = _places(growth, growth.rng.randint(1, 4), x.shape[axis])
    ours = x.ours.index_select(axis, growth.graph.constant(places))
    return Pair(ours, x.theirs.index_select(axis, torch.from_numpy(places)))


def scattered(growth: Growth) -> Pair | None:
    x = growth.pick(1)
    if x is None:
        return None
    axis = growth.axis(x)
    places = _places(growth, x.shape[axis], x.shape[axis])
    zeros = np.zeros(x.shape)
    index = growth.graph.constant(places)
    ours = growth.graph.constant(zeros).index_add(axis, index, x.ours * 0.5)
    theirs = torch.from_numpy(zeros).index_add(axis, torch.from_numpy(places), x.theirs * 0.5)
    return Pair(ours, theirs)


# --- loops ----------------------------------------------------------------------------------------


def scanned(growth: Growth) -> Pair | None:
    """h = tanh(h * w + x[t]) over the first dim, w for all steps: the last h, or h * x of all."""
    x = growth.pick(1)
    if x is None:
        return None
    fitting = [y for y in growth.pool if _broadcasts_to(y.shape, x.shape[1:])]
    w = growth.rng.choice(fitting) if fitting else None

    def step(h: Any, row: Any) -> Any:
        after = (h * 0.5 + row if w is None else h * w.ours + row).tanh()
        return after, after * row

    start = growth.graph.zeros(x.ours.extents[1:], dtype="float64")
    last, stacked = lm.scan(step, start, x.ours)
    h, rows = torch.zeros(x.shape[1:], dtype=torch.float64), []
    for row in x.theirs:
        h = (h * 0.5 + row if w is None else h * w.theirs + row).tanh()
        rows.append(h * row)
    if growth.rng.random() < 0.5:
        return Pair(last, h)
    return Pair(stacked, torch.stack(rows))


def _broadcasts_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


STEPS: list[Step] = [
    *(unary, unary, binary, binary, binary),
    *(permuted, sliced, moved, moved, windows, joined),
    *(reduced, reduced, ordered, product),
    *(gathered, scattered, scanned),
]
