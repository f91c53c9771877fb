"""Collectives that one trip of a Loop starts and a later one waits for: bits are the oracle's, and
an end in a wrong trip is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from luminal.backends.cpu import backend as cpu
from luminal.base.errors import VerifyError
from luminal.program import memory_plan, overlap
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import CollectiveLaunch, Launch, LoopLaunch, Program, is_end, walk
from luminal.program.verify import verify, verify_placement
from luminal.rolling import roll
from luminal.runtime.executable import Executable
from luminal.runtime.ranks import OnRanks
from luminal.runtime.variants import Variant
from tests.distributed.carried import Layers, carried
from tests.distributed.graphs import Drawn
from tests.distributed.late_engine import Group, LateEngine, on_ranks
from tests.distributed.together import check, expected, program_of, run


@pytest.fixture(autouse=True)
def few_layers_are_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs become Loops, and may take the memory that they need beside others."""
    monkeypatch.setattr(roll, "SAVED", 4)
    monkeypatch.setattr(overlap, "GROWTH", 9)


def layers(seed: int, ranks: int = 2) -> list[Drawn]:
    """The drawn layers of each rank."""
    return [Layers(seed, rank, ranks).drawn() for rank in range(ranks)]


def in_turns(program: Program) -> int:
    """How many operands of collectives in Loops are buffers of the arena that take turns."""
    return sum(
        operand.modulus > 1
        and program.buffers[program.table[operand.entry]].kind is BufferKind.ARENA
        for loop in program.launches
        if isinstance(loop, LoopLaunch)
        for launch in walk(loop.body)
        if isinstance(launch, CollectiveLaunch)
        for operand in launch.operands
    )


def check_seeds(seeds: Sequence[int], ranks: int) -> None:
    """Programs of these seeds are right, and there are some of all kinds among them."""
    programs = []
    for seed in seeds:
        drawn = layers(seed, ranks)
        check(drawn)
        program = program_of(drawn[0].graph)
        verify(program)
        plan = memory_plan.plan(program, program.launches)
        sizes = [program.buffers[number].bytes.value for number in plan.buffers]
        verify_placement(program, program.launches, plan, memory_plan.place(plan, sizes))
        programs.append(program)
    assert sum(map(carried, programs)) >= len(programs) // 2
    assert sum(map(in_turns, programs)) >= len(programs) // 2


