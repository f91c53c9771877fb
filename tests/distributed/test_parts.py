"""Parts of arrays: whatever the cuts, all ranks together hold each element once, pads aside."""

from __future__ import annotations

import random

import numpy as np
import pytest

from luminal.distribute.layout import Cut, Cuts
from luminal.distribute.mesh import Mesh
from luminal.distribute.parts import assembled, count, held, part, unpadded
from luminal.shape.expression import const


def cuts_of(rng: random.Random, axes: dict[str, int]) -> Cuts:
    """A digit of a position for each mesh axis, from the outermost in, some with room between."""
    cuts: list[Cut] = []
    block = rng.choice((1, 1, 2, 3))
    for axis, ranks in axes.items():
        cuts.insert(0, Cut(axis, ranks, const(block)))
        block *= ranks * rng.choice((1, 1, 2))
    return tuple(cuts)


@pytest.mark.parametrize("seed", range(40))
def test_each_element_is_held_once_and_found_again(seed: int) -> None:
    rng = random.Random(f"parts {seed}")
    axes = {axis: rng.choice((2, 2, 3, 4)) for axis in "abc"[: rng.randint(1, 3)]}
    mesh = Mesh((*axes.values(),), (*axes,))
    extent, cuts = rng.randint(1, 40), cuts_of(rng, axes)
    array = np.random.default_rng(seed).integers(1, 99, (extent, 2))
    at = [mesh.coordinates(rank) for rank in range(mesh.size)]
    places = [np.arange(extent)[held(extent, cuts, c, {})] for c in at]
    assert sorted(np.concatenate(places)) == [*range(extent)]
    parts = [part(array, (cuts, ()), c) for c in at]
    for rows, c, values in zip(places, at, parts, strict=True):
        real = unpadded(values, array.shape, (cuts, ()), c)
        np.testing.assert_array_equal(real, array[rows])
        assert count(extent, cuts, c) == len(rows) <= len(values)
        assert not values[len(rows) :].any()
        for cut in cuts:  # the digits of its own positions are a rank's place
            assert (rows // cut.block.value % cut.ranks == c[cut.axis]).all()
    np.testing.assert_array_equal(assembled(parts, array.shape, (cuts, ()), mesh), array)
