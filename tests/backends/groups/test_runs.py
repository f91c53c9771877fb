"""Lanes that own runs, and wide accesses: random views of odd offsets, strides, extents and dtypes,
by both meanings of each kernel and by NumPy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import VerifyError
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.compiler.compile import lower_to_program
from luminal.expand import interpreter, ir, loops, narrow, verify
from luminal.expand.expand import expand
from luminal.expand.narrow import narrowed
from luminal.expand.text import to_text
from luminal.expand.tiles import Pieces
from luminal.expand.zeros import Zeros
from luminal.kernel.tile_ir import Role
from luminal.program.launch_list import LoopLaunch, walk
from luminal.schedule.groups import runs
from luminal.shape.divisors import common_divisor
from luminal.shape.expression import axis, const, minimum, symbol
from tests.backends.c_family.dialects import DIALECTS
from tests.backends.c_family.kernels import Writer, index
from tests.backends.groups.both_meanings import DRIVER, backend, compiled
from tests.expand.group_kernels import row_sums
from tests.long_share import mostly_long

LENGTHS = (1, 3, 31, 64, 127, 128, 130, 132, 256, 257, 264)
DTYPES = ("f32", "f32", "bf16", "f16", "i8", "bool", "u8", "i64", "f64")
Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def is_wide(kernel: ir.Kernel, kind: type[ir.Statement]) -> bool:
    """Has the kernel accesses of several elements, of this kind?"""
    return any(each.is_aligned for each in kernel.statements() if isinstance(each, kind))


class Views:
    """Views and operations drawn by a seed, on a graph and on arrays of small integers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = lm.Graph()
        self.arrays: dict[str, Array] = {}

    def operand(self, shape: tuple[int, ...]) -> tuple[lm.Tensor, Array]:
        """A view of this shape of an operand of its own, as f32."""
        rng, name = self.rng, f"x{len(self.arrays)}"
        dtype = dtypes.dtype_of(str(rng.choice(DTYPES)))
        before = [int(rng.integers(0, 6)) * int(rng.random() < 0.3) for _ in shape]
        step = [2 if rng.random() < 0.1 else 1 for _ in shape]
        spans = [
            slice(start, start + n * by, by)
            for start, n, by in zip(before, shape, step, strict=True)
        ]
        after = int(rng.integers(0, 4))
        whole = [span.stop + (after if k else 0) for k, span in enumerate(spans)]
        turned = len(shape) > 1 and rng.random() < 0.25
        held = whole[::-1] if turned else whole
        one = [k for k in range(len(shape)) if rng.random() < 0.15]
        for k in one:  # broadcast
            held[len(shape) - 1 - k if turned else k] = 1
        values = rng.integers(0, 2 if dtype is dtypes.bool_ else 5, held).astype(dtype.numpy)
        self.arrays[name] = values
        x, y = self.graph.tensor(tuple(held), name=name, dtype=dtype.short), values
        if turned:
            x, y = x.permute(*reversed(range(len(shape)))), y.transpose()
        spans = [slice(0, 1) if k in one else span for k, span in enumerate(spans)]
        x, y = x[tuple(spans)].cast("f32"), y[tuple(spans)].astype(np.float32)
        if rng.random() < 0.1:
            x, y = x.flip(len(shape) - 1), np.flip(y, -1)
        return x.expand(*shape), np.broadcast_to(y, shape)

    def check(self) -> None:
        """A map of some operands, and one of its sums."""
        rng = self.rng
        shape = tuple(int(rng.integers(1, 5)) for _ in range(int(rng.integers(0, 3))))
        shape = (*shape, int(rng.choice(LENGTHS)))
        if rng.random() < 0.2:
            shape = shape[::-1]
        x, y = self.operand(shape)
        for _ in range(int(rng.integers(0, 3))):
            other, array = self.operand(shape)
            x, y = x + other, y + array
        kind, dim = rng.integers(0, 4), int(rng.integers(0, len(shape)))
        if kind == 1:
            x, y = x.sum(dim), y.sum(dim)
        elif kind == 2:
            x, y = x - x.max(dim, keepdim=True)[0], y - y.max(dim, keepdims=True)
        elif kind == 3:
            x, y = x * 2 + x.sum(dim, keepdim=True), y * 2 + y.sum(dim, keepdims=True)
        target = dtypes.dtype_of(str(rng.choice(("f32", "f32", "bf16", "i16", "bool"))))
        x.cast(target.short).output("out")
        found = compiled(self.graph.graph())(self.arrays)["out"]
        np.testing.assert_array_equal(found, y.astype(target.numpy))


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            Views(seed).check()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("first", mostly_long([*range(0, 360, 6)], 1))
def test_random_views(first: int) -> None:
    check_seeds(range(first, first + 6))
    kernels = DRIVER.expanded.values()
    assert any(is_wide(kernel, ir.Load) for kernel in kernels)
    assert any(is_wide(kernel, ir.Store) for kernel in kernels)


