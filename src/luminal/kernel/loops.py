"""The loops of a kernel before any schedule: which axes run together, and what each reads where.

Neighbouring axes that everything in the kernel walks together are collapsed into one loop axis, so
that `(batch, row, column)` runs as one long loop where nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import pairwise

from luminal.algebra.frames import UNBOUNDED, extent_of, linear, most, spread
from luminal.algebra.terms import At, Axes, Frame, Index, Reduction, Term
from luminal.base.forks import cached_property
from luminal.base.records import dataclass
from luminal.kernel.fused import Fused, Place, Store
from luminal.kernel.layout import ROW_MAJOR
from luminal.kernel.neighbours import copied, walked, word_offset
from luminal.shape.condition import linear_form
from luminal.shape.expression import ZERO, Expression, SortKey, Symbol, axis

SHORT_STEP = 4  # elements from lane to lane that are still read in whole vectors
MOST_POSITIONS = 1 << 62
MOST_USEFUL = 1 << 20  # positions: a larger upper bound says nothing of what is usual
UNKNOWN = 1 << 12  # positions assumed of an extent without a useful upper bound
NEAR = "neighbour"


def estimate(extent: Expression) -> int:
    """A guess of how many positions an extent has, from its upper bound."""
    positions = most(extent)
    return positions if positions <= MOST_USEFUL else UNKNOWN


@dataclass(frozen=True)
class LoopAxis:
    """One or more axes walked as one, outermost first. `symbol` is its position.

    An axis whose neighbours are taken together is walked by words of so many.
    """

    symbol: Symbol
    members: Axes
    neighbours: int = 1

    @cached_property
    def extent(self) -> Expression:
        return extent_of(self.members) // self.neighbours

    @cached_property
    def estimate(self) -> int:
        """A guess of how many positions it has."""
        return estimate(self.extent)

    def positions(self, position: Expression) -> dict[Symbol, Expression]:
        """The members' values at `position`, at the first neighbour."""
        return spread(position * self.neighbours, self.members)

    def is_reduced(self, reduction: Term, along: Mapping[Term, Symbol]) -> bool:
        """Is it one of the loops of a reduction? `along` is what `walked` says."""
        by_words = self.members[-1] is along.get(reduction)
        return self.members[0] in reduction.attrs and by_words == (self.neighbours > 1)


@dataclass(frozen=True, slots=True)
class Access:
    """One read or store: the offset in terms of loop axes' symbols, under a reduction or not.

    `chosen`: the loop axes on which integers in the offset depend that are read themselves. Where
    neighbours are read as words, everything is counted in these.
    """

    place: Place
    offset: Expression
    reduction: Reduction | None
    is_store: bool = False
    source: Term | None = None
    chosen: frozenset[Symbol] = frozenset()
    neighbours: int = 1

    @property
    def bytes(self) -> int:
        """The bytes of an element, or of a word."""
        return self.place.dtype.size * self.neighbours

    @property
    def is_factor(self) -> bool:
        """Is it read for one of the factors of a contraction?"""
        return self.reduction is not None and self.reduction.product is not None

    def moves(self, loop: LoopAxis) -> bool:
        """Does the address change along the loop?"""
        return loop.symbol in self.offset.symbols()

    def stride(self, loop: LoopAxis) -> int | None:
        """Elements (or words) from one position of the loop to the next, in a panel; None where
        that is not literal.
        """
        if loop.symbol in self.chosen:
            return None
        stride = self.offset.coefficient(loop.symbol)
        panel = self.panel(loop)
        if panel:
            stride = self.within(loop, panel)
        return stride.value if stride is not None and stride.is_const else None

    def panel(self, loop: LoopAxis) -> int:
        """Positions along the loop that lie in one panel of the layout; 0: all lie alike."""
        sizes = [size for _, size in self.place.layout.blocks]
        if not sizes or self.offset.coefficient(loop.symbol) is not None:
            return 0
        alike = (size for size in sizes if self.within(loop, size) is not None)
        return next(alike, sizes[-1])

    def within(self, loop: LoopAxis, size: int) -> Expression | None:
        """Elements from one position to the next among the first ones of the loop."""
        lane = axis("lane", size)
        return self.offset.substitute({loop.symbol: lane}).coefficient(lane)

    def is_near(self, loop: LoopAxis) -> bool:
        """Do neighbours along the loop lie in a line of memory, or almost?"""
        stride = self.stride(loop)
        return stride is not None and 0 < abs(stride) <= SHORT_STEP

    def contiguity(self, loop: LoopAxis) -> float:
        """How well the access vectorises along the loop: below 0 it would be lane by lane."""
        weight = 4.0 if self.reduction is not None else 1.5 if self.is_store else 1.0
        match self.stride(loop):
            case 0:
                return 0.0
            case 1:
                return weight
            case int(step) if -1 <= step <= SHORT_STEP and not self.is_store:
                return weight / max(2, step)
        return -weight


