"""Compiling ahead of calls: torch.export makes one graph, which runs without Dynamo."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, default_decompositions, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from luminal.base.errors import DimError, DTypeBoundaryError, InputError, ShapeError
from luminal.search.options import SearchOptions
from luminal.shape.expression import Expression
from luminal.torch_backend.compiled import compiled
from luminal.torch_backend.decompositions import decompositions
from luminal.torch_backend.ops.registry import find
from luminal.torch_backend.plans import Result, Results
from luminal.torch_backend.separate import span
from luminal.torch_backend.sizes import Size, Sizes
from luminal.torch_backend.translation import translated

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def compile(
    module: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[Any],
    search_iterations: int = 25,
    export_kwargs: Mapping[str, Any] | None = None,
    dynamic_dim: int | str | Mapping[Any, Any] | None = None,
    dynamic_shapes: Any = None,
) -> CompiledModel:
    """Exports `module` as it is called with the examples, and compiles it. One tensor alone is the
    module's only input.

    `search_iterations`: programs and kernels that are timed; 0 takes rules only. `export_kwargs`:
    for `torch.export.export`. Dims that stay open: `dynamic_shapes` as of `torch.export`, or
    `dynamic_dim`: an int (that dim of the first input), {input's name or position: dim or dims},
    "auto" (all that the module does not fix). Dims opened so are 2 or more, as torch.export takes
    1 for a fixed length; `dynamic_shapes` with `Dim(name)` takes 1 too. Raises UnsupportedError for
    operators that the library has not, InputError for a `dynamic_dim` that names no input.
    """
    single = isinstance(example_inputs, torch.Tensor)
    examples = (example_inputs,) if single else tuple(example_inputs)
    if dynamic_dim is not None:
        if dynamic_shapes is not None:
            raise InputError("pt2.compile: dynamic_dim and dynamic_shapes; give one of them")
        dynamic_shapes = _open_dims(module, examples, dynamic_dim)
    how = {"dynamic_shapes": dynamic_shapes, **(export_kwargs or {})}
    with torch.no_grad():
        program = export(module, examples, **how).run_decompositions(_table())
    options: dict[str, Any] = {"mode": "fast"}
    if search_iterations:
        options = {"mode": "optimal", "search": SearchOptions(max_candidates=search_iterations)}
    return CompiledModel(program, options)


class CompiledModel:
    """A compiled module; called with tensors, it returns a tuple of tensors.

    `writeback_inputs` are the inputs that a call writes; buffers that it writes are the module's.
    `dim_params` are the names of open dims.
    """

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any]) -> None:
        signature = program.graph_signature
        module = program.graph_module
        kinds = [spec.kind for spec in signature.input_specs]
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        held = {**program.state_dict, **program.constants}
        self._held = [
            held[str(spec.target)] if spec.kind in _HELD else None for spec in signature.input_specs
        ]
        self.writeback_inputs = tuple(
            str(spec.target)
            for spec in signature.output_specs
            if spec.kind is OutputKind.USER_INPUT_MUTATION
        )
        # Not every version of PyTorch makes this function.
        self._guards = getattr(program.module(), "_guards_fn", None)
        _write_at_the_end(program)
        _take_declared_lengths(program)
        static = [k for k, kind in enumerate(kinds) if kind in _HELD]
        translation = translated(module, static, Results())
        self._results: tuple[Result, ...] = tuple(translation.results)
        self._call: Callable[[list[Any]], list[Any]] = compiled(translation, options)
        sizes = translation.sizes
        self._inputs = [
            _Boundary(node, sizes)
            for node, kind in zip(nodes, kinds, strict=True)
            if kind is InputKind.USER_INPUT
        ]
        self._sizes = sizes
        self.dim_params = tuple(
            name for name in translation.graph.dims if name not in sizes.computed
        )
        self._outputs = [_result_shape(node, sizes) for node in _outputs(module)]
        self._dims: dict[str, int] = {}

    @property
    def has_dynamic_dims(self) -> bool:
        """Is any dim open?"""
        return bool(self.dim_params)

    def set_dim(self, name: str, value: int) -> None:
        """Says how long an open dim is, for `output_shapes`; calls set all of them."""
        if name not in self.dim_params:
            names = ", ".join(self.dim_params) or "none"
            raise DimError(f"set_dim: {name}: no such dim; the open dims are {names}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DimError(f"set_dim: {name}: {value!r} is no length; pass an int >= 0")
        self._dims[name] = value

    def output_shapes(self) -> list[tuple[int, ...]]:
        """The results' shapes for the dims that were set, by `set_dim` or by the last call."""
        lacking = [name for name in self.dim_params if name not in self._dims]
        if lacking:
            raise DimError(f"output_shapes: {lacking[0]} is open; call set_dim({lacking[0]!r}, n)")
        dims = self._sizes.completed(self._dims)
        return [tuple(_known(n, dims) for n in shape) for shape in self._outputs]

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Runs once. Raises InputError, DTypeBoundaryError, ShapeError, DimError for tensors that
        are not as they were exported.
        """
        if len(inputs) != len(self._inputs):
            names = ", ".join(expected.name for expected in self._inputs)
            raise InputError(f"takes {len(self._inputs)} inputs ({names}), got {len(inputs)}")
        dims: dict[str, int] = {}
        for boundary, x in zip(self._inputs, inputs, strict=True):
            boundary.check(x, dims)
        self._check_guards(inputs)
        self._check_written(inputs)
        remaining = iter(inputs)
        args = [next(remaining) if held is None else held for held in self._held]
        with torch.no_grad():
            results = self._call(args)
        self._dims.update(dims)
        return tuple(results)

    def _check_guards(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raises DimError for lengths with which the module would have taken another way than the
        one that was exported: numbers that it computed of them stand in the graph.
        """
        if self._guards is None:
            return
        try:
            self._guards(*inputs)
        except AssertionError as error:
            rule = str(error).removeprefix("Guard failed: ")
            raise DimError(
                f"these lengths do not fit what was exported, which holds for {rule}; compile the "
                "module again with examples of these lengths"
            ) from None

    def _check_written(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raises InputError where an input that a call writes lies over another one: an exported
        graph reads all inputs as they are at the start.
        """
        if not self.writeback_inputs:
            return
        spans = {expected.name: span(x) for expected, x in zip(self._inputs, inputs, strict=True)}
        for written in self.writeback_inputs:
            start, end = spans[written]
            for name, (first, last) in spans.items():
                if name != written and first < end and start < last:
                    raise InputError(f"{written}: is written, and {name} shares its memory; "
                                     f"pass {name}.clone()")  # fmt: skip


class _Boundary:
    """What an input must be."""

    def __init__(self, node: Node, sizes: Sizes) -> None:
        held: torch.Tensor = node.meta["val"]
        if not isinstance(held, torch.Tensor):
            raise InputError(f"pt2.compile: {node.name} is {held!r}; inputs are tensors")
        self.name = node.name
        self.dtype = held.dtype
        self.device = held.device
        self.shape = sizes.shape(held.shape)

    def check(self, x: Any, dims: dict[str, int]) -> None:
        """Takes the dims that stand bare in the shape."""
        if not isinstance(x, torch.Tensor):
            raise InputError(f"{self.name}: takes a tensor, got a {type(x).__name__}")
        if x.device != self.device or x.layout is not torch.strided:
            raise InputError(
                f"{self.name}: takes a dense tensor on {self.device}, got one of {x.layout} on "
                f"{x.device}; pass x.to({str(self.device)!r}).to_dense()"
            )
        if x.dtype is not self.dtype:
            raise DTypeBoundaryError(
                f"{self.name}: compiled for {self.dtype}, got {x.dtype}; pass x.to({self.dtype})"
            )
        fits = x.ndim == len(self.shape)
        for n, extent in zip(x.shape, self.shape, strict=False):
            if isinstance(extent, Expression) and extent.op == "symbol":
                fits = fits and dims.setdefault(str(extent), n) == n
            elif isinstance(extent, int):
                fits = fits and n == extent
        if not fits:
            wanted = ", ".join(map(str, self.shape))
            raise ShapeError(f"{self.name}: compiled for ({wanted}), got {tuple(x.shape)}")


def _table() -> Any:
    """Export leaves whole what is not named: all composite operators that have no row are."""
    table: Any = default_decompositions()
    # What has a row is kept whole. PyTorch's decomposition would be right as well, but of many
    # small operators.
    for operator in [composite for composite in table if find(composite) is not None]:
        table.pop(operator)
    table.update(decompositions())
    return table


def _known(n: Size, dims: Mapping[str, int]) -> int:
    return n.evaluate(dims) if isinstance(n, Expression) else n


def _outputs(module: GraphModule) -> Sequence[Any]:
    output = next(node for node in module.graph.nodes if node.op == "output")
    results: Any = output.args[0]
    return results


def _result_shape(node: Any, sizes: Sizes) -> tuple[Size, ...]:
    held = node.meta.get("val") if isinstance(node, Node) else None
    return sizes.shape(held.shape) if isinstance(held, torch.Tensor) else ()


def _take_declared_lengths(program: ExportedProgram) -> None:
    """Dims have the intervals that were declared, from 1 on: tracing alone takes 2 or more."""
    inputs = (n.meta["val"] for n in program.graph_module.graph.nodes if n.op == "placeholder")
    sizes: list[Any] = [n for x in inputs if isinstance(x, torch.Tensor) for n in x.shape]
    for size in sizes:
        if isinstance(size, torch.SymInt):  # all are of one environment
            intervals = size.node.shape_env.var_to_range
            for symbol, interval in program.range_constraints.items():
                intervals[symbol] = interval & ValueRanges(1, int_oo)
            return


def _write_at_the_end(program: ExportedProgram) -> None:
    """New values of inputs and buffers, which come first among the outputs, are written to them."""
    graph, signature = program.graph_module.graph, program.graph_signature
    places = {spec.target: spec.arg for spec in signature.input_specs if spec.target}
    nodes = {node.name: node for node in graph.nodes}
    output = next(node for node in graph.nodes if node.op == "output")
    kept = []
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if spec.kind not in _WRITES:
            kept.append(value)
            continue
        place = nodes[places[spec.target].name if spec.target in places else str(spec.target)]
        # At the end of the graph, since torch.export has made all reads those of the values from
        # before.
        with graph.inserting_before(output):
            write = graph.call_function(torch.ops.aten.copy_.default, (place, value))
        write.meta["val"] = place.meta["val"]
    output.args = (tuple(kept),)


def _open_dims(module: torch.nn.Module, examples: Sequence[Any], declared: Any) -> Any:
    """The open dims that `dynamic_shapes` of torch.export names."""
    if declared == "auto":
        return tuple(_all_open(x) for x in examples)
    if isinstance(declared, int) and not isinstance(declared, bool):
        declared = {0: declared}
    if not isinstance(declared, Mapping):
        raise InputError(f'dynamic_dim: {declared!r} is no int, dict or "auto"')
    names = [*inspect.signature(module.forward).parameters]
    open_dims: list[Any] = [None] * len(examples)
    for key, dims in declared.items():
        position = names.index(key) if key in names else key
        if not isinstance(position, int) or not 0 <= position < len(examples):
            raise InputError(f"dynamic_dim: {key!r} is no input; they are {', '.join(names)}")
        listed = [dims] if isinstance(dims, int) else dims
        rank = examples[position].ndim
        for dim in listed:
            if not -rank <= dim < rank:
                raise InputError(
                    f"dynamic_dim: {dim} is out of range; input {key!r} has {rank} dims"
                )
        open_dims[position] = {dim % rank: Dim.DYNAMIC for dim in listed}
    return tuple(open_dims)


def _all_open(x: Any) -> Any:
    return dict.fromkeys(range(x.ndim), Dim.AUTO) if isinstance(x, torch.Tensor) else None
