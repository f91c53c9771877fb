"""vmap: a function of single examples as a function of batches of them.

The function is called once, with arguments that stand for one example, and what it records is
recorded again with a dim of examples in front: by a rule for each kind of primitive, of which most
say that nothing else changes. What does not depend on an example stays as it is. A derivative that
was recorded with an operation is batched by the same way. What has no rule (linear algebra by
LAPACK, kernels written by hand) runs in a Loop over the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

from luminal.base.errors import GraphError, InputError, ShapeError
from luminal.frontend.graph import Recorder, new_builder
from luminal.frontend.handle import axis_of, is_tensor
from luminal.frontend.movement.views import stack
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.pointwise.derivatives import Derivative
from luminal.frontend.random import keyed
from luminal.frontend.scan import BodyRecorder, Tree, flatten
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import Body, GatherAttrs, LoopAttrs, ScatterAttrs
from luminal.hlir.graph import Builder, copied, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.types import TensorType
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import ONE, ZERO, Expression
from luminal.shape.view import View, expand, index, permute

RANDOMNESS = ("error", "different", "same")


def vmap(
    function: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`function`, which takes single examples, as a function of batches: `vmap(f)(xs)`.

    Arguments are trees (tuples, lists, dicts) of Tensors. `in_dims` says along which dim each holds
    its examples: an int for all, or a tuple with an entry for each positional argument. An entry is
    an int, None for what all examples share, or a tree like the argument's. All share keyword
    arguments.
    `out_dims` says the same of results. `randomness` of what the function draws:
    "error" refuses it, "different" draws for each example, "same" once for all. It can be nested,
    and stand inside and around derivatives: `vmap(grad(f))` gives gradients of single examples.
    `chunk_size` changes nothing. As torch.func.vmap. Raises ShapeError for different numbers of
    examples, InputError for dims that do not fit the arguments.
    """
    if randomness not in RANDOMNESS:
        raise InputError(f"vmap: randomness={randomness!r}; it is one of {', '.join(RANDOMNESS)}")

    @wraps(function)
    def batched(*args: Any, **kwargs: Any) -> Any:
        wanted = tuple(in_dims) if isinstance(in_dims, list | tuple) else in_dims
        if isinstance(wanted, tuple) and len(wanted) != len(args):
            raise InputError(
                f"vmap: in_dims {in_dims} for {len(args)} arguments; give one for each"
            )
        leaves, tree = flatten((args, kwargs))
        dims = _spread("in_dims", wanted, flatten(args)[1]) + [None] * len(flatten(kwargs)[0])
        tensors = [x.as_tensor() if isinstance(x, Parameter | State) else x for x in leaves]
        paths = tree.paths("")
        for x, dim, path in zip(tensors, dims, paths, strict=True):
            if dim is not None and not is_tensor(x):
                raise InputError(
                    f"vmap: argument {path.removeprefix('[0]')} is a {type(x).__name__} and no "
                    f"Tensor, and in_dims says that examples lie along dim {dim}; pass lm.tensor(x)"
                    ", or None in in_dims for what all examples share"
                )
        graph = graph_of("vmap", [x for x in tensors if is_tensor(x)])
        if (outer := keyed.examples()) is not None and outer.depth > graph.depth:
            graph = outer  # whose draws are those of its own examples
        fronts = [
            x if dim is None else graph.constant(x).movedim(axis_of("vmap", dim, x.ndim), 0)
            for x, dim in zip(tensors, dims, strict=True)
        ]
        sizes = {x.extents[0] for x, dim in zip(fronts, dims, strict=True) if dim is not None}
        if len(sizes) != 1:
            told = ", ".join(map(str, sizes)) or "none: in_dims are None for all arguments"
            raise ShapeError(f"vmap: the numbers of examples are {told}; all must be equal")
        body = _Examples(graph, sizes.pop(), randomness)
        with keyed.drawing_in(body):
            inner, named = tree.build(
                [body.begin(x, dim is not None) for x, dim in zip(fronts, dims, strict=True)]
            )
            result = function(*inner, **named)
        return _results(body, result, out_dims)

    return batched


