"""Wide DAGs: 20 to 1,000 operations on few shapes, values read many times, up to 30 outputs.

A seed's remainder by 2 says whether all operations are exact: then every right compiler gives the
reference's very bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from tests.fuzz.programs import pointwise, products
from tests.fuzz.programs.form import Leaf, Program
from tests.fuzz.programs.grown import grow
from tests.fuzz.programs.growth import Growth, Known, Rejected, Style

Draw = Callable[[Growth], None]

SMALLEST, LARGEST = 20, 1000
MOST_OUTPUTS = 30
KINDS = (*("input",) * 5, "weight", "weight", "constant", "state")
EXACT = Style(1, False, KINDS, ("float32",) * 5 + ("int32",), 0.0, 0.02, 4096, False)
MIXED = Style(1, False, KINDS, ("float32",) * 8 + ("float64",), 0.0, 0.02, 4096, True)

JOINS = (
    *("_0 + _1", "_0 - _1", "_0 * _1", "lm.maximum(_0, _1)", "lm.minimum(_0, _1)"),
    *("lm.where(_0 < _1, _0, _1 * 2)", "lm.where(_0 == _1, _0, _1)"),
)
TURNS = (
    *("-_0", "_0 * 2", "_0 + 1", "_0 - 3", "_0.mT", "_0.flip(-1)", "_0.roll(1, 0)", "_0.abs()"),
    *("_0.clamp(-4, 4)", "_0.relu()", "lm.cat([_0[1:], _0[:1]])", "_0[:, :1]", "_0[:1]"),
)
MADE = ("_0.softmax(-1)", "_0.tanh()", "_0.exp()", "_0.sigmoid()", "_0.sum(-1, keepdim=True)")
MADE += ("_0.amax(0, keepdim=True)", "_0 / (_0 * _0 + 1)", "_0.mean(-1, keepdim=True)", "_0 * 0.5")
MADE += ("F.gelu(_0)", "_0.cumsum(-1) * 0.25", "_0.softmax(0)")


def dag(seed: int, smallest: int = SMALLEST, largest: int = LARGEST) -> Program:
    """The DAG of a seed; sizes are spread evenly over their logarithm."""
    rng = random.Random(seed)
    exact = seed % 2 == 0
    g = Growth(rng, EXACT if exact else MIXED)
    g.palette = g.palette[:2]
    g.far = rng.choice((0.2, 0.5, 0.9))
    count = round(math.exp(rng.uniform(math.log(smallest), math.log(largest))))
    steps = (join,) * rng.choice((2, 4, 9)) + (turn,) * rng.choice((0, 1, 2))
    if not exact:
        steps += (made,) * rng.choice((1, 3)) + (multiplied,) * rng.choice((0, 0, 1, 2))
        if rng.random() < 0.3:
            steps += (products.with_itself, pointwise.norm, pointwise.softmax)
    grow(g, steps, count, rng.choice((0, 0, 0.2)))
    return g.program(outputs_of(g, rng.randint(1, MOST_OUTPUTS)))


def operand(g: Growth) -> Known:
    return g.pick(("float32", "int32", "float64"), 2)


def join(g: Growth) -> None:
    x = operand(g)
    y = g.like(x.shape, x.dtype, 0.98) if g.rng.random() < 0.9 else g.beside(x)
    g.add(g.rng.choice(JOINS), x, y)


def turn(g: Growth) -> None:
    g.add(g.rng.choice(TURNS), operand(g))


def made(g: Growth) -> None:
    g.add(g.rng.choice(MADE), g.pick(("float32", "float64"), 2))


def multiplied(g: Growth) -> None:
    x = g.pick(("float32", "float64"), 2)
    fits = [v for v in g.fits((x.dtype,), 2) if v.shape[0] == x.shape[1]]
    y = g.rng.choice(fits) if fits else g.like((x.shape[1], g.extent()), x.dtype)
    g.add(g.rng.choice(("_0 @ _1", "(_0 @ _1) * 0.25", "(_0 @ _1).tanh()")), x, y)


def outputs_of(g: Growth, count: int) -> tuple[int, ...]:
    """`count` values, half of them from the middle; what nothing reads is joined into the rest."""
    middle = g.rng.choices(range(len(g.nodes)), k=count // 2)
    used = {arg for node in g.nodes if not isinstance(node, Leaf) for arg in node.args}
    ends = [v for v in g.values if v.number not in used and not isinstance(g.nodes[v.number], Leaf)]
    g.rng.shuffle(ends)
    most = count - len(middle)
    kept, rest = ends[:most] or g.values[-1:], ends[most:]
    for value in rest:
        k = g.rng.randrange(len(kept))
        if kept[k].dtype == value.dtype:
            try:
                kept[k] = g.add("lm.maximum(_0, _1)", kept[k], value)
            except Rejected:
                continue
    return (*(value.number for value in kept), *middle)
