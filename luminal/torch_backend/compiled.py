"""A recorded graph compiled, and called with tensors: their memory is read and written in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import luminal as lm
from luminal.hlir.index_inputs import index_inputs
from luminal.hlir.state import Parameter
from luminal.runtime.addressed import Addressed
from luminal.runtime.arrays import Array
from luminal.shape.expression import Expression
from luminal.torch_backend.translation import (
    Borrowed,
    InputPlan,
    OutputPlan,
    Result,
    Translation,
)
from luminal.torch_backend.types import dtype_of

_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Made:
    """How an output's tensor is made: sizes and strides."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a call needs for one set of open sizes."""

    program: Addressed | None
    outputs: tuple[_Made, ...]
    sizes: Mapping[str, int]


class Compiled:
    """A function of a list of tensors and sizes, as AOTAutograd calls it. It empties the list."""

    def __init__(self, translation: Translation, options: Mapping[str, Any]) -> None:
        self._boxed_call = True  # of the instance: wrappers copy its attributes
        self._made = translation
        self._results = tuple(translation.results)
        self._plans = _computed(translation)
        self.executable = lm.compile(translation.graph, **options) if self._plans else None
        read = self.executable.input_names if self.executable else ()
        by_name = {plan.name: plan for plan in translation.inputs}
        self._inputs = [by_name.get(name) for name in read]  # None: the seed
        self._weights = [
            _Weight(plan, plan.parameter) for plan in translation.inputs if plan.parameter
        ]
        self._dims = tuple(translation.dims.items())
        # Dims that no argument is: they are read off the shapes.
        self._reads_dims = len(translation.dims) < len(translation.graph.dims)
        self._bindings: dict[tuple[Any, ...], _Binding] = {}
        places = {plan.name: k for k, plan in enumerate(self._plans)}
        self._take = tuple(_taker(each, places) for each in self._results)
        self._written = [(k, places[plan.name]) for k, plan in translation.written]
        self._value_checks = [(places[plan.name], check) for plan, check in translation.checks]
        graph = self.executable.graph if self.executable else None
        self._checks = [
            (read.index(use.name), use) for use in (index_inputs(graph) if graph else ())
        ]

    def __call__(self, args: list[Any]) -> list[Any]:
        key: tuple[Any, ...] = tuple([args[position] for _, position in self._dims])
        inputs = [_laid(plan, args) for plan in self._inputs]
        if self._reads_dims:
            key = (*key, *[x.shape for x in inputs])
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._bindings[key] = self._bound(args, key, inputs)
        for weight in self._weights:
            weight.refresh(args)
        outputs = [torch.empty_strided(o.size, o.stride, dtype=o.dtype) for o in binding.outputs]
        if binding.program is not None:
            for k, use in self._checks:
                use.check(inputs[k].numpy(), binding.sizes)
            binding.program.run([x.data_ptr() for x in inputs], [x.data_ptr() for x in outputs])
        for place, check in self._value_checks:
            check(outputs[place])
        for position, place in self._written:
            args[position].copy_(outputs[place])
        results = [take(args, outputs, binding.sizes) for take in self._take]
        args.clear()
        return results

    def _bound(
        self, args: Sequence[Any], key: tuple[Any, ...], inputs: Sequence[torch.Tensor]
    ) -> _Binding:
        sizes = {name: n for (name, _), n in zip(self._dims, key, strict=False)}
        program = None
        if self.executable is not None:
            program = self.executable.at([tuple(x.shape) for x in inputs], sizes)
            sizes = {**sizes, **program.dims}
        made = tuple(_making(plan, sizes) for plan in self._plans)
        return _Binding(program, made, sizes)


def _computed(made: Translation) -> list[OutputPlan]:
    """The outputs of the program, in its order."""
    found = [r for r in made.results if isinstance(r, OutputPlan)]
    found += [plan for _, plan in made.written]
    found += [plan for plan, _ in made.checks]
    names = [sink.name for sink in made.graph.sinks]  # type: ignore[union-attr]
    by_name = {plan.name: plan for plan in found}
    return [by_name[name] for name in names]


def _laid(plan: InputPlan | None, args: Sequence[Any]) -> torch.Tensor:
    """The argument as a tensor whose memory is row-major, its dims in the plan's order."""
    if plan is None:
        return torch.randint(_LARGEST_SEED, ())
    x: torch.Tensor = args[plan.position]
    if plan.order is not None and plan.order != tuple(range(len(plan.order))):
        laid = x.permute(plan.order)
        return laid if laid.is_contiguous() else laid.contiguous()
    return x if x.is_contiguous() else x.contiguous()


def _making(plan: OutputPlan, sizes: Mapping[str, int]) -> _Made:
    size = tuple(_value(n, sizes) for n in plan.shape)
    stride, step = [0] * len(size), 1
    for k in reversed(plan.order):
        stride[k] = step
        step *= max(size[k], 1)
    return _Made(size, tuple(stride), plan.dtype)


def _value(n: int | Expression, sizes: Mapping[str, int]) -> int:
    return n.evaluate(sizes) if isinstance(n, Expression) else n


_Take = Callable[[Sequence[Any], Sequence[torch.Tensor], Mapping[str, int]], Any]


def _taker(result: Result, places: Mapping[str, int]) -> _Take:
    """A function that gives one result of a call."""
    if isinstance(result, OutputPlan):
        place = places[result.name]
        return lambda args, outputs, sizes: outputs[place]
    if isinstance(result, Borrowed):
        return partial(_borrowed, result)
    if isinstance(result, Expression):
        return lambda args, outputs, sizes: _value(result, sizes)
    return lambda args, outputs, sizes: result


def _borrowed(result: Borrowed, args: Sequence[Any], _: Any, sizes: Mapping[str, int]) -> Any:
    x = args[result.position]
    for function, others, named in result.calls:
        x = function(x, *_known(others, sizes), **named)
    return x


def _known(x: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(x, list | tuple):
        return [_known(each, sizes) for each in x]
    return _value(x, sizes)


class _Weight:
    """A Parameter in step with a tensor: set anew where its version or its memory moved."""

    __slots__ = ("_parameter", "_plan", "_seen", "_tensor")

    def __init__(self, plan: InputPlan, parameter: Parameter) -> None:
        self._plan = plan
        self._parameter = parameter
        self._seen: tuple[int, int] | None = None
        self._tensor: torch.Tensor | None = None

    def refresh(self, args: Sequence[Any]) -> None:
        """Looks at the tensor that a call gives."""
        x: torch.Tensor = args[self._plan.position]
        seen = (x.data_ptr(), -1 if x.is_inference() else x._version)
        if seen == self._seen and seen[1] >= 0:
            return
        laid = _laid(self._plan, args)
        self._parameter.set(_array(laid))
        self._seen, self._tensor = seen, laid


def _array(x: torch.Tensor) -> Array:
    """A read-only array over a row-major tensor's memory, which the caller keeps alive."""
    dtype, shape = dtype_of(x.dtype).numpy, tuple(x.shape)
    if x.numel() == 0:
        array = np.empty(shape, dtype)
    else:
        memory = (ctypes.c_char * x.nbytes).from_address(x.data_ptr())
        array = np.ndarray(shape, dtype, memory)  # type: ignore[arg-type]
    array.flags.writeable = False
    return array
