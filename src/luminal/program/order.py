"""The order of units: what needs one comes after it, and what need not wait stands side by side.

Between two barriers kernels run side by side (`launch_list.barriers`): chunks of the next are
claimed as soon as those of the one before are, without a word of either kernel. So products of one
row by q's, k's and v's weights are one sweep of the team, branches of a network too, where no
barrier comes between them. What a list has at least of barriers is its longest path: on it every
unit has its *epoch*, any other one may choose from the first that it can run in to the last that
holds nothing up.

Units are sorted depth first, which reads values soon after they were made and lets their memory go
early. Then each stays where it stands, unless that is too late: it moves up to its last epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from luminal.base.errors import VerifyError
from luminal.hlir.ops import Value
from luminal.program.steps import CollectiveStep, Unit

_Needs = Mapping[int, list[Unit]]
"""By id of a unit, those that it runs after."""


def ordered(units: list[Unit]) -> list[Unit]:
    """Makers before readers, readers of old values before overwriters, in as few epochs as can be.

    A copy that several units read may be given several times. Raises VerifyError where units wait
    for each other.
    """
    needs = _needs(units)
    sorted_units = _by_rounds(_depth_first(units, needs), needs)
    early = [unit for unit in sorted_units if unit.early]
    late = [unit for unit in sorted_units if not unit.early]
    return _side_by_side(early, needs) + _side_by_side(late, needs)


def _needs(units: list[Unit]) -> _Needs:
    makers = {term: unit for unit in units for term in unit.makes}
    number = {id(unit): k for k, unit in enumerate(units)}
    readers: dict[Value, list[Unit]] = {leaf: [] for unit in units for leaf in unit.overwrites}
    for unit in units:
        for leaf in unit.leaves & readers.keys():
            readers[leaf].append(unit)
    needs: dict[int, list[Unit]] = {}
    for unit in units:
        waits = [makers[t] for t in unit.reads if t in makers and makers[t] is not unit]
        waits += [u for leaf in unit.overwrites for u in readers[leaf] if u is not unit]
        waits += unit.before
        waits += [makers[unit.after]] if unit.after is not None else []
        needs[id(unit)] = sorted(waits, key=lambda u: number[id(u)])
    return needs


def _depth_first(units: list[Unit], needs: _Needs) -> list[Unit]:
    """A stable topological order, every unit once."""
    order: list[Unit] = []
    done: set[int] = set()
    begun: set[int] = set()  # and not done: what the unit at hand is waited for by
    for first in units:
        stack = [first]
        while stack:
            unit = stack[-1]
            waiting = [u for u in needs[id(unit)] if id(u) not in done]
            if id(unit) in done or not waiting:
                if id(unit) not in done:
                    done.add(id(unit))
                    order.append(unit)
                stack.pop()
            elif id(unit) in begun:
                raise VerifyError(f"partition: kernels wait for each other: {_circle(waiting)}")
            else:
                begun.add(id(unit))
                stack.extend(reversed(waiting))
    return order


# Depth first has a value's readers follow it. Behind a collective that is where they would wait for
# it, and for the next one behind the next: what needs none of both is to run meanwhile.
def _by_rounds(order: list[Unit], needs: _Needs) -> list[Unit]:
    """These units, those first that need fewer collectives one after the other, each round in the
    order given.
    """
    collectives = {id(unit) for unit in order if _is_collective(unit)}
    if not collectives:
        return order
    rounds: dict[int, int] = {}
    for unit in order:
        # That one collective comes after another is no need of what that one makes.
        read = [
            n
            for n in needs[id(unit)]
            if id(n) in collectives and not unit.reads.isdisjoint(n.makes)
        ]
        behind = max((rounds[id(n)] + 1 for n in read), default=0)
        rounds[id(unit)] = max((rounds[id(n)] for n in needs[id(unit)]), default=0)
        rounds[id(unit)] = max(rounds[id(unit)], behind)
    return sorted(order, key=lambda unit: rounds[id(unit)])


def _is_collective(unit: Unit) -> bool:
    return any(isinstance(step, CollectiveStep) for step in unit.steps)


# Depth first keeps values near their readers, so memory is used again soon. But it puts a unit that
# could run beside others behind a barrier. So a unit stays where depth first has it unless the
# longest path waits for it: there are as many epochs as that path is long.
def _side_by_side(order: list[Unit], needs: _Needs) -> list[Unit]:
    """These units by epochs, those of one in the order given. A unit takes one for each step."""
    inside = {id(unit) for unit in order}
    waits = {id(u): [n for n in needs[id(u)] if id(n) in inside] for u in order}
    first: dict[int, int] = {}  # epochs that units can begin in
    for unit in order:
        first[id(unit)] = _end(waits[id(unit)], first)
    end = _end(order, first)
    last = dict.fromkeys(inside, end)
    for unit in reversed(order):
        last[id(unit)] -= len(unit.steps)
        for other in waits[id(unit)]:
            last[id(other)] = min(last[id(other)], last[id(unit)])
    begins: dict[int, int] = {}
    reached = 0
    for unit in order:
        ready = _end(waits[id(unit)], begins)
        reached = max(reached, ready)
        begins[id(unit)] = min(reached, last[id(unit)])
    return sorted(order, key=lambda unit: begins[id(unit)])


def _end(units: Iterable[Unit], begins: Mapping[int, int]) -> int:
    """The epoch after the last of these."""
    return max((begins[id(unit)] + len(unit.steps) for unit in units), default=0)


def _circle(units: list[Unit]) -> str:
    return ", ".join(repr(term) for unit in units for term in unit.makes)
