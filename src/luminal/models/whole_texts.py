"""Programs over whole texts, without caches: vectors and log-probabilities."""

from __future__ import annotations

from luminal.base.dtypes import float32, int32
from luminal.base.errors import InputError
from luminal.models.decoder import Decoder
from luminal.session.graph import Graph

POOLINGS = "mean", "last"


def pooled(model: Decoder, longest: int, pooling: str) -> Graph:
    """ids (s,) to "y", float32 (hidden,): the mean of the hidden states, or the last one."""
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r}: takes one of {', '.join(map(repr, POOLINGS))}")
    graph = Graph("embed")
    ids = graph.tensor((graph.dim("s", 1, longest),), int32, "ids")
    hidden = model.model(ids).cast(float32)
    vector = hidden.mean(0) if pooling == "mean" else hidden[-1]
    vector.output("y")
    return graph


def ranked(model: Decoder, longest: int, rows: int, count: int) -> tuple[Graph, Graph]:
    """Two programs, so that the logits of all tokens never lie in memory together.

    ids (s,) to "y" (s, hidden); and `rows` of that at most, "hidden" (r, hidden), with the ids that
    follow them, (r,), to "logprobs" (r,) of these, and "tokens" and "top" (r, count): the likeliest
    and their log-probabilities.
    """
    whole, part = Graph("read"), Graph("ranked")
    logits = model.model(whole.tensor((whole.dim("s", 1, longest),), int32, "ids"))
    logits.output("y")
    r = part.dim("r", 1, rows)
    hidden = part.tensor((r, model.config.hidden_size), logits.dtype, "hidden")
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
