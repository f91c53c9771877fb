"""What runs should take as a graph and as one kernel: walks by hand, and steps of a decoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cuda import chips
from luminal.backends.cuda.backend import Cuda
from luminal.backends.dispatch_seconds import BETWEEN, HANDOVER, Predicted, Task, Walkers
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.program.launch_list import kernel_launches
from luminal.schedule.groups.bounds import Bounds
from luminal.schedule.groups.counts import Work
from luminal.search.explain import explain
from luminal.search.genome import Genome, called_by
from luminal.search.space import Space
from tests.backends.groups.decode_graphs import decode

(H100,) = (chip for chip in chips.CHIPS if chip.name == "sm_90a")
WORK = Work(128, 64, 0, {}, {}, ())
PAST = {"past": 128}
MICRO = 1e-6


def task(chunks: int) -> Task:
    return Task(0, chunks, 0.0, WORK, [])


def late(seconds: float, memory: float = 0.0, early: float = 0.0) -> Bounds:
    """A launch of so much latency, memory, and of that so much early."""
    return Bounds(0.0, 0.0, 0.0, memory, seconds, 1, early)


Walked = tuple[int, Bounds, list[int] | None]


def walked(*tasks: Walked) -> Walkers:
    """Four groups after these tasks: chunks, bounds, what they wait for."""
    walkers = Walkers(4, H100)
    for chunks, bounds, awaited in tasks:
        walkers.run(task(chunks), bounds, awaited)
    return walkers


COUNTED = HANDOVER + 4 / H100.hertz


def test_a_task_begins_when_word_of_the_last_one_has_come() -> None:
    alone = walked((4, late(5 * MICRO), []))
    assert np.isclose(alone.end, BETWEEN + 5 * MICRO)
    after = walked((4, late(5 * MICRO), []), (4, late(3 * MICRO), [0]))
    assert np.isclose(after.end, BETWEEN + 8 * MICRO + COUNTED)


def test_a_task_that_waits_for_nothing_fills_the_groups_that_had_less() -> None:
    """Of 5 chunks one group has two; the other three go on, and it comes late to its third."""
    tasks: tuple[Walked, ...] = (5, late(8 * MICRO), []), (3, late(4 * MICRO), [])
    assert np.isclose(walked(*tasks).end, BETWEEN + 12 * MICRO)
    others: tuple[Walked, ...] = (
        (5, late(8 * MICRO), []),
        (4, late(4 * MICRO), []),
        (4, late(1 * MICRO), [1]),
    )
    assert np.isclose(walked(*others).end, BETWEEN + 13 * MICRO + COUNTED)
    one: tuple[Walked, ...] = (
        (1, late(8 * MICRO), []),
        (4, late(1 * MICRO), [0]),
    )  # who has none still waits for it
    assert np.isclose(walked(*one).end, BETWEEN + 9 * MICRO + COUNTED)


def test_what_is_asked_early_comes_while_memory_is_idle() -> None:
    first: Walked = 4, late(5 * MICRO, memory=5 * MICRO), []
    asked = walked(first, (4, late(0.0, memory=3 * MICRO, early=2 * MICRO), [0]))
    assert np.isclose(asked.early, COUNTED)  # as much as comes between the two
    assert np.isclose(asked.end, BETWEEN + 8 * MICRO)
    some = walked(first, (4, late(0.0, memory=3 * MICRO, early=0.2 * MICRO), [0]))
    assert np.isclose(some.end, BETWEEN + 7.8 * MICRO + COUNTED)
    busy = walked(first, (4, late(0.0, memory=3 * MICRO, early=2 * MICRO), []))
    assert busy.early == 0.0  # it needs nobody, so nothing is won
    slow = walked(first, (4, late(3 * MICRO, memory=3 * MICRO, early=2 * MICRO), [0]))
    assert slow.early == 0.0  # of what is not bound by memory either


def test_a_launch_of_its_own_ends_the_kernel() -> None:
    apart = walked((4, late(5 * MICRO), []), (4, late(3 * MICRO), None), (4, late(MICRO), []))
    assert np.isclose(apart.end, 3 * BETWEEN + 9 * MICRO)


def by_way(graph: Graph, **dims: int) -> dict[str, Predicted]:
    backend = Cuda.named("sm_90a")
    return dict(backend.predicted(lower_to_program(graph, backend), dims))


@pytest.mark.parametrize(
    ("texts", "most"), [(1, 1.15e-3), pytest.param(8, 3e-3, marks=pytest.mark.long)]
)
def test_a_decode_step_takes_little_more_than_its_weights(texts: int, most: float) -> None:
    """2.5 GB of weights take 0.82 ms of an H100's memory. What is asked for early passes while one
    launch follows another, or while groups wait.
    """
    taken = by_way(decode(16, texts=texts), **PAST)
    assert set(taken) == {"graph", "one"}
    for way in taken.values():
        assert 0.8e-3 < way.memory < way.seconds < most
        assert (0.2 * way.between < way.early < way.between) == (texts == 1)
        assert way.tasks >= 6 * 16
    graph, one = taken["graph"], taken["one"]
    assert np.isclose(graph.between, graph.tasks * BETWEEN)
    assert one.memory == graph.memory
    assert one.beyond >= graph.beyond  # a unit holds fewer groups of the largest kernel
    assert 1 <= one.groups <= 4
    assert 0.9 < one.seconds / graph.seconds < 1.1


def test_calls_of_a_library_end_parts_of_one_kernel() -> None:
    cx = lm.Graph()
    y = cx.tensor((512, 512), name="x")
    for name in ("v", "w"):
        y = y.cumsum(-1) @ cx.tensor((512, 512), name=name)
    y.cumsum(-1).output("y")
    backend = Cuda.named("sm_90a")
    backend = replace(backend, target=replace(backend.target, libraries=("cublaslt",)))
    space = Space(cx.graph(), backend)
    origins = space.decode(Genome()).stages.origins
    called = {o.name: called_by("cublaslt") for o in origins if backend.library_calls(o.steps[0])}
    program = space.decode(Genome().with_tuned(called)).program
    each = [
        (
            program.kernels[launch.kernel],
            *(float(n.evaluate({})) for n in (launch.flops, launch.bytes)),
        )
        for launch in kernel_launches(program.launches)
    ]
    seconds = [backend.predict(kernel, {}, *numbers).seconds for kernel, *numbers in each]
    calls = [n for n, (kernel, *_) in enumerate(each) if kernel.call is not None]
    assert calls == [1, 3]
    taken = backend.predicted(program, {})
    graph, one = taken["graph"], taken["one"]
    assert np.isclose(graph.seconds + graph.early, sum(seconds) + len(each) * BETWEEN)
    # Each call begins when all before it has ended, and a kernel behind it.
    assert np.isclose(one.seconds, sum(seconds) + BETWEEN + 2 * BETWEEN * len(calls), rtol=1e-6)
    assert one.tasks == graph.tasks == 5


def test_reports_and_explanations_have_both() -> None:
    cx = lm.Graph()
    x = cx.tensor((512, 2048), name="x")
    (x.softmax(-1) @ cx.tensor((2048, 512), name="w")).output("y")
    said = explain(cx.graph(), Cuda.named("sm_90a")).splitlines()
    for way in ("a graph", "one kernel"):
        assert sum(line.startswith(f"a run as {way}: ") for line in said) == 1
    report = lm.compile(cx, "cuda:sm_90a").report()
    taken = by_way(cx.graph())
    assert report.predicted == {way: told.seconds for way, told in taken.items()}
    (line,) = (line for line in str(report).splitlines() if line.startswith("by the facts of"))
    assert line.endswith("as one kernel")
