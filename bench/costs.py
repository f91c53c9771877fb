"""What programs should cost beside what they take: random programs of many subjects, as a search
would try them, and how well the cost model ranks them.

Spearman's correlation is of ranks: 1 where the model orders programs as a clock does, 0 where it
knows nothing. That is what a model is for here: a search builds first what it predicts to be fast.

`python -m bench.costs` fits the model's numbers to this machine and prints them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from bench.block import EFFORT
from bench.row import Row, Rows
from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.backends.cpu import target
from luminal.backends.cpu.core import Core
from luminal.backends.cpu.work import seconds, work
from luminal.base import config
from luminal.base.errors import CompileError
from luminal.hlir.graph import Graph
from luminal.nn import functional as F
from luminal.program.launch_list import Program, kernel_launches
from luminal.schedule.vectors import costs
from luminal.search.cost_model import MOST_LINES, cost
from luminal.search.genome import Genome, library_of
from luminal.search.learned import correlation
from luminal.search.operands import draw, share
from luminal.search.process import Builders, Lost, Refused
from luminal.search.runner import Runner
from luminal.search.space import Candidate, Space

SEED = 0
PROGRAMS, QUICK_PROGRAMS = 24, 8  # of each subject
ROUNDS = 5  # of a program in turns with the fast one; the least counts
MOST_CHANGES = 3
BUILD_SECONDS, RUN_SECONDS = 20.0, 1.0
BOUND = 0.6  # of the correlation for one subject, whose programs may nearly tie
OVERALL = 0.95  # of all programs, from microseconds to tenths of seconds

Make = Callable[[lm.Graph], Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and the least seconds of a run."""

    candidate: Candidate
    seconds: float


def rows() -> Rows:
    """The correlation of each subject, then of all programs together."""
    predicted: list[float] = []
    measured: list[float] = []
    for name in QUICK if EFFORT.quick else SUBJECTS:
        space = space_of(name)
        found = measure(space, QUICK_PROGRAMS if EFFORT.quick else PROGRAMS)
        expected = [cost(s.candidate.program, {}, space.backend).seconds for s in found]
        taken = [s.seconds for s in found]
        predicted += expected
        measured += taken
        yield _row(name, expected, taken, BOUND)
    yield _row("all programs", predicted, measured, OVERALL)


def _row(name: str, predicted: Sequence[float], measured: Sequence[float], bound: float) -> Row:
    rank = correlation(predicted, measured)
    ratios = sorted(np.divide(predicted, measured))
    first = measured[int(np.argmin(predicted))] / min(measured)
    detail = f"{len(measured)} programs; predicted / measured {ratios[0]:.2g} .. {ratios[-1]:.2g}"
    detail += f"; the one predicted to be fastest takes {first:.2f} of the fastest"
    return Row(f"costs, {name}", rank, bound, "x", (rank, rank), detail)


# --- measuring


def graph_of(name: str) -> Graph:
    """A subject."""
    cx = lm.Graph(name)
    SUBJECTS[name](cx).output("y")
    return cx.graph()


def space_of(name: str, backend: Backend | None = None) -> Space:
    """The programs of a subject, on this machine or another."""
    return Space(graph_of(name), backend or registry.compiling("cpu"))


@contextmanager
def timing(space: Space) -> Iterator[Runner]:
    """A process that times programs, on arrays drawn for them."""
    with ExitStack() as stack:
        shared = share(space.graph, draw(space.graph, {}, {}, SEED))
        stack.callback(shared.close)
        runner = Runner(space.backend.name, shared, RUN_SECONDS)
        stack.callback(runner.close)
        yield runner


def measure(space: Space, count: int, seed: int = SEED) -> list[Sample]:
    """The fast program and random others, timed in a process of their own."""
    drawn = programs(space, count, random.Random(seed))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(config.override(LUMINAL_CACHE_DIR=Path(folder)))
        builders = Builders(space.backend.name, 2, BUILD_SECONDS)
        stack.callback(builders.close)
        runner = stack.enter_context(timing(space))
        return list(_timed(space, drawn, builders, runner))


