"""The beginning of a story, which the model of stories goes on with."""

from __future__ import annotations

PROMPT = "Once upon a time, there was a little girl"
