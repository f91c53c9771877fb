"""`luminal chat`: talk with a language model in the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.base.errors import InputError
from luminal.cli.options import (
    Backend,
    ComputeDtype,
    KeepQuantized,
    Mode,
    Seed,
    Temperature,
    Template,
    TopP,
)

if TYPE_CHECKING:
    from luminal.models import LanguageModel

HELP = "/reset forgets the chat, /exit ends; Ctrl-C stops an answer"


def command(
    model: Annotated[
        str, typer.Option(help="A folder or .gguf with a chat template, or a Hugging Face id.")
    ],
    system: Annotated[str, typer.Option(help="What the model is told before the chat.")] = "",
    template: Template = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 1000,
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    seed: Seed = 0,
    mode: Mode = "fast",
    backend: Backend = "cpu",
    keep_quantized: KeepQuantized = False,
    compute_dtype: ComputeDtype = None,
    context: Annotated[int | None, typer.Option(min=1, help="Most tokens of a chat.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Times after every answer.")] = False,
) -> None:
    """Talk with a model, line by line."""
    from luminal import models

    loaded = models.load(
        model,
        mode=mode,
        backend=backend,
        context=context,
        keep_quantized=keep_quantized,
        compute_dtype=compute_dtype,
    )
    if not isinstance(loaded, models.LanguageModel):
        raise InputError(f"chat: {model} is a {type(loaded).__name__}, which does not chat")
    if template is not None:
        loaded.use_template(template.read())
    begun = [{"role": "system", "content": system}] if system else []
    loaded.chat_prompt([*begun, {"role": "user", "content": "?"}])  # what is wrong is said now
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (lines are edited and remembered by it)
        typer.echo(HELP, err=True)
    options = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p, "seed": seed}
    history = [*begun]
    while (line := _line()) is not None and line != "/exit":
        if line == "/reset":
            history = [*begun]
        elif line:
            asked = [*history, {"role": "user", "content": line}]
            try:
                answer = _answer(loaded, asked, options)
            except InputError as error:
                # A script must see the failure in the exit status; a person at a terminal goes on
                # with a shorter line.
                if not sys.stdin.isatty():
                    raise
                typer.echo(f"luminal: {error} (left out; /reset forgets the chat)", err=True)
                continue
            # Only what was answered becomes part of the chat: a line that was refused, as too long,
            # would make every later one too long as well.
            history = [*asked, {"role": "assistant", "content": answer}]
            if stats:
                typer.echo(loaded.stats.text(), err=True)


def _line() -> str | None:
    """What the user says; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            typer.echo()  # the prompt is an open line
        return None


def _answer(model: LanguageModel, history: list[dict[str, str]], options: dict[str, Any]) -> str:
    """Prints the answer as it comes; Ctrl-C ends it there."""
    answer = ""
    try:
        for piece in model.stream_chat(history, **options):
            answer += piece
            typer.echo(piece, nl=False)
    except KeyboardInterrupt:
        # What was written so far is returned and stays in the chat, as the user has read it.
        typer.echo(" [stopped]", nl=False)
    typer.echo()
    return answer
