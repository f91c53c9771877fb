"""Samples of many OpInfos recorded into one graph: one compile, every failing sample named."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

import luminal as lm
from luminal.frontend.graph import Recorder
from luminal.frontend.tensor import Tensor
from tests.conformance import opinfo_map
from tests.conformance.opinfo_run import full_name
from tests.conformance.opinfo_samples import Inputs, computed, equal, leaves, torch_result


class Sample(NamedTuple):
    """One sample of one op."""

    op: Any
    number: int
    given: Any
    entry: opinfo_map.Entry

    @property
    def name(self) -> str:
        return f"{full_name(self.op)} sample {self.number}"


def samples(ops: Iterable[Any], limit: int) -> Iterator[Sample]:
    """The first samples of every op that the map has."""
    for op in ops:
        entry = opinfo_map.entry(op.name, op.variant_test_name)
        if isinstance(entry, str):
            continue
        given = op.sample_inputs("cpu", torch.float32, requires_grad=False)
        for number, each in enumerate(itertools.islice(given, limit)):
            yield Sample(op, number, each, entry)


def failures(batch: Sequence[Sample], backend: str) -> list[str]:
    """What fails, a line each; if the graph as a whole does, its halves tell which sample did."""
    lm.reset()
    graph = lm.default_graph()
    failed, found = [], {}
    for k, sample in enumerate(batch):
        try:
            found[k] = _recorded(graph, sample, f"sample{k}_")
        except Exception as error:  # whatever it raises, it is a line of the report
            failed.append(_line(sample, error))
    try:
        arrays = computed(graph, backend) if graph.sinks else {}
    except Exception as error:
        if len(batch) == 1:
            return [*failed, _line(batch[0], error)]
        middle = len(batch) // 2
        return [*failures(batch[:middle], backend), *failures(batch[middle:], backend)]
    for k, values in found.items():
        sample = batch[k]
        names = (f"sample{k}_out{n}" for n in range(len(values)))
        actual = [arrays.get(name, value) for name, value in zip(names, values, strict=True)]
        try:
            check = sample.entry.check or equal
            check(actual, torch_result(sample.op.op, sample.given))
        except Exception as error:
            failed.append(_line(sample, error))
    return failed


def _recorded(graph: Recorder, sample: Sample, stem: str) -> list[Any]:
    """The results in order; those that are Tensors are outputs of the graph."""
    inputs = Inputs(graph, constant=sample.entry.constant, stem=stem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = inputs.convert((sample.given.input, *sample.given.args))
        found = leaves(sample.entry.call(*args, **inputs.convert(sample.given.kwargs)))
    for n, value in enumerate(found):
        if isinstance(value, Tensor):
            graph.output(value, f"{stem}out{n}")
    return found


def _line(sample: Sample, error: Exception) -> str:
    return f"{sample.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
