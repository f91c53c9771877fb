"""`luminal serve`: a model behind OpenAI's HTTP API."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from luminal.base import host as system
from luminal.base import installation
from luminal.base.errors import InputError
from luminal.cli.options import (
    Backend,
    CacheDtype,
    ComputeDtype,
    Draft,
    KeepQuantized,
    Projector,
    Template,
    Tensor,
    Tokenizer,
)

# Browsers send an origin as a scheme, a host and perhaps a port, in small letters and without a
# path (RFC 6454, section 6.2), and it is compared as a text: what differs would never match.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@A-Z\s]+")

Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        metavar="ORIGIN",
        help="A site whose web pages may ask, as https://a.example; * lets all.",
    ),
]


Chunk = Annotated[int, typer.Option(min=1, help="Tokens of prompts a step, in whole 16s.")]
Drain = Annotated[int, typer.Option(min=0, help="Seconds for what runs, after SIGTERM or Ctrl-C.")]

Model = Annotated[
    str, typer.Argument(help="A folder, a .gguf, a llama2.c .bin, or a Hugging Face id.")
]
Name = Annotated[str, typer.Option(help="What clients call it.", show_default="the file's name")]
Keys = Annotated[
    Path | None, typer.Option(help="A file of API keys, one a line; without: no key needed.")
]
Cache = Annotated[
    int | None,
    typer.Option(min=16, help="Tokens whose keys and values are kept.", show_default="1 GiB"),
]
MaxBody = Annotated[
    int | None,
    typer.Option(min=1, help="Most bytes of a request.", show_default="1 MiB; of sound 25"),
]
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=FOLDER",
        help="A folder of PEFT (LoRA) that answers to a name; may be given often. FOLDER alone is "
        "merged into the weights.",
    ),
]
Replicas = Annotated[int, typer.Option(min=1, help="Copies of the model, of --tensor ranks each.")]
Restarts = Annotated[
    int, typer.Option(min=0, help="How often in a row a copy whose ranks have died starts again.")
]


def command(
    model: Model,
    tokenizer: Tokenizer = None,
    template: Template = None,
    name: Name = "",
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    keys: Keys = None,
    cors_origin: Origins = None,
    context: Annotated[int | None, typer.Option(min=2, help="Most tokens of a text.")] = None,
    cache: Cache = None,
    rows: Annotated[int, typer.Option(min=1, help="Texts written at a time.")] = 64,
    chunk: Chunk = 128,
    queue: Annotated[int, typer.Option(min=0, help="Texts that may wait.")] = 256,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most new tokens of a text.")] = 4096,
    max_body: MaxBody = None,
    timeout: Annotated[float, typer.Option(min=0, help="Most seconds of a request.")] = 600.0,
    drain: Drain = 30,
    backend: Backend = "cpu",
    draft: Draft = None,
    cache_dtype: CacheDtype = None,
    adapter: Adapters = None,
    keep_quantized: KeepQuantized = False,
    compute_dtype: ComputeDtype = None,
    tensor: Tensor = 1,
    replicas: Replicas = 1,
    restarts: Restarts = 5,
    mmproj: Projector = None,
) -> None:
    """Serve a model until SIGTERM or Ctrl-C."""
    system.require_posix("luminal serve")
    accepted_keys = [] if keys is None else _read_keys(keys)
    origins = [_checked_origin(origin) for origin in cors_origin or ()]
    try:
        from luminal.serve.app import make_app
        from luminal.serve.groups import Groups
        from luminal.serve.server import SWITCH, bound, log_as_json, run
    except ImportError as error:
        hint = installation.hint("serve")
        raise InputError(f"serve: {error.name} is not installed; {hint}") from None
    from luminal.serve.load import load
    from luminal.serve.orders import TEXTS, Limits
    from luminal.serve.rank_process import Settings

    sys.setswitchinterval(SWITCH)
    log_as_json()
    sockets = bound(host, port)  # before the model is loaded, which takes its time
    arguments: dict[str, Any] = {
        "path": model, "tokenizer": tokenizer, "name": name, "context": context, "cache": cache,
        "rows": rows, "chunk": chunk, "backend": backend, "draft": draft, "projector": mmproj,
        "keep_quantized": keep_quantized, "compute_dtype": compute_dtype,
        "template": template and template.read(), "cache_dtype": cache_dtype,
    } | _adapters(adapter or [])  # fmt: skip
    limits = Limits(max_body or TEXTS, max_tokens, queue=queue, seconds=timeout)
    settings = Settings(arguments, limits, accepted_keys, origins)
    if tensor * replicas > 1:
        raise typer.Exit(Groups(settings, tensor, replicas, restarts).run(sockets, drain))
    served = load(**arguments)
    _end_at_hangup()  # nothing is written from here on
    limits = replace(limits, body=max_body or served.body)
    run(make_app(served, limits, accepted_keys, origins), sockets, drain, limits.body)


def _end_at_hangup() -> None:
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _adapters(texts: list[str]) -> dict[str, Any]:
    """The folder that is merged, or None, and the folders that have names, as `load` takes them.

    Raises InputError for a name that is given twice, and for a folder without one beside others.
    """
    merged: list[str] = []
    named: dict[str, str] = {}
    for text in texts:
        name, is_named, folder = text.partition("=")
        # Of a path the first part may hold a sign, too: ./a=b is a folder.
        if not is_named or "/" in name:
            merged.append(text)
        elif not name or not folder:
            raise InputError(f"--adapter {text}: write NAME=FOLDER, or FOLDER alone")
        elif name in named:
            raise InputError(
                f"--adapter {text}: the name {name!r} has {named[name]} already; give each another"
            )
        else:
            named[name] = folder
    if merged and (named or len(merged) > 1):
        raise InputError(
            f"--adapter {merged[0]}: without a name it is merged into the weights, on which the "
            "others were not trained; give each a name: --adapter NAME=FOLDER"
        )
    return {"adapter": merged[0] if merged else None, "adapters": named}


def _checked_origin(text: str) -> str:
    """Raises InputError for what no browser calls an origin."""
    if text in ("*", "null") or _ORIGIN.fullmatch(text):
        return text
    raise InputError(
        f"--cors-origin {text}: it is no origin; write a scheme, a host in small letters, and a "
        "port where it has one, with nothing behind, as https://a.example or http://localhost:3000"
    )


def _read_keys(path: Path) -> list[str]:
    """The keys in a file. Raises InputError where there are none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"--keys {path}: cannot be read: {error}") from None
    listed = [line.strip() for line in lines if line.strip()]
    if not listed:
        raise InputError(f"--keys {path}: it has no key; write one a line")
    return listed
