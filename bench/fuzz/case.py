"""A case: inputs by type and how they are filled, and an expression that both libraries read.

Its text is a line that anyone can write and that `--case` reads:

    x: f32[2, 30, 40], i: i64[7] < 30 -> x.permute(0, 2, 1).index_select(2, i).relu()

`lib` in an expression is `luminal` or `torch`, `F` their functions of networks. After a semicolon
stand the inputs whose gradients are taken too, for a gradient from above that is drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

import luminal as lm
from luminal.nn import functional

Array = np.ndarray[Any, Any]


class Type(NamedTuple):
    """An element type, as NumPy and PyTorch know it."""

    numpy: np.dtype[Any]
    torch: torch.dtype
    ours: str


TYPES: Mapping[str, Type] = {
    "f32": Type(np.dtype(np.float32), torch.float32, "float32"),
    "f64": Type(np.dtype(np.float64), torch.float64, "float64"),
    "f16": Type(np.dtype(np.float16), torch.float16, "float16"),
    "bf16": Type(np.dtype(ml_dtypes.bfloat16), torch.bfloat16, "bfloat16"),
    "i32": Type(np.dtype(np.int32), torch.int32, "int32"),
    "i64": Type(np.dtype(np.int64), torch.int64, "int64"),
    "u8": Type(np.dtype(np.uint8), torch.uint8, "uint8"),
    "bool": Type(np.dtype(np.bool_), torch.bool, "bool"),
}
FLOATS = frozenset(("f32", "f64", "f16", "bf16"))
_INPUT = re.compile(
    r"(?P<name>\w+): (?P<type>\w+)\[(?P<shape>[\d, ]*)\](?P<positive> > 0)?( < (?P<below>\d+))?"
    r"(?P<offset> offset)?(, )?"
)


@dataclass(frozen=True, slots=True)
class Input:
    """An array that a call takes: normal numbers, or small integers, or truth values.

    `positive`: above 0, floats from 0.5 to 1.5. `below`: integers from 0 up to this. `offset`: the
    array begins one element after an aligned address.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    positive: bool = False
    below: int = 0
    offset: bool = False

    def __str__(self) -> str:
        text = f"{self.name}: {self.type}[{', '.join(map(str, self.shape))}]"
        text += " > 0" if self.positive else ""
        text += f" < {self.below}" if self.below else ""
        return text + (" offset" if self.offset else "")

    def array(self, rng: np.random.Generator) -> Array:
        """One drawn array."""
        dtype = TYPES[self.type].numpy
        size = math.prod(self.shape) + self.offset
        return self._values(size, rng).astype(dtype)[int(self.offset) :].reshape(self.shape)

    def _values(self, size: int, rng: np.random.Generator) -> Array:
        if self.type in FLOATS:
            if self.positive:
                return rng.random(size, np.float32) + np.float32(0.5)
            return rng.standard_normal(size, np.float32)
        if self.below:
            return rng.integers(0, self.below, size)
        if self.type == "bool":
            return rng.integers(0, 2, size)
        low = 1 if self.positive else 0 if self.type == "u8" else -9
        return rng.integers(low, 10, size)


@dataclass(frozen=True, slots=True)
class Case:
    """What is computed of which inputs, and the kind that it stands for."""

    inputs: tuple[Input, ...]
    expression: str
    gradients: tuple[str, ...] = ()
    id: str = "given"
    family: str = "given"
    layout: str = "given"
    way: str = "given"

    def __str__(self) -> str:
        taken = f"; {', '.join(self.gradients)}" if self.gradients else ""
        return f"{', '.join(map(str, self.inputs))} -> {self.expression}{taken}"

    @property
    def type(self) -> str:
        """The element type of the first input: the one that most of the work is done in."""
        return self.inputs[0].type

    def arrays(self) -> dict[str, Array]:
        """Arrays for the inputs, the same ones for the same text."""
        rng = np.random.default_rng(0)
        return {each.name: each.array(rng) for each in self.inputs}

    def function(self, library: ModuleType) -> Callable[..., Any]:
        """The expression as a function of the inputs in their order, of `luminal` or `torch`."""
        names = ", ".join(each.name for each in self.inputs)
        F = torch.nn.functional if library is torch else functional
        source = f"lambda {names}: {self.expression}"
        function: Callable[..., Any] = eval(source, {"lib": library, "F": F})
        return function

    def graph(self, upstream: tuple[int, ...]) -> lm.Graph:
        """The case recorded, its outputs in order; `upstream` is the shape of the gradient."""
        cx = lm.Graph()
        leaves = {
            each.name: cx.tensor(each.shape, TYPES[each.type].ours, name=each.name)
            for each in self.inputs
        }
        results = list(flat(self.function(lm)(*leaves.values())))
        if self.gradients:
            above = cx.tensor(upstream, results[0].dtype, name=UPSTREAM)
            results += lm.grad(
                results[0], [leaves[name] for name in self.gradients], grad_outputs=above
            )
        for place, result in enumerate(results):
            result.output(f"y{place}")
        return cx


UPSTREAM = "upstream"


def parsed(text: str) -> Case:
    """The case that a text describes; raises ValueError where it does not."""
    given, arrow, rest = text.partition(" -> ")
    expression, _, gradients = rest.partition("; ")
    inputs, at = [], 0
    while arrow and at < len(given):
        found = _INPUT.match(given, at)
        if found is None or found["type"] not in TYPES:
            break
        shape = tuple(int(extent) for extent in found["shape"].split(",") if extent.strip())
        kind = (bool(found["positive"]), int(found["below"] or 0), bool(found["offset"]))
        inputs.append(Input(found["name"], found["type"], shape, *kind))
        at = found.end()
    if not arrow or at < len(given):
        raise ValueError(
            f"--case: {text!r} cannot be read at {given[at : at + 20]!r}; write SEED:NUMBER, or "
            "inputs and an expression as in 'x: f32[3, 4], y: f32[4] -> x + y'"
        )
    return Case(tuple(inputs), expression, tuple(gradients.split(", ")) if gradients else ())


def flat(results: Any) -> Iterator[Any]:
    """The tensors of a result, which may be several."""
    if isinstance(results, tuple | list):
        for each in results:
            yield from flat(each)
    else:
        yield results
