"""`luminal quantize`: a model's matrices packed in fewer bits, in files of either kind."""

from __future__ import annotations

from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.console import console, progress
from luminal.cli.options import Tokenizer


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A folder, .gguf, llama2.c .bin, .safetensors, or Hugging Face id."
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="A .gguf, a .safetensors, or a new folder.")
    ],
    kind: Annotated[
        str, typer.Option("--type", help="q8_0 to q2_k, iq4_nl, or a mix such as q4_k_m.")
    ],
    tokenizer: Tokenizer = None,
    report: Annotated[
        bool, typer.Option("--report", help="Tell the errors of every weight.")
    ] = False,
) -> None:
    """Pack the matrices of the model in IN as OUT, and tell bytes and errors."""
    from luminal.loaders.ggml.mixes import CHOICES, few_of
    from luminal.models.conversion import Written, convert
    from luminal.nn.quantization import PackedWeight, QuantizationReport

    kind = kind.lower()
    if kind not in CHOICES:
        names = ", ".join(CHOICES)
        raise InputError(f"quantize: --type {kind!r} is not known; it is one of {names}")
    # Measured while writing: each matrix is read back from its packed bytes, so the report is of
    # the file and not of an estimate.
    rows: list[PackedWeight] = []
    kept: dict[str, str] = {}
    wide: list[str] = []  # matrices that could not be packed
    with progress() as bar:
        task = bar.add_task(f"{kind} of {source}", total=None)

        def told(written: Written) -> None:
            bar.update(task, total=written.count, advance=1)
            stored = written.stored
            if written.kept is not None:
                kept[written.name] = f"{written.kept}; is {stored.kind}"
                # Vectors stay wide on purpose and packed matrices are what was asked for; only a
                # matrix that stayed wide is worth a word.
                if written.values.ndim > 1 and "already" not in written.kept:
                    wide.append(written.name)
                return
            nbytes = written.nbytes, stored.data.nbytes
            rows.append(
                PackedWeight.of(written.name, stored.kind, written.values, stored.array(), nbytes)
            )

        convert(source, target, kind, tokenizer, told)
    packed_report = QuantizationReport(kind, tuple(rows), kept)
    console().print(str(packed_report) if report else packed_report.total, soft_wrap=True)
    if wide:
        many = "1 matrix" if len(wide) == 1 else f"{len(wide)} matrices"
        reasons = few_of({name: kept[name] for name in wide})
        console().print(f"not packed: {many} ({reasons})", soft_wrap=True)
