"""What a kernel of tile IR does, counted without running it: operations of each kind, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from luminal.kernel.tile_ir import Contract, If, Kernel, Load, Loop, Map, Statement, Store
from luminal.shape.expression import Symbol


def work(kernel: Kernel, params: dict[str, int] | None = None) -> Counter[str]:
    """Elements computed by Contracts and by each op of Maps, of loads and stores by buffer."""
    moving = {symbol for symbol, _ in _bounds(kernel.body)}
    counts = [(g.axis, int(g.count.evaluate(params or {}))) for g in kernel.grid]
    alike = 1
    for axis, count in counts:
        alike *= 1 if axis in moving else count
    ranges = [range(count) if axis in moving else range(1) for axis, count in counts]
    total: Counter[str] = Counter()
    counted = _Counted()
    for point in product(*ranges):
        env = dict(params or {})
        env.update({axis.name: k for (axis, _), k in zip(counts, point, strict=True)})
        total += _scaled(counted.body(kernel.body, env, {}), alike)
    return total


def _bounds(body: Iterable[Statement]) -> Iterator[tuple[Symbol, Statement]]:
    """The symbols that bounds of loops and conditions depend on."""
    for statement in body:
        if isinstance(statement, Loop):
            for expr in (statement.start, statement.stop):
                yield from ((symbol, statement) for symbol in expr.symbols())
            yield from _bounds(statement.body)
        elif isinstance(statement, If):
            yield from ((symbol, statement) for symbol in statement.condition.symbols())
            yield from _bounds(statement.body)


class _Counted:
    """Of a kernel's bodies; of a loop once for the same values of what its bounds depend on."""

    def __init__(self) -> None:
        self.moving: dict[int, frozenset[Symbol]] = {}
        self.loops: dict[Any, Counter[str]] = {}

    def body(
        self, body: Iterable[Statement], env: dict[str, int], loops: dict[Symbol, tuple[int, int]]
    ) -> Counter[str]:
        """`loops`: of the open loops with tiles, the positions and the steps."""
        total: Counter[str] = Counter()
        for statement in body:
            match statement:
                case Loop():
                    total.update(self.loop(statement, env, loops))
                case If() if statement.condition.evaluate(env):
                    total.update(self.body(statement.body, env, loops))
                case Contract():
                    total["Contract"] += _elements(statement.out.axes, loops)
                case Map():
                    total[statement.op] += _elements(statement.out.axes, loops)
                case Load():
                    total[f"load {statement.buffer}"] += _elements(statement.out.axes, loops)
                case Store():
                    total[f"store {statement.buffer}"] += _elements(statement.value.axes, loops)
        return total

    def loop(
        self, loop: Loop, env: dict[str, int], loops: dict[Symbol, tuple[int, int]]
    ) -> Counter[str]:
        values = tuple(env.get(symbol.name) for symbol in self.symbols(loop))
        key = id(loop), values, tuple(loops.items())
        if key not in self.loops:
            self.loops[key] = self._loop(loop, env, loops)
        return self.loops[key]

    def symbols(self, loop: Loop) -> frozenset[Symbol]:
        """That its bounds, and those inside of it, depend on."""
        if id(loop) not in self.moving:
            self.moving[id(loop)] = frozenset(symbol for symbol, _ in _bounds([loop]))
        return self.moving[id(loop)]

    def _loop(
        self, loop: Loop, env: dict[str, int], loops: dict[Symbol, tuple[int, int]]
    ) -> Counter[str]:
        start, stop = int(loop.start.evaluate(env)), int(loop.stop.evaluate(env))
        if stop <= start:
            return Counter()
        if loop.axis in self.symbols(loop):
            assert loop.tile == 1, "bounds depend on a loop's steps, not on positions of its tiles"
            total: Counter[str] = Counter()
            for position in range(start, stop):
                total.update(self.body(loop.body, {**env, loop.axis.name: position}, loops))
            return total
        steps = -(-(stop - start) // loop.tile)
        return self.body(loop.body, env, {**loops, loop.axis: (stop - start, steps)})


def _elements(axes: Iterable[Symbol], loops: dict[Symbol, tuple[int, int]]) -> int:
    """In a tile along a loop each position is an element, otherwise each step is one."""
    count = 1
    for axis, (positions, steps) in loops.items():
        count *= positions if axis in axes else steps
    return count


def _scaled(counts: Counter[str], factor: int) -> Counter[str]:
    return Counter({name: factor * count for name, count in counts.items()})
