"""Steps: the kernels and Loops of a program in the making."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import field

from luminal.algebra.terms import Term
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.hlir.attributes import CollectiveAttrs, CustomAttrs, StateAttrs, WeightAttrs
from luminal.hlir.ops import Value
from luminal.kernel.cascade import Cascade
from luminal.kernel.fused import Fused, Place
from luminal.memory.state import Assignable
from luminal.program.buffers import Buffer
from luminal.program.launch_list import CollectiveLaunch, ProgramOutput
from luminal.shape.expression import Expression, product_of


@dataclass(frozen=True, slots=True)
class NestStep:
    """A kernel of nested loops, by a schedule."""

    fused: Fused

    @property
    def key(self) -> Hashable:
        """Steps of one key make one kernel."""
        return NestStep, self.fused.form.key


@dataclass(frozen=True, slots=True)
class CascadeStep:
    """A kernel of reductions in one pass: those of the cascade."""

    fused: Fused
    cascade: Cascade

    @property
    def key(self) -> Hashable:
        """Steps of one key make one kernel."""
        first = self.fused.terms.index(self.cascade.first)
        return CascadeStep, self.fused.form.key, first, self.cascade.is_rough


@dataclass(frozen=True, slots=True)
class ScanStep:
    """A kernel that carries an accumulator along rows."""

    fused: Fused

    @property
    def key(self) -> Hashable:
        """Steps of one key make one kernel."""
        return ScanStep, self.fused.form.key


@dataclass(frozen=True, slots=True)
class SortStep:
    """A kernel that sorts rows, or merges runs of them; its fused stores the values, then their
    order.
    """

    fused: Fused

    @property
    def key(self) -> Hashable:
        """Steps of one key make one kernel."""
        return SortStep, self.fused.form.key


@dataclass(frozen=True, slots=True)
class CallStep:
    """A kernel that a library computes."""

    fused: Fused
    library: str

    @property
    def key(self) -> Hashable:
        """Steps of one key make one kernel."""
        return CallStep, self.fused.form.key, self.library


@dataclass(frozen=True, slots=True)
class CustomStep:
    """One hand-written kernel; all places are row-major."""

    attrs: CustomAttrs
    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    origins: tuple[Recorded, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """What all ranks along a mesh axis do together; both places are row-major."""

    attrs: CollectiveAttrs
    operand: Place
    result: Place

    @property
    def launch(self) -> CollectiveLaunch:
        """The launch that it is: there is nothing to choose."""
        attrs, ends = self.attrs, (self.operand, self.result)
        sent, received = (product_of(place.shape) for place in ends)
        operands = self.operand.operand, self.result.operand
        return CollectiveLaunch(attrs, self.operand.dtype, operands, (sent, received), attrs.label)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """`trips` runs of the steps of a Loop body."""

    trips: Expression
    body: tuple[Step, ...]


KernelStep = NestStep | CascadeStep | ScanStep | SortStep | CallStep
"""The kinds of kernels of what is fused: each has its choices and its own placement."""

Step = KernelStep | CustomStep | CollectiveStep | LoopStep


@dataclass(slots=True)
class Partition:
    """The steps of a program in order, with its buffers and table (see `launch_list.Program`).

    `prologue`: those that depend on Weights and literals only.
    """

    prologue: list[Step] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    outputs: list[ProgramOutput] = field(default_factory=list)
    swaps: list[Assignable] = field(default_factory=list)


@dataclass(slots=True)
class Unit:
    """Steps in the making: which stored values they read and make."""

    makes: tuple[Term, ...]
    reads: frozenset[Term]
    steps: tuple[Step, ...]
    overwrites: frozenset[Value] = frozenset()  # leaves that it updates in place
    leaves: frozenset[Value] = frozenset()  # that it reads
    before: tuple[Unit, ...] = ()  # copies of operands that it reads, which others may read too
    early: bool = False  # it belongs to the prologue
    after: Term | None = None  # of a collective, the one before it


def state_of(term: Term) -> Assignable | None:
    """The State that a leaf reads, or the Parameter that the program assigns as one."""
    match term.attrs.value.node.attrs:
        case StateAttrs(state=state):
            return state
        case WeightAttrs(parameter=parameter) if term.is_run:
            return parameter
    return None


def leaves_of(reads: Iterable[Term]) -> frozenset[Value]:
    return frozenset(term.attrs.value for term in reads if term.is_leaf)
