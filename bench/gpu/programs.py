"""The programs of the table: each in Luminal and in PyTorch, at full size and small.

Small ones are for checkers that make a kernel a hundred times as slow, and for tests. The bounds
are those of the issue that asked for them: shares of what the card copies or multiplies, ratios to
PyTorch's best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import luminal as lm
from bench.gpu.networks import resnet50
from luminal import nn

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Work:
    """One program. `ours` makes outputs by name of Tensors, `torch` a tensor of PyTorch's, given
    PyTorch's functions first.

    `weights` are inputs that a model would own, and lie on the device. A run moves `bytes` at least
    and takes `flops`. `bound`: the share of the copy's bandwidth ("copy") or the ratio to PyTorch's
    best time ("peer") that it should reach. `module`: its weights are PyTorch's network's too.
    """

    inputs: Mapping[str, Array]
    ours: Callable[..., Mapping[str, lm.Tensor]]
    torch: Callable[..., Any] | None
    bound: Mapping[str, float]
    weights: frozenset[str] = frozenset()
    bytes: int = 0
    flops: float = 0.0
    tolerance: float = 1e-3
    module: Any = field(default=None)

    def graph(self) -> lm.Graph:
        """The program as a graph, its weights set."""
        cx = lm.Graph()
        leaves = []
        for name, array in self.inputs.items():
            if name in self.weights:
                leaves.append(cx.weight(array.shape, array.dtype, name=name))
                leaves[-1].set(array)
            else:
                leaves.append(cx.tensor(array.shape, array.dtype, name=name))
        for name, value in self.ours(*leaves).items():
            value.output(name)
        return cx


def drawn(*shape: int, dtype: Any = F32, seed: int = 0) -> Array:
    """Random numbers: on constant ones a card runs at a higher clock."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)
    return values.astype(dtype, copy=False)


# --- bound by memory ------------------------------------------------------------------------------


def _of_square(ours: Any, torch: Any, results: int, small: bool) -> Work:
    """A program of one square matrix: what it reads, and `results` times as much that it writes."""
    n = 96 if small else 4096
    x = drawn(n, n)
    written = results * x.nbytes
    return Work(
        {"x": x},
        lambda x: {"y": ours(x)},
        torch,
        {"copy": 0.8, "peer": 1.0},
        bytes=x.nbytes + written,
        tolerance=1e-4,
    )


def _layer_norm(x: Any) -> Any:
    return nn.functional.layer_norm(x, (x.shape[-1],))


def _row_by_matrix(rows: int, small: bool) -> Work:
    n = 128 if small else 4096
    x, w = drawn(rows, n, dtype=BFLOAT16), drawn(n, n, dtype=BFLOAT16, seed=1) / n**0.5
    w = w.astype(BFLOAT16)
    return Work(
        {"x": x, "w": w},
        lambda x, w: {"y": x @ w},
        lambda torch, x, w: x @ w,
        {"copy": 0.8, "peer": 1.0},
        frozenset("w"),
        bytes=x.nbytes * 2 + w.nbytes,
        flops=2.0 * rows * n * n,
        tolerance=3e-2,
    )


# --- bound by arithmetic --------------------------------------------------------------------------


def _product(n: int, dtype: Any, share: float, small: bool) -> Work:
    n = 80 if small else n
    a, b = (drawn(n, n, dtype=dtype, seed=seed) for seed in range(2))
    return Work(
        {"a": a, "b": b},
        lambda a, b: {"y": a @ b},
        lambda torch, a, b: a @ b,
        {"peer": share},
        bytes=3 * a.nbytes,
        flops=2.0 * n**3,
        tolerance=3e-2 if dtype == BFLOAT16 else 1e-3,
    )


