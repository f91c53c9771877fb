"""A program run on the OpenCL device that oclgrind simulates: a process of test_oclgrind.py.

`python -m tests.backends.opencl.simulated NAME LANES [PLANTED]` prints the kinds of its kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import luminal as lm
import luminal.nn.functional as f
from luminal.backends import device_costs
from luminal.backends.c_backend import machine
from luminal.backends.opencl.backend import OpenCl
from luminal.base import dtypes
from luminal.expand.builder import Builder
from luminal.expand.ir import Barrier, Statement
from luminal.kernel.evaluate import Placed
from luminal.kernel.knobs import Knobs
from luminal.program.steps import CustomStep, KernelStep
from luminal.runtime.executable import Executable
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.schedules import GroupSchedules
from tests.backends import op_table
from tests.backends.on_device import check_case, compiled_on
from tests.backends.opencl.apart import ApartDriver
from tests.fuzz.graphs import Case, random_case

Array = np.ndarray[Any, Any]
Check = Callable[[], None]
Tensors = Mapping[str, lm.Tensor]


class Simulated(OpenCl):
    """OpenCL by groups of `lanes`, with few of them at once."""

    lanes = 8

    @staticmethod
    def driver(spell: Any, number: int) -> ApartDriver:
        return ApartDriver(spell, number)


def compiled(graph: Any) -> Executable:
    """The executable of a graph there."""
    groups = Groups(Simulated.lanes, 256, 20 << 10, is_rule=True)
    target = machine("opencl", 2, 32 << 10, 1 << 20)
    return compiled_on(Simulated(target, 0, groups, device_costs.gpu), graph)


# --- kinds ----------------------------------------------------------------------------------------


KINDS: set[str] = set()
"""Of the kernels that were placed."""


def kind(step: KernelStep | CustomStep, placed: Placed) -> str:
    """What the step is, and who computes it."""
    how = "by groups" if placed.kernel.lanes > 1 else "alone"
    return f"{type(step).__name__} {how}"


def note_kinds() -> None:
    """Puts the kinds of all that is placed from here on into KINDS."""
    place = GroupSchedules.place

    def noted(self: GroupSchedules, step: KernelStep | CustomStep, knobs: Knobs = ()) -> Placed:
        placed = place(self, step, knobs)
        KINDS.add(kind(step, placed))
        return placed

    GroupSchedules.place = noted  # type: ignore[method-assign]


# --- programs -------------------------------------------------------------------------------------


class Program(NamedTuple):
    """What is run, and the kind that it is an example of."""

    kind: str
    check: Check


def of(
    kind: str,
    fn: Callable[..., Any],
    *shapes: tuple[Any, ...],
    dtype: Any = np.float32,
    **dims: int,
) -> Program:
    """A function of tensors of these shapes; dims are named in them."""

    def check() -> None:
        cx = lm.Graph()
        named = {name: cx.dim(name, 1, 512) for name in dims}
        tensors, inputs = [], {}
        rng = np.random.default_rng(3)
        for number, shape in enumerate(shapes):
            name = f"x{number}"
            tensors.append(cx.tensor(tuple(named.get(n, n) for n in shape), dtype, name))
            extents = tuple(dims.get(n, n) for n in shape)
            inputs[name] = (rng.standard_normal(extents) * 2).astype(dtype)
        made = fn(*tensors)
        for number, value in enumerate(made if isinstance(made, tuple) else (made,)):
            value.output(f"y{number}")
        check_case(compiled(cx.graph()), Case(cx.graph(), inputs, dims, {}))

    return Program(kind, check)


def normed(x: lm.Tensor) -> lm.Tensor:
    """A kernel that keeps a row while its lanes learn of its sum."""
    y = (x * 3).exp()
    y = (y / (y + 1)).exp()
    return y / y.sum(1, keepdim=True) + y.mean(1, keepdim=True)


def causal(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
    return f.scaled_dot_product_attention(q, k, v, is_causal=True)


def scattered(x: lm.Tensor, i: lm.Tensor, y: lm.Tensor) -> tuple[lm.Tensor, ...]:
    at = i.cast("i64").abs() % 5
    return x[at], x.index_add(0, at, y), x.index_copy(0, at[:3], y[:3])


def summed(carry: lm.Tensor, x: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
    following = (carry * 0.5 + x).softmax(0)
    return following, following.sum()


def graphs(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        check_case(compiled(case.graph), case)


def table(group: op_table.Group, dtype: dtypes.DType) -> None:
    op_table.check(compiled, dtype, (group,))


NEST, ALONE = "NestStep by groups", "NestStep alone"
CASCADE, SCAN, SORT = "CascadeStep by groups", "ScanStep by groups", "SortStep by groups"
BF16 = ml_dtypes.bfloat16
PROGRAMS: dict[str, Program] = {
    "map": of(NEST, lambda x: (x * 2).sin() + x.T.T, (7, 30)),
    "map of bytes": of(NEST, lambda x, y: (x > y) | (x < 0), (7, 33), (33,), dtype=BF16),
    "transposed": of(NEST, lambda x: x.T + 1, (19, 23)),
    "rows": of(NEST, lambda x: (x.sum(1), x.argmax(1), x.amax(1)), (5, 70)),
    "columns": of(NEST, lambda x: (x.sum(0), x.amax(0)), (70, 5)),
    "all": of(NEST, lambda x: x.sum(), (3, 700)),
    "a long row": of(NEST, lambda x: x.sum(), (9000,)),
    "normed": of(NEST, normed, (3, 40)),
    "softmax": of(NEST, lambda x: x.softmax(-1), (3, 300)),
    "dims": of(NEST, lambda x: x.softmax(-1) + x.sum(0), ("a", "b"), a=7, b=33),
    "product": of(NEST, lambda a, b: a @ b, (19, 21), (21, 23)),
    "product over dims": of(NEST, lambda a, b: a @ b, ("a", 21), (21, "b"), a=9, b=18),
    "batched": of(NEST, lambda a, b: (a @ b).relu(), (3, 5, 9), (3, 9, 6)),
    "one row": of(NEST, lambda a, b: a @ b, (1, 90), (90, 40)),
    "bf16": of(NEST, lambda a, b: a @ b, (5, 9), (9, 6), dtype=BF16),
    "convolution": of(NEST, lambda x, w: f.conv2d(x, w, padding=1), (1, 2, 5, 6), (5, 2, 3, 3)),
    "attention": of(CASCADE, lambda q, k, v: (q @ k.mT).softmax(-1) @ v, (5, 8), (70, 8), (70, 8)),
    "causal": of(CASCADE, causal, (2, 33, 8), (2, 33, 8), (2, 33, 8)),
    "one query": of(CASCADE, lambda q, k, v: (q @ k.mT).softmax(-1) @ v, (1, 8), (90, 8), (90, 8)),
    "scan": of(SCAN, lambda x: (x.cumsum(1), x.cummax(1)[0]), (2, 150)),
    "scan of columns": of(SCAN, lambda x: x.cumsum(0), (19, 20)),
    "sort": of(SORT, lambda x: x.sort(1), (3, 40)),
    "sort of columns": of(SORT, lambda x: x.sort(0), (40, 3)),
    "sort of a long row": of(SORT, lambda x: x.sort(0), (1100,)),
    "gather and scatter": of(NEST, scattered, (5, 9), (12,), (12, 9)),
    "loop": of(NEST, lambda x: lm.scan(summed, x[0] * 0, x), (4, 20)),
    "graphs": Program(NEST, partial(graphs, range(8))),
    **{
        f"{group.__name__} of {dtype}": Program(NEST, partial(table, group, dtype))
        for group in op_table.GROUPS
        for dtype in (dtypes.float32, dtypes.int8)
    },
}


# --- what is planted ------------------------------------------------------------------------------


def without_a_barrier() -> None:
    """No kernel has its third."""
    emit = Builder.emit
    barriers: list[bool] = []

    def all_but_the_third(self: Builder, statement: Statement) -> None:
        barriers.append(isinstance(statement, Barrier))
        if not (barriers[-1] and sum(barriers) == 3):
            emit(self, statement)

    Builder.emit = all_but_the_third  # type: ignore[method-assign]


def short_buffers() -> None:
    """Every operand lacks its last four bytes."""
    ApartDriver.missing = 4


def unset_buffers() -> None:
    """Nothing has written what kernels read."""
    ApartDriver.unset = True


PLANTED: dict[str, Callable[[], None]] = {
    "race": without_a_barrier,
    "bounds": short_buffers,
    "unset": unset_buffers,
}


def main(name: str, lanes: str, planted: str = "") -> Iterator[str]:
    """Runs the program of that name: the kinds of its kernels."""
    if planted:
        PLANTED[planted]()
    Simulated.lanes = int(lanes)
    note_kinds()
    try:
        PROGRAMS[name].check()
    except AssertionError:
        if not planted:
            raise
    yield from sorted(KINDS)


if __name__ == "__main__":
    print(*main(*sys.argv[1:]), sep="\n")
