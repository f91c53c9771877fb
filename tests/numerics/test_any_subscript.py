"""Any subscript of an array means what it means to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.close import close
from tests.numerics.recording import run


@st.composite
def keys(draw: st.DrawFn) -> tuple[Any, ...]:
    """An index of an array (4, 4, 4) as NumPy takes it."""
    entries: list[Any] = []
    arrays = st.lists(st.integers(-3, 2), min_size=2, max_size=2).map(np.array)
    for extent in (4, 4, 4)[: draw(st.integers(0, 3))]:
        bound = st.none() | st.integers(-extent - 2, extent + 2)
        step = st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])
        entry = st.one_of(
            st.integers(-extent, extent - 1), st.builds(slice, bound, bound, step), arrays
        )
        entries.append(draw(entry))
    for extra in draw(st.lists(st.sampled_from([None, ...]), max_size=2)):
        if extra is None or not any(entry is ... for entry in entries):
            entries.insert(draw(st.integers(0, len(entries))), extra)
    return tuple(entries)


@given(keys())
@settings(max_examples=100, derandomize=True)
def test_any_subscript_like_numpy(key: tuple[Any, ...]) -> None:
    x = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    close(run(lambda t: t[key], x), x[key])
