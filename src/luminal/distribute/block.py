"""The nodes of a graph as one rank runs them: extents are those of its parts, maps have offsets,
and where two sites beside each other differ a value is moved.

All ranks get this one graph. What tells them apart are dims, the coordinates of a rank, which are
bound when it runs: so there is one set of kernels and one entry in the cache for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from luminal.base import dtypes
from luminal.distribute.edges import Edge, edge_of, gathered
from luminal.distribute.layout import (
    Cut,
    Cuts,
    Layout,
    by_axis,
    has_pads,
    in_unit_steps,
    is_outermost,
    is_real,
    local_shape,
    of_axes,
    positions,
    text,
    to_local,
    whole,
)
from luminal.distribute.move import Lying, Mover, Reason
from luminal.distribute.partial import Partial, Partials, aligned, is_zero, masked
from luminal.distribute.propagate import Sites
from luminal.hlir.attributes import (
    Body,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScatterAttrs,
    Shape,
    Slot,
    StateAttrs,
    WeightAttrs,
)
from luminal.hlir.graph import Builder, topological
from luminal.hlir.monoid import MAXIMUM
from luminal.hlir.ops import Node, Value
from luminal.memory.state import Assignable
from luminal.shape.expression import TRUE, Expression, all_of, const, maximum, minimum
from luminal.shape.prove import prove, simplify
from luminal.shape.view import View, made

PartOf = Callable[[Assignable, Layout], Assignable]
"""What holds a rank's part of a Parameter or State."""


