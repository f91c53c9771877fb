"""Graphs whose spaces of schedules are tried, and all choices of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
import luminal.nn.functional as f
from luminal.backends.backend import Backend
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages
from luminal.program.steps import KernelStep
from tests.backends.cpu.schedule.knob_choices import Choice, placed_choices
from tests.fuzz.graphs import Case

EXTENT = 37  # of the dim s
Fn = Callable[..., Any]
GRAPHS: dict[str, tuple[Fn, tuple[tuple[Any, ...], ...]]] = {
    "pointwise": (lambda x, y: (x + y).exp() * x, ((7, 30, 5), (7, 30, 5))),
    "broadcast": (lambda x, y: x * y + 1, ((37, 70), (70,))),
    "transposed": (lambda x: x.transpose(0, 1) + 1, ((45, 67),)),
    "permuted": (lambda x: (x * 2).permute(2, 0, 1), ((5, 21, 34),)),
    "concat": (lambda x, y: lm.cat([x, y], 1), ((19, 33), (19, 40))),
    "pad": (lambda x: x.pad([(1, 2), (3, 20)]), ((17, 29),)),
    "row sum": (lambda x: (x * x).sum(-1), ((37, 141),)),
    "all sum": (lambda x: x.sum(), ((37, 41),)),
    "softmax": (lambda x: x.softmax(-1), ((19, 83),)),
    "layer norm": (lambda x: x.layer_norm(-1), ((19, 83),)),
    "column sums": (lambda x: x.sum(0), ((90, 77),)),
    "column sums of open dims": (lambda x: x.var(0), (("s", "s"),)),
    "column sums of products": (lambda x, y: (x * y).sum(0) + y.amax(0), ((45, 77), (45, 77))),
    "column sums of a triangle": (lambda x: x.tril().sum(0), ((60, 77),)),
    "sums of several axes": (lambda x: x.sum((0, 2)), ((3, 5, 17, 40),)),
    "column mean and max": (lambda x: (x.mean(0), x.max(0)[0]), ((65, 77),)),
    "matmul": (lambda a, b: a @ b, ((70, 45), (45, 83))),
    "matmul and epilogue": (lambda a, b, c: (a @ b + c).relu(), ((64, 64), (64, 64), (64,))),
    "linear": (lambda a, b: a @ b.transpose(0, 1), ((41, 72), (53, 72))),
    "vector matrix": (lambda a, b: a @ b, ((1, 90), (90, 70))),
    "matrix vector": (lambda a, b: a @ b, ((90, 70), (70,))),
    "skinny": (lambda a, b: a @ b, ((5, 90), (90, 70))),
    "dynamic matmul": (lambda a, b: a @ b, (("s", 45), (45, "s"))),
    "batched": (lambda a, b: a @ b, ((5, 19, 24), (5, 24, 35))),
    "gram": (lambda a: a @ a.transpose(0, 1), ((37, 50),)),
    "conv 1x1": (lambda x, w: f.conv2d(x, w), ((2, 12, 9, 9), (20, 12, 1, 1))),
    "conv 3x3": (lambda x, w: f.conv2d(x, w, padding=1), ((1, 6, 12, 19), (36, 6, 3, 3))),
    "depthwise": (lambda x, w: f.conv2d(x, w, padding=1, groups=6), ((1, 6, 20, 21), (6, 1, 3, 3))),
    "stem": (lambda x, w: f.conv2d(x, w, stride=2, padding=3), ((1, 3, 30, 41), (33, 3, 7, 7))),
    "max pool": (lambda x: f.max_pool2d(x, 3, 2, 1), ((2, 3, 17, 20),)),
    "several roots": (lambda x: (x.sum(1), x.max(1)[0], (x * x).sum(1)), ((33, 70),)),
    "normalised twice": (lambda x, y: (x.softmax(-1), (x + y).mean(-1)), ((9, 40), (9, 40))),
    "dynamic softmax": (lambda x: x.softmax(-1), (("s", "s"),)),
    "bf16 matmul": (lambda a, b: a.float() @ b.float(), ((70, 46), (46, 83))),
    "bf16 linear": (lambda a, b: a.float() @ b.float().mT, ((41, 72), (53, 72))),
    "bf16 turned": (lambda a, b: a.float().mT @ b.float(), ((38, 70), (38, 53))),
    "bf16 skinny": (lambda a, b: a.float() @ b.float(), ((5, 90), (90, 70))),
    "bf16 batched": (lambda a, b: a.float() @ b.float(), ((3, 19, 24), (3, 24, 35))),
    "bf16 two": (lambda a, b: (a.float() @ b.float()) * (a.float() @ b), ((19, 24), (24, 35))),
    "i8 matmul": (lambda a, b: a.cast("i32") @ b.cast("i32"), ((70, 48), (48, 83))),
    "i8 linear": (lambda a, b: a.cast("i32") @ b.cast("i32").mT, ((41, 72), (53, 72))),
    "i8 skinny": (lambda a, b: a.cast("i32") @ b.cast("i32"), ((5, 88), (88, 70))),
    "i8 two": (lambda a, b: (a.cast("i32") @ b.cast("i32")) * (a.sum(-1, keepdim=True) + b.sum()),
               ((3, 88), (88, 70))),
}  # fmt: skip


def case(name: str) -> Case:
    """The graph of that name with random inputs, some of them infinite or NaN."""
    fn, shapes = GRAPHS[name]
    cx = lm.Graph()
    dims = {"s": EXTENT} if any("s" in shape for shape in shapes) else {}
    named = {name: cx.dim(name, 1, 64) for name in dims}
    dtype = {"bf16": lm.bfloat16, "i8": lm.int8}.get(name.split()[0], lm.float32)
    tensors = [
        cx.tensor(tuple(named.get(n, n) for n in shape), dtype, f"x{k}")
        for k, shape in enumerate(shapes)
    ]
    made = fn(*tensors)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        value.output(f"y{k}")
    rng = np.random.default_rng(3)
    inputs = {}
    for k, shape in enumerate(shapes):
        array = rng.standard_normal([dims.get(n, n) for n in shape], np.float32)
        if dtype.is_int:
            array = np.clip(array * 60, -128, 127)
        for special in (np.nan, np.inf) if k == 0 and dtype.is_float else ():
            array.flat[rng.integers(array.size)] = special
        inputs[f"x{k}"] = array.astype(dtype.numpy)
    return Case(cx.graph(), inputs, dims, {})


def choices(stages: Stages, backend: Backend) -> list[Choice]:
    """All choices but the rules' own of all kernels."""
    found = []
    for step in stages.partition.steps:
        assert isinstance(step, KernelStep)
        texts = placed_choices(step, backend)
        found += [(text_key(texts[()]), knobs) for knobs in texts if knobs]
    return found
