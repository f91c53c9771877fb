"""Kernels written by hand for tests, and ways to run them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from luminal.backends.cpu import compiler, machine_code
from luminal.backends.cpu.target import cap, detect
from luminal.base import dtypes
from luminal.base.dots import multiply_add
from luminal.base.dtypes import DType
from luminal.base.target import Target
from luminal.codegen.llvm import render
from luminal.kernel import tile_interpreter
from luminal.kernel.scratch import scratch_bytes
from luminal.kernel.tile_ir import (
    Buffer,
    Carry,
    Contract,
    Grid,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Prefix,
    Reduce,
    Role,
    Space,
    Statement,
    Store,
    Tile,
)
from luminal.kernel.tile_verify import verify
from luminal.shape.expression import TRUE, Expression, Symbol, as_expression, axis, symbol

Extent = Expression | int
Indices = Sequence[tuple[Symbol, Tile]]


def drawn_as(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as another dtype; negative ones wrap in an unsigned one, which C leaves open."""
    return (numbers.astype(np.int64) if dtype.kind in "iu" else numbers).astype(dtype)


class LoopHandle:
    """What the body of a loop under construction sees."""

    def __init__(self, axis: Symbol, inner: list[Tile]) -> None:
        self.axis = axis
        self.inner = inner
        self.next: list[Tile] = []
        self.results: list[Tile] = []


class TileBuilder:
    """Appends statements; tile axes of results follow from the operands."""

    def __init__(self) -> None:
        self.params: list[Symbol] = []
        self.buffers: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self.grids: list[Grid] = []
        self.bodies: list[list[Statement]] = [[]]
        self.tiled: list[Symbol] = []
        self.dtypes: dict[str, DType] = {}
        self.count = 0

    def kernel(self) -> Kernel:
        return Kernel(
            tuple(self.params),
            tuple(self.buffers),
            tuple(self.scratches),
            tuple(self.grids),
            tuple(self.bodies[0]),
        )

    def param(self, name: str, lo: int = 0, hi: int = 2**31 - 1) -> Symbol:
        self.params.append(symbol(name, lo, hi))
        return self.params[-1]

    def buffer(self, name: str, size: Extent, role: str = "in", dtype: str = "f32") -> str:
        of = dtypes.dtype_of(dtype)
        self.buffers.append(Buffer(name, of, as_expression(size), Space.GLOBAL, Role(role)))
        self.dtypes[name] = of
        return name

    def scratch(self, name: str, size: Extent, dtype: str = "f32") -> str:
        of = dtypes.dtype_of(dtype)
        self.scratches.append(Buffer(name, of, as_expression(size), Space.SCRATCH))
        self.dtypes[name] = of
        return name

    def grid(self, name: str, count: Extent) -> Symbol:
        self.grids.append(Grid(axis(name, count), as_expression(count)))
        return self.grids[-1].axis

    def tile(self, axes: Sequence[Symbol], dtype: DType) -> Tile:
        self.count += 1
        return Tile(self.count, tuple(axes), dtype)

    def union(self, *parts: Sequence[Symbol] | frozenset[Symbol]) -> tuple[Symbol, ...]:
        """The tile axes among `parts`, in the order of the loops."""
        every = {a for part in parts for a in part}
        known = [a for a in self.tiled if a in every]
        return (*known, *sorted(every - set(known), key=lambda a: a.name))

    def emit(self, statement: Statement) -> None:
        self.bodies[-1].append(statement)

    def literal(self, value: float | int | bool, dtype: str = "f32") -> Tile:
        out = self.tile((), dtypes.dtype_of(dtype))
        self.emit(Literal(out, out.dtype.numpy.type(value).tobytes()))
        return out

    def index(self, expr: Expression) -> Tile:
        out = self.tile(self.union(expr.symbols() & set(self.tiled)), dtypes.int64)
        self.emit(Index(out, expr))
        return out

    def map(self, op: str, *args: Tile, dtype: str | None = None) -> Tile:
        result = args[-1].dtype if dtype is None else dtypes.dtype_of(dtype)
        if op in ("LessThan", "Equal"):
            result = dtypes.bool_
        out = self.tile(self.union(*(a.axes for a in args)), result)
        self.emit(Map(out, op, args))
        return out

    def contract(self, acc: Tile, a: Tile, b: Tile) -> Tile:
        out = self.tile(self.union(acc.axes, a.axes, b.axes), acc.dtype)
        self.emit(Contract(out, acc, a, b, multiply_add(acc.dtype)))
        return out

    def reduce(self, op: str, value: Tile, over: Symbol) -> Tile:
        out = self.tile([a for a in value.axes if a is not over], value.dtype)
        self.emit(Reduce(out, op, value, over))
        return out

    def prefix(self, op: str, value: Tile, along: Symbol) -> tuple[Tile, Tile]:
        out = self.tile(self.union((along,), value.axes), value.dtype)
        total = self.tile([a for a in value.axes if a is not along], value.dtype)
        self.emit(Prefix(out, total, op, value, along))
        return out, total

    def load(
        self, name: str, offset: Extent, guard: Expression = TRUE, indices: Indices = ()
    ) -> Tile:
        offset = as_expression(offset)
        used = (offset.symbols() | guard.symbols()) & set(self.tiled)
        out = self.tile(self.union(used, *(t.axes for _, t in indices)), self.dtypes[name])
        self.emit(Load(out, name, offset, guard, tuple(indices)))
        return out

    def store(
        self, name: str, offset: Extent, value: Tile, guard: Expression = TRUE,
        indices: Indices = (), add: bool = False,
    ) -> None:  # fmt: skip
        self.emit(Store(name, as_expression(offset), value, guard, tuple(indices), add))

    @contextmanager
    def branch(self, condition: Expression) -> Iterator[None]:
        self.bodies.append([])
        yield
        body = self.bodies.pop()
        self.emit(If(condition, tuple(body)))

    @contextmanager
    def loop(
        self, name: str, stop: Extent, *, start: Extent = 0, unroll: int = 1, vector: int = 1,
        carry: Sequence[tuple[Tile, Sequence[Symbol | str]]] = (), extent: Extent | None = None,
    ) -> Iterator[LoopHandle]:  # fmt: skip
        """A loop; `carry` pairs inits with the carried axes ("self": the loop's own, if tiled)."""
        over = axis(name, stop if extent is None else extent)
        tiled = unroll * vector > 1
        if tiled:
            self.tiled.append(over)
        self.bodies.append([])
        named = {"self": [over] if tiled else []}
        axes = [self.union(*(named.get(a, [a]) for a in own)) for _, own in carry]
        pairs = list(zip(carry, axes, strict=True))
        handle = LoopHandle(over, [self.tile(own, init.dtype) for (init, _), own in pairs])
        yield handle
        body = self.bodies.pop()
        if tiled:
            self.tiled.remove(over)
        handle.results = [self.tile(own, init.dtype) for (init, _), own in pairs]
        carries = tuple(
            Carry(result, init, inner, following)
            for (init, _), result, inner, following in zip(
                carry, handle.results, handle.inner, handle.next, strict=True
            )
        )
        bounds = as_expression(start), as_expression(stop)
        self.emit(Loop(over, *bounds, tuple(body), carries, unroll, vector))


