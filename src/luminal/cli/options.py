"""Options that several subcommands have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from luminal.base import config
from luminal.base.errors import InputError

Backend = Annotated[
    str, typer.Option("--backend", "--device", help="Where to run; see `luminal devices`.")
]

KeepQuantized = Annotated[
    bool,
    typer.Option("--keep-quantized", help="Packed matrices stay so; else they are f32."),
]

Adapter = Annotated[
    list[str] | None,
    typer.Option("--adapter", help="A folder of PEFT (LoRA, DoRA), merged into the weights."),
]


def one_adapter(folders: list[str] | None) -> str | None:
    """The one that is given, or None. Raises InputError for several."""
    if folders and len(folders) > 1:
        raise InputError(
            f"--adapter {folders[0]}, --adapter {folders[1]}: only one is merged; merge the first "
            "into a model of its own (luminal merge), and give that with the second"
        )
    return folders[0] if folders else None


ComputeDtype = Annotated[
    str | None,
    typer.Option(
        "--compute-dtype",
        help="What products of a language model multiply: float32, bfloat16, float16; "
        "int8 where matrices stay packed.",
        show_default="that of its matrices",
    ),
]

Tensor = Annotated[int, typer.Option(min=1, help="Ranks that each have a part of the model.")]

Mode = Annotated[str, typer.Option("--mode", help="How to compile; see lm.compile.")]

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", help="Tokenizer file, where the model has none of its own."),
]

WeightDtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="The dtype of weights: f32, f16, bf16; or packed: q8_0 to q2_k, q4_k_m.",
        show_default="as they are",
    ),
]

Template = Annotated[
    typer.FileText | None,
    typer.Option("--template", help="A chat template (Jinja) instead of the model's."),
]

Images = Annotated[
    list[str] | None,
    typer.Option("--image", help="An image file, for a model that sees; may be given often."),
]

Projector = Annotated[
    str | None,
    typer.Option(
        "--mmproj",
        metavar="FILE",
        help="What sees for a text model in GGUF: its mmproj file.",
        show_default="one beside it that fits",
    ),
]


def tell_sight(loaded: Any, projector: str | None) -> None:
    """Says on standard error which mmproj file was found beside a model, as nobody named it."""
    sight = loaded.sight
    if projector is None and not isinstance(sight, str) and sight.source.suffix == ".gguf":
        typer.echo(f"luminal: {sight.source} sees for the model; --mmproj takes another", err=True)


Temperature = Annotated[
    float,
    typer.Option(
        "--temperature", min=0.0, help="0 takes the likeliest token; higher is more varied."
    ),
]

TopP = Annotated[
    float,
    typer.Option(
        "--top-p", max=1.0, help="Sample from the likeliest of this total probability, above 0."
    ),
]

Draft = Annotated[
    str | None,
    typer.Option(
        "--draft", help="A smaller model that proposes tokens, or `lookup`: from the text."
    ),
]

CacheDtype = Annotated[
    str | None,
    typer.Option(
        "--cache-dtype",
        help="float32 or bfloat16: keys and values that are kept.",
        show_default="what products multiply",
    ),
]

Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampling.")]

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, help="Most threads that it may use.", show_default="every CPU"
    ),
]


def with_threads(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option --threads, the flag LUMINAL_THREADS while it runs."""

    @functools.wraps(command)
    def limited(*arguments: Any, threads: int | None = None, **options: Any) -> None:
        with nullcontext() if threads is None else config.override(LUMINAL_THREADS=threads):
            command(*arguments, **options)

    # typer reads options off a signature, with hints as values.
    signature = inspect.signature(command, eval_str=True)
    threads_option = inspect.Parameter(
        "threads", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Threads
    )
    parameters = [*signature.parameters.values(), threads_option]
    limited.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    limited.__annotations__ = {option.name: option.annotation for option in parameters}
    return limited
