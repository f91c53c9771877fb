"""`fast`: the Selection made by rules, a pure function of the program and costs. No timing.

Residence is decided from the roots down. A kernel is named by the stored term it computes; its
reductions all have the same free axes, which become its grid, so each is computed once per point
(the placement law). What cannot follow that is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field
from functools import partial

from luminal.algebra.frames import upper
from luminal.algebra.lower import Lowered
from luminal.algebra.scatter import ordered_axes
from luminal.algebra.terms import Frame, Phase, Term, axis_order, term_order
from luminal.base.costs import Costs
from luminal.base.numerics import DOMAIN, ROUNDING, Numerics
from luminal.base.records import dataclass
from luminal.hlir.ops import Value
from luminal.program.selection import Choice, Residence, Selection
from luminal.selection import cascades
from luminal.selection.bodies import is_weight, weights_of
from luminal.selection.broadcasts import without_broadcasts
from luminal.selection.enlarged import enlarged
from luminal.selection.inlining import Inlining, cuts, is_injective
from luminal.selection.kinds import is_contraction, is_product, step_operands, sums_of_dots
from luminal.selection.limits import KERNEL_TERMS, TILE_ROWS
from luminal.selection.merge import merges
from luminal.selection.nested import nest
from luminal.selection.packed import block_factors, packed
from luminal.selection.pairs import are_turned_by_lanes, pairs_side_by_side
from luminal.selection.parts import scaled_whole
from luminal.selection.pictures import pictures
from luminal.selection.private_sums import private_sums
from luminal.selection.quotients import shared_quotients
from luminal.selection.repeated import repeated, scales_after_products
from luminal.selection.rewrite import Respelled
from luminal.selection.scan_ends import scan_ends
from luminal.selection.scans import scans_in_blocks
from luminal.selection.separable import separable
from luminal.selection.sorts import sorts_in_blocks
from luminal.selection.spell import spell
from luminal.selection.split import split_reductions
from luminal.selection.split_cascades import split_cascades
from luminal.selection.stored import is_beside, is_rounded_result, rounded_factors, stored_anyway
from luminal.selection.users import users_of
from luminal.selection.winograd import winograd
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Use:
    """How one kernel reaches a term."""

    kernel: Term
    reduction: Term | None = None  # the innermost reduction it is under
    moved: Term | None = None  # the At nearest to it on the way
    repeated: bool = False  # through an At that reads elements more than once


@dataclass(slots=True)
class Kernel:
    """What is known so far of the kernel that computes a stored term."""

    grid: frozenset[Symbol] | None = None  # free axes of its reductions
    terms: int = 0
    reductions: list[Term] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a genome asks for, followed where it is legal: the residence of some terms, stored terms
    that stay out of merges, and pairs of stored terms that share a kernel.
    """

    residences: Mapping[Term, Residence] = field(default_factory=dict)
    apart: frozenset[Term] = frozenset()
    joined: tuple[tuple[Term, Term], ...] = ()


NO_WISHES = Wishes()


def select(
    lowered: Lowered,
    costs: Costs,
    numerics: Numerics = Numerics.STANDARD,
    weights: Set[Value] = frozenset(),
) -> Selection:
    """The Selection of `fast` for a lowered graph or Loop body.

    What changes more than `numerics` allows is left out. `weights`: as of `choose`.
    """
    return choose(respell(lowered, costs, numerics).lowered, costs, numerics, weights=weights)


