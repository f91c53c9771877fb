"""What each launch of a program computes: the values of the graph, by the steps it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from luminal.algebra.terms import Term
from luminal.compiler.compile import Stages
from luminal.kernel.fused import Fused, Place
from luminal.program.launch_list import CollectiveLaunch, KernelLaunch
from luminal.program.selection import Selection
from luminal.program.steps import CustomStep, KernelStep
from luminal.viz.terms import TermValues
from luminal.viz.values import Ids


class Computed:
    """The values that the launches and kernels of a compile compute."""

    def __init__(self, compiled: Stages, values: TermValues) -> None:
        self.compiled = compiled
        self._values = values
        self._opaque: dict[int, list[Term]] = {}
        for selection in selections(compiled.selection):
            for term in selection.choices:
                if term.is_opaque:
                    self._opaque.setdefault(id(term.attrs.hlir), []).append(term)
        self._of_steps: dict[int, Ids] = {}

    def of(self, launch: KernelLaunch | CollectiveLaunch) -> Ids:
        """The values that a launch computes, or a part of."""
        if isinstance(launch, CollectiveLaunch):
            return self._of_opaque(launch.attrs)
        steps = self.steps(launch)
        return _joined(self._of_step(step) for step in steps)

    def stored(self, launch: KernelLaunch) -> Ids:
        """The values that a launch stores, of all that it computes."""
        fused = [step.fused for step in self.steps(launch) if not isinstance(step, CustomStep)]
        if not fused:
            return self.of(launch)
        stores = (store.term for kernel in fused for store in kernel.stores)
        return _joined(map(self._values, stores))

    def steps(self, launch: KernelLaunch) -> list[KernelStep | CustomStep]:
        """The steps that a launch carries out: one, or those that were joined."""
        steps = self.compiled.origins[launch.kernel].steps
        operands = set(launch.operands)
        mine = [step for step in steps if {p.operand for p in _places(step)} <= operands]
        return mine or [*steps]

    def of_kernel(self, number: int) -> Ids:
        """The values that some launch of a kernel computes."""
        return _joined(self._of_step(step) for step in self.compiled.origins[number].steps)

    def _of_step(self, step: KernelStep | CustomStep) -> Ids:
        if id(step) not in self._of_steps:
            if isinstance(step, CustomStep):
                self._of_steps[id(step)] = self._of_opaque(step.attrs)
            else:
                terms = [t for t in step.fused.terms if t not in step.fused.reads]
                stored = [root for store in step.fused.stores for root in store.roots]
                terms = terms or stored  # a copy computes what it copies
                self._of_steps[id(step)] = _joined(map(self._values, terms))
        return self._of_steps[id(step)]

    def _of_opaque(self, attrs: Any) -> Ids:
        return _joined(map(self._values, self._opaque.get(id(attrs), ())))


def _places(step: KernelStep | CustomStep) -> list[Place]:
    if isinstance(step, CustomStep):
        return [*step.operands, *step.results]
    fused: Fused = step.fused
    return [*(store.place for store in fused.stores), *fused.reads.values()]


def _joined(ids: Iterator[Ids] | map[Ids]) -> Ids:
    return tuple(sorted({n for some in ids for n in some}))


def selections(selection: Selection) -> Iterator[Selection]:
    """The Selection of a program and those of its Loops' bodies."""
    yield selection
    for body in selection.bodies.values():
        yield from selections(body)
