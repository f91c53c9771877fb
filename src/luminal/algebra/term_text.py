"""The algebra as text: axes, then one line per term, operands first, then what is asked for.

    algebra {
      dim s in 1..512
      axis a0 < s
      %0 = Input x [a0, a1] : f32
      %1 = Sum{a1} %0 : f32
      %2 = At %1 {a0: s - a0 - 1} : f32
      %3 = Sort#0.1 axis=0 (%2 [a0]) -> [a0] : i64
      output y = %3 [a0]
    }

Terms are numbered by first use from the roots. The results of one opaque operation share the number
after `#`; a Loop's first result is followed by its body, which has axes and numbers of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.scans import BlockedScan
from luminal.algebra.sorts import MergedRuns, SortedBlocks
from luminal.algebra.terms import (
    At,
    Frame,
    Index,
    Literal,
    OpaqueAttrs,
    Term,
    axis_order,
    term_order,
)
from luminal.hlir.attributes import (
    AxisAttrs,
    CollectiveAttrs,
    CustomAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
)
from luminal.hlir.graph import Assign, Output
from luminal.hlir.ops import Value
from luminal.hlir.printer import quote
from luminal.memory.state import Assignable
from luminal.shape.expression import Expression, Symbol
from luminal.shape.text import quoted

INDENT = "  "


def to_text(lowered: Lowered) -> str:
    """The lowered graph as text, one line a term."""
    lines = Printer(lowered.roots, lowered.arguments).lines(INDENT)
    return "\n".join(["algebra {", *lines, "}"]) + "\n"


def frame_text(frame: Frame) -> str:
    """`[a0, a1*a2, 1]`: the axes of each dimension."""
    return f"[{', '.join('*'.join(quoted(a.name) for a in d) or '1' for d in frame)}]"


class Printer:
    """Texts of the terms below some roots. `arguments`: the leaves of a Loop body, in order."""

    def __init__(self, roots: Sequence[Root], arguments: Sequence[Value] = ()) -> None:
        self.roots = roots
        self.order = term_order(root.term for root in roots)
        self.numbers = {term: number for number, term in enumerate(self.order)}
        self.arguments = {value: k for k, value in enumerate(arguments)}
        self.states = _state_names(roots, self.order)

    def lines(self, indent: str) -> list[str]:
        """The lines of the whole text: axes, terms, roots."""
        lines = [f"{indent}dim {quoted(d.name)} in {d.lo}..{d.hi}" for d in self.dims()]
        lines += [f"{indent}axis {quoted(a.name)} < {a.extent}" for a in self.axes()]
        shown: set[int] = set()
        for term in self.order:
            line = f"{indent}{self.number(term)} = {self.content(term)}{self.note(term)}"
            if term.op == "Loop" and term.attrs.site not in shown:
                shown.add(term.attrs.site)
                lines += [line + " {", *self.body(term, indent + INDENT), indent + "}"]
            else:
                lines.append(line)
        return lines + [indent + self.root(root) for root in self.roots]

    def note(self, term: Term) -> str:
        """What stands after a term: nothing here, its residence in a Selection."""
        return ""

    def body(self, loop: Term, indent: str) -> list[str]:
        """The lines of a Loop's body."""
        body: Lowered = loop.attrs.body
        return Printer(body.roots, body.arguments).lines(indent)

    # --- parts of lines

    def number(self, term: Term) -> str:
        """The term's name here."""
        return f"%{self.numbers[term]}"

    def root(self, root: Root) -> str:
        """`output y = %3 [a0, a1]`."""
        return f"{self.sink(root)} = {self.number(root.term)} {frame_text(root.frame)}"

    def sink(self, root: Root) -> str:
        """What a root is: `output y`, `assign k_cache`, `result` of a Loop body."""
        match root.sink:
            case Output(_, name, hidden):
                return f"{'hidden' if hidden else 'output'} {quote(name)}"
            case Assign(state):
                return f"assign {quote(self.states[state])}"
            case _:
                return "result"

    def content(self, term: Term) -> str:
        """The term without its number: `Sum{a1} %2 : f32`."""
        return f"{self._words(term)} : {term.dtype}"

    def _words(self, term: Term) -> str:
        args = ", ".join(map(self.number, term.args))
        if term.is_leaf:
            return f"{self._leaf(term.attrs.value)} {frame_text(term.attrs.frame)}"
        if isinstance(term, Literal):
            data: bytes = term.attrs.data
            return f"Literal {term.attrs.value(term.dtype)} (0x{data[::-1].hex()})"
        if isinstance(term, Index):
            return f"Index ({term.attrs})"
        if term.is_reduction:
            return f"{term.op}{{{', '.join(quoted(a.name) for a in term.attrs)}}} {args}"
        if isinstance(term, At):
            return f"At {self.number(term.args[0])} {{{', '.join(self._positions(term))}}}"
        if term.is_opaque:
            return self._opaque(term)
        return f"{term.op} {args}"

    def _leaf(self, value: Value) -> str:
        if value in self.arguments:
            return f"Argument {self.arguments[value]}"
        attrs, op = value.node.attrs, value.node.op.name
        if op == "State":
            return f"State {quote(self.states[attrs.state])}"
        if op == "Constant":
            digest = hashlib.blake2b(attrs.data, digest_size=8).hexdigest()
            return f"Constant {digest}"
        return f"{op} {quote(attrs.name)}"

    def _positions(self, at: Term) -> Iterable[str]:
        for axis, position in at.attrs:
            index = self.number(at.args[1 + position]) if isinstance(position, int) else position
            yield f"{quoted(axis.name)}: {index}"

    def _opaque(self, term: Term) -> str:
        attrs: OpaqueAttrs = term.attrs
        several = term.op in ("Sort", "Loop", "Custom")
        name = f"{term.op}#{attrs.site}" + (f".{attrs.index}" if several else "")
        args = ", ".join(
            f"{self.number(arg)} {frame_text(frame)}"
            for arg, frame in zip(term.args, attrs.frames, strict=True)
        )
        words = " ".join(word for word in (name, _attributes(attrs.hlir)) if word)
        return f"{words} ({args}) -> {frame_text(attrs.result)}"

    # --- heads

    def axes(self) -> tuple[Symbol, ...]:
        """Every axis that the terms and roots mention."""
        mentioned = {a for root in self.roots for d in root.frame for a in d}
        for term in self.order:
            mentioned |= term.axes
            if term.is_reduction:
                mentioned.update(term.attrs)
            elif term.is_opaque:
                mentioned.update(a for frame in term.attrs.frames for d in frame for a in d)
        return axis_order(mentioned)

    def dims(self) -> tuple[Symbol, ...]:
        """Every dim that the terms and axes mention."""
        used = [axis.extent for axis in self.axes() if axis.extent is not None]
        for term in self.order:
            if isinstance(term, Index):
                used.append(term.attrs)
            elif isinstance(term, At):
                used += [p for _, p in term.attrs if isinstance(p, Expression)]
        return axis_order(
            {s for expression in used for s in expression.symbols() if s.extent is None}
        )


