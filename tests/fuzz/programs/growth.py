"""A Program while it grows: what is known of its values, and what steps may draw from.

A step is tried in every run before it is kept: PyTorch must take it, its elements stay finite and
few enough, and hardly any may be unstable (see `backends.reference.bounds`), or there would be
nothing to compare. What PyTorch takes and Luminal does not is kept in `refused`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from luminal.backends.reference.bounded import MARGIN, Bounded
from luminal.backends.reference.bounds import BoundedArrays
from luminal.backends.reference.interpreter import Evaluation
from luminal.base import dtypes
from luminal.base.errors import LuminalError
from luminal.hlir.ops import Node as HlirNode
from luminal.hlir.ops import Value
from luminal.shape.expression import Expression
from tests.fuzz.programs.form import Dim, Extent, Leaf, Node, Program, Step
from tests.fuzz.programs.record import Recording
from tests.fuzz.programs.torch_meaning import meaning

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "int16", "int8", "uint8")
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "bool")

MAX_POINTS = 1 << 15  # of one value
HUGE = 1e4  # beyond this, floats soon overflow
LOOSE = 2e-2  # a bound beyond this share of the value says little
MAX_UNSTABLE = 0.002
LEAST_FINITE = 0.5  # share of a value's elements


@dataclass(frozen=True, slots=True)
class Known:
    """A value of the program. `phase`: its latest leaf's, `arrays`: its elements in each run."""

    number: int
    shape: tuple[Extent, ...]
    dtype: str
    phase: str  # literal, weight, run
    arrays: tuple[torch.Tensor, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(n, int) for n in self.shape)

    @property
    def points(self) -> int:
        return max(x.numel() for x in self.arrays)


@dataclass(frozen=True, slots=True)
class Style:
    """What a program is made of.

    `wild`: share of float leaves with NaN and infinities; `large`: share of programs with an extent
    of 40 to 300; `probed`: whether values that are hardly known are left out, `finite`: those with
    any NaN or infinity.
    """

    runs: int = 2
    dims: bool = True
    kinds: tuple[str, ...] = (*("input",) * 4, *("weight",) * 5, "constant", "constant", "state")
    dtypes: tuple[str, ...] = ("float32",) * 12 + ALL
    wild: float = 0.06
    large: float = 0.1
    max_points: int = MAX_POINTS
    probed: bool = True
    finite: bool = False


TORCH_REFUSES = (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError)


class Rejected(Exception):
    """A drawn step is no use; another one is drawn."""


