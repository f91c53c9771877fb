"""From a graph to its kernels step by step, a custom kernel, and searches that are timed here.

python examples/search_demo.py                 all parts
python examples/search_demo.py matmul mlp      some of them: stages, custom, matmul, mlp
python examples/search_demo.py --seconds 20    time for each search
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends import registry
from luminal.compiler.dump import STAGES, Dump
from luminal.runtime.executable import Executable

PAIRS = 15


def stages(seconds: float) -> None:
    """A softmax of a small product, as every IR on its way to kernels."""
    cx = lm.Graph("softmax of a product")
    x, w = cx.tensor((4, 8), name="x"), cx.weight((8, 16), name="w")
    (x @ w).softmax(-1).output("y")
    dump = Dump(cx.graph(), registry.find("cpu"))
    for stage in STAGES:
        print(f"--- {stage}\n{dump.text(stage)}\n")


def custom(seconds: float) -> None:
    """A Python function as a kernel of its own: what stands around it still fuses."""

    def smallest_first(values: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        out[...] = np.sort(values, axis=-1)

    ordered = lm.custom_kernel(
        "smallest_first", smallest_first, results=lambda x: (x.shape, x.dtype)
    )
    cx = lm.Graph("custom kernel")
    x = cx.tensor((64, 256), name="x")
    ((ordered(x.exp()) + 1) * 2).output("y")
    given = np.random.default_rng(0).standard_normal((64, 256), np.float32)
    exe = lm.compile(cx)
    expected = (np.sort(np.exp(given), axis=-1) + 1) * 2
    np.testing.assert_allclose(exe({"x": given})["y"], expected, rtol=1e-5)
    print(exe.report())


def matmul(seconds: float) -> None:
    """A product of matrices: the search chooses its schedule."""
    cx = lm.Graph("matmul")
    x, w = cx.tensor(SIZES["x"], name="x"), cx.tensor(SIZES["w"], name="w")
    (x @ w).output("y")
    rng = np.random.default_rng(0)
    compare(cx, seconds, {name: rng.standard_normal(s, np.float32) for name, s in SIZES.items()})


SIZES = {"x": (384, 640), "w": (640, 512)}


def mlp(seconds: float) -> None:
    """Two layers with a gated unit and a norm: what to fuse, and how."""
    cx = lm.Graph("mlp")
    x = cx.tensor((32, 512), name="x")
    gate, up = cx.weight((512, 1024), name="gate"), cx.weight((512, 1024), name="up")
    down = cx.weight((1024, 512), name="down")
    hidden = (x @ gate).silu() * (x @ up)
    (x + hidden @ down).rms_norm(-1).output("y")
    rng = np.random.default_rng(0)
    shapes = {"x": (32, 512), "gate": (512, 1024), "up": (512, 1024), "down": (1024, 512)}
    given = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    compare(cx, seconds, given)


def compare(cx: lm.Graph, seconds: float, given: Mapping[str, Any]) -> None:
    """Compiles by rules and by search; prints the search's report and both times, in turns."""
    fast = lm.compile(cx)
    best = lm.compile(cx, mode=lm.TimeBudget(seconds))
    expected, found = fast(dict(given))["y"], best(dict(given))["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    print(best.report())
    a, b = in_turns(fast, best)
    print(f"in turns: fast {a * 1e6:,.0f} us, searched {b * 1e6:,.0f} us: {a / b:.2f}x\n")


def in_turns(first: Executable, second: Executable) -> tuple[float, float]:
    """The least seconds of a run of two executables that take turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(PAIRS):
        for executable, times in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            executable()
            times.append(time.perf_counter() - start)
    return min(taken[0]), min(taken[1])


PARTS: dict[str, Callable[[float], None]] = {
    "stages": stages,
    "custom": custom,
    "matmul": matmul,
    "mlp": mlp,
}


def main() -> None:
    """Shows the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each search")
    options = parser.parse_args()
    for name in PARTS if "all" in options.parts else options.parts:
        print(f"=== {name}: {PARTS[name].__doc__}")
        PARTS[name](options.seconds)


if __name__ == "__main__":
    main()
