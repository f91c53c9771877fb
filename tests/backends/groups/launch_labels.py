"""The launches of a program by their labels, and arrays for its run."""

from __future__ import annotations

import numpy as np

from luminal.backends.backend import Backend
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.program.launch_list import walk
from tests.fuzz.graphs import Case


def labels(graph: Graph, backend: Backend) -> list[str]:
    program = lower_to_program(graph, backend)
    return [launch.label for launch in walk(program.launches)]


def drawn(graph: Graph, dims: dict[str, int] | None = None, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    given = {}
    for node in graph.by_op()["Input"]:
        shape = [int(n.evaluate(dims or {})) for n in node.types[0].shape]
        given[node.attrs.name] = rng.standard_normal(shape, np.float32)
    return Case(graph, given, dims or {}, {})
