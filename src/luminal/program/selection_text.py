"""Selections as text, and back: the algebra's text with a residence after every term.

    %3 = Sum{a1} %2 : f32 @ stored [a0, a2] row
    %4 = Max{a2} %3 : f32 @ local
    ...
    output y = %10 [a0, a2]
    merge %3 %10
    read %10.0 = 1
    cascade %4, %6 Exp(-1.0 * %4), %8 Exp(-1.0 * %4) over %2
    dot %3 bf16x2
    call %9 blas

A stored term shows the order of its axes and its layouts, canonical first; so does a leaf that is
copied into others. `merge` joins stored terms in one kernel; `read %10.0 = 1` says that operand 0
of %10 is read in its layout number 1. `cascade` runs reductions in one pass, in which a move of %4
by d multiplies %6 and %8 by exp(-1.0*d), with contractions done anew in each step; what stands
behind a `then` is in the next sweep over the steps. After `roughly` a dot's factors that a step
computes may be rounded to its dtype. `dot` names the instruction that computes a
contraction, `call` the library that a stored term's kernel calls.

A text is read against the lowered graph it belongs to (HLIR's text gives that back). It is that
graph which knows what a text only names: the values behind leaves, opaque operations with the
bodies of Loops (but for Scans and Sorts in blocks), and the sinks. All else is in the text: another
spelling of the graph can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.scans import BlockedScan
from luminal.algebra.sorts import MergedRuns, SortedBlocks
from luminal.algebra.term_text import INDENT, Printer, frame_text
from luminal.algebra.terms import Frame, OpaqueAttrs, Reduction, Term
from luminal.base.dots import DOTS, Dot
from luminal.base.dtypes import DType, dtype_of
from luminal.base.errors import GraphError, LuminalError
from luminal.hlir.cursor import Line
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import OPS, Value
from luminal.hlir.printer import WORD
from luminal.kernel.cascade import Cascade, Member, Rate
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.program.selection import Choice, Residence, Selection
from luminal.shape.expression import Expression, Symbol, axis, symbol
from luminal.shape.parse import parse as parse_expression

ROUGH = "roughly "
_NUMBER = re.compile(r"%\d+")
_RATE = re.compile(r"(\w+)\((.+) \* (%\d+)\)")
_RESIDENCE = re.compile(r"[a-z+]+")


def to_text(selection: Selection) -> str:
    """The whole selection as text that `parse` reads back."""
    lines = SelectionPrinter(selection, ()).lines(INDENT)
    return "\n".join(["selection {", *lines, "}"]) + "\n"


class SelectionPrinter(Printer):
    """Texts of a Selection's terms; `arguments` as a Printer's."""

    def __init__(self, selection: Selection, arguments: Iterable[Value]) -> None:
        super().__init__(selection.roots, tuple(arguments))
        self.selection = selection

    def lines(self, indent: str) -> list[str]:
        number = self.numbers.__getitem__
        merges = [sorted(map(number, merge)) for merge in self.selection.merges]
        reads = sorted((number(user), k, n) for (user, k), n in self.selection.reads.items())
        dots = ((number(term), dot.name) for term, dot in self.selection.dots.items())
        calls = ((number(term), library) for term, library in self.selection.calls.items())
        return [
            *super().lines(indent),
            *(f"{indent}merge {' '.join(f'%{n}' for n in merge)}" for merge in merges),
            *(f"{indent}read %{user}.{k} = {layout}" for user, k, layout in reads),
            *(f"{indent}cascade {self.cascade(cascade)}" for cascade in self.selection.cascades),
            *(f"{indent}dot %{n} {dot}" for n, dot in sorted(dots)),
            *(f"{indent}call %{n} {library}" for n, library in sorted(calls)),
        ]

    def cascade(self, cascade: Cascade) -> str:
        """`%4, %6 Exp(-1.0 * %4) over %2`."""
        sweeps = [[m for m in cascade.members if m.sweep == n] for n in range(cascade.sweeps)]
        members = " then ".join(", ".join(map(self.member, sweep)) for sweep in sweeps)
        over = [" over " + ", ".join(map(self.number, cascade.inner))] if cascade.inner else []
        return "".join((ROUGH if cascade.is_rough else "", members, *over))

    def member(self, member: Member) -> str:
        rate = member.rate
        if rate is None:
            return self.number(member.term)
        factor = f"{rate.factor!r} * {self.number(rate.maximum)}"
        return f"{self.number(member.term)} {rate.base}({factor})"

    def note(self, term: Term) -> str:
        """The residence of the term, and the frame and layouts in which it is stored."""
        choice = self.selection.choices[term]
        words = [" @", choice.residence.value]
        if choice.residence.is_stored:
            words.append(frame_text(self.selection.frames[term]))
        if choice.residence.is_stored or choice.layouts != (ROW_MAJOR,):
            words.append(" | ".join(map(str, choice.layouts)))
        return " ".join(words)

    def body(self, loop: Term, indent: str) -> list[str]:
        """The lines of a Loop's body."""
        body: Lowered = loop.attrs.body
        return SelectionPrinter(self.selection.bodies[id(body)], body.arguments).lines(indent)


