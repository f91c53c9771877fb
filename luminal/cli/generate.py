"""`luminal generate`: a language model continues a prompt."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    model: Annotated[
        str,
        typer.Option(
            help="A folder, a .gguf, a llama2.c .bin, or a Hugging Face id.",
            show_default="the small one that comes with Luminal",
        ),
    ] = "",
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer file, where the model has none of its own.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to generate.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the likeliest token; higher is more varied.")
    ] = 0.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the k likeliest tokens only.")
    ] = None,
    top_p: Annotated[
        float,
        typer.Option(max=1.0, help="Sample from the likeliest of this total probability, above 0."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 0,
    mode: Annotated[str, typer.Option(help="How to compile; see lm.compile.")] = "fast",
    backend: Annotated[str, typer.Option(help="Where to run; see `luminal devices`.")] = "cpu",
    stats: Annotated[bool, typer.Option("--stats", help="End with times and tokens/s.")] = False,
) -> None:
    """Continue a prompt, token by token."""
    from luminal import models

    loaded = models.load(model or models.SHIPPED, tokenizer=tokenizer, mode=mode, backend=backend)
    pieces = loaded.stream(
        prompt,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    typer.echo(prompt, nl=False)  # after all that can be wrong was checked
    for piece in pieces:
        typer.echo(piece, nl=False)  # echo flushes: the pieces appear as they come
    typer.echo()
    if stats:
        typer.echo()
        typer.echo(loaded.stats.text())
