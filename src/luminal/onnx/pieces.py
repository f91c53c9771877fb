"""One compiled form of a model: a program, or several where sizes depend on data.

Each question of the translation that only a run can answer ends a piece. Pieces are found by the
answers before them, so that a run that meets known answers compiles nothing; what computes the same
(the iterations of a Loop) is one program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.hlir.index_inputs import IndexInput, OutOfRangeError
from luminal.hlir.structure import structure
from luminal.onnx import checks
from luminal.onnx.budget import check_work
from luminal.onnx.source import Source
from luminal.onnx.translate import Cut, Translation, live_name
from luminal.onnx.values import Array, Coded, array_of_codes, flattened, tensors
from luminal.runtime.executable import Executable
from luminal.runtime.report import Report
from luminal.runtime.results import Results
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from luminal.onnx.model import Declared

MAX_PIECES = 512  # the oldest go first
MAX_PROGRAMS = 64  # the least recently used go first

Answer = tuple[str, tuple[int, ...], bytes]


# Translation starts anew with each answer that a run gives. An interpreter whose frames are
# suspended would not repeat Python's work, but could not find pieces again: programs are shared by
# structure, so the iterations of a loop compile once.
@dataclass(frozen=True, slots=True)
class Piece:
    """A program and its inputs' names in the run; `outputs` of the last one, or what is asked."""

    executable: Executable | None  # None: nothing is to be computed
    inputs: tuple[tuple[str, str], ...]  # (the program's name, the run's)
    given: Mapping[str, Array]  # inputs that answers gave
    live: tuple[str, ...]  # names for all results but the first, which is the answer
    outputs: tuple[Any, ...] | None  # the model's, with numbers of results in the place of Tensors
    own: Sequence[checks.Check] = ()  # what the program looks at: its last result is the verdict
    others: Sequence[checks.Given] = ()  # what its executable looks at

    def run(self, arrays: dict[Any, Array]) -> Results:
        """The results of the program. Raises OnnxError, InputError for elements out of range."""
        assert self.executable is not None
        try:
            results = self.executable(arrays)
        except OutOfRangeError as error:
            raise InputError(f"{self._indexing(error.use)}{error}") from None
        if self.own:
            checks.refuse(self.own, results.at(-1))
        return results

    def _indexing(self, use: IndexInput | None) -> str:
        """The node that indexes an extent by an Input, as an error text begins."""
        names = {label: name for name, label in self.inputs}
        for node, other in self.others:
            if use and names.get(other.name) == use.name and other.extent == use.extent:
                return f"{node}: "
        return ""


@dataclass(frozen=True, slots=True)
class ResultNumber:
    """The number of a result; `number` is that of a narrow dtype whose codes it holds."""

    result: int
    number: int | None


class Program(NamedTuple):
    """A model that is one program."""

    piece: Piece
    inputs: tuple[tuple[str, str], ...]  # (the program's name, the model's)
    results: tuple[int, ...]  # the numbers of its outputs, in the model's order


