"""The outputs of an executable: what shape a run gives them, and whose memory they lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import DimError, InputError
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph, Output
from luminal.hlir.ops import Value
from luminal.program.quantities import Quantities
from luminal.runtime import output_pool
from luminal.runtime.arrays import Array, accept_output, can_hold_output, merged
from luminal.runtime.output_pool import OutputPool


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The shape, dtype and memory class of one output at given dims."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    bytes: int
    block: int  # bytes of the memory that the pool lends for it


class Outputs:
    """The outputs that a graph returns, in order, and the pool of their memory."""

    def __init__(self, graph: Graph, quantities: Quantities) -> None:
        self.sinks = tuple(s for s in graph.sinks if isinstance(s, Output) and not s.hidden)
        self.names = tuple(sink.name for sink in self.sinks)
        self._by_value = {sink.value: sink.name for sink in self.sinks}
        places: dict[str | Value, int] = {name: k for k, name in enumerate(self.names)}
        self.places = places | {value: places[name] for value, name in self._by_value.items()}
        add = quantities.add
        self._extents = [tuple(map(add, sink.value.shape)) for sink in self.sinks]
        self._pool = OutputPool()
        self.take = self._pool.take_all  # arrays for one run, which the caller will own

    @property
    def free_bytes(self) -> int:
        """Memory of dropped outputs that waits to be used again."""
        return self._pool.free_bytes

    def plan(self, dims: Mapping[str, int], values: Sequence[int]) -> tuple[OutputPlan, ...]:
        """The outputs where the quantities have these values. Raises DimError."""
        plans = []
        for sink, numbers in zip(self.sinks, self._extents, strict=True):
            shape = tuple([values[number] for number in numbers])
            if min(shape, default=0) < 0:
                raise DimError(f"{sink.name}: shape {shape} has a negative extent at {dims}")
            size = prod(shape) * sink.value.dtype.size
            block = output_pool.block_bytes(size)
            plans.append(OutputPlan(sink.name, shape, sink.value.dtype, size, block))
        self._pool.expect([plan.block for plan in plans])
        return tuple(plans)

    def take_into(
        self, plans: Sequence[OutputPlan], out: Any, others: Sequence[Array]
    ) -> list[Array]:
        """The arrays for a run's outputs: those of `out` where it has one, which share memory with
        no other; all others as `take` gives them.
        """
        wanted = self._given(out)
        taken: list[Array] = []
        for plan in plans:
            if plan.name not in wanted:
                taken += self.take([plan])
                continue
            array = accept_output(plan.name, wanted[plan.name], plan.shape, plan.dtype)
            # By their bounds: an exact answer may take exponential time, and for arrays without
            # gaps the bounds are exact.
            if any(np.may_share_memory(array, other) for other in (*taken, *others)):
                raise InputError(
                    f"out: {plan.name} shares memory with an input, a weight, a State or "
                    "another output of this run; pass an array of its own"
                )
            taken.append(array)
        return taken

    def _given(self, out: Any) -> dict[str, Any]:
        """The arrays of `out` by output name."""
        if can_hold_output(out):
            if len(self.names) != 1:
                raise InputError(f"out: this graph has {len(self.names)} outputs; pass a dict")
            return {self.names[0]: out}
        wanted: dict[str, Any] = {}
        for key, array in merged("out", out, {}).items():
            value: Any = getattr(key, "value", key)
            name = key if isinstance(key, str) else self._by_value.get(value)
            if name not in self.names:
                names = ", ".join(self.names)
                raise InputError(f"out: {key!r} is not an output; the outputs are {names}")
            wanted[name] = array
        return wanted
