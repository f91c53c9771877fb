"""ScheduledOptions: the options of an optimizer that schedulers change, rate and momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luminal.base.dtypes import float32, float64
from luminal.base.errors import GraphError, InputError
from luminal.frontend.graph import Recorder
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State

if TYPE_CHECKING:
    from luminal.optim.optimizer import Group, Optimizer


class ScheduledOptions:
    """What schedulers set of an optimizer's groups, and how programs see it."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self.base_rates: list[float] | None = None  # from the first scheduler on that changes rates
        # Options by the number of their group and their name, where programs read them.
        self._states: dict[tuple[int, str], State] = {}
        self._fixed: set[str] = set()  # options that a program has as numbers
        self._is_momentum_cycled = False

    @property
    def _name(self) -> str:
        return type(self._optimizer).__name__

    @property
    def _groups(self) -> list[Group]:
        return self._optimizer.param_groups

    # A number in a program stays what it is. Where a scheduler changes an option, or each step is a
    # run of its own, programs read it, so that one serves all values.
    def read(self, graph: Recorder, number: int) -> Group:
        """The options of a group that a scheduler changes, in the graph; GraphError for a rate that
        is a Tensor of another graph or has a shape.
        """
        group = self._groups[number]
        lr, name = group["lr"], self._optimizer.momentum_option(group)
        changing: Group = {"lr": lr}
        if not isinstance(lr, int | float):
            changing["lr"] = _read(graph, lr)
        elif self.base_rates is not None or graph.is_eager:
            changing["lr"] = self._value(graph, number, "lr", lr)
        else:
            self._fixed.add("lr")
        if name is not None and self._is_momentum_cycled:
            first, *others = group[name] if name == "betas" else [group[name]]
            value = self._value(graph, number, name, first)
            changing[name] = (value, *others) if name == "betas" else value
        elif not graph.is_eager:
            self._fixed.add("momentum")
        return changing

    def _value(self, graph: Recorder, number: int, name: str, value: float) -> Tensor:
        """A number that programs read."""
        if (number, name) not in self._states:
            is_wide = any(p.memory_type[1] is float64 for p in self._groups[number]["params"])
            dtype, what = float64 if is_wide else float32, "rate" if name == "lr" else name
            self._states[number, name] = State((), dtype, value, f"{what} of group {number}")
        state = self._states[number, name]
        if state.numpy() != state.dtype.numpy.type(value):
            state.set(value)
        return graph.read(state)

    def set_rates(self, rates: Sequence[float]) -> None:
        """Sets the rate of each group, also for programs that were recorded since a scheduler took
        the optimizer.
        """
        for number, (group, rate) in enumerate(zip(self._groups, rates, strict=True)):
            group["lr"] = rate
            self._tell(number, "lr", rate)

    def set_momenta(self, momenta: Sequence[float]) -> None:
        """Sets the momentum of each group, or the first of its betas, as `set_rates`."""
        for number, (group, momentum) in enumerate(zip(self._groups, momenta, strict=True)):
            name = self._optimizer.momentum_option(group)
            if name is not None:
                is_pair = name == "betas"
                group[name] = (momentum, *group[name][1:]) if is_pair else momentum
                self._tell(number, name, momentum)

    def _tell(self, number: int, name: str, value: float) -> None:
        if (number, name) in self._states:
            self._states[number, name].set(value)

    def take_rates(self, what: str) -> list[float]:
        """The rates that a scheduler starts from. Raises InputError for a rate that is a Tensor,
        and where a program has a rate already that no scheduler could change.
        """
        if self.base_rates is None:
            self._check_read(what, "lr", "rate")
            rates = [group["lr"] for group in self._groups]
            for rate in rates:
                if not isinstance(rate, int | float):
                    raise InputError(
                        f"{what}: the optimizer's rate is {rate!r}; give the optimizer a number, "
                        "or make the scheduler of a number and give each run scheduler.lr"
                    )
            self.base_rates = [float(rate) for rate in rates]
        return list(self.base_rates)

    def take_momentum(self, what: str) -> None:
        """Lets a scheduler change the momentum. Raises InputError where the optimizer has none, and
        where a program has it already as a number.
        """
        if not all(map(self._optimizer.momentum_option, self._groups)):
            raise InputError(
                f"{what}: {self._name} has neither momentum nor betas; pass cycle_momentum=False"
            )
        if not self._is_momentum_cycled:
            self._check_read(what, "momentum", "momentum")
        self._is_momentum_cycled = True

    def _check_read(self, what: str, option: str, word: str) -> None:
        if option in self._fixed:
            fix = ", or give the optimizer lr=cx.tensor((), name='lr') and each run scheduler.lr"
            raise InputError(
                f"{what}: {self._name}.step was recorded with a {word} that is a number of the "
                f"program; make the scheduler before the step is recorded{fix * (word == 'rate')}"
            )


def _read(graph: Recorder, lr: Any) -> Tensor:
    """A rate that is no number, in the graph; GraphError for one of another graph or a shape."""
    rate = graph.constant(lr)
    if rate.ndim:
        raise GraphError(f"lr: takes one number, got {rate!r}; use cx.tensor((), name='lr')")
    return rate
