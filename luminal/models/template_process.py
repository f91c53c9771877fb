"""The process that renders chat templates, seen from outside.

A template comes with a model that others made, and it is a program: `{{ "a" * 10**10 }}` would take
all memory, two loops a day. In a process of its own the system itself holds it to an amount of
memory, and its time can end, whatever it does; counting in this process would miss something.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from luminal import config, forks
from luminal.errors import InputError

WORKER = Path(__file__).with_name("template_worker.py")
MOST_BYTES = 1 << 30  # of memory: Python takes 25 MiB of it, chats of a megabyte a few more
MOST_CHARACTERS = 1 << 24  # of a text, above all contexts
SECONDS = 30.0  # templates need milliseconds, a process on a busy machine a second to start


class TemplateProcess:
    """Starts at the first call, again after a template broke its limits, and ends with this."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # the process that started it: a fork must not share its pipes

    def render(self, source: str, names: Mapping[str, Any]) -> str:
        """The text of a template that sees `names`. Raises InputError, with the template's words
        where it has some.
        """
        request = _packed({"source": source, "names": names})
        with self._lock:
            try:
                line = self._answer(self._running(), request)
            except BaseException:  # also an interrupt: its answer would be the next one's
                self.close()
                raise
        found = json.loads(line)
        if "error" in found:
            raise InputError(f"chat template: {found['error']}")
        text: str = found["text"]
        return text

    def close(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of Python modules may be gone
            self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._process, self._owner = _started(), os.getpid()
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # then no answer comes
            process.stdin.write(request)
            process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(SECONDS):
                raise InputError(
                    f"chat template: it takes longer than the {SECONDS:g} s that it may"
                )
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise InputError(
                f"chat template: its process ended with status {process.wait()}; it may use "
                f"{MOST_BYTES} bytes of memory"
            )
        return line


def _started() -> subprocess.Popen[bytes]:
    if find_spec("jinja2") is None:
        raise InputError("chat: it needs jinja2; pip install 'luminal[chat]'")
    try:
        return subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(MOST_BYTES), str(MOST_CHARACTERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=config.child_environment(),
        )
    except OSError as error:
        raise InputError(f"chat: no process could be started for templates: {error}") from None


def _packed(request: Mapping[str, Any]) -> bytes:
    """One line. Raises InputError for what is no JSON."""
    try:
        return json.dumps(request, default=_plain).encode() + b"\n"
    except RecursionError:
        raise InputError("chat template: lists or objects nest too deeply") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"messages: {error}; give texts, numbers, lists and dicts") from None


def _plain(x: Any) -> Any:
    if isinstance(x, Mapping):
        return dict(x)
    if isinstance(x, Iterable) and not isinstance(x, bytes):
        return list(x)
    raise TypeError(f"{type(x).__name__} is no JSON")
