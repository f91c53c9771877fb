"""Contractions by the machine's dots, in kernels of all kinds: of bfloat16, and of bytes."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.dots import BF16_PAIRS, HALVES, INT8_FOURS, UINT8_FOURS, Dot
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.tile_ir import Contract
from luminal.kernel.tile_text import to_text
from tests.backends.cpu.schedule.dot_cases import CASES

RANDOM = np.random.default_rng(11)


def has(dot: Dot) -> pytest.MarkDecorator:
    """Skips where the machine lacks a dot."""
    lacks = dot not in registry.compiling("cpu").target.dots
    return pytest.mark.skipif(lacks, reason=f"the machine has no {dot}")


def dots_of(graph: lm.Graph) -> set[str]:
    """The dots by which its kernels multiply several neighbours; of two rows by two columns, those
    of a row by a column.
    """
    kernels = lower_by_stages(graph.graph(), registry.compiling("cpu")).program.kernels
    products = [s for kernel in kernels for s in kernel.statements() if isinstance(s, Contract)]
    return {HALVES.get(s.dot, s.dot).name for s in products if s.dot.k > 1}


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


@pytest.mark.parametrize("m", [1, 33])
def test_products_of_unsigned_bytes_are_exact(m: int) -> None:
    """By a dot where the machine has one."""
    cx = lm.Graph()
    a, b = cx.tensor((m, 64), lm.uint8, name="a"), cx.tensor((64, 47), lm.uint8, name="b")
    (a.cast(lm.int32) @ b.cast(lm.int32)).output("y")
    assert dots_of(cx) == {UINT8_FOURS.name} & {*map(str, registry.compiling("cpu").target.dots)}
    x, w = (RANDOM.integers(0, 256, s).astype(np.uint8) for s in ((m, 64), (64, 47)))
    x[0], w[0] = 255, 255
    exact = x.astype(np.int32) @ w.astype(np.int32)
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