# The order matters: a scan whose end alone is read is a reduction, which may then be nested;
# quotients leave sums before cascades are looked for; pictures are laid out for the windows that
# are left after separating them; and what is cut last is not looked at again.
def respell(lowered: Lowered, costs: Costs, numerics: Numerics) -> Respelled:
    """The spelling that `fast` prefers."""
    nested = nest(without_broadcasts(scan_ends(Respelled(lowered, {}), numerics), numerics))
    spelled = spell(nested, costs) if numerics.allows(ROUNDING) else nested
    met = enlarged(spelled, costs.windows, numerics)
    tiled = winograd(met, costs.tiles) if numerics.allows(DOMAIN) else met
    laid = pictures(separable(tiled, costs.windows, numerics), costs.windows)
    scanned = sorts_in_blocks(scans_in_blocks(laid, costs.shares, numerics), costs.shares)
    chunked = split_cascades(private_sums(scanned, costs.shares, numerics), costs, numerics)
    whole = scaled_whole(split_reductions(chunked, costs, numerics), costs)
    scaled = scales_after_products(pairs_side_by_side(whole, costs), costs, numerics)
    return shared_quotients(scaled, costs) if numerics.allows(ROUNDING) else scaled


def choose(
    lowered: Lowered,
    costs: Costs,
    numerics: Numerics,
    wishes: Wishes = NO_WISHES,
    bodies: Mapping[int, Selection] | None = None,
    weights: Set[Value] = frozenset(),
) -> Selection:
    """The Selection of a spelled program. `bodies`: those of Loops, by id of the lowered body;
    without them `fast` makes them. `weights`: the arguments of a body that are weights outside.
    """
    return _Fast(lowered, costs, numerics, wishes, weights).run(bodies)


