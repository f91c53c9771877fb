"""Exponential moving averages of Parameters: what is evaluated is smoother than what is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from luminal.base.dtypes import int64
from luminal.base.errors import GraphError, InputError, LoadError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Assign
from luminal.memory.data import any_array_of
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.optim.ranges import BELOW_1, check
from luminal.optim.saved import check_entries, checked_count, slot_dtype


class EMA:
    """decay * average + (1 - decay) * value of each Parameter, in float32 (float64 for float64).

    The first update takes the values as they are. Polyak & Juditsky 1992; as PyTorch's
    AveragedModel with get_ema_multi_avg_fn. Averages are States.
    """

    def __init__(self, parameters: Iterable[Parameter], decay: float = 0.999) -> None:
        check("EMA", BELOW_1, decay=decay)
        self.decay = decay
        self.count = State((), int64, 0, "averaged")
        self.averages: dict[Parameter, State] = {}
        candidates = parameters if isinstance(parameters, Iterable) else [parameters]
        for p in dict.fromkeys(candidates):
            if not isinstance(p, Parameter):
                raise InputError(f"EMA: {p!r} is no Parameter; pass model.parameters()")
            work = slot_dtype(p)
            first = p.whole().astype(work.numpy)
            self.averages[p] = State(p.shape, work, first, f"{p.name}.average")
            self.averages[p].follows = p  # on a mesh it is cut as moments are
        if not self.averages:
            raise InputError("EMA: got no parameters; pass model.parameters()")

    def update(self, graph: Recorder, *, when: Tensor | None = None) -> None:
        """Records an update by the values that `graph` assigns: call it after `optimizer.step`.

        `when`, a 0-d bool: nothing changes in runs where it is False.
        """
        assigned = (sink.state for sink in graph.sinks if isinstance(sink, Assign))
        if self.averages.keys().isdisjoint(assigned):
            raise GraphError(
                f"EMA.update: {graph.name} assigns none of the parameters; call it after "
                "optimizer.step"
            )
        count = graph.read(self.count)
        is_due = graph.constant(True) if when is None else when
        for p, state in self.averages.items():
            old = graph.in_floats(state)
            value = state.as_it_lies(graph.latest(p)).cast(old.dtype)
            new = where(count == 0, value, old + (value - old) * (1 - self.decay))
            graph.assign(state, where(is_due, new, old))
        graph.assign(self.count, where(is_due, count + 1, count))

    def apply(self) -> None:
        """Sets the Parameters to their averages."""
        for p, state in self.averages.items():
            p.set(state.whole().astype(p.dtype.numpy))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside the block the Parameters hold their averages, afterwards their own values again.

        Programs that run inside see the averages; none that trains should.
        """
        kept = {p: p.whole().copy() for p in self.averages}
        self.apply()
        try:
            yield
        finally:
            for p, value in kept.items():
                p.set(value)

    # --- saving

    def state_dict(self) -> dict[str, Any]:
        """The number of updates, and the averages in the order of the Parameters."""
        averages = [state.whole() for state in self.averages.values()]
        return {"count": self.count.numpy().item(), "averages": averages}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there; LoadError, and no change, where an average does not fit."""
        check_entries("EMA", state_dict, ("averages", "count"))
        count = checked_count("EMA", state_dict["count"])
        averages = list(state_dict["averages"])
        if len(averages) != len(self.averages):
            raise LoadError(
                f"EMA: the state_dict has {len(averages)} averages for {len(self.averages)} "
                "parameters"
            )
        arrays: dict[State, Array] = {}
        for (p, state), value in zip(self.averages.items(), averages, strict=True):
            array = any_array_of(value, state.dtype, p.name)
            if array.shape != p.shape:
                raise LoadError(
                    f"EMA: {p.name}: the average has the shape {array.shape}, the parameter "
                    f"{p.shape}"
                )
            arrays[state] = array
        for state, array in arrays.items():
            state.set(array)
        self.count.set(count)
