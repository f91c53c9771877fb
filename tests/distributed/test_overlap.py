"""Collectives beside kernels: where their ends may be, what memory they take, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from luminal.backends.cpu import backend as cpu
from luminal.base import dtypes
from luminal.base.errors import VerifyError
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Builder, Graph, Output
from luminal.program import memory_plan
from luminal.program.launch_list import CollectiveLaunch, Launch, LoopLaunch, Program, walk
from luminal.program.overlap import overlapped
from luminal.program.verify import verify, verify_placement
from luminal.shape.expression import const
from tests.distributed.graphs import Draw, collective


def apart() -> Program:
    """Two collectives, each of a value that is there early and read late."""
    b, n = Builder(), const(64)
    x = b.input("x", (n, n), dtypes.int32)
    first = collective(b, "all_reduce", b.sum(x, 0), 2, label="first")
    second = collective(b, "all_reduce", b.sum(x, 1), 2, reduction="Max", label="second")
    y = x
    for _ in range(2):
        y = b.apply("Mul", y, b.apply("Add", y, x))
        y, _ = b.sort(y, 0)
    sums = (b.apply("Add", b.sum(y, 0), total) for total in (second, first))
    graph = Graph(tuple(Output(total, f"y{k}") for k, total in enumerate(sums)))
    return lower_to_program(graph, cpu.current())


def ends(program: Program) -> list[str]:
    """The launches of a program: the ends of collectives by label, kernels as dots."""
    return [
        f"{launch.phase} {launch.label}" if isinstance(launch, CollectiveLaunch) else "."
        for launch in walk(program.launches)
    ]


def placed(program: Program) -> tuple[memory_plan.MemoryPlan, memory_plan.Placement]:
    """The plan of a program's arena, and its placement."""
    plan = memory_plan.plan(program, program.launches)
    sizes = [program.buffers[number].bytes.interval.hi or 0 for number in plan.buffers]
    return plan, memory_plan.place(plan, sizes)


def together(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The list with each collective whole where its wait stands."""
    lists = []
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            lists.append(replace(launch, body=together(launch.body)))
        elif not isinstance(launch, CollectiveLaunch) or launch.phase == "both":
            lists.append(launch)
        elif launch.phase == "wait":
            lists.append(replace(launch, phase="both", ticket=0))
    return tuple(lists)


def test_a_collective_begins_early_and_is_waited_for_late() -> None:
    program = apart()
    words = ends(program)
    starts, waits = (
        [words.index(f"{phase} {label}") for label in ("first", "second")]
        for phase in ("start", "wait")
    )
    assert max(starts) < min(waits)
    assert words[min(starts) : max(waits)].count(".") >= 2


def test_ends_with_nothing_between_them_are_one_launch() -> None:
    b = Builder()
    x = b.input("x", (const(8),), dtypes.int32)
    y = collective(b, "all_reduce", b.apply("Mul", x, x), 2, label="y")
    program = lower_to_program(Graph((Output(b.apply("Add", y, x), "y"),)), cpu.current())
    assert ends(program) == [".", "both y", "."]


@pytest.mark.parametrize("seed", range(12))
def test_each_collective_begins_once_and_all_that_must_hold_does(seed: int) -> None:
    moved = lower_to_program(Draw(seed, 0, 2).drawn().graph, cpu.current())
    plain = replace(moved, launches=together(moved.launches))
    verify(moved)
    for limit in (0, 1 << 40):
        program = overlapped(plain, cpu.current().costs, limit)
        verify(program)
        plan, placement = placed(program)
        verify_placement(program, program.launches, plan, placement)
        assert placement.arena_bytes <= max(limit, placed(plain)[1].arena_bytes)
        labels = [
            sorted(launch.title for launch in walk(each.launches) if _begins(launch))
            for each in (plain, replace(program, launches=together(program.launches)))
        ]
        assert labels[0] == labels[1]


def _begins(launch: Any) -> bool:
    return isinstance(launch, CollectiveLaunch) and launch.phase != "wait"


# --- planted faults


def moved_to(find: Callable[[list[str]], tuple[int, int]]) -> Program:
    """The program with one launch moved: from one place to another."""
    program = apart()
    launches = [*program.launches]
    source, target = find(ends(program))
    launches.insert(target, launches.pop(source))
    return replace(program, launches=tuple(launches))


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (lambda words: (words.index("wait first"), len(words)), "touches b.* before the wait"),
        (lambda words: (words.index("start first"), 0), "a launch touches b.* before the wait"),
        (lambda words: (words.index("wait second"), 0), "no start before it has its ticket"),
        (lambda words: (words.index("start second"), len(words)), "no start before it"),
    ],
)  # fmt: skip
def test_an_end_in_a_wrong_place_is_refused(
    find: Callable[[list[str]], tuple[int, int]], text: str
) -> None:
    with pytest.raises(VerifyError, match=text):
        verify(moved_to(find))


def test_a_start_without_a_wait_is_refused() -> None:
    program = apart()
    launches = tuple(
        launch
        for launch, word in zip(program.launches, ends(program), strict=True)
        if word != "wait second"
    )
    with pytest.raises(VerifyError, match=r"'second' over 'data': (nobody waits|a launch touches)"):
        verify(replace(program, launches=launches))


def test_a_plan_that_forgets_what_is_under_way_is_refused() -> None:
    program = apart()
    blind = tuple(
        replace(launch, phase="both") if _begins(launch) else launch
        for launch, word in zip(program.launches, ends(program), strict=True)
        if not word.startswith("wait")
    )
    plan = memory_plan.plan(program, blind)
    sizes = [program.buffers[number].bytes.value for number in plan.buffers]
    with pytest.raises(VerifyError, match="share memory and live at one time"):
        verify_placement(program, program.launches, plan, memory_plan.place(plan, sizes))
