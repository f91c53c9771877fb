"""What the running maximum and sums of a cascade are computed by: rescaling factors and folds."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dots import multiply_add
from luminal.base.dtypes import bool_
from luminal.hlir.monoid import MAXIMUM, Monoid
from luminal.kernel.cascade import Rate
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.tile_ir import Carry, Contract, Map, Reduce, Tile
from luminal.shape.expression import Symbol


class Arithmetic:
    """Statements on tiles, in the open loops; operands of one have one dtype."""

    def __init__(self, values: Evaluator) -> None:
        self.values = values
        self.blocks = values.blocks

    def apply(self, op: str, *args: Tile) -> Tile:
        return self.values.map(op, args, bool_ if op == "Equal" else args[-1].dtype)

    def safe(self, maximum: Tile) -> Tile:
        """The maximum as it enters exponents."""
        # While all scores are -inf, so is the maximum, and -inf - -inf would be NaN in every term.
        none = self.values.identity(MAXIMUM, maximum.dtype)
        zero = self.values.constant(0, maximum.dtype)
        return self.apply("Select", self.apply("Equal", maximum, none), zero, maximum)

    def moved(self, rate: Rate, old: Tile, new: Tile) -> Tile:
        """`new == old ? 1 : exp(c*(new - old))`."""
        # The first move, from -inf, multiplies what was summed before any finite score by
        # exp(-inf). Equal ones may be infinite: their difference is NaN, but sums that stay are not
        # touched.
        minus, one, factor = (self.values.constant(x, new.dtype) for x in (-1, 1, rate.factor))
        difference = self.apply("Add", new, self.apply("Mul", old, minus))
        power = self.apply(rate.base, self.apply("Mul", difference, factor))
        return self.apply("Select", self.apply("Equal", new, old), one, power)

    def fold(
        self, folds: Sequence[tuple[Monoid, Tile]], values: Sequence[tuple[Tile, ...]]
    ) -> list[Tile]:
        """Closes a loop that folds values (two: their product) into accumulators, each by a monoid.

        Where it goes in tiles, there is one of these per position; they are folded after it.
        """
        # One chain of dependent additions would wait for each: tiles keep several side by side.
        depth = self.blocks.depth
        loop = self.blocks.stack[-1].loop
        assert loop is not None
        carries = []
        for (monoid, init), value in zip(folds, values, strict=True):
            axes = {a for tile in (init, *value) for a in tile.axes}
            inner, after = (self.blocks.new(axes, init.dtype, depth) for _ in range(2))
            if len(value) == 2:
                # A product and its sum as one statement, which becomes one instruction with one
                # rounding where the machine has it.
                self.blocks.put(Contract(after, inner, *value, multiply_add(init.dtype)), depth)
            else:
                self.blocks.put(Map(after, monoid.combine, (inner, *value)), depth)
            result = self.blocks.new(axes, init.dtype, depth - 1)
            carries.append(Carry(result, init, inner, after))
        self.blocks.close(tuple(carries))
        monoids = (monoid for monoid, _ in folds)
        pairs = zip(monoids, carries, strict=True)
        return [self.folded(monoid, loop[0], carry.result) for monoid, carry in pairs]

    def folded(self, monoid: Monoid, axis: Symbol, parts: Tile) -> Tile:
        if axis not in parts.axes:
            return parts
        whole = self.blocks.new(set(parts.axes) - {axis}, parts.dtype, self.blocks.depth)
        self.blocks.put(Reduce(whole, monoid.combine, parts, axis), self.blocks.depth)
        return whole
