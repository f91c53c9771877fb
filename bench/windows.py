"""`python -m bench.windows`: convolutions and pooling windows drawn at random, beside their peers.

Windows of 1 to 64 by 1 to 64, 1 to 64 channels, steps, dilations, groups, depthwise, transposed,
maxima and means, channels first and last. Each is computed by PyTorch with channels first and last
and by ONNX Runtime, of which the fastest counts; all are compared with PyTorch in float64. Prints
the geometric mean and the worst of every kind, and the slowest cases, which `--case` repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper

import luminal as lm
from bench.block import EFFORT, Call, in_block
from bench.row import Row, Rows
from luminal.base import config
from luminal.nn import functional as F
from luminal.runtime.report_text import table_lines

MEAN, WORST = 1.2, 0.8
KINDS = ("plain", "plain", "plain", "grouped", "depthwise", "transposed", "maximum", "mean")
LAYOUTS = ("first", "last", "last to first")
FEWEST, MOST = 1 << 17, 1 << 28  # products or comparisons of a case
MOST_ELEMENTS = 1 << 22
TOLERANCE = 2e-6  # of the sum of the absolute values of what is added up
SHOWN = 10
DRAWN = 200
IN_TABLE = 40
SEED = 1
OPSET = 17
Pair = tuple[int, int]
PoolOrConvolution = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Window:
    """One case. `layout`: how the input lies, and, if otherwise, the result; `given`: the weight
    comes with each run, as the input does.
    """

    kind: str
    layout: str
    batch: int
    channels: int
    results: int
    image: Pair
    window: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    given: bool

    def __str__(self) -> str:
        def pair(both: Pair) -> str:
            return f"{both[0]}x{both[1]}"

        words = [self.kind, f"{self.channels}->{self.results}" if self.has_weight else ""]
        words += [pair(self.window), f"at {self.batch} of {self.channels}x{pair(self.image)}"]
        words += [f"steps {pair(self.stride)}" if self.stride != (1, 1) else ""]
        words += [f"padded {pair(self.padding)}" if self.padding != (0, 0) else ""]
        words += [f"dilated {pair(self.dilation)}" if self.dilation != (1, 1) else ""]
        words += [f"{self.groups} groups" if self.kind == "grouped" else "", f"{self.layout}"]
        return ", ".join(filter(None, (*words, "weight given" if self.given else "")))

    @property
    def has_weight(self) -> bool:
        """Is it a convolution?"""
        return self.kind not in ("maximum", "mean")

    @property
    def counts(self) -> Pair:
        """Results along each of the two axes; below 1 where the window does not fit."""
        if self.kind == "transposed":
            return _each(
                lambda n, k, s, p, d: (n - 1) * s - 2 * p + d * (k - 1) + 1, *self._sizes()
            )
        return _each(lambda n, k, s, p, d: (n + 2 * p - d * (k - 1) - 1) // s + 1, *self._sizes())

    def _sizes(self) -> tuple[Pair, ...]:
        return self.image, self.window, self.stride, self.padding, self.dilation

    @property
    def work(self) -> int:
        """Products or comparisons."""
        rows, columns = self.image if self.kind == "transposed" else self.counts
        taps = self.window[0] * self.window[1] * (self.channels // self.groups)
        return self.batch * self.results * rows * columns * taps

    @property
    def is_fit(self) -> bool:
        """Is there a result, and is it worth timing?"""
        inside = all(
            d * (k - 1) < n for n, k, d in zip(self.image, self.window, self.dilation, strict=True)
        )
        elements = self.results * self.counts[0] * self.counts[1] * self.batch
        given = self.batch * self.channels * self.image[0] * self.image[1]
        fits = inside and min(self.counts) > 0 and max(elements, given) <= MOST_ELEMENTS
        # PyTorch's pooling takes no more padding than half the window.
        pools = self.has_weight or all(
            2 * p <= w for p, w in zip(self.padding, self.window, strict=True)
        )
        return fits and pools and FEWEST <= self.work <= MOST

    def function(self, library: object) -> PoolOrConvolution:
        """What computes it, of PyTorch or of Luminal: both have the same names."""
        sizes = {"stride": self.stride, "padding": self.padding}
        if self.kind == "maximum":
            pool = library.max_pool2d  # type: ignore[attr-defined]
            return partial(pool, kernel_size=self.window, dilation=self.dilation, **sizes)
        if self.kind == "mean":
            return partial(library.avg_pool2d, kernel_size=self.window, **sizes)  # type: ignore[attr-defined]
        name = "conv_transpose2d" if self.kind == "transposed" else "conv2d"
        return partial(getattr(library, name), dilation=self.dilation, groups=self.groups, **sizes)

    def arrays(self, seed: int) -> list[np.ndarray]:
        """The input in its layout, and the weight if there is one."""
        rng = np.random.default_rng(seed)
        shape = (self.batch, self.channels, *self.image)
        if self.layout != "first":
            shape = (self.batch, *self.image, self.channels)
        found = [rng.standard_normal(shape, np.float32)]
        if self.has_weight:
            sides = (self.results, self.channels // self.groups)
            if self.kind == "transposed":
                sides = (self.channels, self.results // self.groups)
            found.append(rng.standard_normal((*sides, *self.window), np.float32))
        return found


def _each(rule: Callable[..., int], *sizes: Pair) -> Pair:
    first, second = (rule(*along) for along in zip(*sizes, strict=True))
    return first, second


def draw(rng: np.random.Generator) -> Window:
    """A case with work enough to be timed, and no more than takes a peer some ten milliseconds."""
    while True:
        found = _drawn(rng)
        if found.is_fit:
            return found


def _drawn(rng: np.random.Generator) -> Window:
    def size(least: int, most: int) -> int:
        return int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))

    def pair(least: int, most: int, chance: float) -> Pair:
        """Of two different ones with a chance."""
        first = size(least, most)
        return first, size(least, most) if rng.random() < chance else first

    kind = str(rng.choice(KINDS))
    groups, channels, results = 1, size(1, 64), size(1, 64)
    if kind == "grouped":
        groups = size(2, 8)
        channels, results = groups * size(1, 64 // groups), groups * size(1, 64 // groups)
    elif kind == "depthwise" or kind in ("maximum", "mean"):
        groups = results = channels
    window = pair(1, 64, 0.5)
    dilation = pair(2, 3, 0.3) if kind != "mean" and rng.random() < 0.2 else (1, 1)
    padding = tuple(
        d * (k // 2) if rng.random() < 0.7 else 0 for d, k in zip(dilation, window, strict=True)
    )
    return Window(
        kind,
        str(rng.choice(LAYOUTS)),
        batch=size(1, 4) if rng.random() < 0.4 else 1,
        channels=channels,
        results=results,
        image=pair(4, 300, 0.7),
        window=window,
        stride=pair(2, 4, 0.3) if rng.random() < 0.35 else (1, 1),
        padding=(padding[0], padding[1]),
        dilation=dilation,
        groups=groups,
        given=kind not in ("maximum", "mean") and bool(rng.random() < 0.3),
    )


# --- sides


def ours(case: Window, arrays: Sequence[np.ndarray]) -> Call:
    """A call of ours, compiled."""
    executable, given = program(case, arrays)
    return lambda: executable(given)["y"]


def program(
    case: Window, arrays: Sequence[np.ndarray]
) -> tuple[lm.Executable, dict[str, np.ndarray]]:
    """The executable, and what each run is given."""
    graph = lm.Graph()
    given = {"x": arrays[0]}
    operands = [graph.tensor(arrays[0].shape, name="x")]
    if case.has_weight:
        record = graph.tensor if case.given else graph.weight
        operands.append(record(arrays[1].shape, name="w"))
    if case.layout != "first":
        operands[0] = operands[0].permute(0, 3, 1, 2)
    result = case.function(F)(*operands)
    (result.permute(0, 2, 3, 1) if case.layout == "last" else result).output("y")
    executable = lm.compile(graph)
    if case.has_weight and case.given:
        given["w"] = arrays[1]
    elif case.has_weight:
        executable({"x": arrays[0], "w": arrays[1]})
    return executable, given


def peers(case: Window, arrays: Sequence[np.ndarray]) -> dict[str, Call]:
    """The others' calls by name, their inputs and results in layouts of their own choice."""
    first = [torch.from_numpy(array) for array in (_first(case, arrays[0]), *arrays[1:])]
    last = [each.to(memory_format=torch.channels_last) for each in first]
    function = case.function(torch.nn.functional)
    return {
        "PyTorch": partial(function, *first),
        "channels last": partial(function, *last),
        "ONNX Runtime": _onnx(case, arrays),
    }


