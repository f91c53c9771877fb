"""What images add to the arrays of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from luminal.frontend.handle import Array
from luminal.models.seen import AXES, Images
from luminal.serve.scheduler import PIECE, Step


def seen_inputs(
    step: Step, names: Sequence[str], start: int, tokens: int, shape: tuple[int, int]
) -> dict[str, Array]:
    """The arrays of these inputs (see `Seen`) for a step whose rows of one token begin at `start`
    of all its `tokens`.

    All are there in each step, so that a text's bits depend on no other's images. `vectors` has
    one row where no image is read, and else this shape: a program is bound to few sizes.
    """
    rows = np.full(tokens, -1, np.int32)
    spans, places = np.zeros((2, tokens), np.int32), np.zeros((AXES, tokens), np.int32)
    used: list[Array] = []
    count = 0
    for at, images, positions in _parts(step, start) if names else ():
        here = slice(at, at + len(positions))
        places[:, here] = positions
        if images is None:
            continue
        if images.places is not None:
            places[:, here] = images.placed(positions.start, positions.stop)
        if not images.reaches(positions.start):
            continue
        numbers = images.rows(positions.start, positions.stop)
        vectors = images.vectors[numbers[numbers >= 0]]
        numbers[numbers >= 0] = np.arange(count, count + len(vectors))
        rows[here], spans[:, here] = numbers, images.ranges(positions.start, positions.stop)
        used.append(vectors)
        count += len(vectors)
    held = np.zeros((shape[0] if count else 1, shape[1]), np.float32)
    if count:
        held[:count] = np.concatenate(used)
    inputs = {"rows": rows, "spans": spans, "places": places, "vectors": held}
    return {name: inputs[name] for name in names}


def _parts(step: Step, start: int) -> Iterator[tuple[int, Images | None, range]]:
    """Where tokens of a text lie side by side, its images, and the positions of these tokens."""
    pieces = [(row.text.images, piece) for row in step.chunks for piece in row.pieces()]
    for number, (images, piece) in enumerate(pieces):
        yield number * PIECE, images, piece
    for number, row in enumerate(step.decodes):
        yield start + number, row.text.images, range(row.start, row.start + 1)
