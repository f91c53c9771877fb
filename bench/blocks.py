"""Pieces of models whose products follow on each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from bench.limits import Counted
from bench.row import Rows
from bench.work import Work, normal, rows_of

TOKENS, WIDTH, INNER = 128, 1024, 2816


def rows() -> Rows:
    """Against the best of PyTorch, torch.compile and JAX."""
    yield from rows_of(_works())


def _works() -> Iterator[Work]:
    given = {
        "x": normal(TOKENS, WIDTH),
        "gate": normal(WIDTH, INNER) / WIDTH**0.5,
        "up": normal(WIDTH, INNER, seed=1) / WIDTH**0.5,
        "down": normal(INNER, WIDTH) / INNER**0.5,
    }
    yield Work(
        f"SwiGLU {TOKENS}x{WIDTH}x{INNER}",
        1.2,
        given,
        lambda x, gate, up, down: ((x @ gate).silu() * (x @ up)) @ down,
        torch=lambda x, gate, up, down: (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down,
        jax=lambda jax, x, gate, up, down: (jax.nn.silu(x @ gate) * (x @ up)) @ down,
        compiled=True,
        weights=frozenset(("gate", "up", "down")),
        counted=Counted(6.0 * TOKENS * WIDTH * INNER),
        quick=True,
    )
    mlp = {"x": normal(512, 768), "up": normal(768, 3072) / 28, "down": normal(3072, 768) / 55}
    yield Work(
        "MLP 512x768x3072",
        1.1,
        mlp,
        lambda x, up, down: (x @ up).gelu() @ down,
        torch=lambda x, up, down: torch.nn.functional.gelu(x @ up) @ down,
        jax=lambda jax, x, up, down: jax.nn.gelu(x @ up, approximate=False) @ down,
        compiled=True,
        weights=frozenset(("up", "down")),
        counted=Counted(4.0 * 512 * 768 * 3072),
    )
    small: dict[str, Any] = {"a": normal(64, 128, 128), "b": normal(64, 128, 64)}
    yield Work(
        "64 x (128x128 @ 128x64)",
        1.1,
        small,
        lambda a, b: a @ b,
        jax=lambda jax, a, b: a @ b,
        counted=Counted(2.0 * 64 * 128 * 128 * 64),
    )