def expected(case: Window, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The results in float64, and how far off each may be."""
    x, *weight = (torch.from_numpy(a).double() for a in (_first(case, arrays[0]), *arrays[1:]))
    function = case.function(torch.nn.functional)
    found, scale = function(x, *weight), function(x.abs(), *(w.abs() for w in weight))
    if case.layout == "last":
        found, scale = found.permute(0, 2, 3, 1), scale.permute(0, 2, 3, 1)
    return found.numpy(), TOLERANCE * (scale.abs().numpy() + 1e-6)


def _first(case: Window, x: np.ndarray) -> np.ndarray:
    """The input with its channels first."""
    return np.ascontiguousarray(x if case.layout == "first" else x.transpose(0, 3, 1, 2))


def _onnx(case: Window, arrays: Sequence[np.ndarray]) -> Call:
    x = _first(case, arrays[0])
    attributes: dict[str, Any] = {"strides": case.stride, "pads": (*case.padding, *case.padding)}
    if case.kind == "mean":
        attributes |= {"count_include_pad": 1, "kernel_shape": case.window}
    elif case.kind == "maximum":
        attributes |= {"dilations": case.dilation, "kernel_shape": case.window}
    else:
        attributes |= {"dilations": case.dilation, "group": case.groups}
    names = {"maximum": "MaxPool", "mean": "AveragePool", "transposed": "ConvTranspose"}
    taken = ["x", "w"] if case.has_weight else ["x"]
    node = helper.make_node(names.get(case.kind, "Conv"), taken, ["y"], **attributes)
    sizes = dict(zip(taken, (x, *arrays[1:]), strict=True))
    inputs = taken if case.given else ["x"]
    graph = helper.make_graph(
        [node],
        "window",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes[n].shape) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(sizes[n], n) for n in taken if n not in inputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return partial(_run, session, {name: sizes[name] for name in inputs})


def _run(session: onnxruntime.InferenceSession, given: dict[str, np.ndarray]) -> np.ndarray:
    found: np.ndarray = session.run(None, given)[0]
    return found


# --- measuring


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a call by side, and whether ours came out right."""

    case: Window
    seed: int
    seconds: dict[str, float]
    wrong: int

    @property
    def ratio(self) -> float:
        """The fastest peer's time over ours."""
        return min(s for name, s in self.seconds.items() if name != "ours") / self.seconds["ours"]

    def cells(self) -> tuple[str, ...]:
        """A row of the table of the slowest."""
        times = ", ".join(f"{name} {s * 1e3:.3g}" for name, s in self.seconds.items())
        return f"{self.ratio:.2f}", str(self.seed), str(self.case), f"{times} ms"


def case_of(seed: int) -> Window:
    """The case of a seed."""
    return draw(np.random.default_rng(seed))


def measured(seed: int, seconds: float = 0.05, rounds: int = 3) -> Measured:
    """One case, all sides in turns; each side's median of blocks."""
    case = case_of(seed)
    arrays = case.arrays(seed)
    calls = {"ours": ours(case, arrays), **peers(case, arrays)}
    wrong = misses(case, arrays, calls["ours"]())
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(in_block(call, seconds))
    medians = {name: statistics.median(each) for name, each in taken.items()}
    return Measured(case, seed, medians, wrong)


def misses(case: Window, arrays: Sequence[np.ndarray], found: np.ndarray) -> int:
    """How many results are not what float64 has; all of them where the shape differs."""
    right, tolerance = expected(case, arrays)
    if right.shape != found.shape:
        return right.size
    return int(np.count_nonzero(~(np.abs(found - right) <= tolerance)))


def mean_of(found: Sequence[Measured]) -> float:
    """The geometric mean of the ratios."""
    return statistics.geometric_mean(each.ratio for each in found)


def table(found: Sequence[Measured]) -> list[str]:
    """By kind and layout, then the slowest cases."""
    lines: list[tuple[str, ...]] = [("kind", "cases", "mean", "below 0.8", "below 1", "worst")]
    kinds: dict[str, list[Measured]] = {}
    for each in found:
        kinds.setdefault(f"{each.case.kind}, {each.case.layout}", []).append(each)
    for kind, own in [*sorted(kinds.items()), ("all", [*found])]:
        ratios = [each.ratio for each in own]
        below = (str(sum(ratio < least for ratio in ratios)) for least in (WORST, 1.0))
        lines.append((kind, str(len(own)), f"{mean_of(own):.2f}", *below, f"{min(ratios):.2f}"))
    slowest = sorted(found, key=lambda each: each.ratio)[:SHOWN]
    head = ("ratio", "seed", "case", "")
    return [*table_lines(lines), "", *table_lines([head, *(each.cells() for each in slowest)])]


def rows() -> Rows:
    """The geometric mean of some, and the slowest, for the table of `python -m bench`."""
    count = IN_TABLE // 4 if EFFORT.quick else IN_TABLE
    found = [measured(SEED * DRAWN + k) for k in range(count)]
    ratios = [each.ratio for each in found]
    worst = min(found, key=lambda each: each.ratio)
    spread = min(ratios), max(ratios)
    yield Row("windows drawn at random", mean_of(found), MEAN, "x", spread, f"{count} cases")
    yield Row("the slowest window", worst.ratio, WORST, "x", spread, str(worst.case))


def main() -> int:
    """Draws, measures and prints; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.windows", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=DRAWN)
    parser.add_argument("--seconds", type=float, default=3600, help="for all cases, at most")
    parser.add_argument("--case", type=int, nargs="+", help="these cases alone, by their seeds")
    parser.add_argument("--threads", type=int, default=2, help="for all sides")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seeds = options.case or [options.seed * DRAWN + k for k in range(options.count)]
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        found = list(_within(seeds, options.seconds))
    print("\n".join(table(found)))
    wrong = [each for each in found if each.wrong]
    for each in wrong:
        print(f"WRONG in {each.wrong} results: {each.seed}, {each.case}")
    return 1 if wrong else 0


def _within(seeds: Sequence[int], seconds: float) -> Iterator[Measured]:
    end = time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            return
        yield measured(seed)


if __name__ == "__main__":
    raise SystemExit(main())
