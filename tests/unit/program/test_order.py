"""The order of units: right, of as few barriers as can be, else as values are asked for."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from luminal.algebra.terms import Term, Terms
from luminal.base.dtypes import float32
from luminal.base.errors import VerifyError
from luminal.program.order import ordered
from luminal.program.steps import Step, Unit


def values(count: int) -> list[Term]:
    terms = Terms()
    return [terms.literal(np.float32(k).tobytes(), float32) for k in range(1, count + 1)]


def unit(made: Term, reads: tuple[Term, ...] = (), steps: int = 1, early: bool = False) -> Unit:
    return Unit((made,), frozenset(reads), cast(tuple[Step, ...], ("step",) * steps), early=early)


def epochs(order: list[Unit]) -> int:
    """The steps between barriers, if one stands only where a unit reads what was made since."""
    count, made = 1, set[Term]()
    for each in order:
        if each.reads & made:
            count, made = count + 1, set()
        count += max(len(each.steps) - 1, 0)
        made = set() if len(each.steps) > 1 else made
        made |= set(each.makes)
    return count


def longest(order: list[Unit]) -> int:
    found: dict[Term, int] = {}
    for each in order:
        found[each.makes[0]] = len(each.steps) + max((found[t] for t in each.reads), default=0)
    return max(found.values())


@pytest.mark.parametrize("seed", range(60))
def test_right_and_no_longer_than_the_longest_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = values(int(rng.integers(1, 25)))
    units = []
    for k, term in enumerate(terms):
        reads = [t for t in terms[max(0, k - 6) : k] if rng.random() < 0.3]
        units.append(unit(term, tuple(reads)))
    shuffled = [units[k] for k in rng.permutation(len(units))]
    order = ordered(shuffled)
    assert sorted(map(id, order)) == sorted(map(id, units))
    place = {each.makes[0]: k for k, each in enumerate(order)}
    assert all(place[t] < place[each.makes[0]] for each in order for t in each.reads)
    assert epochs(order) == longest(order)


def test_what_holds_nothing_up_stays_where_it_is_asked_for() -> None:
    a, b, c, side, d = values(5)
    chain = [unit(a), unit(b, (a,)), unit(c, (b,)), unit(side), unit(d, (c, side))]
    assert ordered(chain) == chain  # beside c, not at the start
    chain.insert(0, chain.pop(3))
    assert ordered(chain) == chain  # at the start, not beside c


def test_what_holds_others_up_moves_up() -> None:
    k, turned, v, q, q_turned, out = values(6)
    turn_k, turn_q = unit(turned, (k,)), unit(q_turned, (q,))
    last = unit(out, (turned, v, q_turned))
    make_k, make_v, make_q = unit(k), unit(v), unit(q)
    order = ordered([make_k, turn_k, make_v, make_q, turn_q, last])
    assert order == [make_k, make_q, turn_k, make_v, turn_q, last]


def test_a_unit_of_two_steps_takes_two_epochs() -> None:
    a, b, c, d, e = values(5)
    two = unit(a, steps=2)
    order = ordered([unit(b), unit(c, (b,)), two, unit(d, (c, a)), unit(e, (d,))])
    assert order.index(two) == 1  # beside b, so that d finds both its steps done


def test_the_prologue_comes_first_and_holds_nothing_up() -> None:
    a, b, c, d = values(4)
    first, second = unit(a, early=True), unit(b, (a,), early=True)
    beside, reader = unit(c), unit(d, (b,))
    assert ordered([beside, reader, first, second]) == [first, second, beside, reader]


def test_units_that_wait_for_each_other_are_told() -> None:
    a, b = values(2)
    with pytest.raises(VerifyError, match="kernels wait for each other"):
        ordered([unit(a, (b,)), unit(b, (a,))])
