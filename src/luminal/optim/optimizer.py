"""Optimizer: records a training step into a graph; it owns the moments, which are States.

What a subclass gives: its options, the States of a parameter (`slots`), those that parameters share
(`shared`: counters), and the formula (`update`), from Tensors to Tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from luminal.autograd.reverse import gradients, seed
from luminal.base import garbage
from luminal.base.dtypes import bool_, float32, int64
from luminal.base.errors import GraphError, InputError
from luminal.frontend.foreign import absent
from luminal.frontend.handle import Pair, is_tensor
from luminal.frontend.matrices.matmul import keeps
from luminal.frontend.matrices.packed import Packed
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import WeightAttrs
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.optim import saved
from luminal.optim.clip import clipped
from luminal.optim.formula import Tensors
from luminal.optim.options import check_options
from luminal.optim.scheduled import ScheduledOptions

Group: TypeAlias = dict[str, Any]
"""Parameters ("params") and the options of their update."""
Parameters: TypeAlias = Iterable[Any]
"""Parameters, pairs of a name and one (`named_parameters()`), or groups: dicts with "params"."""
Gradients: TypeAlias = "Mapping[Parameter, Tensor] | Sequence[Tensor | None]"
Slots: TypeAlias = dict[str, list[Tensor]]
"""States of each parameter, by name."""
Shared: TypeAlias = dict[str, Tensor]
"""0-d States of parameters that are updated together."""


class Update(NamedTuple):
    """New values: of parameters, and of their States as `update` got them."""

    parameters: list[Tensor]
    slots: Slots
    shared: Shared


class Optimizer(ABC):
    """Groups of Parameters with options, and the States of each Parameter that was updated."""

    def __init__(self, params: Parameters, **defaults: Any) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Parameter, dict[str, State]] = {}
        self.names: dict[Parameter, str] = {}
        self.scheduled = ScheduledOptions(self)
        if isinstance(params, Parameter | Tensor):
            params = [params]
        if not isinstance(params, Iterable):
            raise InputError(f"{self._name}: got {params!r}; pass model.parameters(), or a list")
        entries = list(params)
        if not entries:
            raise InputError(f"{self._name}: got no parameters; pass model.parameters()")
        groups = entries if isinstance(entries[0], dict) else [{"params": entries}]
        for group in groups:
            self.add_param_group(group)

    @property
    def _name(self) -> str:
        return type(self).__name__

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            raise absent(self, name, lambda candidate: False)

    # --- what a subclass says

    @abstractmethod
    def slots(self, group: Group) -> dict[str, float]:
        """The States of each parameter: their names and initial values (float32 or float64)."""

    def shared(self, group: Group) -> dict[str, int | float]:
        """States of one number that parameters share: an int's is int64, a float's float32."""
        return {}

    @abstractmethod
    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """The new values of parameters of one group."""

    def check(self, group: Group) -> None:
        """Raises InputError for options out of their range; a subclass may ask for more."""
        check_options(self._name, group)

    def momentum_option(self, group: Group) -> str | None:
        """Which option a scheduler changes as the momentum: "betas" (the first), or "momentum"."""
        return next((name for name in ("betas", "momentum") if name in group), None)

    # --- parameters

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Adds a group: "params", and options that differ from the defaults.

        Raises InputError for an unknown option, what is no Parameter of floats, one given twice.
        """
        unknown = [name for name in group if name not in self.defaults and name != "params"]
        if unknown:
            options = ", ".join(self.defaults)
            raise InputError(f"{self._name}: no option {unknown[0]!r}; the options are {options}")
        if "params" not in group:
            raise InputError(f'{self._name}: a group has no "params"; give it a list of them')
        params = group["params"]
        many = [params] if isinstance(params, Parameter | Tensor) else list(params)
        # A group that is refused leaves no names behind: its parameters may be given once more.
        names = dict(self.names)
        try:
            added = {**self.defaults, **group, "params": [self._parameter(entry) for entry in many]}
            self.check(added)
        except InputError:
            self.names = names
            raise
        self.param_groups.append(added)

    def _parameter(self, entry: Any) -> Parameter:
        name, held = entry if isinstance(entry, tuple) else (None, entry)
        if is_tensor(held) and isinstance(held.value.node.attrs, WeightAttrs):
            held = held.value.node.attrs.parameter
        if not isinstance(held, Parameter) or not (held.dtype.is_float or held.is_paired):
            raise InputError(
                f"{self._name}: {held!r} is no Parameter of floats; pass model.parameters()"
            )
        if held in self.names:
            raise InputError(f"{self._name}: {self.names[held]} is given twice; give it once")
        self.names[held] = name or held.name
        return held

    @property
    def parameters(self) -> list[Parameter]:
        """All of them, group by group: the order of gradients in a list, and of `state_dict`."""
        return [p for group in self.param_groups for p in group["params"]]

    # --- recording

    def step(
        self,
        loss: Tensor | Callable[[], Tensor] | None = None,
        clip_norm: float | Tensor | None = None,
        clip_value: float | None = None,
        *,
        when: Tensor | None = None,
    ) -> Tensor | None:
        """Records the backward pass of a scalar loss, clipping and the update; every run is a step.

        Without a loss the gradients are those of `loss.backward()`, and where the loss is a value
        of the default graph the step is run at once, as PyTorch's; afterwards `loss.item()` is
        at hand. A function is called for the loss, whose gradients it must have found, and its
        result is given back, as torch.optim's closures.

        Gradients are cut to -clip_value .. clip_value, then scaled to a norm of at most clip_norm
        all together; the norm before that is returned (None without clip_norm). Parameters that
        the loss does not depend on and those with `requires_grad=False` stay as they are. `when`,
        a 0-d bool: nothing changes in runs where it is False. Raises GraphError if the
        loss depends on none of the parameters.
        """
        if callable(loss):
            result = loss()
            self.step(None, clip_norm, clip_value, when=when)
            return result
        if loss is None:
            return self._step_of_found(clip_norm, clip_value, when)
        gradients, norm = clipped(self.gradients(loss), clip_norm, clip_value)
        self.apply(gradients, when=when)
        return norm

    def _step_of_found(
        self, clip_norm: float | Tensor | None, clip_value: float | None, when: Tensor | None
    ) -> Tensor | None:
        """The update by the gradients that `backward` has found, in the graph that has them."""
        by_parameter = {
            p: p.grad for p in self.parameters if p.requires_grad and p.grad is not None
        }
        graphs = {id(g.graph): g.graph for g in by_parameter.values()}
        if len(graphs) != 1:
            why = "no gradients: call loss.backward() first" if not by_parameter else (
                "gradients of several graphs: " + ", ".join(g.name for g in graphs.values())
            )  # fmt: skip
            raise GraphError(f"{self._name}.step: its {len(self.parameters)} parameters have {why}")
        (graph,) = graphs.values()
        gradients, norm = clipped(by_parameter, clip_norm, clip_value)
        if norm is not None:
            graph.wanted(norm)
        with graph.updating():
            self.apply(gradients, when=when)
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients that `backward` has found for its Parameters, as PyTorch's; what
        `step(loss)` records has none that add up.
        """
        for p in self.parameters:
            p.grad = None

    @keeps
    def gradients(self, loss: Tensor) -> dict[Parameter, Tensor]:
        """The gradient of a scalar loss for each Parameter that it depends on and that is trained.

        Raises GraphError if there is none.
        """
        if not is_tensor(loss):
            raise GraphError(f"{self._name}.step: the loss is {loss!r}; it must be a 0-d Tensor")
        graph = loss.graph
        weights = {
            value.node.attrs.parameter: value
            for value in graph.leaves.values()
            if isinstance(value.node.attrs, WeightAttrs)
        }
        trained = [p for p in self.parameters if p in weights and p.requires_grad]
        above = seed(loss, None, f"{self._name}.step")
        pulled = gradients(graph, [loss], [above], [weights[p] for p in trained])
        pairs = zip(trained, pulled, strict=True)
        by_parameter = {p: p.in_order(g) for p, g in pairs if g is not None}
        if not by_parameter:
            if self.parameters and all(isinstance(p, Packed) for p in self.parameters):
                raise GraphError(
                    f"{self._name}.step: its {len(self.parameters)} parameters are packed "
                    f"({self.parameters[0].name}) and have no gradients; train a model of floats, "
                    "and quantize that"
                )
            frozen = any(p in weights and not p.requires_grad for p in self.parameters)
            fix = (
                "that are trained: those it reads have requires_grad=False; set it to True"
                if frozen
                else "; compute it in one graph with the model that they are of"
            )
            raise GraphError(
                f"{self._name}.step: the loss depends on none of its {len(self.parameters)} "
                f"parameters{' ' * frozen}{fix}"
            )
        return by_parameter

    @keeps
    @garbage.held()
    def apply(self, gradients: Gradients, *, when: Tensor | None = None) -> None:
        """Records the update for gradients that are at hand; every run is a step, see `step`.

        By Parameter, or a sequence in the order of `parameters`, with None for those that stay.
        """
        by_parameter = self._by_parameter(gradients)
        if when is not None and (when.dtype is not bool_ or when.ndim):
            raise GraphError(f"{self._name}: when={when!r}; it must be a 0-d bool: compare it")
        for number, group in enumerate(self.param_groups):
            held = [p for p in group["params"] if p in by_parameter]
            # States are made for what is updated: frozen parameters take no memory.
            fresh = [p for p in held if p not in self.state]
            for p, states in zip(fresh, self.new_states(group, fresh), strict=True):
                self.state[p] = states
            # One formula for all that share their counters: the scalars of a step are formed once.
            together: dict[tuple[State, ...], list[Parameter]] = {}
            for p in held:
                key = tuple(self.state[p][name] for name in self.shared(group))
                together.setdefault(key, []).append(p)
            for members in together.values():
                pulled = [by_parameter[p] for p in members]
                changing = self.scheduled.read(pulled[0].graph, number)
                self._record(group, changing, members, pulled, when)

    # PyTorch counts Adam's steps for each parameter. Here parameters that are first updated
    # together share a counter, so a step has a few scalars in the place of hundreds; those that
    # join later (thawed layers) have one of their own.
    def new_states(self, group: Group, params: Sequence[Parameter]) -> list[dict[str, State]]:
        """Initial States of parameters of one group that are updated together from now on."""
        common = {
            name: State((), int64 if isinstance(first, int) else float32, first, name)
            for name, first in self.shared(group).items()
        }
        return [
            common | {name: self._slot(p, name, first) for name, first in self.slots(group).items()}
            for p in params
        ]

    def _slot(self, p: Parameter, name: str, first: float) -> State:
        state = State(p.shape, saved.slot_dtype(p), first, f"{self.names[p]}.{name}")
        state.follows = p
        return state

    def _by_parameter(self, gradients: Gradients) -> dict[Parameter, Tensor]:
        mapping: Mapping[Parameter, Tensor | None]
        if isinstance(gradients, Mapping):
            mapping = gradients
        else:
            parameters = self.parameters
            if len(gradients) != len(parameters):
                raise InputError(
                    f"{self._name}.apply: {len(gradients)} gradients for {len(parameters)} "
                    "parameters; give one for each in order, or a dict"
                )
            mapping = dict(zip(parameters, gradients, strict=True))
        present = {p: g for p, g in mapping.items() if g is not None}
        for p, g in present.items():
            if p not in self.names:
                raise InputError(f"{self._name}.apply: {p!r} is none of its parameters")
            if not (is_tensor(g) or (p.is_paired and isinstance(g, Pair))):
                raise InputError(
                    f"{self._name}.apply: the gradient of {self.names[p]} is {g!r}; it must be a "
                    "Tensor: lm.grad(loss, parameters) gives them"
                )
            if g.shape != p.shape:
                raise InputError(
                    f"{self._name}.apply: the gradient of {self.names[p]} has the shape {g.shape}, "
                    f"the parameter {p.shape}"
                )
        # As PyTorch, complex parameters are updated as (..., 2) of floats.
        return {p: p.as_it_lies(g) if p.is_paired else g for p, g in present.items()}

    def _record(
        self, group: Group, changing: Group, params: Sequence[Parameter], gradients: Tensors,
        when: Tensor | None,
    ) -> None:  # fmt: skip
        """Assigns what `update` gives for parameters that share their counters."""
        graph = gradients[0].graph
        states = [self.state[p] for p in params]
        before = [graph.in_floats(p) for p in params]
        slots = {
            name: [graph.in_floats(entry[name]) for entry in states] for name in self.slots(group)
        }
        shared = {name: graph.read(states[0][name]) for name in self.shared(group)}
        new = self.update(group | changing, before, gradients, slots, shared)
        if not isinstance(new, Update):
            raise GraphError(
                f"{self._name}.update: it returned a {type(new).__name__}; return "
                "optim.optimizer.Update(parameters, slots, shared)"
            )
        rows: list[tuple[Parameter | State, Tensor, Tensor]]
        rows = [*zip(params, before, new.parameters, strict=True)]
        for name, values in slots.items():
            held = [entry[name] for entry in states]
            rows += zip(held, values, new.slots[name], strict=True)
        rows += [(states[0][name], shared[name], new.shared[name]) for name in shared]
        # In the order in which the backward pass knows gradients, so each is used while it is near.
        for target, old, value in reversed(rows):  # in the order in which gradients are known
            graph.assign(target, value if when is None else where(when, value, old))

    # --- saving

    def state_dict(self) -> dict[str, Any]:
        """Copies of all States and options, in the structure of PyTorch's.

        "state": by a parameter's number, an array for each slot and a number for what is shared;
        "param_groups": options, and the numbers of the group's parameters. A rate that is a Tensor
        is None.
        """
        return saved.state_dict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over States and options; programs at hand go on from there, with their options.

        A rate that is a Tensor stays. Raises LoadError, and changes nothing, where groups, shapes
        or names do not fit; it names the parameter.
        """
        saved.load_state_dict(self, state_dict)

    def __repr__(self) -> str:
        rows = [
            f"{len(group['params'])} parameters: "
            + ", ".join(f"{name}={group[name]!r}" for name in self.defaults)
            for group in self.param_groups
        ]
        return f"{self._name}({'; '.join(rows)})"
