"""`luminal bench`: time an ONNX model here, and in ONNX Runtime where that is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from luminal.cli import onnx_inputs

BLOCK_SECONDS = 0.25
"""A block of one runtime; blocks take turns, so that a slow spell of the machine meets all."""


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")],
    input: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.npy", help="An input, in order; may be repeated."),
    ] = None,
    dims: Annotated[
        list[str] | None, typer.Option(metavar="N=1", help="The size of a dim; may be repeated.")
    ] = None,
    mode: Annotated[str, typer.Option(help="How to compile; see lm.compile.")] = "fast",
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of a quarter second for each.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Threads of ONNX Runtime.")] = 2,
) -> None:
    """Time MODEL.onnx in blocks that take turns; what is not given is random."""
    loaded = onnx_inputs.load_model(model).compile(mode=mode)
    sizes = onnx_inputs.sizes(dims or [])
    arrays = onnx_inputs.arrays_of(loaded, input or [], sizes, random=True)
    runners: dict[str, Callable[[], Any]] = {"luminal": lambda: loaded(arrays)}
    other = _onnx_runtime(model, arrays, threads)
    if other is not None:
        runners["onnxruntime"] = other
    times = _measured(runners, blocks)
    best = median(times["luminal"])
    table = Table("runtime", "median", "least", "to luminal")
    for name, seconds in times.items():
        ratio = f"{median(seconds) / best:.2f}"
        table.add_row(name, _milliseconds(median(seconds)), _milliseconds(min(seconds)), ratio)
    Console().print(table)


def _onnx_runtime(path: Path, arrays: dict[str, Any], threads: int) -> Callable[[], Any] | None:
    """A run of ONNX Runtime; None where it is not installed."""
    from luminal.onnx import runtime

    return runtime.runner(path, arrays, threads)


def _measured(runners: dict[str, Callable[[], Any]], blocks: int) -> dict[str, list[float]]:
    """Seconds of every call, by runner."""
    for run in runners.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(blocks):
        for name, run in runners.items():
            end = time.perf_counter() + BLOCK_SECONDS
            while (start := time.perf_counter()) < end:
                run()
                times[name].append(time.perf_counter() - start)
    return times


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
