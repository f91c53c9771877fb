"""Layouts of weights: which contractions may read a weight in panels, and which do in `fast`.

A backend says what panels it wants (`kernel.layout.Panels`); without any there is no choice.

A panel holds as many neighbouring columns of a product as a register tile is wide, one row of them
after the other: `w[n, k]` lies as `[n // 32][k][n % 32]`. A kernel then streams the weight in whole
vectors, whichever way round it was given, and packs nothing. The prologue makes the copy, once per
setting of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import gcd

from luminal.algebra.frames import upper
from luminal.algebra.terms import At, Axes, Frame, Phase, Term, below
from luminal.base.dots import Dot
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.hlir.ops import Value
from luminal.kernel.layout import ROW_MAJOR, Layout, Panels, filled
from luminal.kernel.neighbours import in_order, last_axis, with_neighbours
from luminal.kernel.source import Source, sources_of, unmasked
from luminal.program.selection import Selection
from luminal.selection import dots
from luminal.selection.bodies import is_weight, weights_of
from luminal.selection.kinds import sums_of_dots
from luminal.shape.expression import Symbol, const

Edge = tuple[Term, int]  # (user, argument)
SPARED = 8  # so much smaller is a weight whose copy gains nothing, though it spares another
NO_WISHES: Mapping[Term, str] = {}


@dataclass(frozen=True, slots=True)
class Gene:
    """A weight, the edges through which contractions read it, the layouts these may read, as it is
    first, and the one they read now. `rows`: how many results share an element of the weight;
    `read`: how many of its elements the edges read, together; `steps`: in steps of sums of dots;
    `spares`: without panels another factor is copied in every run.
    """

    weight: Term
    edges: tuple[Edge, ...]
    layouts: tuple[Layout, ...]
    now: Layout
    rows: int
    read: int
    steps: bool
    spares: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """A factor of a contraction that is a weight in memory, perhaps cast and under other names, a
    part of it, or one of several `matrices` that integers choose.
    """

    weight: Term
    edge: Edge
    frame: Frame  # of the weight, in the axes of the contraction
    parts: tuple[int | None, ...]  # where the part of each dimension begins; None: it is whole
    matrices: int

    @property
    def elements(self) -> int:
        """The number of the weight's elements that are read."""
        return self.matrices * upper(a for dimension in self.frame for a in dimension if a.extent)


def by_rule(
    selection: Selection,
    panels: Panels | None,
    numerics: Numerics = Numerics.STANDARD,
    wishes: Mapping[Term, str] = NO_WISHES,
    arguments: Set[Value] = frozenset(),
) -> Selection:
    """The layouts of `fast`, in Loop bodies too: panels where a product has rows enough.

    `wishes`: texts of layouts that weights are read in instead, where they can be.
    """
    if panels is None:
        return selection
    bodies = dict(selection.bodies)
    for number, weights in weights_of_bodies(selection, arguments).items():
        bodies[number] = by_rule(bodies[number], panels, numerics, wishes, weights)
    selection = _made_for_loops(replace(selection, bodies=bodies))
    chosen: dict[Gene, Layout] = {}
    for gene in genes(selection, panels, numerics, arguments):
        rule = gene.layouts[-1 if _is_worth(gene, panels) else 0]
        wish = wishes.get(gene.weight)
        chosen[gene] = next((layout for layout in gene.layouts if str(layout) == wish), rule)
    return with_layouts(selection, chosen)


def _is_worth(gene: Gene, panels: Panels) -> bool:
    """Is reading in panels worth the copy's memory?

    Measured (docs/measurements.md). A single row of results streams the weight once: as it is, if
    neighbours along the sum lie together; else from far apart, which only a cache hides. But not in
    steps of a sum of dots: the lanes of each would have to be folded.
    """
    if gene.steps:
        return True
    elements = upper(gene.weight.axes)
    # The copy is of the whole weight, however little of it is read.
    if 2 * gene.read < elements:
        return False
    if elements < panels.smallest:
        return gene.spares and gene.rows >= panels.many and SPARED * elements >= panels.smallest
    # Words are packed as fast as they are read, by a program that has rows enough for it. A large
    # weight is then held once, as it was given: a mapped file's is for all programs and processes.
    large = elements * gene.weight.dtype.size > panels.far_bytes
    if large and gene.rows >= panels.many and _has_words(gene):
        return False
    if gene.rows >= panels.rows:
        return True
    turned = gene.layouts[1].order != tuple(range(len(gene.layouts[1].order or ())))
    return turned and elements * gene.weight.dtype.size > panels.far_bytes


