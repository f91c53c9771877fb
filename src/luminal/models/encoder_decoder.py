"""Models whose decoder attends to what an encoder made of the input: speech or text to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.models.encoder import within
from luminal.models.transformer import Transformer
from luminal.nn import KVCache, Module
from luminal.nn.masked_attention import KeysValues


class EncoderDecoder(Module):
    """What families share; they say how an input is encoded, and ids become logits.

    `longest_input` and `longest_text` count positions of the memory and of the text.
    """

    decoder: Transformer
    longest_input: int
    longest_text: int

    def encode(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The input, (batch, ...) or without batch, to ([batch,] k, hidden)."""
        raise NotImplementedError(f"{type(self).__name__}: write encode(self, x, lengths)")

    def decode(
        self,
        ids: Tensor,
        memories: Sequence[KeysValues],
        memory_visible: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        past: Extent = 0,
    ) -> Tensor:
        """(..., s) ids at positions past .. past + s - 1 to logits (..., s, vocab_size)."""
        raise NotImplementedError(f"{type(self).__name__}: write decode(self, ids, memories, ...)")

    def forward(self, x: Tensor, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Inputs (batch, ...) and ids (batch, s) to logits (batch, s, vocab_size).

        `lengths` (batch,): of the inputs; all of them by default.
        """
        encoded = self.encode(x, lengths)
        # By the length of what the encoder gives, which need not be the input's: Whisper halves it.
        visible = None if lengths is None else within(encoded[..., 0], lengths).unsqueeze((1, 2))
        return self.decode(ids, self.decoder.memories(encoded), visible)

    def make_caches(self, max_len: int, name: str, dtype: Any = float32) -> list[KVCache]:
        """Empty caches for `max_len` positions, one a layer of the decoder."""
        config = self.decoder.config
        shape = config.num_attention_heads, max_len, config.head_dim
        layers = range(config.num_hidden_layers)
        return [KVCache.make(*shape, dtype, name=f"{name}.{number}") for number in layers]


def remember(memories: Sequence[KeysValues], caches: Sequence[KVCache]) -> None:
    """The caches hold the memories, each (heads, k, head_dim), after the run."""
    for memory, cache in zip(memories, caches, strict=True):
        cache.keep(*memory, 0)


def recall(caches: Sequence[KVCache], ids: Tensor, length: Extent) -> list[KeysValues]:
    """The first `length` positions of what the caches hold, in the graph of `ids`."""
    graph = ids.graph
    return [
        KeysValues(*(graph.read(state)[:, :length] for state in (cache.keys, cache.values)))
        for cache in caches
    ]
