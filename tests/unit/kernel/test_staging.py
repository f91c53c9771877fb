"""Room for staged values: every element has a place of its own, rows and turns lie as was asked."""

from __future__ import annotations

import random
from itertools import product

import pytest

from luminal.base.dtypes import float32
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.fused import Fused
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging
from luminal.kernel.tile_ir import Space
from luminal.shape.expression import axis, const


def staging() -> Staging:
    """For a kernel that computes nothing."""
    return Staging(Evaluator(Fused((), {}, frozenset())))


def size_of(made: Staging, room: Staged) -> int:
    (buffer,) = (each for each in made.values.scratch if each.name == room.buffer)
    return buffer.size.constant


@pytest.mark.parametrize("seed", range(20))
def test_every_element_has_a_place_of_its_own(seed: int) -> None:
    rng = random.Random(seed)
    extents = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    pad, buffers, count = rng.choice((0, 4, 64)), rng.randint(1, 3), rng.choice((1, 2, 4))
    axes = [axis(f"a{k}", n) for k, n in enumerate(extents[:-1])]
    words = axis("w", extents[-1] * count)  # of which so many neighbours are one word
    dimensions = [Dimension(a, const(n)) for a, n in zip(axes, extents, strict=False)]
    dimensions.append(Dimension(words // count, const(extents[-1]), count, words % count))
    rng.shuffle(dimensions)
    made = staging()
    room = made.room(dimensions, float32, pad=pad, buffers=buffers)
    ranges = [range(n) for n in (*extents[:-1], extents[-1] * count)]
    places = {
        room.offset(
            Env(dict(zip((*axes, words), map(const, point), strict=True))), const(turn)
        ).constant
        for turn in range(buffers)
        for point in product(*ranges)
    }
    assert len(places) == buffers * len(list(product(*ranges)))
    assert min(places) == 0
    assert max(places) < size_of(made, room)


def test_a_row_is_padded_and_buffers_lie_one_after_the_other() -> None:
    k, n = axis("k", 3), axis("n", 8)
    made = staging()
    room = made.room(
        [Dimension(k, const(3)), Dimension(n, const(8))],
        float32,
        pad=4,  # bytes
        space=Space.SHARED,
        buffers=2,
    )
    assert size_of(made, room) == 2 * 3 * 9
    assert made.values.scratch[0].space is Space.SHARED
    here = Env({k: const(2), n: const(5)})
    assert room.offset(here).constant == 2 * 9 + 5
    assert room.offset(here, const(1)).constant == 3 * 9 + 2 * 9 + 5


def test_the_neighbours_of_a_word_lie_side_by_side() -> None:
    k, n = axis("k", 6), axis("n", 8)
    room = staging().room([Dimension(k // 2, const(3), 2, k % 2), Dimension(n, const(8))], float32)
    at = [room.offset(Env({k: const(step), n: const(5)})).constant for step in range(4)]
    assert at == [10, 11, 26, 27]
