"""A recorded graph compiled, and called with tensors: their memory is read and written in place.

What a call does is known when the graph is: its steps are written out as the source of a function,
as loops over plans would take longer than a small program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._C._dynamo.guards import (  # type: ignore[attr-defined]
    _empty_strided_cpu,
    _reinterpret_tensor,
)

import luminal as lm
from luminal.base import forks
from luminal.base.errors import InputError
from luminal.hlir.graph import Output
from luminal.hlir.index_inputs import IndexInput, index_inputs
from luminal.memory.arrays import Array
from luminal.shape.expression import Expression
from luminal.torch_backend.borrowed_state import array_of
from luminal.torch_backend.devices import HOST, backend_of, index_of
from luminal.torch_backend.layout import inverse
from luminal.torch_backend.plans import (
    Borrowed,
    Derived,
    InputPlan,
    Number,
    OutputPlan,
    Pairs,
    Result,
    SizeSource,
    Spread,
    StatePlan,
    Translation,
)
from luminal.torch_backend.sizes import Size
from luminal.torch_backend.tensors import (
    Made,
    aligned,
    empty_on,
    making,
    retyped,
    value,
    viewed,
    viewing,
)
from luminal.torch_backend.weights import Weights

MAX_BINDINGS = 64  # sets of open sizes whose bindings are kept

_LARGEST_SEED = 2**63 - 1


class Binding(NamedTuple):
    """What a call needs for one set of open sizes."""

    run: Callable[[Sequence[int], Sequence[int]], None]
    made: tuple[Made, ...]
    views: tuple[tuple[Any, ...], ...]  # of a Derived: sizes, strides, offset; of a Spread: Made
    sizes: Mapping[str, int]


def compiled(translation: Translation, options: Mapping[str, Any]) -> Callable[[list[Any]], Any]:
    """A function of a list of tensors and sizes, as AOTAutograd calls it; it empties the list."""
    call = _Caller(translation, options).function()
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


# Loops over plans of inputs and outputs took longer than a small program runs. What a call does is
# known when the graph is, so it is written out as source, once.
class _Caller:
    """Writes the source of a call: a0 is its first argument, x0 what the program reads first, o0
    what it writes first.
    """

    def __init__(self, translation: Translation, options: Mapping[str, Any]) -> None:
        self.made = translation
        self.plans = _computed(translation)
        self.views = [
            lie
            for result in translation.results
            if isinstance(lie := _lying(result), Derived | Spread)
        ]
        self.there = translation.device.type != "cpu"
        sinks, backend = translation.graph.sinks, backend_of(translation.device)
        # Ranks start collectives in one order, and a search on each might find another.
        chosen = {**options, "mode": "fast"} if translation.groups else options
        self.executable = lm.compile(translation.graph, backend, **chosen) if sinks else None
        if self.executable is not None and translation.groups:
            from luminal.torch_backend.process_groups import engine  # late: most have one rank

            self.executable.join({name: engine(name) for name in translation.groups})
        if self.executable is not None and self.there:
            for state in translation.states:
                state.state.device = self.executable.device
        self.read = self.executable.input_names if self.executable else ()
        by_name = {plan.name: plan for plan in translation.inputs}
        self.inputs = [by_name.get(name) for name in self.read]  # None: the seed
        self.weights = [plan for plan in translation.inputs if plan.parameter is not None]
        self.places = {plan.name: k for k, plan in enumerate(self.plans)}
        self.bindings: dict[Any, Binding] = {}
        self.names: dict[str, Any] = {
            "bindings": self.bindings, "bind": self.bind, "empty": _empty_strided_cpu,
            "empty_there": partial(empty_on, translation.device), "aligned": aligned,
            "array": array_of,
            "reinterpret": _reinterpret_tensor,
            "increment_version": torch.autograd.graph.increment_version,
            "number": partial(torch.tensor, device=HOST), "torch": torch,
            "as_complex": torch.view_as_complex,
            "random": partial(torch.randint, _LARGEST_SEED, (), device=HOST),
        }  # fmt: skip

    def function(self) -> Callable[[list[Any]], Any]:
        """The function of a call, compiled from its lines."""
        body = [
            *self._arguments(), *self._weights(), *self._borrowed(), *self._run(), *self._after()
        ]  # fmt: skip
        if self.there:
            self.names["device"] = torch.cuda.device
            body = [f"with device({index_of(self.made.device)}):", *map("    {}".format, body)]
        # States hold the memory of one call's arguments, so calls take turns.
        if self.made.states:  # which hold the memory of one call's arguments
            self.names["lock"] = forks.rlock()
            body = ["with lock:", *(f"    {line}" for line in body)]
        exec("def call(args):\n" + "".join(f"    {line}\n" for line in body), self.names)
        call: Callable[[list[Any]], Any] = self.names["call"]
        return call

    def bind(self, key: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Binding:
        """The binding for these open sizes, from now on found by them."""
        sizes: Mapping[str, int] = self.made.sizes.completed(
            dict(zip(self.made.dims, key, strict=False))
        )
        run: Callable[[Any, Any], None] = _nothing
        if self.executable is not None:
            shapes = [tuple(x.shape) for x in inputs]
            program = self.executable.at(shapes, sizes, self._of_host())
            run, sizes = program.run, {**sizes, **program.dims}
        outputs = tuple(making(plan, sizes) for plan in self.plans)
        views = tuple(viewing(view, sizes) for view in self.views)
        binding = Binding(run, outputs, views, sizes)
        # The oldest goes: a dict keeps the order of insertion, and looking up which was used last
        # would cost each call.
        if len(self.bindings) >= MAX_BINDINGS:
            del self.bindings[next(iter(self.bindings))]
        self.bindings[tuple(key)] = binding
        return binding

    # --- the steps of a call

    def _arguments(self) -> list[str]:
        count = self.made.arguments
        return [
            *([f"{_listed('a', range(count))} = args"] if count else []),
            # AOTAutograd hands over a list so that arguments die as early as they can: nobody else
            # holds the activations of a backward pass.
            "args.clear()",
            *(f"x{k} = {self._read(k, plan)}" for k, plan in enumerate(self.inputs)),
        ]

    def _read(self, number: int, plan: InputPlan | None) -> str:
        if plan is None or not plan.calls:
            return self._laid(plan)
        self.names[f"part{number}"] = partial(viewed, plan.calls)
        sizes = "".join(f"{name!r}: {_size(place)}, " for name, place in self.made.dims.items())
        laid = f"part{number}(a{plan.position}, {{{sizes}}}).contiguous()"
        return f"aligned({laid})" if self._is_there(plan) else laid

    def _borrowed(self) -> list[str]:
        """States take the memory of arguments, or of a row-major copy, which is copied back."""
        lines = []
        for k, plan in enumerate(self.made.states):
            self.names[f"state{k}"] = plan.state
            lines += [f"s{k} = {self._laid(plan)}", f"state{k}.borrow(s{k})"]
        return lines

    def _settled(self) -> list[str]:
        return [f"state{k}.settle()" for k, _ in enumerate(self.made.states)]

    def _copied_back(self) -> list[str]:
        lines = []
        for k, plan in enumerate(self.made.states):
            name = f"a{plan.position}"
            lines += [
                f"if s{k}.data_ptr() != {name}.data_ptr():",
                f"    {name}.copy_(s{k}{_permuted(inverse(plan.order))})",
                # Autograd notices that a saved tensor was changed by its version alone, and a write
                # by address moves none.
                f"elif not {name}.is_inference():",
                f"    increment_version({name})",
            ]
        return lines

    def _laid(self, plan: InputPlan | StatePlan | None) -> str:
        """A tensor with row-major memory, its dims in the plan's order."""
        if plan is None:
            return "random()"
        name = f"a{plan.position}"
        if isinstance(plan, InputPlan) and plan.number is not None:
            return f"number({name}, dtype={plan.number})"
        permuted = _permuted(plan.order or ())
        if self._is_there(plan):
            return f"aligned({name}{permuted}.contiguous())"
        if permuted:
            return f"{name}{permuted}.contiguous()"
        # Most tensors are dense; the rest is copied, as memory is read by address.
        return f"{name} if {name}.is_contiguous() else {name}.contiguous()"

    def _weights(self) -> list[str]:
        """Weights whose version or memory has moved are set anew."""
        if not self.weights:
            return []
        held = Weights(self.weights)
        self.names["weights"] = held
        names = [f"a{plan.position}" for plan in self.weights]
        seen = "".join(f"{name}._version, {name}.data_ptr(), " for name in names)
        return [
            "try:",
            f"    if weights.seen != ({seen}) or weights.differ():",
            f"        weights.set(({', '.join(names)},), ({seen}))",
            "except RuntimeError:  # tensors of inference mode have no version",
            f"    weights.set(({', '.join(names)},), None)",
        ]

    def _run(self) -> list[str]:
        key = "".join(f"{_size(place)}, " for place in self.made.dims.values())
        dims = self.made.dims.keys() | self.made.sizes.computed.keys()
        if not dims >= self.made.graph.dims.keys():  # the rest is read off the shapes
            key += "".join(f"x{k}.shape, " for k in range(len(self.inputs)))
        xs = _listed("x", range(len(self.inputs)))
        outputs = range(len(self.plans))
        reads = [self._place(f"x{k}", self._is_there(x)) for k, x in enumerate(self.inputs)]
        writes = [self._place(f"o{k}", _lies_there(plan)) for k, plan in enumerate(self.plans)]
        run = [f"run(({''.join(reads)}), ({''.join(writes)}))"]
        if self.there:
            run = self._in_order([*run, *self._settled()])
        return [
            f"binding = bindings.get(({key})) or bind(({key}), ({xs}))",
            "run, made, views, sizes = binding",
            *([f"{_listed('m', outputs)} = made"] if self.plans else []),
            *(f"o{k} = {_making_of(plan)}(*m{k})" for k, plan in enumerate(self.plans)),
            *self._index_checks(),
            *run,
        ]

    def _in_order(self, run: list[str]) -> list[str]:
        """A run behind what PyTorch has queued in its current stream, and before what it queues
        there later: memory that it uses again, too.
        """
        device = self.executable.device if self.executable else None
        if device is None:
            return run
        names = {"stream": torch.cuda.current_stream, "follow": device.follow}
        self.names |= {**names, "precede": device.precede}
        return [
            f"queue = stream({index_of(self.made.device)}).cuda_stream",
            "follow(queue)",
            "try:",
            *(f"    {line}" for line in run),
            "finally:",
            "    precede(queue)",
        ]

    def _is_there(self, plan: InputPlan | StatePlan | None) -> bool:
        """Does an argument lie on a device that computes? The seed does not."""
        if not self.there or plan is None:
            return False
        return isinstance(plan, StatePlan) or not plan.is_host

    def _place(self, name: str, there: bool) -> str:
        """What a run is told of a tensor: its address, or, of the host's on a device, its array."""
        return f"array({name}), " if self.there and not there else f"{name}.data_ptr(), "

    def _of_host(self) -> list[str]:
        """The inputs and outputs of a device's program that the host has."""
        pairs = zip(self.read, self.inputs, strict=True)
        read = [name for name, plan in pairs if not self._is_there(plan)]
        return read + [plan.name for plan in self.plans if not _lies_there(plan)]

    def _index_checks(self) -> list[str]:
        positions = {name: n for name, n in self.made.positions.items() if name in self.read}
        of_host = {*self._of_host()} if self.there else {*self.read}  # the rest a program checks
        uses = index_inputs(self.executable.graph) if self.executable else ()
        checks: list[tuple[str, Callable[[Any, Mapping[str, int]], None]]] = [
            (use.name, partial(_check_use, use))
            for use in uses
            if use.name in of_host
            and (use.steps or str(use.extent) not in map(str, positions.get(use.name, ())))
        ]
        checks += [(name, partial(_check_positions, n)) for name, n in positions.items()]
        for k, (_, check) in enumerate(checks):
            self.names[f"check{k}"] = check
        return [
            f"check{k}(x{self.read.index(name)}.numpy(), sizes)"
            for k, (name, _) in enumerate(checks)
        ]

    def _after(self) -> list[str]:
        lines = []
        for k, (plan, check) in enumerate(self.made.checks):
            self.names[f"sound{k}"] = check
            lines.append(f"sound{k}(o{self.places[plan.name]})")
        # Checks come before copies are written back, so that a wrong result spreads no further.
        lines += [] if self.there else self._settled()
        lines += self._copied_back()
        lines += [f"a{k}.copy_({self._result(k, lie)})" for k, lie in self.made.written]
        results = [self._result(k, result) for k, result in enumerate(self.made.results)]
        return [*lines, f"return [{', '.join(results)}]"]

    def _result(self, number: int, result: Result) -> str:
        match result:
            case Pairs(lie):
                return f"as_complex({self._result(number, lie)})"
            case OutputPlan():
                return f"o{self.places[result.name]}"
            case Derived(whole):
                how = f"o{self.places[whole.name]}, *views[{self.views.index(result)}]"
                if result.dtype is whole.dtype:
                    return f"reinterpret({how})"
                self.names[f"retyped{number}"] = partial(retyped, result.dtype)
                return f"retyped{number}({how})"
            case Spread(dense):
                spread = f"{_making_of(dense)}(*views[{self.views.index(result)}])"
                return f"{spread}.copy_(o{self.places[dense.name]})"
            case Number(scalar):
                return f"o{self.places[scalar.name]}.item()"
            case Borrowed(position, ()):
                return f"a{position}"
            case Borrowed(position, calls):
                self.names[f"view{number}"] = partial(viewed, calls)
                return f"view{number}(a{position}, sizes)"
            case Expression():
                self.names[f"size{number}"] = result.evaluate
                return f"size{number}(sizes)"
        return repr(result)


