"""Gradients of several small batches as that of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.dtypes import bool_, int64
from luminal.base.errors import LoadError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.memory.data import any_array_of
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.optim.clip import clipped
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import COUNT, check
from luminal.optim.saved import check_entries, checked_count, slot_dtype
from luminal.training.amp import GradScaler


# Whether a run only adds up or steps as well is a `where` on every Parameter and moment inside the
# program: one program, one native call, and nothing that waits for a number.
class GradientAccumulator:
    """Adds up gradients in States; every `steps` runs the optimizer steps by their mean.

    For losses that are means over batches of one size, a large batch's step within rounding. With
    a `scaler` the sums are of scaled losses, and one that is not finite skips the step.

    A program of `step` holds the update too, and computes it in every run. To save that, run
    another program of `add` on all batches but the last of each round.
    """

    def __init__(self, optimizer: Optimizer, steps: int, scaler: GradScaler | None = None) -> None:
        check("GradientAccumulator", COUNT, steps=steps)
        self.optimizer, self.steps, self.scaler = optimizer, steps, scaler
        self.count = State((), int64, 0, "accumulated")
        self.sums: dict[Parameter, State] = {}

    def step(
        self,
        loss: Tensor,
        clip_norm: float | Tensor | None = None,
        clip_value: float | None = None,
    ) -> Tensor | None:
        """Records one batch, and the optimizer's step in runs that complete a round.

        Clipping is of the means; their norm before it is returned, as `optimizer.step` does.
        """
        totals, number = self._added(loss)
        is_full = number >= self.steps
        factor = 1 / number.cast("float32")
        averages = {p: total * factor for p, total in totals.items()}
        when = is_full
        if self.scaler is not None:
            averages, is_finite = self.scaler.unscale(averages)
            # Once a round: gradients under two scales cannot be added up.
            self.scaler.update(is_finite, when=is_full)
            when = is_full & is_finite
        averages, norm = clipped(averages, clip_norm, clip_value)
        self.optimizer.apply(averages, when=when)
        for p, total in totals.items():
            loss.graph.assign(self.sums[p], where(is_full, 0, self.sums[p].as_it_lies(total)))
        loss.graph.assign(self.count, where(is_full, 0, number))
        return norm

    def add(self, loss: Tensor) -> None:
        """Records one batch without the optimizer's step: not for the last of a round."""
        totals, number = self._added(loss)
        for p, total in totals.items():
            loss.graph.assign(self.sums[p], total)
        loss.graph.assign(self.count, number)

    def completes(self, graph: Recorder) -> Tensor:
        """A 0-d bool: does this run complete a round, so that the optimizer steps?"""
        return (graph.read(self.count) + 1 >= self.steps).cast(bool_)

    def _added(self, loss: Tensor) -> tuple[dict[Parameter, Tensor], Tensor]:
        """The sums with this batch, and of how many batches they are."""
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        totals = {}
        for p, g in self.optimizer.gradients(scaled).items():
            if p not in self.sums:
                name = f"{self.optimizer.names[p]}.grad"
                self.sums[p] = _sum_of(p, name)
            held = self.sums[p]
            totals[p] = loss.graph.read(held) + g.to(held.dtype)
        return totals, loss.graph.read(self.count) + 1

    # --- saving

    def state_dict(self) -> dict[str, Any]:
        """How many batches are added up, and the sums by the number of the parameter."""
        number = {p: k for k, p in enumerate(self.optimizer.parameters)}
        sums = {number[p]: state.numpy() for p, state in self.sums.items()}
        return {"count": self.count.numpy().item(), "sums": sums}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there; LoadError, and no change, where a sum fits no parameter."""
        check_entries("GradientAccumulator", state_dict, ("sums", "count"))
        count = checked_count("GradientAccumulator", state_dict["count"])
        parameters = dict(enumerate(self.optimizer.parameters))
        arrays: dict[Parameter, Array] = {}
        for key, value in state_dict["sums"].items():
            if int(key) not in parameters:
                raise LoadError(
                    f"GradientAccumulator: no parameter {key}; there are {len(parameters)}"
                )
            p = parameters[int(key)]
            array = any_array_of(value, slot_dtype(p), self.optimizer.names[p])
            if array.shape != p.shape:
                raise LoadError(
                    f"GradientAccumulator: {self.optimizer.names[p]}: the sum has the shape "
                    f"{array.shape}, the parameter {p.shape}"
                )
            arrays[p] = array
        for p in arrays:
            self.sums.setdefault(p, _sum_of(p, "grad"))
        for p, state in self.sums.items():
            state.set(arrays[p]) if p in arrays else state.reset()
        self.count.set(count)


def _sum_of(p: Parameter, name: str) -> State:
    """A State for the sum of a Parameter's gradients, cut over a mesh as its moments are."""
    total = State(p.shape, slot_dtype(p), name=name)
    total.follows = p
    return total
