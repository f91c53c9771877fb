"""What reading a request needs of a model: its tokenizer, its chat template, its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.image import read_sent
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.chat_template import ChatTemplate, chat_ids, chat_text, parted
from luminal.models.constraints import GrammarMatcher, json_schema
from luminal.models.seeing.processor import Processor
from luminal.models.seeing.record import Prepared
from luminal.serve.errors import ApiError, refused


class Chat(NamedTuple):
    """A conversation as the model reads it: ids, and what stands for vectors among them."""

    ids: list[int]
    images: list[Prepared]


@dataclass(frozen=True, slots=True)
class Words:
    """See `luminal.serve.orders.Vocabulary`; `names` are the model's and those of its adapters, by
    their numbers. Other processes may have it.

    `processor`: what prepares images, or why the model sees none.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    context: int
    vocab_size: int
    processor: Processor | str = "the model reads text alone"

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return self.tokenizer.encode(text)

    def image(self, data: bytes, most: int) -> Prepared:
        """An image of at most so many pixels, as the model takes it. Raises InputError."""
        if isinstance(self.processor, str):
            raise InputError(f"{self.processor}; send texts alone, or ask a model that sees")
        return self.processor.prepare(read_sent(data, most))

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> Chat:
        """A conversation that the assistant goes on with. Raises ApiError."""
        if self.template is None:
            raise refused(
                "messages",
                "the model has no chat template; /v1/completions needs none, and who runs the "
                "server can give one: luminal serve --template FILE",
            )
        functions = list(tools) or None
        try:
            if isinstance(self.processor, str):
                return Chat(chat_ids(self.template, self.tokenizer, messages, functions), [])
            parts, images = parted(messages, ())
            text = chat_text(self.template, self.tokenizer, parts, functions)
            return Chat(*self.processor.read(text, images, bare=True))
        except InputError as error:
            raise ApiError(400, str(error), "messages", "invalid_value") from None

    def matchers(self, schema: str, count: int) -> list[GrammarMatcher]:
        """What follows `count` texts under a JSON schema. Raises ConstraintError."""
        # A grammar is compiled once; texts of the same request follow copies of its state.
        first = json_schema(schema).matcher(self.tokenizer, self.vocab_size)
        return [first, *(first.copy() for _ in range(count - 1))]
