"""Products of matrices as libraries of devices take them: graphs, programs that call a library for
them, and what they should give.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import luminal as lm
from luminal.backends.backend import Backend
from luminal.base.dtypes import dtype_of
from luminal.base.numerics import Numerics
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome, called_by
from luminal.search.space import Candidate, Space
from tests.close import close

Array = np.ndarray[Any, Any]
Fn = Callable[..., lm.Tensor]
F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
F64, I8 = np.dtype(np.float64), np.dtype(np.int8)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


class Product(NamedTuple):
    """A graph of tensors of these shapes, where "s" is a dim, and its name in lists."""

    name: str
    fn: Fn
    shapes: tuple[tuple[Any, ...], ...]
    dtype: Any = F32
    numerics: Numerics = Numerics.STANDARD

    @property
    def graph(self) -> lm.Graph:
        """The graph, with tensors x0, x1, ... and the output y."""
        cx = lm.Graph()
        dims = {"s": cx.dim("s", 1, 64)} if any("s" in shape for shape in self.shapes) else {}
        dtype = dtype_of(np.dtype(self.dtype).name)
        tensors = [
            cx.tensor(tuple(dims.get(n, n) for n in shape), dtype=dtype, name=f"x{k}")
            for k, shape in enumerate(self.shapes)
        ]
        self.fn(*tensors).output("y")
        return cx

    def given(self, s: int, rng: np.random.Generator) -> dict[str, Array]:
        """Random arrays for a run in which the dim is `s`."""
        shapes = [[s if n == "s" else n for n in shape] for shape in self.shapes]
        if self.dtype == I8:
            arrays = [rng.integers(-128, 128, shape, np.int8) for shape in shapes]
        else:
            arrays = [rng.standard_normal(shape).astype(self.dtype) for shape in shapes]
        return {f"x{k}": array for k, array in enumerate(arrays)}

    def called(
        self, backend: Backend, library: str = "cublaslt", algorithm: int = 0
    ) -> tuple[Space, Candidate]:
        """The program whose products are computed by the library, all that can be."""
        space = Space(self.graph.graph(), backend, self.numerics)
        knobs = (("algorithm", algorithm),) if algorithm else ()
        names = {
            origin.name: called_by(library, knobs)
            for origin in space.decode(Genome()).stages.origins
            if library in backend.library_calls(origin.steps[0], self.numerics)
        }
        return space, space.decode(Genome().with_tuned(names))


def count_of_calls(candidate: Candidate) -> int:
    """How many kernels of a program are libraries' products."""
    kernels = candidate.program.kernels
    return sum(k.call is not None and k.call.kernel.product is not None for k in kernels)


def executable(space: Space, candidate: Candidate, backend: Backend) -> Executable:
    """The program, ready to run."""
    return Executable(space.graph, (Variant({}, backend.runner(candidate.program)),))


def wide(x: lm.Tensor) -> lm.Tensor:
    """Narrow floats as f32; all else as it is, so that the same graph in float64 loses nothing."""
    return x if x.dtype in (lm.float32, lm.float64) else x.float()


def bytes_in(x: lm.Tensor, w: lm.Tensor) -> lm.Tensor:
    return x.to(lm.int32) @ w.to(lm.int32)


def linear(x: lm.Tensor, w: lm.Tensor, bias: lm.Tensor) -> lm.Tensor:
    return x @ w.mT + bias