# --- reading


def parse(text: str, lowered: Lowered) -> Selection:
    """The selection of a text that `to_text` printed, over `lowered`.

    Raises GraphError that names the line where the text does not fit the graph.
    """
    numbered = enumerate(text.splitlines(), 1)
    lines = iter([Line(n, line.strip()) for n, line in numbered if line.strip()])
    next(lines).expect("selection {")
    return _Reader(lines, lowered).selection()


class _Reader:
    """Reads one block: the graph's, or the body's of a Loop."""

    def __init__(self, lines: Iterator[Line], lowered: Lowered) -> None:
        self.lines = lines
        self.lowered = lowered
        self.symbols: dict[str, Symbol] = {}
        self.numbers: dict[int, Term] = {}
        self.choices: dict[Term, Choice] = {}
        self.frames: dict[Term, Frame] = {}
        self.roots: list[Root] = []
        self.merges: list[frozenset[Term]] = []
        self.reads: dict[tuple[Term, int], int] = {}
        self.bodies: dict[int, Selection] = {}
        self.cascades: list[Cascade] = []
        self.dots: dict[Term, Dot] = {}
        self.calls: dict[Term, str] = {}
        printer = Printer(lowered.roots, lowered.arguments)
        self.sinks = [(printer.sink(root), root.sink) for root in lowered.roots]
        self.named = {  # what the text only names: leaves and opaque operations
            _NUMBER.sub("%", printer.content(term)): term
            for term in printer.order
            if term.is_leaf or term.is_opaque
        }

    def selection(self) -> Selection:
        for line in self.lines:
            if line.accept("}"):
                break
            try:
                self.read(line)
            except GraphError:
                raise
            except (LuminalError, ValueError) as error:
                raise line.error(str(error)) from error
        else:
            raise GraphError("the text ends before the closing '}' of the selection")
        if len(self.roots) != len(self.sinks):
            raise GraphError(f"the graph has {len(self.sinks)} sinks, the text {len(self.roots)}")
        return Selection(
            tuple(self.roots),
            self.choices,
            self.frames,
            tuple(self.merges),
            self.reads,
            self.bodies,
            tuple(self.cascades),
            self.dots,
            self.calls,
        )

    def read(self, line: Line) -> None:
        if line.accept("dim "):
            name = line.until(" ").strip("`")
            line.expect("in")
            lo = line.integer()
            line.expect("..")
            self.symbols[name] = symbol(name, lo, line.integer())
        elif line.accept("axis "):
            name = line.until(" ").strip("`")
            line.expect("<")
            self.symbols[name] = axis(name, self.expression(line.rest()))
        elif line.accept("merge "):
            self.merges.append(frozenset(map(self.term, line.rest().split())))
        elif line.accept("read "):
            user = self.term(line.match(_NUMBER))
            line.expect(".")
            argument = line.integer()
            line.expect("=")
            self.reads[user, argument] = line.integer()
        elif line.accept("cascade "):
            self.cascades.append(self.cascade(line))
        elif line.accept("dot "):
            term, name = self.term(line.match(_NUMBER)), line.rest()
            if name not in DOTS:
                raise ValueError(f"no dot {name}: there are {', '.join(DOTS)}")
            self.dots[term] = DOTS[name]
        elif line.accept("call "):
            term = self.term(line.match(_NUMBER))
            self.calls[term] = line.rest()
        elif line.text.startswith("%"):
            self.read_term(line)
        else:
            self.read_root(line)

    def read_root(self, line: Line) -> None:
        wanted, sink = self.sinks[min(len(self.roots), len(self.sinks) - 1)]
        line.expect(wanted)
        line.expect("=")
        self.roots.append(Root(sink, self.term(line.match(_NUMBER)), self.frame(line)))

    def cascade(self, line: Line) -> Cascade:
        whole = line.rest()
        text, _, over = whole.removeprefix(ROUGH).partition(" over ")
        sweeps = enumerate(text.split(" then "))
        members = tuple(
            self.member(member, n) for n, sweep in sweeps for member in sweep.split(", ")
        )
        inner = tuple(map(self.reduction, over.split(", "))) if over else ()
        return Cascade(members, inner, whole.startswith(ROUGH))

    def member(self, text: str, sweep: int) -> Member:
        """`%6 Exp(-1.0 * %4)`, or `%4` alone."""
        number, _, rate = text.partition(" ")
        if not rate:
            return Member(self.reduction(number), sweep)
        matched = _RATE.fullmatch(rate)
        if matched is None:
            raise ValueError(f"{rate!r} is no rate of a sum, as Exp(-1.0 * %4) is")
        moved = Rate(self.reduction(matched[3]), matched[1], float(matched[2]))
        return Member(self.reduction(number), sweep, moved)

    # --- terms

    def read_term(self, line: Line) -> None:
        number = int(line.match(_NUMBER)[1:])
        line.expect("=")
        content = line.until("@")
        line.expect("@")
        term = self.make(content, line)
        self.numbers[number] = term
        residence = Residence(line.match(_RESIDENCE))
        if residence.is_stored:
            self.frames[term] = self.frame(line)
        text = line.rest().removesuffix("{")
        self.choices[term] = Choice(residence, tuple(map(Layout.parse, text.split("|"))))
        if line.text.endswith("{"):
            body = term.attrs.body
            self.bodies[id(body)] = _Reader(self.lines, body).selection()

    def make(self, content: str, line: Line) -> Term:
        """The term of a content as `Printer.content` gives it."""
        # What a text cannot say (arrays behind leaves, bodies of Loops) is found by its spelling in
        # the graph it was printed from; everything else is built anew, so that a spelling which
        # `lower` never made, one from the e-graph, can be read too.
        terms = self.lowered.terms
        named = self.named.get(_NUMBER.sub("%", content))
        if named is not None and named.is_leaf:
            return named
        text, _, dtype_text = content.rpartition(" : ")
        words, dtype = Line(line.number, text), dtype_of(dtype_text)
        if named is not None:
            words.at = text.rindex(" (")
            args = [self.term(item.partition(" ")[0]) for item in words.items("()")]
            return terms.opaque(named.op, args, named.attrs, dtype)
        op = words.match(WORD)
        if op in ("Scan", "Sort"):
            return self.in_blocks(op, words, dtype)
        if op == "Literal":
            data = bytes.fromhex(text.rpartition("0x")[2].removesuffix(")"))
            return terms.literal(data[::-1], dtype)
        if op == "Index":
            return terms.index(self.expression(words.rest()), dtype)
        if op in REDUCTIONS:
            bound = [self.axis(name) for name in words.items("{}")]
            return terms.reduce(op, bound, self.term(words.rest()), merge=False)
        if op == "At":
            x = self.term(words.match(_NUMBER))
            return terms.at(x, dict(map(self.position, words.items("{}"))))
        if op not in OPS or not OPS[op].is_pointwise:
            raise line.error(f"the graph has no {text!r}")
        return terms.pointwise(op, [self.term(word) for word in words.rest().split(", ")], dtype)

    def in_blocks(self, op: str, words: Line, dtype: DType) -> Term:
        """The term of a Scan or a Sort in blocks, which no graph knows: `#5 add axis=0 blocks=64
        (%1 [a0]) -> [a1]`, `#7.1 axis=0 runs=1024 i32 (%2 [a0], %3 [a0]) -> [a0]`.
        """
        words.expect("#")
        site, index = words.integer(), words.integer() if words.accept(".") else 0
        hlir = self.blocked_scan(words) if op == "Scan" else self.blocked_sort(words)
        operands = [Line(words.number, item) for item in words.items("()")]
        args = [self.term(operand.match(_NUMBER)) for operand in operands]
        frames = tuple(map(self.frame, operands))
        words.expect("->")
        attrs = OpaqueAttrs(hlir, frames, self.frame(words), index, site)
        return self.lowered.terms.opaque(op, args, attrs, dtype)

    def blocked_scan(self, words: Line) -> BlockedScan:
        kind = words.match(WORD)
        words.expect("axis=")
        along = words.integer()
        words.expect("blocks=")
        return BlockedScan(kind, along, words.integer())

    def blocked_sort(self, words: Line) -> SortedBlocks | MergedRuns:
        words.expect("axis=")
        along = words.integer()
        record = SortedBlocks if words.accept("blocks=") else MergedRuns
        if record is MergedRuns:
            words.expect("runs=")
        return record(along, words.integer(), dtype_of(words.match(WORD)))

    def position(self, text: str) -> tuple[Symbol, Expression | Term]:
        """`a0: a1 + 1` or `a0: %3`."""
        name, _, index = text.rpartition(": ")
        is_term = _NUMBER.fullmatch(index)
        return self.axis(name), self.term(index) if is_term else self.expression(index)

    def term(self, text: str) -> Term:
        number = int(text.removeprefix("%"))
        if number not in self.numbers:
            raise ValueError(f"%{number} is used before its line")
        return self.numbers[number]

    def reduction(self, text: str) -> Reduction:
        term = self.term(text)
        if not isinstance(term, Reduction):
            raise ValueError(f"{text} is a {term.op}, no reduction")
        return term

    def expression(self, text: str) -> Expression:
        return parse_expression(text, self.symbols)

    def axis(self, name: str) -> Symbol:
        if name.strip("`") not in self.symbols:
            raise ValueError(f"no line declares the axis {name}")
        return self.symbols[name.strip("`")]

    def frame(self, line: Line) -> Frame:
        """The frame of a text such as `[a0, a1*a2, 1]`."""
        return tuple(
            () if item == "1" else tuple(map(self.axis, item.split("*"))) for item in line.items()
        )
