"""The arrays that candidates are timed and compared on, drawn by what they are used for.

Indices lie in range, floats are normal, weights are the user's own where they are set; nothing is
all zeros. All of it lies in one file that worker processes map.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.attributes import LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Graph, Output
from luminal.hlir.index_inputs import index_inputs
from luminal.hlir.substitute import all_nodes
from luminal.memory.alignment import ALIGNMENT
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.runtime.arrays import Array
from luminal.runtime.binding import Signature
from luminal.search.messages import Operands, SharedArray

USUAL_DIM = 256  # where a dim is timed, if its interval has that
MEMORY = Path("/dev/shm")  # a file system in memory, where there is one


@dataclass(frozen=True, slots=True)
class Arrays:
    """Values for one binding of dims."""

    dims: dict[str, int]
    inputs: dict[str, Array]
    parameters: dict[Parameter, Array]
    states: dict[State, Array]


def draw(graph: Graph, wanted: Mapping[str, int], values: Mapping[str, Array], seed: int) -> Arrays:
    """Arrays for a graph. `wanted`: values of dims; `values`: what the user set on inputs."""
    signature = Signature(graph, None)
    dims = choose_dims(signature, wanted)
    rng = np.random.default_rng(seed)
    # Indices lie within the shortest dim that they index.
    extents: dict[str, int] = {}
    # Random data must be as good as real: an index out of range would read nothing, all zeros would
    # make denormals and short branches, and unscaled weights saturate a deep network.
    for use in index_inputs(graph):
        extent = int(use.extent.evaluate(dims))
        extents[use.name] = min(extent, extents.get(use.name, extent))
    inputs = {}
    for spec in signature.inputs:
        shape = tuple(int(extent.evaluate(dims)) for extent in spec.shape)
        user_value = values.get(spec.name)
        if user_value is not None and user_value.shape == shape:
            inputs[spec.name] = np.ascontiguousarray(user_value)
        else:
            inputs[spec.name] = _random(rng, shape, spec.dtype, extents.get(spec.name, 8))
    parameters: dict[Parameter, Array] = {}
    states: dict[State, Array] = {}

    def add(held: Assignable) -> None:
        if isinstance(held, Parameter):
            _add_parameter(parameters, held, rng)
        else:
            _add_state(states, held, rng)

    for node in all_nodes(graph):
        if isinstance(node.attrs, WeightAttrs):
            add(node.attrs.parameter)
        elif isinstance(node.attrs, StateAttrs):
            add(node.attrs.state)
        elif isinstance(node.attrs, LoopAttrs):
            for held in (s for group in node.attrs.assigned for s in group or ()):
                add(held)
    for sink in graph.sinks:
        if isinstance(sink, Assign):
            add(sink.state)
    return Arrays(dims, inputs, parameters, states)


def choose_dims(signature: Signature, wanted: Mapping[str, int]) -> dict[str, int]:
    """A value for each dim: the wanted one, else a usual one that the requirements allow."""
    dims = {}
    for name in signature.needed:
        lo, hi = signature.intervals[name]
        dims[name] = max(lo, min(hi, wanted.get(name, USUAL_DIM)))
    return signature.fitted(dims, wanted)


def _add_parameter(
    parameters: dict[Parameter, Array], parameter: Parameter, rng: np.random.Generator
) -> None:
    if parameter in parameters:
        return
    if parameter.stored is not None:
        array = parameter.memory
    else:
        array = _random(rng, *parameter.memory_type, 2)
        if parameter.dtype.is_float and len(parameter.shape) > 1:  # or deep networks saturate
            array = (array / np.sqrt(max(parameter.shape))).astype(array.dtype)
    parameters[parameter] = array


def _add_state(states: dict[State, Array], state: State, rng: np.random.Generator) -> None:
    if state not in states:
        now = state.memory_now()
        if state.dtype.is_float and not now.any():  # a cache before its first run
            now = _random(rng, state.shape, state.dtype, 2)
        states[state] = now


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, below: int) -> Array:
    if dtype.is_float:
        return rng.standard_normal(shape, np.float32).astype(dtype.numpy)
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, max(1, below), shape).astype(dtype.numpy)


def share(graph: Graph, arrays: Arrays) -> SharedFile:
    """The arrays in a file in memory, or on disk: containers often have 64 MiB of the former.

    Raises OSError where there is no room at all.
    """
    if MEMORY.is_dir():
        with suppress(OSError):
            return SharedFile(graph, arrays, MEMORY)
    return SharedFile(graph, arrays, None)


class SharedFile:
    """The arrays in one file without a name; `operands` says where each lies."""

    def __init__(self, graph: Graph, arrays: Arrays, directory: Path | None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._end = 0
        try:
            self.operands = self._filled(graph, arrays)
        except OSError:
            with suppress(OSError):  # what is left to write does not fit either
                self.close()
            raise

    def _filled(self, graph: Graph, arrays: Arrays) -> Operands:
        outputs = []
        for sink in graph.sinks:
            if isinstance(sink, Output) and not sink.hidden:
                shape = tuple(int(extent.evaluate(arrays.dims)) for extent in sink.value.shape)
                outputs.append((sink.name, shape, sink.value.dtype.name))
        operands = Operands(
            arrays.dims,
            tuple((name, self._add(array)) for name, array in arrays.inputs.items()),
            tuple(outputs),
            {parameter.id: self._add(array) for parameter, array in arrays.parameters.items()},
            {state.id: self._add(array) for state, array in arrays.states.items()},
        )
        self._file.write(b"\0" * ALIGNMENT)  # never an empty file: that cannot be mapped
        self._file.flush()
        return operands

    def fileno(self) -> int:
        """The file's descriptor, for processes that inherit it."""
        return self._file.fileno()

    def close(self) -> None:
        """Gives the memory back."""
        self._file.close()

    def _add(self, array: Array) -> SharedArray:
        self._file.write(b"\0" * (-self._end % ALIGNMENT))
        offset = self._end + -self._end % ALIGNMENT
        data = np.ascontiguousarray(array)
        self._file.write(data.data if data.size and data.dtype.kind in "biuf" else data.tobytes())
        self._end = offset + data.nbytes
        return SharedArray(offset, array.shape, data.dtype.name)
