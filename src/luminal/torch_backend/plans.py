"""What a recorded graph's arguments and results are, and how each lies in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import torch

import luminal as lm
from luminal.base.records import dataclass
from luminal.memory.parameter import Parameter
from luminal.torch_backend.borrowed_state import BorrowedState
from luminal.torch_backend.devices import HOST
from luminal.torch_backend.sizes import Size, Sizes

Calls: TypeAlias = "tuple[tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]], ...]"
"""Functions that PyTorch calls one after the other: (function, further arguments, named ones)."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """An argument that is a tensor: its name in the graph, and the order of its dims in memory
    (None: it is copied to be row-major). With `calls` it is a view of the argument. `number`:
    the argument is a number, which becomes a tensor of that dtype. Is it the host's, whatever
    computes (`is_host`)?
    """

    position: int
    name: str
    order: tuple[int, ...] | None
    parameter: Parameter | None = None
    calls: Calls = ()
    number: torch.dtype | None = None
    is_host: bool = False


@dataclass(frozen=True, slots=True)
class StatePlan:
    """An argument that is written where it lies: a State, and the order of dims in memory."""

    position: int
    order: tuple[int, ...]
    state: BorrowedState


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """A result that the program computes: its shape as PyTorch has it, and the order of dims.
    `of_ones`: dims of one place whose strides are others than their neighbours', and those.
    `device` is where it lies.
    """

    name: str
    shape: tuple[Size, ...]
    order: tuple[int, ...]
    dtype: torch.dtype
    of_ones: tuple[tuple[int, int], ...] = ()
    device: torch.device = HOST


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A result that is an argument, or a view of one: PyTorch makes it, by these calls in order."""

    position: int
    calls: Calls = ()


@dataclass(frozen=True, slots=True)
class Derived:
    """A result that is a view of what the program computes: where it lies in that memory."""

    whole: OutputPlan
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Spread:
    """A result with gaps between what the program computes: it is copied to these strides."""

    dense: OutputPlan
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A result that is a number, which the program computes as a scalar."""

    scalar: OutputPlan


@dataclass(frozen=True, slots=True)
class Pairs:
    """A result of complex numbers, of which the program computes pairs."""

    lie: OutputPlan | Derived | Spread


Result = OutputPlan | Borrowed | Derived | Spread | Pairs | Number | Size | None
"""What a graph returns at a position; a bare number is a size."""


@dataclass(frozen=True, slots=True)
class Results:
    """How results lie. The first `exact` of them (None: all) have the strides of eager mode, others
    are dense. `share`: views of one tensor lie in one memory, as in eager mode; else each has its
    own. Those of the numbers `of_arguments` are views of arguments as they are after the run.
    """

    exact: int | None = None
    share: bool = True
    of_arguments: frozenset[int] = frozenset()


SizeSource = tuple[int, int | None]
"""An argument that is a SymInt, or one that is a tensor with a dim of it."""


@dataclass(slots=True)
class Translation:
    """A recorded graph. `written`: arguments that are overwritten, and with which result.
    `checks`: functions of results that raise for what PyTorch refuses; `positions`: by the name of
    an Input, how many there are that it may hold. `groups`: the process groups of collectives.
    `device`: where PyTorch has the tensors.
    """

    graph: lm.Graph
    sizes: Sizes
    device: torch.device = HOST
    arguments: int = 0
    inputs: list[InputPlan] = field(default_factory=list)
    dims: dict[str, SizeSource] = field(default_factory=dict)  # by name: where a call finds it
    results: list[Result] = field(default_factory=list)
    states: list[StatePlan] = field(default_factory=list)
    written: list[tuple[int, OutputPlan | Pairs]] = field(default_factory=list)
    checks: list[tuple[OutputPlan, Callable[[torch.Tensor], Any]]] = field(default_factory=list)
    positions: dict[str, list[Size]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