@pytest.mark.parametrize("first", mostly_long([*range(400, 580, 6)], 1))
def test_runs_that_lie_anywhere_are_right_as_well(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules take runs where they are aligned, and are no proof that they are."""
    monkeypatch.setattr(runs, "is_multiple", lambda offset, n: True)
    check_seeds(range(first, first + 6))


@pytest.mark.parametrize(("n", "unaligned"), [(128, False), (129, True), (130, True)])
def test_slices_of_a_loop_that_may_lie_anywhere_are_read_one_by_one(
    n: int, unaligned: bool
) -> None:
    cx = lm.Graph()
    x = cx.tensor((4, n), name="x")
    last, _ = lm.scan(lambda c, each: (c + each, each), x[0] * 0, x)
    last.output("last")
    program = lower_to_program(cx.graph(), backend())
    loops = [each for each in program.launches if isinstance(each, LoopLaunch)]
    inside = [program.kernels[launch.kernel] for launch in walk(loops)]
    apart = [(k, b.name) for k in inside for b in k.buffers if not b.is_aligned]
    assert bool(apart) == unaligned
    assert not any(f"load aligned {name}[" in to_text(expand(kernel)) for kernel, name in apart)
    assert unaligned or any(is_wide(expand(kernel), ir.Load) for kernel in inside)
    given = np.arange(4 * n, dtype=np.float32).reshape(4, n)
    found = compiled(cx.graph())({"x": given})["last"]
    np.testing.assert_array_equal(found, given.sum(0))


# --- what proves that an access may be wide -------------------------------------------------------


def test_divisors_divide() -> None:
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(200):
        x, n = axis("x", 100), symbol("n")
        expr = x * int(rng.integers(1, 9)) + n * int(rng.integers(0, 9)) * 4
        for _ in range(int(rng.integers(0, 3))):
            other, op = int(rng.choice([3, 4, 8, 12, 48])), rng.integers(0, 5)
            expr = (expr * other, expr % other, minimum(expr, other), expr + other, expr // other)[
                op
            ]
        divisor = common_divisor(expr, 16)
        found.add(divisor)
        for _ in range(20):
            at = {"x": int(rng.integers(0, 100)), "n": int(rng.integers(1, 50))}
            assert int(expr.evaluate(at)) % divisor == 0, f"{expr} by {divisor} at {at}"
    assert len(found) > 3


def test_zeros_are_zeros() -> None:
    rng, w = np.random.default_rng(1), Writer()
    values = [w.n, index(12), index(0), index(-8), index(1 << 40)]
    for _ in range(300):
        name = str(rng.choice(("add", "sub", "mul", "and", "or", "xor", "min", "max")))
        x, y = (values[int(rng.integers(len(values)))] for _ in range(2))
        if rng.random() < 0.4:
            name, y = str(rng.choice(("shl", "shr"))), index(int(rng.integers(0, 7)))
        values.append(w.apply(name, x, y))
    zeros, body = Zeros(), w.taken()
    for statement in body:
        assert isinstance(statement, ir.Apply)
        zeros.note(statement)
    w.body = [*body, *(ir.Store("y", index(k), value) for k, value in enumerate(values))]
    kernel = replace(w.kernel(("y", dtypes.int64, Role.OUT)), chunks=const(1))
    for n in (305, 512, 999):
        y = np.zeros(n, np.int64)
        interpreter.run(kernel, {"y": y}, {"n": n})
        for value, found in zip(values, y, strict=False):
            assert int(found) % (1 << min(63, zeros.of(value))) == 0
    assert len({zeros.of(value) for value in values}) > 5


# --- planted faults -------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRIVER, "expanded", {})


def caught(match: str, seeds: int = 60) -> None:
    with pytest.raises((VerifyError, AssertionError), match=match):
        check_seeds(range(seeds))


@pytest.mark.usefixtures("fresh")
def test_an_alignment_that_nothing_proves_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "is_multiple", lambda offset, n: True)
    monkeypatch.setattr(Zeros, "of", lambda self, operand: 2)
    caught("is no multiple of|Mismatched|differ")


@pytest.mark.usefixtures("fresh")
def test_runs_that_overlap_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Pieces.at
    monkeypatch.setattr(Pieces, "at", lambda self, piece: at(self, piece) // self.lanes)
    caught("Mismatched|outside|which lane|differ")


@pytest.mark.long
@pytest.mark.usefixtures("fresh")
def test_a_mask_that_is_not_one_for_a_run_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "is_multiple", lambda expr, n: True)
    caught("is outside|Mismatched|differ")


def test_wide_accesses_are_verified() -> None:
    kernel = expand(row_sums(5, 64, 4, 4, 1, run=4))
    verify.verify(kernel)
    (x, y) = kernel.buffers
    loose = replace(kernel, buffers=(replace(x, is_aligned=False), y))
    with pytest.raises(VerifyError, match="x starts anywhere; access its elements one by one"):
        verify.verify(loose)
    tiles = row_sums(5, 64, 4, 4, 1, run=4)
    (x, y) = tiles.buffers
    narrow = expand(replace(tiles, buffers=(replace(x, is_aligned=False), y)))
    verify.verify(narrow)
    assert not is_wide(narrow, ir.Load)


# --- integers of 32 bits --------------------------------------------------------------------------


def counted(rows: int, n: int) -> ir.Kernel:
    return narrowed(expand(row_sums(rows, n, 4, 4, 1, run=4)))


def longs(kernel: ir.Kernel) -> int:
    """The operations on i64 that are left."""
    applied = [each for each in kernel.statements() if isinstance(each, ir.Apply)]
    return sum(each.out.type == ir.INDEX for each in applied)


def test_what_fits_is_computed_in_32_bits() -> None:
    kernel = counted(5, 64)
    verify.verify(kernel)
    assert longs(kernel) == 0
    loads = [each for each in kernel.statements() if isinstance(each, ir.Load)]
    assert {load.address.type.dtype for load in loads} == {dtypes.int32}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_of_gpus_alone_compute_in_32_bits(name: str) -> None:
    """OpenCL's CPUs are slower so."""
    made = spell_tiles(row_sums(5, 64, 4, 4, 1, run=4), DIALECTS[name]).expanded
    assert (longs(made) > 0) == (name == "opencl")


def test_addresses_beyond_32_bits_are_long() -> None:
    kernel = counted(1 << 20, 1 << 12)
    verify.verify(kernel)
    loads = [each for each in kernel.statements() if isinstance(each, ir.Load)]
    assert {load.address.type.dtype for load in loads if load.buffer == "x"} == {dtypes.int64}
    # the last element lies at 2**32 - 1: only the row's start is long
    assert 0 < longs(kernel) < longs(expand(row_sums(1 << 20, 1 << 12, 4, 4, 1, run=4)))


def test_integers_that_do_not_fit_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Writer()
    far = w.apply("shl", w.apply("shl", w.chunk, index(20)), index(13))  # up to 2**43
    w.store("y", w.chunk, w.apply("shr", w.apply("add", far, w.n), index(31)))
    kernel = w.kernel(("y", dtypes.int64, Role.OUT))

    def ran() -> list[int]:
        y = np.zeros(100, np.int64)
        interpreter.run(narrowed(kernel), {"y": y}, {"n": 100})
        return [int(each) for each in y]

    expected = [4 * k for k in range(100)]
    assert ran() == expected
    monkeypatch.setattr(narrow, "fits", lambda interval: True)
    with pytest.raises((VerifyError, AssertionError)):
        assert ran() == expected
