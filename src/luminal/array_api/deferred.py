"""Values that are computed when they are needed: chains of operations, compiled once each.

Operations on arrays record into one graph a thread. Asking for the elements of a value compiles
and runs what leads to it; each value of the chain that is still held is kept on the way, so that
nothing is computed twice. Programs are found again by their structure, so a second run of a chain
compiles nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from luminal.base.complex_dtypes import ComplexDType, complex64, complex128
from luminal.base.dtypes import DType, dtype_of, float64
from luminal.frontend.handle import Pair, is_tensor
from luminal.frontend.scan import flatten
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import copied, topological
from luminal.hlir.ops import Value
from luminal.session.eager import recording
from luminal.session.graph import Graph

Memory = np.ndarray[Any, Any]

MAX_NODES = 4096
"""A graph keeps the nodes of all it recorded: after so many a new one begins, once something was
computed, so that loops are cut where they were before; or else after many more.
"""

MAX_DEPTH = 48
"""Operations behind one another before they are computed: loops that read nothing stay small."""

MAX_INPUTS = 64
"""Arrays that one program reads, before those that are not computed are computed on their own."""


# Chains end after so many operations, or a loop that reads nothing would grow one graph for ever,
# and each turn would be a program of its own.
class Chain(Graph):
    """The graph that a thread's operations record into. Its inputs live as long as their users."""

    def __init__(self) -> None:
        super().__init__("arrays")
        self.values = WeakValueDictionary()  # type: ignore[assignment]
        # Weak on purpose: a value that nobody holds will not be asked for, and so a run need not
        # store it.
        self.held: WeakValueDictionary[Value, Deferred] = WeakValueDictionary()
        self._on_demand = programs
        _chains.add(self)


_chains: WeakSet[Chain] = WeakSet()
"""The chains of all threads, as long as a value that was recorded there is held."""

MAX_PROGRAMS = 512

_compiler = Graph("arrays")
_compiler.device = "cpu"  # whatever `lm.device` says: arrays lie in the host's memory
programs = _compiler._parts_on_demand(MAX_PROGRAMS)
"""The programs that are compiled, for all threads."""

_of_thread = threading.local()


def current() -> Chain:
    """The chain that this thread records into."""
    chain: Chain | None = getattr(_of_thread, "chain", None)
    if chain is None or len(chain.builder) > 8 * MAX_NODES:
        chain = _of_thread.chain = Chain()
    return chain


class Deferred:
    """A value: an array once it is computed, before that a Tensor of a chain.

    `inputs` are the arrays that it is computed from. `is_shared`: others may write to the array's
    memory. `is_private`: nobody else reads it.
    """

    __slots__ = ("__weakref__", "_array", "depth", "inputs", "is_private", "is_shared", "tensor")

    def __init__(
        self,
        array: Memory | None,
        tensor: Tensor | None = None,
        *,
        depth: int = 0,
        inputs: tuple[Memory, ...] = (),
        is_shared: bool = False,
    ) -> None:
        self._array = array
        self.tensor = tensor
        self.depth = depth
        self.inputs = inputs
        self.is_shared = is_shared
        self.is_private = False

    @property
    def is_computed(self) -> bool:
        return self._array is not None

    @property
    def shape(self) -> tuple[int, ...]:
        if self._array is not None:
            shape: tuple[int, ...] = self._array.shape
            return shape
        assert self.tensor is not None
        return tuple(n.value for n in self.tensor.extents)

    @property
    def dtype(self) -> DType:
        if self._array is not None:
            return dtype_of(self._array)
        assert self.tensor is not None
        return self.tensor.dtype

    def array(self) -> Memory:
        """The elements, computed now if they were not."""
        if self._array is None:
            _compute(self)
        assert self._array is not None
        return self._array

    def computed(self, array: Memory) -> None:
        """From now on the value is at hand."""
        self._array, self.tensor, self.inputs, self.depth = array, None, (), 0

    def within(self, chain: Chain) -> Tensor:
        """The value as a Tensor of `chain`: what was recorded elsewhere is computed first."""
        if self.tensor is None or self.tensor.graph is not chain:
            array = self.array()
            self.tensor = chain.tensor(array, copy=False)
            chain.held[self.tensor.value] = self
            self.inputs = (array,)
            self.is_private = False
        return self.tensor


