"""Values that are asked for before any run: compiled for those values alone, and run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence

from luminal.base import forks
from luminal.base.errors import DimError, InputError
from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe
from luminal.hlir.graph import Assign, Graph, Output, Sink
from luminal.hlir.ops import Node, Value
from luminal.hlir.structure import structure
from luminal.hlir.substitute import used_dims
from luminal.runtime.arrays import Array
from luminal.runtime.executable import Executable
from luminal.shape.expression import Expression, Symbol

MAX_PROGRAMS = 64  # the least recently used go first


@dataclass(frozen=True, slots=True)
class _Program:
    """Compiled values, and their inputs' names in the order of their structure."""

    executable: Executable
    names: tuple[str, ...]


# A newcomer's first line is `print(y.numpy())`, so reading elements compiles what it needs. Results
# are not kept, since they would be stale after a `set`; programs are, by structure.
class OnDemand:
    """Programs for values, one for each structure: other inputs do not compile anew.

    `device`: what `compile` compiles for now; each device has programs of its own.
    """

    def __init__(
        self,
        compile: Callable[[Graph], Executable],
        device: Callable[[], str],
        max_programs: int = MAX_PROGRAMS,
    ) -> None:
        self._compile = compile
        self._device = device
        self._max_programs = max_programs
        self._programs: OrderedDict[Hashable, _Program] = OrderedDict()
        self._lock = forks.lock()

    def array(self, graph: Recorder, value: Value) -> Array:
        """`value` for the inputs set on `graph`; States are read, not assigned.

        Raises InputError for an input that was not set, DimError for a dim that no input's shape
        gives, and what compiling and running raise.
        """
        return self.arrays(graph, [value])[0]

    def arrays(
        self,
        graph: Recorder,
        values: Sequence[Value],
        assigned: Sequence[Assign] = (),
        inputs_set: Mapping[str, Array] | None = None,
    ) -> list[Array]:
        """The arrays of several values, which one program computes, for the inputs set on `graph`,
        or those of `inputs_set`; it assigns what is `assigned`, and only reads other States.
        """
        inputs_set = graph.values if inputs_set is None else inputs_set
        roots = [*values, *(sink.value for sink in assigned)]
        shape_of_graph, inputs = structure(roots)
        targets = tuple(sink.state for sink in assigned)
        key = (shape_of_graph, targets, tuple(graph.requirements), self._device())
        # Before anything is compiled: that an input is not set is said at once.
        by_name = {node.attrs.name: _given(graph, roots[0], node, inputs_set) for node in inputs}
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._compiled(graph, values, assigned, inputs)
                if len(self._programs) >= self._max_programs:
                    self._programs.popitem(last=False)
                self._programs[key] = program
            self._programs.move_to_end(key)
        results = program.executable(dict(zip(program.names, by_name.values(), strict=True)))
        # Inputs are given anew each time, so the program must not keep a user's arrays alive until
        # then.
        program.executable.release()
        return [*results.values()]

    def _compiled(
        self,
        graph: Recorder,
        values: Sequence[Value],
        assigned: Sequence[Assign],
        inputs: tuple[Node, ...],
    ) -> _Program:
        outputs = [Output(value, f"value{k}") for k, value in enumerate(values)]
        sinks: tuple[Sink, ...] = (*outputs, *assigned)
        dims = used_dims(Graph(sinks))
        _check_dims(graph, sinks[0].value, inputs, dims)
        requirements = [r for r in graph.requirements if r.symbols() <= dims]
        dims_all = tuple(graph.dims.values())
        part = Graph(sinks, dims_all, tuple(requirements), graph.required_at)
        return _Program(self._compile(part), tuple(node.attrs.name for node in inputs))


def _given(graph: Recorder, value: Value, node: Node, inputs_set: Mapping[str, Array]) -> Array:
    name = node.attrs.name
    array = inputs_set.get(name)
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
    """Raises DimError for a dim that no input gives, neither one that is read nor one that is
    set.
    """
    extents: set[Expression] = {extent for node in inputs for extent in node.attrs.shape}
    extents.update(n for name in graph.values for n in graph.leaves[name].shape)
    for dim in sorted(dims - extents, key=lambda dim: dim.name):
        raise DimError(
            f"{describe(graph.wrap(value))} of {graph.name} needs {dim.name}, and no input's shape "
            f'gives this dim; compile the graph and call it with dims={{"{dim.name}": n}}'
        )
