"""Serving over HTTP: many clients against one, the time to the first token, llama.cpp beside it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.row import Row, Rows, Skipped
from luminal.base import config
from luminal.models import Llama, LlamaConfig
from luminal.models.write_folder import write_folder

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/tinystories-656k"
CLIENTS = 64
TOKENS = 100
SECONDS = {1: 5.0, CLIENTS: 60.0}
WAIT = 300.0  # seconds until a server must be there
FIRST = ("little", "big", "red", "sad", "happy", "old", "funny", "kind")
SECOND = ("girl", "boy", "dog", "cat", "bird", "bear", "fish", "tree")
PROMPTS = [
    f"Once upon a time, there was a {first} {second}" for first in FIRST for second in SECOND
]
LARGE = LlamaConfig(768, 2048, 12, 12, 12, 64, 2048, 1024)  # 88 million parameters


@dataclass(slots=True)
class Round:
    """What clients saw: the characters of each prompt's texts, seconds to first tokens, tokens."""

    texts: dict[int, set[str]] = field(default_factory=dict)
    firsts: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0

    @property
    def speed(self) -> float:
        """New tokens a second."""
        return self.tokens / self.seconds

    @property
    def late(self) -> float:
        """The 95th percentile of seconds to the first token."""
        return statistics.quantiles(self.firsts, n=20)[-1]


def rows() -> Rows:
    """A small model that was trained, and a random one of 100M parameters."""
    if not FOLDER.is_dir():
        yield Skipped("serve tinystories-656k", "no ../shared/data/tinystories-656k")
        return
    yield from _served("tinystories-656k", FOLDER, 0.5)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "llama-100m"
        tokenizer = (FOLDER / "tokenizer.json").read_text("utf-8")
        write_folder(folder, Llama(LARGE), tokenizer)
        yield from _served("a random Llama of 88M", folder, 3)


def _served(name: str, folder: Path, late: float) -> Rows:
    """`late`: the seconds to a first token that are the target, where all begin at once."""
    command = [sys.executable, "-m", "luminal.cli.main", "serve", str(folder), "--context", "512"]
    with _server(command) as port:
        one, many = (_round(port, folder.name, count) for count in SECONDS)
    for number, texts in (*one.texts.items(), *many.texts.items()):
        if texts != many.texts.get(number, texts) or len(texts) > 1:
            raise AssertionError(f"serve: texts of prompt {number} differ: {texts}")
    detail = f"{many.speed:.0f} against {one.speed:.0f} tokens/s"
    ratio = many.speed / one.speed
    yield Row(f"serve {name}: {CLIENTS} clients to 1", ratio, 4, "x", (ratio, ratio), detail)
    spread = (min(many.firsts), max(many.firsts))
    detail = f"alone {statistics.median(one.firsts):.3g} s"
    yield Row(f"serve {name}: first token, 95%", many.late, late, "s", spread, detail)
    yield _beside_llama_cpp(name, folder, many)


def _beside_llama_cpp(name: str, folder: Path, ours: Round) -> Row | Skipped:
    title = f"serve {name}: beside llama.cpp"
    if importlib.util.find_spec("llama_cpp") is None:
        return Skipped(title, "llama-cpp-python is not installed")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.gguf"
        convert = [sys.executable, "-m", "luminal.cli.main", "convert", str(folder), str(file)]
        subprocess.run(convert, check=True, capture_output=True)
        threads = str(config.get("LUMINAL_THREADS"))
        command = [sys.executable, "-m", "llama_cpp.server", "--model", str(file)]
        command += ["--n_threads", threads, "--n_ctx", "512"]
        # By default a new request cuts off the one that runs.
        with _server([*command, "--interrupt_requests", "False"]) as port:
            theirs = _round(port, folder.name, CLIENTS)
    ratio = ours.speed / theirs.speed
    detail = f"{ours.speed:.0f} against {theirs.speed:.0f} tokens/s"
    return Row(title, ratio, 1.2, "x", (ratio, ratio), detail)


# --- servers and clients


@contextmanager
def _server(command: Sequence[str]) -> Iterator[int]:
    """Runs a server on a free port until it is not needed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [*command, "--port", str(port)], stderr=log, env=config.child_environment()
        ) as process,
    ):
        end = time.monotonic() + WAIT
        try:
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise AssertionError(f"{command}: does not serve: {log.read()[-2000:]!r}")
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _round(port: int, model: str, clients: int) -> Round:
    """Clients that ask for one text after the other, each for one of the prompts."""

    async def client(number: int, end: float, found: Round) -> None:
        body = {"model": model, "prompt": PROMPTS[number], "max_tokens": TOKENS}
        while time.perf_counter() < end:
            await _ask(port, body | {"temperature": 0, "stream": True}, number, found)

    async def all_clients() -> Round:
        await client(0, time.perf_counter() + 1, Round())
        found, start = Round(), time.perf_counter()
        end = start + SECONDS[clients]
        await asyncio.gather(*(client(number, end, found) for number in range(clients)))
        found.seconds = time.perf_counter() - start
        return found

    return asyncio.run(all_clients())


async def _ask(port: int, body: dict[str, object], number: int, found: Round) -> None:
    """One streamed completion."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
    writer.write(
        head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + data
    )
    start, got, first = time.perf_counter(), b"", 0.0
    while part := await reader.read(1 << 16):
        got += part
        if not first and b'"choices"' in got:
            first = time.perf_counter() - start
    writer.close()
    lines = [line[6:] for line in got.splitlines() if line.startswith(b'data: {"')]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    if not choices or choices[-1]["finish_reason"] is None:
        raise AssertionError(f"serve: an answer without an end: {got[-500:]!r}")
    found.firsts.append(first)
    found.tokens += sum(bool(choice["text"]) for choice in choices)
    found.texts.setdefault(number, set()).add("".join(choice["text"] for choice in choices))