class DeferredPair:
    """An array of complex numbers: computed, or as two values of floats that a chain records.

    What a Deferred has it has too. `parts` of a computed one lie in its memory.
    """

    __slots__ = ("__weakref__", "_array", "_parts", "is_private", "is_shared")

    def __init__(
        self,
        array: Memory | None,
        parts: tuple[Deferred, Deferred] | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._array, self._parts = array, parts
        self.is_shared, self.is_private = is_shared, False

    @property
    def parts(self) -> tuple[Deferred, Deferred]:
        """The real and the imaginary parts."""
        if self._parts is None:
            assert self._array is not None
            real, imag = self._array.real, self._array.imag
            self._parts = (
                Deferred(real, is_shared=self.is_shared),
                Deferred(imag, is_shared=self.is_shared),
            )
        return self._parts

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape if self._array is None else self._array.shape

    @property
    def dtype(self) -> ComplexDType:
        return complex128 if self.parts[0].dtype is float64 else complex64

    @property
    def depth(self) -> int:
        return max(part.depth for part in self.parts)

    @property
    def inputs(self) -> tuple[Memory, ...]:
        return tuple(array for part in self.parts for array in part.inputs)

    def array(self) -> Memory:
        """The elements, computed now if they were not."""
        if self._array is None:
            _compute(*self.parts)
            real, imag = (part.array() for part in self.parts)
            self._array = np.empty(real.shape, self.dtype.numpy)
            self._array.real, self._array.imag = real, imag
            self._parts = None
        return self._array

    def within(self, chain: Chain) -> Any:
        """The value as a ComplexTensor of `chain`."""
        self.is_private = False
        return Pair.kind(*(part.within(chain) for part in self.parts))


Held = Deferred | DeferredPair


def deferred_of(array: Memory, *, is_shared: bool = False) -> Held:
    """The value that is this array; `is_shared` as of a Deferred."""
    kind = DeferredPair if array.dtype.kind == "c" else Deferred
    return kind(array, is_shared=is_shared)


def record(
    function: Callable[[Sequence[Tensor]], Any],
    operands: Sequence[Held],
    wrap: Callable[[Held], Any],
) -> Any:
    """What `function` gives for the operands as Tensors, with `wrap(...)` in a Tensor's place.

    Where an operand's memory is shared, the results are computed before others can write to it.
    """
    _shorten(operands)
    chain = current()
    tensors = [value.within(chain) for value in operands]
    with recording(chain):
        leaves, tree = flatten(function(tensors), lambda x: isinstance(x, Pair))
    depth = 1 + max((value.depth for value in operands), default=0)
    inputs = _inputs_of(operands)
    results = [_held(chain, x, depth, inputs) for x in leaves]
    # Whoever else writes to that memory may do so at any time: what depends on it is not put off.
    if any(value.is_shared for value in operands):
        for value in results:
            if value is not None:
                value.array()
    pairs = zip(leaves, results, strict=True)
    return tree.build([x if value is None else wrap(value) for x, value in pairs])


def _shorten(operands: Sequence[Held]) -> None:
    """Computes operands where what leads to them has grown long or wide."""
    is_long = any(operand.depth >= MAX_DEPTH for operand in operands)
    if is_long or len(_inputs_of(operands)) > MAX_INPUTS:
        for operand in operands:
            operand.array()


def _inputs_of(operands: Iterable[Held]) -> tuple[Memory, ...]:
    """Every array that the operands are computed from, once."""
    # By identity, as arrays are not hashable, and two that are equal today are still two memories.
    return tuple({id(array): array for operand in operands for array in operand.inputs}.values())


def _held(chain: Chain, x: Any, depth: int, inputs: tuple[Memory, ...]) -> Held | None:
    """What stands for a result that is a Tensor or complex; None for others."""
    if isinstance(x, Pair):
        real, imag = (_deferred(chain, part, depth, inputs) for part in x.parts)
        return DeferredPair(None, (real, imag))
    return _deferred(chain, x, depth, inputs) if is_tensor(x) else None


def _deferred(chain: Chain, x: Tensor, depth: int, inputs: tuple[Memory, ...]) -> Deferred:
    """The one Deferred for this value of the chain."""
    held = chain.held.get(x.value)
    # The graph holds equal operations once, so `x + y` recorded twice is one value, and with one
    # Deferred it is computed once.
    if held is None:
        held = chain.held[x.value] = Deferred(None, x, depth=depth, inputs=inputs)
    return held


def _compute(*values: Deferred) -> None:
    """One run for these of one chain, and for all below that is still held and not yet computed."""
    tensors = {value: value.tensor for value in values if value.tensor is not None}
    wanted = {value: x for value, x in tensors.items() if not value.is_computed}
    chains = {id(x.graph): x.graph for x in wanted.values()}
    for chain in chains.values():
        assert isinstance(chain, Chain)
        _compute_in(chain, {v: x for v, x in wanted.items() if x.graph is chain})


def _compute_in(chain: Chain, wanted: Mapping[Deferred, Tensor]) -> None:
    originals: dict[Value, Deferred] = {}
    for deferred, tensor in wanted.items():
        value = _resumed(chain, tensor.value)
        originals.setdefault(value, deferred)
        # Values that are still held would be asked for later: computed in the same run, they cost
        # little now.
        for below in _values_below(value):
            held = chain.held.get(below)
            if held is not None and not held.is_computed:
                originals.setdefault(below, held)
    arrays = programs.arrays(chain, [*originals])
    for held, array in zip(originals.values(), arrays, strict=True):
        held.computed(array)
    # The old chain lives as long as its values do; new operations get a small graph again.
    if len(chain.builder) > MAX_NODES and getattr(_of_thread, "chain", None) is chain:
        _of_thread.chain = None


def _values_below(value: Value) -> Iterator[Value]:
    """All that `value` is computed from, and itself, each after its operands."""
    for node in topological([value]):
        yield from (Value(node, index) for index in range(len(node.types)))


def _resumed(chain: Chain, value: Value) -> Value:
    """`value` as a function of inputs for what was computed since it was recorded.

    What went out since, and may have been written to, is computed again.
    """
    instead: dict[Value, Value] = {}
    for node in topological([value]):
        # A node whose operands are as they were is left alone: copying it would make a new
        # structure, and with it a program that was never compiled.
        args = tuple([instead.get(arg, arg) for arg in node.args])
        anew = copied(chain.builder, node, args) if args != node.args else None
        for index in range(len(node.types)):
            resumed = Value(node, index)
            held = chain.held.get(resumed)
            if held is not None and held.is_computed and not held.is_shared:
                instead[resumed] = held.within(chain).value
            elif anew is not None:
                instead[resumed] = anew[index]
                if held is not None:
                    chain.held[anew[index]] = held
    return instead.get(value, value)


def settle(array: Memory) -> None:
    """Computes all that was recorded of `array`, before someone writes to it."""
    # Copies of both tables: computing lets go of values, and weak tables may not shrink while they
    # are walked.
    for chain in [*_chains]:
        for value in [*chain.held.values()]:
            if not value.is_computed and any(operand is array for operand in value.inputs):
                value.array()