def programs(space: Space, count: int, rng: random.Random) -> list[Candidate]:
    """The fast program, then different ones: every other has the fast one's structure."""
    found = {(first := space.decode(Genome())).text: first}
    flops = 4 * max(1.0, cost(first.program, {}, space.backend).flops)
    for number in range(4 * count):
        if len(found) == count:
            break
        try:
            genome = space.random_genome(rng, number % 2 * rng.randint(1, MOST_CHANGES))
            candidate = space.decode(genome)
        except CompileError:
            continue
        is_long = any(o.text.count("\n") > MOST_LINES for o in candidate.stages.origins)
        calls = any(map(library_of, genome.knobs.values()))
        if not (is_long or calls or cost(candidate.program, {}, space.backend).flops > flops):
            found.setdefault(candidate.text, candidate)
    return list(found.values())


def _timed(
    space: Space, drawn: Sequence[Candidate], builders: Builders, runner: Runner
) -> Iterator[Sample]:
    first = None
    for candidate in drawn:
        stages = candidate.stages
        texts = zip(stages.program.kernels, stages.origins, strict=True)
        failed = builders.build([(space.backend, kernel, o.text) for kernel, o in texts])
        if any(reason is not None for reason in failed):
            continue
        number = runner.add(candidate.program)
        first = number if first is None else first
        try:
            runner.pairs(number, first, 1)
            yield Sample(candidate, min(runner.pairs(number, first, ROUNDS).first))
        except (Lost, Refused):
            continue
        if number != first:
            runner.drop(number)


# --- fitting

FACTORS = (0.7, 1.4, 0.5, 2.0)  # tried on every number
GAIN = 1e-3  # of the loss, at least
OFF = 2.0  # octaves: what is further off is a fault of the model, not of its numbers


def fitted(core: Core, samples: Mapping[str, Sequence[Sample]], sweeps: int = 2) -> Core:
    """The core whose predictions are nearest to what was measured, one number after the other.

    Least is what both the ranks within a subject and the octaves between prediction and clock lose.
    """
    numbers = [f.name for f in fields(Core) if isinstance(getattr(core, f.name), float)]
    best = loss(core, samples)
    for name in numbers * sweeps:
        for factor in FACTORS:
            other = replace(core, **{name: getattr(core, name) * factor})
            found = loss(other, samples)
            if found < best - GAIN:
                core, best = other, found
                print(f"{name} = {getattr(core, name):.3g}: {best:.3f}", flush=True)
                break
    return core


def loss(core: Core, samples: Mapping[str, Sequence[Sample]]) -> float:
    """How far a model is from measurements."""
    lost = []
    for found in samples.values():
        predicted = [predict(core, sample.candidate.program) for sample in found]
        measured = [sample.seconds for sample in found]
        octaves = np.abs(np.log2(np.divide(predicted, measured)))
        rank = correlation(predicted, measured)
        lost.append(3 * (1 - rank) + np.minimum(octaves, OFF).mean())
    return float(np.mean(lost))


def predict(core: Core, program: Program) -> float:
    """Seconds of a program without dims and Loops."""
    total = 0.0
    for launch in kernel_launches(program.launches):
        kernel, size = program.kernels[launch.kernel], launch.bytes.evaluate({})
        total += seconds(work(kernel, {}, core), size, core) + costs.of(core.target).launch
    return total


def main() -> None:
    """Measures all subjects and fits the model's numbers."""
    samples = {name: measure(space_of(name), PROGRAMS) for name in SUBJECTS}
    core = Core(target.current())
    print(f"{loss(core, samples):.3f} before")
    print(fitted(core, samples))


# --- subjects


def _product(m: int, k: int, n: int, dtype: str = "float32", weight: bool = False) -> Make:
    def make(cx: lm.Graph) -> Any:
        x = cx.tensor((m, k), dtype, name="x")
        w = (cx.weight if weight else cx.tensor)((k, n), dtype, name="w")
        return x @ w

    return make