class Block:
    """The nodes of a graph, or of the body of a Loop, one after the other."""

    def __init__(
        self,
        nodes: Sequence[Node],
        roots: Sequence[Value],
        sites: Sites,
        mover: Mover,
        part_of: PartOf,
    ) -> None:
        self.nodes = nodes
        self.sites = sites
        self.mover = mover
        self.part_of = part_of
        self.partials = Partials(nodes, roots, sites)
        self.lying: dict[Value, Lying] = {}
        self._moved: dict[tuple[Value, Layout], Lying] = {}
        self._names: dict[Value, str] = {}
        self._turns: dict[Value, int] = {}  # how often a Parameter has been moved

    def run(self) -> None:
        """Writes every node of the block, operands first."""
        for node in self.nodes:
            if node.value not in self.lying:
                self.mover.builder.now = node.recorded
                self.node(node)

    def inner(self, nodes: Sequence[Node], roots: Sequence[Value], mover: Mover) -> Block:
        """The block of a Loop's body."""
        return Block(nodes, roots, self.sites, mover, self.part_of)

    # --- values

    def layout_of(self, value: Value) -> Layout:
        """How a value lies where nothing asks for more: as its site, through a View."""
        edge = edge_of(value)
        return of_axes(len(value.shape), edge.of_user(self.sites.value(edge.value).cuts))

    def at(self, value: Value, layout: Layout, why: str) -> Value:
        """A rank's part of a value, a View or not, in a layout."""
        return self.read(edge_of(value), layout, why).value

    def read(
        self, edge: Edge, layout: Layout, why: str, zeros: Sequence[int] | None = None
    ) -> Lying:
        """An operand as its user's positions lie, with 0 for pads of the dimensions `zeros`; what
        other pads read is anything.
        """
        source = edge.value
        wanted = of_axes(len(source.shape), edge.of_source(by_axis(layout)))
        return self.viewed(self.laid(source, wanted, why), edge, layout, zeros)

    def viewed(
        self, x: Lying, edge: Edge, layout: Layout, zeros: Sequence[int] | None = None
    ) -> Lying:
        """What `read` gives, of an operand that lies as the edge asks."""
        wanted = x.layout
        is_padded = any(has_pads(edge.shape[k], layout[k]) for k in zeros or ())
        if edge.is_identity and wanted == layout and not is_padded:
            return x
        shape = local_shape(edge.shape, layout)
        where = positions(edge.shape, layout)
        domain = edge.domain.substitute(where)  # type: ignore[arg-type]
        indices = [
            simplify(_local(entry, where, cuts), (domain,))
            for entry, cuts in zip(edge.map, wanted, strict=True)
        ]
        # Pads may read another's pads, and nothing that is not there.
        if not all(_is_inside(domain, at, n) for at, n in zip(indices, x.value.shape, strict=True)):
            zeros = range(len(layout))
        domain = all_of((domain, is_real(edge.shape, layout, zeros or ())))
        view = made(x.value.shape, shape, indices, domain)
        return Lying(self.mover.builder.view(x.value, view), layout, x.partial, edge.shape)

    def laid(self, value: Value, wanted: Layout, why: str) -> Lying:
        """A value that is no View in a layout; each move of it is made once."""
        kept = self.partials.kept.get(value, {})
        x = self.lying[value]
        match value.node.attrs:
            case WeightAttrs():
                return self._weight(value, x, wanted, why)
            case IotaAttrs() as attrs:
                return self.iota(attrs, wanted)
        if x.partial != kept:
            # Reduced once, to where its site wants it; from there it goes to each reader.
            x = self._reduced(value, kept)
        if x.layout == wanted:
            return x
        key = value, wanted
        if key not in self._moved:
            moved = self.mover.convert(x._replace(partial={}), wanted, self.why(value, why))
            self._moved[key] = moved._replace(partial=x.partial)
        return self._moved[key]

    def iota(self, attrs: IotaAttrs, wanted: Layout) -> Lying:
        """A rank's part of a function of positions is one of its own positions."""
        where = positions(attrs.shape, wanted)
        expr = in_unit_steps(simplify(attrs.expr.substitute(where)))  # type: ignore[arg-type]
        shape = local_shape(attrs.shape, wanted)
        return Lying(self.mover.builder.iota(expr, shape, attrs.dtype), wanted, {}, attrs.shape)

    def _weight(self, value: Value, x: Lying, wanted: Layout, why: str) -> Lying:
        """A Parameter is gathered anew for each that reads it, as the backward pass does long
        after the forward pass: no rank has all Parameters as a whole at once.
        """
        if x.layout == wanted:
            return x
        self.mover.turn = self._turns.get(value, 0)
        self._turns[value] = self.mover.turn + 1
        x = self.mover.convert(x, wanted, self.why(value, why))
        self.mover.turn = 0
        return x

    def _reduced(self, value: Value, partial: Partial) -> Lying:
        x = self.lying[value]
        site = self.sites.value(value).cuts
        for axis in [a for a in x.partial if a not in partial]:
            why = self.why(value, "its terms are on several ranks")
            x = self.mover.reduced(x, axis, site.get(axis), why)
        self.lying[value] = x
        return x

    def why(self, value: Value, why: str) -> Reason:
        return Reason(self._named(value), why)

    def _named(self, value: Value) -> str:
        """Words for a value: its operation and the nearest leaves that have names."""
        if value not in self._names:
            self._names[value] = words_of(value)
        return self._names[value]

    # --- nodes

    def node(self, node: Node) -> None:
        name, group = node.op.name, node.op.group
        if group == "leaf":
            self.lying[node.value] = self._leaf(node)
        elif group == "view":
            return
        elif name == "Gather":
            self._gather(node)
        elif name == "Scatter":
            self._scatter(node)
        elif isinstance(node.attrs, LoopAttrs):
            self._loop(node, node.attrs)
        elif node in self.sites.positions:
            self.plain(node)
        else:
            args = [
                self.at(arg, whole(len(arg.shape)), f"{name} sees all of it") for arg in node.args
            ]
            made_node = self.mover.builder.make(name, args, node.attrs)
            for k, type_ in enumerate(node.types):
                layout = whole(len(type_.shape))
                self.lying[Value(node, k)] = Lying(Value(made_node, k), layout, {}, type_.shape)

    def _leaf(self, node: Node) -> Lying:
        builder = self.mover.builder
        layout = self.sites.value(node.value).layout
        shape = local_shape(node.types[0].shape, layout)
        match node.attrs:
            case InputAttrs(name=name, dtype=dtype):
                value = builder.input(name, shape, dtype)
            case WeightAttrs(name=name, parameter=parameter):
                value = builder.weight(name, self.part_of(parameter, layout))  # type: ignore[arg-type]
            case StateAttrs(state=state):
                value = builder.state(self.part_of(state, layout))  # type: ignore[arg-type]
            case _:
                value = builder.make(node.op.name, (), node.attrs).value
                layout = whole(len(shape))
        return Lying(value, layout, {}, node.types[0].shape)

    def plain(self, node: Node) -> None:
        """An operation along its own positions: element by element, or along one dimension."""
        layout = self.sites.positions[node].layout
        partial = self.partials.of(node)
        why = f"{node.op.name} goes along {_places(layout)}"
        zeros = (node.attrs.axis,) if node.op.name == "Sum" else ()
        reads = [
            self.read(edge_of(arg), layout, why, zeros)
            for arg in (node.args[:1] if node.op.name == "After" else node.args)
        ]
        args = [read.value for read in reads]
        if node.op.name == "After":
            args.append(self.lying[edge_of(node.args[1]).value].value)
        if node.op.name == "Shard":
            self.lying[node.value] = reads[0]
            return
        if node.op.name == "Max":
            args = [self._lowest_in_pads(args[0], node.args[0].shape, layout, node.attrs.axis)]
        made_node = self.mover.builder.make(node.op.name, args, node.attrs)
        if node.op.group == "reduce":
            layout = tuple(cuts for k, cuts in enumerate(layout) if k != node.attrs.axis)
        for k in range(len(node.types)):
            shape = node.types[k].shape
            self.lying[Value(node, k)] = Lying(Value(made_node, k), layout, partial, shape)

    def _lowest_in_pads(self, x: Value, shape: Shape, layout: Layout, axis: int) -> Value:
        """The part of an operand of this shape, whose pads along the axis are lower than all."""
        condition = is_real(shape, layout, (axis,))
        if condition is TRUE:
            return x
        builder = self.mover.builder
        lowest = builder.constant(MAXIMUM.identity(x.dtype), x.dtype)
        mask = builder.iota(condition, x.shape, dtypes.bool_)
        return builder.apply("Select", mask, x, builder.view(lowest, _spread(x.shape)))

    def _entries(
        self, entries: Sequence[Expression | int], shape: Shape, layout: Layout, source: Layout
    ) -> list[Expression | int]:
        where = positions(shape, layout)
        return [
            entry if isinstance(entry, int) else simplify(_local(entry, where, cuts))
            for entry, cuts in zip(entries, source, strict=True)
        ]

    def _kept_inside(
        self, entries: Sequence[Expression | int], extents: Shape
    ) -> list[Expression | int]:
        """The entries, where those of pads are positions that there are, too."""
        return [
            entry
            if isinstance(entry, int) or _is_inside(TRUE, entry, extent)
            else minimum(maximum(entry, 0), extent - 1)
            for entry, extent in zip(entries, extents, strict=True)
        ]

    def _gather(self, node: Node) -> None:
        attrs: GatherAttrs = node.attrs
        layout = self.sites.positions[node].layout
        cuts = gathered(node).of_source(by_axis(layout))
        looked_up = masked(node, self.sites)
        cuts.update({cut.axis: (dimension, cut) for dimension, cut in looked_up})
        wanted = of_axes(len(node.args[0].shape), cuts)
        source = self.read(edge_of(node.args[0]), wanted, "integers look up in it")
        maps = [self.read(edge_of(arg), layout, "it looks up").value for arg in node.args[1:]]
        entries = self._entries(attrs.map, attrs.shape, layout, wanted)
        entries = self._kept_inside(entries, source.value.shape)
        for dimension, cut in looked_up:
            slot = attrs.map[dimension]
            assert isinstance(slot, int)
            maps[slot] = self._shifted(maps[slot], cut, source.shape[dimension])
            entries[dimension] = Slot(slot)
        gather_attrs = GatherAttrs(local_shape(attrs.shape, layout), tuple(entries))
        value = self.mover.builder.make("Gather", [source.value, *maps], gather_attrs).value
        partial = self.partials.of(node)
        self.lying[node.value] = Lying(value, layout, partial, attrs.shape)

    def _shifted(self, x: Value, cut: Cut, extent: Expression) -> Value:
        """Integers as positions in a rank's part; what it does not hold is outside of it."""
        builder = self.mover.builder
        wide = builder.cast(x, dtypes.int64)
        if not is_outermost(extent, cut):
            return self._dealt(wide, cut, extent)
        offset = cut.place * cut.block * -1
        shifted = builder.apply("Add", wide, builder.iota(offset, x.shape, dtypes.int64))
        if not has_pads(extent, (cut,)):
            return shifted
        # An integer past the whole would find a pad.
        is_held = builder.apply("LessThan", wide, builder.iota(extent, x.shape, dtypes.int64))
        outside = builder.iota(const(-1), x.shape, dtypes.int64)
        return builder.apply("Select", is_held, shifted, outside)

    def _dealt(self, x: Value, cut: Cut, extent: Expression) -> Value:
        """Integers as positions in a rank's part, where a cut deals positions out."""
        builder = self.mover.builder

        def each(expr: Expression | int) -> Value:
            return builder.iota(const(0) + expr, x.shape, dtypes.int64)

        turn = builder.apply("FloorDiv", x, each(cut.block))
        is_own = builder.apply(
            "Equal", builder.apply("Mod", turn, each(cut.ranks)), each(cut.place)
        )
        rounds = builder.apply("FloorDiv", x, each(cut.period))
        first = builder.apply("Mul", rounds, each(cut.block))
        place = builder.apply("Add", first, builder.apply("Mod", x, each(cut.block)))
        is_held = builder.apply("And", is_own, builder.apply("LessThan", x, each(extent)))
        return builder.apply("Select", is_held, place, each(-1))

    def _scatter(self, node: Node) -> None:
        attrs: ScatterAttrs = node.attrs
        there = aligned(node, self.sites)
        site = self.sites.positions[node]
        # A later write wins, so that all ranks must see all of them, in their order.
        cuts = (
            site.cuts if attrs.mode == "add" else {a: c for a, c in site.cuts.items() if a in there}
        )
        layout = of_axes(len(site.shape), cuts)
        picked = self._picked(node, there)
        result = of_axes(len(node.types[0].shape), {**there, **picked})
        partial = self.partials.of(node) if attrs.mode == "add" else {}
        dest = edge_of(node.args[0])
        added = partial and not is_zero(node.args[0])
        builder = self.mover.builder
        # Pads add 0, or write pads.
        everywhere = range(len(layout))
        reads = [
            self.read(edge_of(arg), layout, "it is written", everywhere) for arg in node.args[1:]
        ]
        base = self.read(dest, result, "it is written into")
        start = base.value
        if added:
            zero = builder.constant(np.zeros((), node.types[0].dtype.numpy), node.types[0].dtype)
            start = builder.view(zero, _spread(base.value.shape))
        values = [read.value for read in reads]
        entries = self._entries(attrs.map, site.shape, layout, of_axes(len(result), there))
        for dimension, cut in picked.values():
            slot, here = attrs.map[dimension], entries[dimension]
            if isinstance(here, Expression):
                slot = len(values) - 1
                values.append(builder.iota(here, values[0].shape, dtypes.int64))
            assert isinstance(slot, int)
            extent = node.types[0].shape[dimension]
            values[1 + slot] = self._shifted(values[1 + slot], cut, extent)
            entries[dimension] = Slot(slot)
        entries = self._kept_inside(entries, start.shape)
        args = [start, *values]
        value = builder.make("Scatter", args, ScatterAttrs(tuple(entries), attrs.mode)).value
        shape = node.types[0].shape
        lying = Lying(value, result, partial, shape)
        if added:
            lying = self.mover.convert(lying, result, self.why(node.value, "it is added to"))
            total = builder.apply("Add", base.value, lying.value)
            lying = Lying(total, result, {}, shape)
        self.lying[node.value] = lying

    def _picked(
        self, node: Node, aligned_cuts: Mapping[str, tuple[int, Cut]]
    ) -> dict[str, tuple[int, Cut]]:
        """The cuts of a Scatter's result by which each rank picks what it writes: of what replaces
        values all ranks have all, and one of them the place where it goes.
        """
        if node.attrs.mode == "add":
            return {}
        cuts = self.sites.value(node.value).cuts
        dimensions = [dimension for dimension, _ in cuts.values()]
        return {
            axis: (dimension, cut)
            for axis, (dimension, cut) in cuts.items()
            if axis not in aligned_cuts and dimensions.count(dimension) == 1
        }

    def _loop(self, node: Node, attrs: LoopAttrs) -> None:
        body, carried = attrs.body, attrs.carried
        sites = self.sites
        inside = [sites.value(argument.value).layout for argument in body.arguments]
        ys = [sites.value(Value(node, k)).layout[1:] for k in range(carried, len(node.types))]
        # --- operands
        first, streams, invariants = attrs.split(node.args)
        why = "a Loop takes it"
        args: list[Value] = []
        for operand, layout in zip(first, inside, strict=False):
            args.append(self.at(operand, layout, why))
        for operands, leaves, layout in zip(streams, attrs.streams, inside[carried:], strict=False):
            stacked = layout if leaves else ((), *layout)
            args += [self.at(operand, stacked, why) for operand in operands]
        for operand, layout in zip(invariants, inside[carried + len(streams) :], strict=True):
            args.append(self.at(operand, layout, why))
        # --- the body, a block of its own
        outer = self.mover
        trips = outer.trips * attrs.trips
        mover = Mover(Builder(), outer.rows, outer.mesh, outer.order, trips=trips)
        nodes = topological([*(a.value for a in body.arguments), *body.results])
        block = self.inner(nodes, body.results, mover)
        arguments = []
        for argument in body.arguments:
            lying = block._leaf(argument)
            block.lying[argument.value] = lying
            arguments.append(lying.value.node)
        block.run()
        wanted = (*inside[:carried], *ys)
        results = [
            block.at(result, layout, "a Loop carries it")
            for result, layout in zip(body.results, wanted, strict=True)
        ]
        new_body = Body(tuple(arguments), tuple(results))
        # What it assigns, sinks assign.
        new_attrs = attrs._replace(body=new_body, assigned=(None,) * len(attrs.assigned))
        made_node = outer.builder.make("Loop", args, new_attrs)
        layouts = (*inside[:carried], *(((), *layout) for layout in ys))
        for k, layout in enumerate(layouts):
            shape = node.types[k].shape
            self.lying[Value(node, k)] = Lying(Value(made_node, k), layout, {}, shape)


