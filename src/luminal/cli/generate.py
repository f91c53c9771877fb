"""`luminal generate`: a language model continues a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.base.errors import InputError
from luminal.cli.on_ranks import cut, on_ranks
from luminal.cli.options import (
    Adapter,
    Backend,
    ComputeDtype,
    Draft,
    Images,
    KeepQuantized,
    Mode,
    Projector,
    Seed,
    Temperature,
    Tensor,
    Tokenizer,
    TopP,
    one_adapter,
    tell_sight,
)

if TYPE_CHECKING:
    from luminal.serve.ranks import Ranks


def command(
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    model: Annotated[
        str,
        typer.Option(
            help="A folder, a .gguf, a llama2.c .bin, or a Hugging Face id.",
            show_default="the small one that comes with Luminal",
        ),
    ] = "",
    image: Images = None,
    mmproj: Projector = None,
    tokenizer: Tokenizer = None,
    max_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to generate.")] = 200,
    temperature: Temperature = 0.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the k likeliest tokens only.")
    ] = None,
    top_p: TopP = 1.0,
    min_p: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Leave out tokens below this times the likeliest."),
    ] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: tokens of the text become less likely.")
    ] = 1.0,
    seed: Seed = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End where this text comes; may be given often.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="What the whole continuation matches.")] = None,
    json_schema: Annotated[
        typer.FileText | None, typer.Option(help="File of a JSON schema that it matches.")
    ] = None,
    draft: Draft = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
    adapter: Adapter = None,
    keep_quantized: KeepQuantized = False,
    compute_dtype: ComputeDtype = None,
    tensor: Tensor = 1,
    stats: Annotated[bool, typer.Option("--stats", help="End with times and tokens/s.")] = False,
) -> None:
    """Continue a prompt, token by token."""
    from luminal import models

    ranks = on_ranks(tensor)
    loaded = models.load(
        model or models.SHIPPED, tokenizer, mode, backend,
        keep_quantized=keep_quantized, compute_dtype=compute_dtype, adapter=one_adapter(adapter),
        projector=mmproj, ahead=ranks.have_all,
    )  # fmt: skip
    _prepare(loaded, model, mmproj, ranks)
    pieces = loaded.stream(
        prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p,
        min_p=min_p, repetition_penalty=repetition_penalty, seed=seed,
        images=image or (), **_more(loaded, stop, regex, json_schema, draft),
    )  # fmt: skip
    _print(prompt, pieces)
    if stats:
        typer.echo()
        typer.echo(loaded.stats.text())


def _prepare(loaded: Any, name: str, mmproj: str | None, ranks: Ranks) -> None:
    """Says what sees, and gives ranks their parts. Raises InputError for what writes no text."""
    from luminal import models

    if not isinstance(loaded, models.LanguageModel):
        raise InputError(f"generate: {name} is a {type(loaded).__name__}; give a language model")
    tell_sight(loaded, mmproj)
    cut(loaded, ranks)


def _print(prompt: str, pieces: Iterable[str]) -> None:
    """Prints the prompt, and each piece as it comes."""
    typer.echo(prompt, nl=False)  # after all that can be wrong was checked
    for piece in pieces:
        typer.echo(piece, nl=False)  # echo flushes: the pieces appear as they come
    typer.echo()


def _more(
    loaded: Any,
    stop: list[str] | None,
    regex: str | None,
    json_schema: typer.FileText | None,
    draft: str | None,
) -> dict[str, Any]:
    """The options of `stream` that need more than a number, as far as they are given."""
    from luminal import models

    options: dict[str, Any] = {}
    if regex is not None and json_schema is not None:
        raise InputError("generate: --regex and --json-schema; give one of both")
    if stop:
        options["stop"] = stop
    if regex is not None:
        options["constraint"] = models.regex(regex)
    if json_schema is not None:
        options["constraint"] = models.json_schema(json_schema.read())
    if draft == "lookup":
        options["draft"] = models.PromptLookup()
    elif draft is not None:
        smaller = models.load(draft, mode=loaded.mode, backend=loaded.backend)
        options["draft"] = models.ModelDraft(smaller)
    return options
