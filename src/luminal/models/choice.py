"""The choice of the next token, recorded into a program: logits in, token ids out.

Random numbers are functions of a text's seed and of the token's position, and every row is chosen
for itself: a text does not depend on what else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import float32, int32, uint32
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent
from luminal.frontend.pointwise.binary import where
from luminal.frontend.random.keyed import fold_in, gumbel
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.models.sampling import ADJUSTING, Draw, arrays, features_of, words_of
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph, compile

TOP_LOGPROBS = 20  # as many as OpenAI's interface may be asked for
NOT_A_NUMBER = -1
"""The token where logits are NaN."""
NOTHING_LEFT = -2
"""The token where options leave none, or make logits infinite."""

Inputs = Mapping[str, Tensor]


class Chosen(NamedTuple):
    """`tokens` (rows,) int32, NOT_A_NUMBER where a logit is, NOTHING_LEFT where none may come.

    With the feature "top_logprobs" `logprobs` (rows,) of these tokens in the model's own
    distribution, and the likeliest ones: `top_tokens` and `top_logprobs` (rows, n), n at most 20.
    """

    tokens: Tensor
    logprobs: Tensor | None = None
    top_tokens: Tensor | None = None
    top_logprobs: Tensor | None = None


def declared(
    graph: Recorder, rows: Extent, features: Iterable[str], vocab_size: int
) -> dict[str, Tensor]:
    """The inputs of these features; the dim "adjusted" is how many tokens a row may adjust."""
    inputs: dict[str, Tensor] = {}

    def declare(name: str, dtype: Any, *columns: Extent) -> None:
        inputs[name] = graph.tensor((rows, *columns), dtype, name)

    for feature in features:
        if feature == "allowed":
            declare("allowed", uint32, words_of(vocab_size))
        elif feature not in ("top_logprobs", "logit_bias"):
            declare(feature, float32)
        if feature == "temperature":
            declare("key", uint32, 2)
            declare("step", int32)
        elif feature in ADJUSTING and "listed" not in inputs:
            count = graph.dim("adjusted", 1)
            declare("listed", int32, count)
            for name in ("seen", "count", "added"):
                declare(name, float32, count)
    return inputs


def choose(logits: Tensor, features: Iterable[str], inputs: Inputs) -> Chosen:
    """A token for each row of logits (rows, vocab_size), with the inputs that were declared."""
    # Probabilities of 100,000 tokens need more digits than a 16-bit logit's neighbours leave
    # between them.
    plain = logits.cast(float32)
    x = _adjusted(plain, inputs) if "listed" in inputs else plain
    # After penalties and biases, so that nothing brings a forbidden token back.
    if "allowed" in inputs:
        x = where(_bits(inputs["allowed"], x), x, -math.inf)
    tokens, greatest = x.argmax(-1), x.amax(-1)
    if "temperature" in inputs:
        temperature = inputs["temperature"]
        greedy = temperature == 0
        below = x - greatest.unsqueeze(-1)  # finite over any temperature
        drawn = _drawn(below / where(greedy, 1, temperature).unsqueeze(-1), inputs)
        tokens = where(greedy, tokens, drawn)
    if x is not plain:
        tokens = where(greatest.isfinite(), tokens, NOTHING_LEFT)
    # Last of all, over any choice: a model that computes NaN must be said, not sampled from.
    tokens = where(plain.isnan().any(-1), NOT_A_NUMBER, tokens).cast(int32)
    if "top_logprobs" not in features:
        return Chosen(tokens)
    # Of the logits before penalties and temperature: they tell of the model, whatever a request
    # asks for.
    logprobs = plain.log_softmax(-1)
    chosen = logprobs.gather(-1, tokens.maximum(0).unsqueeze(-1)).squeeze(-1)
    top = logprobs.topk(min(TOP_LOGPROBS, plain.extents[-1].value))
    return Chosen(tokens, chosen, top.indices.cast(int32), top.values)


class Chooser:
    """Chooses by programs of its own, for models whose programs give logits."""

    def __init__(self, vocab_size: int, backend: str) -> None:
        self._vocab_size, self._backend = vocab_size, backend
        self._programs: dict[tuple[str, ...], Executable] = {}

    def __call__(self, draw: Draw, logits: Array) -> int:
        """The next token of a text with these logits (vocab_size,)."""
        features = features_of([draw])
        if features not in self._programs:
            graph = Graph("choice")
            x = graph.tensor((1, self._vocab_size), float32, "logits")
            inputs = declared(graph, 1, features, self._vocab_size)
            choose(x, features, inputs).tokens.output("tokens")
            self._programs[features] = compile(graph, backend=self._backend)
        arguments = arrays([draw], features, self._vocab_size)
        row = logits[None].astype(np.float32)
        return int(self._programs[features]({"logits": row, **arguments})["tokens"][0])


# --- before the draw ------------------------------------------------------------------------------


def _adjusted(x: Tensor, inputs: Inputs) -> Tensor:
    """With penalties and biases of the listed tokens."""
    listed, count = inputs["listed"], inputs["count"]
    values = x.gather(-1, listed.maximum(0))

    def penalty(name: str) -> Tensor:
        return inputs[name].unsqueeze(-1)

    if "repetition_penalty" in inputs:
        factor = penalty("repetition_penalty")
        # Keskar et al. (arXiv 1909.05858) divide, which makes a negative logit likelier; so these
        # are multiplied, as everywhere since.
        lowered = where(values < 0, values * factor, values / factor)
        values = where(inputs["seen"] > 0, lowered, values)
    if "frequency_penalty" in inputs:
        values = values - count * penalty("frequency_penalty")
    if "presence_penalty" in inputs:
        values = values - where(count > 0, penalty("presence_penalty"), 0)
    nowhere = x.extents[-1]
    # A row lists fewer tokens than the widest one. What pads it is written beyond the last column,
    # and so nowhere.
    places = where(listed < 0, nowhere, listed)
    return x.scatter(-1, places, values + inputs["added"])


def _bits(words: Tensor, x: Tensor) -> Tensor:
    """Bit k % 32 of word k // 32 for every column k of x."""
    shifts = x.graph.constant(np.arange(32, dtype=np.uint32))
    bits = (words.unsqueeze(-1) >> shifts) & 1
    flags: Tensor = bits.flatten(-2)[:, : x.extents[-1]]
    return flags.bool()


