"""Small programs, each at one rule of how cuts spread and values move: their values, how their
outputs lie and what is sent.

A rule that is too narrow sends what need not be sent; one that is too wide gives wrong values, or
parts larger than the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import luminal as lm
import luminal.nn.functional as F
from luminal.distribute.layout import text
from luminal.distribute.mesh import Mesh, spec_of
from luminal.hlir.graph import Graph
from luminal.shape.expression import Expression, const
from luminal.shape.view import index
from tests.distributed.whole import on_one, on_ranks

Array = np.ndarray[Any, Any]
TWO, FOUR, SQUARE = Mesh((2,), ("a",)), Mesh((4,), ("a",)), Mesh((2, 2), ("a", "b"))


@dataclass(frozen=True)
class Rule:
    """A program of inputs, each with its shape and how it is cut; `at` holds integers.

    `lies` are the layouts of its outputs, `sent` by collective the kind, mesh axis and bytes.
    """

    mesh: Mesh
    inputs: Mapping[str, tuple[tuple[int, ...], tuple[str | None, ...]]]
    record: Callable[..., lm.Tensor | tuple[lm.Tensor, ...]]
    lies: str
    sent: tuple[str, ...] = ()
    at: Array = field(default_factory=lambda: np.array([0, 3, 2, 1]))

    def graph(self, arrays: Mapping[str, Array]) -> Graph:
        """The program; its outputs are named by their order."""
        graph = lm.Graph()
        with lm.recording(graph):
            tensors = [graph.tensor(a.shape, str(a.dtype), name=name) for name, a in arrays.items()]
            results = self.record(*tensors)
            for k, y in enumerate(results if isinstance(results, tuple) else (results,)):
                y.output(f"y{k}")
        return graph.graph()

    def arrays(self) -> dict[str, Array]:
        """What its inputs are given."""
        rng = np.random.default_rng(0)
        return {
            name: self.at.reshape(shape) if name == "at" else rng.normal(size=shape).astype("f4")
            for name, (shape, _) in self.inputs.items()
        }


def below(*shape: int) -> Array:
    """Zeros and ones."""
    return np.random.default_rng(1).integers(0, 2, shape)


def table(x: lm.Tensor, at: lm.Tensor) -> lm.Tensor:
    """Rows by integers, of which some are past the end and give zeros."""
    return x.gather(0, at.unsqueeze(1).expand((*at.shape, *x.shape[1:])))


def read_at(entry: Callable[[Expression], Expression], x: lm.Tensor, n: int) -> lm.Tensor:
    """So many elements of a vector, each at the position that a map has for its own."""
    map_ = [entry(index(0, const(n)))]
    return x.graph.wrap(x.graph.builder.gather(x.value, (const(n),), map_))


def added_at(entry: Callable[[Expression], Expression], x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
    """`x` with each element of `y` added at the position that a map has for its own."""
    map_ = [entry(index(0, y.value.shape[0]))]
    return x.graph.wrap(x.graph.builder.scatter(x.value, map_, y.value, "add"))


def pair(x: lm.Tensor, y: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
    """A value that all ranks have, beside a use of it that is cut, and the value itself."""
    return F.pad(y * 2, (0, 17)) * x, y * 2


RULES = {
    # --- what fits a dimension
    "a whole part of several": Rule(
        FOUR, {"x": ((20,), ("a",)), "y": ((5,), ())}, lambda x, y: (x * 2)[:5] * y, "[a]"
    ),
    "less than one part is gathered": Rule(
        FOUR, {"x": ((20,), ("a",)), "y": ((3,), ())},
        lambda x, y: ((x * 2)[:3] * y, (x * 2)[:3] + y), "[.] [.]", ("all_gather a 60",),
    ),
    "what is less than one part of its user is whole": Rule(
        FOUR, {"x": ((20,), ("a",)), "y": ((3,), ())}, pair, "[a] [.]"
    ),
    # --- digits
    "a digit below one that is skipped": Rule(
        TWO, {"x": ((4, 8), (None, "a"))},
        lambda x: x.flatten().tanh().unflatten(0, (4, 8)) * x, "[., a]",
    ),
    "a digit of a window that begins with it": Rule(
        TWO, {"x": ((4, 8), (None, "a"))},
        lambda x: x.flatten().tanh()[8:].unflatten(0, (3, 8)) * x[1:], "[., a]",
    ),
    "a digit that ends in pads": Rule(
        TWO, {"x": ((5, 6), ("a",))}, lambda x: x.flatten().tanh().unflatten(0, (5, 6)) * x,
        "[a, .]",
    ),
    "digits of two axes that overlap": Rule(
        SQUARE, {"x": ((8,), ("a",)), "y": ((8,), ("b",))}, lambda x, y: (x * y).sum(), "[]",
        ("all_gather b 16", "all_gather a 4"),
    ),
    # --- tables
    "rows of a table with pads": Rule(
        TWO, {"x": ((5, 3), ("a",)), "at": ((4,), ())}, table, "[., .]", ("all_gather a 48",)
    ),
    "rows past the end of a table with pads": Rule(
        TWO, {"x": ((5, 3), ("a",)), "at": ((6,), ())}, table, "[., .]", ("all_gather a 72",),
        np.array([4, 5, 2, 6, 7, 0]),
    ),
    "a table that is cut by an inner digit": Rule(
        TWO, {"x": ((2, 4, 3), (None, "a")), "at": ((4,), ())},
        lambda x, at: table(x.flatten(0, 1).tanh(), at * 2), "[., .]", ("all_gather a 48",),
    ),
    "a table of bools": Rule(
        TWO, {"x": ((4, 3), ("a",)), "at": ((4,), ())}, lambda x, at: table(x > 0, at), "[., .]",
        ("all_gather a 6",),
    ),
    "integers with pads": Rule(
        FOUR, {"x": ((4, 3), ()), "at": ((5,), ("a",))}, table, "[a, .]", (), below(5),
    ),
    # --- what is written
    "writers with pads where the result has none": Rule(
        FOUR, {"x": ((12, 6), ("a",)), "y": ((10, 3), ("a",)), "at": ((10, 3), ("a",))},
        lambda x, y, at: x.scatter(1, at * 2, y), "[a, .]",
        ("all_gather a 108", "all_gather a 216"), below(10, 3),
    ),
    "writers with the pads of the result": Rule(
        FOUR, {"x": ((10, 6), ("a",)), "y": ((10, 3), ("a",)), "at": ((10, 3), ("a",))},
        lambda x, y, at: x.scatter(1, at * 2, y), "[a, .]", (), below(10, 3),
    ),
    "what ranks add to what all have": Rule(
        TWO, {"x": ((6, 4), ()), "y": ((4, 4), ("a",)), "at": ((4,), ("a",))},
        lambda x, y, at: x.index_add(0, at, y) * 0.5, "[., .]", ("all_gather a 96",),
    ),
    "what pads would add before the beginning": Rule(
        FOUR, {"x": ((19,), ()), "y": ((10,), ("a",))},
        lambda x, y: added_at(lambda i: i * -2 + 18, x, y), "[.]", ("all_gather a 228",),
    ),
    "what pads would read before the beginning": Rule(
        FOUR, {"x": ((19,), ()), "y": ((10,), ("a",))},
        lambda x, y: read_at(lambda i: i * -2 + 18, x, 10) * y, "[a]",
    ),
    "what pads would read past the end": Rule(
        FOUR, {"x": ((19,), ()), "y": ((10,), ("a",))},
        lambda x, y: read_at(lambda i: i + 9, x, 10) * y, "[a]",
    ),
    # --- sums that are put off
    "a part times what is cut": Rule(
        TWO, {"x": ((8, 4), ("a",)), "y": ((4,), ("a",))}, lambda x, y: x.sum(0).flip(0) * y,
        "[a]", ("all_gather a 16",),
    ),
    "a part that is spread": Rule(
        FOUR, {"x": ((8, 4), ("a",)), "y": ((6, 4), ())}, lambda x, y: x.sum(0) * y, "[., .]",
        ("all_gather a 48",),
    ),
    "a part with two readers": Rule(
        FOUR, {"x": ((8, 4), ("a",)), "y": ((4,), ())},
        lambda x, y: (lambda part: (part * y, part * (y + 1)))(x.sum(0)), "[.] [.]",
        ("all_gather a 48",),
    ),
    "a part times a part": Rule(
        TWO, {"x": ((8, 4), ("a",))}, lambda x: x.sum(0) * x.exp().sum(0), "[.]",
        ("all_gather a 16", "all_gather a 16"),
    ),
    # --- Loops
    "the trips of a Loop are not cut": Rule(
        TWO, {"x": ((4,), ()), "y": ((6, 4), ("a",))},
        lambda x, y: lm.scan(lambda c, v: (c + v, c * v), x, y)[1].shard("a"), "[a, .]",
        ("all_gather a 48",),
    ),
    "the results of trips are cut as one is": Rule(
        TWO, {"z": ((6, 4), ("a",)), "x": ((4,), ("a",)), "y": ((6, 4), (None, "a"))},
        lambda z, x, y: z * lm.scan(lambda c, v: (c + v, c * v), x, y)[1], "[a, .]",
        ("all_to_all a 24",),
    ),
    # --- moves
    "what all have is cut with pads": Rule(
        FOUR, {"x": ((10,), ())}, lambda x: x.shard("a") * 2, "[a]"
    ),
    "exchanged with pads": Rule(
        FOUR, {"x": ((8, 10), ("a",))}, lambda x: x.tanh().shard(None, "a") * 2, "[., a]",
        ("all_to_all a 72",),
    ),
    "reduced to where another axis cuts": Rule(
        SQUARE, {"y": ((8,), ("a",)), "x": ((4, 8), ("a", "b"))}, lambda y, x: y * x.sum(0), "[a]",
        ("all_gather a 16", "all_gather b 16"),
    ),
    "cut first and then gathered": Rule(
        SQUARE, {"x": ((8, 8), ("a",))}, lambda x: x.tanh().shard(None, "b") * 2, "[., b]",
        ("all_gather a 64",),
    ),
    "backwards with pads": Rule(
        FOUR, {"x": ((10,), ("a",))}, lambda x: x.flip(0) - x, "[a]", ("all_gather a 36",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_values_layouts_and_bytes(rule: Rule) -> None:
    arrays = rule.arrays()
    graph = rule.graph(arrays)
    specs = {name: spec_of(cut, len(shape), name) for name, (shape, cut) in rule.inputs.items()}
    outputs, _, out = on_ranks(graph, rule.mesh, specs, {}, arrays)
    for name, wanted in on_one(graph, arrays)[0].items():
        np.testing.assert_allclose(outputs[name], wanted, rtol=1e-5, atol=1e-6)  # another order
    assert " ".join(text(layout) for _, layout in sorted(out.outputs.items())) == rule.lies
    assert tuple(f"{row.kind} {row.axis} {row.bytes}" for row in out.rows) == rule.sent
