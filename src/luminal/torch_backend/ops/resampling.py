"""Resampling that averages, and its gradient: both are products with constant matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import luminal as lm
from luminal.frontend.windows.interpolate import antialiased, by_matrices, matrix, step_between
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.registry import rows

Tensor = lm.Tensor
Scale = float | None


def _resized(mode: str) -> Callable[..., Tensor]:
    def resized(
        x: Tensor, output_size: Sequence[Any], align_corners: bool, scales_h: Scale = None,
        scales_w: Scale = None,
    ) -> Tensor:  # fmt: skip
        return antialiased(x, output_size, mode, align_corners, (scales_h, scales_w))

    return resized


def _gradient(mode: str) -> Callable[..., Tensor]:
    def pulled_back(
        g: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], align_corners: bool,
        scales_h: Scale = None, scales_w: Scale = None,
    ) -> Tensor:  # fmt: skip
        sizes = [*input_size[2:], *output_size]
        if not all(isinstance(n, int) for n in sizes):
            raise UnsupportedError(f"sizes {sizes} are open")
        return by_matrices(g, [
            matrix(n, m, mode, step_between(n, m, align_corners, scale)).T
            for n, m, scale in zip(sizes[:2], sizes[2:], (scales_h, scales_w), strict=True)
        ])  # fmt: skip

    return pulled_back


for _mode in ("bilinear", "bicubic"):
    rows({f"_upsample_{_mode}2d_aa.default": _resized(_mode)})
    rows({f"_upsample_{_mode}2d_aa_backward": _gradient(_mode)})