def _results(body: _Examples, result: Any, out_dims: Any) -> Any:
    """The results of all examples, along the dims that are asked for."""
    outputs, tree = flatten(result)
    dims = _spread("out_dims", out_dims, tree)
    for y in outputs:
        if not is_tensor(y):
            raise GraphError(f"vmap: the function gives {y!r}; it must give Tensors")
    values = [body.bring(y) for y in outputs]
    body.closed = True
    lifted = _Batch(body.parent, body.parent.builder, body.size).of(values, body.begun())
    whole = []
    for (value, is_batched), dim in zip(lifted, dims, strict=True):
        if dim is None:
            if is_batched:
                raise InputError("vmap: out_dims is None for a result that differs by example")
            whole.append(body.parent.wrap(value))
            continue
        y = body.parent.wrap(
            value if is_batched else _repeated(body.parent.builder, value, body.size)
        )
        whole.append(y.movedim(0, axis_of("vmap", dim, y.ndim)))
    return tree.build(whole)


def _spread(what: str, dims: Any, tree: Tree) -> list[Any]:
    """The dim of each leaf: an int or None stands for all below it."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree.paths())
    if not isinstance(dims, Mapping | list | tuple):
        raise InputError(f"vmap: {what} has {dims!r}; give an int, None, or a tree of these")
    keys = tuple(dims) if isinstance(dims, Mapping) else tuple(range(len(dims)))
    if tree.kind is None or keys != tree.keys:
        raise InputError(
            f"vmap: {what} {dims!r} is no tree like what it is for; give an int, None, or one with "
            "the same keys"
        )
    parts = dims.values() if isinstance(dims, Mapping) else dims
    return [
        dim
        for wanted, part in zip(parts, tree.parts, strict=True)
        for dim in _spread(what, wanted, part)
    ]


# --- one example ----------------------------------------------------------------------------------


class _Examples(BodyRecorder):
    """Records the function on arguments that stand for one example of many."""

    transform = "vmap"
    stands_for = "every example"

    def __init__(self, parent: Recorder, size: Expression, randomness: str) -> None:
        super().__init__(parent)
        self.name = f"the function of vmap in {parent.name}"
        self.size, self.randomness = size, randomness
        self._whole: dict[Value, Value] = {}  # the argument of one example: that of all

    def of_each(self, whole: Tensor) -> Tensor:
        """The example of a batch, whose dim 0 is that of examples."""
        x = self.argument(TensorType(whole.extents[1:], whole.dtype))
        self._whole[x.value] = self.parent.bring(whole)
        return x

    def begin(self, x: Any, is_batched: bool) -> Any:
        """An argument of the function, of one of the whole."""
        if is_batched:
            return self.of_each(x)
        return self.wrap(self.bring(x)) if is_tensor(x) else x

    def begun(self) -> dict[Value, _Lifted]:
        """What each argument stands for: a batch, or a value from outside."""
        outside = {inner: _Lifted(outer, False) for outer, inner in self.captured.items()}
        return outside | {x: _Lifted(whole, True) for x, whole in self._whole.items()}

    # --- random numbers

    def _check_randomness(self, what: str) -> None:
        if self.randomness == "error":
            raise GraphError(
                f'{what}: the function of vmap draws; say randomness="different", for numbers of '
                'each example, or "same"'
            )

    def next_key(self, what: str) -> Tensor:
        """A key of the graph around, or one for each example that follows from it."""
        self._check_randomness(what)
        return self._key_of(self.parent.next_key(what))

    def key_of(self, what: str, key: Tensor) -> Tensor:
        """The key that an example draws with, where all would draw with `key`."""
        self._check_randomness(what)
        if isinstance(self.parent, _Examples):
            key = self.parent.key_of(what, key)
        return self._key_of(key)

    def _key_of(self, key: Tensor) -> Tensor:
        if self.randomness == "same":
            return self.wrap(self.bring(key))
        numbers = self.parent.iota((self.size,))
        return self.of_each(keyed.fold_in(self.parent.constant(key), numbers))

    def drawn(self, what: str, draw: Callable[[], Tensor]) -> Tensor:
        """Numbers that are drawn at once, as `lm.randn` does: for each example, or once."""
        self._check_randomness(what)
        parent = self.parent
        once = partial(parent.drawn, what, draw) if isinstance(parent, _Examples) else draw
        if self.randomness == "same":
            return self.wrap(self.bring(once()))
        if not self.size.is_const:
            raise GraphError(f"{what}: the number of examples is {self.size}; use lm.random here")
        return self.of_each(stack([once() for _ in range(self.size.value)], 0))


# --- all examples ---------------------------------------------------------------------------------


class _Lifted(NamedTuple):
    """A value recorded again. Batched: with a dim of examples in front."""

    value: Value
    is_batched: bool


class _Batch:
    """Records what was recorded of one example again, of `size` examples, with `builder`."""

    def __init__(self, graph: Recorder, builder: Builder, size: Expression) -> None:
        self.graph, self.builder, self.size = graph, builder, size

    def of(self, results: Sequence[Value], begun: dict[Value, _Lifted]) -> list[_Lifted]:
        """The results, where `begun` says what arguments stand for."""
        values = dict(begun)
        nodes = topological(results)
        for node in nodes:
            if node.value not in values:
                for k, lifted in enumerate(self._node(node, [values[arg] for arg in node.args])):
                    values[Value(node, k)] = lifted
        for node in nodes:
            for value in (Value(node, k) for k in range(len(node.types))):
                if value not in begun and value in self.graph.derivatives:
                    self._derive(value, values)
        return [values[result] for result in results]

    def _node(self, node: Node, args: Sequence[_Lifted]) -> list[_Lifted]:
        if not any(arg.is_batched for arg in args):
            results = copied(self.builder, node, [arg.value for arg in args])
            return [_Lifted(value, False) for value in results]
        name, group = node.op.name, node.op.group
        if name == "Loop":
            return self._loop(node.attrs, args)
        if group in ("unary", "binary", "ternary") or name == "After":
            return self._made(node, self._all(args), node.attrs)
        if group in ("reduce", "ordered"):
            attrs = node.attrs._replace(axis=node.attrs.axis + 1)
            return self._made(node, self._all(args), attrs)
        if name == "View":
            view = _of_each(node.attrs.view, self.size)
            return [_Lifted(self.builder.view(args[0].value, view), True)]
        if name == "Gather":
            return self._gather(node, args)
        if name == "Scatter":
            entries = (self._front(), *_shifted(node.attrs.map, node.args[1].shape))
            return self._made(node, self._all(args), ScatterAttrs(entries, node.attrs.mode))
        if name == "Custom":
            return self._one_by_one(node, args)
        raise GraphError(
            f"vmap: {name} of a mesh has no batch; put vmap around what is not sharded"
        )

    def _made(self, node: Node, args: Sequence[Value], attrs: Any) -> list[_Lifted]:
        new = self.builder.make(node.op.name, args, attrs, node)
        return [_Lifted(Value(new, k), True) for k in range(len(new.types))]

    def _all(self, args: Sequence[_Lifted]) -> list[Value]:
        """The operands, all with a dim of examples."""
        return [
            arg.value if arg.is_batched else _repeated(self.builder, arg.value, self.size)
            for arg in args
        ]

    def _front(self) -> Expression:
        """The number of the example, in maps."""
        return ZERO if self.size is ONE else index(0, self.size)

    def _gather(self, node: Node, args: Sequence[_Lifted]) -> list[_Lifted]:
        source, *places = args
        entries = _shifted(node.attrs.map, node.attrs.shape)
        front = (self._front(),) if source.is_batched else ()
        attrs = GatherAttrs((self.size, *node.attrs.shape), (*front, *entries))
        return self._made(node, [source.value, *self._all(places)], attrs)

    def _one_by_one(self, node: Node, args: Sequence[_Lifted]) -> list[_Lifted]:
        """A Loop over the examples."""
        builder = new_builder()
        inner = [builder.input(f"arg{k}", *arg.type) for k, arg in enumerate(node.args)]
        results = copied(builder, node, inner)
        order = sorted(range(len(args)), key=lambda k: not args[k].is_batched)  # streams first
        body = Body(tuple(inner[k].node for k in order), results)
        streams = [args[k].value for k in order if args[k].is_batched]
        shared = [args[k].value for k in order if not args[k].is_batched]
        loop = self.builder.loop(self.size, body, [], streams, shared)
        return [_Lifted(value, True) for value in loop]

    def _loop(self, attrs: LoopAttrs, args: Sequence[_Lifted]) -> list[_Lifted]:
        """The Loop of a body of all examples. What is carried is batched throughout; streams and
        what is stacked have the trips in front.
        """
        if any(attrs.streams) or any(states is not None for states in attrs.assigned):
            raise GraphError("vmap: a Loop that assigns States has no batch; return their values")
        count = attrs.carried
        carried, rest = args[:count], args[count:]
        streams, shared = rest[: len(attrs.streams)], rest[len(attrs.streams) :]
        begun: dict[Value, _Lifted] = {}
        builder, nodes = new_builder(), list[Node]()
        flags = [True] * count + [arg.is_batched for arg in rest]
        for k, (old, flag) in enumerate(zip(attrs.body.arguments, flags, strict=True)):
            shape, dtype = old.types[0]
            new = builder.input(f"arg{k}", (self.size, *shape) if flag else shape, dtype)
            begun[old.value] = _Lifted(new, flag)
            nodes.append(new.node)
        inner = _Batch(self.graph, builder, self.size)
        results = inner._all(inner.of(attrs.body.results, begun))
        loop = self.builder.loop(
            attrs.trips,
            Body(tuple(nodes), tuple(results)),
            self._all(carried),
            [_exchanged(self.builder, x.value) if x.is_batched else x.value for x in streams],
            [x.value for x in shared],
        )
        stacked = [_exchanged(self.builder, y) for y in loop[count:]]
        return [_Lifted(value, True) for value in (*loop[:count], *stacked)]

    def _derive(self, value: Value, values: dict[Value, _Lifted]) -> None:
        """Notes the derivative of the result as that of each example."""
        derivative, (result, is_batched) = self.graph.derivatives[value], values[value]
        if not all(operand in values for operand in derivative.operands):
            return  # of operands that the result does not depend on any more
        operands = [values[operand] for operand in derivative.operands]
        pull = _pull_of_each(derivative.pull, operands) if is_batched else derivative.pull
        again = Derivative(tuple(x.value for x in operands), pull)
        self.graph.derivatives.setdefault(result, again)


def _pull_of_each(pull: Any, operands: Sequence[_Lifted]) -> Any:
    """How the gradient flows to operands, by how it does in one example: it is summed over the
    examples for what they share.
    """
    dims = tuple(0 if x.is_batched else None for x in operands)

    def batched(g: Tensor, y: Tensor, now: Sequence[Tensor]) -> Sequence[Tensor | None]:
        def one(g: Tensor, y: Tensor, *each: Tensor) -> tuple[Tensor | None, ...]:
            return tuple(pull(g, y, each))

        pulled = vmap(one, (0, 0, *dims))(g, y, *now)
        return [
            x if x is None or dim is not None else x.sum(0)
            for x, dim in zip(pulled, dims, strict=True)
        ]

    return batched


def _shifted(entries: Sequence[Expression | int], shape: Sequence[Expression]) -> list[Any]:
    """Entries of an index map with the positions of each dim as those of the next one."""
    rename = {index(k, n): index(k + 1, n) for k, n in enumerate(shape)}
    return [x.substitute(rename) if isinstance(x, Expression) else x for x in entries]


def _of_each(view: View, size: Expression) -> View:
    front = ZERO if size is ONE else index(0, size)
    *entries, domain = _shifted((*view.map, view.domain), view.shape)
    return View((size, *view.shape), (front, *entries), domain)


def _repeated(builder: Builder, value: Value, size: Expression) -> Value:
    """One value for all examples."""
    return builder.view(value, expand(value.shape, (size, *value.shape)))


def _exchanged(builder: Builder, value: Value) -> Value:
    """With the first two dims exchanged."""
    return builder.view(value, permute(value.shape, (1, 0, *range(2, len(value.shape)))))
