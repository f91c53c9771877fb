"""Launch lists walked skewed: right lists are, and a missing barrier fails, not by luck."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends.cpu import device, launch_rows
from luminal.kernel.tile_ir import Role
from luminal.models.llama import Llama, LlamaConfig
from luminal.program.launch_list import Launch, LoopLaunch, Program
from tests.backends.cpu import small_programs
from tests.backends.cpu.skewed import SKEWS, TEAMS, Skew, both, skewed
from tests.backends.cpu.small_programs import ADD, MIX, TAG, buffers, random_program
from tests.fuzz.cpu_run import cut_small
from tests.long_share import long_but

OFTEN = [skew for skew in SKEWS if (skew.members, skew.backwards) in ((2, False), (8, True))]
every_skew = pytest.mark.parametrize("skew", long_but(SKEWS, OFTEN), ids=str)
every_team = pytest.mark.parametrize("members", long_but(TEAMS, (2, 8)))
Array = np.ndarray


# --- the driver -----------------------------------------------------------------------------------


def is_right(program: small_programs.Program, skew: Skew) -> bool:
    expected = program.interpret()
    with skewed(skew):
        program.run(1)
    return all(map(np.array_equal, program.buffers, expected))


@every_skew
def test_random_programs_are_right(skew: Skew) -> None:
    assert all(is_right(random_program(seed), skew) for seed in range(20))


def lists(flags: int) -> Iterator[tuple[str, small_programs.Program]]:
    """Lists that need the second barrier, which is there if `flags` says so."""
    n = 64
    new = small_programs.Program(n, buffers(4, n)).launch(ADD, (0, 1, 2), n)
    yield "read after write", new.launch(MIX, (2, 2, 3), n, flags)
    new = small_programs.Program(n, buffers(4, n)).launch(MIX, (2, 2, 3), n)
    yield "write after read", new.launch(ADD, (0, 1, 2), n, flags)
    new = small_programs.Program(n, buffers(4, n)).launch(ADD, (0, 1, 2), n)
    yield "write after write", new.launch(ADD, (1, 0, 2), n // 2, flags)


@every_team
def test_a_missing_barrier_is_seen(members: int) -> None:
    for flags in (0, 1):
        found = {name: True for name, _ in lists(flags)}
        for skew in both(members):
            for name, program in lists(flags):
                found[name] &= is_right(program, skew)
        assert set(found.values()) == {bool(flags)}, found


@every_skew
def test_a_loop_ends_with_a_barrier(skew: Skew) -> None:
    n = 64
    program = small_programs.Program(n, buffers(3, n))
    program.loop(3).launch(MIX, (0, 0, 2), n, flags=0).launch(ADD, (2, 1, 0), n).end()
    program.launch(MIX, (0, 0, 2), n, flags=0).launch(ADD, (2, 1, 0), n)
    program.loop(0).launch(ADD, (0, 0, 0), n).end().launch(MIX, (0, 0, 1), n, flags=0)
    assert is_right(program, skew)


@every_skew
def test_a_serial_launch_is_the_callers(skew: Skew) -> None:
    program = small_programs.Program(5, [np.zeros(5, np.int64) for _ in range(3)])
    program.launch(TAG, (0, 0, 2), 5, flags=2)
    with skewed(skew):
        program.run(1)
    found = program.buffers[2]  # how often the scratch was used, from poison on
    assert (found != 0).all()
    assert len(set(found.tolist())) == (1 if skew.backwards else 5)


# --- compiled programs ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _teams(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)


Step = Callable[[], list[Array]]


def products() -> Step:
    """(x @ w).T @ x: the second product reads all that the first has written."""
    cx = lm.Graph()
    x = cx.tensor((40, 24), name="x")
    ((x @ cx.tensor((24, 24), name="w")).T @ x).output("y")
    exe = cx.compile()
    rng = np.random.default_rng(0)
    given = {"x": rng.normal(size=(40, 24)), "w": rng.normal(size=(24, 24))}
    inputs = {name: array.astype(np.float32) for name, array in given.items()}
    return lambda: [exe(inputs)["y"]]


def cache() -> Step:
    """y = x @ state.T, then rows of the State are overwritten where they lie."""
    state = lm.State((40, 24), init=np.arange(40.0 * 24, dtype=np.float32).reshape(40, 24))
    cx = lm.Graph()
    x, rows = cx.tensor((40, 24), name="x"), cx.tensor((40,), lm.int64, name="rows")
    old = cx.read(state)
    (x @ old.T).output("y")
    cx.assign(state, old.index_copy(0, rows, x))
    exe = cx.compile()
    inputs = {"x": np.ones((40, 24), np.float32), "rows": np.arange(40)}

    def step() -> list[Array]:
        state.reset()
        return [exe(inputs)["y"], state.numpy()]

    return step


def decoder() -> Step:
    """A Llama of three layers, a Loop with caches in States: a prompt and two more tokens."""
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(32, 48, 3, 4, 2, 8, 64, 24)).eval()
    caches = model.make_caches(24)
    cx = lm.Graph()
    past, s = cx.dim("past", 0, 23), cx.dim("s", 1, 24)
    cx.require(past + s <= 24)
    model(cx.tensor((s,), lm.int64, "ids"), caches, past).output("logits")
    exe = cx.compile()
    ids = np.arange(9)

    def step() -> list[Array]:
        for each in caches:
            each.keys.reset()
            each.values.reset()
        parts = ((ids[:7], 0), (ids[7:8], 7), (ids[8:], 8))
        return [exe({"ids": part}, dims={"past": past})["logits"] for part, past in parts]

    return step


def prologue() -> Step:
    """y = x @ (w.T @ w).T, where what is in brackets is made by the prologue in two launches."""
    weight = lm.Parameter((24, 24), name="w")
    weight.set(np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32))
    cx = lm.Graph()
    w = cx.weight_of(weight)
    (cx.tensor((40, 24), name="x") @ ((w @ w).T @ w)).output("y")
    exe = cx.compile()
    x = np.ones((40, 24), np.float32)

    def step() -> list[Array]:
        weight.changed()
        return [exe(x=x)["y"]]

    return step


@every_skew
@pytest.mark.parametrize("program", [products, cache, decoder, prologue])
def test_skewed_runs_give_the_same_bits(program: Callable[[], Step], skew: Skew) -> None:
    expected = program()()
    with skewed(skew):
        found = program()()
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


def without(hazard: str) -> Callable[[Program, tuple[Launch, ...]], tuple[bool, ...]]:
    """`barriers` that overlooks one kind of conflict."""

    def barriers(program: Program, launches: tuple[Launch, ...]) -> tuple[bool, ...]:
        flags = []
        read: set[int] = set()
        written: set[int] = set()
        for launch in launches:
            accesses = list(program.accesses(launch))
            reads = {b for b, role in accesses if role is not Role.OUT}
            writes = {b for b, role in accesses if role is not Role.IN}
            found = {"read after write": written & reads, "write after read": read & writes}
            flags.append(any(sets for name, sets in found.items() if name != hazard))
            if flags[-1]:
                read, written = set(), set()
            read, written = read | reads, written | writes
            if isinstance(launch, LoopLaunch):
                read, written = set(), set()
        return tuple(flags)

    return barriers


@every_team
@pytest.mark.parametrize(
    ("program", "hazard"),
    [
        (products, "read after write"),
        (cache, "write after read"),
        (decoder, "read after write"),
        (prologue, "read after write"),
    ],
)
def test_an_overlooked_conflict_gives_other_results(
    program: Callable[[], Step], hazard: str, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = program()()

    def is_right(barriers: Any, skew: Skew) -> bool:
        monkeypatch.setattr(launch_rows, "barriers", barriers)
        with skewed(skew):
            return all(map(np.array_equal, program()(), expected))

    assert all(is_right(without("nothing"), skew) for skew in both(members))
    assert not all(is_right(without(hazard), skew) for skew in both(members))
