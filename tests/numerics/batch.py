"""Many cases in one graph: one compilation, and every failing case named."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from luminal.frontend.graph import Recorder
from luminal.frontend.scan import flatten
from tests.close import close
from tests.numerics.recording import on, results

Array = np.ndarray[Any, Any]
BACKENDS = ("reference", "cpu")


class Case(NamedTuple):
    """`fn` of Tensors of the arrays must equal `expected`, a function of torch's or arrays."""

    name: str
    fn: Callable[..., Any]
    expected: Any
    arrays: Sequence[Any]
    ulp: float = 16


def check(cases: Sequence[Case], backend: str) -> None:
    """Asserts every case; the message lists the cases that fail and the first of each's reason."""
    cx = Recorder()
    leaves: list[Any] = []
    spans: list[tuple[int, int]] = []
    inputs: dict[str, Array] = {}
    for number, case in enumerate(cases):
        tensors = []
        for k, array in enumerate(case.arrays):
            name = f"x{number}_{k}"
            inputs[name] = np.asarray(array)
            tensors.append(cx.tensor(inputs[name].shape, inputs[name].dtype, name))
        found, _ = flatten(case.fn(*tensors))
        spans.append((len(leaves), len(leaves) + len(found)))
        leaves += found
    for leaf in leaves:
        leaf.output()
    with on(backend):
        values = results(cx, leaves, inputs)
    failed = [
        reason
        for case, (lo, hi) in zip(cases, spans, strict=True)
        if (reason := _difference(case, values[lo:hi]))
    ]
    assert not failed, f"{len(failed)} of {len(cases)} on {backend}\n" + "\n".join(failed)


def _difference(case: Case, values: Sequence[Array]) -> str | None:
    expected = flatten(_expected(case))[0]
    try:
        assert len(values) == len(expected), (len(values), len(expected))
        for value, wanted in zip(values, expected, strict=True):
            close(value, wanted, case.ulp)
    except AssertionError as error:
        return f"{case.name}: {str(error).strip()[:400]}"
    return None


def _expected(case: Case) -> Any:
    if not callable(case.expected):
        return case.expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch thinks of the case is not the question
        found = case.expected(*(torch.from_numpy(np.array(a)) for a in case.arrays))
    parts, tree = flatten(found)
    return tree.build([p.numpy() if isinstance(p, torch.Tensor) else np.asarray(p) for p in parts])