def _attributes(hlir: object) -> str:
    """What an opaque operation is told beside its operands; `@k` is integer operand k of a map."""
    match hlir:
        case ScanAttrs(kind=kind, axis=axis):
            return f"{kind} axis={axis}"
        case BlockedScan(kind=kind, axis=axis, size=size):
            return f"{kind} axis={axis} blocks={size}"
        case SortedBlocks(axis=axis, size=size, order=order):
            return f"axis={axis} blocks={size} {order}"
        case MergedRuns(axis=axis, size=size, order=order):
            return f"axis={axis} runs={size} {order}"
        case AxisAttrs(axis=axis):
            return f"axis={axis}"
        case ScatterAttrs(map=entries, mode=mode):
            texts = (f"@{entry}" if isinstance(entry, int) else str(entry) for entry in entries)
            return f"{mode} [{', '.join(texts)}]"
        case LoopAttrs(trips=trips, carried=carried):
            return f"trips=({trips}) carried={carried}"
        case CustomAttrs(kernel=kernel):
            return quote(kernel.name)
        case CollectiveAttrs(kind=kind, axis=axis, ranks=ranks, reduction=reduction, pairs=pairs):
            rest = [reduction] * bool(reduction) + [json.dumps(pairs)] * bool(pairs)
            return " ".join((f"{kind} over={quote(axis)} ranks={ranks}", *rest))
        case None:
            return ""
        case _:
            raise AssertionError(hlir)


def _state_names(roots: Iterable[Root], terms: Iterable[Term]) -> dict[Assignable, str]:
    """Different names for the States; of several with one name, the later ones get a number."""
    # States are told apart by identity, texts by names: two of one name would read back as one
    # State.
    states = {root.sink.state for root in roots if isinstance(root.sink, Assign)}
    for term in terms:
        if term.is_leaf and term.attrs.value.node.op.name == "State":
            states.add(term.attrs.value.node.attrs.state)
    names: dict[Assignable, str] = {}
    for state in sorted(states, key=lambda state: state.id):
        name, count = state.name, 0
        while name in names.values():
            count += 1
            name = f"{state.name}.{count}"
        names[state] = name
    return names
