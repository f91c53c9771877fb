"""The SentencePiece way of byte-pair encoding: pieces with scores, the best pair merges first.

llama2.c's tokenizer files and GGUF's "llama" vocabulary hold such pieces. Kudo and Richardson,
SentencePiece, arXiv 1808.06226.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from luminal.base.records import dataclass

SPACE = "\u2581"
"""Stands for a space in a piece."""
LONGEST = 128
"""Characters of a piece that can be merged: twice what any known vocabulary has."""


class Kind(enum.Enum):
    """What a piece stands for: text that merges make, text that is cut out first, no text, or one
    byte of a character without a piece, as `<0x0A>`.
    """

    TEXT = enum.auto()
    WHOLE = enum.auto()
    CONTROL = enum.auto()
    BYTE = enum.auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: Kind


def sentencepiece(
    pieces: Sequence[Piece], unknown_id: int = 0, add_space: bool = True
) -> tokenizers.Tokenizer:
    """A tokenizer of the pieces; `add_space`: a text gets SentencePiece's dummy space in front."""
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        vocabulary.setdefault(piece.text, number)
    # SentencePiece keeps no list of merges: it joins whichever neighbours make the piece of the
    # best score. Every way to cut a piece in two known ones, in the order of scores, does the same.
    merges = sorted(_merges(pieces), key=lambda merge: merge[0])
    inner = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            [(left, right) for _, left, right in merges],
            unk_token=pieces[unknown_id].text,
            fuse_unk=True,
            byte_fallback=any(piece.kind is Kind.BYTE for piece in pieces),
        )
    )
    spaces = normalizers.Replace(" ", SPACE)
    inner.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if add_space else spaces
    )
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    # The dummy space in front is taken off again.
    inner.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if add_space else [])])
    inner.add_special_tokens(
        [AddedToken(p.text, normalized=False) for p in pieces if p.kind is Kind.CONTROL and p.text]
    )
    inner.add_tokens(
        [
            AddedToken(p.text, normalized=SPACE in p.text)  # a text has it once it is normalised
            for p in pieces
            if p.kind is Kind.WHOLE and p.text
        ]
    )
    return inner


def _merges(pieces: Sequence[Piece]) -> Iterator[tuple[tuple[float, int, int], str, str]]:
    """Two pieces that make a third, after what orders them: its score, then the longer left one."""
    texts = {piece.text for piece in pieces if piece.kind is Kind.TEXT}
    for piece in pieces:
        # All ways to cut a piece are made: one of a damaged file would take time by its length's
        # square.
        if piece.kind is Kind.TEXT and len(piece.text) <= LONGEST:
            for cut in range(1, len(piece.text)):
                left, right = piece.text[:cut], piece.text[cut:]
                if left in texts and right in texts:
                    yield (-piece.score, -len(left), -len(right)), left, right
