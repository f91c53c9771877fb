"""Weights that lie packed in memory: floats computed of integers that take fewer bytes than they.

Precision is the user's choice, so this is no rewrite: whoever packs weights (blocks of a GGUF file,
integers with scales) wants these bytes read, not four times as many. Such a value is therefore
never stored, neither before a run nor in it: every kernel that reads it decodes it, in its loads or
into a strip that all its rows share. Any other value that is made of weights alone is computed once
and kept, since that is less work and no more memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.terms import Phase, Term, below
from luminal.base.dots import Dot
from luminal.hlir.ops import Value
from luminal.kernel.neighbours import in_blocks
from luminal.selection.bodies import is_weight
from luminal.selection.kinds import is_contraction

MOST_PARTS = 8  # arrays that one weight lies in: more are no packing


# A value made of weights alone is otherwise computed once, before a run. Here that would store four
# times as many bytes as the file has, and every run would read them.
def packed(order: Iterable[Term], arguments: Set[Value] = frozenset()) -> frozenset[Term]:
    """What packed weights are decoded by: their values, and all that is computed on the way.

    `arguments`: those of a Loop's body that are weights outside.
    """
    decoding: set[Term] = set()
    reads: dict[Term, frozenset[Term] | None] = {}  # leaves that all are weights; None: not only
    for term in order:
        reads[term] = _reads(term, arguments, reads)
        leaves = reads[term]
        if leaves and term.dtype.is_float and _is_packed(term, leaves):
            decoding.update(t for t in below((term,), decoding.__contains__) if not t.is_leaf)
    return frozenset(decoding)


def _reads(
    term: Term, arguments: Set[Value], reads: dict[Term, frozenset[Term] | None]
) -> frozenset[Term] | None:
    """The weights that a value is computed of element by element, if it is of nothing else."""
    if term.is_leaf:
        return frozenset((term,)) if is_weight(term, arguments) else None
    if term.op in ("Literal", "Index"):
        return frozenset() if term.phase is Phase.LITERAL else None
    if term.op == "At" and len(term.args) > 1 and term.args[0].phase is not Phase.LITERAL:
        return None  # rows of a table are not what is packed, the codes of a literal one may be
    if not (term.is_pointwise or term.op == "At"):
        return None
    weights: set[Term] = set()
    for arg in term.args:
        below_it = reads[arg]
        if below_it is None:
            return None
        weights |= below_it
    return frozenset(weights) if len(weights) <= MOST_PARTS else None


def _is_packed(term: Term, leaves: Collection[Term]) -> bool:
    """Is the term floats made of integers or shorter floats, and larger than all it is made of?"""
    size = sum(_bytes(leaf) for leaf in leaves)
    return any(leaf.dtype.is_int or leaf.dtype.is_moved_only for leaf in leaves) and size < _bytes(
        term
    )


def block_factors(order: Iterable[Term], dots: Sequence[Dot]) -> Iterator[Term]:
    """Factors that dots with scales multiply as they lie: what is stored are codes and scales, of
    values that a program rounds itself as well.
    """
    for term in order if dots else ():
        if term.is_reduction and is_contraction(term):
            for factor in term.args[0].args:
                if any(in_blocks(factor, dot) for dot in dots):
                    yield from (factor, *factor.args)


def _bytes(term: Term) -> int:
    return upper(term.axes) * term.dtype.size
