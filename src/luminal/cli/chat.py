"""`luminal chat`: talk with a language model in the terminal."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.cli.options import (
    Adapter,
    Backend,
    ComputeDtype,
    Images,
    KeepQuantized,
    Mode,
    Projector,
    Seed,
    Temperature,
    Template,
    TopP,
    one_adapter,
    tell_sight,
)
from luminal.loaders.image import read_image
from luminal.loaders.write_atomic import replacing

if TYPE_CHECKING:
    from luminal.models import LanguageModel

COMMANDS = {
    "/help": "lists these",
    "/reset": "forgets the chat",
    "/image FILE": "shows an image with the next message; may be given often",
    "/system TEXT": "tells the model TEXT before the chat, which begins anew; none without TEXT",
    "/save FILE": "writes the chat as JSON: a list of messages with role and content",
    "/exit": "ends",
}
HELP = "/help lists commands, /exit ends; Ctrl-C stops an answer"


def command(
    model: Annotated[
        str, typer.Option(help="A folder or .gguf with a chat template, or a Hugging Face id.")
    ],
    image: Images = None,
    mmproj: Projector = None,
    system: Annotated[str, typer.Option(help="What the model is told before the chat.")] = "",
    template: Template = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 1000,
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    seed: Seed = 0,
    mode: Mode = "fast",
    backend: Backend = "cpu",
    adapter: Adapter = None,
    keep_quantized: KeepQuantized = False,
    compute_dtype: ComputeDtype = None,
    context: Annotated[int | None, typer.Option(min=1, help="Most tokens of a chat.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Times after every answer.")] = False,
) -> None:
    """Talk with a model, line by line."""
    from luminal import models

    loaded = models.load(
        model, mode=mode, backend=backend, context=context, keep_quantized=keep_quantized,
        compute_dtype=compute_dtype, adapter=one_adapter(adapter), projector=mmproj,
    )  # fmt: skip
    if not isinstance(loaded, models.LanguageModel):
        raise InputError(f"chat: {model} is a {type(loaded).__name__}, which does not chat")
    tell_sight(loaded, mmproj)
    if template is not None:
        loaded.use_template(template.read())
    chat = _Chat(loaded)
    chat.begin(system)  # what is wrong is said now
    for file in image or ():
        chat.show(file)
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (lines are edited and remembered by it)
        typer.echo(HELP, err=True)
    options = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p, "seed": seed}
    while (line := _line()) is not None and line != "/exit":
        try:
            told = chat.command(line) if _COMMAND.match(line) else None
            if told is not None:
                typer.echo(told, err=True)
            elif line:
                chat.ask(line, options)
                if stats:
                    typer.echo(loaded.stats.text(), err=True)
        except InputError as error:
            # A script must see the failure in the exit status; a person at a terminal goes on
            # with a shorter line.
            if not sys.stdin.isatty():
                raise
            typer.echo(f"luminal: {error} (left out; /reset forgets the chat)", err=True)


_COMMAND = re.compile(r"/[a-z]+(\s|$)")


class _Chat:
    """What was said so far, and the commands about it."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._begun: list[dict[str, Any]] = []
        self._history: list[dict[str, Any]] = []
        self._images: list[str] = []  # of the next message

    def begin(self, system: str) -> None:
        """Begins anew. Raises InputError where the model takes no such system message."""
        begun = [{"role": "system", "content": system}] if system else []
        self._model.chat_prompt([*begun, {"role": "user", "content": "?"}])
        self._begun, self._history = begun, [*begun]

    def ask(self, line: str, options: dict[str, Any]) -> None:
        """Prints the answer. Only what was answered becomes part of the chat: a line that was
        refused, as too long, would make every later one too long as well.
        """
        content: Any = line
        if self._images:
            images = [{"type": "image", "image": file} for file in self._images]
            content = [*images, {"type": "text", "text": line}]
        asked = [*self._history, {"role": "user", "content": content}]
        answer = _answer(self._model, asked, options)
        self._history = [*asked, {"role": "assistant", "content": answer}]
        self._images = []

    def show(self, file: str) -> str:
        """The next message begins with this image; what is to be told of it."""
        if isinstance(self._model.sight, str):
            raise InputError(f"/image: {self._model.sight}")
        width, height = read_image(Path(file)).size
        self._images.append(file)
        return f"{file}, {width} x {height} pixels, is shown with the next message"

    def command(self, line: str) -> str:
        """Does what a line with a slash asks; what is to be told of it."""
        name, _, text = (part.strip() for part in line.partition(" "))
        match name:
            case "/help":
                width = max(map(len, COMMANDS))
                return "\n".join(f"{one:<{width}}  {said}" for one, said in COMMANDS.items())
            case "/image":
                if not text:
                    raise InputError("/image: takes the name of a file, as /image cat.jpg")
                return self.show(text)
            case "/reset":
                self._history, self._images = [*self._begun], []
                return "the chat is forgotten"
            case "/system":
                self.begin(text)
                return "the chat begins anew" + ("" if text else ", without a system message")
            case "/save":
                return self._saved(text)
        names = [one.split()[0] for one in COMMANDS]
        raise InputError(
            f"{name}: no such command{suggestion(name, names)}; there are {', '.join(names)}"
        )

    def _saved(self, file: str) -> str:
        if not file:
            raise InputError("/save: takes the name of a file, as /save chat.json")
        with replacing(file) as stream:
            stream.write(json.dumps(self._history, indent=2, ensure_ascii=False).encode() + b"\n")
        return f"{len(self._history)} messages are in {file}"


def _line() -> str | None:
    """What the user says; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            typer.echo()  # the prompt is an open line
        return None


def _answer(model: LanguageModel, history: list[dict[str, Any]], options: dict[str, Any]) -> str:
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
