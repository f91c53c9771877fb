"""Calls of functions in a text: the text is one, or has some between `<tool_call>` tags.

The tags are those of Qwen's and Hermes's templates; a text under a schema has none.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from typing import Any

_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def calls_in(text: str, names: Collection[str]) -> list[dict[str, Any]]:
    """The calls of functions of these names, as OpenAI's API gives them; [] if it has others."""
    parts = _TAGGED.findall(text) or [text]
    calls = [_call(part, names) for part in parts]
    # All or nothing: of a text with one call that cannot be read, the client gets the text and can
    # see what the model meant.
    return [] if None in calls else [call for call in calls if call is not None]


def _call(text: str, names: Collection[str]) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("name") not in tuple(names):
        return None
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    function = {"name": value["name"], "arguments": json.dumps(arguments)}
    return {"id": "call_" + secrets.token_hex(12), "type": "function", "function": function}
