"""What the translation cannot express."""

from __future__ import annotations

from luminal.base.errors import GraphError


class UnsupportedError(GraphError):
    """An operator, or a form of one, that the library has not; the text names it and the reason."""
