"""Text from an encoder and a decoder: one program encodes, another adds a token at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import GraphError
from luminal.frontend.movement.views import stack
from luminal.frontend.tensor import Tensor
from luminal.models.encoder_decoder import EncoderDecoder, recall, remember
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode, mode_of
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
Choice = Callable[[list[int], Array], int]
"""The next token, from the new ones so far and the logits (vocab_size,)."""


class SequenceToSequence:
    """Programs of a model for one input at a time, whose memory States keep between runs.

    `input_of`: the input "x" of a graph, without batch.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        input_of: Callable[[Graph], Tensor],
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.mode, self.backend = model, mode, chosen_device(backend)
        self._input_of = input_of
        self._memory = model.make_caches(model.longest_input, "memory")
        self._caches = model.make_caches(model.longest_text, "cache")
        self._programs: tuple[Executable, Executable] | None = None
        self._looks: Executable | None = None
        self._length = 0  # positions of the memory in use
        self._current: object = None  # the input that the memory is of

    def compile(self) -> tuple[Executable, Executable]:
        """The programs that encode and decode, compiled at the first call for all lengths."""
        if self._programs is None:
            # What the encoder makes stays in States: the decoder's program reads it at each token,
            # and nothing goes through Python in between.
            mode = mode_of(self.mode).shared_by(2)
            graphs = self._encoder(), self._decoder()
            encode, decode = (compile(graph, backend=self.backend, mode=mode) for graph in graphs)
            self._programs = encode, decode
        return self._programs

    def _encoder(self) -> Graph:
        graph = Graph("encode")
        encoded = self.model.encode(self._input_of(graph))
        remember(self.model.decoder.memories(encoded), self._memory)
        graph.constant(encoded.extents[0]).output("length")
        return graph

    def _decoder(self) -> Graph:
        """One token after `past` others, of `m` positions of the memory."""
        graph = Graph("decode")
        past = graph.dim("past", 0, self.model.longest_text - 1)
        length = graph.dim("m", 1, self.model.longest_input)
        ids = graph.tensor((1,), dtypes.int32, "ids")
        memories = recall(self._memory, ids, length)
        logits = self.model.decode(ids, memories, None, self._caches, past)
        logits.squeeze(0).output("logits")
        return graph

    def _aligner(self, heads: Sequence[tuple[int, int]]) -> Graph:
        """Ids (s,) to what heads of layers look at in the memory, "weights" (heads, s, m)."""
        graph = Graph("align")
        length = graph.dim("m", 1, self.model.longest_input)
        ids = graph.tensor((graph.dim("s", 1, self.model.longest_text),), dtypes.int32, "ids")
        layers: list[Any] = list(self.model.decoder.layers)
        seen: list[list[Tensor]] = [[] for _ in layers]
        for layer, weights in zip(layers, seen, strict=True):
            layer.cross.part.seen = weights
        try:
            self.model.decode(ids, recall(self._memory, ids, length))
        finally:
            for layer in layers:
                layer.cross.part.seen = None
        stack([seen[layer][0][head] for layer, head in heads]).output("weights")
        return graph

    def looks(self, ids: Sequence[int], heads: Sequence[tuple[int, int]]) -> Array:
        """What heads, each a layer's number and its own, look at in the memory at each token:
        float32 (heads, s, positions).
        """
        if self._looks is None:
            graph = self._aligner(heads)
            self._looks = compile(graph, backend=self.backend, mode=mode_of(self.mode).shared_by(2))
        weights: Array = self._looks(ids=np.array(ids, np.int32), dims={"m": self._length})[
            "weights"
        ]
        return weights

    def encode(self, x: Array) -> None:
        """Texts are of this input from now on."""
        self._current = object()
        self._length = int(self.compile()[0](x=x)["length"])

    def logits(self, token: int, past: int) -> Array:
        """The logits (vocab_size,) of the token after `token`, which `past` others precede."""
        decode = self.compile()[1]
        ids, dims = np.array([token], np.int32), {"past": past, "m": self._length}
        logits: Array = decode(ids=ids, dims=dims)["logits"]
        return logits

    def tokens(self, prefix: Sequence[int], choose: Choice, ends: frozenset[int]) -> Iterator[int]:
        """What follows `prefix`, up to a token of `ends` or the longest text.

        Raises GraphError if another input is encoded before the last one.
        """
        # One memory for one input at a time: a stream that is read on after another input would mix
        # the two.
        current = self._current
        # The decoder's program takes one token at a time, and prefixes of such models have a few
        # tokens only.
        for past, token in enumerate(prefix[:-1]):
            self.logits(token, past)
        token, new = prefix[-1], list[int]()
        for past in range(len(prefix) - 1, self.model.longest_text - 1):
            if self._current is not current:
                raise GraphError("stream: another input was encoded; finish one before the next")
            token = choose(new, self.logits(token, past))
            if token in ends:
                return
            new.append(token)
            yield token
