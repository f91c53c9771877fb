"""A small model behind a server in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import luminal as lm
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.serve.app import make_app
from luminal.serve.engine import EngineOptions
from luminal.serve.orders import Limits
from luminal.serve.served import Served
from luminal.serve.server import make_server

CHARACTERS = "\0" + "".join(map(chr, range(32, 127))) + "\n"
CONTEXT = 128
CONFIG = DecoderConfig(
    vocab_size=len(CHARACTERS),
    hidden_size=32,
    intermediate_size=48,
    layers=(LayerConfig(None, Rotary()),) * 2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=CONTEXT,
)


class Characters:
    """A token a character; the first one ends a text."""

    bos_id = None
    eos_ids = frozenset([0])
    vocab_size = len(CHARACTERS)

    def encode(self, text: str) -> list[int]:
        return [max(CHARACTERS.find(each), 1) for each in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(CHARACTERS[each] for each in ids if each)


def template(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[int]:
    """A line a message."""
    lines = [f"{each['role'][0]}: {each.get('content', '')}\n" for each in messages]
    return Characters().encode("".join(lines) + "a:")


SMALL = EngineOptions(rows=8, chunk=16, size=4, cache=1024)


def make_served(options: EngineOptions = SMALL) -> Served:
    """The model, compiled."""
    lm.manual_seed(5)
    return Served("tiny", Decoder(CONFIG), Characters(), CONTEXT, options, template)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    url: str
    port: int
    served: Served

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
def running(
    served: Served, limits: Limits | None = None, keys: Sequence[str] = ()
) -> Iterator[Running]:
    """Serves on a free port of this machine."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of its connections too
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = make_server(make_app(served, limits or Limits(), keys), "127.0.0.1", port, drain=5)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield Running(f"http://127.0.0.1:{port}", port, served)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()
