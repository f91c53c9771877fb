"""`fit(leaves=8)`: the same bits on any number of ranks, and going on with another number."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError
from luminal.training import Batches
from luminal.training.leaves import TreeSum
from luminal.training.ranks import Ranks
from tests.distributed.running import Ranks as Started
from tests.distributed.running import needs_mpi, under_mpiexec
from tests.distributed.training_run import digest, network, on_threads, run, trained
from tests.long_share import mostly_long

PROGRAM = ("-m", "tests.distributed.training_run")


@cache
def on_one(**options: Any) -> tuple[str, list[tuple[Any, Any]]]:
    """The digest of what one rank trains without a mesh, and its losses and norms."""
    model = network()
    record = run(model, None, leaves=8, **options)
    return digest(trained(model)), [(row["loss"], row.get("grad_norm")) for row in record.history]


@pytest.mark.parametrize(
    "case",
    mostly_long(
        [
            (2, "zero3", {}), (4, "data", {}), (8, "zero1", {}), (1, "data", {}),
            (4, "zero3", {}), (2, "zero1", {"amp": "float16"}), (2, "data", {"clip_norm": None}),
        ],
        1,
    ),
)  # fmt: skip
def test_the_bits_are_those_of_one_rank(case: tuple[int, str, dict[str, Any]]) -> None:
    size, plan, options = case
    expected, rows = on_one(**options)
    for record, arrays in on_threads(size, plan=plan, leaves=8, **options):
        assert digest(arrays) == expected
        assert repr([(row["loss"], row.get("grad_norm")) for row in record.history]) == repr(rows)


@pytest.mark.long
def test_leaves_are_near_the_whole_batch() -> None:
    """The gradient is that of the batch: dropout alone draws otherwise, and is off here."""
    models = [network() for _ in range(2)]
    for model, count in zip(models, (None, 8), strict=True):
        model[3].p = 0.0
        run(model, None, leaves=count)
    for path, array in trained(models[0]).items():
        # Other sums differ by ulps of gradients, which Adam divides by their own size.
        np.testing.assert_allclose(trained(models[1])[path], array, rtol=1e-3, atol=1e-5)


def test_sums_are_a_balanced_tree() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((8, 100)).astype(np.float32)
    total = TreeSum()
    for vector in vectors:
        total.add(vector.copy())
    a, b, c, d, e, f, g, h = vectors
    assert np.array_equal(total.value, ((a + b) + (c + d)) + ((e + f) + (g + h)))
    assert not np.array_equal(total.value, reduce(np.add, vectors))


@pytest.mark.long
@pytest.mark.parametrize("fault", mostly_long(["ranks", "leaves", "rows"], 1))
def test_another_order_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: leaves one after another, those of two ranks swapped, the rows of another rank."""
    expected, _ = on_one()  # before the fault is there: it is kept for other tests
    if fault == "leaves":

        def one_after_another(self: TreeSum, vector: Any) -> None:
            self._partial[:] = [self._partial[0] + vector] if self._partial else [vector]

        monkeypatch.setattr(TreeSum, "add", one_after_another)
    elif fault == "ranks":
        joined = Ranks.of

        def swapped(mesh: Any, plan: Any, model: Any) -> Ranks:
            ranks = joined(mesh, plan, model)
            return replace(ranks, place=[0, 2, 1, 3][ranks.place])

        monkeypatch.setattr(Ranks, "of", staticmethod(swapped))
    else:
        part = Batches.part
        monkeypatch.setattr(
            Batches, "part", lambda self, place, parts: part(self, (place + 1) % parts, parts)
        )
    assert digest(on_threads(4, leaves=8)[0][1]) != expected


def test_what_does_not_go_with_leaves_is_refused() -> None:
    def fails(text: str, size: int = 2, kind: str = "norm", **options: Any) -> None:
        with pytest.raises(InputError, match=text):
            on_threads(size, kind, **options)

    fails("leaves=6; it is a power of two", leaves=6)
    fails("leaves=2 do not divide by 4 ranks", 4, leaves=2)
    fails("batches have 16 rows, which do not divide by 32, the leaves; make them of 32", leaves=32)
    fails("accumulate sees whole batches, and leaves= cuts them", leaves=2, accumulate=2)
    fails("leaves= is for ranks that all have rows of their own", leaves=2, plan="tensor",
          mesh=lm.Mesh((2,), ("tensor",)))  # fmt: skip
    fails("the model assigns .*running statistics", 2, "batch", leaves=2)


@pytest.mark.long
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    on_threads(4, plan="zero1", leaves=8, steps=3, checkpoint=tmp_path)
    record, arrays = on_threads(2, plan="zero3", leaves=8, checkpoint=tmp_path)[0]
    assert record.resumed == 3
    assert digest(arrays) == on_one()[0]


@needs_mpi()
@pytest.mark.long
def test_a_run_killed_on_four_ranks_and_continued_on_two(tmp_path: Path) -> None:
    settings = f'{{"leaves": 8, "plan": "zero1", "checkpoint": "{tmp_path}/run", ' + (
        '"checkpoint_every": 1, "kill": 4}'
    )
    killed = under_mpiexec(4, *PROGRAM, settings, str(tmp_path / "killed")).end(60)
    assert killed.status != 0
    assert not killed.left
    ended = under_mpiexec(2, *PROGRAM, settings, str(tmp_path / "killed")).end(60)
    assert ended.status == 0, ended.err
    lines = [line.split() for line in ended.out.splitlines() if line.startswith("digest")]
    assert [line[1] for line in lines] == [on_one()[0]] * 2
    assert int(lines[0][3]) >= 2


@needs_mpi()
@pytest.mark.long
def test_a_launch_with_restarts_goes_on_by_itself(tmp_path: Path) -> None:
    settings = f'{{"leaves": 8, "plan": "zero3", "checkpoint": "{tmp_path}/run", ' + (
        '"checkpoint_every": 1, "kill": 4}'
    )
    command = [sys.executable, "-m", "luminal", "launch", "-n", "2", "--restarts", "2"]
    program = [*command, *PROGRAM, settings, str(tmp_path / "killed")]
    ended = Started(program).end(100)
    assert ended.status == 0, ended.err
    assert ended.out.count(on_one()[0]) == 2
    assert "resumed 0" not in ended.out


@needs_mpi()
@pytest.mark.long
def test_ranks_of_mpi_train_alike(tmp_path: Path) -> None:
    settings = '{"leaves": 8, "plan": "zero1", "steps": 6}'
    ended = under_mpiexec(2, *PROGRAM, settings, str(tmp_path / "never")).end(60)
    assert ended.status == 0, ended.err
    assert ended.out.count(on_one()[0]) == 2
