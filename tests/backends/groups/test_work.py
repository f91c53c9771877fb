"""The static model of a launch: what it counts is what interpreted lanes do, and the times that it
predicts are those that were measured on an H200.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc
from luminal.backends.cuda.chips import CHIPS
from luminal.base import dtypes
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.compiler.compile import lower_to_program
from luminal.expand import interpreter, ir, lockstep
from luminal.kernel.tile_ir import Buffer, Role
from luminal.program.launch_list import walk
from luminal.schedule.groups import work as counting
from luminal.schedule.groups.bounds import Bounds, bounds, lines, occupancy, resident
from luminal.schedule.groups.chip import Chip
from luminal.schedule.groups.counts import Access, Work
from luminal.schedule.groups.live import live_words
from luminal.schedule.groups.pipes import MEMORY
from luminal.schedule.groups.touched import ROW, SECTOR, WORD
from luminal.schedule.groups.work import work
from luminal.shape.expression import const
from tests.backends.cuda.present import needs_nvrtc
from tests.long_share import mostly_long

F32 = dtypes.float32
(H100,) = (chip for chip in CHIPS if chip.name == "sm_90a")
MEASURED = json.loads(Path(__file__).with_name("measured_on_h200.json").read_text())
FACTOR = 1.5  # between what is predicted and what was measured
COUNTED = 0.1  # of what lanes touch: branches that some chunks do not take are counted as taken


def backend() -> CBackend:
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    return made


# --- against measurements -------------------------------------------------------------------------


def counted(row: dict[str, Any]) -> Work:
    """The counts of a launch as the file has them, as if one access of each place made them."""
    held = ("lanes", "registers", "shared_bytes", "issued", "waits")
    accesses = tuple(
        Access("all", "load", place, 4, 1.0, 1, **numbers, is_looped=True, by_data=False)
        for place, numbers in row["accesses"].items()
        if numbers["taken"]
    )
    return Work(*(row[name] for name in held), accesses)


def predicted(row: dict[str, Any], chip: Chip) -> float:
    most = MEASURED["walkers"]
    return MEASURED["beside_seconds"] + sum(
        bounds(counted(each), chip, each["chunks"], each["bytes"], most).seconds
        for each in row["launches"]
    )


@pytest.mark.parametrize("row", MEASURED["rows"], ids=lambda row: row["program"])
def test_times_of_an_h200(row: dict[str, Any]) -> None:
    """The counts are of the kernels that were measured: those of today may be others."""
    chip = replace(H100, memory=MEASURED["memory"])
    ratio = predicted(row, chip) / row["seconds"]
    assert 1 / FACTOR < ratio < FACTOR, f"predicted {ratio:.2f} times what was measured"


# --- against the interpreter ----------------------------------------------------------------------


KINDS = {ir.Load: "load", ir.LoadMatrix: "load", ir.Store: "store", ir.Copy: "copy"}
Touched = dict[tuple[str, str], list[float]]
"""Requests, sectors or turns, and the least, by buffer and kind."""


class Notes:
    """What each lane touched, by statement: an array of element numbers for each time."""

    def __init__(self) -> None:
        self.of: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.statements: dict[int, Any] = {}

    def note(self, lane: int, statement: Any, addresses: Iterable[int]) -> None:
        self.statements[id(statement)] = statement
        self.of[id(statement)][lane].append(np.array(addresses))

    def noting(self) -> Callable[..., None]:
        """What stands for the interpreter's own notes."""
        return lambda accesses, *told: self.note(*told)

    def touched(self, kernel: ir.Kernel) -> Touched:
        """Totals over all rows of lanes, one request at a time."""
        shared = {buffer.name for buffer in kernel.shared}
        held = (*kernel.buffers, *kernel.shared, *(x.buffer for x in kernel.scratch))
        sizes = {buffer.name: ir.memory_dtype(buffer.dtype).size for buffer in held}
        totals: Touched = defaultdict(lambda: [0.0, 0.0, 0.0])
        for number, by_lane in self.of.items():
            statement = self.statements[number]
            kind = KINDS[type(statement)]
            share = 0.5 if isinstance(statement, ir.Copy) else 1.0  # it is noted at both its ends
            total = totals[statement.buffer, kind]
            size = sizes[statement.buffer]
            for first in range(0, kernel.lanes, ROW):
                rows = [by_lane[lane] for lane in range(first, first + ROW) if lane in by_lane]
                for time in range(max(map(len, rows), default=0)):
                    asked = [row[time] for row in rows if time < len(row)]
                    elements = {int(n) for each in asked for n in each}
                    if elements:
                        taken, least = one_request(elements, size, statement.buffer in shared)
                        counted = (1, taken, least)
                        total[:] = [n + share * m for n, m in zip(total, counted, strict=True)]
        return dict(totals)


