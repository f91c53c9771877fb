"""Images that a request has in it, as data URLs (RFC 2397) or base64."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from luminal.base.errors import InputError
from luminal.loaders.shown import shown
from luminal.serve.errors import refused

if TYPE_CHECKING:
    from luminal.serve.orders import Limits, Vocabulary


class Pictures:
    """The images of one request, each read and prepared where it is met, up to a limit."""

    def __init__(self, words: Vocabulary, limits: Limits) -> None:
        self._words, self._limits = words, limits
        self._count = 0

    def of_url(self, url: Any, name: str) -> dict[str, Any]:
        """The part of a message that has the image of a data URL, the field `name`. Raises
        ApiError.
        """
        if not isinstance(url, str):
            raise refused(name, f"{shown(url)} is no text; send a data URL")
        about, comma, data = url.partition(",")
        if url[:5].lower() != "data:" or not comma:
            fetches = ": the server fetches nothing" if "://" in url[:32] else ""
            raise refused(
                name,
                f"{shown(url)} is no data URL{fetches}; send the image itself, as "
                "'data:image/png;base64,' with the file's bytes in base64 behind it",
            )
        if not about.lower().endswith(";base64"):
            raise refused(name, f"{shown(about)}: the data must be in base64; write ';base64,'")
        return self.of_base64(data, name)

    def of_base64(self, text: Any, name: str) -> dict[str, Any]:
        """The part that has the image of these bytes. Raises ApiError."""
        self._count += 1
        most = self._limits.images
        if self._count > most:
            raise refused(name, f"image {self._count} of this request; at most {most}")
        try:
            data = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise refused(
                name, f"{shown(text)} is no base64; encode the bytes of the image's file"
            ) from None
        try:
            return {"type": "image", "image": self._words.image(data, self._limits.pixels)}
        except InputError as error:
            raise refused(name, str(error)) from None
