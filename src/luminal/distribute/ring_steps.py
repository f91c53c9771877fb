"""What a rank does in a ring: chunk after chunk of the keys comes by, and its reductions go on.

In step t a rank has the keys of the rank t places ahead and sends them to the one behind, so that
after all steps each has seen all keys, and holds two chunks at most. What is computed of a chunk is
the region itself, in which the dimension of the keys is cut as that rank's is: masks and pads are
functions of positions and follow. Then

    over the keys       a chunk's result is joined with that of those before. A sum that follows a
                        maximum is multiplied by how far the maximum has moved since, as in a kernel
                        that streams: (maximum, sum, weighted sum) is a monoid, so it means the same
                        in whatever chunks and order it is joined.
    over the queries    the sum of the ranks' parts travels with the keys, each rank adds its own,
                        and the owner of the keys, where it ends, what it has computed first.

So a rank sends what an all_gather of the keys and a reduce_scatter of their gradients would.
Liu, Zaharia and Abbeel, Ring Attention, arXiv 2310.01889.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from luminal.distribute.block import Block, PartOf
from luminal.distribute.edges import edge_of
from luminal.distribute.layout import Cut, Layout, ahead, by_axis, of_axes
from luminal.distribute.move import Lying, Mover
from luminal.distribute.propagate import Site, Sites
from luminal.distribute.rings import Joint, Pass, Rate, Ring, joints, passes_of
from luminal.hlir.attributes import IotaAttrs
from luminal.hlir.graph import Builder
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import ONE, ZERO, Expression, const, product_of, sum_of
from luminal.shape.view import index, made, pad, reshape


class RingBlock(Block):
    """A block with rings among its nodes."""

    def __init__(
        self,
        nodes: Sequence[Node],
        roots: Sequence[Value],
        sites: Sites,
        mover: Mover,
        part_of: PartOf,
        rings: Sequence[Ring],
    ) -> None:
        super().__init__(nodes, roots, sites, mover, part_of)
        self._rings = rings
        self._passes: dict[Node, tuple[Ring, Pass, int]] = {}
        self._inside: set[Node] = set()
        here = {*nodes} if rings else set()
        for ring in rings:
            if ring.nodes <= here:
                self._inside |= ring.nodes
                for turn, one in enumerate(passes_of(ring, nodes)):
                    for node in (*one.over_keys, *one.over_queries):
                        self._passes[ring.ends.get(node, node)] = ring, one, turn
        self._joints = {
            node: joint for joint in joints(nodes, sites, rings) for node in joint.one.over_keys
        }

    def inner(self, nodes: Sequence[Node], roots: Sequence[Value], mover: Mover) -> Block:
        """See `Block`: the block of a Loop's body."""
        return RingBlock(nodes, roots, self.sites, mover, self.part_of, self._rings)

    def node(self, node: Node) -> None:
        """See `Block`. Of a region and a joint only reductions are there for others."""
        if node in self._passes:
            self._go_around(*self._passes[node])
        elif node in self._joints:
            self._join(self._joints[node])
        elif node not in self._inside:
            super().node(node)

    def _have(self, values: Sequence[Value]) -> None:
        """Writes what these values need, if that has not been done."""
        waiting = [value.node for value in values]
        while waiting:
            node = waiting[-1]
            missing = [edge_of(arg).value for arg in node.args]
            missing = [value for value in missing if value not in self.lying]
            if node.value in self.lying:
                waiting.pop()
            elif missing and node not in self._passes and node not in self._joints:
                waiting += [value.node for value in missing]
            else:
                self.node(waiting.pop())

    def _join(self, joint: Joint) -> None:
        """A maximum over keys of which each rank has its own, and what follows it."""
        maximum, one, axis = joint.one.maximum, joint.one, joint.axis
        assert maximum is not None
        inside = {maximum, *one.nodes}
        reads = (edge_of(arg).value for node in inside for arg in node.args)
        self._have([value for value in reads if value.node not in inside])
        super().node(maximum)
        alone = _Alone(self, one, axis)
        alone.lying[maximum.value] = _without(self.lying[maximum.value], axis)
        alone.run()
        parts = {node: alone.lying[node.value] for node in one.over_keys}
        level = self._of_all(parts, joint)
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            joined = [_joined(alone, one, a, b) for a, b in pairs]
            level = joined + level[len(joined) * 2 :]
        for node, x in level[0].items():
            self.lying[node.value] = x
            self.partials.kept.get(node.value, {}).pop(axis, None)

    def _of_all(self, parts: dict[Node, Lying], joint: Joint) -> list[dict[Node, Lying]]:
        """The parts of every rank, which one collective brings."""
        builder, ranks = self.mover.builder, joint.ranks
        sizes = [product_of(x.value.shape) for x in parts.values()]
        total, row = sum_of(sizes), None
        for number, (x, size) in enumerate(zip(parts.values(), sizes, strict=True)):
            flat = builder.view(x.value, reshape(x.value.shape, (ONE, size)))
            before = sum_of(sizes[:number])
            room = ((ZERO, ZERO), (before, total - before - size))
            wide = builder.view(flat, pad((ONE, size), room))
            row = wide if row is None else builder.apply("Add", row, wide)
        assert row is not None
        why = self.why(next(iter(parts)).value, "each rank has the maximum and sums of its keys")
        rows = self.mover.collective(row, "all_gather", Cut(joint.axis, ranks, ONE), why)
        out: list[dict[Node, Lying]] = [{} for _ in range(ranks)]
        for number, (node, x) in enumerate(parts.items()):
            place: Expression = ZERO
            for k, extent in enumerate(x.value.shape):
                place = place * extent + (ZERO if extent == ONE else index(k, extent))
            before = sum_of(sizes[:number])
            for rank in range(ranks):
                view = made(rows.shape, x.value.shape, [const(rank), before + place])
                out[rank][node] = x._replace(value=builder.view(rows, view))
        return out

    def _go_around(self, ring: Ring, one: Pass, turn: int) -> None:
        """All reductions of a pass."""
        inside = {*one.nodes}
        reads = (edge_of(arg).value for node in one.nodes for arg in node.args)
        self._have([value for value in reads if value.node not in inside])
        begun = None if one.begins is None else self.lying[one.begins].value
        travels = _Travels(self, ring, turn, begun)
        total: dict[Node, Lying] = {}
        first: dict[Node, Lying] = {}
        for step in range(ring.ranks):
            chunk = _Chunk(self, ring, one, travels, step)
            chunk.run()
            parts = {node: chunk.lying[node.value] for node in one.over_keys}
            total = _joined(chunk, one, total, parts) if step else parts
            for node in one.over_queries:
                end = ring.ends[node]
                part = chunk.lying[end.value]
                if not step:
                    first[end] = part
                elif step == 1:
                    total[end] = part
                else:
                    before = travels.one_further(total[end].value, end.value)
                    total[end] = part._replace(value=_sum(self.mover.builder, before, part.value))
            travels.done.append(next(iter(parts.values() or first.values())).value)
        for end, part in first.items():
            came = travels.one_further(total[end].value, end.value)
            layout = ring.home(part.layout)
            value = _sum(self.mover.builder, came, part.value)
            total[end] = part._replace(value=value, layout=layout, partial={})
        for node, x in total.items():
            self.lying[node.value] = _without(x, ring.axis)


