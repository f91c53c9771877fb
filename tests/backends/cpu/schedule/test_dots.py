"""Contractions by the machine's dots, in kernels of all kinds: of bfloat16, and of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.dots import BF16_PAIRS, INT8_FOURS, Dot
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.tile_ir import Contract
from luminal.kernel.tile_text import to_text

RANDOM = np.random.default_rng(11)
SCORES = ((3, 100, 64),) * 2
ATTENTION = ((3, 100, 64),) * 3
Shapes = tuple[tuple[int, ...], ...]
Case = tuple[Callable[..., Any], Shapes, bool]


def scores(q: Any, k: Any) -> Any:
    return (q.float() @ k.float().mT) * 0.125


def joined(a: Any, b: Any) -> Any:
    return lm.einsum("shd,nhd->sn", a, b)


CASES: dict[str, Case] = {
    "a batch": (lambda a, b: a @ b, ((5, 33, 64), (5, 64, 47)), True),
    "a batch, turned": (lambda a, b: a.mT @ b.mT, ((5, 64, 33), (5, 47, 64)), True),
    "a row": (lambda a, b: a @ b, ((64,), (64, 47)), True),
    "a column": (lambda a, b: b @ a, ((64,), (47, 64)), True),
    "a sum of products": (lambda a, b: (a.float() * b.float()).sum(), ((640,), (640,)), True),
    "one word long": (lambda a, b: a @ b, ((40, 2), (2, 47)), True),
    "an odd sum": (lambda a, b: a @ b, ((40, 35), (35, 47)), False),
    "with itself": (lambda a: a.mT @ a, ((66, 70),), True),
    "two sums of one": (lambda a, b, c: (a @ b) * (a @ c.mT), ((9, 64), (64, 48), (48, 64)), True),
    "columns over their sums": (
        lambda a: a / (a.float() * a.float()).sum(0, keepdim=True),
        ((6, 2),),
        True,
    ),
    "rows over their sums": (
        lambda a: a / (a.float() * a.float()).sum(1, keepdim=True),
        ((9, 6),),
        True,
    ),
    "heads": (lambda a, b: lm.einsum("hsd,thd->hst", a, b), ((3, 9, 64), (47, 3, 64)), True),
    "heads summed": (lambda a, b: lm.einsum("hsd,nhd->sn", a, b), ((3, 9, 50), (70, 3, 50)), True),
    "heads joined": (joined, ((9, 3, 50), (70, 3, 50)), True),
    "a row joined": (lambda a, b: lm.einsum("hd,nhd->n", a, b), ((8, 64), (70, 8, 64)), True),
    "three joined": (
        lambda a, b: lm.einsum("shcd,nhcd->sn", a, b),
        ((5, 2, 3, 6), (40, 2, 3, 6)),
        True,
    ),
    "joined, not alone": (
        lambda a, b: joined(a, b) * a.float().amax((1, 2)).unsqueeze(1) + b.float().sum((1, 2)),
        ((9, 3, 50), (70, 3, 50)),
        True,
    ),
    "joined by one of two sums": (
        lambda a, b: lm.einsum("hd,nhd->n", a, b).float() + b.float().amax((1, 2)),
        ((8, 64), (70, 8, 64)),
        True,
    ),
    "joined and apart": (
        lambda a, b, c: joined(a, b) + joined(a, c.transpose(1, 2)),
        ((9, 3, 50), (70, 3, 50), (70, 50, 3)),
        True,
    ),
    "a convolution": (lambda x, w: x.conv2d(w), ((2, 16, 9, 9), (32, 16, 1, 1)), True),
    "relu scores": (lambda q, k, v: scores(q, k).relu() @ v.float(), ATTENTION, True),
    "softmax": (lambda q, k, v: scores(q, k).softmax(-1) @ v.float(), ATTENTION, True),
    "the largest": (lambda q, k: scores(q, k).amax(-1), SCORES, True),
    "a variance": (lambda q, k: scores(q, k).var(-1), SCORES, True),
    "turned keys": (lambda q, k: scores(q, k.mT).amax(-1), ((3, 90, 64), (3, 64, 90)), True),
    "one query": (
        lambda q, k, v: scores(q, k).softmax(-1) @ v.float(),
        ((8, 1, 64), (8, 300, 64), (8, 300, 64)),
        True,
    ),
}  # fmt: skip


def has(dot: Dot) -> pytest.MarkDecorator:
    """Skips where the machine lacks a dot."""
    lacks = dot not in registry.compiling("cpu").target.dots
    return pytest.mark.skipif(lacks, reason=f"the machine has no {dot}")


def dots_of(graph: lm.Graph) -> set[str]:
    """The dots by which its kernels multiply several neighbours."""
    kernels = lower_by_stages(graph.graph(), registry.compiling("cpu")).program.kernels
    products = [s for kernel in kernels for s in kernel.statements() if isinstance(s, Contract)]
    return {s.dot.name for s in products if s.dot.k > 1}


@has(INT8_FOURS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(65, 64, 70), (1, 256, 100), (3, 128, 300), (40, 35, 33)]
)
def test_products_of_bytes_are_exact(m: int, k: int, n: int, weight: bool, turned: bool) -> None:
    cx = lm.Graph()
    shape = (n, k) if turned else (k, n)
    a = cx.tensor((m, k), lm.int8, name="a")
    b = cx.weight(shape, lm.int8, "b") if weight else cx.tensor(shape, lm.int8, name="b")
    (a.cast(lm.int32) @ (b.mT if turned else b).cast(lm.int32)).output("y")
    assert dots_of(cx) == ({INT8_FOURS.name} if k % 4 == 0 else set())
    x, w = (RANDOM.integers(-128, 128, s).astype(np.int8) for s in ((m, k), shape))
    x[0], w[0] = -128, -128
    exact = x.astype(np.int32) @ (w.T if turned else w).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(lm.compile(cx)({"a": x, "b": w})["y"]), exact)


@has(BF16_PAIRS)
@pytest.mark.parametrize("name", CASES)
def test_products_of_bfloat16(name: str) -> None:
    compute, shapes, by_dot = CASES[name]
    cx = lm.Graph()
    operands = [cx.tensor(shape, lm.bfloat16, name=f"x{n}") for n, shape in enumerate(shapes)]
    compute(*operands).output("y")
    assert dots_of(cx) == ({BF16_PAIRS.name} if by_dot else set())
    given = {
        f"x{n}": RANDOM.standard_normal(shape, np.float32).astype(lm.bfloat16.numpy)
        for n, shape in enumerate(shapes)
    }
    got = np.asarray(lm.compile(cx)(given)["y"]).astype(np.float64)
    exact = np.asarray(lm.compile(cx, backend="reference")(given)["y"]).astype(np.float64)
    # What is summed is of size 1 and more, and may cancel out in the one sum of a case.
    tolerance = 1e-5 if cx.graph().sinks[0].value.dtype is lm.float32 else 8e-3  # bf16's last bit
    np.testing.assert_allclose(
        got, exact, rtol=tolerance, atol=tolerance * max(1, np.abs(exact).max())
    )


@has(BF16_PAIRS)
def test_axes_walked_by_words_are_one_with_those_outside() -> None:
    """A row by a weight is the same kernel where both have heads."""

    def kernels(formula: str, *sizes: int) -> list[str]:
        cx = lm.Graph()
        x, w = cx.tensor(sizes, lm.bfloat16), cx.weight((96, *sizes), lm.bfloat16, "w")
        lm.einsum(formula, x, w).output("y")
        program = lower_by_stages(cx.graph(), registry.compiling("cpu")).program
        return [to_text(kernel) for kernel in program.kernels]

    assert kernels("hd,nhd->n", 32, 64) == kernels("k,nk->n", 2048)