def _has_words(gene: Gene) -> bool:
    """Do neighbours that a dot multiplies lie side by side in the weight as it was given?"""
    words = [layout for layout in gene.layouts if layout.neighbours > 1]
    return any(layout.blocks[-1][0] == len(layout.order or ()) - 1 for layout in words)


def all_genes(
    selection: Selection,
    panels: Panels | None,
    numerics: Numerics = Numerics.STANDARD,
    arguments: Set[Value] = frozenset(),
) -> Iterator[Gene]:
    """What can be chosen in a program, its Loop bodies included."""
    yield from genes(selection, panels, numerics, arguments)
    for number, weights in weights_of_bodies(selection, arguments).items():
        yield from all_genes(selection.bodies[number], panels, numerics, weights)


def genes(
    selection: Selection,
    panels: Panels | None,
    numerics: Numerics = Numerics.STANDARD,
    arguments: Set[Value] = frozenset(),
) -> tuple[Gene, ...]:
    """The layouts that can be chosen in a program, or in a Loop body whose `arguments` are weights
    outside.
    """
    if panels is None:
        return ()
    # Transposed packing, chosen once for a weight instead of in every kernel: the copy costs memory
    # and the prologue's time, and saves packing in every run.
    usable = dots.usable(panels.dots, numerics)
    users = _users(selection)
    of_dots = sums_of_dots(selection.choices)
    around = {dot: term for term, dots in of_dots.items() for dot in dots}
    by_copy: dict[tuple[Term, Layout], Gene] = {}
    for term in selection.choices:
        for product in _products(term, of_dots):
            columns = _columns(term, selection, users)
            outer = around.get(term, term)
            bound = {*term.attrs, *outer.attrs}
            in_steps = _has_steps(product, bound, columns, selection, panels)
            for read in _reads(product, selection, arguments, outer in of_dots):
                layout = _panels(read, product, bound, columns, in_steps, panels)
                if layout is None:
                    continue
                rows = upper(term.axes - {a for dimension in read.frame for a in dimension})
                gene = Gene(
                    read.weight,
                    (read.edge,),
                    (ROW_MAJOR, layout, *_of_words(layout, term, read, usable, selection)),
                    _now(read, selection),
                    rows // read.matrices,
                    read.elements,
                    outer in of_dots,
                    in_steps,
                )
                key = read.weight, layout
                by_copy[key] = _together(by_copy[key], gene) if key in by_copy else gene
    # A body's argument lies one way for all who read it: the Loop outside makes the copy.
    return tuple(gene for gene in by_copy.values() if not arguments or _covers(gene, users))


def _now(read: _Read, selection: Selection) -> Layout:
    """The layout that an edge reads."""
    return selection.choices[read.weight].layouts[selection.reads.get(read.edge, 0)]


def _of_words(
    layout: Layout, contraction: Term, read: _Read, usable: Sequence[Dot], selection: Selection
) -> Iterator[Layout]:
    """The panels with neighbours that a dot multiplies; the last are the rule's."""
    for dot in reversed(usable):
        along = _neighbours(contraction, dot, read, selection)
        if along is not None and (not dot.is_pair or dots.has_rows(contraction, dot)):
            yield with_neighbours(layout, along, dot.k)


def _together(old: Gene, new: Gene) -> Gene:
    """One copy for the edges of both: it pays for all where it pays for one. They are offered what
    all of them can read: neighbours to all or to none.
    """
    return replace(
        old,
        edges=tuple(dict.fromkeys((*old.edges, *new.edges))),
        layouts=min(old.layouts, new.layouts, key=len),
        rows=max(old.rows, new.rows),
        read=old.read + new.read * set(old.edges).isdisjoint(new.edges),
        steps=old.steps or new.steps,
        spares=old.spares or new.spares,
    )


def with_layouts(selection: Selection, chosen: Mapping[Gene, Layout]) -> Selection:
    """The selection with these layouts read; a weight that nothing else reads lies in them only.

    Products in both directions may share an edge, that of a cast: it has the layout of the first.
    """
    users = _users(selection)
    choices, reads = dict(selection.choices), dict(selection.reads)
    taken: set[Edge] = set()
    for gene, layout in chosen.items():
        if layout == gene.now or not taken.isdisjoint(gene.edges):
            continue
        taken.update(gene.edges)
        old = choices[gene.weight]
        # Memory that is given stays as it was set; what
        # the prologue computes can be made in panels only.
        is_given = gene.weight.is_leaf and gene.weight.phase is not Phase.RUN
        if _covers(gene, users) and not is_given:
            choices[gene.weight] = replace(old, layouts=(layout,))
            continue
        layouts = tuple(dict.fromkeys((*old.layouts, layout)))
        choices[gene.weight] = replace(old, layouts=layouts)
        reads |= dict.fromkeys(gene.edges, layouts.index(layout))
    return replace(selection, choices=choices, reads=reads)


