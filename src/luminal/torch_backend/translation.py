"""An aten graph (FX) recorded with the library's functions, and what its results are."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_aggregate

import luminal as lm
from luminal.base.errors import LuminalError
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.handle import is_tensor
from luminal.memory.parameter import Parameter
from luminal.shape.expression import Expression
from luminal.torch_backend import ops  # noqa: F401  fills the table
from luminal.torch_backend.borrowed_state import BorrowedState
from luminal.torch_backend.devices import HOST, device_of
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.kernel_checks import may_refuse, refusal
from luminal.torch_backend.layout import has_places, inverse, memory_order, strides_of_ones
from luminal.torch_backend.nodes import (
    ASSERTIONS,
    VIEWS,
    WITH_EFFECTS,
    given_sizes,
    has_complex,
    is_asserted,
    is_object,
    is_token_of,
    memory_of,
    meta_of,
    name_of,
    tensor_of,
    viewed_by,
)
from luminal.torch_backend.ops import complex_numbers, registry
from luminal.torch_backend.ops.randomness import keys_for
from luminal.torch_backend.ops.refusals import noted, refuse_positions_there
from luminal.torch_backend.plans import (
    Borrowed,
    Calls,
    Derived,
    InputPlan,
    Number,
    OutputPlan,
    Pairs,
    Result,
    Results,
    Spread,
    StatePlan,
    Translation,
)
from luminal.torch_backend.same_types import checked_results
from luminal.torch_backend.sizes import Size, Sizes, is_known_in_a_run
from luminal.torch_backend.types import BITS, as_real, dtype_of, number_type

_PLACES = frozenset(["device", "layout", "memory_format", "pin_memory", "names", "requires_grad"])
"""Arguments that say where elements lie."""


def translated(module: GraphModule, static: Sequence[int], lie: Results) -> Translation:
    """Records `module`'s graph; arguments at the positions `static` are Weights, results lie as is
    said.

    Raises UnsupportedError that names what the library has not.
    """
    return _Translator(module, frozenset(static), lie).run()


def missing(module: GraphModule) -> dict[Node, str]:
    """The nodes of a graph that the library has not, in order, each with the reason."""
    translator = _Translator(module, frozenset(), Results(0, share=False), goes_on=True)
    translator.run()
    return translator.missing


# After each row of the table the result's dtype and shape are compared with PyTorch's: a row that
# means something else is a refusal, never a wrong result. AOTAutograd's graphs are functional and
# of a few hundred operators; Dynamo's own are Python's calls, with writes in place and aliases.
class _Translator:
    """One walk over a graph. `goes_on`: what cannot be recorded is noted, its value an Input."""

    def __init__(
        self,
        module: GraphModule,
        static: frozenset[int],
        lie: Results,
        *,
        goes_on: bool = False,
    ) -> None:
        self.module = module
        self.lie = lie
        self.goes_on = goes_on
        self.missing: dict[Node, str] = {}
        self.static = static
        self.graph = lm.Graph("torch")
        self.sizes = Sizes(self.graph, given_sizes(module))
        self.device = device_of(module)
        self.made = Translation(self.graph, self.sizes, self.device)
        self.values: dict[Node, Any] = {}
        self.positions: dict[Node, int] = {}
        self.outputs: dict[Any, OutputPlan] = {}  # by node, order, dtype and device
        self.states: dict[Node, StatePlan] = {}
        writes = [n.args for n in module.graph.nodes if n.target is torch.ops.aten.copy_.default]
        self.written = {place for place, *_ in writes}
        self.new_values = {value: place for place, value, *_ in writes}  # of arguments

    def run(self) -> Translation:
        with lm.recording(self.graph), keys_for(self.graph), noted() as notes:
            for node in self.module.graph.nodes:
                try:
                    self._node(node)
                except UnsupportedError as reason:
                    if not self.goes_on:
                        raise
                    self._pass_over(node, str(reason))
            if self.device.type != "cpu":
                refuse_positions_there(self.graph, self._inputs_there(), notes)
        for k, (condition, error) in enumerate(notes.conditions):
            self._refuse(f"refused{k}", condition, error)
        self.made.positions = notes.positions
        self.made.groups = {
            node.attrs.axis for node in self.graph.builder if node.op.name == "Collective"
        }
        return self.made

    def _inputs_there(self) -> set[str]:
        """The names of the inputs that lie on the device."""
        return {plan.name for plan in self.made.inputs if not plan.is_host}

    def _refuse(self, name: str, condition: lm.Tensor, error: Exception) -> None:
        """Has a call raise an error where a condition is true. A device is not waited for: what is
        asserted there stops it, as PyTorch's own kernels do.
        """
        there = self.device.type != "cpu"
        self.graph.output(condition.logical_not() if there else condition, name)
        plan = OutputPlan(name, (), (), torch.bool, device=self.device)
        check = partial(_asserted, str(error)) if there else partial(_refused, error)
        self.made.checks.append((plan, check))

    def _pass_over(self, node: Node, reason: str) -> None:
        if node.op != "output":
            self.missing[node] = reason
            self.values[node] = self._stand_in(node.meta.get("val"), node.name)

    def _stand_in(self, held: Any, name: str) -> Any:
        """An Input of the type of what could not be recorded; None for what can be none."""
        if isinstance(held, tuple | list):
            return [self._stand_in(part, f"{name}_{k}") for k, part in enumerate(held)]
        if not isinstance(held, torch.Tensor):
            return held
        try:
            number_type(held.dtype)
            laid = as_real(held)
            tensor = self.graph.tensor(self.sizes.shape(laid.shape), dtype_of(laid.dtype), name)
        except UnsupportedError:
            return None
        return lm.view_as_complex(tensor) if held.is_complex() else tensor

    def _node(self, node: Node) -> None:
        match node.op:
            case "placeholder":
                self._argument(node)
            case "get_attr":
                self.values[node] = self._constant(node)
            case "call_function":
                self._call(node)
            case "output":
                self._finish(node.args[0])  # type: ignore[arg-type]

    # --- leaves

    def _argument(self, node: Node) -> None:
        position = self.positions[node] = self.made.arguments
        self.made.arguments += 1
        held = node.meta["val"]
        if isinstance(held, torch.SymInt) and not is_known_in_a_run(held):
            self._number_input(node, position, torch.int64)
        elif isinstance(held, torch.SymInt):
            size = self.values[node] = self.sizes.of(held)
            if isinstance(size, Expression) and size.op == "symbol":
                self.made.dims[str(size)] = position, None
        elif isinstance(held, torch.Tensor):
            for k, size in enumerate(self.sizes.shape(held.shape)):
                if isinstance(size, Expression) and size.op == "symbol":
                    self.made.dims.setdefault(str(size), (position, k))
            if node.users and all(map(partial(is_token_of, node), node.users)):
                self.values[node] = _TOKEN
            elif node.users:
                self._input(node, position, held)
        elif isinstance(held, torch.SymFloat):
            self._number_input(node, position, torch.float64)
        else:
            self.values[node] = held

    def _number_input(self, node: Node, position: int, dtype: torch.dtype) -> None:
        self.values[node] = self.graph.tensor((), dtype_of(dtype), node.name)
        self.made.inputs.append(InputPlan(position, node.name, (), number=dtype, is_host=True))

    def _input(self, node: Node, position: int, held: torch.Tensor) -> None:
        if held.layout is not torch.strided:
            raise UnsupportedError(f"{node.name}: a tensor of {held.layout}")
        if held.is_complex():
            self._input_of_pairs(node, position, held)
            return
        dtype, order = dtype_of(held.dtype), memory_order(held.shape, held.stride())
        shape = self.sizes.shape(held.shape)
        laid = [shape[k] for k in order] if order else list(shape)
        is_fixed = order is not None and all(isinstance(n, int) for n in laid)
        if node in self.written and is_fixed and held.device == self.device:
            tensor = self._state(node, position, order, laid)  # type: ignore[arg-type]
        elif position in self.static and order and is_fixed and self.device.type == "cpu":
            parameter = Parameter(tuple(laid), dtype, node.name)
            tensor = self.graph.weight_of(parameter)
            self.made.inputs.append(InputPlan(position, node.name, order, parameter))
        else:
            tensor = self.graph.tensor(tuple(laid), dtype, node.name)
            is_host = held.device.type == "cpu"
            self.made.inputs.append(InputPlan(position, node.name, order, is_host=is_host))
        if order and order != tuple(range(len(order))):
            tensor = tensor.permute(*inverse(order))
        self.values[node] = tensor

    def _input_of_pairs(self, node: Node, position: int, held: torch.Tensor) -> None:
        """An argument of complex numbers, read where it lies."""
        number_type(held.dtype)  # raises for those of 32 bits
        laid = as_real(held)
        tensor = self.graph.tensor(self.sizes.shape(laid.shape), dtype_of(laid.dtype), node.name)
        is_host = held.device.type == "cpu"
        calls: Calls = ((as_real, (), {}),)
        self.made.inputs.append(InputPlan(position, node.name, None, calls=calls, is_host=is_host))
        self.values[node] = lm.view_as_complex(tensor)

    def _state(
        self, node: Node, position: int, order: tuple[int, ...], laid: Sequence[Any]
    ) -> lm.Tensor:
        """The value that an argument has at the start, which is overwritten."""
        state = BorrowedState(laid, dtype_of(tensor_of(node).dtype), node.name)
        plan = self.states[node] = StatePlan(position, order, state)
        self.made.states.append(plan)
        return self.graph.read(state)

    def _constant(self, node: Node) -> Any:
        value: Any = self.module
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(f"{node.target}: a {type(value).__name__} in the graph")
        number_type(value.dtype)
        with unset_fake_temporarily():
            is_complex, value = value.is_complex(), as_real(value)
            dtype = dtype_of(value.dtype)
            whole = value.detach().contiguous()
            if value.dtype in BITS:
                array = whole.view(BITS[value.dtype]).numpy().view(dtype.numpy)
            else:
                array = whole.numpy()
        constant = lm.constant(array.copy(), dtype)
        return lm.view_as_complex(constant) if is_complex else constant

    # --- operators

    def _call(self, node: Node) -> None:
        held = node.meta.get("val")
        if node.target is operator.getitem:
            whole, position = node.args
            results = self.values[whole]  # type: ignore[index]
            if results is None:
                raise UnsupportedError(f"{whole}: not in the library")
            self.values[node] = results[position]
        elif isinstance(held, torch.SymFloat) or self._is_of_elements(node, held):
            self.values[node] = self._number(node)
        elif isinstance(held, torch.SymInt | int):
            self.values[node] = self.sizes.of(held)
        elif self._is_number_checked(node, held):
            self.values[node] = None
        elif node.target is torch.ops.aten.copy_.default:
            self._write(node)
        elif node.target is WITH_EFFECTS:
            self._effect(node)
        elif node.target in ASSERTIONS:
            self.values[node] = None
        elif node.target is _AS_STRIDED and self._reads_storage(node):
            self._view_input(node)
        else:
            self.values[node] = self._recorded(node, held)

    def _is_of_elements(self, node: Node, held: Any) -> bool:
        """Is it a number that a tensor holds, or one made of such?"""
        if not isinstance(held, torch.SymInt) or is_known_in_a_run(held):
            return False
        return node.target is _ITEM or any(map(self._is_number, node.all_input_nodes))

    def _is_number_checked(self, node: Node, held: Any) -> bool:
        """Is it what PyTorch asserts of a number that the program computes?"""
        return (
            isinstance(held, torch.SymBool)
            and is_asserted(node)
            and all(map(self._is_number, node.all_input_nodes))
        )

    def _is_number(self, node: Node) -> bool:
        """Is it a number that the program computes?"""
        held = node.meta.get("val")
        return isinstance(held, torch.SymFloat) or (
            isinstance(held, torch.SymInt) and is_tensor(self.values.get(node))
        )

    def _number(self, node: Node) -> lm.Tensor:
        """A number made of open sizes or of elements: a scalar tensor, floats of Python's
        precision.
        """
        function = _ON_NUMBERS.get(node.target)
        if function is None:
            raise UnsupportedError(f"{name_of(node.target)}: not in the library")
        try:
            operands = [
                lm.constant(x, lm.float64) if isinstance(x, Expression) else x
                for x in self._converted(node.args)
            ]
            number: lm.Tensor = function(*operands)
        except LuminalError as error:
            raise UnsupportedError(f"{name_of(node.target)}: {error}") from error
        return number

    def _reads_storage(self, node: Node) -> bool:
        """Does `as_strided` of an argument read what the argument itself does not show?"""
        operand: Any = node.args[0]
        held = tensor_of(operand)
        shows_all = memory_order(held.shape, held.stride()) and held.storage_offset() == 0
        return not shows_all and self._borrowed(operand) is not None

    def _view_input(self, node: Node) -> None:
        """A view of an argument that PyTorch makes before a run."""
        held, below = tensor_of(node), self._borrowed(node.args[0])  # type: ignore[arg-type]
        assert below is not None
        named = self._converted_all(node.kwargs)
        calls = (*below.calls, (_AS_STRIDED, self._converted(node.args[1:]), named))
        shape, dtype = self.sizes.shape(held.shape), dtype_of(held.dtype)
        self.values[node] = self.graph.tensor(shape, dtype, node.name)
        self.made.inputs.append(
            InputPlan(
                below.position,
                node.name,
                None,
                calls=calls,  # type: ignore[arg-type]
                is_host=held.device.type == "cpu",
            )
        )

    def _recorded(self, node: Node, held: Any) -> Any:
        target, is_complex = node.target, has_complex(node)
        function = (complex_numbers if is_complex else registry).find(target)
        if function is None:
            raise UnsupportedError(f"{name_of(target)}: not in the library")
        if target.namespace == "_c10d_functional" and self.device.type != "cpu":  # type: ignore[union-attr]
            raise UnsupportedError(f"{name_of(target)}: of tensors on {self.device}")
        if name_of(target).startswith(_WAIT) and not self._starts_here(node.all_input_nodes[0]):
            raise UnsupportedError(f"{name_of(target)}: of a collective that PyTorch starts")
        if may_refuse(target):
            examples = map_aggregate((node.args, node.kwargs), meta_of)
            if reason := refusal(target, *examples):
                raise UnsupportedError(reason)
        try:
            args, named = self._converted(node.args), self._converted_all(node.kwargs)
            if function in registry.KNOW_LAYOUT:
                named["held"] = tensor_of(node.args[0])
            if function in registry.KNOW_RESULTS:
                each_held = held if isinstance(held, list | tuple) else (held,)
                named["results"] = [self._planned(single) for single in each_held]
            registry.check_arguments(function, args, named)
            result = function(*args, **named)
        except LuminalError as error:
            if isinstance(error, UnsupportedError) and str(error).startswith("aten."):
                raise
            raise UnsupportedError(f"{target}: {error}") from error
        except (AttributeError, TypeError) as error:
            if not is_complex:
                raise
            raise UnsupportedError(f"{target}: of complex numbers, {error}") from error
        if isinstance(held, torch.Tensor) and any(map(self._is_number, node.all_input_nodes)):
            # A number decides no dtype, a scalar may.
            result = result if held.is_complex() else result.cast(dtype_of(held.dtype))
        return checked_results(target, result, held, self.sizes)

    def _starts_here(self, source: Node) -> bool:
        """Is this the result of a collective of the graph that is recorded? PyTorch's own is under
        way until its `wait_tensor`, which has to stay PyTorch's too.
        """
        while source.target is operator.getitem:
            source = source.all_input_nodes[0]
        namespace = getattr(source.target, "namespace", "")
        return namespace == "_c10d_functional" and source not in self.missing

    def _planned(self, held: torch.Tensor) -> registry.Planned:
        return registry.Planned(self.sizes.shape(held.shape), number_type(held.dtype))

    def _effect(self, node: Node) -> None:
        """A check of values, which PyTorch makes after a run on what the program gives."""
        _, function, info, *others = node.args
        if function is not torch.ops.aten._linalg_check_errors.default:
            raise UnsupportedError(f"{function}: has an effect that is not known")
        plan = self._output(info, tensor_of(info))
        self.made.checks.append((plan, partial(_checked, function, others, node.kwargs)))
        self.values[node] = (_TOKEN,)

    def _converted(self, x: Any) -> Any:
        if isinstance(x, Node):
            if self.values[x] is None and isinstance(x.meta.get("val"), torch.Tensor):
                raise UnsupportedError(f"a tensor of {x.meta['val'].dtype}")
            return self.values[x]
        if isinstance(x, torch.dtype):
            return number_type(x)
        if isinstance(x, list | tuple):
            return [self._converted(item) for item in x]
        if isinstance(x, torch.SymInt):
            return self.sizes.of(x)
        return x

    def _converted_all(self, named: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._converted(x) for key, x in named.items() if key not in _PLACES}

    def _write(self, node: Node) -> None:
        place: Any = node.args[0]
        value: Any = node.args[1]
        if place.op != "placeholder":
            raise UnsupportedError("aten.copy_: of a tensor that is no argument")
        held = tensor_of(place)
        if held.is_complex() != tensor_of(value).is_complex():
            raise UnsupportedError("aten.copy_: of real and complex numbers")
        copied, kind = self._converted(value), number_type(held.dtype)
        copied = copied.to(kind) if held.is_complex() else copied.cast(kind)
        whole = self.values[node] = copied.expand(*self.sizes.shape(held.shape))
        if place in self.states:
            plan = self.states[place]
            self.graph.assign(plan.state, whole.permute(*plan.order), again=True)
        else:
            laid = self._output(value, as_real(held))
            result = Pairs(laid) if held.is_complex() else laid
            self.made.written.append((self.positions[place], result))

    # --- results

    def _finish(self, results: Sequence[Any]) -> None:
        nodes = dict.fromkeys(result for result in results if isinstance(result, Node))
        views = Counter(map(viewed_by, nodes))
        for number, result in enumerate(results):
            if isinstance(result, Node) and self.values.get(result) is _TOKEN:
                self.made.results.append(None)
            elif isinstance(result, Node) and isinstance(result.meta.get("val"), torch.Tensor):
                self.made.results.append(self._tensor_result(number, result, views))
            elif isinstance(result, Node) and self._is_number(result):
                self.made.results.append(self._number_result(result))
            elif isinstance(result, Node) and is_object(result):
                self.made.results.append(Borrowed(self.positions[result]))
            else:
                self.made.results.append(self._converted(result))

    def _tensor_result(self, number: int, node: Node, views: Mapping[Node, int]) -> Result:
        borrowed = self._borrowed(node, after=number in self.lie.of_arguments)
        if borrowed is not None:
            return borrowed
        lie = self._memory_of_result(number, node, views)
        return Pairs(lie) if tensor_of(node).is_complex() else lie

    def _memory_of_result(
        self, number: int, node: Node, views: Mapping[Node, int]
    ) -> OutputPlan | Derived | Spread:
        held, whole = memory_of(node), viewed_by(node)
        is_exact = self.lie.exact is None or number < self.lie.exact
        is_tied = views[whole] > 1 or whole in self.new_values
        derived = None
        if whole is not node and self.lie.share and is_tied:
            derived = self._derived(node, whole)
        if derived is None and is_exact and memory_order(held.shape, held.stride()) is None:
            return self._with_gaps(node, whole)
        return derived or self._output(node, held)

    def _with_gaps(self, node: Node, whole: Node) -> OutputPlan | Derived | Spread:
        """A view as one of the whole, unless that has far more elements, which are not computed."""
        held = memory_of(node)
        strides = self.sizes.shape(held.stride())
        spread = has_places(strides, self.sizes.shape(held.shape))
        if whole is not node and not (spread and _is_far_larger(memory_of(whole), held)):
            derived = self._derived(node, whole)
            if derived is not None:
                return derived
        dense = self._output(node, held)
        is_known = all(map(self._is_given, strides))
        return Spread(dense, strides) if spread and is_known else dense

    def _is_given(self, n: Size) -> bool:
        """Do the shapes of arguments say it? Not all strides they do."""
        return (
            isinstance(n, int) or {str(symbol) for symbol in n.symbols()} <= self.made.dims.keys()
        )

    def _number_result(self, node: Node) -> Number:
        dtype = torch.int64 if isinstance(node.meta["val"], torch.SymInt) else torch.float64
        plan = OutputPlan(f"out{len(self.outputs)}", (), (), dtype)
        self.graph.output(self._converted(node).cast(dtype_of(dtype)), plan.name)
        self.outputs[node, (), dtype, HOST] = plan
        return Number(plan)

    def _derived(self, node: Node, whole: Node) -> Derived | None:
        """`node` as a view of `whole`, where that fills its memory."""
        held, below = memory_of(node), memory_of(whole)
        if memory_order(below.shape, below.stride()) is None:
            return None
        shape, strides = self.sizes.shape(held.shape), self.sizes.shape(held.stride())
        offset = self.sizes.of(held.storage_offset())
        if not all(map(self._is_given, (*strides, offset))):
            return None
        return Derived(self._output(whole, below), shape, strides, offset, held.dtype)

    def _borrowed(self, node: Node, *, after: bool = False) -> Borrowed | None:
        """`node` as an argument or a chain of views of one, as it is before or after the run."""
        if after and node in self.new_values:
            return Borrowed(self.positions[self.new_values[node]])
        if node.op == "placeholder":
            return Borrowed(self.positions[node])
        if node.op != "call_function" or node.target not in VIEWS:
            return None
        below = self._borrowed(node.args[0], after=after)  # type: ignore[arg-type]
        if below is None:
            return None
        others = [
            argument if isinstance(argument, torch.dtype) else self._converted(argument)
            for argument in node.args[1:]
        ]
        call = (node.target, others, self._converted_all(node.kwargs))
        return Borrowed(below.position, (*below.calls, call))  # type: ignore[arg-type]

    def _output(self, node: Any, held: torch.Tensor) -> OutputPlan:
        """An output as `held` lies in memory, complex numbers as pairs; row-major where that has
        gaps or overlaps.
        """
        value = self._converted(node)
        if isinstance(value, ComplexTensor):
            value = lm.view_as_real(value)
        value = value.cast(dtype_of(held.dtype))
        shape = self.sizes.shape(held.shape)
        if value.shape != shape:
            value = value.expand(*shape)
        order = memory_order(held.shape, held.stride()) or tuple(range(held.ndim))
        key = (node, order, held.dtype, held.device)
        if key in self.outputs:
            return self.outputs[key]
        laid = value.permute(*order) if order != tuple(range(len(order))) else value
        plan = OutputPlan(
            f"out{len(self.outputs)}", shape, order, held.dtype, strides_of_ones(held), held.device
        )
        self.graph.output(laid, plan.name)
        self.outputs[key] = plan
        return plan


def _is_far_larger(whole: torch.Tensor, part: torch.Tensor) -> bool:
    """Has it more than twice the elements, or, with open sizes, perhaps so many?"""
    return not statically_known_true(whole.numel() <= 2 * part.numel())


def _refused(error: Exception, x: torch.Tensor) -> None:
    if x.item():
        raise error


def _asserted(message: str, x: torch.Tensor) -> None:
    torch.ops.aten._assert_async.msg(x, message)


def _checked(
    function: Callable[..., Any], others: Sequence[Any], named: Mapping[str, Any], x: torch.Tensor
) -> None:
    function(x, *others, **named)


def _element(x: lm.Tensor) -> lm.Tensor:
    """The only one of a tensor, as a number of Python's."""
    return x.reshape().cast(lm.float64 if x.dtype.is_float else lm.int64)


_ON_NUMBERS: dict[Any, Callable[..., lm.Tensor]] = {
    torch.ops.aten._local_scalar_dense.default: _element,
    torch.sym_float: lambda x: x.cast(lm.float64),
    torch._sym_sqrt: lm.sqrt,  # type: ignore[attr-defined]
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.truediv: operator.truediv,
    operator.floordiv: operator.floordiv,
    operator.mod: operator.mod,
    operator.pow: operator.pow,
    operator.neg: operator.neg,
}
"""Python's functions of sizes that give floats."""


_WAIT = "_c10d_functional.wait_tensor"
_TOKEN = object()
"""What orders effects in a graph; at run time there is none."""

_ITEM = torch.ops.aten._local_scalar_dense.default

_AS_STRIDED = torch.ops.aten.as_strided.default
