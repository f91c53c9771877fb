"""The IRs of a compile as columns: terms of the algebra and of the Selection, launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from luminal.algebra.lower import Lowered
from luminal.algebra.term_text import Printer
from luminal.algebra.terms import Term
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Role
from luminal.program import launch_text
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program
from luminal.program.selection import Selection
from luminal.program.selection_text import SelectionPrinter
from luminal.viz.launches import Computed
from luminal.viz.sources import Sources
from luminal.viz.terms import TermValues
from luminal.viz.values import Ids

LONGEST = 400  # characters of a node's text


@dataclass(slots=True)
class _Columns:
    """One stage in the making; `loops` has the number of the node around each, -1 for none."""

    ops: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)
    of: list[Ids] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)
    recorded: list[Recorded | None] = field(default_factory=list)

    def add(
        self, op: str, text: str, inputs: Iterable[int], of: Ids, loop: int,
        recorded: Recorded | None,
    ) -> int:  # fmt: skip
        """The number of a new node."""
        self.ops.append(op)
        self.texts.append(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
        self.inputs.append([*dict.fromkeys(inputs)])
        self.of.append(of)
        self.loops.append(loop)
        self.recorded.append(recorded)
        return len(self.ops) - 1

    def facts(self, name: str, sources: Sources, **more: Any) -> dict[str, Any]:
        """The stage as the document has it."""
        names = {op: number for number, op in enumerate(dict.fromkeys(self.ops))}
        return {
            "name": name,
            "ops": [*names],
            "op": [names[op] for op in self.ops],
            "text": self.texts,
            "inputs": self.inputs,
            "of": self.of,
            "loop": self.loops,
            **sources.columns(self.recorded),
            **more,
        }


def stages(
    lowered: Lowered, of_lowered: TermValues, computed: Computed, of_chosen: TermValues,
    sources: Sources,
) -> list[dict[str, Any]]:  # fmt: skip
    """The stages after HLIR, in processing order."""
    selection, program = computed.compiled.selection, computed.compiled.program
    algebra = _terms(Printer(lowered.roots), of_lowered, _body_printer)
    chosen = _terms(SelectionPrinter(selection, ()), of_chosen, _selected_body)
    return [
        algebra.facts("algebra", sources),
        chosen.facts("selection", sources),
        _launches(program, computed).facts("program", sources, **_numbers(program)),
    ]


def _terms(
    printer: Printer, values: TermValues, body: Callable[[Printer, Term], Printer]
) -> _Columns:
    """The terms that a printer prints, those of Loops' bodies behind them."""
    columns = _Columns()
    waiting: list[tuple[Printer, int]] = [(printer, -1)]
    entered = set[int]()
    while waiting:
        block, loop = waiting.pop(0)
        order = block.order
        numbers: dict[Term, int] = {}
        for term, of in zip(order, values.of_all(order), strict=True):
            text = f"{block.number(term)} = {block.content(term)}{block.note(term)}"
            inputs = (numbers[arg] for arg in term.args)
            numbers[term] = columns.add(term.op, text, inputs, of, loop, term.recorded)
            if term.op == "Loop" and id(term.attrs.body) not in entered:
                entered.add(id(term.attrs.body))
                waiting.append((body(block, term), numbers[term]))
    return columns


def _body_printer(_: Printer, loop: Term) -> Printer:
    return Printer(loop.attrs.body.roots, loop.attrs.body.arguments)


def _selected_body(printer: Printer, loop: Term) -> Printer:
    assert isinstance(printer, SelectionPrinter)
    body = loop.attrs.body
    selection: Selection = printer.selection.bodies[id(body)]
    return SelectionPrinter(selection, body.arguments)


def _numbers(program: Program) -> dict[str, list[int]]:
    """The kernel and the launch site of each node of the stage; -1 for a Loop."""
    kernels: list[int] = []
    sites: list[int] = []
    waiting = [*program.launches]
    while waiting:
        launch = waiting.pop(0)
        is_loop = isinstance(launch, LoopLaunch)
        kernels.append(launch.kernel if isinstance(launch, KernelLaunch) else -1)
        sites.append(-1 if is_loop else len(sites) - sites.count(-1))
        waiting = [*launch.body, *waiting] if isinstance(launch, LoopLaunch) else waiting
    return {"kernel": kernels, "launch": sites}


def _launches(program: Program, computed: Computed) -> _Columns:
    """The launches of a run; what one reads of another is its operand."""
    columns = _Columns()
    writers: dict[int, int] = {}
    _add_launches(program, program.launches, computed, columns, writers, -1)
    return columns


def _add_launches(
    program: Program, launches: Sequence[Launch], computed: Computed, columns: _Columns,
    writers: dict[int, int], loop: int,
) -> None:  # fmt: skip
    for launch in launches:
        touched = [*program.accesses(launch)]
        inputs = [writers[b] for b, role in touched if role is not Role.OUT and b in writers]
        if isinstance(launch, LoopLaunch):
            number = columns.add("Loop", f"loop {launch.trips}", inputs, (), loop, None)
            _add_launches(program, launch.body, computed, columns, writers, number)
            inner = [of for of, at in zip(columns.of, columns.loops, strict=True) if at == number]
            columns.of[number] = tuple(sorted({n for of in inner for n in of}))
            continue
        op = f"k{launch.kernel}" if isinstance(launch, KernelLaunch) else launch.attrs.kind
        recorded = next(iter(launch.origins), None) if isinstance(launch, KernelLaunch) else None
        text = launch_text.line(program, launch)
        number = columns.add(op, text, inputs, computed.of(launch), loop, recorded)
        writers |= {b: number for b, role in touched if role is not Role.IN}