class _Travels:
    """What is sent around in one pass."""

    def __init__(self, block: RingBlock, ring: Ring, turn: int, begun: Value | None) -> None:
        self._block, self._ring, self._turn, self._begun = block, ring, turn, begun
        self._chunks: dict[tuple[Value, Layout], list[Value]] = {}
        self.done: list[Value] = []
        """Of each step so far something that it has computed."""

    def at(self, value: Value, x: Lying, step: int) -> Value:
        """A value that lies so on all ranks, as the rank some steps ahead has it."""
        after = self._block.mover.builder.after
        if (value, x.layout) not in self._chunks:
            # A later pass has its own: what it computes of them is not kept since the first one.
            first = x.value if self._begun is None else after(x.value, self._begun)
            self._chunks[value, x.layout] = [first]
        chunks = self._chunks[value, x.layout]
        while (number := len(chunks)) <= step:
            # The next chunk takes the place of the one before this one.
            is_there = number < 2
            last = chunks[-1] if is_there else after(chunks[-1], self.done[number - 2])
            chunks.append(self.one_further(last, value))
        return chunks[step]

    def one_further(self, x: Value, what: Value) -> Value:
        """What the next rank has."""
        ranks, mover = self._ring.ranks, self._block.mover
        pairs = tuple(((rank + 1) % ranks, rank) for rank in range(ranks))
        cut = Cut(self._ring.axis, ranks, ONE)
        reason = self._block.why(what, "keys and what belongs to them go around")
        return mover.collective(x, "permute", cut, reason, pairs=pairs, turn=self._turn)


class _OfOne(Block):
    """The nodes of a pass for the keys of one rank along `_axis`: they are joined later."""

    _axis: str

    def plain(self, node: Node) -> None:
        """See `Block`. Nothing is left to be reduced over the ranks."""
        super().plain(node)
        self.lying[node.value] = _without(self.lying[node.value], self._axis)