@dataclass
class Growth:
    """The program so far. Steps ask for operands (`pick`, `like`, `leaf`) and `add` a result."""

    rng: random.Random
    style: Style = Style()
    nodes: list[Node] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    assigns: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[Program, str]] = field(default_factory=list)
    far: float = 0.4  # how often an operand is any value, not one of the last
    weights_only: bool = False  # whether steps take Weights and constants alone

    def __post_init__(self) -> None:
        self.recording = Recording()
        self.dims = self._dims()
        for dim in self.dims:
            self.recording.dim(dim.name, dim.lo, dim.hi)
        runs = range(self.style.runs)
        self.envs = [{dim.name: dim.values[run] for dim in self.dims} for run in runs]
        self.bounds = [Probe(env) for env in self.envs]
        self.palette = self._palette()

    def _dims(self) -> tuple[Dim, ...]:
        rng, found = self.rng, []
        if self.style.dims and rng.random() < 0.35:
            lo = 0 if rng.random() < 0.1 else 1
            values = [rng.randint(lo, 17) for _ in range(self.style.runs)]
            found.append(Dim("s", lo, 17, tuple(values)))
        if found and rng.random() < 0.2:
            values = [rng.randint(1, 64) for _ in range(self.style.runs)]
            found.append(Dim("t", 1, 64, tuple(values)))
        return tuple(found)

    def _palette(self) -> list[Extent]:
        """The extents that most leaves of this program have."""
        rng = self.rng
        sizes = (2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17)
        found: list[Extent] = [rng.choice(sizes) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        if rng.random() < self.style.large:
            found[0] = rng.randint(40, 300)
        if rng.random() < 0.06:
            found[-1] = 0
        if rng.random() < 0.3:
            found.append(1)
        for dim in self.dims:
            found += [dim.name] * 2
            if rng.random() < 0.3:
                found.append(f"{dim.name} + 1")
        return found

    # --- drawing

    def extent(self) -> Extent:
        if self.rng.random() < 0.9:
            return self.rng.choice(self.palette)
        return self.rng.choice((0, 1, 1, 2, 3, 6, 11, 13))

    def shape(self, *ranks: int) -> tuple[Extent, ...]:
        return tuple(self.extent() for _ in range(self.rng.choice(ranks or (1, 2, 2, 2, 3))))

    def fits(self, wanted: tuple[str, ...], *ranks: int) -> list[Known]:
        found = [v for v in self.values if v.dtype in wanted and (not ranks or v.rank in ranks)]
        return [v for v in found if v.phase != "run"] if self.weights_only else found

    def pick(self, wanted: tuple[str, ...] = FLOATS, *ranks: int) -> Known:
        """A value of one of these dtypes and ranks, mostly a recent one; or a new leaf."""
        fits = self.fits(wanted, *ranks)
        if fits and self.rng.random() < 0.93:
            return self.rng.choice(fits if self.rng.random() < self.far else fits[-5:])
        dtypes_ = [d for d in self.style.dtypes if d in wanted] or wanted
        return self.leaf(self.shape(*ranks), self.rng.choice(dtypes_))

    def static(self, wanted: tuple[str, ...] = FLOATS, *ranks: int) -> Known:
        """As `pick`, of literal extents."""
        x = self.pick(wanted, *ranks)
        return x if x.is_static else self.reject()

    def like(self, shape: tuple[Extent, ...], dtype: str, share: float = 0.7) -> Known:
        """A value of this very type: one there is, or a new leaf."""
        fits = [v for v in self.fits((dtype,)) if v.shape == shape]
        if fits and self.rng.random() < share:
            return self.rng.choice(fits)
        return self.leaf(shape, dtype)

    def beside(self, x: Known) -> Known:
        """A value that x can be broadcast with, of its dtype."""
        shape = x.shape
        if self.rng.random() < 0.3:
            shape = tuple(1 if self.rng.random() < 0.4 else n for n in shape)
            shape = shape[self.rng.randint(0, len(shape)) :]
        if self.rng.random() < 0.4:
            wider = [v for v in self.fits((x.dtype,)) if broadcasts(v.shape, x.shape)]
            if wider:
                return self.rng.choice(wider)
        return self.like(shape, x.dtype)

    def axis(self, x: Known) -> int:
        """A dim of x, counted from either end."""
        if not x.rank:
            raise Rejected
        k = self.rng.randrange(x.rank)
        return k if self.rng.random() < 0.5 else k - x.rank

    def literal_axis(self, x: Known) -> tuple[int, int]:
        """A dim of x whose extent is a literal beyond 0, and that extent."""
        found = [(k, n) for k, n in enumerate(x.shape) if isinstance(n, int) and n > 0]
        return self.rng.choice(found) if found else self.reject()

    def reject(self) -> Any:
        raise Rejected

    # --- growing

    def leaf(self, shape: tuple[Extent, ...], dtype: str, values: str = "") -> Known:
        """A new leaf; shapes with dims are inputs."""
        kind = self.rng.choice(self.style.kinds)
        if self.weights_only and kind not in ("weight", "constant"):
            kind = "weight"
        if not all(isinstance(n, int) for n in shape):
            kind = "input"
        if not values:
            values = "normal"
            if dtype in FLOATS and self.rng.random() < self.style.wild:
                values = "wild"
            if dtype in INTS:
                values = "wide" if self.rng.random() < 0.1 else "small"
        return self.keep(Leaf(kind, shape, dtype, self.rng.getrandbits(30), values))

    def state(self, shape: tuple[Extent, ...], dtype: str) -> Known:
        """A new State's value at the start of a run."""
        return self.keep(Leaf("state", shape, dtype, self.rng.getrandbits(30)))

    def is_state(self, value: Known) -> bool:
        node = self.nodes[value.number]
        return isinstance(node, Leaf) and node.kind == "state"

    def is_exact(self, value: Known) -> bool:
        """Whether every right evaluation gives the same bits."""
        hlir = self.recording.tensors[value.number].value
        known = (probe.known[hlir.node][hlir.index] for probe in self.bounds)
        return not any(x.error.any() or x.unstable.any() for x in known)

    def add(self, text: str, *args: Known, torch: str = "", by_bits: bool = False) -> Known:
        """A new step, if it is of use; Rejected if not."""
        return self.keep(Step(text, tuple(arg.number for arg in args), torch, by_bits))

    def keep(self, node: Node) -> Known:
        tensors = [known.arrays for known in self.values]
        found = []
        for run, env in enumerate(self.envs):
            try:
                value = meaning(node, [arrays[run] for arrays in tensors], env, run)
            except TORCH_REFUSES as error:
                raise Rejected from error
            leaf, finite = isinstance(node, Leaf), 1.0 if self.style.finite else LEAST_FINITE
            if value.numel() > self.style.max_points or (not leaf and _useless(value, finite)):
                raise Rejected
            found.append(value)
        return self._recorded(node, tuple(found))

    def _recorded(self, node: Node, arrays: tuple[torch.Tensor, ...]) -> Known:
        made = self.recording
        try:
            tensor = made.make(node)
        except (LuminalError, TypeError, AttributeError, AssertionError) as error:
            self.refused.append((self.program_of(node), f"{type(error).__name__}: {error}"))
            raise Rejected from error
        if not all(c.evaluate(env) for c in made.cx.requirements for env in self.envs):
            raise Rejected  # the program would need other dims
        shape = tuple(_extent(n) for n in tensor.extents)
        for env, array in zip(self.envs, arrays, strict=True):
            got = tuple(n.evaluate(env) for n in tensor.extents)
            dtype = str(array.dtype).removeprefix("torch.")
            if got != tuple(array.shape) or tensor.dtype.name != dtype:
                what = f"{tensor.dtype.name}{list(got)}, PyTorch {dtype}{list(array.shape)}"
                self.refused.append((self.program_of(node), f"TypeDiffers: {what}"))
                raise Rejected
        for run, probe in enumerate(self.bounds):
            bounded = probe.value(tensor.value, made, run)
            if self.style.probed and isinstance(node, Step) and _vague(bounded):
                raise Rejected
        made.tensors.append(tensor)
        known = Known(len(self.nodes), shape, tensor.dtype.name, self._phase(node), arrays)
        self.nodes.append(node)
        self.values.append(known)
        return known

    def _phase(self, node: Node) -> str:
        if isinstance(node, Leaf):
            return {"weight": "weight", "constant": "literal"}.get(node.kind, "run")
        phases = {self.values[arg].phase for arg in node.args}
        return next((p for p in ("run", "weight") if p in phases), "literal")

    def program_of(self, node: Node) -> Program:
        """The program so far whose only output is `node`."""
        nodes = (*self.nodes, node)
        return Program(nodes, (len(nodes) - 1,), (), self.dims, self.style.runs).live()

    def program(self, outputs: tuple[int, ...]) -> Program:
        return Program(
            tuple(self.nodes), outputs, tuple(self.assigns), self.dims, self.style.runs
        ).live()


@dataclass
class Probe:
    """The values of one run with their bounds, each node evaluated once."""

    env: dict[str, int]
    known: dict[HlirNode, tuple[Bounded, ...]] = field(default_factory=dict)

    def value(self, value: Value, recording: Recording, run: int) -> Bounded:
        given = {name: leaf.array(self.env, run) for name, leaf in self._new(recording)}
        evaluation = Evaluation(BoundedArrays(), given, self.env)
        stack = [value.node]
        while stack:
            node = stack[-1]
            missing = [arg.node for arg in node.args if arg.node not in self.known]
            if missing:
                stack += missing
                continue
            stack.pop()
            if node not in self.known:
                args = [self.known[arg.node][arg.index] for arg in node.args]
                self.known[node] = self._leaf(node, recording, run) or evaluation.node(node, args)
        return self.known[value.node][value.index]

    def _new(self, recording: Recording) -> list[tuple[str, Leaf]]:
        return [(n, leaf) for n, leaf in list(recording.inputs.items())[-1:]]

    def _leaf(self, node: HlirNode, recording: Recording, run: int) -> tuple[Bounded, ...] | None:
        """A Weight or State in this run: their owners hold the first run's values."""
        owners: dict[Any, Leaf] = {**recording.parameters, **recording.states}
        owner = getattr(node.attrs, "parameter", None) or getattr(node.attrs, "state", None)
        if node.op.name not in ("Weight", "State"):
            return None
        return (BoundedArrays().lift(owners[owner].array(self.env, run)),)


def broadcasts(a: tuple[Extent, ...], b: tuple[Extent, ...]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or m == 1 or n == 1 for m, n in pairs)


def _extent(n: Expression) -> Extent:
    return int(n.value) if n.is_const else str(n)


def _useless(x: torch.Tensor, least_finite: float) -> bool:
    """Whether too much is not finite, or so large that what follows overflows."""
    if not x.is_floating_point() or not x.numel():
        return False
    wide = x.double().abs()
    finite = wide.isfinite()
    if float(finite.double().mean()) < least_finite:
        return True
    return bool((wide[finite] > (HUGE if x.dtype is not torch.float16 else 500)).any())


def _vague(x: Bounded) -> bool:
    """Whether many elements are unstable, or hardly known."""
    if not x.value.size:
        return False
    if float(np.mean(x.unstable)) > MAX_UNSTABLE:
        return True
    if not dtypes.dtype_of(x.value).is_float:
        return False
    wide = np.abs(x.wide)
    finite = np.isfinite(wide)
    eps = float(dtypes.dtype_of(x.value).is_storage) * 0.1 + LOOSE
    return bool(np.any(MARGIN * x.error[finite] > eps * (wide[finite] + 0.1)))