def _check_use(use: IndexInput, places: Array, sizes: Mapping[str, int]) -> None:
    try:
        use.check(places, sizes)
    except InputError as error:
        # PyTorch's own type: programs catch what eager mode raises.
        raise IndexError(str(error)) from None


def _check_positions(counts: Sequence[Size], places: Array, sizes: Mapping[str, int]) -> None:
    """Raises IndexError for one that is negative, or not below the least of the counts."""
    n = min(value(counts, sizes))
    if places.size and (int(places.min()) < 0 or int(places.max()) >= n):
        wrong = int(places[(places < 0) | (places >= n)].flat[0])
        raise IndexError(f"index {wrong} is out of range for {n}")


def _lies_there(plan: OutputPlan) -> bool:
    return plan.device != HOST


def _making_of(plan: OutputPlan) -> str:
    """The function that makes an output's tensor."""
    return "empty_there" if _lies_there(plan) else "empty"


def _listed(letter: str, numbers: Sequence[int]) -> str:
    return "".join(f"{letter}{k}, " for k in numbers)


def _size(place: SizeSource) -> str:
    position, k = place
    return f"a{position}" if k is None else f"a{position}.shape[{k}]"


def _permuted(order: Sequence[int]) -> str:
    """A call of `permute`, where it does something."""
    return f".permute({tuple(order)})" if tuple(order) != tuple(range(len(order))) else ""


def _nothing(inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """The run of a graph that computes nothing."""


def _lying(result: Result) -> Result:
    """How a result lies in memory, complex numbers as pairs."""
    return result.lie if isinstance(result, Pairs) else result


def _computed(translation: Translation) -> list[OutputPlan]:
    """The outputs of the program, in its order."""
    results = [_lying(x) for x in (*translation.results, *(x for _, x in translation.written))]
    plans = [r for r in results if isinstance(r, OutputPlan)]
    plans += [r.whole for r in results if isinstance(r, Derived)]
    plans += [r.dense for r in results if isinstance(r, Spread)]
    plans += [r.scalar for r in results if isinstance(r, Number)]
    plans += [plan for plan, _ in translation.checks]
    by_name = {plan.name: plan for plan in plans}
    return [by_name[sink.name] for sink in translation.graph.sinks if isinstance(sink, Output)]
