"""Programs in a form that belongs to no library: leaves and steps, each a line of text.

A step's text is one Python expression over its operands `_0`, `_1` ..., the dims by name, `lm` and
`F`. `record` evaluates it with Luminal, `torch_meaning` with PyTorch; `text` prints it as a script.
What is random is drawn when a program is grown: a Program itself always means the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Extent = int | str  # a literal, or the text of an expression of dims

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38)
NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "bool": np.dtype(np.bool_)}


class Dim(NamedTuple):
    """A dim with its interval, and its value in each run."""

    name: str
    lo: int
    hi: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value given from outside. `kind`: input, weight, constant or state.

    `values`: how elements are drawn: "normal", "wild" (NaN, infinities, zeros among them), "small"
    integers, "wide" ones, or "below N", which are valid positions.
    """

    kind: str
    shape: tuple[Extent, ...]
    dtype: str
    seed: int
    values: str = "normal"

    def array(self, dims: Mapping[str, int], run: int) -> Array:
        """The elements in a run: inputs and States differ from run to run, weights by their seed.

        A constant is the same in all.
        """
        kept = self.kind == "constant" or (self.kind == "weight" and self.seed % 2 == 0)
        rng = np.random.default_rng([self.seed, 0 if kept else run])
        return drawn(rng, extents(self.shape, dims), self.dtype, self.values)


@dataclass(frozen=True, slots=True)
class Step:
    """An expression over other values. `torch`: the text for PyTorch, if it is another one.

    `by_bits`: its result depends on how its operands are stored, so PyTorch may not compute wider.
    """

    text: str
    args: tuple[int, ...] = ()
    torch: str = ""
    by_bits: bool = False


Node = Leaf | Step


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes, each after its operands; values are numbered as they. `runs`: how often it is run.

    `outputs` may hold a value twice; `assigns` are pairs of a State's leaf and its new value.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    assigns: tuple[tuple[int, int], ...] = ()
    dims: tuple[Dim, ...] = ()
    runs: int = 1

    def env(self, run: int) -> dict[str, int]:
        """The dims' values in a run."""
        return {dim.name: dim.values[run] for dim in self.dims}

    def live(self) -> Program:
        """Only what outputs and assigns need, numbered anew."""
        needed = set(self.outputs) | {number for pair in self.assigns for number in pair}
        for number in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[number]
            if number in needed and isinstance(node, Step):
                needed.update(node.args)
        order = sorted(needed)
        new = {number: k for k, number in enumerate(order)}
        nodes = (self.nodes[number] for number in order)
        return replace(
            self,
            nodes=tuple(
                replace(node, args=tuple(new[arg] for arg in node.args))
                if isinstance(node, Step)
                else node
                for node in nodes
            ),
            outputs=tuple(new[number] for number in self.outputs),
            assigns=tuple((new[state], new[value]) for state, value in self.assigns),
        )

    def steps(self) -> int:
        """How many nodes are not leaves."""
        return sum(isinstance(node, Step) for node in self.nodes)


def extents(shape: Sequence[Extent], dims: Mapping[str, Any]) -> tuple[Any, ...]:
    """A shape with its dims replaced by their values (ints or symbols)."""
    return tuple(n if isinstance(n, int) else value_of(n, dims) for n in shape)


def value_of(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a text under these names."""
    return eval(code_of(text), {**names})


@lru_cache(100_000)
def code_of(text: str) -> CodeType:
    return compile(text, text, "eval")


def dtype_of(name: str) -> np.dtype[Any]:
    return NUMPY.get(name) or np.dtype(name)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, values: str) -> Array:
    """Random elements; see `Leaf.values`."""
    numpy = dtype_of(dtype)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if values.startswith("below"):
        return np.asarray(rng.integers(0, int(values.split()[1]), shape)).astype(numpy)
    if numpy.kind in "iu":
        limits = np.iinfo(numpy)
        lo, hi = (limits.min, limits.max) if values == "wide" else (max(-9, limits.min), 9)
        return np.asarray(rng.integers(lo, hi, shape, numpy, endpoint=True))
    numbers = np.asarray(rng.normal(0, 1.5, shape))
    if values == "wild":
        numbers = np.where(rng.random(shape) < 0.15, rng.choice(SPECIAL, shape), numbers)
    with np.errstate(over="ignore"):
        return np.asarray(numbers.astype(numpy))


def named(text: str, args: Sequence[int]) -> str:
    """A step's text with its operands' names in the place of `_0`, `_1` ..."""
    return re.sub(r"\b_(\d+)\b", lambda found: f"v{args[int(found[1])]}", text)


def to_text(program: Program) -> str:
    """The program as a script for Luminal that can be run from the repository's root."""
    lines = [
        "import luminal as lm",
        "from luminal.nn import functional as F",
        "from tests.fuzz.programs.form import Dim, Leaf, Program, Step",
        "",
        "cx = lm.Graph()",
        *(f'{d.name} = cx.dim("{d.name}", {d.lo}, {d.hi})  # {d.values}' for d in program.dims),
        f"env, given = {program.env(0)}, {{}}",
    ]
    for number, node in enumerate(program.nodes):
        lines.append(_line(number, node))
    lines += [f'v{value}.output("out{k}")' for k, value in enumerate(program.outputs)]
    lines += [f"cx.assign(v{state}.state, v{value})" for state, value in program.assigns]
    lines.append("print(lm.compile(cx)(given, dims=env))")
    return "\n".join(lines)


def _line(number: int, node: Node) -> str:
    name = f"v{number}"
    if isinstance(node, Step):
        return f"{name} = {named(node.text, node.args)}"
    array = f"{node!r}.array(env, 0)"
    typed = f"lm.{node.dtype if node.dtype != 'bool' else 'bool_'}"
    shape = "".join(f"{n}, " for n in node.shape)
    match node.kind:
        case "input":
            return f'{name} = cx.tensor(({shape}), {typed}, "{name}"); given["{name}"] = {array}'
        case "weight":
            return f"{name} = cx.weight(({shape}), {typed}).set({array})"
        case "state":
            return f"{name} = cx.state(({shape}), {typed}).set({array})"
    return f"{name} = cx.constant({array})"


def literal(program: Program) -> str:
    """The program as Python text that builds it again, for a test."""
    return re.sub(r"(?<=\), )(?=(Leaf|Step)\()", "\n    ", repr(program))