def one_request(elements: set[int], size: int, is_shared: bool) -> tuple[int, int]:
    """Sectors of memory, or turns of banks, and the least."""
    places = {n * size for n in elements}
    if not is_shared:
        return len({place // SECTOR for place in places}), -(-len(places) * size // SECTOR)
    banks: dict[int, set[int]] = defaultdict(set)
    for place in places:
        banks[place // WORD % 32].add(place // WORD)
    return max(map(len, banks.values())), -(-len(places) * size // (32 * WORD))


def matmul(dtype: str = "f32", m: int = 64, k: int = 192, n: int = 64) -> lm.Graph:
    cx = lm.Graph()
    a, b = cx.tensor((m, k), name="a", dtype=dtype), cx.tensor((k, n), name="b", dtype=dtype)
    (a @ b).output("y")
    return cx


def of_one(f: Callable[[Any], Any], *shape: int) -> lm.Graph:
    cx = lm.Graph()
    f(cx.tensor(shape, name="x")).output("y")
    return cx


PROGRAMS: dict[str, Callable[[], lm.Graph]] = {
    "softmax": lambda: of_one(lambda x: x.softmax(-1), 8, 512),
    "sum of all": lambda: of_one(lambda x: x.sum(), 64, 300),
    "sum of columns": lambda: of_one(lambda x: x.sum(0), 64, 300),
    "transposed": lambda: of_one(lambda x: x.T * 2.0, 96, 80),
    "middle": lambda: of_one(lambda x: x.sum(1), 4, 32, 48),
    "product": matmul,
    "product of bf16": lambda: matmul("bf16", 64, 512, 64),
    "product that does not divide": lambda: matmul("f32", 50, 301, 70),
    "row": lambda: matmul("f32", 1, 300, 256),
}


@pytest.mark.parametrize("program", mostly_long(PROGRAMS, 6))
def test_what_is_counted_is_what_lanes_do(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the chunk in the middle: to a tenth, since a loop is looked at in one of its trips."""
    made = backend()
    launches = lower_to_program(PROGRAMS[program]().graph(), made)
    for launch in walk(launches.launches):
        kernel = spell_tiles(launches.kernels[launch.kernel], made.dialect).expanded
        assert kernel.lanes > 1
        found = work(kernel, {})
        model: Touched = defaultdict(lambda: [0.0, 0.0, 0.0])
        for each in found.accesses:
            requests = each.times * each.requests
            total = model[each.buffer, each.kind]
            total[:] = (
                total[0] + requests, total[1] + requests * each.taken,
                total[2] + requests * each.least,
            )  # fmt: skip
        notes = Notes()
        with monkeypatch.context() as patch:
            patch.setattr(lockstep.Accesses, "note", notes.noting())
            middle = int(kernel.chunks.evaluate({})) // 2
            arrays = {
                b.name: np.ones(int(b.size.evaluate({})), b.dtype.numpy) for b in kernel.buffers
            }
            interpreter.run(kernel, arrays, {}, range(middle, middle + 1))
        real = notes.touched(kernel)
        read = {place for place in model if place[1] == "copy" and place[0][0] == "b"}
        assert model.keys() == real.keys() | read  # what copies read the interpreter does not note
        for place, numbers in real.items():
            # Of shared memory squares are requests here, and loads of several of them there.
            first = int(place[0].startswith("s"))
            np.testing.assert_allclose(
                model[place][first:], numbers[first:], rtol=COUNTED, err_msg=f"{place}"
            )


# --- accesses by hand -----------------------------------------------------------------------------


class Hand:
    """A kernel of 64 lanes, which read a buffer, statement by statement."""

    def __init__(self) -> None:
        self.numbers = iter(range(1000))
        self.lane, self.chunk = self.value(ir.INDEX), self.value(ir.INDEX)
        self.body: list[ir.Statement] = []

    def value(self, type_: ir.Type) -> ir.Value:
        return ir.Value(next(self.numbers), type_)

    def apply(self, op: str, *args: ir.Operand, type_: ir.Type | None = None) -> ir.Value:
        out = self.value(type_ or args[0].type)
        self.body.append(ir.Apply(out, op, args))
        return out

    def load(
        self, place: ir.Operand, dtype: dtypes.DType = F32, lanes: int = 1, distance: int = 0
    ) -> ir.Value:
        out = self.value(ir.Type(dtype, lanes))
        self.body.append(ir.Load(out, "b", place, distance=distance))
        return out

    def loop(self, trips: int | ir.Value, body: Callable[[ir.Value], object]) -> None:
        outer, self.body, index = self.body, [], self.value(ir.INDEX)
        body(index)
        stop = integer(trips) if isinstance(trips, int) else trips
        outer.append(ir.Loop(index, integer(0), stop, 1, (), tuple(self.body)))
        self.body = outer

    def kernel(self, dtype: dtypes.DType = F32, shared: bool = False) -> ir.Kernel:
        buffer = Buffer("b", dtype, const(1 << 16), Role.IN)
        return ir.Kernel(
            (), () if shared else (buffer,), (), const(0), const(1), (), self.chunk,
            tuple(self.body), 64, self.lane, (buffer,) if shared else (), 32,
        )  # fmt: skip

    def work(self, dtype: dtypes.DType = F32, shared: bool = False) -> Work:
        return work(self.kernel(dtype, shared), {})


def integer(n: int) -> ir.Constant:
    return ir.Constant(ir.INDEX, np.int64(n).tobytes())


def one_access(
    stride: int, dtype: dtypes.DType = F32, lanes: int = 1, shared: bool = False, distance: int = 0
) -> Access:
    """A load at so many times the lane's number."""
    hand = Hand()
    hand.load(hand.apply("mul", hand.lane, integer(stride)), dtype, lanes, distance)
    (access,) = hand.work(dtype, shared).accesses
    return access


SECTORS = [
    ("side by side", 1, dtypes.float32, 1, 4, 4, 1),
    ("one for all", 0, dtypes.float32, 1, 1, 1, 1),
    ("halves", 1, dtypes.bfloat16, 1, 2, 2, 1),
    ("every second", 2, dtypes.float32, 1, 8, 4, 2),
    ("rows apart", 1024, dtypes.float32, 1, 32, 4, 32),
    ("wide", 4, dtypes.float32, 4, 16, 16, 4),
    ("wide halves", 8, dtypes.uint16, 8, 16, 16, 4),
]


@pytest.mark.parametrize(
    ("name", "stride", "dtype", "lanes", "taken", "least", "found"), SECTORS,
    ids=[row[0] for row in SECTORS],
)  # fmt: skip
def test_sectors(
    name: str, stride: int, dtype: dtypes.DType, lanes: int, taken: int, least: int, found: int
) -> None:
    access = one_access(stride, dtype, lanes)
    assert (access.taken, access.least, access.lines, access.requests) == (taken, least, found, 2)


@pytest.mark.parametrize(
    ("stride", "lanes", "turns", "least"),
    [(1, 1, 1, 1), (0, 1, 1, 1), (2, 1, 2, 1), (32, 1, 32, 1), (33, 1, 1, 1), (4, 4, 4, 4)],
)
def test_turns_of_banks(stride: int, lanes: int, turns: int, least: int) -> None:
    access = one_access(stride, lanes=lanes, shared=True)
    assert (access.taken, access.least) == (turns, least)
    looped = "" if turns == least else f"{turns} turns where {least} would do"
    assert looped in str(access)


def test_accesses_at_one_address_differ_by_their_distance() -> None:
    hand = Hand()
    place = hand.apply("mul", hand.lane, integer(1))
    for distance in (0, 1, 32, 33):
        hand.load(place, distance=distance)
    assert [access.taken for access in hand.work().accesses] == [4, 5, 4, 5]


@pytest.mark.parametrize(("lanes", "requests", "taken"), [(64, 2, 4), (32, 1, 4), (8, 1, 1)])
def test_some_lanes_come_by(lanes: int, requests: int, taken: int) -> None:
    hand = Hand()
    condition = hand.apply("lt", hand.lane, integer(lanes), type_=ir.CONDITION)
    outer, hand.body = hand.body, []
    hand.load(hand.lane)
    hand.body = [*outer, ir.If(condition, (), tuple(hand.body))]
    (access,) = hand.work().accesses
    assert (access.requests, access.taken) == (requests, taken)


def test_a_loop_is_looked_at_in_its_middle() -> None:
    hand = Hand()
    hand.loop(9, lambda index: hand.load(hand.apply("mul", hand.lane, index)))
    (access,) = hand.work().accesses
    assert (access.times, access.taken, access.is_looped) == (9, 16, True)  # four times the lane


def test_chunks_of_more_trips_and_of_fewer_count_by_their_mean() -> None:
    """As under a causal mask: the middle of 64 chunks, in rows of eight, has no trip."""
    hand = Hand()
    trips = hand.apply("remainder", hand.chunk, integer(8))
    hand.loop(trips, lambda index: hand.load(hand.apply("mul", hand.lane, index)))
    found = work(replace(hand.kernel(), chunks=const(64)), {})
    assert sum(access.times for access in found.accesses) == pytest.approx(3.5)
    assert found.issued[MEMORY] == pytest.approx(3.5 * 64)


def test_waits() -> None:
    """Loads are waited for when they are used, together; those of a simple loop's trips too."""
    hand = Hand()
    x, y = hand.load(hand.lane), hand.load(hand.lane, distance=64)
    hand.apply("add", x, y)
    hand.apply("add", y, x)
    assert hand.work().waits["global"] == 1

    def step(index: ir.Value) -> None:
        place = hand.apply("add", hand.lane, hand.apply("mul", index, integer(64)))
        hand.apply("add", hand.load(place), x)

    hand = Hand()
    x = hand.load(hand.lane)
    hand.loop(8, step)
    assert hand.work().waits["global"] == 2  # four trips at once, and x with the first
    hand.loop(8, lambda index: (step(index), hand.body.append(ir.Barrier())))
    assert hand.work().waits["global"] == 2 + 8
    assert hand.work().waits["barrier"] == 8


def test_what_was_touched_before_is_near() -> None:
    hand = Hand()
    x = hand.load(hand.apply("mul", hand.lane, integer(1024)))
    hand.apply("add", x, x)
    waits = hand.work().waits
    assert (waits["global"], waits["near"]) == (1 / 8, 7 / 8)


def test_what_a_loop_reads_lives_in_all_its_trips() -> None:
    hand = Hand()
    kept = [hand.load(hand.lane, distance=64 * n) for n in range(6)]

    def step(index: ir.Value) -> None:
        for each in kept:
            hand.apply("add", each, each)
        own = [hand.load(hand.lane, distance=64 * n) for n in range(4)]
        for each in own:
            hand.apply("add", each, each)

    hand.loop(3, step)
    assert live_words(hand.kernel()) == 6 + 4 + 2  # the lane's number has 64 bits


def test_every_statement_is_counted() -> None:
    assert set(get_args(ir.Statement)) <= set(counting._Count.RULES)


def test_what_depends_on_data_is_not_complained_of() -> None:
    cx = lm.Graph()
    table, rows = cx.tensor((1000, 64), name="t"), cx.tensor((512,), name="r", dtype="i32")
    table[rows].output("y")
    (kernel,) = lower_to_program(cx.graph(), backend()).kernels
    accesses = work(spell_tiles(kernel, backend().dialect).expanded, {}).accesses
    assert any(access.by_data for access in accesses)
    assert all(access.by_data or access.excess <= 2 for access in accesses)


# --- parts ----------------------------------------------------------------------------------------

PLAIN = Work(128, 32, 0, {}, {}, ())


def part(work: Work, chunks: int = 132, size: float = 0.0, most: int = 8) -> Bounds:
    return bounds(work, H100, chunks, size, most)


def test_the_longest_part_bounds() -> None:
    issuing = replace(PLAIN, issued={"f32": 128 * 1.755e6})
    assert part(issuing).issue == pytest.approx(1e-3)
    assert part(issuing).bound == "issue"
    assert part(replace(PLAIN, issued={"f64": 128 * 1.755e6})).issue == pytest.approx(2e-3)
    assert part(replace(PLAIN, issued={"special": 128 * 1.755e6})).issue == pytest.approx(8e-3)
    assert part(PLAIN, size=3.35e9 * 0.9).seconds == pytest.approx(1e-3)
    waiting = replace(PLAIN, waits={"global": 1000})
    assert part(waiting).latency == pytest.approx(300e-6)
    assert part(waiting, size=100 << 20).latency == pytest.approx(700e-6)


def test_groups_that_are_resident_wait_together() -> None:
    waiting = replace(PLAIN, waits={"global": 1000})
    assert part(waiting, chunks=8 * 132).latency == part(waiting).latency
    assert part(waiting, chunks=9 * 132).latency == pytest.approx(2 * part(waiting).latency)
    assert resident(PLAIN, H100, 99) == 16  # 2048 lanes
    assert resident(replace(PLAIN, registers=128), H100, 99) == 4
    assert resident(replace(PLAIN, shared_bytes=100 << 10), H100, 99) == 2


@pytest.mark.parametrize(
    ("work", "chunks", "expected"),
    [
        (PLAIN, 132 * 99, (16, 16, 1.0, "registers")),  # 65,536 of them by 128 lanes of 32
        (replace(PLAIN, registers=128), 132 * 99, (4, 4, 0.25, "registers")),
        (replace(PLAIN, registers=16), 132 * 99, (16, 16, 1.0, "lanes")),
        (replace(PLAIN, shared_bytes=100 << 10), 132 * 99, (2, 2, 0.125, "shared memory")),
        (replace(PLAIN, registers=128), 132 * 2 + 1, (4, 3, 0.1875, "chunks")),
    ],
)
def test_a_launch_takes_what_it_takes_of_a_unit(
    work: Work, chunks: int, expected: tuple[int, int, float, str]
) -> None:
    """By hand, of an H100: 64 K registers, 228 KiB of shared memory, 2,048 lanes a unit."""
    found = occupancy(work, H100, chunks, 99)
    assert (found.held, found.groups, found.share, found.limit) == expected
    assert (found.lanes, found.registers) == (work.lanes, work.registers)


def test_a_group_that_is_alone_does_nothing_while_it_waits() -> None:
    both = replace(PLAIN, issued={"f32": 128 * 1.755e6}, waits={"global": 1000})
    assert part(both).seconds == pytest.approx(1.3e-3)
    assert part(both, chunks=8 * 132).seconds == pytest.approx(8e-3 + 0.3e-3 / 8)


def test_registers_hold_what_is_live() -> None:
    (kernel,) = lower_to_program(matmul("f32", 4096, 4096, 4096).graph(), backend()).kernels
    found = work(spell_tiles(kernel, backend().dialect).expanded, {}).registers
    assert 64 <= found <= 168  # 64 sums, two columns of factors, places


LARGE: dict[str, Callable[[], lm.Graph]] = {
    "softmax": lambda: of_one(lambda x: x.softmax(-1), 4096, 4096),
    "gelu": lambda: of_one(lambda x: x.gelu(), 4096, 4096),
    "product": lambda: matmul("f32", 4096, 4096, 4096),
    "product of bf16": lambda: matmul("bf16", 4096, 4096, 4096),
}


@needs_nvrtc
@pytest.mark.parametrize("program", LARGE)
def test_registers_are_near_those_of_nvrtc(program: str) -> None:
    """Short loops, which NVRTC writes out, take more."""
    for kernel in lower_to_program(LARGE[program]().graph(), backend()).kernels:
        spelled = spell_tiles(kernel, backend().dialect)
        theirs = nvrtc.compile(spelled.text, "sm_90a").registers
        assert 0.7 < work(spelled.expanded, {}).registers / theirs < 1.4


# --- who asks -------------------------------------------------------------------------------------


def test_a_kernel_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = backend()
    program = lower_to_program(of_one(lambda x: x.T * 2.0, 4096, 4096).graph(), made)
    (launch,) = walk(program.launches)
    said = made.explained(program.kernels[launch.kernel], {}, float(launch.bytes.evaluate({})))
    assert " us, bound by " in said[0]
    assert all(part in said[0] for part in ("issue", "shared", "sectors", "memory", "latency"))
    bad = replace(PLAIN, accesses=(one_access(1024), one_access(2)))
    _, worst, second = lines(bad, part(bad))
    assert worst == "load of 4 B a lane, global b: 32 sectors where 4 would do, x1"
    assert second == "load of 4 B a lane, global b: 8 sectors where 4 would do, x1"


def test_candidates_are_ordered_by_it() -> None:
    """Not by operations and bytes alone, where the chip is known."""
    made = backend()
    program = lower_to_program(of_one(lambda x: x.sum(1), 4096, 4096).graph(), made)
    (step,) = program.kernels
    good = made.predict(step, {}, 1 << 24, 1 << 26).seconds
    assert 15e-6 < good < 200e-6
    assert replace(made, chip=None).predict(step, {}, 1 << 24, 1 << 26).seconds != good
