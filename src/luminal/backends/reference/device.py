"""The reference backend's runner: HLIR evaluated with NumPy, for every shape and dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from luminal.backends.reference.interpreter import Trace, evaluate
from luminal.backends.reference.together import Together
from luminal.base.origins import described
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.runtime.arrays import Array
from luminal.runtime.ranks import Engines
from luminal.runtime.report import KernelRow, Report, WorkMemory
from luminal.runtime.report_text import table_lines
from luminal.runtime.runner import Times, on_host


@dataclass(frozen=True, slots=True)
class ReferenceRunner:
    """Evaluates `graph`; `trace` is called after each node."""

    graph: Graph
    trace: Trace | None = None
    engines: dict[str, Any] = field(default_factory=dict)  # by mesh axis

    def join(self, engines: Engines) -> None:
        """Takes the engines of a program that several ranks run."""
        self.engines.update(engines)

    def stand_alone(self) -> None:
        """Nothing: the reference is never timed against others."""

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundReference:
        """The graph for these dims."""
        return BoundReference(self, dict(dims), tuple(inputs), tuple(outputs))

    def peaks(self) -> None:
        """The work of nodes is not counted, so there is nothing to compare."""

    def memory(self) -> WorkMemory:
        """The memory held between runs, which is none."""
        return WorkMemory()

    def abandon_run(self) -> None:
        """A run leaves nothing."""


@dataclass(frozen=True, slots=True)
class BoundReference:
    """A graph with the values of its dims."""

    runner: ReferenceRunner
    dims: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Evaluates the graph, then copies the results into `outputs`."""
        arrays = dict(zip(self.inputs, inputs, strict=True))
        runner = self.runner
        domain = Together(runner.engines) if runner.engines else None
        results = evaluate(runner.graph, arrays, self.dims, runner.trace, domain)
        for name, array in zip(self.outputs, outputs, strict=True):
            array[...] = results[name]

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """The seconds of `runs` runs by the host's clock."""
        return on_host(self, inputs, outputs, runs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """The seconds of every node."""
        seconds: dict[Node, float] = {}

        def note(node: Node, arrays: tuple[Any, ...], taken: float) -> None:
            seconds[node] = taken

        rows = []
        for _ in range(runs):
            BoundReference(
                ReferenceRunner(self.runner.graph, note, self.runner.engines),
                self.dims,
                self.inputs,
                self.outputs,
            ).run(inputs, outputs)
            rows.append([seconds[node] for node in self._nodes()])
        return np.array(rows)

    def report(self) -> Report:
        """A report with one row a node; the work is not estimated."""
        rows = []
        for k, node in enumerate(self._nodes()):
            origin = "" if node.recorded is None else described([node.recorded])
            rows.append(KernelRow(node.op.name, k, 1, 1, 0, 0, origin=origin))
        return Report(self.dims, tuple(rows))

    def _nodes(self) -> list[Node]:
        return [node for node in self.runner.graph.nodes() if node.op.group != "leaf"]


@dataclass(slots=True)
class OpTrace:
    """Collects a row for every result of every op that runs: what `execute_debug` prints."""

    rows: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, node: Node, arrays: tuple[Any, ...], seconds: float) -> None:
        """The interpreter's trace callback."""
        for array in arrays:
            what = getattr(node.attrs, "name", "")
            label = f"{node.op.name} {what}".rstrip()
            milliseconds = f"{seconds * 1e3:.3f}"
            self.rows.append(
                (label, f"{array.dtype}{list(array.shape)}", milliseconds, _range(array))
            )

    def table(self) -> str:
        """The rows in columns, in the order in which the ops ran."""
        return "\n".join(table_lines([("op", "result", "ms", "values"), *self.rows]))


def _range(array: Array) -> str:
    """The smallest and largest value, and what is not finite."""
    if array.size == 0:
        return "empty"
    values = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    finite = values[np.isfinite(values)]
    text = f"{finite.min():.6g} .. {finite.max():.6g}" if finite.size else "none finite"
    nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return text + (f", {nan} nan" if nan else "") + (f", {inf} inf" if inf else "")
