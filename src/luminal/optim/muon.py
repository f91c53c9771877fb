"""Muon: a matrix's momentum, made orthogonal, is the step; other parameters are AdamW's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import dtype_of
from luminal.base.errors import InputError
from luminal.frontend.tensor import Tensor
from luminal.optim.adam import adam_on_graph
from luminal.optim.formula import Rate, Tensors, each, mixed, rate_of, shrunk
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan 2024: the steepest at 0 that stay near 1
AS_ADAMW = 0.2  # the root mean square of AdamW's updates: Moonshot 2025


def orthogonalized(
    x: Tensor,
    steps: int = 5,
    coefficients: Sequence[float] = COEFFICIENTS,
    eps: float = 1e-7,
    dtype: Any = None,
) -> Tensor:
    """A matrix near U V^T of x = U S V^T: its singular values lie within 0.7 .. 1.2.

    Newton-Schulz iterations x = a x + (b A + c A A) x with A = x x^T, in `dtype` (x's own).
    """
    a, b, c = coefficients
    rows, columns = x.shape
    # The Gram matrix of the shorter side is smaller; the result is the same.
    is_tall = bool(rows > columns)
    y = x.mT if is_tall else x
    # Singular values must not exceed 1 for the iteration to converge; the norm of all elements is
    # at least the greatest of them.
    y = y / y.square().sum().sqrt().maximum(eps)
    y = y if dtype is None else y.cast(dtype)
    for _ in range(steps):
        gram = y @ y.mT
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    y = y.cast(x.dtype)
    return y.mT if is_tall else y


def muon_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    buffers: Tensors,
    lr: Rate,
    *,
    weight_decay: float = 0.1,
    momentum: Rate = 0.95,
    nesterov: bool = True,
    ns_coefficients: Sequence[float] = COEFFICIENTS,
    eps: float = 1e-7,
    ns_steps: int = 5,
    adjust_lr_fn: str | None = None,
    ns_dtype: Any = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """New matrices and buffers: b = momentum * b + (1 - momentum) * g, made orthogonal.

    p shrinks by lr * weight_decay before. The rate is scaled for each matrix by
    sqrt(max(1, rows / columns)) ("original"), or by 0.2 * sqrt(max(rows, columns))
    ("match_rms_adamw"), which lets AdamW's rates do. Jordan 2024.
    """

    def formula(p: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        b = mixed(b, g, momentum)
        # Nesterov: the momentum as a further step with this gradient would leave it.
        direction = mixed(g, b, 1 - momentum) if nesterov else b
        orthogonal = orthogonalized(direction, ns_steps, ns_coefficients, eps, ns_dtype)
        rows, columns = (extent.value for extent in p.extents)
        if adjust_lr_fn == "match_rms_adamw":
            factor = AS_ADAMW * math.sqrt(max(rows, columns))
        else:
            factor = math.sqrt(max(1.0, rows / max(columns, 1)))
        rate = rate_of(lr, p.dtype)
        return shrunk(p, rate, weight_decay) - rate * factor * orthogonal, b

    new, moved = each("muon_on_graph", formula, parameters, gradients, buffers)
    return new, moved


class Muon(Optimizer):
    """Muon, as torch.optim.Muon; a group with `use_muon=False` is AdamW's, with `betas`.

    Matrices of hidden layers are for Muon; embeddings, heads, vectors and scalars go into the other
    group. `ns_dtype="bfloat16"` iterates in bfloat16, as PyTorch does; by default it is float32.
    """

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        ns_dtype: str | None = None,
        use_muon: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__(
            params, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
            ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn, ns_dtype=ns_dtype, use_muon=use_muon, betas=betas,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raises InputError for what is no matrix in a group of Muon's."""
        super().check(group)
        adjusts = group["adjust_lr_fn"]
        if adjusts not in (None, "original", "match_rms_adamw"):
            raise InputError(f'Muon: adjust_lr_fn={adjusts!r}; use "original" or "match_rms_adamw"')
        if group["ns_dtype"] is not None:
            dtype_of(group["ns_dtype"])
        for p in group["params"] if group["use_muon"] else ():
            if p.ndim != 2:
                raise InputError(
                    f"Muon: {self.names[p]} has the shape {p.shape} and is no matrix; put it into "
                    "a group with use_muon=False, which AdamW updates"
                )

    def momentum_option(self, group: Group) -> str:
        """Muon's own momentum, or AdamW's betas."""
        return "momentum" if group["use_muon"] else "betas"

    def slots(self, group: Group) -> dict[str, float]:
        """A momentum, or Adam's moments."""
        names = ["momentum_buffer"] if group["use_muon"] else ["exp_avg", "exp_avg_sq"]
        return dict.fromkeys(names, 0.0)

    def shared(self, group: Group) -> dict[str, int | float]:
        """AdamW counts its steps."""
        return {} if group["use_muon"] else {"step": 0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `muon_on_graph`, or of `adam_on_graph`."""
        if group["use_muon"]:
            options = {
                name: group[name] for name in self.defaults if name not in ("use_muon", "betas")
            }
            new, moved = muon_on_graph(params, gradients, slots["momentum_buffer"], **options)
            return Update(new, {"momentum_buffer": moved}, {})
        step = shared["step"] + 1
        new, *moments = adam_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_avg_sq"], step, group["lr"],
            decoupled_weight_decay=True,
            **{name: group[name] for name in ("betas", "eps", "weight_decay")},
        )  # fmt: skip
        return Update(new, dict(zip(slots, moments, strict=True)), {"step": step})
