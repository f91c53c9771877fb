"""Graphs of every kind of op and layer whose genomes are sampled, at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.models.llama import Llama, LlamaConfig
from tests.fuzz.genome_drafts import Draft, decided, tamed
from tests.fuzz.graphs import Case

# --- language models ------------------------------------------------------------------------------


def llama_layers() -> list[Case]:
    """Three rolled layers with caches: prompts and single tokens."""
    d = Draft(
        ({"s": 4, "past": 3}, {"s": 1, "past": 0}, {"s": 1, "past": 15}, {"s": 16, "past": 0})
    )
    model = tamed(Llama(LlamaConfig(32, 48, 3, 4, 2, 8, 70, 16)).eval())
    s, past = d.cx.dim("s", 1, 16), d.cx.dim("past", 0, 15)
    d.cx.require(past + s <= 16)
    ids = d.given(s, dtype=lm.int32, below=70)
    return d.cases(model(ids, model.make_caches(16), past))


def llama_decode() -> list[Case]:
    """The step of one token in bfloat16."""
    d = Draft(({"past": 5}, {"past": 0}, {"past": 31}))
    model = tamed(Llama(LlamaConfig(32, 48, 2, 4, 2, 8, 70, 32), dtype=lm.bfloat16).eval())
    past = d.cx.dim("past", 0, 31)
    return d.cases(model(d.given(1, dtype=lm.int32, below=70), model.make_caches(32), past))


def llama_block() -> list[Case]:
    """One layer with grouped heads and caches, of any number of tokens."""
    d = Draft(({"s": 40, "past": 20}, {"s": 1, "past": 63}, {"s": 64, "past": 0}))
    model = tamed(Llama(LlamaConfig(32, 48, 1, 4, 2, 8, 50, 64)).eval())
    s, past = d.cx.dim("s", 1, 64), d.cx.dim("past", 0, 63)
    d.cx.require(past + s <= 64)
    return d.cases(model(d.given(s, dtype=lm.int32, below=50), model.make_caches(64), past))


def moe_blocks() -> list[Case]:
    """Enough tokens that experts take them by blocks."""
    d = Draft(({"s": 40}, {"s": 1}, {"s": 64}))
    moe = nn.MoE(16, 24, 4, 2)
    return d.cases(moe(d.given(d.cx.dim("s", 1, 64), 16, settle=partial(decided, moe))))


def attention_grouped() -> list[Case]:
    """Projections, four heads of queries over two of keys, a residual and a norm."""
    d = Draft()
    x = d.given(24, 32)
    q = d.dense(x, 32).reshape(24, 2, 2, 8).permute(1, 2, 0, 3)
    k = d.dense(x, 16).reshape(24, 2, 1, 8).permute(1, 2, 0, 3)
    v = d.dense(x, 16).reshape(24, 2, 1, 8).permute(1, 2, 0, 3)
    y = ((q @ k.mT * 0.35).softmax(-1) @ v).permute(2, 0, 1, 3).reshape(24, 32)
    return d.cases((d.dense(y, 32) + x).layer_norm(-1))


def _seen(d: Draft, n: Any, m: Any, window: int) -> Any:
    row, column = d.cx.arange(n).reshape(n, 1), d.cx.arange(m).reshape(1, m)
    return (column <= row - 2) & (row - column < window)


def attention_masked() -> list[Case]:
    """A sliding window in which the first rows see nothing; log-sum-exp beside it; soft cap."""
    d = Draft(({"s": 37}, {"s": 1}, {"s": 2}, {"s": 130}))
    s = d.cx.dim("s", 1, 160)
    q, k, v = (d.given(s, 8) for _ in range(3))
    scores = lm.where(_seen(d, s, s, 9), ((q @ k.T) * 0.3).tanh() * 4, -np.inf)
    return d.cases(scores.softmax(-1) @ v, scores.logsumexp(-1))


def attention_wild() -> list[Case]:
    """NaN and infinities in some rows, all scores below what float32 exponentials hold."""
    d = Draft(({"s": 20}, {"s": 70}))
    s = d.cx.dim("s", 1, 128)
    q, k, v = d.given(s, 4, wild=0.02), d.given(s, 4), d.given(s, 4)
    far = q @ k.T - 1000
    return d.cases((q @ k.T).softmax(-1) @ v, far.softmax(-1) @ v)


# --- convolutions ---------------------------------------------------------------------------------


def pools() -> list[Case]:
    """Maxima and means of the same windows, overlapping ones, and a global mean."""
    d = Draft()
    x = d.given(2, 3, 12, 12).conv2d(d.weight(4, 3, 3, 3), padding=1).relu()
    both = x.max_pool2d(2) + x.avg_pool2d(2)
    wide = both.max_pool2d(3, stride=1, padding=1)
    return d.cases(wide.mean((2, 3)) @ d.weight(4, 5), wide)


def convolutions() -> list[Case]:
    """Dilated, by channel, in groups, strided and transposed."""
    d = Draft()
    x = d.given(1, 4, 11, 9)
    x = x.conv2d(d.weight(4, 4, 3, 3), padding=2, dilation=2).relu()
    x = x + x.conv2d(d.weight(4, 1, 3, 3), padding=1, groups=4)
    y = x.conv2d(d.weight(6, 2, 3, 3), stride=2, groups=2)
    return d.cases(y.conv_transpose2d(d.weight(6, 3, 2, 2), stride=2), y.amax((2, 3)))


def batch_norm() -> list[Case]:
    """Training mode: running statistics are States."""
    d = Draft()
    x = d.given(3, 4, 5, 5)
    return d.cases(nn.BatchNorm2d(8)(x.conv2d(d.weight(8, 4, 3, 3))).relu().mean((2, 3)))


# --- local rows ---------------------------------------------------------------------------------


def local_rows() -> list[Case]:
    """A value used by several short sums: under a choice of index, next to an axis of extent 0."""
    d = Draft(({"n": 3}, {"n": 0}))
    n = d.cx.dim("n", 0, 8)
    x, v, w = d.given(4, 7), d.weight(7), d.given(7, n)
    e = x.exp()
    some = lm.where(d.cx.arange(7).reshape(1, 7) < 3, e, v.reshape(1, 7)).sum(1, keepdim=True)
    both = e.reshape(4, 7, 1).expand(4, 7, n) * w.reshape(1, 7, n).expand(4, 7, n)
    return d.cases((e * some * v).sum(1), both.sum((1, 2)) + (e * v).sum(1), e / some)


# --- other ops ------------------------------------------------------------------------------------


def ordered() -> list[Case]:
    """Scans and sorts, with what is computed before and after them."""
    d = Draft(({"s": 5}, {"s": 1}, {"s": 60}))
    x = d.given(d.cx.dim("s", 1, 64), 7, wild=0.03)
    values, order = (x * 2).sort(-1)
    tamed = lm.where(x == x, x.clamp(-3, 3), 0)
    return d.cases(
        values + 1, x.take_along_dim(order, -1), tamed.cumsum(0) * 2, x.argmax(-1), x.max(-1)[0]
    )


def long_scans() -> list[Case]:
    """Scans of rows so long that they run in blocks: their totals may be stored, or not."""
    d = Draft(({"s": 3}, {"s": 70_001}))
    x, y = d.given(d.cx.dim("s", 1, 1 << 17)), d.given(40_001, 2)
    return d.cases(
        (x * 0.5).cumsum(0) + 1, x.sin().cummax(0)[0], (y[:3000] * 1e-3 + 1).cumprod(0), y.cumsum(0)
    )


def memory() -> list[Case]:
    """Gathers from a table that is scattered into, region writes, duplicates among the rows."""
    d = Draft(({"s": 5}, {"s": 1}, {"s": 12}))
    s = d.cx.dim("s", 1, 12)
    rows, x = d.given(s, dtype=lm.int64, below=16), d.given(s, 6)
    table = lm.State((16, 6), name="table")
    old = d.cx.read(table)
    at = rows.reshape(s, 1).expand(s, 6)
    new = old.scatter(0, at, x * 2)
    d.cx.assign(table, new)
    return d.cases(old.take(rows, 0) + x, new.scatter_add(0, at, x).sum(0), new.softmax(-1))


def integers() -> list[Case]:
    """Products, sums and divisions of integers, with bits moved."""
    d = Draft(({"s": 9}, {"s": 1}, {"s": 40}))
    s = d.cx.dim("s", 1, 64)
    a, b = d.given(s, 17, dtype=lm.int8, below=127), d.given(17, 20, dtype=lm.int8, below=127)
    c = a.cast(lm.int32) @ b.cast(lm.int32)
    return d.cases(c, ((c // 7) % 5 << 2) ^ (c >> 3), c.max(-1)[0], (c * 3).sum(0))


def wide_floats() -> list[Case]:
    """float64: a product of three, a softmax, a norm."""
    d = Draft(({"s": 9}, {"s": 1}, {"s": 64}))
    x = d.given(d.cx.dim("s", 1, 64), 12, dtype=lm.float64)
    w = d.weight(12, 12, dtype=lm.float64, sums=12)
    y = (x @ w @ w).softmax(-1)
    return d.cases(y @ w, ((x - x.mean(0)).square().mean(0) + 0.5).sqrt())


def narrow_floats() -> list[Case]:
    """bfloat16 and float16 with float32 sums."""
    d = Draft(({"s": 9}, {"s": 1}, {"s": 64}))
    s = d.cx.dim("s", 1, 64)
    x, h = d.given(s, 32, dtype=lm.bfloat16), d.given(s, 16, dtype=lm.float16)
    y = d.dense(x, 48).relu()
    return d.cases(d.dense(y, 16), y * 2 + 1, h.softmax(0), x.cast(lm.float32).sum())


def empty() -> list[Case]:
    """A dim that may be 0, in products, sums, and scans; an empty sum with infinite factors."""
    d = Draft(({"s": 3}, {"s": 0}, {"s": 1}, {"s": 30}))
    s = d.cx.dim("s", 0, 64)
    x, y = d.given(s, 5), d.given(5, s)
    none = (d.given(0, 5) / (x.sum(0) * 0)).sum(0)
    return d.cases(
        none, y @ x, (x @ d.weight(5, 4)).relu(), x.sum(0), x.exp().cumsum(0), y @ x + x.sum()
    )


def random_numbers() -> list[Case]:
    """Keyed: the same bits however they are computed."""
    d = Draft()
    key = lm.random.key(3, d.cx)
    drawn = lm.random.uniform(key, (6, 9))
    return d.cases(
        d.given(6, 9) * (drawn < 0.5).cast(lm.float32), lm.random.bits(key, (40,)), drawn
    )


def custom() -> list[Case]:
    """Hand-written kernels of both kinds inside a program."""
    from tests.backends.cpu.frontend.custom_samples import scale, square

    d = Draft(({"s": 9}, {"s": 1}, {"s": 33}))
    x = d.given(d.cx.dim("s", 1, 64), 8)
    exact = x.relu()  # what computes with rounding before a kernel leaves nothing to compare
    return d.cases(square(exact).sum(0), d.dense(scale(x.flip(-1)), 6).softmax(-1))


GRAPHS: dict[str, Callable[[], list[Case]]] = {
    build.__name__: build
    for build in (
        llama_layers, llama_decode, llama_block, moe_blocks, attention_grouped, attention_masked,
        attention_wild, pools, convolutions, batch_norm, local_rows, ordered, long_scans, memory,
        integers, wide_floats, narrow_floats, empty, random_numbers, custom,
    )
}  # fmt: skip
