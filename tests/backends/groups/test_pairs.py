"""Rotations and the store to a cache at the end of the products: which, and what they leave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.terms import Term, Terms
from luminal.compiler.compile import lower_to_program
from luminal.kernel.environment import Env
from luminal.kernel.fused import Store
from luminal.kernel.stores import Stores
from luminal.kernel.tile_ir import Loop, Section, Statement
from luminal.nn.cache import KVCache
from luminal.nn.rotary import RotaryEmbedding
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.selection import fast, pairs
from luminal.shape.expression import Symbol
from tests.backends.c_family.dialects import checked
from tests.backends.groups import both_meanings
from tests.backends.groups.launch_labels import drawn, labels
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import long_but, mostly_long

MODEL, LONGEST = 40, 9
TURNED = "Select"  # in a kernel's label: which sum of a pair is whose


def kept(
    rows: int,
    heads: int,
    width: int,
    *,
    interleaved: bool = False,
    bias: bool = False,
    past: int = 3,
) -> Case:
    """Queries of a step, turned, and the keys and values that it leaves in a cache."""
    cx = lm.Graph()
    at = cx.dim("past", 0, LONGEST - rows)
    x, g = cx.tensor((rows, MODEL), name="x"), cx.tensor((MODEL,), name="g")
    normed = x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * g
    rotary = RotaryEmbedding(width, interleaved=interleaved)
    angles = rotary.angles(cx, rows, at)

    def projected(name: str) -> Any:
        y = normed @ cx.tensor((heads * width, MODEL), name=name).mT
        if bias:
            y = y + cx.tensor((heads * width,), name=f"{name}.bias")
        return y.unflatten(-1, (heads, width)).transpose(0, 1)

    rotary(projected("q"), angles).output("queries")
    cache = KVCache.make(heads, LONGEST, width)
    cache.keep(rotary(projected("k"), angles), projected("v"), at)
    run = drawn(cx.graph(), {"past": past})
    rng = np.random.default_rng(1)
    for state in (cache.keys, cache.values):
        run.states[state] = rng.standard_normal((heads, LONGEST, width), np.float32)
    run.reset()
    return run


@pytest.mark.parametrize("device", long_but(("meanings", "cuda"), ("cuda",)))
@pytest.mark.parametrize("rows", mostly_long([3, 1], 1))
def test_products_norm_rotation_and_cache_are_one_launch(rows: int, device: str) -> None:
    backend = both_meanings.backend() if device == "meanings" else checked(device)
    run = kept(rows, 2, 6)
    (label,) = labels(run.graph, backend)
    assert label.count(TURNED) == 2
    check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize("seed", mostly_long(range(60), 1))
def test_random_rotations(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.choice((1, 2, 3, 5, 8))
    run = kept(
        rows, rng.choice((1, 2, 3)), 2 * rng.randint(1, 9), interleaved=rng.random() < 0.5,
        bias=rng.random() < 0.5, past=rng.randint(0, LONGEST - rows),
    )  # fmt: skip
    check_case(compiled_on(checked("cuda"), run.graph), run)


def test_bits_are_those_of_a_launch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(1, 2, 6)

    def left() -> list[bytes]:
        run.reset()
        outputs = compiled_on(checked("cuda"), run.graph)(run.inputs, dims=run.dims)
        held = [state.numpy() for state in run.states]
        return [array.tobytes() for array in (*outputs.values(), *held)]

    together = left()
    monkeypatch.setattr(fast, "pairs_side_by_side", lambda program, costs: program)
    assert len(labels(run.graph, checked("cuda"))) > 1
    assert together == left()


def test_what_is_read_otherwise_is_stored() -> None:
    """Neighbours that are no pair, and a pair of more rows than lanes sum at once."""
    cx = lm.Graph()
    x, w = cx.tensor((1, MODEL), name="x"), cx.tensor((6, MODEL), name="w")
    y = x @ w.mT
    (y + y.flip(-1)).output("z")
    run = drawn(cx.graph())
    assert not any(TURNED in label for label in labels(run.graph, checked("cuda")))
    check_case(compiled_on(checked("cuda"), run.graph), run)


FAULTS = ("the wrong half", "the wrong place in the cache", "a row too few")


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 1))
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(3, 2, 6)
    whole, scatter = pairs._of_ends, Stores.scatter
    if fault == "the wrong half":

        def of_ends(terms: Terms, axis: Symbol, ends: Sequence[Term]) -> Term:
            return whole(terms, axis, sorted(ends, key=lambda end: end.id))

        monkeypatch.setattr(pairs, "_of_ends", of_ends)
    elif fault == "the wrong place in the cache":

        def shifted(self: Stores, store: Store, index: Any, env: Env) -> None:
            head, place, column = index
            scatter(self, store, (head, place + 1, column), env)

        monkeypatch.setattr(Stores, "scatter", shifted)
    backend = checked("cuda")
    program = lower_to_program(run.graph, backend)
    if fault == "a row too few":
        (kernel,) = program.kernels
        program = replace(program, kernels=(replace(kernel, body=shorter(kernel.body)),))
    exe = Executable(run.graph, (Variant({}, backend.runner(program)),))
    with pytest.raises(AssertionError, match="points differ"):
        check_case(exe, run)


def shorter(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements whose loops over three rows walk two."""
    now: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop | Section):
            statement = replace(statement, body=shorter(statement.body))
        if isinstance(statement, Loop) and statement.unroll == 3:
            statement = replace(statement, stop=statement.stop - 1)
        now.append(statement)
    return tuple(now)
