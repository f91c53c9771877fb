"""The record of target facts: what selection, schedules and renderers may know of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dots import Dot


@dataclass(frozen=True, slots=True)
class Target:
    """Facts of one device, filled by its backend. Equal facts mean interchangeable programs.

    `features` are instruction set extensions under LLVM's names ("avx512f"); `llvm_features` is
    the text LLVM takes, which also switches off what `cpu` implies and this machine lacks.
    `l1_bytes` and `l2_bytes` are per core (data), `l3_bytes` is shared; `cores` is how many the
    process may use; `dots` are the sums of products that there is an instruction for; `registers`
    counts vector registers of `vector_bits` bits. `libraries` are those that kernels may call here.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    llvm_features: str
    vector_bits: int
    registers: int
    fma: bool
    dots: tuple[Dot, ...]
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int = 64
    libraries: tuple[str, ...] = ()

    def vector_lanes(self, dtype_size: int) -> int:
        """How many elements of `dtype_size` bytes one vector register holds (at least 1)."""
        return max(1, self.vector_bits // (8 * dtype_size))