PRODUCTS = (
    Product("nn", lambda a, b: a @ b, ((9, 12), (12, 7))),
    Product("nt", lambda a, b: a @ b.mT, ((9, 12), (7, 12))),
    Product("tn", lambda a, b: a.mT @ b, ((12, 9), (12, 7))),
    Product("tt", lambda a, b: a.mT @ b.mT, ((12, 9), (7, 12))),
    Product("turned result", lambda a, b: (a @ b).mT, ((9, 12), (12, 7))),
    Product("batched", lambda a, b: a @ b, ((3, 5, 8), (3, 8, 6))),
    Product("two batches", lambda a, b: a @ b, ((2, 3, 5, 8), (2, 3, 8, 6))),
    Product("rows over a batch", lambda a, b: a @ b, ((3, 5, 8), (8, 6))),
    Product("batch in the middle", lambda a, b: a.transpose(0, 1) @ b, ((5, 3, 8), (3, 8, 6))),
    Product("batch between rows", lambda a, b: (a @ b).transpose(0, 1), ((3, 5, 8), (3, 8, 6))),
    Product("heads", lambda q, k: q.transpose(0, 1) @ k.permute(1, 2, 0), ((5, 3, 8), (7, 3, 8))),
    Product("part of the sum", lambda a, b: a[:, 3:11] @ b, ((9, 14), (8, 7))),
    Product("part of the columns", lambda a, b: a @ b[:, 2:7], ((9, 12), (12, 10))),
    Product("parts of both", lambda a, b: a[2:8, 1:9] @ b[4:12, 3:8], ((10, 11), (13, 9))),
    Product("parts of a batch's rows", lambda a, b: a[:, 1:4] @ b, ((3, 5, 8), (8, 6))),
    Product("part of a batch", lambda a, b: a[1:3] @ b[2:4, :, 1:5], ((4, 5, 8), (5, 8, 6))),
    Product("last row", lambda a, b: a[-1] @ b, (("s", 12), (12, 7))),
    Product("a row of each batch", lambda a, b: a[:, 2] @ b, ((4, 5, 12), (12, 7))),
    Product("one row", lambda a, b: a @ b, ((1, 12), (12, 7))),
    Product("one column", lambda a, b: a @ b, ((9, 12), (12, 1))),
    Product("a vector", lambda a, b: a @ b, ((9, 12), (12,))),
    Product("a vector first", lambda a, b: a @ b, ((12,), (12, 7))),
    Product("one batch", lambda a, b: a @ b, ((1, 5, 8), (1, 8, 6))),
    Product("with itself", lambda a: a @ a.mT, ((9, 12),)),
    Product("linear", linear, ((9, 12), (7, 12), (7,))),
    Product("bias of a batch", lambda a, b, c: a @ b + c, ((3, 5, 8), (3, 8, 6), (6,))),
    Product("part of a bias", lambda a, b, c: a @ b + c[3:10], ((9, 12), (12, 7), (12,))),
    Product("bias first", lambda a, b, c: c + a @ b, ((9, 12), (12, 7), (7,))),
    Product("turned with a bias", lambda a, b, c: (a @ b + c[:, None]).mT,
            ((9, 12), (12, 7), (9,))),
    Product("dynamic rows", lambda a, b: a @ b, (("s", 12), (12, 7))),
    Product("dynamic sum", lambda a, b: a @ b, ((5, "s"), ("s", 7))),
    Product("dynamic columns", lambda a, b, c: a @ b + c, ((5, 8), (8, "s"), ("s",))),
    Product("dynamic batch", lambda a, b: a @ b.mT, (("s", 5, 8), ("s", 6, 8))),
    Product("f64", lambda a, b: a @ b, ((9, 12), (12, 7)), F64),
    Product("f16", lambda a, b: a @ b, ((9, 12), (12, 7)), F16),
    Product("f16 to f32", lambda a, b: wide(a) @ wide(b), ((9, 12), (12, 7)), F16),
    Product("bf16", lambda a, b: a @ b, ((9, 12), (12, 7)), BF16),
    Product("bf16 turned", lambda a, b: a @ b.mT, ((9, 12), (7, 12)), BF16),
    Product("bf16 to f32", lambda a, b: wide(a) @ wide(b), ((9, 12), (12, 7)), BF16),
    Product("bf16 linear", linear, ((9, 12), (7, 12), (7,)), BF16, Numerics.RELAXED),
    Product("bytes", lambda a, b: bytes_in(a, b.mT), ((9, 16), (8, 16)), I8),
    Product("bytes of a batch", lambda a, b: bytes_in(a, b.mT), ((3, 5, 8), (3, 12, 8)), I8),
    Product("part of bytes", lambda a, b: bytes_in(a[:, 4:20], b.mT), ((9, 24), (8, 16)), I8),
)  # fmt: skip
"""Each is one kernel that a library can compute."""


def in_bf16(y: lm.Tensor) -> lm.Tensor:
    return y.to(lm.bfloat16) if y.dtype is lm.float32 else y


EIGHTHS = (
    Product("e4m3", lambda a, b: wide(a) @ wide(b.mT), ((32, 48), (16, 48)), E4M3),
    Product("e4m3 to bf16", lambda a, b: in_bf16(wide(a) @ wide(b.mT)), ((16, 32), (32, 32)), E4M3),
    Product("e4m3 of a batch", lambda a, b: wide(a) @ wide(b.mT), ((3, 16, 32), (3, 16, 32)), E4M3),
    Product(
        "part of e4m3", lambda a, b: wide(a[:, 16:48]) @ wide(b.mT), ((16, 64), (32, 32)), E4M3
    ),
)
"""Of floats of 8 bits, for libraries that have them."""
NO_EIGHTHS = (
    Product("e5m2", lambda a, b: wide(a) @ wide(b.mT), ((32, 48), (16, 48)), E5M2),
    Product("e4m3 by columns", lambda a, b: wide(a) @ wide(b), ((32, 48), (48, 16)), E4M3),
    Product("e4m3 of odd rows", lambda a, b: wide(a) @ wide(b.mT), ((24, 48), (16, 48)), E4M3),
    Product("e4m3 that start oddly", lambda a, b: wide(a[:, 8:40]) @ wide(b.mT),
            ((16, 64), (32, 32)), E4M3),
)  # fmt: skip