def _local(
    entry: Expression | int, where: Mapping[Expression, Expression], cuts: Cuts
) -> Expression:
    assert isinstance(entry, Expression)
    return to_local(entry.substitute(where), cuts)  # type: ignore[arg-type]


def _is_inside(domain: Expression, position: Expression, extent: Expression) -> bool:
    """Is the position proven to be one of so many, wherever the domain holds?"""
    facts = () if domain is TRUE else (domain,)
    return bool(prove(position >= 0, facts) and prove(position < extent, facts))


def _spread(shape: Shape) -> View:
    """The view of a scalar that has this shape."""
    return made((), shape, [])


def _places(layout: Layout) -> str:
    return "whole dimensions" if not any(layout) else text(layout)


_FAR = 256
"""Operations that are looked through for the name of a value: a tanh alone is some twenty."""
_NAMES = 2
"""Leaves that a value is named by."""


def words_of(value: Value) -> str:
    """A value by its operation and the leaves with names that are nearest above it."""
    names: dict[str, None] = {}
    waiting, seen = deque([value.node]), {value.node}
    while waiting and len(names) < _NAMES and len(seen) < _FAR:
        node = waiting.popleft()
        match node.attrs:
            case InputAttrs(name=name) | WeightAttrs(name=name):
                names[name] = None
            case StateAttrs(state=state):
                names[state.name] = None
        waiting.extend(arg.node for arg in node.args if arg.node not in seen)
        seen.update(arg.node for arg in node.args)
    of = ", ".join([*names][:_NAMES])
    return f"{value.node.op.name} of {of}" if of and value.node.args else of or value.node.op.name