class _Chunk(_OfOne):
    """The nodes of a pass for the keys of one rank."""

    def __init__(
        self, outer: RingBlock, ring: Ring, one: Pass, travels: _Travels, step: int
    ) -> None:
        self._outer, self._ring, self._pass, self._travels = outer, ring, one, travels
        self._step, self._axis = step, ahead(ring.axis, step)
        ends = [ring.ends.get(n, n) for n in (*one.over_keys, *one.over_queries)]
        sites = _sites_at(outer.sites, ring, one.nodes, self._axis)
        roots = [end.value for end in ends]
        super().__init__(one.nodes, roots, sites, outer.mover, outer.part_of)

    def laid(self, value: Value, wanted: Layout, why: str) -> Lying:
        """See `Block`. What is cut as the keys are comes from the rank that has it."""
        if value in self.lying:
            return super().laid(value, wanted, why)
        if isinstance(value.node.attrs, IotaAttrs):
            return self.iota(value.node.attrs, wanted)
        if self._axis not in by_axis(wanted):
            return self._outer.laid(value, wanted, why)
        node = value.node
        if node.op.name == "Cast" and node.args[0].dtype.size < value.dtype.size:
            x = self.read(edge_of(node.args[0]), wanted, why)  # as few bytes as there are
            return x._replace(value=self.mover.builder.cast(x.value, value.dtype))
        dimension, cut = by_axis(wanted)[self._axis]
        if self._ring.axis not in by_axis(self._outer.lying[value].layout):
            left = {axis: at for axis, at in by_axis(wanted).items() if axis != self._axis}
            x = self._outer.laid(value, of_axes(len(wanted), left), why)
            return self.mover.sliced(x, dimension, cut)
        x = self._outer.laid(value, self._ring.home(wanted), why)
        return x._replace(value=self._travels.at(value, x, self._step), layout=wanted)


class _Alone(_OfOne):
    """What follows a maximum, of a rank's own keys."""

    def __init__(self, outer: RingBlock, one: Pass, axis: str) -> None:
        self._outer, self._axis = outer, axis
        roots = [node.value for node in one.over_keys]
        super().__init__(one.nodes, roots, outer.sites, outer.mover, outer.part_of)

    def laid(self, value: Value, wanted: Layout, why: str) -> Lying:
        """See `Block`. What does not follow the maximum lies as it does outside."""
        if value in self.lying:
            return super().laid(value, wanted, why)
        return self._outer.laid(value, wanted, why)


def _without(x: Lying, axis: str) -> Lying:
    """The value with nothing left to be reduced along the axis."""
    return x._replace(partial={other: how for other, how in x.partial.items() if other != axis})


def _sites_at(sites: Sites, ring: Ring, nodes: Sequence[Node], axis: str) -> Sites:
    """The sites of nodes, where the region's are cut along the keys, too."""

    def at(site: Site) -> Site:
        if site not in ring.keys:
            return site
        dimension, cut = ring.keys[site]
        cuts = dict(site.cuts)
        if site not in ring.queries:
            cuts.pop(ring.axis, None)
        return Site(site.shape, {**cuts, axis: (dimension, cut._replace(axis=axis))})

    out = Sites()
    for node in nodes:
        if node in sites.positions:
            out.positions[node] = at(sites.positions[node])
            out.values[node.value] = at(sites.value(node.value))
    return out


def _joined(
    chunk: Block, one: Pass, total: dict[Node, Lying], parts: dict[Node, Lying]
) -> dict[Node, Lying]:
    """The reductions over the keys so far and those of one more chunk."""
    builder, out = chunk.mover.builder, {}
    top = one.maximum
    if top is not None:
        value = builder.apply("Maximum", total[top].value, parts[top].value)
        out[top] = parts[top]._replace(value=value)
    for node, part in parts.items():
        if node is top:
            continue
        both = [total[node], part]
        rate = one.rates.get(node)
        if rate is not None and top is not None:
            both = [
                _rescaled(chunk, x, rate, before[top], out[top])
                for x, before in zip(both, (total, parts), strict=True)
            ]
        combine = REDUCTIONS[node.op.name].combine
        value = builder.apply(combine, *(x.value for x in both))
        out[node] = part._replace(value=value)
    return {**total, **out}


def _rescaled(chunk: Block, x: Lying, rate: Rate, before: Lying, after: Lying) -> Lying:
    """A sum that followed one maximum as if it had followed another one, which is not below it."""
    builder, shape = chunk.mover.builder, x.value.shape

    def at_each(number: float) -> Value:
        one = builder.constant(np.array(number, x.value.dtype.numpy), x.value.dtype)
        return builder.view(one, made((), shape, []))

    edge = rate.edge
    wanted = of_axes(len(before.layout), edge.of_source(by_axis(x.layout)))
    why = chunk.why(edge.value, "sums follow it")
    maxima = (chunk.mover.convert(m, wanted, why) for m in (before, after))
    old, new = (chunk.viewed(m, edge, x.layout).value for m in maxima)
    moved = builder.apply("Add", new, builder.apply("Mul", old, at_each(-1.0)))
    factor = builder.apply(rate.base, builder.apply("Mul", moved, at_each(rate.factor)))
    # A chunk of which a mask hides all from a query has nothing to add, and NaN for that.
    is_hidden = builder.apply("Equal", old, at_each(-np.inf))
    scaled = builder.apply("Mul", x.value, factor)
    return x._replace(value=builder.apply("Select", is_hidden, at_each(0.0), scaled))


def _sum(builder: Builder, a: Value, b: Value) -> Value:
    return builder.apply("Add", a, b)
