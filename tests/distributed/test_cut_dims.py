"""A dim that is cut over ranks: a rank gives its own rows, and `dims=` names the whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DimError
from luminal.distributed import run_local

MESH = lm.Mesh((2,), ("data",))
Array = np.ndarray[Any, Any]
Record = Callable[[lm.Tensor, lm.Tensor], lm.Tensor]


def compiled(record: Record, mesh: lm.Mesh | None, **options: Any) -> Any:
    graph = lm.Graph()
    with lm.recording(graph):
        rows = lm.dim("rows", 2, 64)
        x, whole = graph.tensor((rows, 8), name="x"), graph.tensor((rows, 8), name="whole")
        record(x.shard("data") if mesh else x, whole).output("y")
        return lm.compile(graph, mesh=mesh, **options)


def arrays(rows: int) -> dict[str, Array]:
    rng = np.random.default_rng(rows)
    return {name: rng.standard_normal((rows, 8)).astype(np.float32) for name in ("x", "whole")}


def on_two(
    record: Record, counts: tuple[int, ...], at_run: Mapping[str, int] | None = None, **options: Any
) -> list[Array]:
    """The rows of both ranks, each of which gives its own rows of x, for each count of rows."""

    def work(engine: Any) -> list[Array]:
        step, out = compiled(record, MESH, **options), []
        for rows in counts:
            inputs = arrays(rows)
            own = np.split(inputs["x"], 2)[engine.rank]
            out.append(np.array(step(inputs | {"x": own}, dims=at_run)["y"]))
        return out

    return list(map(np.concatenate, zip(*run_local(2, work, timeout=20), strict=True)))


RECORDS: dict[str, Record] = {
    "x": lambda x, whole: (x.tanh() * 2 + x).exp(),
    "x and what all ranks have": lambda x, whole: x.sigmoid() - whole * x,
    "positions": lambda x, whole: x * lm.arange(x.shape[0], dtype="float32").unflatten(0, (-1, 1)),
    "the number of rows": lambda x, whole: x / lm.full((1, 8), 1.0).expand(x.shape).sum(0),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_rank_gives_its_own_rows(name: str) -> None:
    counts, one = (12, 2, 64), compiled(RECORDS[name], None)
    for rows, y in zip(counts, on_two(RECORDS[name], counts), strict=True):
        assert y.tobytes() == one(arrays(rows))["y"].tobytes()


@pytest.mark.parametrize(
    ("at_run", "options"),
    [
        ({"rows": 12}, {}),
        (None, {"dims": {"rows": 12}}),
        (None, {"dims": {"rows": (8, 13)}}),
        (None, {"dims": {"rows": [(2, 15), (16, 64)]}}),
        (None, {"search": lm.SearchOptions(dims={"rows": 64})}),
    ],
)
def test_dims_are_named_as_they_were_recorded(at_run: Any, options: dict[str, Any]) -> None:
    (y,) = on_two(RECORDS["x"], (12,), at_run, **options)
    assert y.tobytes() == compiled(RECORDS["x"], None)(arrays(12))["y"].tobytes()


@pytest.mark.parametrize(
    ("rows", "at_run", "options", "words"),
    [
        (12, {"rows": 13}, {}, "rows: 13 is cut into 2 parts, which do not divide it"),
        (12, None, {"dims": {"rows": 13}}, "rows: 13 has no multiple of the 2 parts"),
        (12, None, {"dims": {"rows": (2, 8)}}, "rows: 12 is outside its interval 2..8"),
        (66, None, {}, "rows: 66 is outside its interval 2..64 of multiples of 2"),
        (0, None, {}, "it is cut into 2 parts, each 1..32"),
    ],
)
def test_errors_name_the_whole(rows: int, at_run: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DimError, match=re.escape(words)):
        on_two(RECORDS["x"], (rows,), at_run, **options)
