"""What LLVM needs to know of a processor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class LlvmTarget(Hashable, Protocol):
    """`features` are instruction set extensions under LLVM's names ("avx512f"); `llvm_features` is
    the text LLVM takes, which also switches off what `cpu` implies and this machine lacks.
    """

    @property
    def triple(self) -> str: ...
    @property
    def cpu(self) -> str: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def llvm_features(self) -> str: ...
    @property
    def vector_bits(self) -> int: ...