NO_PRODUCTS = (
    Product("epilogue", lambda a, b: (a @ b).relu(), ((9, 12), (12, 7))),
    Product("prologue", lambda a, b: a.abs() @ b, ((9, 12), (12, 7))),
    Product("no sum", lambda a, b: a[:, :, None] * b, ((9, 12), (12, 7))),
    Product("integers", lambda a, b: a.to(lm.int32) @ b.to(lm.int32), ((9, 12), (12, 7))),
    Product("every second column", lambda a, b: a[:, ::2] @ b, ((9, 24), (12, 7))),
    Product("flipped", lambda a, b: a.flip(0) @ b, ((9, 12), (12, 7))),
    Product("diagonal", lambda a, b: a.diagonal() * b.sum(1), ((9, 9), (9, 7))),
    Product("batch innermost", lambda a, b: lm.einsum("bmk,bkn->mnb", a, b),
            ((3, 5, 8), (3, 8, 6))),
    Product("heads of a batch", lambda q, k: q.transpose(1, 2) @ k.permute(0, 2, 3, 1),
            ((2, 5, 3, 8), (2, 7, 3, 8))),
    Product("bias along rows", lambda a, b, c: a @ b + c[:, None], ((9, 12), (12, 7), (9,))),
    Product("bias of each batch", lambda a, b, c: a @ b + c, ((3, 5, 8), (3, 8, 6), (3, 1, 6))),
    Product("bias of all", lambda a, b, c: a @ b + c, ((9, 12), (12, 7), (9, 7))),
    Product("rounded before the bias", linear, ((9, 12), (7, 12), (7,)), BF16),
    Product("sum of nothing", lambda a, b: a @ b, ((9, 0), (0, 7))),
    Product("bytes by columns", bytes_in, ((9, 16), (16, 8)), I8),
    Product("bytes of odd rows", lambda a, b: bytes_in(a, b.mT), ((9, 18), (8, 18)), I8),
    Product("bytes of an odd result", lambda a, b: bytes_in(a, b.mT), ((9, 16), (7, 16)), I8),
    Product("bytes that start oddly", lambda a, b: bytes_in(a[:, 2:18], b.mT),
            ((9, 24), (8, 16)), I8),
    Product("under exact numerics", lambda a, b: a @ b, ((9, 12), (12, 7)), F32, Numerics.EXACT),
)  # fmt: skip
"""None of these is one, or none that a library computes."""


def random_product(rng: random.Random) -> Product:
    """A product with a batch or without, of parts of tensors, turned or not, with a bias or not."""
    batch = rng.choice([0, 0, 1, 2, 3])
    m = rng.choice([1, 2, 3, 5, 8])
    n = rng.choice([1, 2, 3, 5, 8] if m > 1 else [2, 3, 5])  # one number is no matrix
    k = rng.choice([2, 3, 5, 8])  # of one there is no sum
    dtype = rng.choice([F32, F32, F64, F16, BF16])
    shares = [rng.random() < 0.3 for _ in range(2)]
    cuts = [[rng.choice([0, 0, 1, 3]) for _ in range(4)] for _ in range(2)]
    turned = [rng.random() < 0.5 for _ in range(2)]
    has_bias, turns_result = (
        dtype in (F32, F16) and n > 1 and rng.random() < 0.4,
        rng.random() < 0.3,
    )

    def shape(number: int, rows: int, columns: int) -> tuple[int, ...]:
        before, behind, top, bottom = cuts[number]
        sides = [rows + top + bottom, columns + before + behind]
        if turned[number]:
            sides.reverse()
        lead = [batch] if batch and not (shares[number] and number) else []
        return (*lead, *sides)

    def part(x: lm.Tensor, number: int, rows: int, columns: int) -> lm.Tensor:
        before, _, top, _ = cuts[number]
        x = x.mT if turned[number] else x
        return x[..., top : top + rows, before : before + columns]

    def fn(a: lm.Tensor, b: lm.Tensor, *bias: lm.Tensor) -> lm.Tensor:
        a, b = part(a, 0, m, k), part(b, 1, k, n)
        # Half floats with a bias are made of one rounding, which is a library's.
        y = wide(a) @ wide(b) if bias else a @ b
        for one in bias:
            y = y + wide(one)
        y = y.half() if a.dtype is lm.float16 else y
        return y.transpose(-2, -1) if turns_result and not bias else y

    shapes = [shape(0, m, k), shape(1, k, n)] + ([(n,)] if has_bias else [])
    name = f"{dtype} {batch} x {m} x {n} x {k}, turned {turned}, cuts {cuts}, bias {has_bias}"
    return Product(name, fn, tuple(shapes), dtype)


def exact(product: Product, given: dict[str, Array]) -> Array:
    """What the product should be: the same graph in float64, of integers in their own."""
    is_int = product.dtype == I8
    cx = lm.Graph()
    dtype = lm.int32 if is_int else lm.float64
    tensors = [cx.tensor(array.shape, dtype=dtype, name=name) for name, array in given.items()]
    product.fn(*tensors).output("y")
    arrays = {name: array.astype(dtype.numpy) for name, array in given.items()}
    return np.asarray(lm.compile(cx, "reference")(arrays)["y"])


def check(got: Array, product: Product, given: dict[str, Array]) -> None:
    """Asserts that it is near what it should be: short sums, in the accumulator, rounded once."""
    expected = exact(product, given).astype(got.dtype)
    close(got, expected, ulp=1 if got.dtype.itemsize == 2 else 8, err_msg=product.name)
