"""Random contractions with weights, read as they are and in every layout they may be read in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.numerics import Numerics
from luminal.compiler import compile
from luminal.compiler.compile import Stages
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.selection import dots, layouts
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
BACKEND = registry.compiling("cpu")
EXTENTS = (1, 2, 3, 5, 16, 17, 31, 32, 33, 48, 64, 70, 96, 100)
FORMS = (
    "mk,kn->mn", "mk,nk->mn", "bmk,bkn->bmn", "bmk,bnk->bmn", "bmk,kn->bmn", "mk,knh->mnh",
    "mk,nhk->mnh", "mk,nhk->nmh", "mkj,njk->mn", "mkj,kjn->mn", "mk,bkn->bmn", "m,n->mn", "k,kn->n",
    "mk,kk->mk", "bmk,nk->nbm",
)  # fmt: skip


def contraction(rng: np.random.Generator) -> lm.Graph:
    """An einsum of an input and a weight, with something before and after it."""
    form = str(rng.choice(FORMS))
    left, right = form.split("->")[0].split(",")
    extents = {axis: int(rng.choice(EXTENTS)) for axis in sorted({*left, *right})}
    dtype = [lm.float32, lm.float32, lm.bfloat16, lm.float64][rng.integers(4)]
    cx = lm.Graph()
    m = cx.dim("m", 0, 200) if "m" in left and rng.integers(3) == 0 else extents.get("m", 1)
    shape = tuple(m if axis == "m" else extents[axis] for axis in left)
    x = cx.tensor(shape, dtype=dtype, name="x")
    w = cx.weight(tuple(extents[axis] for axis in right), dtype, "w")
    operand = [lambda: w, lambda: w.exp(), lambda: w * 2, lambda: w.flip(0)][rng.integers(4)]()
    y = lm.einsum(form, x, operand)
    match rng.integers(5):
        case 0:
            y = y.relu() + 1
        case 1 if isinstance(y.shape[-1], int):
            y = y + cx.weight((y.shape[-1],), dtype, "bias")
        case 2 if y.ndim > 1:
            y = y.transpose(0, 1)
        case 3:
            y = y.softmax(-1)
    y.output("y")
    if rng.integers(4) == 0:
        w.sum(0).output("z")
    return cx


def programs(graph: lm.Graph) -> list[Stages]:
    """The program that reads all weights as they are, and those that read one of them otherwise."""
    graph_, lowered = compile.lower_to_algebra(graph.graph(), BACKEND)
    plain = compile.fast.select(lowered, BACKEND.costs)
    choices = [
        {},
        *({g: each} for g in layouts.genes(plain, BACKEND.layouts) for each in g.layouts[1:]),
    ]
    selections = (
        dots.by_rule(layouts.with_layouts(plain, chosen), BACKEND.target.dots, Numerics.STANDARD)
        for chosen in choices
    )
    return [compile.finish(graph_, lowered, each, BACKEND) for each in selections]


def results(stages: Stages, arrays: dict[str, Array]) -> list[Array]:
    runner = BACKEND.runner(stages.program)
    exe = Executable(stages.graph, [Variant({}, runner)])
    return [np.asarray(y) for y in exe(arrays).values()]


def check(seed: int) -> int:
    """How many programs were compared."""
    rng = np.random.default_rng(seed)
    graph = contraction(rng)
    found = programs(graph)
    for m in (int(rng.integers(0, 70)), 1) if "m" in graph.dims else (1,):
        arrays = {
            node.attrs.name: drawn(node, m, rng)
            for node in graph.graph().nodes()
            if node.op.name in ("Input", "Weight")
        }
        expected, *others = [results(each, arrays) for each in found]
        for other in others:
            for got, wanted in zip(other, expected, strict=True):
                tolerance = 2e-2 if wanted.dtype.itemsize == 2 else 1e-4  # sums of up to 10,000
                a, b = got.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{seed=}")
    return len(found)


def drawn(node: Any, m: int, rng: np.random.Generator) -> Array:
    type_ = node.types[0]
    shape = [int(n.evaluate({"m": m})) for n in type_.shape]
    values: Array = rng.standard_normal(shape) / 4
    return values.astype(type_.dtype.numpy)


@pytest.mark.parametrize("block", mostly_long(range(4), 1))
def test_every_layout_gives_the_same_results(block: int) -> None:
    assert sum(check(100 * block + k) for k in range(12)) > 12
