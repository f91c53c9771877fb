"""`luminal quantize`: a model's matrices packed in fewer bits, in a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.cli.console import console, progress
from luminal.errors import InputError

if TYPE_CHECKING:
    from luminal.nn.quantization import PackedWeight


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A folder, .gguf, llama2.c .bin, .safetensors, or Hugging Face id."
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="OUT", help="A .gguf file.")],
    kind: Annotated[str, typer.Option("--type", help="q8_0, q5_1, q5_0, q4_1 or q4_0.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer file, where the model has none of its own.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Tell the errors of every weight.")
    ] = False,
) -> None:
    """Pack the matrices of the model in IN as OUT, and tell bytes and errors."""
    from luminal.loaders.ggml.quantize import QUANTIZERS
    from luminal.models.conversion import convert
    from luminal.nn.quantization import QuantizationReport

    kind = kind.lower()
    known = [name.lower() for name in QUANTIZERS]
    if kind not in known:
        raise InputError(f"quantize: --type {kind!r} is not known; it is one of {', '.join(known)}")
    if not target.endswith(".gguf"):
        raise InputError(f"quantize: {target}: packed weights go into GGUF files; name a .gguf")
    rows: list[PackedWeight] = []
    kept: dict[str, str] = {}
    with progress() as bar:
        task = bar.add_task(f"{kind} of {source}", total=None)

        def told(name: str, values: Any, stored: Any, count: int) -> None:
            bar.update(task, total=count, advance=1)
            row = _row(name, values, stored)
            if stored.kind == kind.upper():
                rows.append(row)
            else:
                kept[name] = f"is {stored.kind}"

        convert(source, target, kind, tokenizer, told)
    found = QuantizationReport(kind, tuple(rows), kept)
    text = str(found)
    console().print(text if report else found.total, soft_wrap=True)


def _row(name: str, values: Any, stored: Any) -> PackedWeight:
    from luminal.nn.quantization import PackedWeight

    return PackedWeight.of(name, values, stored.array(), stored.data.nbytes)