def _attention(length: int, heads: int, width: int, causal: bool, dtype: Any, small: bool) -> Work:
    length = 64 if small else length
    given = {n: drawn(1, heads, length, width, dtype=dtype, seed=s) for s, n in enumerate("qkv")}
    attend = partial(nn.functional.scaled_dot_product_attention, is_causal=causal)
    flops = 4.0 * heads * length * length * width * (0.5 if causal else 1.0)
    return Work(
        given,
        lambda q, k, v: {"y": attend(q, k, v)},
        lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal
        ),
        {"peer": 0.6},
        bytes=4 * given["q"].nbytes,
        flops=flops,
        tolerance=3e-2 if dtype == BFLOAT16 else 1e-3,
    )


def _attention_backward(small: bool) -> Work:
    length, heads, width = (64 if small else 2048), 16, 64
    shape = (1, heads, length, width)
    given = {n: drawn(*shape, dtype=BFLOAT16, seed=s) for s, n in enumerate((*"qkv", "up"))}

    def ours(q: Any, k: Any, v: Any, up: Any) -> Mapping[str, Any]:
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return dict(zip("qkv", lm.grad((y * up).sum(), [q, k, v]), strict=True))

    def theirs(torch: Any, q: Any, k: Any, v: Any, up: Any) -> Any:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            y = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
            return torch.autograd.grad(y, leaves, up)[0]

    return Work(
        given,
        ours,
        theirs,
        {"peer": 0.5},
        bytes=7 * given["q"].nbytes,
        flops=3.5 * 2 * heads * length * length * width,
        tolerance=5e-2,
    )


# --- networks -------------------------------------------------------------------------------------


def _resnet(small: bool) -> Work:
    batch, size = (1, 32) if small else (32, 224)
    model = resnet50(nn, 4 if small else 64)
    model.eval()
    model.to(dtype=lm.bfloat16)
    x = drawn(batch, 3, size, size, dtype=BFLOAT16)
    return Work(
        {"x": x},
        lambda x: {"y": model(x)},
        None,
        {"peer": 0.6},
        flops=batch * 8.2e9,
        tolerance=0.1,
        module=model,
    )


_SQUARE: dict[str, tuple[Any, Any, int]] = {
    "softmax": (lambda x: x.softmax(-1), lambda torch, x: torch.softmax(x, -1), 1),
    "layer norm": (
        _layer_norm,
        lambda torch, x: torch.nn.functional.layer_norm(x, (x.shape[-1],)),
        1,
    ),
    "rms norm": (
        lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
        lambda torch, x: torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=1e-5),
        1,
    ),
    "gelu": (lambda x: x.gelu(), lambda torch, x: torch.nn.functional.gelu(x), 1),
    "transpose": (
        lambda x: x.T.contiguous(),
        lambda torch, x: x.T.contiguous(),
        1,
    ),
    "sum of all": (lambda x: x.sum(), lambda torch, x: x.sum(), 0),
    "sum of rows": (lambda x: x.sum(-1), lambda torch, x: x.sum(-1), 0),
    "sum of columns": (lambda x: x.sum(0), lambda torch, x: x.sum(0), 0),
}

PROGRAMS: dict[str, Callable[[bool], Work]] = {
    **{f"{name} 4096^2 f32": partial(_of_square, *row) for name, row in _SQUARE.items()},
    **{
        f"{rows} x 4096 x 4096 bf16": partial(_row_by_matrix, rows)
        for rows in (1, 2, 4, 8, 16)
    },
    **{f"product {n} bf16": partial(_product, n, BFLOAT16, 0.5) for n in (1024, 2048, 4096, 8192)},
    **{f"product {n} f32": partial(_product, n, F32, 0.5) for n in (1024, 4096)},
    "attention 8x1024x64 bf16": partial(_attention, 1024, 8, 64, False, BFLOAT16),
    "attention 16x4096x128 causal bf16": partial(_attention, 4096, 16, 128, True, BFLOAT16),
    "attention 16x1024x64 f32": partial(_attention, 1024, 16, 64, False, F32),
    "attention 16x2048x64 causal bf16, backward": _attention_backward,
    "ResNet-50 32x224 bf16": _resnet,
}  # fmt: skip
"""The table's programs by name; each is made small, or at full size."""
