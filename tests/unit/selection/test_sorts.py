"""Sorts in blocks: their meaning, their text, and when there are any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.evaluate import evaluate
from luminal.algebra.lower import Lowered, lower
from luminal.algebra.sorts import MergedRuns, SortedBlocks
from luminal.algebra.terms import term_order
from luminal.backends import device_costs
from luminal.backends.c_backend import machine
from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.hlir.graph import Graph
from luminal.program.selection_text import parse, to_text
from luminal.selection.fast import respell, select

GPU = device_costs.gpu(machine("gpu", 8, 48 << 10, 1 << 20))
SMALL = replace(GPU, shares=replace(GPU.shares, sorted=8 * 8))  # blocks of 8 keys of 4 bytes


def sorted_(shape: tuple[int, ...], axis: int, dtype: str = "i32") -> Graph:
    cx = lm.Graph()
    values, order = cx.tensor(shape, dtype, name="x").sort(axis)
    values.output("values")
    order.output("order")
    return cx.graph()


def blocked(lowered: Lowered, costs: Costs) -> Lowered:
    return respell(lowered, costs, Numerics.EXACT).lowered


def kinds(lowered: Lowered) -> list[type]:
    order = term_order(root.term for root in lowered.roots)
    return [type(t.attrs.hlir) for t in order if t.op == "Sort" and t.attrs.index == 1]


@pytest.mark.parametrize(("shape", "axis"), [((2, 65), 1), ((33, 3), 0), ((2, 100, 2), 1)])
def test_a_sort_in_blocks_means_the_sort(shape: tuple[int, ...], axis: int) -> None:
    lowered = lower(sorted_(shape, axis))
    respelled = blocked(lowered, SMALL)
    merges = (shape[axis] - 1).bit_length() - 3
    assert kinds(respelled) == [SortedBlocks, *[MergedRuns] * merges]
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.int32)
    (leaf,) = (t for t in term_order(r.term for r in lowered.roots) if t.is_leaf)
    values, order = evaluate(respelled, {leaf.attrs.value: x})
    np.testing.assert_array_equal(order, np.argsort(x, axis, kind="stable"))
    np.testing.assert_array_equal(values, np.sort(x, axis))


def test_its_text_is_read_back() -> None:
    lowered = lower(sorted_((50,), 0))
    text = to_text(select(lowered, SMALL))
    assert "axis=0 blocks=8 i32" in text
    assert "axis=0 runs=32 i64" in text
    assert to_text(parse(text, lowered)) == text


# Blocks of 1024 keys of 4 bytes; of keys of 8 bytes 512.
@pytest.mark.parametrize(
    ("length", "dtype", "merges"),
    [(4096, "i32", 0), (4097, "i32", 3), (1 << 20, "i32", 10), (2049, "i64", 3), (2048, "i64", 0)],
)
def test_long_rows_are_sorted_in_blocks(length: int, dtype: str, merges: int) -> None:
    respelled = blocked(lower(sorted_((length,), 0, dtype)), GPU)
    assert kinds(respelled).count(MergedRuns) == merges


def test_rows_of_any_length_and_those_of_cores_are_sorted_whole() -> None:
    cx = lm.Graph()
    cx.tensor((cx.dim("n"),), "i32").sort()[1].output("order")
    assert MergedRuns not in kinds(blocked(lower(cx.graph()), GPU))
    cores = device_costs.cores(machine("cores", 8, 48 << 10, 1 << 20))
    respelled = blocked(lower(sorted_((1 << 20,), 0)), cores)
    assert MergedRuns not in kinds(respelled)
