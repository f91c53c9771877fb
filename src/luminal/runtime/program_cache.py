"""Programs kept between processes: a start that meets a graph again compiles nothing.

An entry is a Program, pickled, in the object cache; its name is a hash over all that the compiler
goes by: the graph, the backend with what it knows of its machine, the flags that enter keys, and
the sources. A graph is written as rows, each operation with the numbers of its operands. The
Parameters and States in it are numbered as they come, in the key with what a compiler may ask of
them, and in the Program, which then gets those of the graph at hand: values are no part of either.
So are the lines that kernels come from: the Program says of which operations they are.

Only what the compiler makes of files as they are is kept. A process that had parts of it loaded
before it compiled anything may have changed them, as experiments and tests do with planted faults;
and graphs that call hand-written code have parts that no text shows.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import io
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import config, tracing
from luminal.base.lines import Recorded, to_last
from luminal.hlir.attributes import Body, LoopAttrs, MarkAttrs
from luminal.hlir.graph import Assign, Graph, topological
from luminal.hlir.ops import Node, Value
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.runtime import object_cache
from luminal.runtime.source_hash import package_stamp

if TYPE_CHECKING:  # whoever compiles or finds a Program has it
    from luminal.program.launch_list import Program

COMPILER = "luminal.algebra"
"""All of the compiler stands on it, and nothing that runs programs does."""


class Entry:
    """The place of one graph's Program."""

    def __init__(self, key: str, outside: list[Assignable], nodes: Sequence[Node]) -> None:
        self._key = key
        self._outside = outside
        self._nodes = nodes

    def get(self) -> Program | None:
        """The Program, with this graph's Parameters and States, if it is there."""
        with tracing.span("look up"):
            data = object_cache.default().get(self._key)
            if data is None:
                return None
            program: Program = _Reader(io.BytesIO(data), self._outside, self._nodes).load()
            return program

    def alone(self) -> AbstractContextManager[None]:
        """Inside, the Program is made by one process at a time: look again for it first."""
        return object_cache.default().alone(self._key)

    def put(self, program: Program) -> None:
        """Keeps it; one that holds what the graph has not is left out."""
        written = _Writer(self._outside, self._nodes)
        data = written.of(program)
        # A Program that refers to a State which the graph lacks could not be given one when it is
        # read.
        if len(written.outside) == len(self._outside):
            object_cache.default().put(self._key, data)


# The whole recorded graph is the key, at the price of recording it at every start (0.06 s of a 1.1B
# model). A key made of a model's configuration would spare that, and would be wrong whenever a
# model reads something else: functions, constants in memory, flags.
def entry(graph: Graph, *made_by: Any) -> Entry | None:
    """The place for what `made_by` (a backend and options, by their pickles) makes of a graph.

    None where nothing is kept.
    """
    if not _is_as_in_files() or config.get("LUMINAL_VERIFY") or config.get("LUMINAL_DEBUG") >= 3:
        return None
    rows = _GraphRows()
    written = rows.graph(graph)
    if "Custom" in rows.ops:
        return None
    writer = _Writer([])
    text = hashlib.sha256(writer.of((written, made_by))).hexdigest()
    # Pickles of one version of Python or NumPy need not mean the same in another.
    versions = sys.version, np.__version__, package_stamp(), config.cache_key()
    lines = str(config.get("LUMINAL_LINES"))  # without them the Program tells of none
    return Entry(object_cache.key("program", text, lines, *versions), writer.outside, rows.nodes)


@functools.cache
def _is_as_in_files() -> bool:
    """Is the compiler in this process as its files are? Asked first before it compiles anything."""
    return COMPILER not in sys.modules


