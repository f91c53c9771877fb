"""One compiled form of a model: a program, or several where sizes depend on data.

Each question of the translation that only a run can answer ends a piece. Pieces are found by the
answers before them, so that a run that meets known answers compiles nothing; what computes the same
(the iterations of a Loop) is one program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.frontend.tensor import Tensor
from luminal.hlir.structure import structure
from luminal.onnx.source import Source
from luminal.onnx.translate import Cut, Translation, live_name
from luminal.onnx.values import Array, Coded, array_of_codes, tensors
from luminal.records import dataclass
from luminal.runtime.executable import Executable
from luminal.runtime.report import Report
from luminal.session import Graph, compile

if TYPE_CHECKING:
    from luminal.onnx.model import Declared

MAX_PIECES = 512  # the oldest go first
MAX_PROGRAMS = 64  # the least recently used go first

Answer = tuple[str, tuple[int, ...], bytes]


@dataclass(frozen=True, slots=True)
class Piece:
    """A program and its inputs' names in the run; `outputs` of the last one, or what is asked."""

    executable: Executable | None  # None: nothing is to be computed
    inputs: tuple[tuple[str, str], ...]  # (the program's name, the run's)
    given: Mapping[str, Array]  # inputs that answers gave
    live: tuple[str, ...]  # names for all results but the first, which is the answer
    outputs: tuple[Any, ...] | None  # the model's, with numbers of results in the place of Tensors


@dataclass(frozen=True, slots=True)
class Place:
    """The number of a result; `number` is that of a narrow dtype whose codes it holds."""

    result: int
    number: int | None


class Program(NamedTuple):
    """A model that is one program."""

    executable: Executable
    inputs: tuple[tuple[str, str], ...]  # (the program's name, the model's)
    results: tuple[str, ...]  # the names of its outputs, in the model's order


class Form:
    """A model for inputs of one kind."""

    def __init__(self, source: Source, declared: Declared, options: Mapping[str, Any]) -> None:
        self._source = source
        self._declared = declared
        self._options = options
        self._pieces: OrderedDict[tuple[Answer, ...], Piece] = OrderedDict()
        self._programs: OrderedDict[Hashable, tuple[Executable, tuple[str, ...]]] = OrderedDict()

    def prepare(self) -> None:
        """Compiles the first piece."""
        self._piece((), [])

    @property
    def program(self) -> Program | None:
        """The one program that gives all outputs as they are; None where there is more to do."""
        piece = self._pieces.get(())
        if piece is None or piece.executable is None or piece.outputs is None:
            return None
        if not all(isinstance(each, Place) and each.number is None for each in piece.outputs):
            return None
        results = tuple(str(each.result) for each in piece.outputs)
        return Program(piece.executable, piece.inputs, results)

    @property
    def executables(self) -> list[Executable]:
        """The programs that were compiled till now."""
        return [executable for executable, _ in self._programs.values()]

    def run(self, inputs: Mapping[str, Array], reports: list[Report] | None = None) -> list[Any]:
        """The model's outputs. With `reports`, every piece is profiled, and its report added."""
        values = dict(inputs)
        keys: tuple[Answer, ...] = ()
        answers: list[Array] = []
        while True:
            piece = self._piece(keys, answers)
            results: list[Array] = []
            if piece.executable is not None:
                values.update(piece.given)
                arrays: dict[Any, Array] = {name: values[given] for name, given in piece.inputs}
                if reports is not None:
                    reports.append(piece.executable.profile(arrays))
                found = piece.executable(arrays)
                results = list(found.values())
            if piece.outputs is not None:
                return [_filled(each, results) for each in piece.outputs]
            answer = results[0]
            answers.append(answer)
            keys = (*keys, (answer.dtype.str, answer.shape, answer.tobytes()))
            values.update(zip(piece.live, results[1:], strict=True))

    def _piece(self, keys: tuple[Answer, ...], answers: Sequence[Array]) -> Piece:
        piece = self._pieces.get(keys)
        if piece is None:
            piece = self._made(answers)
            if len(self._pieces) >= MAX_PIECES:
                self._pieces.popitem(last=False)
            self._pieces[keys] = piece
        return piece

    def _made(self, answers: Sequence[Array]) -> Piece:
        graph = Graph(self._source.name)
        translation = Translation(self._source, graph, answers)
        try:
            outputs = translation.run(self._declared.record(graph))
        except Cut as cut:
            live = tuple(live_name(len(answers), k) for k in range(len(cut.live)))
            return self._compiled(translation, [cut.asked, *cut.live], live, None)
        roots = [x for each in outputs for x in tensors(each)]
        numbers = iter(range(len(roots)))
        places = tuple(_places(each, numbers) for each in outputs)
        return self._compiled(translation, roots, (), places)

    def _compiled(
        self,
        translation: Translation,
        roots: Sequence[Tensor],
        live: tuple[str, ...],
        outputs: tuple[Any, ...] | None,
    ) -> Piece:
        if not roots:
            return Piece(None, (), {}, live, outputs)
        graph = translation.graph
        found, inputs = structure([root.value for root in roots])
        key = (found, tuple(graph.requirements))
        if key not in self._programs:
            if len(self._programs) >= MAX_PROGRAMS:
                self._programs.popitem(last=False)
            for number, root in enumerate(roots):
                graph.output(root, str(number))
            names = tuple(node.attrs.name for node in inputs)
            self._programs[key] = compile(graph, **self._options), names
        self._programs.move_to_end(key)
        executable, names = self._programs[key]
        given = (node.attrs.name for node in inputs)
        pairs = tuple(zip(names, given, strict=True))
        return Piece(executable, pairs, translation.given, live, outputs)


def _places(value: Any, numbers: Any) -> Any:
    if isinstance(value, Coded):
        return Place(next(numbers), value.number)
    if isinstance(value, Tensor):
        return Place(next(numbers), None)
    if isinstance(value, list):
        return [_places(each, numbers) for each in value]
    return value


def _filled(value: Any, results: Sequence[Array]) -> Any:
    if isinstance(value, Place):
        array = results[value.result]
        return array if value.number is None else array_of_codes(array, value.number)
    if isinstance(value, list):
        return [_filled(each, results) for each in value]
    return value
