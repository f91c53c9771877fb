"""What LLVM needs to know of a processor, beside what all devices share."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class LlvmTarget(Target):
    """`features` are instruction set extensions under LLVM's names ("avx512f"); `llvm_features` is
    the text LLVM takes, which also switches off what `cpu` implies and this machine lacks.
    """

    triple: str
    cpu: str
    features: tuple[str, ...]
    llvm_features: str
    fma: bool
