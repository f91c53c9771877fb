"""Checkpoints of Parameters and States that the ranks do not divide: other meshes read them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.distributed import Engine, run_local
from luminal.memory.part import Piece, value_or_piece
from luminal.training import CheckpointManager
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
MESHES = [lm.Mesh((n,), ("a",)) for n in (1, 2, 3, 4, 8)] + [lm.Mesh((2, 2), ("a", "b"))]
EXTENTS = (1, 3, 5, 7, 10)
Specs = Mapping[str, tuple[tuple[str, ...], ...]]


def arrays_of(rng: random.Random) -> dict[str, Array]:
    """Values to keep: extents of which few divide, so that some ranks may have nothing at all."""
    shapes = [tuple(rng.choices(EXTENTS, k=rng.randint(1, 3))) for _ in range(4)]
    draw = np.random.default_rng(rng.getrandbits(30))
    return {f"v{k}": draw.standard_normal(shape, np.float32) for k, shape in enumerate(shapes)}


def specs_of(rng: random.Random, mesh: lm.Mesh, arrays: Mapping[str, Array]) -> Specs:
    """For each array the mesh axes that cut it, most of them, each along some dimension."""
    out = {}
    for name, array in arrays.items():
        names: list[tuple[str, ...]] = [()] * array.ndim
        for axis in mesh.names:
            if rng.random() < 0.9:
                names[rng.randrange(array.ndim)] += (axis,)
        out[name] = tuple(names)
    return out


def held_on(mesh: lm.Mesh, specs: Specs, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Parameters and States, every other one, of zeros, that a program has cut over the mesh."""
    graph, out = lm.Graph(), {}
    for k, (name, array) in enumerate(arrays.items()):
        held: Any = (lm.State if k % 2 else lm.Parameter)(array.shape, name=name)
        held.set(np.zeros(array.shape, np.float32))
        held.spec = specs[name]
        (graph.read(held) if k % 2 else graph.constant(held)).output(name)
        out[name] = held
    lm.compile(graph, mesh=mesh)
    return out


def saved(
    folder: Path, mesh: lm.Mesh, specs: Specs, arrays: Mapping[str, Array]
) -> list[dict[str, tuple[int, ...]]]:
    """Writes a checkpoint; for each rank the shapes of the parts that it wrote, by name."""

    def work(engine: Engine) -> dict[str, tuple[int, ...]]:
        owners = held_on(mesh, specs, arrays)
        for name, array in arrays.items():
            owners[name].set(array)
        state = {name: value_or_piece(held) for name, held in owners.items()}
        CheckpointManager(folder).save(1, state, engine=engine)
        return {n: v.array.shape for n, v in state.items() if isinstance(v, Piece) and v.writes}

    return run_local(mesh.size, work, timeout=30)


def check(folder: Path, mesh: lm.Mesh, specs: Specs, arrays: Mapping[str, Array]) -> None:
    """Raises AssertionError where ranks of the mesh read another value than was saved."""

    def work(engine: Engine) -> None:
        owners = held_on(mesh, specs, arrays)
        checkpoint = CheckpointManager(folder).restore(engine=engine)
        assert checkpoint is not None
        for name, array in arrays.items():
            owners[name].set(checkpoint.state[name])
            np.testing.assert_array_equal(owners[name].whole(), array)

    run_local(mesh.size, work, timeout=30)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_three_ranks_have_of_ten_rows_is_read_by_others(tmp_path: Path, ranks: int) -> None:
    arrays = {"w": np.arange(40, dtype=np.float32).reshape(10, 4)}
    specs: Specs = {"w": (("a",), ())}
    written = saved(tmp_path, lm.Mesh((3,), ("a",)), specs, arrays)
    assert [shapes["w"] for shapes in written] == [(4, 4), (4, 4), (2, 4)]  # no pads
    check(tmp_path, lm.Mesh((ranks,), ("a",)), specs, arrays)


def test_ranks_that_have_nothing_write_nothing(tmp_path: Path) -> None:
    arrays, specs = {"w": np.arange(5, dtype=np.float32)}, {"w": (("a",),)}
    written = saved(tmp_path, lm.Mesh((8,), ("a",)), specs, arrays)
    assert [*map(len, written)] == [1] * 5 + [0] * 3
    check(tmp_path, lm.Mesh((2,), ("a",)), specs, arrays)


@pytest.mark.parametrize("chunk", mostly_long(range(10), 1))
def test_any_mesh_reads_what_any_mesh_wrote(tmp_path: Path, chunk: int) -> None:
    for seed in range(3 * chunk, 3 * chunk + 3):
        rng = random.Random(f"ragged {seed}")
        arrays, (wrote, *readers) = arrays_of(rng), rng.sample(MESHES, 3)
        saved(tmp_path / str(seed), wrote, specs_of(rng, wrote, arrays), arrays)
        for mesh in readers:
            check(tmp_path / str(seed), mesh, specs_of(rng, mesh, arrays), arrays)
