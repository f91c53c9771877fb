"""The SentencePiece way of byte-pair encoding: pieces with scores, the best pair merges first.

llama2.c's tokenizer files and GGUF's "llama" vocabulary hold such pieces. Kudo and Richardson,
SentencePiece, arXiv 1808.06226.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Sequence
from dataclasses import dataclass


class Kind(enum.Enum):
    """What a piece stands for: its text, one byte of a character without a piece, or no text."""

    TEXT = enum.auto()
    BYTE = enum.auto()
    CONTROL = enum.auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; `text` has real spaces, not SentencePiece's U+2581."""

    text: bytes
    score: float
    kind: Kind


class SentencePieceTokenizer:
    """See tokenizer.Tokenizer. The BOS also ends a text: models emit it before the next one."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        bos_id: int,
        eos_id: int,
        *,
        unknown_id: int = 0,
        add_bos: bool = True,
        add_space: bool = True,
    ) -> None:
        self._pieces = tuple(pieces)
        self._unknown_id = unknown_id
        self._add_bos = add_bos
        self._add_space = add_space
        self._texts = _first_ids(self._pieces, Kind.TEXT)
        self._bytes = _first_ids(self._pieces, Kind.BYTE)
        self.bos_id = bos_id
        self.eos_ids = frozenset((bos_id, eos_id))
        self.vocab_size = len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which gets SentencePiece's dummy space in front."""
        ids = [self.bos_id] if self._add_bos else []
        if text and self._add_space:
            text = " " + text
        for part in self._merge([character.encode() for character in text]):
            if part in self._texts:
                ids.append(self._texts[part])
            else:
                ids.extend(self._bytes.get(bytes([b]), self._unknown_id) for b in part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without the dummy space; an id of a padded vocabulary has none."""
        pieces = (self._pieces[i] for i in ids if i < self.vocab_size)
        data = b"".join(piece.text for piece in pieces if piece.kind is not Kind.CONTROL)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if self._add_space else text

    def _merge(self, parts: list[bytes]) -> list[bytes]:
        """Merge neighbours, best score first and then leftmost, while the result is a piece."""
        end = len(parts)
        following = list(range(1, end + 1))
        preceding = list(range(-1, end - 1))
        queue: list[tuple[float, int, bytes]] = []

        def offer(left: int) -> None:
            if left >= 0 and following[left] < end:
                merged = parts[left] + parts[following[left]]
                if merged in self._texts:
                    score = self._pieces[self._texts[merged]].score
                    heapq.heappush(queue, (-score, left, merged))

        for left in range(end - 1):
            offer(left)
        while queue:
            _, left, merged = heapq.heappop(queue)
            right = following[left]
            # An offer is stale once either side has merged with another neighbour.
            if not parts[left] or right >= end or parts[left] + parts[right] != merged:
                continue
            parts[left], parts[right] = merged, b""
            following[left] = following[right]
            if following[left] < end:
                preceding[following[left]] = left
            offer(left)
            offer(preceding[left])
        return [part for part in parts if part]


def _first_ids(pieces: Sequence[Piece], kind: Kind) -> dict[bytes, int]:
    ids: dict[bytes, int] = {}
    for index, piece in enumerate(pieces):
        if piece.kind is kind:
            ids.setdefault(piece.text, index)
    return ids
