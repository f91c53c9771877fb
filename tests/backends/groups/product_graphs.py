"""Products of matrices by groups: their graphs, and the schedules of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import luminal as lm
import luminal.nn.functional as f
from luminal.backends.backend import Backend
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages, lower_by_stages
from luminal.kernel.knobs import as_knobs
from luminal.kernel.product_sides import sides_of
from luminal.kernel.tile_text import to_text
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.cpu.schedule.knob_choices import Choice, placed_choices
from tests.backends.groups.both_meanings import backend
from tests.fuzz.graphs import Case

Fn = Callable[..., Any]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
GRAPHS: dict[str, tuple[Fn, tuple[tuple[Any, ...], ...], Any]] = {
    "product": (lambda a, b: a @ b, ((9, 11), (11, 13)), np.float32),
    "whole blocks": (lambda a, b: a @ b, ((8, 16), (16, 16)), np.float32),
    "both turned": (lambda a, b: a.transpose(0, 1) @ b.transpose(0, 1), ((11, 9), (13, 11)),
                    np.float32),
    "linear": (lambda a, b, c, d: (a @ b.transpose(0, 1) + c).relu() + d,
               ((5, 12), (7, 12), (7,), (5, 7)), np.float32),
    "batched": (lambda a, b: a @ b, ((3, 5, 9), (3, 9, 6)), np.float32),
    "one matrix for all": (lambda a, b: a @ b, ((3, 5, 9), (9, 6)), np.float32),
    "gate and up": (lambda x, g, u: (x @ g).silu() * (x @ u), ((5, 9), (9, 6), (9, 6)), np.float32),
    "factors computed": (lambda a, b: a.exp() @ (b.tril() * 2), ((9, 9), (9, 9)), np.float32),
    "rows chosen": (lambda i, a, b: a[i.cast("i64").abs() % 4] @ b, ((6,), (4, 9), (9, 5)),
                    np.float32),
    "convolution": (lambda x, w: f.conv2d(x, w, padding=1), ((1, 2, 5, 6), (5, 2, 3, 3)),
                    np.float32),
    "strided": (lambda x, w: f.conv2d(x, w, stride=2), ((2, 2, 7, 7), (4, 2, 3, 3)), np.float32),
    "f16": (lambda a, b: (a.float() @ b.float()).half(), ((5, 9), (9, 6)), F16),
    "bf16": (lambda a, b: a @ b, ((5, 9), (9, 6)), BF16),
    "bf16 by f32": (lambda a, b: a.float() @ b.float().tril().exp(), ((9, 9), (9, 9)), BF16),
    "f64": (lambda a, b: a @ b, ((5, 9), (9, 6)), np.float64),
    "i32": (lambda a, b: a @ b, ((5, 9), (9, 6)), np.int32),
    "dims": (lambda a, b: a @ b, (("s", 9), (9, "s")), np.float32),
    "a sum over a dim": (lambda a, b: a @ b, ((5, "s"), ("s", 6)), np.float32),
}  # fmt: skip


def case(name: str) -> Case:
    """The graph of that name with random inputs; of floats some are infinite or NaN."""
    fn, shapes, dtype = GRAPHS[name]
    cx = lm.Graph()
    dims = {"s": 11} if any("s" in shape for shape in shapes) else {}
    named = {name: cx.dim(name, 0, 64) for name in dims}
    rng = np.random.default_rng(3)
    inputs, tensors = {}, []
    for k, shape in enumerate(shapes):
        extents = tuple(named.get(n, n) for n in shape)
        tensors.append(cx.tensor(extents, name=f"x{k}", dtype=np.dtype(dtype).name))
        array = (rng.standard_normal([dims.get(n, n) for n in shape]) * 4).astype(dtype)
        for special in (np.nan, np.inf) if array.size and array.dtype == np.float32 else ():
            array.flat[rng.integers(array.size)] = special
        inputs[f"x{k}"] = array
    fn(*tensors).output("y")
    return Case(cx.graph(), inputs, dims, {})


def products(stages: Stages, backend: Backend) -> list[Choice]:
    """Every choice of the kernels that may multiply in blocks, all placed and verified."""
    found = []
    for step in stages.partition.steps:
        if isinstance(step, NestStep) and sides_of(step.fused) is not None:
            texts = placed_choices(step, backend)
            found += [(text_key(texts[()]), knobs) for knobs in texts]
    return found


def the_step(name: str) -> NestStep:
    """The one kernel of a graph."""
    (step,) = lower_by_stages(case(name).graph, backend()).partition.steps
    assert isinstance(step, NestStep)
    return step


def chosen(name: str, **knobs: Any) -> Executable:
    """The program of one kernel with these knobs."""
    stages = lower_by_stages(case(name).graph, backend())
    step = the_step(name)
    key = text_key(to_text(backend().schedules.place(step).kernel))
    made = compile.reschedule(stages, backend(), {key: as_knobs(knobs)}).program
    return Executable(case(name).graph, (Variant({}, backend().runner(made)),))