class _Run:
    """The values of a run, and its answers so far; `runs`: or is it only to be compiled?"""

    def __init__(
        self, values: dict[str, Array], reports: list[Report] | None, *, runs: bool = True
    ) -> None:
        self.runs = runs
        self.answers: list[Array] = []
        self.keys: tuple[Answer, ...] = ()
        self._values = values
        self._reports = reports

    def of(self, piece: Piece) -> list[Array]:
        """What a piece gives; unless it is the last one, an answer is first."""
        results: list[Array] = []
        if piece.executable is not None:
            self._values.update(piece.given)
            arrays: dict[Any, Array] = {name: self._values[label] for name, label in piece.inputs}
            if self._reports is not None:
                self._reports.append(piece.executable.profile(arrays))
            results = list(piece.run(arrays).values())
            if piece.own:
                del results[-1]
        # No outputs: the piece ends with a question, whose answer names the next piece.
        if piece.outputs is None:
            answer = results[0]
            self.answers.append(answer)
            # By content, since a later piece may depend on any element of an answer.
            self.keys = (*self.keys, (answer.dtype.str, answer.shape, answer.tobytes()))
            self._values.update(zip(piece.live, results[1:], strict=True))
        return results


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
        with suppress(Cut):
            self._translated(_Run({}, None, runs=False))

    @property
    def program(self) -> Program | None:
        """The one program that gives all outputs as they are; None where there is more to do."""
        piece = self._pieces.get(())
        if piece is None or piece.executable is None or piece.outputs is None:
            return None
        if not all(
            isinstance(output, ResultNumber) and output.number is None for output in piece.outputs
        ):
            return None
        results = tuple(output.result for output in piece.outputs)
        return Program(piece, piece.inputs, results)

    def executables(self) -> list[Executable]:
        """The programs of its pieces so far, each once."""
        pieces = self._pieces.values()
        return [*dict.fromkeys(p.executable for p in pieces if p.executable is not None)]

    def run(self, inputs: Mapping[str, Array], reports: list[Report] | None = None) -> list[Any]:
        """The model's outputs. With `reports`, every piece is profiled, and its report added."""
        run = _Run(dict(inputs), reports)
        while (piece := self._pieces.get(run.keys)) is not None:
            results = run.of(piece)
            if piece.outputs is not None:
                return [_filled(output, results) for output in piece.outputs]
        return self._translated(run)

    def _translated(self, run: _Run) -> list[Any]:
        """The outputs of a run whose next piece is not known: it goes on piece by piece.

        Raises Cut after the first piece that is not to be run.
        """
        graph = Graph(self._source.name)

        def ask(asked: Tensor, live: Sequence[Tensor]) -> Array:
            names = tuple(live_name(len(run.keys), k) for k in range(len(live)))
            piece = self._kept(run, self._compiled(translation, [asked, *live], names, None))
            if not run.runs:
                raise Cut
            return run.of(piece)[0]

        translation = Translation(self._source, graph, run.answers, ask)
        outputs = translation.run(self._declared.record(graph))
        roots = [x for output in outputs for x in tensors(output)]
        numbers = iter(range(len(roots)))
        result_numbers = tuple(_result_numbers(output, numbers) for output in outputs)
        piece = self._kept(run, self._compiled(translation, roots, (), result_numbers))
        if not run.runs:
            raise Cut
        results = run.of(piece)
        return [_filled(place, results) for place in result_numbers]

    def _kept(self, run: _Run, piece: Piece) -> Piece:
        if len(self._pieces) >= MAX_PIECES:
            self._pieces.popitem(last=False)
        self._pieces[run.keys] = piece
        return piece

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
        looked_at, others = checks.split(translation.checks.taken(), [root.value for root in roots])
        named = [(str(number), root) for number, root in enumerate(roots)]
        if looked_at:
            named.append((checks.VERDICT, checks.verdict(looked_at, graph)))
        roots = [root for _, root in named]
        structure_key, inputs = structure([root.value for root in roots])
        key = (structure_key, tuple(graph.requirements))
        if key not in self._programs:
            if len(self._programs) >= MAX_PROGRAMS:
                self._programs.popitem(last=False)
            check_work([root.value for root in roots], self._data())
            for name, root in named:
                graph.output(root, name)
            names = tuple(node.attrs.name for node in inputs)
            self._programs[key] = compile(graph, **self._options), names
            graph.sinks.clear()  # the next piece has others
        self._programs.move_to_end(key)
        executable, names = self._programs[key]
        labels = (node.attrs.name for node in inputs)
        pairs = tuple(zip(names, labels, strict=True))
        return Piece(executable, pairs, dict(translation.given), live, outputs, looked_at, others)

    def _data(self) -> int:
        """Bytes of the model and of its inputs."""
        arrays = (array for pair in self._declared.given.items() for _, array in flattened(*pair))
        return self._source.size + sum(array.nbytes for array in arrays)


def _result_numbers(value: Any, numbers: Any) -> Any:
    if isinstance(value, Coded):
        return ResultNumber(next(numbers), value.number)
    if isinstance(value, Tensor):
        return ResultNumber(next(numbers), None)
    if isinstance(value, list):
        return [_result_numbers(item, numbers) for item in value]
    return value


def _filled(value: Any, results: Sequence[Array]) -> Any:
    if isinstance(value, ResultNumber):
        array = results[value.result]
        return array if value.number is None else array_of_codes(array, value.number)
    if isinstance(value, list):
        return [_filled(item, results) for item in value]
    return value
