"""`luminal info`: what a file of a model or of weights holds, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli import onnx_inputs
from luminal.cli.console import console, table

LONGEST = 40
"""Rows of tensors that are printed; --all prints them all."""


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="A .onnx, .gguf or .safetensors file, or a model's folder."
        ),
    ],
    every: Annotated[bool, typer.Option("--all", help="Every tensor, however many.")] = False,
) -> None:
    """Show operators, dims and bytes of FILE, or the architecture, sizes and tensors of FOLDER."""
    if file.is_dir():
        from luminal.cli.info_folder import show_folder

        _show_tensors(show_folder(file), every)
    elif file.suffix == ".onnx":
        _show_model(file)
    elif file.suffix == ".safetensors":
        from luminal.loaders.safetensors_file import read_safetensors

        arrays = read_safetensors(file)
        rows = [(name, str(a.dtype), a.shape, a.nbytes) for name, a in arrays.items()]
        _show_tensors(rows, every)
    elif file.suffix == ".gguf":
        from luminal.loaders.gguf import read_gguf

        tensors = read_gguf(file).tensors
        rows = [
            (name, tensor.kind, tensor.shape, tensor.data.nbytes)
            for name, tensor in tensors.items()
        ]
        _show_tensors(rows, every)
    else:
        raise InputError(f"info: {file}: takes a .onnx, .gguf or .safetensors file, or a folder")


def _show_model(file: Path) -> None:
    out = console()
    model = onnx_inputs.load_model(file)
    from luminal.onnx.describe import describe

    description = describe(model)
    opsets = ", ".join(f"{domain} {version}" for domain, version in description.opsets.items())
    out.print(
        f"{file.name}: {sum(description.operators.values())} nodes, {description.weights} weights "
        f"of {_bytes(description.bytes)}, operator sets {opsets}"
    )
    shown = table("", "name", "type")
    for kind, named in (("input", description.inputs), ("output", description.outputs)):
        for name, text in named.items():
            shown.add_row(kind, name, text)
    out.print(shown)
    counts = table("operator", "nodes")
    for name, count in sorted(
        description.operators.items(), key=lambda entry: (-entry[1], entry[0])
    ):
        counts.add_row(name, str(count))
    out.print(counts)


def _show_tensors(rows: Sequence[tuple[str, str, tuple[int, ...], int]], every: bool) -> None:
    """Names, types, dims and bytes."""
    out = console()
    shown = table("tensor", "type", "dims", "bytes")
    for name, kind, shape, size in rows if every else rows[:LONGEST]:
        shown.add_row(name, kind, " x ".join(map(str, shape)) or "scalar", _bytes(size))
    out.print(shown)
    hidden = "" if every or len(rows) <= LONGEST else f", {len(rows) - LONGEST} not shown (--all)"
    out.print(f"{len(rows)} tensors, {_bytes(sum(row[3] for row in rows))}{hidden}")


def _bytes(count: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count} B"
