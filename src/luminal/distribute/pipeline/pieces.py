"""The graphs of a stage's pieces, and the values that go from piece to piece and stage to stage.

A backward node is part of I where another stage's gradients depend on it, else of W. What a piece
reads of another one of its stage is kept, or computed again where no kernel would have stored it,
which is how one program would have it. What it reads of another stage is sent, along the stages
that read it, one to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.pipeline.cut import Cut, Microbatch
from luminal.distribute.pipeline.schedule import Kind
from luminal.distribute.pipeline.steps import Edges
from luminal.distribute.price import stays
from luminal.hlir.attributes import StateAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output, Sink, copied, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.substitute import used_dims

Key = tuple[Kind, int]
"""A part of a stage: its kind (F, I or W) and the stage."""


@dataclass(slots=True)
class PieceGraph:
    """One piece as a graph: which values it takes of others and gives to others, by name."""

    graph: Graph
    takes: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass(slots=True)
class Pieces:
    """All pieces of a step; there is none where nothing is to be computed."""

    stages: int
    graphs: dict[Key, PieceGraph]
    gradients: dict[str, list[int]]
    """The stages that know a part of a gradient, the last one first; W of each has an output of
    that name.
    """
    loss: int
    """The stage that computes the loss."""
    messages: dict[tuple[Kind, int, int], tuple[str, ...]]
    """The values that go from stage to stage, in order."""
    names: dict[str, Value]
    used_until: dict[tuple[int, str], Kind]
    """The last part of a stage that reads a value, or sends it on."""

    @property
    def edges(self) -> Edges:
        """Which stages wait for which."""
        return Edges.of(self.messages)


_ORDER: tuple[Kind, ...] = ("F", "I", "W")


def pieces(step: Microbatch, cut: Cut) -> Pieces:
    """The pieces of a step that was cut.

    Raises InputError for a State that one stage reads and another one assigns.
    """
    return _Splitting(step, cut).all()


@dataclass(slots=True)
class _Wants:
    """What is to be computed by one piece."""

    values: dict[Value, None] = field(default_factory=dict)
    sums: dict[str, list[Value]] = field(default_factory=dict)
    assigns: list[Assign] = field(default_factory=list)


class _Splitting:
    """Walks the pieces from the last one back; each tells those before it what it reads."""

    def __init__(self, step: Microbatch, cut: Cut) -> None:
        self._step, self._cut = step, cut
        self._kinds = self._kinds_of()
        self._wants = {(kind, stage): _Wants() for kind in _ORDER for stage in range(cut.stages)}
        self._reads: dict[tuple[int, Value], Kind] = {}
        self._names: dict[Value, str] = {}
        self._graphs: dict[Key, tuple[Graph, list[Value]]] = {}
        self._gradients: dict[str, list[int]] = {}
        self._loss = cut.stages - 1

    def all(self) -> Pieces:
        """Every piece, and what goes from one to another."""
        self._want_sinks()
        stages = range(self._cut.stages)
        order: list[Key] = [("W", s) for s in stages]
        order += [("I", s) for s in stages] + [("F", s) for s in reversed(stages)]
        for key in order:
            self._write(key)
        graphs = {
            key: PieceGraph(
                graph,
                tuple(self.name(value) for value in taken),
                tuple(self.name(value) for value in self._wants[key].values),
            )
            for key, (graph, taken) in self._graphs.items()
        }
        messages, until = self._sent()
        names = {name: value for value, name in self._names.items()}
        return Pieces(self._cut.stages, graphs, self._gradients, self._loss, messages, names, until)

    # --- which part of its stage a node is of

    def _kinds_of(self) -> dict[Node, Kind]:
        cut = self._cut
        kinds: dict[Node, Kind] = dict.fromkeys(cut.stage, "W")
        roots = [part for sink in self._step.graph.sinks for part in self._parts(sink.value)]
        for node in reversed(topological(roots)):
            if node not in cut.stage:
                continue
            if node in cut.forward:
                kinds[node] = "F"
                continue
            for value in self._below(node):
                other = value.node
                if other in cut.forward:
                    continue
                if cut.stage[other] != cut.stage[node] or kinds[node] == "I":
                    kinds[other] = "I"
        return kinds

    def _below(self, node: Node) -> Iterator[Value]:
        """The values with a stage that a node reads, through Views and what any may compute."""
        waiting, seen = [*node.args], set[Value]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.node in self._cut.stage:
                yield value
            else:
                waiting += value.node.args

    def key(self, node: Node) -> Key:
        """The piece that computes a node."""
        return self._kinds[node], self._cut.stage[node]

    # --- what is wanted at the ends

    def _want_sinks(self) -> None:
        for sink in self._step.graph.sinks:
            if isinstance(sink, Assign):
                stage = self._stage_of(sink.value)
                self._check_state(sink, stage)
                self._wants["F", stage].assigns.append(sink)
            elif sink.name == self._step.loss:
                self._loss = self._stage_of(sink.value)
                self._wants["F", self._loss].sums[sink.name] = [sink.value]
            else:
                parts: dict[int, list[Value]] = {}
                for value in self._parts(sink.value):
                    parts.setdefault(self._stage_of(value), []).append(value)
                for stage, values in parts.items():
                    self._wants["W", stage].sums[sink.name] = values
                self._gradients[sink.name] = sorted(parts, reverse=True)

    def _parts(self, value: Value) -> list[Value]:
        """What the stages know of a gradient, whose sum `value` is; itself where one stage has
        all.
        """
        node = value.node
        if node.op.name != "Add" or node not in self._cut.stage or node in self._cut.forward:
            return [value]
        parts = [part for arg in node.args for part in self._parts(arg)]
        return parts if len({self._stage_of(part) for part in parts}) > 1 else [value]

    def _stage_of(self, value: Value) -> int:
        """The stage that computes a value, which may be a View of what has a stage."""
        if value.node in self._cut.stage:
            return self._cut.stage[value.node]
        below = [self._cut.stage[other.node] for other in self._below(value.node)]
        return min(below, default=self._cut.stages - 1)

    def _check_state(self, sink: Assign, stage: int) -> None:
        for node in self._step.graph.by_op().get("State", ()):
            if node.attrs.state is sink.state and self._cut.stage.get(node, stage) != stage:
                raise InputError(
                    f"the State {sink.state.name!r} is read by stage {self._cut.stage[node]} and "
                    f"assigned by stage {stage}; give another number of stages, so that one stage "
                    "has both"
                )

    # --- the graph of a piece

    def _write(self, key: Key) -> None:
        wants = self._wants[key]
        if not (wants.values or wants.sums or wants.assigns):
            return
        writer = _Writer(self, key)
        sinks: list[Sink] = [Output(writer.value(v), self.name(v)) for v in wants.values]
        for name, values in wants.sums.items():
            total = writer.value(values[0])
            for value in values[1:]:
                total = writer.builder.apply("Add", total, writer.value(value))
            sinks.append(Output(total, name))
        sinks += [Assign(sink.state, writer.value(sink.value)) for sink in wants.assigns]
        graph = Graph(tuple(sinks))
        graph = Graph(graph.sinks, tuple(sorted(used_dims(graph), key=lambda dim: dim.name)))
        self._graphs[key] = graph, [*writer.taken]

    def taken(self, key: Key, value: Value) -> bool:
        """Does a piece take this value of another one? Then that is told to compute it."""
        node = value.node
        if node not in self._cut.stage:
            return False
        kind, stage = self.key(node)
        if (kind, stage) == key:
            return False
        if stage == key[1] and not (stays(node) or isinstance(node.attrs, StateAttrs)):
            return False  # nothing would have stored it: it is computed again
        self._wants[kind, stage].values[value] = None
        before = self._reads.get((key[1], value), "F")
        self._reads[key[1], value] = max(before, key[0], key=_ORDER.index)
        return True

    def name(self, value: Value) -> str:
        """What a value is called in all pieces."""
        return self._names.setdefault(value, f"v{len(self._names)}")

    # --- what is sent

    def _sent(
        self,
    ) -> tuple[dict[tuple[Kind, int, int], tuple[str, ...]], dict[tuple[int, str], Kind]]:
        """The values of each message; and until which of its parts a stage keeps a value."""
        messages: dict[tuple[Kind, int, int], list[str]] = {}
        until: dict[tuple[int, str], Kind] = {}
        readers: dict[Value, list[int]] = {}
        for (stage, value), kind in self._reads.items():
            readers.setdefault(value, []).append(stage)
            until[stage, self.name(value)] = kind
        for value in sorted(readers, key=self.name):
            kind, source = self.key(value.node)
            name = self.name(value)
            later = sorted(stage for stage in readers[value] if stage > source)
            earlier = sorted((s for s in readers[value] if s < source), reverse=True)
            if later and kind != "F":
                raise AssertionError(f"stage {later[0]} reads a gradient of stage {source}")
            ways: list[tuple[Kind, list[int]]] = [("F", later), ("I", earlier)]
            for way, stages in ways:
                for sender, receiver in zip([source, *stages], stages, strict=False):
                    messages.setdefault((way, sender, receiver), []).append(name)
                    before = until.get((sender, name), "F")
                    until[sender, name] = max(before, way, key=_ORDER.index)
        return {key: tuple(names) for key, names in sorted(messages.items())}, until


class _Writer:
    """Copies what one piece computes; what others compute becomes an Input."""

    def __init__(self, splitting: _Splitting, key: Key) -> None:
        self.builder = Builder()
        self.taken: dict[Value, Value] = {}
        self._splitting, self._key = splitting, key
        self._made: dict[Value, Value] = {}

    def value(self, root: Value) -> Value:
        """A value of the recorded graph in the piece's."""
        stack = [root]
        while stack:
            value = stack[-1]
            if value in self._made:
                stack.pop()
            elif self._splitting.taken(self._key, value):
                name = self._splitting.name(value)
                argument = self.builder.input(name, value.shape, value.dtype)
                self._made[value] = self.taken[value] = argument
            elif waiting := [arg for arg in value.node.args if arg not in self._made]:
                stack += waiting
            else:
                self._copy(value.node)
        return self._made[root]

    def _copy(self, node: Node) -> None:
        args = [self._made[arg] for arg in node.args]
        if not args:
            self.builder.keep(node)
            results: tuple[Value, ...] = tuple(Value(node, k) for k in range(len(node.types)))
        else:
            results = copied(self.builder, node, args)
        for k, result in enumerate(results):
            self._made.setdefault(Value(node, k), result)
