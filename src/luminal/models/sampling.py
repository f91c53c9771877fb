"""How the next token of a text is chosen: the settings of each text, as arrays for a program.

`luminal.models.choice` records the choice itself. A program takes the inputs of the features that
some text needs; for the others they hold what changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.base.generator import checked_seed
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass
from luminal.loaders.shown import shown

Array = np.ndarray[Any, Any]


def checked_count(name: str, value: Any, least: int, fix: str = "") -> int:
    """An int of at least so many; raises InputError that names the option."""
    if not is_number(value, Integral):
        raise InputError(f"{name}: {value!r} is no int{fix}")
    if value < least:
        raise InputError(f"{name}: {value} is not {least} or above{fix}")
    return int(value)


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 takes the likeliest token; else one is drawn, by numbers that `seed` and the
    token's position give, from what these leave. `top_k`: the k likeliest. `top_p`: the fewest
    whose probability reaches it (arXiv 1904.09751). `min_p`: those with that share of the
    probability of the likeliest or more (arXiv 2407.01082). `typical_p`: the most typical of such
    a probability (arXiv 2202.00666).

    Before, `repetition_penalty` divides positive logits of tokens in the text, and multiplies
    negative ones (arXiv 1909.05858); `frequency_penalty` times their count and `presence_penalty`
    are taken from logits of new tokens that came already; `logit_bias` is added by token id.
    Raises InputError for what is out of range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most, text) in _RANGES.items():
            value = getattr(self, name)
            if not is_number(value, Real) or not least <= value <= most:
                raise InputError(f"{name}: {shown(value)} is not {text}")
        if self.top_k is not None:
            checked_count("top_k", self.top_k, 1, "; leave it out to allow all")
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias: {self.logit_bias!r} is no dict of token ids to numbers")
        for token, bias in self.logit_bias.items():
            checked_count("logit_bias: token", token, 0)
            if not is_number(bias, Real):
                raise InputError(f"logit_bias: {bias!r} of token {token} is no number")
            if not (-_FINITE <= bias <= _FINITE or bias == -math.inf):
                raise InputError(
                    f"logit_bias: {shown(bias)} of token {token} is no finite 32-bit float; "
                    "-inf forbids a token, 100 makes it all but sure"
                )
        checked_seed("generate", self.seed)


_TINY, _FINITE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_RANGES = {
    "temperature": (0, _FINITE, "0 or above, and finite in 32 bits"),
    "top_p": (_TINY, 1, "above 0 and at most 1"),
    "min_p": (0, 1, "from 0 to 1"),
    "typical_p": (_TINY, 1, "above 0 and at most 1"),
    "repetition_penalty": (_TINY, _FINITE, "above 0, and finite in 32 bits"),
    "frequency_penalty": (-_FINITE, _FINITE, "finite in 32 bits"),
    "presence_penalty": (-_FINITE, _FINITE, "finite in 32 bits"),
}


@dataclass(slots=True)
class Draw:
    """One text's next choice: its settings, its tokens so far, the first `prompt` of them given.

    `allowed`: a bit for every token id, 1 where it may come, uint32 (ceil(vocab_size / 32),); None
    allows all.
    """

    sampling: Sampling
    tokens: Sequence[int] = ()
    prompt: int = 0
    allowed: Array | None = None

    def ahead(self, tokens: Sequence[int]) -> Draw:
        """The choice after these tokens more, without a constraint."""
        return Draw(self.sampling, [*self.tokens, *tokens], self.prompt)


SETTINGS = tuple(each.name for each in fields(Sampling) if each.name != "seed")
FEATURES = (*SETTINGS, "allowed", "top_logprobs")
"""What a program may be recorded with. `top_logprobs`: it gives log-probabilities too."""

ADJUSTING = ("repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias")
"""Features that change the logits of some tokens of each text."""

_DRAWN = ("top_k", "top_p", "min_p", "typical_p")


# A program has only the inputs of the features that are in use: a greedy one knows of no
# temperature. Each set of features is a program of its own, made when it is first wanted.
def features_of(draws: Iterable[Draw]) -> tuple[str, ...]:
    """The features that these choices need, in the order of FEATURES."""
    needed = set[str]()
    for draw in draws:
        changed = {
            name for name in SETTINGS if getattr(draw.sampling, name) != getattr(_PLAIN, name)
        }
        # The likeliest token is the same under each of the filters, so without a temperature they
        # cost nothing.
        needed |= changed if "temperature" in changed else changed.difference(_DRAWN)
        if draw.allowed is not None:
            needed.add("allowed")
    return tuple(name for name in FEATURES if name in needed)


def arrays(draws: Sequence[Draw], features: Iterable[str], vocab_size: int) -> dict[str, Array]:
    """A row a draw of the inputs that `luminal.models.choice.declared` declares for `features`."""
    inputs: dict[str, Array] = {}
    for name in features:
        if name == "allowed":
            # A draft may pad its vocabulary otherwise than the model whose constraint this is.
            masks = np.zeros((len(draws), words_of(vocab_size)), np.uint32)
            for row, draw in zip(masks, draws, strict=True):
                held = row if draw.allowed is None else draw.allowed[: len(row)]
                row[: len(held)] = _WORD if draw.allowed is None else held
            inputs["allowed"] = masks
        elif name not in ("top_logprobs", "logit_bias"):
            settings = [_number(draw.sampling, name, vocab_size) for draw in draws]
            inputs[name] = np.array(settings, np.float32)
        if name == "temperature":
            seeds = [draw.sampling.seed for draw in draws]
            words = [(seed >> 32 & _WORD, seed & _WORD) for seed in seeds]
            inputs["key"] = np.array(words, np.uint32)
            inputs["step"] = np.array([len(draw.tokens) for draw in draws], np.int32)
        elif name in ADJUSTING and "listed" not in inputs:
            inputs |= _adjustments(draws)
    return inputs


def _adjustments(draws: Sequence[Draw]) -> dict[str, Array]:
    """The tokens of each text whose logits are adjusted, and by what: (rows, most of a row).

    "listed": ids, each once, -1 for none; "seen": 1 for those in the text; "count": how often they
    came since the prompt; "added": their bias.
    """
    rows = [_adjusted(draw) for draw in draws]
    width = max(1, *(len(ids) for ids, _ in rows))
    listed = np.full((len(rows), width), -1, np.int32)
    numbers = np.zeros((3, len(rows), width), np.float32)
    for row, (ids, values) in enumerate(rows):
        listed[row, : len(ids)] = ids
        numbers[:, row, : len(ids)] = values
    seen, count, added = numbers
    return {"listed": listed, "seen": seen, "count": count, "added": added}


def _adjusted(draw: Draw) -> tuple[Array, Array]:
    """The ids of one text, and (3, ids) numbers: seen, count, added."""
    sampling = draw.sampling
    penalised = any(getattr(sampling, name) != getattr(_PLAIN, name) for name in ADJUSTING[:3])
    if not penalised and not sampling.logit_bias:
        return _NOTHING  # most texts of a batch: they wait for those that adjust something
    tokens = np.array(draw.tokens if penalised else (), np.int64)
    biased = np.array([*sampling.logit_bias], np.int64)
    ids = np.unique(np.concatenate((tokens, biased)))
    numbers = np.zeros((3, len(ids)), np.float32)
    numbers[0, np.searchsorted(ids, tokens)] = 1
    np.add.at(numbers[1], np.searchsorted(ids, tokens[draw.prompt :]), 1)
    numbers[2, np.searchsorted(ids, biased)] = [*sampling.logit_bias.values()]
    return ids, numbers


_PLAIN = Sampling()
_NOTHING: tuple[Array, Array] = np.zeros(0, np.int64), np.zeros((3, 0), np.float32)
_WORD = 2**32 - 1


def words_of(vocab_size: int) -> int:
    """How many words of 32 bits hold a bit for every token."""
    return -(-vocab_size // 32)


def _number(sampling: Sampling, name: str, vocab_size: int) -> float:
    """A setting as the program takes it: what leaves everything does so whatever sums round to."""
    value: float | None = getattr(sampling, name)
    if name == "top_k":
        return vocab_size if value is None else value
    return math.inf if name in ("top_p", "typical_p") and value == 1 else value or 0.0
