"""`luminal bench`: time a model here, and in other libraries that are installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from luminal.base.errors import InputError
from luminal.cli import bench_decoder, onnx_inputs
from luminal.cli.console import console, table
from luminal.cli.options import Backend, ComputeDtype, KeepQuantized, Mode

BLOCK_SECONDS = 0.25
"""A block of one runtime; blocks take turns, so that a slow spell of the machine meets all."""


def command(
    onnx: Annotated[
        Path | None, typer.Argument(metavar="[MODEL.onnx]", help="The ONNX model to time.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A decoder: a folder, a .gguf, or a Hugging Face id.")
    ] = None,
    arch: Annotated[str | None, typer.Option(help="A decoder of random weights: llama ...")] = None,
    shape: Annotated[str, typer.Option(help="The sizes of --arch: 8b ...")] = "8b",
    layers: Annotated[
        int, typer.Option(min=2, help="Layers of --arch to time; all are extrapolated from these.")
    ] = 2,
    dtype: Annotated[str, typer.Option(help="The dtype of the weights of --arch.")] = "bfloat16",
    prompt: Annotated[
        list[int] | None, typer.Option(min=2, metavar="128", help="Tokens; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (decoders only).")] = False,
    input: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.npy", help="An input, in order; may be repeated."),
    ] = None,
    dims: Annotated[
        list[str] | None, typer.Option(metavar="N=1", help="The size of a dim; may be repeated.")
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of a quarter second for each.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every runtime.")] = 2,
    keep_quantized: KeepQuantized = False,
    compute_dtype: ComputeDtype = None,
) -> None:
    """Time a model in blocks that take turns with other libraries; inputs not given are random.

    Of a decoder: tokens per second of prompts and of what is written, memory, and the share of
    what this machine's arithmetic or memory would allow.
    """
    if [onnx, model, arch].count(None) != 2:
        raise InputError("bench: give MODEL.onnx, --model or --arch")
    if onnx is None:
        asked = bench_decoder.Asked(
            model, arch, shape, layers, dtype, prompt or [32, 128], mode, backend, blocks, threads,
            keep_quantized, compute_dtype,
        )  # fmt: skip
        bench_decoder.run(asked, json)
        return
    loaded = onnx_inputs.load_model(onnx).compile(mode=mode)
    sizes = onnx_inputs.sizes(dims or [])
    arrays = onnx_inputs.arrays_of(loaded, input or [], sizes, random=True)
    runners: dict[str, Callable[[], Any]] = {"luminal": lambda: loaded(arrays)}
    other = _onnx_runtime(onnx, arrays, threads)
    if other is not None:
        runners["onnxruntime"] = other
    times = _measured(runners, blocks)
    # Ratios are of medians, which one disturbed call does not move. The least is shown beside them
    # as what a quiet machine would give.
    best = median(times["luminal"])
    shown = table("runtime", "median", "least", "to luminal")
    for name, seconds in times.items():
        ratio = f"{median(seconds) / best:.2f}"
        shown.add_row(name, _milliseconds(median(seconds)), _milliseconds(min(seconds)), ratio)
    console().print(shown)


def _onnx_runtime(path: Path, arrays: dict[str, Any], threads: int) -> Callable[[], Any] | None:
    """A run of ONNX Runtime; None where it is not installed."""
    from luminal.onnx import runtime

    return runtime.runner(path, arrays, threads)


def _measured(runners: dict[str, Callable[[], Any]], blocks: int) -> dict[str, list[float]]:
    """Seconds of every call, by runner."""
    # The first call of each compiles, maps the weights and grows its pools of memory. None of that
    # recurs, so no block counts it.
    for run in runners.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(blocks):
        for name, run in runners.items():
            end = time.perf_counter() + BLOCK_SECONDS
            # The clock is asked between calls only: a call that is longer than a block is still
            # timed as a whole, and once in each turn.
            while (start := time.perf_counter()) < end:
                run()
                times[name].append(time.perf_counter() - start)
    return times


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