def _convolution(
    channels: int, outputs: int, window: int, extent: int, stride: int = 1, groups: int = 1
) -> Make:
    def make(cx: lm.Graph) -> Any:
        x = cx.tensor((1, channels, extent, extent), name="x")
        w = cx.weight((outputs, channels // groups, window, window), name="w")
        return F.conv2d(x, w, stride=stride, padding=window // 2, groups=groups)

    return make


def _of_one(function: Callable[[Any], Any], *shape: int) -> Make:
    return lambda cx: function(cx.tensor(shape, name="x"))


def _of_qkv(function: Callable[..., Any], names: str = "qkv", length: int = 512) -> Make:
    return lambda cx: function(*(cx.tensor((8, length, 64), name=name) for name in names))


def _swiglu(cx: lm.Graph) -> Any:
    x, down = cx.tensor((128, 512), name="x"), cx.weight((1408, 512), name="down")
    gate, up = (cx.weight((512, 1408), name=name) for name in ("gate", "up"))
    return ((x @ gate).silu() * (x @ up)) @ down


def _mlp(cx: lm.Graph) -> Any:
    x = cx.tensor((256, 512), name="x")
    up, down = cx.weight((512, 2048), name="up"), cx.weight((2048, 512), name="down")
    return (x @ up).gelu() @ down


def _chain(x: Any) -> Any:
    return ((x.sin() * 2 + 1).exp()).sqrt() / (1 + x * x)


SUBJECTS: dict[str, Make] = {
    "matmul 256": _product(256, 256, 256),
    "matmul 512": _product(512, 512, 512),
    "matmul 1024": _product(1024, 1024, 1024),
    "matmul 1000x777x1333": _product(1000, 777, 1333),
    "one row by a weight": _product(1, 2048, 2048, weight=True),
    "8 rows by a weight": _product(8, 2048, 2048, weight=True),
    "128 rows by a weight": _product(128, 1024, 2816, weight=True),
    "bf16 matmul 512": _product(512, 512, 512, "bfloat16"),
    "64 products": lambda cx: (
        cx.tensor((64, 128, 128), name="a") @ cx.tensor((64, 128, 64), name="b")
    ),
    "convolution 1x1": _convolution(256, 128, 1, 56),
    "convolution 3x3 at 28": _convolution(128, 128, 3, 28),
    "convolution 3x3 at 14, stride 2": _convolution(256, 256, 3, 28, stride=2),
    "convolution 7x7": _convolution(3, 64, 7, 224, stride=2),
    "convolution by channel": _convolution(144, 144, 3, 56, groups=144),
    "attention": _of_qkv(partial(F.scaled_dot_product_attention)),
    "attention, causal": _of_qkv(partial(F.scaled_dot_product_attention, is_causal=True)),
    "relu attention": _of_qkv(lambda q, k, v: (q @ k.mT * 0.125).relu() @ v),
    "largest score": _of_qkv(lambda q, k: (q @ k.mT).amax(-1), "qk"),
    "SwiGLU": _swiglu,
    "MLP": _mlp,
    "chain of operations": _of_one(_chain, 1024, 1024),
    "softmax": _of_one(lambda x: x.softmax(-1), 1024, 2048),
    "layer norm": _of_one(lambda x: x.layer_norm(-1), 1024, 2048),
    "sum of all": _of_one(lambda x: x.sum(), 2048, 2048),
    "sum of columns": _of_one(lambda x: x.sum(0), 2048, 2048),
    "transpose": _of_one(lambda x: x.transpose(0, 1) + 0, 2048, 2048),
    "two outputs": _of_one(lambda x: x.exp().sum(0) + x.exp().sum(1), 512, 512),
}
QUICK = ("matmul 512", "convolution 3x3 at 28", "relu attention", "SwiGLU", "softmax")


if __name__ == "__main__":
    main()
