"""Mixed precision: 16-bit products over float32 Parameters, and losses scaled against underflow.

    with AMPContext("float16"):
        loss = F.cross_entropy(model(x), y)
    scaler = GradScaler()
    scaler.step(optimizer, loss, clip_norm=1.0)

or as PyTorch's loops have it, on the default graph:

    with lm.autocast("cpu", lm.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

Parameters stay float32 (the master weights) and are rounded where a product reads them, so all of
the forward and backward products run in 16 bits with sums in float32. bfloat16 has float32's range
and needs no scaler. Micikevicius et al. 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ContextDecorator
from functools import reduce
from typing import Any, TypeVar

from luminal.base.dtypes import bfloat16, bool_, dtype_of, float16, float32, int64
from luminal.base.errors import DTypeError, GraphError, InputError, LoadError
from luminal.frontend.foreign import is_device
from luminal.frontend.matrices.matmul import autocast as rounding_to
from luminal.frontend.pointwise.binary import where
from luminal.frontend.scan import flatten
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.optim.clip import clipped
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import (
    ABOVE_0,
    ABOVE_1,
    AT_LEAST_0,
    AT_LEAST_0_INT,
    BETWEEN_0_AND_1,
    COUNT,
    check,
)
from luminal.optim.saved import check_entries

Gradients = TypeVar("Gradients")


class AMPContext(ContextDecorator):
    """What is recorded inside computes products in `dtype`, "bfloat16" or "float16".

    Products, convolutions and attention round their operands and give that dtype; softmax, norms
    of rows and losses cast up and give float32; all else computes in the dtypes that it gets, and
    float64 stays. Parameters keep their dtype, gradients have it. The loss belongs inside, the
    step may stand outside. `enabled=False`: nothing changes.
    """

    def __init__(self, dtype: Any = "bfloat16", enabled: bool = True) -> None:
        try:
            self.dtype = dtype_of(dtype)
        except DTypeError:
            raise InputError(f'AMPContext: {dtype!r}; use "bfloat16" or "float16"') from None
        if self.dtype not in (bfloat16, float16):
            raise InputError(
                f'AMPContext: {self.dtype.name} has not 16 bits; use "bfloat16" or "float16"'
            )
        self.enabled = enabled
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> AMPContext:
        inner = rounding_to(self.dtype if self.enabled else None)
        inner.__enter__()
        self._entered.append(inner)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


class autocast(AMPContext):
    """AMPContext with torch.autocast's arguments: `lm.autocast("bfloat16")`, or a device, which
    means nothing, and then the dtype (bfloat16 by default).
    """

    def __init__(
        self, device_type: Any = None, dtype: Any = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        is_dtype = dtype is None and device_type is not None and not is_device(device_type)
        super().__init__(device_type if is_dtype else dtype or bfloat16, enabled)


# That a step is skipped is decided inside the program, by a `where` between new and old values. The
# price is that a run which skips computes the update too; it is seldom, and no run waits for a flag
# to come back.
class GradScaler:
    """Multiplies losses by a scale, so that gradients in float16 do not vanish.

    A step with an infinite or NaN gradient is skipped, inside the program, and the scale falls by
    `backoff_factor`; after `growth_interval` good steps in a row it grows by `growth_factor`. The
    scale and the counters are States. As torch.amp.GradScaler.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        check("GradScaler", ABOVE_0, init_scale=init_scale)
        check("GradScaler", ABOVE_1, growth_factor=growth_factor)
        check("GradScaler", BETWEEN_0_AND_1, backoff_factor=backoff_factor)
        check("GradScaler", COUNT, growth_interval=growth_interval)
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        self.states = {
            "scale": State((), float32, init_scale, "loss_scale"),
            "growth_tracker": State((), int64, 0, "growth_tracker"),
            "skipped": State((), int64, 0, "skipped_steps"),
        }
        self._unscaled: dict[Optimizer, Tensor] = {}  # before their steps
        self._taken: list[Tensor] = []  # since the last update(): were gradients finite?

    def step(
        self,
        optimizer: Optimizer,
        loss: Tensor | None = None,
        clip_norm: float | Tensor | None = None,
        clip_value: float | None = None,
    ) -> Tensor | None:
        """Records `optimizer.step` of the loss with scaling, skipping and the scale's own update.

        Clipping is of unscaled gradients; the norm before it is returned, as `optimizer.step` does.
        Without a loss the gradients are those of `scale(loss).backward()`, the step is run at once,
        and the scale follows with `update()`.
        """
        if loss is None:
            self.unscale_(optimizer)
            is_finite = self._unscaled.pop(optimizer)
            self._taken.append(is_finite)
            return optimizer.step(None, clip_norm, clip_value, when=is_finite)
        scaled = optimizer.gradients(self.scale(loss))
        unscaled, is_finite = self.unscale(scaled)
        unscaled, norm = clipped(unscaled, clip_norm, clip_value)
        optimizer.apply(unscaled, when=is_finite)
        self.update(is_finite)
        return norm

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale, in float32 (float64 stays)."""
        # In float16 a loss of 1 times the first scale, 2**16, would be infinite.
        wide = loss.cast(loss.dtype.compute)
        return wide * loss.graph.read(self.states["scale"])

    def unscale(self, gradients: Gradients) -> tuple[Gradients, Tensor]:
        """Gradients of a scaled loss over the scale, and a 0-d bool: are all of them finite?"""
        leaves, tree = flatten(gradients)
        graph = leaves[0].graph
        factor = 1 / graph.read(self.states["scale"])
        unscaled = [(g * factor).cast(g.dtype) for g in leaves]
        checks = [g.isfinite().all() for g in unscaled if g.numel() != 0]
        is_finite = reduce(Tensor.__and__, checks) if checks else graph.constant(True, bool_)
        return tree.build(unscaled), is_finite

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients that `backward` has found by the scale, so that they can be clipped
        before `step(optimizer)`.
        """
        held = [p for p in optimizer.parameters if p.requires_grad and p.grad is not None]
        if optimizer in self._unscaled or not held:
            return
        gradients, is_finite = self.unscale([p.grad for p in held])
        for p, gradient in zip(held, gradients, strict=True):
            p.grad = gradient
        is_finite.graph.wanted(is_finite)  # update() asks for it
        self._unscaled[optimizer] = is_finite

    def update(self, is_finite: Tensor | None = None, *, when: Tensor | None = None) -> None:
        """Records the next scale; `when`, a 0-d bool: nothing changes in runs where it is False.

        Without arguments it follows from the steps without a loss since the last time, at once.
        """
        if is_finite is None:
            if not self._taken:
                raise GraphError("GradScaler.update: there was no step(optimizer) since the last")
            graph = self._taken[0].graph
            all_finite = all(bool(flag.numpy()) for flag in self._taken)
            self._taken = []
            with graph.updating():
                self.update(graph.constant(all_finite))
            return
        graph = is_finite.graph
        scale, tracker, skipped = (graph.read(state) for state in self.states.values())
        is_due = is_finite & (tracker + 1 == self.growth_interval)
        grown = scale * self.growth_factor
        # A scale that is infinite would make every loss so, and no step would be taken again.
        larger = where(is_due & grown.isfinite(), grown, scale)
        new = {
            "scale": where(is_finite, larger, scale * self.backoff_factor),
            "growth_tracker": where(is_finite & ~is_due, tracker + 1, 0),
            "skipped": where(is_finite, skipped, skipped + 1),
        }
        for name, state in self.states.items():
            old = graph.read(state)
            graph.assign(state, new[name] if when is None else where(when, new[name], old))

    def get_scale(self) -> float:
        """The scale as it is now."""
        return float(self.states["scale"].numpy())

    def state_dict(self) -> dict[str, float | int]:
        """The scale, the good steps since it changed, and how many steps were skipped."""
        return {name: state.numpy().item() for name, state in self.states.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there; LoadError, and no change, where a number is missing."""
        check_entries("GradScaler", state_dict, [*self.states])
        numbers = {name: state_dict[name] for name in self.states}
        try:
            check("GradScaler", AT_LEAST_0, scale=numbers["scale"])
            for name in ("growth_tracker", "skipped"):
                check("GradScaler", AT_LEAST_0_INT, **{name: numbers[name]})
        except InputError as error:
            raise LoadError(f"{error}; pass the state_dict of a GradScaler") from None
        for name, state in self.states.items():
            state.set(numbers[name])