class _GraphRows:
    """Operations as rows of plain values."""

    def __init__(self) -> None:
        self._numbers: dict[Node, int] = {}
        self.ops: set[str] = set()  # those of bodies too

    @property
    def nodes(self) -> list[Node]:
        """All operations by number, those of bodies too."""
        return [*self._numbers]

    def graph(self, graph: Graph) -> tuple[Any, ...]:
        rows = [*self._rows(graph.roots)]
        sinks = [
            (sink.state, *self._edge(sink.value))
            if isinstance(sink, Assign)
            else (sink.name, sink.hidden, *self._edge(sink.value))
            for sink in graph.sinks
        ]
        return rows, sinks, graph.dims, graph.requirements

    def _rows(self, roots: Iterable[Value]) -> Iterator[tuple[Any, ...]]:
        for node in topological(roots):
            if node not in self._numbers:
                attrs = node.attrs
                if isinstance(attrs, LoopAttrs):
                    attrs = (*attrs._replace(body=self._body(attrs.body)),)  # type: ignore[arg-type]
                elif isinstance(attrs, MarkAttrs):
                    attrs = None  # for derivatives: they hold values, and no Program depends on it
                args = [part for arg in node.args for part in self._edge(arg)]
                self._numbers[node] = len(self._numbers)
                self.ops.add(node.op.name)
                yield node.op.name, args, attrs

    def _body(self, body: Body) -> tuple[Any, ...]:
        arguments = [argument.value for argument in body.arguments]
        rows = [*self._rows((*arguments, *body.results))]
        return rows, [*map(self._edge, arguments)], [*map(self._edge, body.results)]

    def _edge(self, value: Value) -> tuple[int, int]:
        return self._numbers[value.node], value.index


class _Writer:
    """Pickles of values that refer to Parameters and States by number, to lines by operation."""

    def __init__(self, outside: list[Assignable], nodes: Sequence[Node] = ()) -> None:
        self.outside = [*outside]
        self._numbers = {owner: number for number, owner in enumerate(self.outside)}
        # The graph's own Parameters and States stand as numbers: a pickle of them would hold their
        # values.
        # A table, not `persistent_id`: that one is called for every value there is.
        references = dict.fromkeys(_kinds(Parameter, State), self._reference)
        self._table = copyreg.dispatch_table | references | {Recorded: self._origin}
        self._lines: dict[Recorded | None, int] = {}
        for number, node in enumerate(nodes):
            self._lines.setdefault(node.recorded, number)

    def of(self, value: Any) -> bytes:
        file = io.BytesIO()
        pickler = pickle.Pickler(file, 5)
        pickler.dispatch_table = self._table
        pickler.dump(value)
        return file.getvalue()

    def _reference(self, value: Assignable) -> tuple[Any, ...]:
        number = self._numbers.setdefault(value, len(self.outside))
        if number == len(self.outside):
            self.outside.append(value)
        return outside, (number, type(value).__name__, value.shape, value.dtype.name)

    def _origin(self, value: Recorded) -> tuple[Any, ...]:
        both = value._replace(last=None), value.last
        return origin, tuple(self._lines.get(one, -1) for one in both)


def _kinds(*kinds: type) -> Iterator[type]:
    """The classes and all that are derived from them."""
    for kind in kinds:
        yield kind
        yield from _kinds(*kind.__subclasses__())


def outside(number: int, *known: Any) -> Assignable:
    """Stands in a pickle for a Parameter or State of the graph; the reader has its own."""
    raise pickle.UnpicklingError(f"value {number} outside of the graph: only a graph has it")


def origin(first: int, last: int, /) -> Recorded | None:
    """Stands in a pickle for where operations come from; the reader has those of its graph."""
    raise pickle.UnpicklingError(f"operation {first} of a graph: only the graph has its line")


class _Reader(pickle.Unpickler):
    """Reads what a Writer wrote."""

    def __init__(self, file: io.BytesIO, owners: list[Assignable], nodes: Sequence[Node]) -> None:
        super().__init__(file)
        self._found = owners
        self._nodes = nodes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, outside.__name__):
            return lambda number, *known: self._found[number]
        if (module, name) == (__name__, origin.__name__):
            return self._origin
        # Entries are trusted as code is: they lie in folders that only the user can write to, and
        # their hash covers the key.
        return super().find_class(module, name)

    def _origin(self, first: int, last: int) -> Recorded | None:
        one, other = (self._nodes[k].recorded if k >= 0 else None for k in (first, last))
        return one if last < 0 else to_last(one, other)
