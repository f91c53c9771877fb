"""Products of packed blocks with scales by activations rounded to such blocks."""

from __future__ import annotations

import numpy as np

import luminal as lm
from luminal import nn
from luminal.backends.c_backend import CBackend
from luminal.base.dtypes import float4_e2m1fn, float8_e4m3fn, float8_e8m0fnu
from luminal.base.numerics import Numerics
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages
from luminal.frontend.handle import Array
from luminal.hlir.graph import Graph
from luminal.kernel.knobs import Knobs
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant

KINDS = "mxfp8", "mxfp4", "nvfp4"


def linear(kind: str, columns: int, steps: int, values: Array | None = None) -> nn.Linear:
    """A layer whose weight is packed as a kind, and which rounds what it is given to blocks."""
    layer = nn.Linear(steps, columns, bias=False)
    if values is not None:
        layer.weight.set(values)
    lm.quantize(layer, kind)
    return layer.computing("float8_e4m3fn")


def graph(layer: nn.Linear, rows: int) -> Graph:
    cx = lm.Graph()
    layer(cx.tensor((rows, layer.weight.shape[1]), name="x")).output("y")
    return cx.graph()


def program(made: CBackend, layer: nn.Linear, rows: int, knobs: Knobs = ()) -> Program:
    """The program of a product, whose kernel is scheduled by knobs."""
    stages = lower_by_stages(graph(layer, rows), made, Numerics.STANDARD)
    chosen = {}
    if knobs:
        steps = (step for step in stages.partition.steps if isinstance(step, NestStep))
        step = next(step for step in steps if step.fused.dots)
        chosen = {text_key(to_text(made.schedules.place(step).kernel)): knobs}
    return compile.reschedule(stages, made, chosen).program


def rounded(kind: str, x: Array) -> Array:
    """x (rows, steps) as the blocks that it is multiplied as, in float64."""
    if kind == "nvfp4":
        x = np.where(np.isfinite(x).all(1, keepdims=True), x, np.float32(np.nan))
        blocks = x.reshape(len(x), -1, 16)
        greatest = np.abs(blocks).max(-1)
        least = np.float32(2.0**-117)
        whole = np.maximum(greatest.max(-1, keepdims=True) / np.float32(6 * 448), least)
        scales = float8_e4m3fn.rounded(greatest / whole / np.float32(6)).astype(np.float32)
        steps = (scales * whole)[..., None]
        inverse = np.where(steps > 0, 1 / np.where(steps > 0, steps, 1), 0).astype(np.float32)
        codes = float4_e2m1fn.rounded(blocks * inverse).astype(np.float64)
        exact = codes * (scales.astype(np.float64) * whole.astype(np.float64))[..., None]
        return exact.reshape(x.shape)
    blocks = x.reshape(len(x), -1, 32)
    greatest = np.abs(blocks).max(-1, keepdims=True)
    is_finite = np.isfinite(greatest)
    powers = np.frexp(np.where(is_finite, greatest, 1))[1] - 9
    powers = np.where(greatest == 0, -127, np.clip(powers, -127, 127))
    codes = float8_e4m3fn.rounded(np.ldexp(blocks.astype(np.float64), -powers))
    exact = np.ldexp(codes.astype(np.float64), powers)
    return np.where(is_finite, exact, np.nan).reshape(x.shape)


def weights(layer: nn.Linear) -> Array:
    """The exact values of a layer's blocks, in float64."""
    data = layer.weight._data
    if layer.weight.kind == "mxfp8":
        scales = data["scales"].view(float8_e8m0fnu.numpy).astype(np.float64)
        codes = data["codes"].astype(np.float64).reshape(*scales.shape, 32)
        return (codes * scales[..., None]).reshape(layer.weight.shape)
    pairs = data["codes"]
    halves = np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], -2)
    codes = halves.view(float4_e2m1fn.numpy).astype(np.float64)
    if layer.weight.kind == "mxfp4":
        scales = data["scales"].view(float8_e8m0fnu.numpy).astype(np.float64)
    else:
        scales = data["scales"].astype(np.float64) * data["scale"].astype(np.float64)[0, 0]
    return (codes * scales[..., None, None]).reshape(layer.weight.shape)


def check(made: CBackend, layer: nn.Linear, x: Array, knobs: Knobs = ()) -> None:
    """Sees that a product on a device is right."""
    runner = made.runner(program(made, layer, len(x), knobs))
    compare(layer, x, Executable(graph(layer, len(x)), (Variant({}, runner),)))


def compare(layer: nn.Linear, x: Array, exe: Executable) -> None:
    """Sees that a product is that of the exact blocks in float64, but for sums in float32."""
    (y,) = exe({"x": x}).values()
    a, b = rounded(layer.weight.kind, x), weights(layer)
    with np.errstate(invalid="ignore"):
        exact, size = a @ b.T, np.abs(a) @ np.abs(b).T
    # Each addition errs by half a unit in any order, and by that of the subnormal numbers at least.
    most = len(x.T) * (size * 2.0**-24 + 2.0**-150) + 4 * 2.0**-150
    assert np.array_equal(np.isnan(y), np.isnan(exact)), "Mismatched NaN"
    with np.errstate(invalid="ignore"):
        assert not (np.abs(y - exact) > most).any(), "Mismatched"


def drawn(seed: int, kind: str) -> tuple[nn.Linear, Array]:
    """A layer and what it multiplies: any rows and columns, blocks of all sizes and of zeros, and
    scales, and values, that are NaN.
    """
    rng = np.random.default_rng(seed)
    rows, columns, steps = rng.integers(1, 100), rng.integers(1, 150), 32 * rng.integers(1, 12)
    x = rng.normal(size=(rows, steps)).astype(np.float32)
    values = rng.normal(size=(columns, steps)).astype(np.float32)
    for blocks in (x.reshape(rows, -1, 16), values.reshape(columns, -1, 16)):
        blocks *= 2.0 ** rng.integers(-40, 40, blocks.shape[:2])[..., None].astype(np.float32)
        blocks[rng.random(blocks.shape[:2]) < 0.1] = 0
    x[rng.random(rows) < 0.1] = 0
    x[rng.random(rows) < 0.1] *= np.float32(2.0**-100)
    if seed % 3 == 0:
        x[rng.random(x.shape) < 0.003] = rng.choice([np.nan, np.inf])
    layer = linear(kind, int(columns), int(steps), values)
    data = dict(layer.weight._data)
    scales = data["scales"].view(np.uint8).copy()
    nan, most = (0x7F, 0x7E) if kind == "nvfp4" else (255, 180)
    some = rng.random(scales.shape) < 0.02
    scales[some] = rng.choice([0, 1, most], some.sum())
    if seed % 3 == 1:
        scales[rng.random(scales.shape) < 0.003] = nan
    layer.weight.load({**data, "scales": scales.view(data["scales"].dtype)})
    return layer, x