def loop_axes(fused: Fused) -> tuple[LoopAxis, ...]:
    """The loop axes of a kernel: its stores' axes in frame order, then those of its reductions."""
    along, copy = walked(fused), copied(fused)
    ordered: dict[tuple[Symbol, int], None] = {}  # axes, and how many neighbours are taken together
    for store in fused.stores:
        for a in store.axes:
            ordered[a, copy[1] if copy is not None and a is copy[0] else 1] = None
    for reduction in fused.reductions:
        for a in _in_memory_order(reduction, fused):
            ordered[a, fused.dots[reduction].k if a is along.get(reduction) else 1] = None
    words = {a for a, count in ordered if count > 1}
    follows = _neighbours(fused, words, {a for a in words if (a, 1) in ordered})
    runs: list[tuple[list[Symbol], int]] = []
    for symbol, count in ordered:
        run: list[Symbol] = []
        if runs and runs[-1][1] == 1 and (runs[-1][0][-1], symbol) in follows:
            run, _ = runs.pop()
        runs.append(([*run, symbol], count))
    out = []
    for number, (run, count) in enumerate(runs):
        members = tuple(run)
        position = members[0] if len(run) == 1 else axis(f"L{number}", extent_of(members))
        if count > 1:
            position = axis(f"{position.name}/{count}", extent_of(members) // count)
        out.append(LoopAxis(position, members, count))
    return tuple(out)


def _in_memory_order(reduction: Term, fused: Fused) -> Axes:
    """The axes of a reduction in the order of the first operand in memory that has them all."""
    wanted = set(reduction.attrs)
    for place in fused.reads.values():
        order = tuple(a for d in place.frame for a in d if a in wanted)
        if len(order) == len(wanted):
            return order
    return tuple(reduction.attrs)


# Two axes are one where each formula of the kernel takes them as one. Conditions are spelled so
# that they can: `x // c + r >= 0` is `x + c * r >= 0` (`shape/condition.py`), so padded pictures
# with channels last are one long loop of pixels and channels.
def _neighbours(fused: Fused, words: Set[Symbol], alone: Set[Symbol]) -> set[tuple[Symbol, Symbol]]:
    """Pairs (outer, inner) that nothing in a kernel tells apart from one merged axis. `words`: axes
    walked by words, with nothing inside; `alone`: those that stay as they are.
    """
    # One long loop has fewer ends than two short ones, and its tiles are full. Two axes are one if
    # each value, each place in memory and each formula knows them by their joint position alone.
    places = _at_places(fused)
    terms = [t for t in fused.terms if t in places or t not in fused.reads]
    flat = [run for t in terms if t in fused.reads for run in _runs(fused.reads[t])]
    flat += [store.axes for store in fused.stores]
    pairs = {pair for frame in flat for pair in pairwise(frame)}
    fixed = {*alone}  # and axes that are bound to positions, or may lie in any way
    formulas: dict[Expression, None] = {}  # what is computed of axes
    for term in terms:
        if isinstance(term, Index):
            formulas[term.attrs] = None
        elif isinstance(term, At) and term not in fused.reads:
            fixed |= {a for a, _ in term.attrs}
            formulas |= dict.fromkeys(_formulas(term, fused))
    for store in fused.stores:
        if store.place.layout != ROW_MAJOR:
            fixed |= set(store.axes)
        elif store.index is not None:
            runs, moved = _coordinates(store)
            flat += runs
            fixed |= moved
    bound = {a for t in fused.reductions for a in t.attrs}
    together = [t.axes for t in terms if not isinstance(t, Index)]
    together += [frozenset(t.attrs) for t in terms if t.is_reduction]

    def are_inseparable(outer: Symbol, inner: Symbol) -> bool:
        if outer in fixed or inner in fixed or outer in words:
            return False
        if ZERO in (outer.extent, inner.extent):
            return False  # positions would be 0 whatever the loop's is, and loads leave it
        if any((outer in axes) != (inner in axes) for axes in together):
            return False
        if any(_has_apart(formula, outer, inner, bound) for formula in formulas):
            return False
        for frame in flat:
            if (outer in frame) != (inner in frame):
                return False
            if outer in frame and frame[frame.index(outer) + 1 :][:1] != (inner,):
                return False
        return True

    return {pair for pair in pairs if are_inseparable(*pair)}


def _at_places(fused: Fused) -> set[Term]:
    """What is read at its own axes' positions, not only moved: of that the offsets say all."""
    roots = {root for store in fused.stores for root in store.roots}
    for term in fused.terms:
        if term not in fused.reads:
            roots |= {arg for arg in term.args if arg not in _moved_whole(term, fused)}
    return roots & fused.reads.keys()


def _moved_whole(term: Term, fused: Fused) -> tuple[Term, ...]:
    """What an At reads from row-major memory at positions of axes alone."""
    if not isinstance(term, At) or len(term.args) > 1:
        return ()
    place = fused.reads.get(term.args[0])
    return term.args if place is not None and place.layout == ROW_MAJOR else ()


def _formulas(at: At, fused: Fused) -> list[Expression]:
    """What an At computes of axes: where in memory it reads, or its positions."""
    for read in _moved_whole(at, fused):
        here: dict[Symbol, Expression] = {a: a for a in read.axes}
        moved = {a: p for a, p in at.attrs if isinstance(p, Expression)}
        return [fused.reads[read].offset(here | moved)]
    return [position for _, position in at.attrs if isinstance(position, Expression)]


def _has_apart(formula: Expression, outer: Symbol, inner: Symbol, bound: Set[Symbol]) -> bool:
    """Does it depend on the two other than by their position as one axis?"""
    used = formula.symbols()
    if outer not in used and inner not in used:
        return False
    assert inner.extent is not None
    together = axis("together", MOST_POSITIONS)
    if formula.is_condition and used.isdisjoint(bound):
        # A range of positions, as of columns inside of a picture; what is summed has its own.
        joint = formula.substitute(
            {outer: together // inner.extent, inner: together % inner.extent}
        )
        parts = joint.args if joint.op == "and" else (joint,)
        return any(linear_form(part).coefficient(together) is None for part in parts)
    return outer in formula.substitute({inner: together - outer * inner.extent}).symbols()


def _runs(place: Place) -> Frame:
    """The axes that lie in memory as one: of all dimensions, or, in other layouts, of each."""
    if place.layout != ROW_MAJOR:
        return place.frame
    return (tuple(a for dimension in place.frame for a in dimension),)


def _coordinates(store: Store) -> tuple[list[Axes], set[Symbol]]:
    """The runs of axes of a Scatter's coordinates that lie in the place as in row-major memory, and
    the axes that appear in any other way.
    """
    runs: list[Axes] = [()]
    moved: set[Symbol] = set()
    for entry, extent in zip(store.index or (), store.place.shape, strict=True):
        used = entry.symbols() if isinstance(entry, Expression) else frozenset()
        run = tuple(a for a in store.axes if a in used)
        if isinstance(entry, Expression) and linear(run) == entry and extent_of(run) == extent:
            runs[-1] += run
        else:
            moved |= used
            runs.append(())
    return runs, moved


def base_env(axes: tuple[LoopAxis, ...]) -> dict[Symbol, Expression]:
    """Every member axis in terms of the loop axes' own symbols: by words only what nothing walks
    otherwise.
    """
    env: dict[Symbol, Expression] = {}
    for loop in sorted(axes, key=lambda x: -x.neighbours):
        env.update(_every_neighbour(loop))
    return env


def _every_neighbour(loop: LoopAxis) -> dict[Symbol, Expression]:
    """The members' values, at any neighbour of a word."""
    at = loop.positions(loop.symbol)
    if loop.neighbours > 1:
        at[loop.members[-1]] += axis(NEAR, loop.neighbours)
    return at


def accesses(fused: Fused, axes: tuple[LoopAxis, ...]) -> list[Access]:
    """Every distinct read and store of the fused kernel."""
    env = base_env(axes)
    out: list[Access] = []
    seen: set[object] = set()
    words = {
        term: _every_neighbour(loop)
        for term, along in walked(fused).items()
        for loop in axes
        if loop.members[-1] is along and loop.neighbours > 1
    }
    for store in fused.stores:
        for root in store.roots:
            out += _reads(root, env, fused, seen, words)
        out.append(_in_words(Access(store.place, _target(store, env), None, True)))
    return out


def _in_words(access: Access) -> Access:
    """The access, to whole words if it is that."""
    near = next((s for s in access.offset.symbols() if s.name == NEAR), None)
    if near is None or near.extent is None:
        return access
    count = near.extent.value
    offset = word_offset(access.offset, near, count)
    if offset is None:
        return replace(access, offset=access.offset.substitute({near: ZERO}))
    return replace(access, offset=offset, neighbours=count)


def _target(store: Store, env: Mapping[Symbol, Expression]) -> Expression:
    """The element that a store goes to; a computed coordinate is a symbol of its own."""
    if store.index is None:
        return store.offset(env)
    index = [
        axis(f"gather{entry.id}", UNBOUNDED) if isinstance(entry, Term) else entry.substitute(env)
        for entry in store.index
    ]
    return store.place.layout.offset(index, store.place.shape)


def _reads(
    root: Term,
    env: Mapping[Symbol, Expression],
    fused: Fused,
    seen: set[object],
    words: Mapping[Term, Mapping[Symbol, Expression]],
) -> Iterator[Access]:
    """The reads below a root, under a reduction or not; `words` are positions inside of reductions.
    Iterative: terms are thousands deep.
    """
    base = env
    chosen: dict[Symbol, frozenset[Symbol]] = {}  # by gathered position
    stack: list[tuple[Term, Mapping[Symbol, Expression], Reduction | None]] = [(root, env, None)]
    while stack:
        term, env, reduction = stack.pop()
        moved = () if env is base else sorted(term.axes, key=_by_key)
        key = (term, reduction, env is base, tuple(map(env.get, moved)))
        if key in seen:
            continue
        seen.add(key)
        if term in fused.reads:
            place = fused.reads[term]
            offset = place.offset(env)
            reached = (chosen[s] for s in offset.symbols() if s in chosen)
            axes = frozenset[Symbol]().union(*reached)
            yield _in_words(Access(place, offset, reduction, source=term, chosen=axes))
        elif isinstance(term, At):
            inner, gathered = _moved(term, env)
            for symbol, axes in gathered.items():
                chosen[symbol] = axes.union(*(chosen.get(s, ()) for s in axes)) - chosen.keys()
            stack.append((term.args[0], inner, reduction))
            stack.extend((arg, env, reduction) for arg in reversed(term.args[1:]))
        else:
            within = term if isinstance(term, Reduction) else reduction
            inside = {**env, **words[term]} if term in words else env
            stack.extend((arg, inside, within) for arg in reversed(term.args))


def _moved(
    at: Term, env: Mapping[Symbol, Expression]
) -> tuple[dict[Symbol, Expression], dict[Symbol, frozenset[Symbol]]]:
    """The positions of the operand's axes; a gathered one is a symbol of its own, and depends on
    these symbols.
    """
    inner, gathered = dict(env), dict[Symbol, frozenset[Symbol]]()
    for number, (a, position) in enumerate(at.attrs):
        if isinstance(position, int):
            symbol = axis(f"gather{at.id}.{number}", UNBOUNDED)
            used = (env[index_axis].symbols() for index_axis in at.args[1 + position].axes)
            inner[a], gathered[symbol] = symbol, frozenset[Symbol]().union(*used)
        else:
            inner[a] = position.substitute(env)
    return inner, gathered


def _by_key(symbol: Symbol) -> SortKey:
    return symbol.sort_key
