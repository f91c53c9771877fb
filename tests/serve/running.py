"""A small model behind a server in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import tokenizers
import uvicorn

import luminal as lm
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models import LanguageModel
from luminal.models.chat_template import ChatTemplate
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.serve.app import make_app
from luminal.serve.engine import EngineOptions
from luminal.serve.orders import Limits
from luminal.serve.served import Served
from luminal.serve.server import make_server

SYMBOLS = ["<end>", "Ġ", "Ċ", *map(chr, range(33, 127))]  # of bytes: a space, a line's end
CONTEXT = 128
CONFIG = DecoderConfig(
    vocab_size=len(SYMBOLS),
    hidden_size=32,
    intermediate_size=48,
    layers=(LayerConfig(None, Rotary()),) * 2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=CONTEXT,
)


TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}"
    "{{ (tools | tojson)[:1] if tools }}a:"
)


def characters() -> HuggingFaceTokenizer:
    """A token a character of ASCII; id 0 ends a text."""
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE({symbol: number for number, symbol in enumerate(SYMBOLS)}, [])
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    return HuggingFaceTokenizer(inner, None, frozenset([0]), Path("characters"))


LIMITS = Limits(body=20_000, new_tokens=100, texts=8, queue=16)


def make_served() -> Served:
    """The model, compiled; its cache holds two texts of full length."""
    lm.manual_seed(5)
    loaded = LanguageModel(Decoder(CONFIG), characters(), context=CONTEXT)
    loaded.chat_template = ChatTemplate(TEMPLATE)
    return Served("tiny", loaded, EngineOptions(rows=8, chunk=16, size=4, cache=256))


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    url: str
    port: int
    served: Served
    server: uvicorn.Server

    @property
    def clients(self) -> list[Any]:
        """The addresses of who is connected."""
        return [each.client for each in self.server.server_state.connections]

    def client(self, key: str = "none") -> Any:
        """The official client."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30)

    def blocks_are_free(self, within: float = 10.0) -> bool:
        """Whether no text holds a block, soon."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            load = self.served.engine.load
            if not load.running and not load.waiting and load.free_blocks == load.blocks:
                return True
            time.sleep(0.01)
        return False


@contextmanager
def running(served: Served) -> Iterator[Running]:
    """Serves on a free port of this machine."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # without a name asyncio delays packets
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of its connections too
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = make_server(make_app(served, LIMITS), drain=5, body=LIMITS.body)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield Running(f"http://127.0.0.1:{port}", port, served, server)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address of an application whose engine another server has started."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def asked(
    app: Any,
    body: Any = None,
    path: str = "/v1/completions",
    method: str | None = None,
    **headers: str,
) -> httpx.Response:
    """The answer of an application that runs in no server: by default to a GET where there is no
    body.
    """

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            kind = method or ("GET" if body is None else "POST")
            return await client.request(kind, path, json=body, headers=headers)

    return asyncio.run(ask())