# --- the draw -------------------------------------------------------------------------------------


# Adding Gumbel noise and taking the greatest draws from softmax without forming it. The noise
# follows from the text's seed and the token's position, so a text is the same alone or among
# others, and a draft's tokens can be checked by what the model itself would have drawn.
def _drawn(x: Tensor, inputs: Inputs) -> Tensor:
    """A column of each row with the probabilities softmax(x), of those that the filters leave.

    The greatest of logits plus Gumbel noise (Gumbel, 1954).
    """
    for name, kept in FILTERS.items():
        if name in inputs:
            x = where(kept(x, inputs[name].unsqueeze(-1)), x, -math.inf)
    keys = fold_in(inputs["key"], inputs["step"])
    return (x + gumbel(keys, x.extents[-1:])).argmax(-1)


def _top_k(x: Tensor, count: Tensor) -> Tensor:
    return _leading(x, x.graph.ones(x.extents), count)


def _top_p(x: Tensor, share: Tensor) -> Tensor:
    return _leading(x, x.softmax(-1), share)


def _min_p(x: Tensor, least: Tensor) -> Tensor:
    kept: Tensor = x >= x.amax(-1, keepdim=True) + least.log()
    return kept


def _typical(x: Tensor, share: Tensor) -> Tensor:
    """Those whose surprise is nearest to the entropy."""
    surprise, chances = -x.log_softmax(-1), x.softmax(-1)
    entropy = where(chances > 0, chances * surprise, 0).sum(-1, keepdim=True)
    return _leading(-(surprise - entropy).abs(), chances, share)


FILTERS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "typical_p": _typical,
}
"""In the order of transformers' generate; each sees what the ones before have left."""


# A row of 128k tokens takes a thread 1 to 2 ms by 32 sums. Sorting it takes as long before any sum,
# and a Sort cannot share a row among threads.
def _leading(order: Tensor, weights: Tensor, limit: Tensor) -> Tensor:
    """Where the weights of all that is greater in its row add up to less than `limit`.

    No sort: the least such value is found bit by bit, in the order of floats as integers. Equals
    are kept or left together.
    """
    bits = order.bitcast(uint32)
    rank = where(bits >> 31 == 1, ~bits, bits | 1 << 31)
    start = order.graph.full((*order.extents[:-1], 1), 2**32 - 1, uint32)

    def lowered(least: Tensor, bit: Tensor) -> tuple[Tensor, tuple[()]]:
        lower = least ^ bit
        greater = where(rank > lower, weights, 0).sum(-1, keepdim=True)
        return where(greater < limit, lower, least), ()

    least, _ = scan(lowered, start, order.graph.constant(_BITS))
    kept: Tensor = rank >= least
    return kept


_BITS = np.array([1 << bit for bit in reversed(range(32))], np.uint32)