def test_random_layers() -> None:
    check_seeds(range(4), 2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_many_random_layers(ranks: int) -> None:
    check_seeds(range(100, 180), ranks)


def test_where_memory_is_short_fewer_trips_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(growth: float) -> int:
        monkeypatch.setattr(overlap, "GROWTH", growth)
        return sum(in_turns(program_of(layers(seed)[0].graph)) for seed in range(6))

    assert made(1) < made(9)


def test_what_one_pass_needs_alone_lives_no_longer_than_it() -> None:
    program = program_of(layers(6)[0].graph)
    loop = next(
        launch
        for launch in program.launches
        if isinstance(launch, LoopLaunch) and carried(replace(program, launches=(launch,)))
    )
    sent = {n for each in walk(loop.body) if isinstance(each, CollectiveLaunch)
            for n, _ in program.accesses(each)}  # fmt: skip
    still = {
        program.table[operand.entry]
        for launch in walk(loop.body)
        for operand in launch.operands
        if operand.modulus == 1 and operand.stride == 0
    }
    local = {n for n in still - sent if program.buffers[n].kind is BufferKind.ARENA}
    others = [launch for launch in program.launches if launch is not loop]
    outside = {n for launch in others for n, _ in program.accesses(launch)}
    assert len(local) > 4
    assert local.isdisjoint(outside)


# --- planted faults

SEED = 8
"""Its layers gather a part of a weight ahead, and leave a chain of collectives to the next trip."""


def changed(program: Program, change: Callable[[list[Launch]], list[Launch]]) -> Program:
    """The program with another body of the Loop whose trips carry collectives."""
    place = next(
        k
        for k, launch in enumerate(program.launches)
        if isinstance(launch, LoopLaunch) and carried(replace(program, launches=(launch,)))
    )
    loop = program.launches[place]
    assert isinstance(loop, LoopLaunch)
    new = replace(loop, body=tuple(change([*loop.body])))
    launches = (*program.launches[:place], new, *program.launches[place + 1 :])
    return replace(program, launches=launches)


def waits_of(body: list[Launch]) -> list[int]:
    """The places of waits for what the trip before has started."""
    begun: set[int] = set()
    places = []
    for k, launch in enumerate(body):
        if is_end(launch, "start"):
            begun.add(launch.ticket)
        elif is_end(launch, "wait") and launch.ticket not in begun:
            places.append(k)
    return places


def dropped(body: list[Launch]) -> list[Launch]:
    """Without one of these waits."""
    del body[waits_of(body)[0]]
    return body


def too_late(body: list[Launch]) -> list[Launch]:
    """One of these waits behind what reads the result, and behind the next trip's start."""
    body.append(body.pop(waits_of(body)[0]))
    return body


def of_the_other_turn(body: list[Launch]) -> list[Launch]:
    """One of these collectives begins in the buffer of the trip before."""
    for k, launch in enumerate(body):
        if is_end(launch, "start") and any(o.modulus == 2 for o in launch.operands):
            turned = [replace(o, offset=o.offset + (o.modulus == 2)) for o in launch.operands]
            body[k] = replace(launch, operands=tuple(turned))
            return body
    raise AssertionError("no buffers take turns")


def read_from_the_other_turn(body: list[Launch]) -> list[Launch]:
    """What reads the result of one of these collectives reads that of another trip."""
    for k in waits_of(body):
        wait = body[k]
        assert isinstance(wait, CollectiveLaunch)
        received = wait.operands[-1]
        for n, launch in enumerate(body):
            if not isinstance(launch, CollectiveLaunch | LoopLaunch):
                entries = [operand.entry for operand in launch.operands]
                if received.modulus == 2 and received.entry in entries:
                    turned = [
                        replace(o, offset=o.offset + (o.entry == received.entry))
                        for o in launch.operands
                    ]
                    body[n] = replace(launch, operands=tuple(turned))
                    return body
    raise AssertionError("nothing reads a buffer that takes turns")


def differs(change: Callable[[list[Launch]], list[Launch]]) -> bool:
    """Do ranks whose programs are changed so differ from the oracle, or not come through?"""
    drawn = layers(SEED)
    wanted = expected(drawn)
    group = Group(len(drawn), "data")

    def work(rank: int) -> bool:
        program = changed(program_of(drawn[rank].graph), change)
        variant = Variant({}, cpu.current().runner(program))
        engines = {"data": LateEngine(group, rank)}
        values = run(drawn[rank], Executable(drawn[rank].graph, [variant], mesh=OnRanks(engines)))
        return not all(np.array_equal(values[name], v) for name, v in wanted[rank].items())

    try:
        return any(on_ranks(len(drawn), work, group))
    except (KeyError, AssertionError, RuntimeError):
        return True


def test_the_program_as_it_is_agrees() -> None:
    assert not differs(lambda body: body)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (dropped, "its ticket .* is under way|nobody waits|before the wait"),
        (too_late, "its ticket .* is under way|before the wait"),
        (of_the_other_turn, "no start before it has its ticket and operands|before the wait"),
        (read_from_the_other_turn, "before the wait"),
    ],
)
def test_an_end_in_a_wrong_trip_is_refused_and_shows(
    fault: Callable[[list[Launch]], list[Launch]], text: str
) -> None:
    program = changed(program_of(layers(SEED)[0].graph), fault)
    with pytest.raises(VerifyError, match=text):
        verify(program)
    assert differs(fault)
