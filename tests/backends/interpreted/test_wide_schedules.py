"""Schedules for a CPU of vectors of 512 bits, with every dot that one may have, on any machine: its
kernels are placed, verified, expanded as for it and interpreted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.interpreted import device
from luminal.base import dtypes
from luminal.base.dots import BF16_PAIRS, HALVES, INT8_FOURS, UINT8_BY_INT8
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages, reschedule
from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.ir import Type
from luminal.hlir.graph import Graph
from luminal.kernel import tile_interpreter, tile_ir
from luminal.kernel.tile_ir import Contract
from luminal.program.steps import KernelStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends import op_table
from tests.backends.cpu.schedule.dot_cases import CASES
from tests.backends.cpu.schedule.knob_choices import placed_choices, sample
from tests.backends.cpu.schedule.spaces import GRAPHS, case
from tests.backends.interpreted.words import LANES, OfWords
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case, random_case
from tests.long_share import long_but

DOTS = (BF16_PAIRS, INT8_FOURS, UINT8_BY_INT8)
WORDS = frozenset((dot.name, Type(dot.accumulator, n)) for dot in DOTS for n in (1, LANES))
WORDS |= {(dot.name, Type(dot.accumulator, 2 * LANES)) for dot in HALVES}
MACHINE = OfWords(replace(device.TARGET, vector_bits=32 * LANES, registers=32, dots=DOTS))
OF_ROWS = OfWords(replace(MACHINE.target, dots=(*HALVES, *DOTS)))
"""It has dots of two rows by two columns, too."""


@pytest.fixture(autouse=True)
def _expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(kernel: tile_ir.Kernel, arrays: Any, params: Any, chunks: int) -> None:
        interpreter.run(expand(kernel, LANES, WORDS), arrays, params)

    monkeypatch.setattr(tile_interpreter, "run", run)


def compiled(graph: Graph) -> Executable:
    return compiled_on(MACHINE, graph)


OF_DOTS = [name for name in GRAPHS if name.split()[0] in ("bf16", "i8")]


def check(name: str, most: int, machine: OfWords = MACHINE) -> None:
    run = case(name)
    stages = lower_by_stages(run.graph, machine)
    by_dot = False
    for step in stages.partition.steps:
        assert isinstance(step, KernelStep)
        texts = placed_choices(step, machine)
        for knobs in ((), *sample(name, [(text_key(texts[()]), k) for k in texts if k], most)):
            tuned = {knobs[0]: knobs[1]} if knobs else {}
            program = reschedule(stages, machine, tuned).program
            statements = [s for kernel in program.kernels for s in kernel.statements()]
            by_dot |= any(
                isinstance(s, Contract) and s.dot in machine.target.dots for s in statements
            )
            exe = Executable(run.graph, (Variant({}, machine.runner(program)),))
            try:
                check_case(exe, run, 1.0)
            except Exception as error:
                error.add_note(f"{name} with {knobs}")
                raise
    assert by_dot == (name in OF_DOTS)


@pytest.mark.parametrize("name", long_but(list(GRAPHS), ("bf16 skinny", "i8 two")))
def test_some_schedules_of_each_kernel(name: str) -> None:
    check(name, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", GRAPHS)
def test_more_schedules_of_each_kernel(name: str) -> None:
    check(name, 6)


@pytest.mark.parametrize("name", long_but(OF_DOTS, ("i8 two",)))
def test_schedules_of_dots_of_two_rows(name: str) -> None:
    is_long = name != "i8 two"
    check(name, 6 if is_long else 0, OF_ROWS)


QUICK = ("a row", "an odd sum", "two sums of one")


@pytest.mark.parametrize("name", long_but(CASES, QUICK))
def test_products_of_bfloat16(name: str) -> None:
    check_products(name, MACHINE)


@pytest.mark.parametrize("name", long_but(CASES, ("two sums of one",)))
def test_products_of_two_rows(name: str) -> None:
    check_products(name, OF_ROWS)


def check_products(name: str, machine: OfWords) -> None:
    compute, shapes, by_dot = CASES[name]
    cx = lm.Graph()
    operands = [cx.tensor(shape, lm.bfloat16, f"x{n}") for n, shape in enumerate(shapes)]
    compute(*operands).output("y")
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape, np.float32) for shape in shapes]
    given = {f"x{n}": x.astype(lm.bfloat16.numpy) for n, x in enumerate(drawn)}
    program = lower_by_stages(cx.graph(), machine).program
    statements = [s for kernel in program.kernels for s in kernel.statements()]
    dots = {s.dot for s in statements if isinstance(s, Contract)}
    assert (not dots.isdisjoint(machine.target.dots)) == by_dot
    exe = Executable(cx.graph(), (Variant({}, machine.runner(program)),))
    check_case(exe, Case(cx.graph(), given, {}, {}), 1.0)


@pytest.mark.parametrize("dtype", long_but(dtypes.ALL, (dtypes.bfloat16, dtypes.int8)), ids=str)
def test_every_op(dtype: dtypes.DType) -> None:
    op_table.check(compiled, dtype, op_table.GROUPS, dtypes.ALL)


@pytest.mark.parametrize("seeds", long_but([range(10), range(10, 300)], (range(10),)), ids=str)
def test_random_graphs(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        check_case(compiled(case.graph), case)
