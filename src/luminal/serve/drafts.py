"""Speculation while serving: who proposes how texts go on, so that a step checks several tokens.

Leviathan et al., arXiv 2211.17192. A proposed token is a row of its own, at the position at which
it would stand: it is computed as the token itself would be, so what is right has the same bits, and
what is wrong is written over before anybody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from luminal.base.errors import InputError
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.sampling import Draw, features_of
from luminal.models.speculative import PromptLookup
from luminal.serve.program import NOBODY, StepProgram
from luminal.serve.scheduler import Row, Step, Text

Proposals = Mapping[Text, Sequence[int]]


class Drafts(Protocol):
    """Proposes how the texts of a step go on; `count`: so many tokens at most."""

    count: int

    def propose(
        self, step: Step, room: Mapping[Text, int], draws: Mapping[Text, Draw]
    ) -> Proposals:
        """Tokens to follow the texts that have room, no more than that for each."""
        ...

    def follow(self, step: Step) -> None:
        """Called once for each step, when the model has run it."""
        ...


class LookupDrafts:
    """Proposes what followed a text's last tokens where they came before."""

    def __init__(self, lookup: PromptLookup) -> None:
        self._lookup, self.count = lookup, lookup.count

    def propose(
        self, step: Step, room: Mapping[Text, int], draws: Mapping[Text, Draw]
    ) -> Proposals:
        """What the lookup finds for each text; see `Drafts`."""
        return {text: self._lookup.propose(draws[text], most) for text, most in room.items()}

    def follow(self, step: Step) -> None:
        """See `Drafts`; nothing is kept."""


# The smaller model's keys and values lie in blocks of the same numbers, and it runs each step that
# the model runs. So what the scheduler decides holds for both: a prefix that is found, a block that
# is copied, a text that is computed again.
class ModelDrafts:
    """Proposes what a smaller model of the same vocabulary chooses, by each text's own seed."""

    def __init__(self, program: StepProgram, count: int = 4) -> None:
        self._program, self.count = program, count

    def propose(
        self, step: Step, room: Mapping[Text, int], draws: Mapping[Text, Draw]
    ) -> Proposals:
        """A token of all texts in each run of the smaller model; see `Drafts`. What follows a
        schema is chosen by it at first, and freely then.
        """
        self._program.copy(step.copies)
        proposals: dict[Text, list[int]] = {text: [] for text in room}
        for turn in range(max(room.values(), default=0)):
            going = [
                text for text, most in room.items() if turn < most and len(proposals[text]) == turn
            ]
            rows = [
                Row(text, text.computed + turn, 1, proposals[text][-1] if turn else None)
                for text in going
            ]
            ahead = [draws[text].ahead(proposals[text]) if turn else draws[text] for text in going]
            chosen = self._program.run(Step(tuple(rows), (), ()), ahead, features_of(ahead))
            for text, token in zip(going, chosen.tokens.tolist(), strict=True):
                if token >= 0:  # none may come, which the model is to say
                    proposals[text].append(token)
        return proposals

    def follow(self, step: Step) -> None:
        """See `Drafts`: its keys and values are those of the same tokens."""
        rows = Step(step.decodes, step.chunks, ())
        self._program.run(rows, [NOBODY] * len(rows.rows), ())


def check_vocabulary(draft: Tokenizer, tokenizer: Tokenizer) -> None:
    """Raises InputError for a draft of another vocabulary."""
    ours, others = draft.vocab_size, tokenizer.vocab_size
    if ours != others:
        raise InputError(
            f"draft: its vocabulary has {ours} tokens, the model's {others}; give a model of the "
            "same vocabulary"
        )
