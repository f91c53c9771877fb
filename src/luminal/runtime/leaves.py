"""Inputs and weights by the names of callers, and what one call gives of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy import ndarray

from luminal.base.dtypes import DType
from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Value
from luminal.memory.parameter import Parameter
from luminal.runtime.arrays import Array, Given, accept, fitting
from luminal.runtime.binding import Signature, missing_input
from luminal.runtime.device import Device
from luminal.runtime.device_array import DeviceArray, accepted
from luminal.runtime.dim_sources import DimSources, Shapes

Received = tuple[list[Array | None], set[int], list[tuple[Parameter, Array]], Shapes]
"""What one call gives: the arrays of all slots so far, the slots it gave, weights to set, shapes of
inputs that only give dims.
"""


class Leaves:
    """The leaves of a graph: its inputs and `weights`, and `sources`, inputs that only give dims.

    `declared`: those of the graph that was recorded; what no output needs is left aside. `device`:
    where runs are, if that is not the host.
    """

    def __init__(
        self,
        graph: Graph,
        signature: Signature,
        declared: Mapping[str, Value],
        device: Device | None = None,
    ) -> None:
        self._device = device
        self._inputs = signature.inputs
        self.slots: dict[Any, int] = {}  # of inputs, by name and by Value
        self.weights: dict[str, Parameter] = {}
        self._parameters: dict[Any, tuple[str, Parameter]] = {}  # by name, Value and Parameter
        self._declared: frozenset[Any] = frozenset((*declared, *declared.values()))
        self.sources = DimSources(signature, declared)
        leaves = graph.by_op()
        for slot, node in enumerate(leaves.get("Input", ())):  # as the signature lists them
            self.slots[node.attrs.name] = self.slots[node.value] = slot
        for node in leaves.get("Weight", ()):
            name, parameter = named_parameter = node.attrs
            self.weights[name] = parameter
            for key in (name, node.value, parameter):
                self._parameters[key] = named_parameter

    def receive(self, before: Sequence[Array | None], shapes: Shapes, inputs: Given) -> Received:
        """What calls before have given, with what this one gives; checks dtypes and names, changes
        nothing.
        """
        # A copy: a call that fails half-way leaves what earlier calls gave as it was.
        arrays = [*before]
        slots: set[int] = set()
        weights: list[tuple[Parameter, Array]] = []
        for key, value in inputs.items():
            leaf = key if key.__class__ is str else getattr(key, "value", key)
            slot = self.slots.get(leaf)
            if slot is not None:
                spec = self._inputs[slot]
                if self._device is None or value.__class__ is ndarray:
                    arrays[slot] = accept(spec.name, value, spec.dtype)
                else:
                    arrays[slot] = self._there(spec.name, value, spec.dtype)
                slots.add(slot)
            elif leaf in self._parameters or leaf not in self._declared:
                name, parameter = self._parameter(key)
                weights.append((parameter, fitting(name, parameter, value)))
            elif new_shapes := self.sources.taken(shapes, leaf, value):
                shapes = new_shapes
        return arrays, slots, weights, shapes

    def _there(self, name: str, value: Any, dtype: DType) -> Any:
        """An input of a run on a device: as it lies, if it lies there."""
        assert self._device is not None
        if not isinstance(value, DeviceArray):
            value = DeviceArray.taken(name, value, self._device) or value
        if isinstance(value, DeviceArray):
            return accepted(name, value, dtype, self._device)
        return accept(name, value, dtype)

    def completed(self, arrays: list[Array | None], values: Mapping[str, Array]) -> list[Array]:
        """`arrays`, with values by name in the open slots."""
        used: list[Array] = []
        for slot, array in enumerate(arrays):
            if array is None:
                spec = self._inputs[slot]
                value = values.get(spec.name)
                if value is None:
                    raise missing_input(spec)
                array = accept(spec.name, value, spec.dtype)
            used.append(array)
        return used

    def check_weights(self, coming: list[tuple[Parameter, Array]]) -> None:
        """Raises InputError where a weight has no value and gets none."""
        set_now = [parameter for parameter, _ in coming]
        missing = [name for name, p in self.weights.items() if not p.has_value and p not in set_now]
        if missing:
            shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} weights have no value: {shown}; call exe.set({{name: array}}) or "
                "exe.load_state_dict(...) first"
            )

    def check_names(self, weights: Mapping[str, Any], strict: bool) -> None:
        """Raises InputError where names are not those of the weights, if `strict`."""
        missing = [name for name in self.weights if name not in weights]
        names = self._declared.union(self.weights)
        unexpected = [name for name in weights if name not in names]
        if strict and (missing or unexpected):
            raise InputError(
                "load_state_dict: the names differ from the graph's weights; "
                f"missing: {', '.join(missing) or 'none'}; "
                f"unexpected: {', '.join(unexpected) or 'none'}"
            )

    def _parameter(self, key: Any) -> tuple[str, Parameter]:
        parameter = self._parameters.get(
            key if isinstance(key, str) else getattr(key, "value", key)
        )
        if parameter is None:
            names = ", ".join([*(spec.name for spec in self._inputs), *self.weights]) or "none"
            name = key if isinstance(key, str) else "this tensor"
            like = suggestion(key, [*(spec.name for spec in self._inputs), *self.weights])
            raise InputError(f"{name}: no such input or weight; this graph takes {names}{like}")
        return parameter
