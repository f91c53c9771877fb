"""What reading a request needs of a model: its tokenizer, its chat template, its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.chat_template import ChatTemplate, chat_ids
from luminal.models.constraints import GrammarMatcher, json_schema
from luminal.serve.errors import ApiError, refused


@dataclass(frozen=True, slots=True)
class Words:
    """See `luminal.serve.orders.Vocabulary`; `name` is the model's. Other processes may have it."""

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    context: int
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return self.tokenizer.encode(text)

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> list[int]:
        """The tokens of a conversation that the assistant goes on with. Raises ApiError."""
        if self.template is None:
            raise refused(
                "messages",
                "the model has no chat template; /v1/completions needs none, and who runs the "
                "server can give one: luminal serve --template FILE",
            )
        try:
            return chat_ids(self.template, self.tokenizer, messages, list(tools) or None)
        except InputError as error:
            raise ApiError(400, str(error), "messages", "invalid_value") from None

    def matchers(self, schema: str, count: int) -> list[GrammarMatcher]:
        """What follows `count` texts under a JSON schema. Raises ConstraintError."""
        # A grammar is compiled once; texts of the same request follow copies of its state.
        first = json_schema(schema).matcher(self.tokenizer, self.vocab_size)
        return [first, *(first.copy() for _ in range(count - 1))]