def backwards(source: str, result: str, n: int) -> Kernel:
    """`result` is `source` backwards, by way of scratch."""
    k = TileBuilder()
    k.buffer(source, n)
    k.buffer(result, n, "out")
    k.scratch("s", n + 1)
    k.grid("c", 1)
    with k.loop("i", n) as i:
        k.store("s", i.axis, k.load(source, i.axis))
    with k.loop("j", n) as j:
        k.store(result, j.axis, k.load("s", n - 1 - j.axis))
    return k.kernel()


def targets() -> list[Target]:
    """This machine and, where it has more, the same without AVX-512."""
    native = detect()
    return [native] if native.vector_bits < 512 else [native, cap(native, "avx2")]


@functools.lru_cache(4)
def native(kernel: Kernel, target: Target) -> Native:
    """The compiled kernel; a test with several inputs compiles it once."""
    return Native(kernel, target)


class Native:
    """A compiled kernel, called directly."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.code = compiler.load(machine_code.compile_object(render(kernel, target), target))
        kinds = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p]
        self.function = ctypes.CFUNCTYPE(None, *kinds)(self.code.address)

    def __call__(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, int]) -> None:
        pointers = [arrays[buffer.name].ctypes.data for buffer in self.kernel.buffers]
        slots = np.array(pointers or [0], np.int64)
        dims = np.array([params[p.name] for p in self.kernel.params] or [0], np.int64)
        size = int(scratch_bytes(self.kernel).evaluate(params))
        scratch = np.full(size + 128, 0xA5, np.uint8)
        at = -(-scratch.ctypes.data // 64) * 64
        chunks = int(np.prod([int(g.count.evaluate(params)) for g in self.kernel.grid]))
        for begin, end in ((0, chunks // 2), (chunks // 2, chunks)):
            self.function(slots.ctypes.data, dims.ctypes.data, begin, end, at)


RUNS: list[Callable[..., dict[str, np.ndarray]]] = []


def run_all(
    kernel: Kernel, arrays: Mapping[str, np.ndarray], params: Mapping[str, int] | None = None,
    rtol: float = 0.0,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Verify, interpret, and compare every target's code with the interpreter: the same bits,
    or within `rtol` where functions are approximated. Gives the interpreter's arrays.

    Where `RUNS` holds another way to run kernels, it is taken in the place of this one.
    """
    if RUNS:
        return RUNS[-1](kernel, arrays, params, rtol)
    params = params or {}
    verify(kernel)
    expected = {name: array.copy() for name, array in arrays.items()}
    tile_interpreter.run(kernel, expected, params)
    for target in targets():
        found = {name: array.copy() for name, array in arrays.items()}
        native(kernel, target)(found, params)
        for name, array in found.items():
            compare(f"{target.name} {name}", array, expected[name], rtol)
    return expected


def compare(name: str, found: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    if rtol:
        wide = found.astype(np.float64), expected.astype(np.float64)
        # near 0 the approximations have an absolute error: a thousandth of the relative one
        np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol * 1e-3, err_msg=name)
        return
    same = found.reshape(-1).view(np.uint8) == expected.reshape(-1).view(np.uint8)
    nan = (
        np.repeat(np.isnan(found.reshape(-1)), found.itemsize) if found.dtype.kind == "f" else False
    )
    if not (same | nan).all():
        np.testing.assert_array_equal(found, expected, err_msg=name)
        raise AssertionError(f"{name}: zeros differ in sign")
