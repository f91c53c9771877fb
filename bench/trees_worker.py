"""One side of `bench.trees`: compiles and runs programs by the luminal on its path, as it is told.

It is run by its path, so that it works with a tree that lacks it, and takes a line of JSON for each
request: {"compile": NAME}, or {"run": NAME, "calls": n}. PROGRAMS are small and have one core and
thread; those of the TABLE have the sizes of `python -m bench`, and all.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.models.llama import Llama, LlamaConfig
from luminal.nn import functional as F

Given = tuple[lm.Graph, dict[str, Any], dict[str, int]]  # a graph, its inputs, its dims


@cache  # drawn before anything is timed, as every program is compiled once to warm up
def _drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def matmul() -> Given:
    """A product of square matrices."""
    cx = lm.Graph()
    (cx.tensor((384, 384), name="a") @ cx.tensor((384, 384), name="b")).output("c")
    return cx, {"a": _drawn(384, 384), "b": _drawn(384, 384, seed=1)}, {}


def softmax() -> Given:
    """Rows that are reduced twice."""
    cx = lm.Graph()
    cx.tensor((512, 1024), name="x").softmax(-1).output("y")
    return cx, {"x": _drawn(512, 1024)}, {}


def sort() -> Given:
    """Rows in order, and sums along them."""
    cx = lm.Graph()
    x = cx.tensor((64, 1024), name="x")
    x.sort(-1)[0].output("sorted")
    x.cumsum(-1).output("sums")
    return cx, {"x": _drawn(64, 1024)}, {}


def attention() -> Given:
    """A cascade."""
    cx = lm.Graph()
    q, k, v = (cx.tensor((1, 4, 128, 64), name=name) for name in "qkv")
    F.scaled_dot_product_attention(q, k, v, is_causal=True).output("y")
    return cx, {name: _drawn(1, 4, 128, 64, seed=s) for s, name in enumerate("qkv")}, {}


def convolution() -> Given:
    """3 x 3, its weights in panels."""
    nn.init.manual_seed(0)
    cx = lm.Graph()
    nn.Conv2d(64, 64, 3, padding=1)(cx.tensor((1, 64, 28, 28), name="x")).relu().output("y")
    return cx, {"x": _drawn(1, 64, 28, 28)}, {}


def mnist_step() -> Given:
    """A training step of a small convolutional network: States change from call to call."""
    nn.init.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 13 * 13, 10)
    )
    cx = lm.Graph()
    x, y = cx.tensor((32, 1, 28, 28), name="x"), cx.tensor((32,), np.int64, "y")
    loss = F.cross_entropy(model(x), y).output("loss")
    optim.Adam(model.parameters(), lr=1e-3).step(loss)
    return cx, {"x": _drawn(32, 1, 28, 28), "y": np.arange(32) % 10}, {}


def _llama() -> Llama:
    nn.init.manual_seed(0)
    return Llama(LlamaConfig(128, 384, 6, 4, 2, 32, 256, 64))


def llama_prompt() -> Given:
    """Six layers, rolled, for a prompt of any length."""
    cx = lm.Graph()
    ids = cx.tensor((cx.dim("s", 1, 64),), np.int64, "ids")
    _llama().eval()(ids).output("logits")
    return cx, {"ids": np.arange(48) % 256}, {}


def llama_token() -> Given:
    """One token, with caches."""
    model = _llama().eval()
    cx = lm.Graph()
    past, ids = cx.dim("past", 0, 63), cx.tensor((1,), np.int64, "ids")
    model(ids, model.make_caches(64), past).output("logits")
    return cx, {"ids": np.array([7])}, {"past": 20}


PROGRAMS: dict[str, Callable[[], Given]] = {
    make.__name__: make
    for make in (
        matmul, softmax, sort, attention, convolution, mnist_step, llama_prompt, llama_token,
    )
}  # fmt: skip


TABLE: dict[str, Callable[[], Given]] = {}


def _table(name: str, call: Callable[..., lm.Tensor], *arrays: Any) -> None:
    """A program of the table: what `call` makes of inputs like these."""

    def make() -> Given:
        nn.init.manual_seed(0)
        cx = lm.Graph()
        given = {f"x{number}": array() for number, array in enumerate(arrays)}
        tensors = [cx.tensor(array.shape, array.dtype, key) for key, array in given.items()]
        call(*tensors).output("y")
        return cx, given, {}

    TABLE[name] = make


def _f32(*shape: int) -> Callable[[], Any]:
    return lambda: _drawn(*shape)


def _places(count: int, bound: int) -> Callable[[], Any]:
    return cache(lambda: np.random.default_rng(1).integers(0, bound, count))


def _attention(**options: Any) -> Callable[..., lm.Tensor]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def _module(kind: Callable[..., nn.Module], *args: int, **options: int) -> Callable[..., lm.Tensor]:
    """A module, made anew for each graph."""
    return lambda x: kind(*args, **options)(x)


_SQUARE = _f32(4096, 4096)
_table("sum 1,000,003", lambda x: x.sum(), _f32(1_000_003))
_table("small call", lambda x: x * 2 + 1, _f32(64))
_table("matmul 512", lambda a, b: a @ b, _f32(512, 512), _f32(512, 512))
_table("matmul 1000x777x1333", lambda a, b: a @ b, _f32(1000, 777), _f32(777, 1333))
_table("matmul 2048", lambda a, b: a @ b, _f32(2048, 2048), _f32(2048, 2048))
_table("row x 4096^2", lambda a, b: a @ b, _f32(1, 4096), _SQUARE)
_table("attention 1024", _attention(), *[_f32(1, 8, 1024, 64)] * 3)
_table("attention 2048 causal", _attention(is_causal=True), *[_f32(1, 8, 2048, 64)] * 3)
_table("softmax 4096^2", lambda x: x.softmax(-1), _SQUARE)
_table("layer norm 4096^2", lambda x: F.layer_norm(x, (4096,)), _SQUARE)
_table("gelu 4096^2", F.gelu, _SQUARE)
_table("chain 4096^2", lambda x: ((x * 2 + 1).tanh() * x).exp(), _SQUARE)
_table("columns 4096^2", lambda x: x.sum(0), _SQUARE)
_table(
    "SwiGLU 128x1024x2816",
    lambda x, gate, up, down: (F.silu(x @ gate) * (x @ up)) @ down,
    _f32(128, 1024), _f32(1024, 2816), _f32(1024, 2816), _f32(2816, 1024),
)  # fmt: skip
_table("convolution 56", _module(nn.Conv2d, 64, 64, 3, padding=1), _f32(1, 64, 56, 56))
_table("convolution stem", _module(nn.Conv2d, 3, 64, 7, stride=2, padding=3), _f32(1, 3, 224, 224))
_table("depthwise 56", _module(nn.Conv2d, 128, 128, 3, padding=1, groups=128), _f32(1, 128, 56, 56))
_table("experts of 512 tokens", _module(nn.MoE, 256, 512, 8, 2), _f32(512, 256))
_table("sort 1,000,003", lambda x: x.sort(-1)[0], _f32(1_000_003))
_table("bincount", lambda x: x.bincount(size=1000), _places(1_000_000, 1000))
_table(
    "scatter_add", lambda x, i, y: x.scatter_add(1, i, y),
    _f32(4096, 256), cache(lambda: _places(4096 * 256, 256)().reshape(4096, 256)), _f32(4096, 256),
)  # fmt: skip
_table(
    "index_add",
    lambda x, i, y: x.index_add(0, i, y),
    _f32(4096, 256), _places(4096, 4096), _f32(4096, 256),
)  # fmt: skip


def _flags(**values: str) -> Any:
    """Flags of Luminal set by the environment, which every tree reads, wherever its config lies."""
    return mock.patch.dict(os.environ, values)


class Side:
    """The programs compiled last, each with its inputs."""

    def __init__(self, programs: dict[str, Callable[[], Given]]) -> None:
        self.programs = programs
        self.ready: dict[str, Callable[[], Any]] = {}

    def compile(self, name: str) -> dict[str, Any]:
        """CPU seconds from recording to an executable, nothing cached."""
        self.ready.pop(name, None)
        gc.collect()  # no kernel of the last time stays loaded
        with (
            tempfile.TemporaryDirectory() as folder,
            _flags(LUMINAL_CACHE_DIR=folder),
        ):
            start = time.process_time()
            graph, inputs, dims = self.programs[name]()
            executable = lm.compile(graph, "cpu")
            taken = time.process_time() - start
        self.ready[name] = lambda: executable(inputs, dims=dims or None)
        return {"seconds": taken}

    def run(self, name: str, calls: int) -> dict[str, Any]:
        """Seconds of so many calls, and a digest of what the last one gave."""
        call = self.ready[name]
        start = time.perf_counter()
        for _ in range(calls):
            results = call()
        taken = time.perf_counter() - start
        digest = hashlib.sha256()
        for key in sorted(results):
            digest.update(np.ascontiguousarray(results[key]).tobytes())
        return {"seconds": taken, "digest": digest.hexdigest()}


def main() -> None:
    """Answers requests until its input ends."""
    table = sys.argv[3:] == ["--table"]
    if not table:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # no helper compiles beside it
    side = Side(TABLE if table else PROGRAMS)
    print(json.dumps({"luminal": lm.__file__}), flush=True)
    with nullcontext() if table else _flags(LUMINAL_THREADS="1"):
        for line in sys.stdin:
            request = json.loads(line)
            if "compile" in request:
                answer = side.compile(request["compile"])
            else:
                answer = side.run(request["run"], request["calls"])
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
