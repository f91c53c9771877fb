"""Values that are asked for before any run: compiled for that one value, and run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from luminal import forks
from luminal.errors import DimError, InputError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe
from luminal.hlir.graph import Graph, Output
from luminal.hlir.ops import Node, Value
from luminal.hlir.structure import structure
from luminal.hlir.substitute import used_dims
from luminal.runtime.arrays import Array
from luminal.runtime.executable import Executable
from luminal.shape.expression import Expression, Symbol

MAX_PROGRAMS = 64  # the least recently used go first
NAME = "value"  # of the only output


@dataclass(frozen=True, slots=True)
class _Program:
    """A compiled value, and its inputs' names in the order of its structure."""

    executable: Executable
    names: tuple[str, ...]


class OnDemand:
    """Programs for single values, one for each structure: other inputs do not compile anew."""

    def __init__(self, compile: Callable[[Graph], Executable]) -> None:
        self._compile = compile
        self._programs: OrderedDict[Hashable, _Program] = OrderedDict()
        self._lock = forks.lock()

    def array(self, graph: Recorder, value: Value) -> Array:
        """`value` for the inputs set on `graph`; States are read, not assigned.

        Raises InputError for an input that was not set, DimError for a dim that no input's shape
        gives, and what compiling and running raise.
        """
        found, inputs = structure([value])
        key = (found, tuple(graph.requirements))
        arrays = [_given(graph, value, node) for node in inputs]
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._compiled(graph, value, inputs)
                if len(self._programs) >= MAX_PROGRAMS:
                    self._programs.popitem(last=False)
                self._programs[key] = program
            self._programs.move_to_end(key)
        return program.executable(dict(zip(program.names, arrays, strict=True)))[NAME]

    def _compiled(self, graph: Recorder, value: Value, inputs: tuple[Node, ...]) -> _Program:
        dims = used_dims(Graph((Output(value, NAME),)))
        _check_dims(graph, value, inputs, dims)
        requirements = [r for r in graph.requirements if r.symbols() <= dims]
        part = Graph((Output(value, NAME),), tuple(graph.dims.values()), tuple(requirements))
        return _Program(self._compile(part), tuple(node.attrs.name for node in inputs))


def _given(graph: Recorder, value: Value, node: Node) -> Array:
    name = node.attrs.name
    array = graph.values.get(name)
    if array is None:
        raise InputError(
            f"{describe(graph.wrap(value))} of {graph.name} needs {name}, which has no value yet; "
            f"call set(array) on {describe(graph.wrap(node.value))}, or compile the graph and pass "
            f'{{"{name}": array}} (of lm.tensor, a tuple is a shape; data is a list)'
        )
    return array


def _check_dims(
    graph: Recorder, value: Value, inputs: tuple[Node, ...], dims: frozenset[Symbol]
) -> None:
    """DimError for a dim that no input gives, neither one that is read nor one that is set."""
    given: set[Expression] = {extent for node in inputs for extent in node.attrs.shape}
    given.update(n for name in graph.values for n in graph.leaves[name].shape)
    for dim in sorted(dims - given, key=lambda dim: dim.name):
        raise DimError(
            f"{describe(graph.wrap(value))} of {graph.name} needs {dim.name}, and no input's shape "
            f'gives this dim; compile the graph and call it with dims={{"{dim.name}": n}}'
        )
