"""`luminal run`: run an ONNX model once, on arrays from files or on random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from luminal.cli import onnx_inputs
from luminal.cli.options import Backend, Mode
from luminal.cli.output import writing


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model to run.")],
    input: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.npy", help="An input, in order; may be repeated."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Random arrays for inputs that are not given.")
    ] = False,
    dims: Annotated[
        list[str] | None, typer.Option(metavar="N=1", help="The size of a dim; may be repeated.")
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
    profile: Annotated[bool, typer.Option("--profile", help="Time each kernel too.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write the outputs here.")
    ] = None,
) -> None:
    """Run MODEL.onnx and print its outputs."""
    loaded = onnx_inputs.load_model(model).compile(mode=mode, backend=backend)
    arrays = onnx_inputs.arrays_of(
        loaded, input or [], onnx_inputs.sizes(dims or []), random=random
    )
    outputs = loaded(arrays)
    for name, value in outputs.items():
        typer.echo(_shown(name, value))
    if profile:
        for report in loaded.profile(arrays):
            typer.echo(str(report))
    if output is not None:
        _write(output, outputs)


def _shown(name: str, value: Any) -> str:
    """An output in a few lines."""
    if not isinstance(value, np.ndarray):
        return f"{name}: {value!r}"
    text = np.array2string(value, threshold=64, edgeitems=3)
    return f"{name}: {value.dtype}{list(value.shape)}\n{text}"


def _write(path: Path, outputs: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {
        name: value for name, value in outputs.items() if isinstance(value, np.ndarray)
    }
    # NumPy gets an open file, since to a name without .npz it would append that ending and write
    # another file than the user named.
    with writing("--output", path), path.open("wb") as file:
        np.savez(file, **arrays)