def weights_of_bodies(
    selection: Selection, arguments: Set[Value] = frozenset()
) -> dict[int, Set[Value]]:
    """The arguments of each Loop body, by its id, that are weights wherever the body is used."""
    return weights_of(selection.choices, lambda term: _is_weight(term, selection, arguments))


def _made_for_loops(selection: Selection) -> Selection:
    """What is computed of weights for one Loop alone is made as its body reads it, not copied."""
    users = _users(selection)
    choices = dict(selection.choices)
    for loop in (term for term in selection.choices if term.op == "Loop"):
        body = loop.attrs.body
        inside = selection.bodies[id(body)].choices.items()
        wanted = {t.attrs.value: choice.layouts[0] for t, choice in inside if t.is_leaf}
        initial, streams, invariants = loop.attrs.hlir.split(loop.args)
        operands = [*((value,) for value in initial), *streams, *((value,) for value in invariants)]
        for argument, leaves in zip(body.arguments, operands, strict=True):
            layout = wanted.get(argument, ROW_MAJOR)
            for term in leaves:
                is_early = term.phase is Phase.WEIGHT and not term.is_leaf
                if is_early and selection.is_stored(term) and len(users[term]) == 1:
                    choices[term] = replace(choices[term], layouts=(layout,))
    return replace(selection, choices=choices)


def _users(selection: Selection) -> dict[Term, list[Edge]]:
    """The edges that read each term; what a root reads has none for it."""
    edges: dict[Term, list[Edge]] = {term: [] for term in selection.choices}
    for term in selection.choices:
        for k, arg in enumerate(term.args):
            edges[arg].append((term, k))
    return edges


def _covers(gene: Gene, users: Mapping[Term, list[Edge]]) -> bool:
    return set(users[gene.weight]) <= set(gene.edges)


def _is_weight(term: Term, selection: Selection, arguments: Set[Value]) -> bool:
    """Is the value in memory before any run? (In a Loop body, only what comes from outside is.)"""
    if term.is_leaf:
        return is_weight(term, arguments)
    return selection.is_stored(term) and term.phase is not Phase.RUN


def _neighbours(contraction: Term, dot: Dot, read: _Read, selection: Selection) -> int | None:
    """The dimension of the weight whose neighbours meet neighbours that lie side by side in the
    other factor, both being what the dot multiplies in memory.
    """
    if contraction.dtype is not dot.accumulator:
        return None
    order = in_order(contraction.args[0].args, dot)
    sources = [sources_of(factor, selection.is_stored) for factor in order]
    for factor_sources, dtype in zip(sources, (dot.a, dot.b), strict=False):
        if not factor_sources or any(
            x.casts != 1 or x.term.dtype is not dtype for x in factor_sources
        ):
            return None
    others = [
        factor_sources
        for factor_sources in sources
        if all(source.edge != read.edge for source in factor_sources)
    ]
    if len(sources) != 2 or len(others) != 1 or len(others[0]) != 1:
        return None
    (other,) = others[0]
    frame = _frame(other, selection)
    if not frame:
        return None
    inner = last_axis(other.renamed(frame)[-1], dot.k)
    if any(inner in source.apart for factor_sources in sources for source in factor_sources):
        return None
    for k, dimension in enumerate(read.frame):
        if inner in contraction.attrs and inner is last_axis(dimension, dot.k):
            return k
    return None


def _products(total: Term, of_dots: Mapping[Term, frozenset[Term]]) -> Iterator[Term]:
    """What a sum of a run adds up: a product, or several in each step of a sum of dots."""
    if total.op != "Sum" or total.phase is not Phase.RUN:
        return
    stack = [total.args[0]]
    while stack:
        term = stack.pop()
        if term.op == "Mul":
            yield term
        if total in of_dots and term.op in ("Add", "Mul"):
            stack += term.args


