"""Convolutions, transposed or not, and fold: inf and NaN reach what they meet, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from tests.numerics.batch import BACKENDS, Case, check

F, TF = lm.nn.functional, torch.nn.functional
rng = np.random.default_rng(0)
STRIDES_DILATIONS_KERNELS = list(itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3, 4)))


def image(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers with an infinity and a NaN far from each other."""
    x = rng.normal(size=shape).astype(np.float32)
    x[0, 0, ..., 1] = np.inf
    x[-1, -1, ..., -2] = np.nan
    return x


def transposed_cases() -> Iterator[Case]:
    for stride, dilation, kernel in STRIDES_DILATIONS_KERNELS:
        for padding in (0, 1):
            o = {"stride": stride, "dilation": dilation, "padding": padding}
            if dilation * (kernel - 1) < 2 * padding:
                continue
            yield Case(
                f"conv_transpose1d, kernel {kernel}, {o}",
                lambda x, w, o=o: F.conv_transpose1d(x, w, **o),
                lambda x, w, o=o: TF.conv_transpose1d(x, w, **o),
                [image(2, 2, 6), rng.normal(size=(2, 3, kernel)).astype(np.float32)],
            )


def square_cases() -> Iterator[Case]:
    for stride, dilation, kernel in [(2, 1, 3), (2, 2, 3), (3, 2, 2)]:
        o = {"stride": stride, "dilation": dilation}
        x = image(2, 2, 5, 5)
        yield Case(
            f"conv_transpose2d, kernel {kernel}, {o}",
            lambda x, w, o=o: F.conv_transpose2d(x, w, **o),
            lambda x, w, o=o: TF.conv_transpose2d(x, w, **o),
            [x, rng.normal(size=(2, 3, kernel, kernel)).astype(np.float32)],
        )
        yield Case(
            f"conv2d, kernel {kernel}, {o}",
            lambda x, w, o=o: F.conv2d(x, w, padding=1, **o),
            lambda x, w, o=o: TF.conv2d(x, w, padding=1, **o),
            [x, rng.normal(size=(3, 2, kernel, kernel)).astype(np.float32)],
        )
        o = {"kernel_size": kernel, **o}
        blocks = TF.unfold(torch.zeros(2, 2, 9, 9), **o).shape
        yield Case(
            f"fold, {o}",
            lambda x, o=o: F.fold(x, (9, 9), **o),
            lambda x, o=o: TF.fold(x, (9, 9), **o),
            [image(*blocks)],
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_infinities_stay_where_they_belong(backend: str) -> None:
    check([*transposed_cases(), *square_cases()], backend)