class _Fast:
    def __init__(
        self,
        lowered: Lowered,
        costs: Costs,
        numerics: Numerics,
        wishes: Wishes,
        weights: Set[Value],
    ) -> None:
        self.lowered = lowered
        self.costs, self.weights = costs, costs.weights
        self.numerics = numerics
        self.wishes = wishes
        self.order = term_order(root.term for root in lowered.roots)
        self.users = users_of(self.order)
        self.is_weight = partial(is_weight, arguments=weights)
        self.packed = {*packed(self.order, weights), *block_factors(self.order, costs.scaled)}
        self.uses: dict[Term, set[Use]] = {term: set() for term in self.order}
        self.kernels: dict[Term, Kernel] = {}
        self.choices: dict[Term, Choice] = {}
        self.of_dots = sums_of_dots(self.order)
        self.of_steps: set[Term] = set()
        for total, dots in self.of_dots.items():
            stored, decoded = step_operands(total, dots)
            self.of_steps |= stored
            self.packed |= decoded
        self.forced = stored_anyway(lowered.roots, self.order) | lowered.kept | self.of_steps
        self.rounded = rounded_factors(self.order, self.packed, costs.decoded_rows, costs.scaled)
        self.inlined = Inlining(self.order, self.rounded | self.of_steps, self.weights)
        self.forced |= cuts(self.order, self.forced)
        self.forced |= {
            term
            for term, wish in wishes.residences.items()
            if wish.is_stored and (term.is_pointwise or term.is_reduction)
        }
        # A pass rescales its sums, which rounds otherwise than two passes do.
        rounds = numerics.allows(ROUNDING)
        local = {t for t, wish in wishes.residences.items() if wish is Residence.LOCAL}
        last = self.rounded
        find = partial(cascades.find, self.order, self.forced, costs, wanted=local, last=last)
        self.passes = find(weights=weights) if rounds else ()
        self.in_pass = {t for p in self.passes for t in (*p.step, *p.inner)}
        self.in_pass |= {r for p in self.passes for r in p.cascade.reductions}
        # Each pass that does a contraction anew multiplies for itself.
        self.in_pass |= {r.product for p in self.passes for r in p.cascade.inner if r.product}
        self.leaders = {root: p.roots[0] for p in self.passes for root in p.roots}
        self.forced |= self.leaders.keys()
        self.repeated = repeated(self.order, self.forced | self.in_pass, costs)
        outside = [t for t in self.order if t not in self.in_pass]
        rounded = rounded_factors(outside, self.packed, costs.decoded_rows, costs.scaled)
        self.forced |= rounded - self.in_pass

    def run(self, bodies: Mapping[int, Selection] | None) -> Selection:
        # One pass from the roots down, no search: the result is a pure function of the graph and
        # the costs, so it is the same on every machine, needs no timing, and is what the search
        # starts from.
        # Users come first: when a term is met, every kernel that would compute it is known.
        for term in reversed(self.order):
            residence = self.residence(term)
            self.choices[term] = Choice(residence)
            self.spread_uses(term, residence)
        sizes = {term: kernel.terms for term, kernel in self.kernels.items()}
        together = tuple(frozenset(p.roots) for p in self.passes if len(p.roots) > 1)
        streams = self.costs.streams
        alone, wished = self.alone(), self.wished()
        joined = merges(
            self.order, self.is_stored, self.grids(), sizes, together, streams, alone, wished
        )
        inner = {term for merge in joined for term in self.inner(merge)}
        self.choices |= dict.fromkeys(inner, Choice(Residence.INLINE))
        joined = tuple(merge - inner for merge in joined if len(merge - inner) > 1)
        choices = {term: self.choices[term] for term in self.order}
        frames = {t: self.frame(t) for t in self.order if choices[t].residence.is_stored}
        if bodies is None:
            weights_by_body = weights_of(self.order, self.is_weight)
            lowered = {id(t.attrs.body): t.attrs.body for t in self.order if t.op == "Loop"}
            bodies = {
                k: select(body, self.costs, self.numerics, weights_by_body[k])
                for k, body in lowered.items()
            }
        cascades_chosen = tuple(p.cascade for p in self.passes)
        return Selection(
            self.lowered.roots, choices, frames, together + joined, {}, bodies, cascades_chosen
        )

    def is_stored(self, term: Term) -> bool:
        return self.choices[term].residence.is_stored

    def inner(self, merge: frozenset[Term]) -> set[Term]:
        """What need not be stored after all: only this merge reads it, at the positions where it is
        computed. Not beside reductions, whose loops would compute it again.
        """
        if any(self.kernels[term].reductions for term in merge):
            return set()

        def stays(use: Use) -> bool:
            return use.kernel in merge and use.moved is None

        return {t for t in merge - self.forced if all(map(stays, self.uses[t]))}

    def grids(self) -> dict[Term, frozenset[Symbol] | None]:
        """The grid of each kernel, where others may share its loops; None elsewhere."""
        by_kernel: dict[Term, frozenset[Symbol] | None] = {}
        for term, kernel in self.kernels.items():
            grid = kernel.grid if kernel.reductions else term.axes
            by_kernel[term] = None if term.is_opaque or term in self.leaders else grid
        return by_kernel

    def alone(self) -> set[Term]:
        """Contractions, which want all registers, and what a genome wants apart."""
        kernels = self.kernels.items()
        contracts = {t for t, kernel in kernels if any(map(is_contraction, kernel.reductions))}
        return contracts | self.wishes.apart

    def wished(self) -> list[tuple[Term, Term]]:
        """The pairs of kernels that a genome wants to be one."""
        apart = self.wishes.apart
        present = [pair for pair in self.wishes.joined if all(t in self.kernels for t in pair)]
        return [pair for pair in present if apart.isdisjoint(pair)]

    def frame(self, term: Term) -> Frame:
        """The order of a stored term's axes: that of the tensor it was first."""
        recorded = self.lowered.shapes.get(term)
        if recorded is None or {a for d in recorded for a in d} < term.axes:
            return tuple((axis,) for axis in axis_order(term.axes))
        return tuple(tuple(a for a in d if a in term.axes) for d in recorded)

    # --- decisions

    def residence(self, term: Term) -> Residence:
        if term.is_leaf:
            return Residence.INLINE
        if term in self.repeated:
            is_apart = term.is_reduction and not self.runs_beside_products(term)
            stays = Residence.LOCAL if term.is_reduction else Residence.INLINE
            return Residence.STORED if is_apart else stays
        if term in self.forced or term.is_opaque:
            return Residence.STORED
        if term.op in ("Literal", "Index", "At") or term in self.packed:
            return Residence.INLINE
        if term in self.in_pass:
            return Residence.LOCAL if term.is_reduction else Residence.INLINE
        if self.belongs_to_prologue(term):
            return Residence.STORED
        if term.is_reduction:
            return self.reduction(term)
        return self.pointwise(term)

    def runs_beside_products(self, term: Term) -> bool:
        """Do all kernels that would compute a reduction sum products along the same axes?"""
        kernels = {use.kernel for use in self.uses[term]}
        return self.leaders.keys().isdisjoint(kernels) and all(
            any(is_contraction(r) and r.attrs == term.attrs for r in self.kernels[k].reductions)
            for k in kernels
        )

    def belongs_to_prologue(self, term: Term) -> bool:
        """Is the term a costly value of Weights and literals only that a run would otherwise
        recompute?
        """
        if term.phase is Phase.RUN or (not term.is_reduction and self.inlined.is_cheap(term)):
            return False
        return any(use.kernel.phase is Phase.RUN for use in self.uses[term])

    def reduction(self, term: Term) -> Residence:
        kernels = {use.kernel for use in self.uses[term]}
        if len(kernels) > 1 or any(use.moved is not None for use in self.uses[term]):
            return Residence.STORED
        (root,) = kernels
        kernel = self.kernels[root]
        if all(self.is_step(term, use.reduction) for use in self.uses[term]):
            kernel.reductions.append(term)
            return Residence.LOCAL
        points = upper(term.axes)
        work = max(points * upper(term.attrs), upper(root.axes))
        idle = self.costs.shares.leave_idle(points, work) or is_beside(term, root, self.costs)
        # Under the grid of other axes it would be computed once for each of their points.
        misfit = kernel.grid is not None and kernel.grid != term.axes
        closed = root.is_opaque and (root.op != "Scatter" or bool(ordered_axes(root)))
        closed = closed or root in self.leaders
        dear = idle or kernel.terms > KERNEL_TERMS or _breaks_tiles(term, root, kernel, self.costs)
        wanted = self.wishes.residences.get(term) is Residence.LOCAL
        if closed or misfit or (dear and not wanted):
            return Residence.STORED
        kernel.grid = term.axes
        kernel.reductions.append(term)
        return Residence.LOCAL

    def is_step(self, term: Term, above: Term | None) -> bool:
        """Is a contraction no more than one step of the sum around it?"""
        return above is not None and term in self.of_dots.get(above, ())

    def pointwise(self, term: Term) -> Residence:
        uses = self.uses[term]
        kernels = {use.kernel for use in uses}
        # Inline where computing again costs less than a load; stored where several kernels want the
        # value; local where one kernel reads it in several of its loops and a row of it stays in a
        # cache. What is stored starts a kernel of its own, so this decides about fusion, too.
        if any(self.kernels[k].terms > KERNEL_TERMS for k in kernels):
            return Residence.STORED
        wish = self.wishes.residences.get(term)
        unmoved = all(use.moved is None for use in uses)
        if wish is Residence.INLINE or (wish is Residence.LOCAL and len(kernels) == 1 and unmoved):
            return wish
        if len(kernels) > 1 and is_rounded_result(term, self.users):
            return Residence.STORED
        if self.inlined.is_cheap(term):
            return Residence.INLINE
        if len(kernels) > 1 or any(use.repeated for use in uses):
            if self.inlined.is_cheap(term, self.costs.expansion):
                return Residence.INLINE
            operands = self.inlined.instead(term, self.costs.expansion)
            # They come later in this walk, so they can still be stored.
            self.forced |= operands
            return Residence.INLINE if operands else Residence.STORED
        (root,) = kernels
        if any(self.is_wasteful(term, use) for use in uses) or len({u.moved for u in uses}) > 1:
            return Residence.STORED  # also what several Ats read: chains of them would multiply
        # Several loops of a kernel read it, as a softmax's do its scores: a cache may keep a row.
        phases = {use.reduction for use in uses}
        if len(phases) > 1 and unmoved:
            grid = self.kernels[root].grid or frozenset()
            row = upper(term.axes - grid) * term.dtype.size
            return Residence.LOCAL if row <= self.costs.row_bytes else Residence.INLINE
        return Residence.INLINE

    def is_wasteful(self, term: Term, use: Use) -> bool:
        """Would the term be computed many times per element, if it were inlined?"""
        if use.kernel.is_opaque and use.reduction is None:
            return False
        # The placement law: a value is computed in the loop of its last axis. If the kernel's grid
        # has an axis more than the term, that loop computes it again at each position of the axis.
        kernel = self.kernels[use.kernel]
        if use.reduction is not None:
            context = use.reduction.axes | frozenset(use.reduction.attrs)
            grid = use.reduction.axes
        else:
            context = use.kernel.axes
            grid = kernel.grid if kernel.grid is not None else self.outer_axes(use.kernel, term)
        if use.moved is not None or term.axes >= grid:
            return False
        if use.reduction is None and kernel.reductions:
            return False
        again = upper(context) * self.inlined.of[term][0]
        return again > self.costs.launch_work and upper(grid - term.axes) > 1

    def outer_axes(self, root: Term, term: Term) -> frozenset[Symbol]:
        """The axes whose loops would enclose the term's innermost one, without reductions."""
        order = [axis for dimension in self.frame(root) for axis in dimension]
        inner = max((k for k, axis in enumerate(order) if axis in term.axes), default=-1)
        return frozenset(order[: inner + 1])

    def spread_uses(self, term: Term, residence: Residence) -> None:
        """Tells the operands how they are used."""
        # Uses travel from users to operands: a term knows every kernel that would compute it, under
        # which reduction, and through which move, before its own residence is decided.
        if residence.is_stored:
            leader = self.leaders.get(term, term)  # the roots of a pass are one kernel
            kernel = self.kernels.setdefault(leader, Kernel())
            if term.is_reduction:
                kernel.grid = term.axes
                kernel.reductions.append(term)
            uses = {Use(leader)}
        else:
            uses = self.uses[term]
            if residence is Residence.LOCAL and not term.is_reduction:
                uses = {min(uses, key=_phase)}  # computed once, where it is first needed
        for use in {use.kernel for use in uses}:
            self.kernels[use].terms += 1
        if term.op == "At":
            repeated = not is_injective(term)
            self.uses[term.args[0]] |= {
                Use(u.kernel, u.reduction, term, u.repeated or repeated) for u in uses
            }
            for arg in term.args[1:]:
                self.uses[arg] |= uses
            return
        if term.is_reduction:
            uses = {Use(u.kernel, term, u.moved, u.repeated) for u in uses}
        for position, arg in enumerate(term.args):
            if term.op == "Scatter" and position != 1:  # another kernel, or not in its loops
                self.uses[arg] |= {Use(u.kernel, u.reduction, moved=term) for u in uses}
            else:
                self.uses[arg] |= uses


def _breaks_tiles(reduction: Term, root: Term, kernel: Kernel, costs: Costs) -> bool:
    """Would a product of matrices share its loops with what spoils its register tiles? They want
    long axes, which nothing else in the kernel tells apart, and all registers for one sum, but for
    products of one matrix with several, which is loaded once for all: as many as there are
    registers for, where it has rows enough to fill tiles.
    """
    if is_product(reduction) and reduction.axes != root.axes:
        return not are_turned_by_lanes(reduction, root, costs)
    others = [r for r in kernel.reductions if is_product(r) or is_product(reduction)]
    shared = [_shared(r, reduction) for r in others]
    if any(r.attrs != reduction.attrs for r in others) or not all(shared):
        return True
    rows = (upper(factor.axes - set(reduction.attrs)) for factors in shared for factor in factors)
    return len(others) >= costs.products and max(rows) >= TILE_ROWS


def _shared(a: Term, b: Term) -> frozenset[Term]:
    return frozenset(a.args[0].args) & frozenset(b.args[0].args)


def _phase(use: Use) -> int:
    """Orders the uses of a kernel: its reductions in order, then its stores."""
    return 1 << 62 if use.reduction is None else use.reduction.id
