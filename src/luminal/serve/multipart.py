"""Bodies of several parts, as browsers send files: RFC 7578, and RFC 2046, section 5.1."""

from __future__ import annotations

import re
from typing import NamedTuple

from luminal.loaders.shown import shown
from luminal.serve.errors import ApiError

MOST_PARTS = 64
MOST_HEADERS = 4096  # bytes of a part's
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;",]{1,70}))(?:;|\s*$)', re.IGNORECASE)
_NAME = re.compile(rb'form-data;.*?\bname="((?:[^"\\]|\\.)*)"', re.IGNORECASE | re.DOTALL)


class Part(NamedTuple):
    """One part of a body: its field's name, and what it holds."""

    name: str
    data: bytes


def parts_of(kind: str, body: bytes) -> list[Part]:
    """The parts of a body whose Content-Type is `kind`. Raises ApiError."""
    boundary = _BOUNDARY.search(kind)
    if not kind.lower().startswith("multipart/form-data") or boundary is None:
        raise ApiError(
            415,
            f"Content-Type: {shown(kind)} is not multipart/form-data with a boundary; send the "
            "file as a form does",
            code="unsupported_type",
        )
    line = b"--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    # The delimiter begins a line: a newline in front makes the first one like all others.
    pieces = (b"\r\n" + body).split(b"\r\n" + line)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise _wrong("it ends before its last boundary")
    if len(pieces) - 2 > MOST_PARTS:
        raise _wrong(f"it has {len(pieces) - 2} parts; at most {MOST_PARTS}")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    _, newline, rest = piece.partition(b"\r\n")
    head, gap, data = rest.partition(b"\r\n\r\n")
    if not newline or not gap or len(head) > MOST_HEADERS:
        raise _wrong("a part has no headers, or they do not end")
    for header in head.split(b"\r\n"):
        field, _, value = header.partition(b":")
        if field.strip().lower() == b"content-disposition":
            name = _NAME.search(value)
            if name is not None:
                return Part(name[1].decode("utf-8", "replace"), data)
    raise _wrong("a part has no name: its Content-Disposition must be form-data with name=")


def _wrong(why: str) -> ApiError:
    return ApiError(400, f"body: {why}", code="invalid_form")
