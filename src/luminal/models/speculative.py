"""Speculative decoding: a draft proposes tokens, the model checks all of them in one run.

Leviathan et al., arXiv 2211.17192. What the model chooses after a token follows from its logits
and the text's seed, so a proposed token is right or is not: the text is the one without a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.shown import shown
from luminal.models.programs import MOST_PROPOSED, Programs
from luminal.models.sampling import Draw, checked_count, features_of
from luminal.models.stats import Stats
from luminal.models.text import Text

if TYPE_CHECKING:
    from luminal.models.generate import LanguageModel


class Draft(Protocol):
    """Proposes how a text goes on."""

    def propose(self, draw: Draw, most: int) -> list[int]:
        """At most so many tokens to follow `draw.tokens`, may be none."""
        ...


class PromptLookup:
    """Proposes what followed the last tokens where they came before (Saxena, 2023).

    Good where a text repeats its prompt. `ngram`: how many last tokens are looked for, then fewer.
    """

    def __init__(self, count: int = 8, ngram: int = 3) -> None:
        self.count = checked_count("count", count, 1)
        self.ngram = checked_count("ngram", ngram, 1)

    def propose(self, draw: Draw, most: int) -> list[int]:
        """The tokens that followed where the text had its last few before; none if it had not."""
        tokens = [*draw.tokens]
        for length in range(min(self.ngram, len(tokens) - 1), 0, -1):
            end = tokens[-length:]
            # The latest occurrence first: what a text said last, it is most likely to say again.
            for start in range(len(tokens) - length - 1, -1, -1):
                if tokens[start : start + length] == end:
                    after = start + length
                    return tokens[after : after + min(self.count, most)]
        return []


class ModelDraft:
    """Proposes what a smaller model of the same vocabulary would write, chosen by the same seed."""

    def __init__(self, model: LanguageModel, count: int = 4) -> None:
        check_rewinds(model.programs)
        self.model = model
        self.count = checked_count("count", count, 1)

    def check_serves(self, model: LanguageModel) -> None:
        """Raises InputError for a model that it can propose nothing to."""
        if model is self.model:
            raise InputError("draft: a model proposes nothing to itself; load it once more")
        ours, others = (checked.tokenizer.vocab_size for checked in (self.model, model))
        if ours != others:
            raise InputError(
                f"draft: its vocabulary has {ours} tokens, the model's {others}; give a model of "
                "the same vocabulary"
            )

    def propose(self, draw: Draw, most: int) -> list[int]:
        """The tokens that the smaller model chooses next."""
        model = self.model
        if max(draw.tokens) >= model.model.config.vocab_size:
            return []  # a row of the other's that pads its vocabulary
        room = min(self.count, most, model.context - len(draw.tokens))
        text = Text(model.tokenizer, draw.tokens, max(room, 0), draw.sampling)
        # Penalties count what came since the prompt, and the draft must choose as the model will.
        text.draw.prompt, text.draw.allowed = draw.prompt, draw.allowed
        features = features_of([text.draw])
        with model.programs.turn(model.programs.begin()):
            model.programs.resume(text)
            while text.reason is None:
                token = int(model.programs.read([text], features)["tokens"][0])
                if token < 0:  # none may come, which the model is to say
                    break
                text.push(token)
                # What may come after the first is asked for all of them together.
                text.draw.allowed = None
        return text.tokens


def check_rewinds(programs: Programs) -> None:
    """Raises InputError for recurrent layers."""
    if not programs.can_rewind:
        raise InputError(
            "draft: the model has recurrent layers, which cannot forget tokens that were wrong"
        )


# No rejection sampling (as in the paper) is needed: a choice is a function of logits and seed, so a
# proposed token either is what the model would have chosen or is not.
def accepted(programs: Programs, text: Text, draft: Draft, stats: Stats) -> list[tuple[int, str]]:
    """The tokens of one check, pushed: the proposed ones that are right, and one more."""
    room = min(text.room - len(text.tokens) - 1, MOST_PROPOSED)
    size = programs.model.config.vocab_size
    proposed = _checked(draft.propose(text.draw, room), room, size) if room > 0 else []
    ahead = text.ahead(proposed)
    proposed = proposed[: len(ahead)]
    pushed = []
    for number, token in enumerate(programs.verify(text, proposed, ahead)):
        pushed.append((token, text.push(token)))
        right = proposed[number : number + 1] == [token]
        stats.accepted += right
        if not right or text.reason is not None:
            break
    text.read = len(text.draw.tokens) - 1  # what was proposed and right is in the caches
    stats.proposed += len(proposed)
    return pushed


def _checked(proposed: Any, most: int, size: int) -> list[int]:
    """What a draft proposes: it may be anybody's."""
    if not isinstance(proposed, Sequence | np.ndarray) or len(proposed) > most:
        raise InputError(f"draft: it proposes {shown(proposed)}; at most {most} token ids may be")
    tokens = [checked_count("draft: token", token, 0) for token in proposed]
    if max(tokens, default=0) >= size:
        raise InputError(f"draft: token {max(tokens)} is not below {size}, the vocabulary's size")
    return tokens
