"""Targets that depend on the machine."""

from __future__ import annotations

from luminal.backends.cpu.host import host

ZEN_4 = "znver4"
SHARE = 0.65


def against_mkl(target: float) -> float:
    """Of products, attention and convolutions in f32 against PyTorch's. Targets are a Zen 5's, on
    which MKL reaches 40% of the peak; on a Zen 4 it reaches 80%, so that they would lie beyond it.
    """
    return max(1.0, SHARE * target) if host().cpu == ZEN_4 else target
