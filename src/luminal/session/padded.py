"""Programs on a mesh whose extents the ranks do not divide: calls take and give what is no pad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from luminal.base.errors import InputError, ShapeError
from luminal.distribute.layout import Layout, has_pads, local_extent
from luminal.distribute.parts import count
from luminal.hlir.attributes import Shape
from luminal.runtime.arrays import Array, Given, merged
from luminal.runtime.executable import Executable
from luminal.runtime.results import Results
from luminal.runtime.run import Run
from luminal.session.on_mesh import OnMesh


class Pads(NamedTuple):
    """A rank has `real` positions of a whole dimension of `extent`, and room for `room`."""

    dimension: int
    real: int
    room: int
    extent: int


def pads_of(shape: Shape, layout: Layout, placed: OnMesh) -> list[Pads]:
    """The dimensions of a value of this shape in which a rank's part has room for pads."""
    at = placed.mesh.coordinates(placed.engine.rank)
    return [
        Pads(k, count(n.value, cuts, at), local_extent(n, cuts).value, n.value)
        for k, (n, cuts) in enumerate(zip(shape, layout, strict=True))
        if has_pads(n, cuts)
    ]


class PaddedExecutable(Executable):
    """An Executable of a rank that has pads in inputs or outputs. Callers see none of them: they
    give what the rank holds of an input, and are given what it holds of an output.
    """

    def __init__(self, placed: OnMesh, *args: Any) -> None:
        super().__init__(*args)
        whole = placed.distributed
        self._pads_in: dict[Any, tuple[str, list[Pads]]] = {}
        for node in whole.graph.by_op().get("Input", ()):
            name = node.attrs.name
            pads = pads_of(whole.input_shapes[name], whole.inputs[name], placed)
            if pads:
                self._pads_in[name] = self._pads_in[node.value] = name, pads
        self._pads_out = {
            name: pads
            for name, shape in whole.output_shapes.items()
            if (pads := pads_of(shape, whole.outputs[name], placed))
        }

    def __call__(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Results:
        """Runs once; `out` is for programs whose outputs have no pads."""
        padded = self.accepting(self._all_padded, inputs, named, out)
        results = super().__call__(padded, dims=dims, out=out)
        return self._unpadded(results) if self._pads_out else results

    execute_with_capture = __call__

    def start(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Run:
        """Runs once; the run is over when this returns."""
        return Run(self(inputs, dims=dims, out=out, **named), None)

    def _all_padded(self, inputs: Given | None, named: dict[str, Any], out: Any) -> dict[Any, Any]:
        """All that a call gives, with pads; InputError for `out` where outputs have some."""
        if out is not None and self._pads_out:
            names = ", ".join(self._pads_out)
            raise InputError(
                f"out: {names}: the ranks do not divide what is cut, and a rank's part has pads, "
                "for which these arrays have no room; leave out= out"
            )
        return {key: self._padded(key, x) for key, x in merged("inputs", inputs, named).items()}

    def _padded(self, key: Any, value: Any) -> Any:
        """What a caller gives, with zeros for its pads."""
        leaf = key if isinstance(key, str) else getattr(key, "value", key)
        if leaf not in self._pads_in:
            return value
        name, pads = self._pads_in[leaf]
        array = np.asarray(value)
        behind = [(0, 0)] * array.ndim
        for k, real, room, extent in pads:
            if k >= array.ndim or array.shape[k] != real:
                raise ShapeError(
                    f"{name}: this rank has {real} of the {extent} positions of dimension {k}, of "
                    f"which each rank has room for {room}, and was given an array of shape "
                    f"{array.shape}; give its own, in the order of the ranks"
                )
            behind[k] = (0, room - real)
        return np.pad(array, behind)

    def _unpadded(self, results: Results) -> Results:
        arrays: list[Array] = []
        for name, padded in results.items():
            array = padded
            for k, real, _, _ in self._pads_out.get(name, ()):
                array = array[(slice(None),) * k + (slice(real),)]
            arrays.append(array)
        return Results(arrays, self._outputs.places)
