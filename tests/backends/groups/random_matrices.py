"""Random products by matrix dots, and what they are compared with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.base.dots import MADE_UP, MMA
from luminal.base.dtypes import dtype_of
from luminal.base.numerics import Numerics
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages, lower_by_stages
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.kernel.product_sides import sides_of
from luminal.kernel.tile_text import to_text
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.groups.matrix_backend import backend, dots_of

Array = np.ndarray[Any, Any]

DTYPES = ("bfloat16", "float16", "int8", "float32", "float64")

EPILOGUES: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda y, r: y,
    "bias": lambda y, r: y + r[0],
    "residual": lambda y, r: y + r,
    "scale": lambda y, r: y * 2,
    "absolute": lambda y, r: abs(y),
}


class Draw:
    """A product and what it is of, from a seed."""

    def __init__(self, seed: int, longest: int) -> None:
        self.rng = rng = random.Random(seed)
        self.dtype = rng.choice(DTYPES)
        self.m, self.k, self.n = (self.size(longest) for _ in range(3))
        self.turned = rng.random() < 0.4, rng.random() < 0.4
        self.batch = rng.choice(((), (), (rng.randint(1, 3),)))
        self.both = rng.random() < 0.5  # have both factors the batch?
        self.epilogue = rng.choice([*EPILOGUES])
        self.chosen = rng.random() < 0.2  # are rows chosen by integers?
        self.dims = rng.random() < 0.25  # are rows a dim?

    def size(self, longest: int) -> int:
        """Any, or whole words."""
        if self.rng.random() < 0.5:
            return 8 * self.rng.randint(1, max(1, longest // 8))
        return self.rng.randint(1, longest)

    @property
    def text(self) -> str:
        return (
            f"{self.dtype} {self.batch} {self.m}x{self.k}x{self.n} turned {self.turned} "
            f"both {self.both} {self.epilogue} chosen {self.chosen} dims {self.dims}"
        )

    def inputs(self) -> dict[str, Array]:
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        rows = self.m + 3 if self.chosen else self.m
        shapes = {
            "a": (*self.batch, *((self.k, rows) if self.turned[0] else (rows, self.k))),
            "b": (
                *(self.batch if self.both else ()),
                *((self.n, self.k) if self.turned[1] else (self.k, self.n)),
            ),
        }
        storage = dtype_of(self.dtype).numpy
        given = {name: numbers.integers(-3, 4, x).astype(storage) for name, x in shapes.items()}
        wide = {"int8": "i4", "float64": "f8"}.get(self.dtype, "f4")
        given["r"] = numbers.integers(-9, 9, (self.m, self.n)).astype(wide)
        given["i"] = numbers.integers(0, rows, self.m)
        return given

    def product(self, a: Any, b: Any, r: Any, i: Any, turn: Callable[[Any], Any]) -> Any:
        """Of arrays or of tensors."""
        a, b = (turn(x) if t else x for x, t in zip((a, b), self.turned, strict=True))
        if self.chosen:
            a = a[..., i, :]
        return EPILOGUES[self.epilogue](a @ b, r)

    def expected(self, given: dict[str, Array]) -> Array:
        wide = [given[name].astype(np.float64) for name in "abr"]
        result: Array = self.product(*wide, given["i"], lambda x: np.swapaxes(x, -1, -2))
        return result

    def graph(self, given: dict[str, Array]) -> Any:
        cx = lm.Graph()
        rows = cx.dim("s", 0, 512) if self.dims and not self.chosen else None
        tensors = {}
        for name, array in given.items():
            shape: list[Any] = [*array.shape]
            if rows is not None and name in "ar" and array.ndim > 1:
                shape[-1 if name == "a" and self.turned[0] else -2] = rows
            dtype = "int64" if name == "i" else array.dtype.name
            tensors[name] = cx.tensor(tuple(shape), name=name, dtype=dtype)
        to = {"int8": "i32", "float64": "f64"}.get(self.dtype, "f32")
        a, b = (tensors[name].cast(to) for name in "ab")
        y = self.product(a, b, tensors["r"], tensors["i"], lambda x: x.transpose(-1, -2))
        y.output("y")
        return cx.graph()


def knobs_of(made: CBackend, step: NestStep, rng: random.Random) -> Knobs:
    """One of the values that are offered for each choice, as they come up."""
    knobs: dict[str, Any] = {}
    while True:
        _, choices = made.schedules.explored(step, made.schedules.facts(step), as_knobs(knobs))
        left = [name for name in choices.offered if name not in knobs]
        if not left:
            return as_knobs(knobs)
        offered = choices.offered[left[0]]
        # Mostly by the dot, which this is about.
        is_kept = left[0] == "dot" and rng.random() < 0.9
        knobs[left[0]] = offered[0] if is_kept else rng.choice(offered)


def program_of(stages: Stages, made: CBackend, rng: random.Random) -> tuple[Any, list[Knobs]]:
    tuned = {}
    for step in stages.partition.steps:
        if isinstance(step, NestStep) and sides_of(step.fused) is not None:
            key = text_key(to_text(made.schedules.place(step).kernel))
            tuned[key] = knobs_of(made, step, rng)
    return compile.reschedule(stages, made, tuned).program, [*tuned.values()]


def check(seed: int, longest: int, device: CBackend | None = None) -> bool:
    """Is one product right, there or by both meanings? Gives whether it is by a matrix dot."""
    draw = Draw(seed, longest)
    given = draw.inputs()
    graph = draw.graph(given)
    used = {node.attrs.name for node in graph.by_op()["Input"]}
    made = device or backend(draw.rng.choice((MADE_UP, MADE_UP, MMA)))
    stages = lower_by_stages(graph, made, Numerics.RELAXED)
    program, knobs = program_of(stages, made, draw.rng)
    exe = Executable(graph, (Variant({}, made.runner(program)),))
    try:
        found = exe({name: array for name, array in given.items() if name in used})["y"]
        np.testing.assert_array_equal(found.astype(np.float64), draw.expected(given))
    except Exception as error:
        error.add_note(f"seed {seed}: {draw.text}, {knobs}, {made.target.dots[0]}")
        raise
    return any(dots_of(kernel) for kernel in program.kernels)
