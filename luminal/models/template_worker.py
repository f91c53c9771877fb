"""Renders chat templates in a process of its own: this file is run, and imports nothing of Luminal.

Each line that comes in is a request in JSON, `{"source": ..., "names": {...}}`; each line that goes
out is its answer, `{"text": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """Lets templates mark what an assistant says, which matters to training only."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Any) -> Any:
        """What is between the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def to_json(x: Any, indent: int | None = None, **options: Any) -> str:
    """As transformers': characters stay what they are, for no browser will read them."""
    try:
        return json.dumps(x, ensure_ascii=False, indent=indent, **options)
    except RecursionError:
        return refuse("lists or objects nest too deeply")


def refuse(message: str) -> NoReturn:
    """`raise_exception` of templates."""
    raise jinja2.TemplateError(message)


@lru_cache(maxsize=4)
def template(source: str) -> Any:
    """A compiled one. It may raise anything."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", Generation],
    )
    environment.filters["tojson"] = to_json
    environment.globals.update(
        raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form)
    )
    return environment.from_string(source)


def answer(line: bytes, most_bytes: int, most_characters: int) -> dict[str, str]:
    """To one request."""
    try:
        request = json.loads(line)
        text = template(request["source"]).render(**request["names"])
    except MemoryError:
        return {"error": f"it needs more than the {most_bytes} bytes of memory that it may use"}
    except jinja2.TemplateError as error:
        return {"error": str(error)}
    except Exception as error:  # it is a program, which may raise anything
        return {"error": f"{type(error).__name__}: {error}"}
    if len(text) > most_characters:
        return {"error": f"it makes {len(text)} characters; {most_characters} are the most"}
    return {"text": text}


def main(most_bytes: int, most_characters: int) -> None:
    """Answers until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever waits for the answer
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(line, most_bytes, most_characters)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
