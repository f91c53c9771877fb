"""What `luminal serve` refuses before it compiles anything, and a template of one's own."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from luminal import models
from luminal.base.errors import InputError
from luminal.cli import serve
from luminal.cli.main import app
from luminal.serve.served import Served
from luminal.serve.server import bound, run


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found.getsockname()[1]


def test_a_port_in_use(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the model is read: here is none."""
    monkeypatch.setattr("luminal.serve.server.log_as_json", lambda: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    with pytest.raises(InputError, match=rf"'127.0.0.1', port {taken}: Address already in use; "):
        serve.command("no such model", port=taken, host="127.0.0.1", keys=None)


def test_two_that_start_at_once() -> None:
    """Both are bound; who comes second to listen is told."""
    (first,) = bound("127.0.0.1", 0)
    port = first.getsockname()[1]
    (second,) = bound("127.0.0.1", port)
    with first, second:
        first.listen()
        with pytest.raises(InputError, match=f"'127.0.0.1', port {port}: Address already in use"):
            run(None, [second], 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_an_address_that_the_machine_lacks(monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    """Such as that of IPv6: the others are enough."""
    given = [(socket.AF_INET, 0, 0, "", (host, 0)) for host in ("8.8.8.8", "127.0.0.1")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: given[::order])
    (found,) = bound("both", 0)
    assert found.getsockname()[0] == "127.0.0.1"
    found.close()


HOSTS = {
    "name": ("no.such.host.invalid", "cannot listen on 'no.such.host.invalid', port 0: "),
    "address": ("8.8.8.8", "Cannot assign requested address; choose others with --host and --port"),
    "label": ("a" * 99, "it is no name of a machine; choose others"),
    "dots": ("..", "it is no name of a machine; choose others"),
}


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_that_this_machine_is_not(name: str) -> None:
    host, message = HOSTS[name]
    with pytest.raises(InputError, match=message):
        bound(host, 0)


def test_a_process_that_may_open_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (64, 288))
    with pytest.raises(InputError, match="may open 288 files, which must be more than 288; raise"):
        run(None, [], 0, 0)  # type: ignore[arg-type]


@pytest.mark.long
def test_collections_of_garbage_leave_the_programs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole search through those of a server takes 0.2 s, in which no text goes on."""
    frozen: list[int] = []
    server = SimpleNamespace(run=lambda sockets: frozen.append(gc.get_freeze_count()))
    monkeypatch.setattr("luminal.serve.server.make_server", lambda *given: server)
    none: Any = None
    gc.unfreeze()  # as all tests begin with their modules frozen, and go on so
    run(none, [], 0, 0)
    assert frozen[0] > 10_000


def test_a_context_above_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from luminal.serve.load import load

    monkeypatch.setattr(Served, "__init__", None)  # nothing is compiled before
    with pytest.raises(
        InputError,
        match="context 513: the model takes texts of at most 512 tokens; give no more, or leave it",
    ):
        load(str(models.SHIPPED), context=513)


@pytest.mark.parametrize(
    "text", ["a.example", "https://a.example/", "https://A.example", "https://", "*.example", ""]
)
def test_origins_that_are_none(text: str) -> None:
    """A browser would name none of them, and so they would never be allowed."""
    with pytest.raises(InputError, match="it is no origin; write a scheme, a host in small letter"):
        serve.command("no such model", cors_origin=["https://a.example", text])


def test_keys_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(" \n\n", "utf-8")
    with pytest.raises(InputError, match="it has no key; write one a line"):
        serve.command("no such model", keys=tmp_path / "keys")


class Loaded(Exception):
    """A model was loaded, and nothing is compiled."""


def test_a_template_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped model has none; what is no template is refused before anything is compiled."""
    kept: list[Any] = []

    def made(self: Served, name: str, loaded: Any, *_: Any) -> None:
        kept.append(loaded)
        raise Loaded

    for name in ("log_as_json", "bound"):
        monkeypatch.setattr(f"luminal.serve.server.{name}", lambda *_: [])
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(Served, "__init__", made)
    file = tmp_path / "chat.jinja"
    command = ["serve", str(models.SHIPPED), "--template", str(file)]

    file.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}", "utf-8")
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, Loaded)
    (loaded,) = kept
    chat = [{"role": "user", "content": "To be"}]
    assert loaded.chat_prompt(chat) == loaded.tokenizer.encode("<To be>")

    file.write_text("{% for m in messages %}", "utf-8")
    found = CliRunner().invoke(app, command)
    assert len(kept) == 1
    assert "chat template: Unexpected end of template" in str(found.exception)
