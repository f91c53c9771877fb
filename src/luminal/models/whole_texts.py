"""Programs over whole texts, without caches: vectors, log-probabilities, all that is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import float32, int32
from luminal.base.errors import InputError
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor
from luminal.models.decoder import Decoder
from luminal.nn.adapted import Adapters, of_rows
from luminal.nn.attention import CausalAttention
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph

POOLINGS = "mean", "last"
ROWS = 16  # of a batch at a time, whose logits lie in memory together


class Outputs(NamedTuple):
    """What a model computes of ids (batch, s).

    `hidden_states`: what goes into each layer, and the last one after the last norm, each (batch,
    s, hidden). `attentions`: the weights of each layer, (batch, heads, s, s); None for a layer that
    has none. Either is empty where it was not asked for.
    """

    logits: Array
    hidden_states: tuple[Array, ...] = ()
    attentions: tuple[Array | None, ...] = ()


def watched(model: Decoder, longest: int, states: bool, weights: bool) -> Graph:
    """ids (b, s) to "logits", and where asked for "state.0", ... and "weights.0", ..."""
    graph = Graph("watched")
    ids = graph.tensor((graph.dim("b", 1, ROWS), graph.dim("s", 1, longest)), int32, "ids")
    layers: Sequence[Any] = list(model.model.layers)
    attentions = [getattr(layer, "self_attn", None) for layer in layers] if weights else []
    seen: list[list[Tensor]] = [[] for _ in attentions]
    hidden: list[Tensor] = []
    for attention, taken in zip(attentions, seen, strict=True):
        if isinstance(attention, CausalAttention):
            attention.seen = taken
    try:
        logits = model.logits(model.model(ids, states=hidden if states else None))
    finally:
        for attention in attentions:
            if isinstance(attention, CausalAttention):
                attention.seen = None
    logits.cast(float32).output("logits")
    for number, state in enumerate(hidden):
        state.cast(float32).output(f"state.{number}")
    for number, taken in enumerate(seen):
        for tensor in taken:
            tensor.cast(float32).output(f"weights.{number}")
    return graph


def pooled(model: Decoder, longest: int, pooling: str, adapters: Adapters | None = None) -> Graph:
    """ids (s,) to "y", float32 (hidden,): the mean of the hidden states, or the last one. With
    `adapters` the number of one is an input, "adapters" (1,).
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r}: takes one of {', '.join(map(repr, POOLINGS))}")
    graph = Graph("embed")
    ids = graph.tensor((graph.dim("s", 1, longest),), int32, "ids")
    with of_rows(adapters, graph, 1):
        hidden = model.model(ids).cast(float32)
    vector = hidden.mean(0) if pooling == "mean" else hidden[-1]
    vector.output("y")
    return graph


def ranked(
    model: Decoder, longest: int, rows: int, count: int, adapters: Adapters | None = None
) -> tuple[Graph, Graph]:
    """Two programs, so that the logits of all tokens never lie in memory together.

    ids (s,) to "y" (s, hidden); and `rows` of that at most, "hidden" (r, hidden), with the ids that
    follow them, (r,), to "logprobs" (r,) of these, and "tokens" and "top" (r, count): the likeliest
    and their log-probabilities. `adapters`: see `pooled`.
    """
    whole, part = Graph("read"), Graph("ranked")
    ids_of_text = whole.tensor((whole.dim("s", 1, longest),), int32, "ids")
    with of_rows(adapters, whole, 1):
        states = model.model(ids_of_text)
    states.output("y")
    r = part.dim("r", 1, rows)
    hidden = part.tensor((r, model.config.hidden_size), states.dtype, "hidden")
    logprobs = model.logits(hidden).cast(float32).log_softmax(-1)
    ids = part.tensor((r,), int32, "ids")
    logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1).output("logprobs")
    top = logprobs.topk(count)
    top.indices.cast(int32).output("tokens")
    top.values.output("top")
    return whole, part


def scored(model: Decoder, longest: int) -> Graph:
    """ids (s,), 2 or more, to "y", float32 (s - 1,): of each id after those before it."""
    graph = Graph("score")
    # The first id has none before it: of one alone there is nothing to say.
    ids = graph.tensor((graph.dim("s", 2, max(2, longest)),), int32, "ids")
    logprobs = model(ids)[:-1].cast(float32).log_softmax(-1)
    logprobs.gather(-1, ids[1:].unsqueeze(-1)).squeeze(-1).output("y")
    return graph


def run_watched(program: Executable, ids: Array, layers: int) -> Outputs:
    """What `watched` computes of ids (batch, s), of any number of rows."""
    parts = [program(ids=ids[at : at + ROWS]) for at in range(0, len(ids), ROWS)]
    names = set(parts[0])

    def joined(name: str) -> Array:
        arrays = [part[name] for part in parts]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    states = [f"state.{number}" for number in range(layers + 1)]
    weights = [f"weights.{number}" for number in range(layers)]
    attentions = tuple(joined(name) if name in names else None for name in weights)
    return Outputs(
        joined("logits"),
        tuple(joined(name) for name in states if name in names),
        attentions if names.intersection(weights) else (),
    )


def checked_rows(ids: Any, vocab_size: int, longest: int) -> Array:
    """Token ids (batch, s) as int32; those of one text (s,) are a batch of one.

    Raises InputError.
    """
    try:
        rows = np.asarray(ids)
    except ValueError:  # rows of different lengths
        raise InputError(
            "model: the rows of ids have different lengths; pad shorter ones on the right, and "
            "leave out what stands there"
        ) from None
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or not rows.size:
        raise InputError(
            f"model: ids are {rows.dtype} of shape {rows.shape}; give integers (batch, length), as "
            "model.encode(text) has them"
        )
    if rows.min() < 0 or rows.max() >= vocab_size:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise InputError(f"model: id {wrong} is not among the {vocab_size} of the vocabulary")
    if rows.shape[1] > longest:
        raise InputError(
            f"model: {rows.shape[1]} ids, but the context is {longest}; give fewer, or open the "
            "model with context="
        )
    return rows.astype(np.int32)