def _reads(
    product: Term, selection: Selection, arguments: Set[Value], steps: bool
) -> Iterator[_Read]:
    """The factors that are weights, below casts and other names; in `steps` of sums of dots also
    what scales are made of.
    """
    # The sum then reads products, which another kernel makes: it is no contraction.
    if selection.is_stored(product):
        return
    for k, factor in enumerate(product.args):
        is_stored = selection.is_stored
        below_masks = unmasked(factor, is_stored)
        for source in sources_of(below_masks, is_stored, parts=True, scales=steps):
            source_frame = _frame(source, selection)
            if source_frame is None or not _is_weight(source.term, selection, arguments):
                continue
            # What only a mask reads is packed with it, once, not masked by every row of tiles.
            if source.edge is None and below_masks is not factor:
                continue
            edge = source.edge or (product, k)
            parts = tuple(_start(source, dimension) for dimension in source_frame)
            yield _Read(
                source.term, edge, source.renamed(source_frame), parts, upper(source.chosen)
            )


def _start(source: Source, dimension: Axes) -> int | None:
    """The position at which the part of a dimension begins that is read."""
    starts = [source.starts[axis] for axis in dimension if axis in source.starts]
    if not starts:
        return None
    return starts[0] if len(dimension) == 1 else -1  # several axes are read in no single piece


def _frame(source: Source, selection: Selection) -> Frame | None:
    """The dimensions in memory of what a contraction reads; None if it is inlined."""
    term = source.term
    frame: Frame | None = term.attrs.frame if term.is_leaf else selection.frames.get(term)
    return frame


def _columns(contraction: Term, selection: Selection, users: Mapping[Term, list[Edge]]) -> Axes:
    """The axes along which neighbouring results lie side by side."""
    term = contraction
    while not selection.is_stored(term):
        term = users[term][0][0]
    frame = term.attrs.frames[1] if term.op == "Scatter" else selection.frames.get(term, ())
    return next((dimension for dimension in reversed(frame) if dimension), ())


# Lanes along such columns want a copy of all windows in every run, which is walked in one piece
# then. Else rows of results do, and each reads a few elements of a line of every channel: the same
# lines serve the next rows, if a cache holds all these or the whole picture.
def _has_steps(
    product: Term, bound: Set[Symbol], columns: Axes, selection: Selection, panels: Panels
) -> bool:
    """Does a window move by steps from column to column, whose lines stay in a cache?"""
    last_column = {*columns[-1:]}
    for term in below((product,), selection.is_stored):
        if isinstance(term, At) and not selection.is_stored(term):
            positions = (at for _, at in term.attrs if not isinstance(at, int))
            windows = (
                at for at in positions if last_column & at.symbols() and bound & at.symbols()
            )
            picture = upper(term.args[0].axes) * term.dtype.size
            for at in windows:
                lines = upper(term.axes & bound - at.symbols())
                far = lines >= panels.lines and picture > panels.far_bytes
                if not far and at.coefficient(columns[-1]) != const(1):
                    return True
    return False


def _panels(
    read: _Read,
    product: Term,
    bound: Set[Symbol],
    columns: Axes,
    in_steps: bool,
    panels: Panels,
) -> Layout | None:
    """Panels along the dimension of the weight that runs along the columns, if one does; else, of
    columns that leave lanes idle (a picture's 28 or 56) or that a window passes in steps, along the
    only one of its own that is not summed. One where integers choose the positions has no
    neighbours. Of heads by their width, stored apart, a panel has columns of one head.
    """
    # What all factors have is no column of a product: it chooses a product.
    common = frozenset.intersection(*(factor.axes for factor in product.args))
    frame = [*enumerate(read.frame)]
    lanes = panels.lanes(product.dtype.size)
    along = [k for k, axes in frame if axes and axes[-1:] == columns[-1:]]
    summed = [k for k, axes in frame if not bound.isdisjoint(axes)]
    if not along and (in_steps or filled(upper(columns), lanes) < panels.full):
        free = product.axes - common
        along = [k for k, axes in frame if len(axes) == 1 and free.issuperset(axes)]
    if len(along) != 1 or not summed or along[0] in summed:
        return None
    positions = upper(read.frame[along[0]])
    size = lanes * min(panels.registers, -(-positions // lanes))
    start, axes = read.parts[along[0]], read.frame[along[0]]
    # A part begins and ends with a panel, and so does a head that is stored apart.
    edge = 0 if start is None else gcd(start, positions)
    if axes[-1:] == columns[-1:] and axes != columns[-len(axes) :]:
        edge = gcd(edge, upper(axes[-1:]))
    if edge % size:
        size = lanes
    if positions < lanes or edge % size:
        return None
    others = [k for k in range(len(read.frame)) if k not in (*along, *summed)]
    return Layout((*others, *along, *summed), ((along[0], size),))
