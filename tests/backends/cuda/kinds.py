"""A graph for each kind of kernel that programs are made of, in sizes of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

import luminal as lm
from luminal import nn
from luminal.frontend.tensor import Tensor
from tests.backends.c_family.matrix_products import product

N = 2048


def _of(build: Callable[..., Tensor], *shapes: tuple[int, ...], dtype: str = "float32") -> lm.Graph:
    cx = lm.Graph()
    build(*(cx.tensor(s, name=f"x{n}", dtype=dtype) for n, s in enumerate(shapes))).output("y")
    return cx


def _attention(dtype: str, width: int, causal: bool = False) -> lm.Graph:
    shape = 2, 8, 1024, width
    attend = partial(nn.functional.scaled_dot_product_attention, is_causal=causal)
    return _of(lambda q, k, v: attend(q, k, v), shape, shape, shape, dtype=dtype)


def _gradients(dtype: str) -> lm.Graph:
    cx = lm.Graph()
    shape = 2, 8, 1024, 64
    q, k, v = (cx.tensor(shape, name=n, dtype=dtype) for n in "qkv")
    y = nn.functional.scaled_dot_product_attention(q, k, v).cast("float32")
    for name, g in zip("qkv", lm.grad((y * y).sum(), [q, k, v]), strict=True):
        g.output(f"d{name}")
    return cx


def _packed(kind: str, rows: int) -> lm.Graph:
    layer = nn.Linear(N, N, bias=False)
    layer.weight.set(np.zeros((N, N), np.float32))
    lm.quantize(layer, kind)
    return _of(layer, (rows, N))


KINDS: Mapping[str, Callable[[], lm.Graph]] = {
    "element by element": lambda: _of(lambda x: x.gelu() * x, (N, N)),
    "softmax": lambda: _of(lambda x: x.softmax(-1), (N, N)),
    "sum of columns": lambda: _of(lambda x: x.sum(0), (N, N)),
    "scan": lambda: _of(lambda x: x.cumsum(-1), (64, N)),
    "sort": lambda: _of(lambda x: x.sort(-1)[0], (64, N)),
    "convolution": lambda: _of(nn.functional.conv2d, (8, 64, 56, 56), (64, 64, 3, 3)),
    **{
        f"product, {dtype}": partial(lambda d: product(d, N, N, N, (False, True)), dtype)
        for dtype in ("float16", "bfloat16", "float32", "float64", "int8")
    },
    "row by a matrix": lambda: _of(lambda a, b: a @ b.mT, (1, N), (N, N), dtype="bfloat16"),
    "row by Q4_0": lambda: _packed("q4_0", 1),
    "64 rows by Q4_0": lambda: _packed("q4_0", 64),
    "attention, bf16, 64": lambda: _attention("bfloat16", 64),
    "attention, bf16, 128": lambda: _attention("bfloat16", 128, True),
    "attention, f32, 64": lambda: _attention("float32", 64),
    "gradients of attention, bf16, 64": lambda: _gradients("bfloat16"),
}
