"""Programs bound to shapes: of an executable's variants the one that takes them, kept for later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from luminal.base import trace_file
from luminal.base.errors import DimError
from luminal.base.records import dataclass
from luminal.hlir.index_inputs import IndexInput
from luminal.runtime import traced
from luminal.runtime.binding import Bound, Dims, Interval, Signature
from luminal.runtime.dim_sources import DimSources, Shapes
from luminal.runtime.outputs import OutputPlan, Outputs
from luminal.runtime.recognition import STRANGER, Familiar, Recognizer, Recognizing
from luminal.runtime.report import CompileSummary
from luminal.runtime.runner import BoundRunner, Runner

MAX_BINDINGS = 64  # shapes whose bindings are kept, the least recently used go first

IndexCheck = tuple[int, IndexInput]
"""A slot of the inputs, and what its array indexes."""

_Key = tuple[tuple[tuple[int, ...], ...], Shapes, tuple[tuple[Any, int], ...]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A runner and the dims it was compiled for; the empty mapping takes all."""

    intervals: Mapping[str, Interval]
    runner: Runner
    compiled: CompileSummary = field(default_factory=CompileSummary)

    def can_take(self, dims: Dims) -> bool:
        """Do the dims lie in the intervals that the variant was compiled for?"""
        return all(
            name not in dims or lo <= dims[name] <= hi for name, (lo, hi) in self.intervals.items()
        )


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """All that a run needs beside arrays, for one set of input shapes and dims."""

    key: _Key
    dims: Dims
    outputs: tuple[OutputPlan, ...]
    bound: BoundRunner
    recognizer: Recognizer  # of calls as those that have this binding
    unchecked: tuple[IndexCheck, ...]  # what is left to check of a call that it recognizes


class Bindings:
    """The bindings of a graph's variants, and which one the last run had."""

    def __init__(
        self,
        variants: Sequence[Variant],
        signature: Signature,
        sources: DimSources,
        outputs: Outputs,
        checks: tuple[IndexCheck, ...],
        title: str = "",
    ) -> None:
        self._variants, self._signature, self._sources = variants, signature, sources
        self._outputs, self._checks = outputs, checks
        self._names = tuple(spec.name for spec in signature.inputs)
        self._known: OrderedDict[_Key, Binding] = OrderedDict()
        self._title = title
        self._trace = trace_file.current()
        self.last: Binding | None = None

    def clear(self) -> None:
        """Forgets all bindings made so far."""
        self.last = None
        self._known.clear()

    def bind(
        self, shapes: tuple[tuple[int, ...], ...], beside: Shapes, dims: Mapping[str, int] | None
    ) -> Binding:
        """The Binding for inputs of these shapes; raises ShapeError, DimError where they do not
        fit.
        """
        if dims is not None and not isinstance(dims, Mapping):
            raise DimError(f'dims: takes a dict, as {{"s": 3}}; got a {type(dims).__name__}')
        # Most calls are like the last one; the rest are kept by their shapes, least recently used
        # first out.
        key = (shapes, beside, tuple(dims.items()) if dims else ())
        last = self.last
        if last is not None and last.key == key:
            return last
        try:
            binding = self._known.get(key)
        except TypeError:
            fix = 'give an int for each, as {"s": 3}'
            raise DimError(f"dims: {dims!r} has a value that is no int; {fix}") from None
        if binding is None:
            sources = self._sources.given(beside)
            binding = self._new(key, self._signature.resolve(shapes, dims or {}, sources))
            if len(self._known) >= MAX_BINDINGS:
                self._known.popitem(last=False)
            self._known[key] = binding
        else:
            self._known.move_to_end(key)
        return binding

    def _new(self, key: _Key, bound: Bound) -> Binding:
        dims, values = bound
        plans, runner = self._outputs.plan(dims, values), self.bound(dims)
        if self._trace is not None:
            program = traced.Program(self._trace, self._title, runner, self.variant(dims).runner)
            runner = traced.with_trace(runner, program)
        shapes, *beside = key
        if any(beside) or not isinstance(runner, Recognizing):
            return Binding(key, dims, plans, runner, STRANGER, self._checks)
        indexed, unchecked = self._indexed(dims, runner)
        inputs = [
            Familiar(spec.name, spec.dtype, shape, indexed.get(slot, 0))
            for slot, (spec, shape) in enumerate(zip(self._signature.inputs, shapes, strict=True))
        ]
        outputs = [Familiar(plan.name, plan.dtype, plan.shape) for plan in plans]
        recognizer = runner.recognizer(inputs, outputs)
        return Binding(key, dims, plans, runner, recognizer, tuple(unchecked))

    def _indexed(
        self, dims: Dims, runner: Recognizing
    ) -> tuple[dict[int, int], Sequence[IndexCheck]]:
        """The least extent that an input is an index of, by slot, where the runner compares its
        elements; and the other checks.
        """
        indexed: dict[int, int] = {}
        others = []
        for slot, use in self._checks:
            extent = use.extent.evaluate(dims)
            dtype = self._signature.inputs[slot].dtype
            # Native code compares elements as they lie with extents of 31 bits at most; what casts
            # and views make of them first is for NumPy.
            if use.steps or not runner.can_check(dtype) or not 0 < extent < 1 << 31:
                others.append((slot, use))
            else:
                indexed[slot] = min(extent, indexed.get(slot, extent))
        return indexed, others

    def bound(self, dims: Dims) -> BoundRunner:
        """The runner for these dims."""
        return self.variant(dims).runner.bind(dims, self._names, self._outputs.names)

    def variant(self, dims: Dims) -> Variant:
        """The first that takes these dims."""
        return next(variant for variant in self._variants if variant.can_take(dims))
