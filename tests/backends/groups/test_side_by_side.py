"""Launches that need nothing of each other are one: which are joined, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.backend import Backend
from luminal.base.errors import VerifyError
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.kernel.sections import joined
from luminal.kernel.tile_ir import Kernel, Section
from luminal.kernel.tile_verify import verify
from luminal.program.launch_list import walk
from luminal.shape.expression import const
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.groups import both_meanings
from tests.backends.groups.decode_graphs import decode
from tests.backends.groups.launch_labels import drawn, labels
from tests.backends.on_device import check_case, compiled_on
from tests.expand.group_kernels import row_sums
from tests.fuzz.graphs import Case, random_case
from tests.long_share import long_but, mostly_long

ON: dict[str, Callable[[], Backend]] = {
    "meanings": both_meanings.backend,
    "cuda": lambda: checked("cuda"),
    "hip": lambda: checked("hip"),
    "metal": lambda: checked("metal"),
}


def heads(rows: int, *extents: int, shift: int = 0) -> Graph:
    """Products of one operand by weights of these extents, each by itself."""
    cx = lm.Graph()
    x = cx.tensor((rows, 40), name="x")
    for number, extent in enumerate(extents):
        (x @ cx.tensor((40, extent), name=f"w{number}") + shift).relu().output(f"y{number}")
    return cx.graph()


@pytest.mark.parametrize("name", long_but(tuple(ON), ("meanings", "cuda")))
def test_products_of_one_operand_are_one_launch(name: str) -> None:
    backend, run = ON[name](), drawn(heads(1, 24, 16, 8))
    assert [label.count(" | ") for label in labels(run.graph, backend)] == [2]
    check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize("rows", mostly_long([1, 5], 1))
def test_of_as_many_rows_as_dims_say(rows: int) -> None:
    cx = lm.Graph()
    n, m = cx.dim("n", 0, 9), cx.dim("m", 1, 5)
    x, y = cx.tensor((n, 12), name="x"), cx.tensor((m, 9), name="y")
    x.sum(-1).output("a")
    (y * 2).amax(-1).output("b")
    run = drawn(cx.graph(), {"n": rows - 1, "m": rows})
    for name in ("meanings", "cuda"):
        assert len(labels(run.graph, ON[name]())) == 1
        check_case(compiled_on(ON[name](), run.graph), run)


def test_what_waits_is_a_launch_of_its_own() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((1, 40), name="x"), cx.tensor((40, 24), name="w")
    y = (x @ w).output("y")
    (y @ cx.tensor((24, 8), name="v")).output("z")
    assert not any(" | " in label for label in labels(cx.graph(), ON["cuda"]()))


def test_many_chunks_are_not_joined() -> None:
    graph = heads(200, 64, 48)
    assert not any(" | " in label for label in labels(graph, ON["cuda"]()))


def test_a_launch_moves_up_past_others() -> None:
    """The last product reads what the first does, and stands after what is made of that one."""
    cx = lm.Graph()
    x = cx.tensor((1, 40), name="x")
    first, last = cx.tensor((40, 24), name="first"), cx.tensor((40, 16), name="last")
    ((x @ first).relu() @ cx.tensor((24, 8), name="v")).output("y")
    (x @ last).output("z")
    found = labels(cx.graph(), ON["cuda"]())
    assert found[0].count(" | ") == 1
    run = drawn(cx.graph())
    check_case(compiled_on(ON["meanings"](), run.graph), run)


def test_a_state_that_is_overwritten_is_read_before() -> None:
    held = lm.State((1, 24), name="held")
    cx = lm.Graph()
    x = cx.tensor((1, 24), name="x")
    (cx.read(held).sum(-1) * 2).output("y")
    cx.assign(held, cx.read(held) + x)
    run = Case(
        cx.graph(),
        {"x": np.ones((1, 24), np.float32)},
        {},
        {held: np.arange(24.0, dtype=np.float32)[None]},
    )
    run.reset()
    check_case(compiled_on(ON["cuda"](), run.graph), run)


@pytest.mark.parametrize("seed", mostly_long(range(60), 2))
def test_random_programs(seed: int) -> None:
    run = random_case(seed)
    check_case(compiled_on(both_meanings.backend(), run.graph), run)


# --- the kernel -----------------------------------------------------------------------------------


def sums() -> Kernel:
    return joined([row_sums(5, 37, 8, 4, 2), row_sums(3, 20, 8, 4, 2)])


def test_sections_are_verified() -> None:
    kernel = sums()
    verify(kernel)
    one, other = (s for s in kernel.body if isinstance(s, Section))
    for body, complaint in (
        ((one, replace(other, first=const(1))), "the sections before it end at"),
        ((one,), "the grid of sections is one axis of all their chunks"),
        ((one, other, *other.body), "sections are all that a kernel's body consists of"),
    ):
        with pytest.raises(VerifyError, match=complaint):
            verify(replace(kernel, body=body))


@pytest.mark.parametrize("fault", ["a branch one chunk off", "one chunk too few"])
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, run = ON["cuda"](), drawn(heads(1, 24, 16))
    program = lower_to_program(run.graph, backend)
    (kernel,) = program.kernels
    if fault == "one chunk too few":
        (grid,) = kernel.grid
        wrong = replace(kernel, grid=(replace(grid, count=grid.count - 1),))
    else:
        one, other = (s for s in kernel.body if isinstance(s, Section))
        wrong = replace(kernel, body=(one, replace(other, first=other.first + 1)))
    program = replace(program, kernels=(wrong,))
    monkeypatch.setattr("tests.backends.on_device.lower_to_program", lambda *how: program)
    with pytest.raises(AssertionError, match="points differ"):
        check_case(compiled_on(backend, run.graph), run)


# --- a decode step --------------------------------------------------------------------------------


def test_the_products_of_a_decode_step() -> None:
    found = labels(decode(1), offline.backend("cuda"))
    assert [label.count(" | ") for label in found if " | " in label] == [2]


@pytest.mark.parametrize("results", [2048, 8192])
def test_results_that_share_a_factor_read_it_once(results: int) -> None:
    cx = lm.Graph()
    x, w = cx.tensor((1, 2048), name="x"), cx.tensor((results, 2048), lm.bfloat16, name="w")
    (x.cast(lm.bfloat16) @ w.mT).output("y")
    program = lower_to_program(cx.graph(), offline.backend("cuda"))
    (launch,) = [each for each in walk(program.launches) if "Contract" in each.label]
    assert launch.chunks is const(results // 4)


@pytest.mark.parametrize("results", mostly_long([30, 31, 33], 1))
def test_results_side_by_side_are_as_they_are_alone(results: int) -> None:
    cx = lm.Graph()
    x, w = cx.tensor((1, 40), name="x"), cx.tensor((results, 40), name="w")
    (x @ w.mT).relu().output("y")
    run = drawn(cx.graph())
    backend = replace(checked("cuda"), target=replace(checked("cuda").target, cores=1))
    (launch,) = walk(lower_to_program(run.graph, backend).launches)
    assert launch.chunks is const(-(-results // 4))
    check_case(compiled_on(backend, run.graph), run)
