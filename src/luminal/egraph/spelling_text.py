"""Spellings of an e-graph as text."""

from __future__ import annotations

from luminal.algebra.term_text import frame_text
from luminal.egraph.classes import Classes, Spelling
from luminal.hlir.ops import Node
from luminal.shape.expression import Expression

DEPTH = 3  # operations of a text, one in the other
LONGEST = 160  # characters of an operand in it


class SpellingTexts:
    """Spellings as text: operations on operands, to some depth, by their first spellings."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def of(self, spelling: Spelling, depth: int = DEPTH) -> str:
        """A spelling with its operands: `Sum{a1}(Mul(x, w))`."""
        if not spelling.args:
            return _head(spelling)
        if depth == 0:
            return "..."
        args = (self._operand(number, depth - 1) for number in spelling.args)
        return f"{_head(spelling)}({', '.join(args)})"

    def _operand(self, number: int, depth: int) -> str:
        text = self.of(self._classes.classes[number].spellings[0], depth)
        return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _head(spelling: Spelling) -> str:
    """An operation with what it is told beside its operands."""
    op, attrs = spelling.op, spelling.attrs
    match op:
        case "Leaf":
            return leaf_name(attrs.value.node)
        case "Literal":
            return str(attrs)
        case "Index":
            return f"({attrs})"
        case "At":
            places = (f"{a.name}: {_position(where)}" for a, where in attrs)
            return f"At{{{', '.join(places)}}}"
        case "Sum" | "Prod" | "Max":
            return f"{op}{{{', '.join(sorted(a.name for a in attrs))}}}"
        case "Cast" | "Bitcast":
            return f"{op} {spelling.dtype}"
    result = getattr(attrs, "result", None)
    return op if result is None else f"{op}{frame_text(result)}"


def leaf_name(node: Node) -> str:
    """What an input, a weight or a State is called; its operation where it has no name."""
    leaf = getattr(node.attrs, "state", node.attrs)
    return str(getattr(leaf, "name", "") or node.op.name)


def _position(where: Expression | int) -> str:
    return f"operand {where + 1}" if isinstance(where, int) else str(where)
