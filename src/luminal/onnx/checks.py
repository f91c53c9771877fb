"""Elements of the graph that must lie in a range, as positions do: looked at before a run where
they are known, else by the run itself.

A program that has such elements gives one output more, the verdict: which check failed (0: none),
the element, and the range. Positions that are an Input as it is given its executable checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.graph import Recorder
from luminal.frontend.tensor import Tensor
from luminal.hlir.index_inputs import IndexInput, index_use, index_uses
from luminal.hlir.ops import Value
from luminal.onnx.errors import OnnxError
from luminal.onnx.known import Known, Unknown
from luminal.onnx.values import Array
from luminal.shape.expression import Expression

FEW = 16
"""So many different elements that are Expressions of dims become requirements of these at most;
where there are more, the run looks at them.
"""

VERDICT = "verdict"


class Check(NamedTuple):
    """The rule that all `elements` are at least `low` and below `high`.

    `node` names the node that takes them, and `what` is what an error calls one of them.
    """

    node: str
    what: str
    elements: Tensor
    low: Expression
    high: Expression


class Checks:
    """The checks of one recording that no value has decided yet, in order."""

    def __init__(self, values: Known) -> None:
        self._known = values
        self._waiting: list[list[Check]] = [[]]  # for the next program, and for bodies within

    def add(self, check: Check) -> None:
        """Raises OnnxError where an element is known to be out of range; else notes what is open.

        Raises DimError where that holds for no size of the dims.
        """
        if any(n == 0 for n in check.elements.extents):
            return
        try:
            array = self._known.array(check.elements.value)
        except Unknown:
            self._waiting[-1].append(check)
            return
        bounds = check.low, check.high
        if array.dtype != object and all(n.is_const for n in bounds):
            _compare(array, check.low.value, check.high.value, check.what)
            return
        # For numbers the least and the greatest say all; Expressions of dims have no order, so each
        # one is a requirement.
        different = list({*array.reshape(-1).tolist()}) if array.dtype == object else _ends(array)
        if len(different) > FEW:
            self._waiting[-1].append(check)
            return
        for extent in different:
            for condition in (check.low <= extent, check.high > extent):
                check.elements.graph.require(condition, f"{check.what} {extent}")

    @contextmanager
    def apart(self) -> Iterator[list[Check]]:
        """Inside, what waits is listed on its own: the caller says when it holds."""
        waiting: list[Check] = []
        self._waiting.append(waiting)
        try:
            yield waiting
        finally:
            self._waiting.pop()

    def taken(self) -> tuple[Check, ...]:
        """What waits for the next program; it waits no longer."""
        checks = tuple(self._waiting[0])
        self._waiting[0].clear()
        return checks


Given = tuple[str, IndexInput]
"""A node, and the Input that it takes as positions, which the executable checks."""


def split(checks: Sequence[Check], roots: Sequence[Value]) -> tuple[list[Check], list[Given]]:
    """What a program of these roots has to look at, and the Inputs of which its executable may."""
    open_checks: list[Check] = []
    by_executable: list[Given] = []
    uses = index_uses(roots) if checks else frozenset()
    for check in checks:
        use = index_use(check.elements.value, check.high)
        if use is not None:
            by_executable.append((check.node, use))
        # The executable knows one range, -n to n. Any other one the program has to look at itself.
        if use not in uses or check.low != -check.high:
            open_checks.append(check)
    return open_checks, by_executable


def _ends(array: Array) -> list[int]:
    return [int(array.min()), int(array.max())] if array.size else []


def _compare(array: Array, low: int, high: int, what: str) -> None:
    if array.size and (array.min() < low or array.max() >= high):
        wrong = array[(array < low) | (array >= high)].flat[0]
        raise OnnxError(_text(what, int(wrong), low, high))


def _text(what: str, wrong: int, low: int, high: int) -> str:
    if low >= high:
        return f"{what} {wrong} is out of range: there is nothing that it could name"
    return f"{what} {wrong} is out of range; it must lie in {low}..{high - 1}"


def verdict(checks: Sequence[Check], graph: Recorder) -> Tensor:
    """The first check that fails, counted from 1, its element, and its range (int64)."""
    first = [graph.constant(np.int64(0))] * 4
    # From the last to the first, each taking precedence over what was found: the first that fails
    # is told, as nodes would fail one after the other.
    for number in range(len(checks), 0, -1):
        check = checks[number - 1]
        elements = check.elements.cast(dtypes.int64)
        low, high = (graph.constant(n).cast(dtypes.int64) for n in (check.low, check.high))
        least, most = elements.amin(), elements.amax()  # of none: the largest, and the lowest
        wrong = lm.where(most >= high, most, least)
        fails = (most >= high) | (least < low)
        outcome = graph.constant(np.int64(number)), wrong, low, high
        first = [lm.where(fails, mine, other) for mine, other in zip(outcome, first, strict=True)]
    return lm.stack(first)


def refuse(checks: Sequence[Check], outcome: Array) -> None:
    """Raises OnnxError where a verdict says that one has failed."""
    if outcome.item(0):
        number, wrong, low, high = outcome.tolist()
        check = checks[number - 1]
        raise OnnxError(f"{check.node}: {_text(check.what, wrong, low, high)}")
