"""What a kernel stores, at a point of its grid."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.algebra.scatter import owner_of
from luminal.algebra.terms import Term
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.fused import Store
from luminal.kernel.loops import LoopAxis
from luminal.kernel.neighbours import copied
from luminal.kernel.schedule import Schedule
from luminal.shape.expression import TRUE, Expression, all_of, const


class Stores:
    """Writes the stores of a kernel, those over the same remaining axes in one loop nest."""

    def __init__(self, stores: Sequence[Store], schedule: Schedule, values: Evaluator) -> None:
        self.stores = stores
        self.schedule = schedule
        self.values = values
        self.blocks = values.blocks

    def write(self, env: Env) -> None:
        """All stores at this point of the grid."""
        waiting = list(self.stores)
        while waiting:
            loops = self.remaining(waiting[0])
            siblings = [s for s in waiting if self.remaining(s) == loops]
            waiting = [s for s in waiting if s not in siblings]
            inside = env
            for loop in loops:
                extent = self.values.canonical(loop.extent)
                symbol = self.blocks.fresh_axis(extent)
                self.blocks.open(symbol, const(0), extent, self.schedule.tile(loop))
                inside = inside.bind(loop.positions(symbol))
            for store in siblings:
                self.store(store, inside)
            for _ in loops:
                self.blocks.close()
            # Stores over other axes come after these loops, and may read what they have staged.
            if loops:
                self.values.staged_at([inside])

    def remaining(self, store: Store) -> list[LoopAxis]:
        """The loop axes of a store inside of the grid."""
        return [x for x in self.schedule.inner if x.members[0] in store.axes]

    def store(self, store: Store, env: Env) -> None:
        """One store, at a point of all its axes."""
        if store.index is not None:
            self.scatter(store, store.index, env)
            return
        words = copied(self.values.fused)
        if words is not None:  # the loops around walk words
            along, count = words
            near = self.blocks.open_neighbours(count)
            env = env.bind({along: env.values[along] + near})
        value = self.values.evaluate(store.term, env)
        self.values.store(store.place, store.offset(env.values), value, TRUE, add=store.add)
        if words is not None:
            self.blocks.close()

    def scatter(self, store: Store, index: Sequence[Expression | Term], env: Env) -> None:
        """One store to a computed place, guarded to lie inside."""
        is_owned = any(isinstance(x, Term) and owner_of(x) is not None for x in index)
        value = None if is_owned else self.values.evaluate(store.term, env)
        place = store.place
        positions: list[Expression] = []
        guards: list[Expression] = []
        for entry, extent in zip(index, place.shape, strict=True):
            position: Expression
            if isinstance(entry, Term):
                position = self.values.bind(self.values.evaluate(entry, env))
            else:
                position = entry.substitute(env.values)
            positions.append(position)
            both = position >= 0, position < extent
            guards += [condition for condition in both if not self.values.holds(condition)]
        offset, inside = place.layout.offset(positions, place.shape), all_of(guards)
        if value is None:  # most of what an owner walks is not its own: it loads nothing of that
            value = self.values.evaluate(store.term, Env(env.values, all_of((env.guard, inside))))
        self.values.store(place, offset, value, inside, add=store.add)
