"""Chats as one text, by the template that a model brings: Jinja in a sandbox that has bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from luminal.base import installation
from luminal.base.errors import InputError
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer

Messages = str | Sequence[Mapping[str, Any]]
"""Dicts of a "role" (system, user, assistant, tool) and a "content"; a text is the user's."""


class ChatTemplate:
    """`source`: the text of a template; `tokens`: names of special tokens that it may use.

    Templates see what transformers gives them: `messages`, `tools`, `add_generation_prompt`,
    the tokens, `raise_exception`, `strftime_now`, and loop controls. They reach nothing else.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        self.source, self.tokens = source, dict(tokens or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled template holds functions that no process can be sent.
        return ChatTemplate, (self.source, self.tokens)

    def check(self) -> None:
        """Raises InputError where it is no template; only a chat shows what else is wrong."""
        _ = self._template

    def render(self, messages: Messages, tools: Any = None) -> str:
        """The text, up to where the answer begins. Raises InputError with the template's words."""
        template, checked = self._template, _checked(messages)
        try:
            text: str = template.render(
                messages=checked, tools=tools, add_generation_prompt=True, **self.tokens
            )
        except Exception as error:  # it is a program, which may raise anything
            raise _template_error(error) from None
        return text

    @cached_property
    def _template(self) -> Any:
        try:
            from luminal.models.template_environment import Environment
        except ImportError:
            raise InputError(f"chat: it needs jinja2; {installation.hint('chat')}") from None
        try:
            return Environment().from_string(self.source)
        except Exception as error:  # deeply nested ones are no TemplateErrors
            raise _template_error(error) from None


def chat_ids(
    template: ChatTemplate | None, tokenizer: Tokenizer, messages: Messages, tools: Any = None
) -> list[int]:
    """The ids that a chat becomes by a template, up to where the answer begins: special tokens are
    only those that the template writes. Raises InputError where there is no template.
    """
    return tokenizer.encode(chat_text(template, tokenizer, messages, tools), bare=True)


def chat_text(
    template: ChatTemplate | None, tokenizer: Tokenizer, messages: Messages, tools: Any = None
) -> str:
    """A chat as a text for the tokenizer, in which special tokens of others are marked."""
    if template is None:
        raise InputError("chat: the model has no chat template; use generate, or give it one")
    try:
        # A user who writes `<|im_end|>` must not end his turn: such names are marked before the
        # template runs, and are plain text afterwards.
        marked = tokenizer.marked(_checked(messages)), tokenizer.marked(tools)
    except RecursionError:
        raise InputError("chat: lists or objects nest too deeply") from None
    return template.render(*marked)


IMAGE_KEYS = ("image", "path")
"""Keys of a part of a message that may have its image."""


def parted(messages: Messages, images: Sequence[Any]) -> tuple[list[Mapping[str, Any]], list[Any]]:
    """Messages whose contents are lists of parts, and the images of those parts in their order.

    A part {"type": "image"} has its image under "image" or "path", or takes the next of `images`;
    templates see its type alone. Raises InputError where there are more or fewer.
    """
    rest, shown_images = iter(images), list[Any]()
    parts_of: list[Mapping[str, Any]] = []
    for message in _checked(messages):
        content = message.get("content")
        if isinstance(content, str):
            # Templates of models that see go through parts, and a text has none for some of them.
            content = [{"type": "text", "text": content}]
        parts = []
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") == "image":
                values = [part[key] for key in IMAGE_KEYS if part.get(key) is not None]
                image = values[0] if values else next(rest, None)
                if image is None:
                    raise InputError(
                        f"messages: they have more parts of type 'image' than images, "
                        f"{len(images)}; give each in its part, as 'image', or in images="
                    )
                shown_images.append(image)
                part = {"type": "image"}
            parts.append(part)
        parts_of.append({**message, "content": parts if parts else content})
    if left := len([*rest]):
        raise InputError(
            f"messages: {left} of {len(images)} images have no part; write "
            "{'type': 'image'} where each belongs"
        )
    return parts_of, shown_images


def special_tokens(place: Path, tokenizer: Tokenizer) -> dict[str, str]:
    """Special tokens by the names that templates use: what a folder's files say, or the ids do."""
    tokens = {}
    if tokenizer.bos_id is not None:
        tokens["bos_token"] = tokenizer.name_of(tokenizer.bos_id)
    ends = tokenizer.eos_ids - {tokenizer.bos_id} or tokenizer.eos_ids  # a new text is an end too
    if ends:
        tokens["eos_token"] = tokenizer.name_of(min(ends))
    path = place / "tokenizer_config.json"
    for name, value in (read_json(path) if place.is_dir() and is_there(path) else {}).items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _checked(messages: Messages) -> list[Mapping[str, Any]]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Iterable):
        raise InputError(f"messages: {shown(messages)} is no chat; give a text, or a list of dicts")
    listed = [*messages]
    for number, message in enumerate(listed):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(
                f"messages: number {number} is {message!r}; each is a dict with a role and content"
            )
    return listed


def _template_error(error: Exception) -> InputError:
    """In the template's own words, or those of what went wrong in it."""
    import jinja2

    is_jinjas = isinstance(error, jinja2.TemplateError)
    return InputError(
        f"chat template: {error if is_jinjas else f'{type(error).__name__}: {error}'}"
    )
