"""`scan`: a loop over the leading axis of trees of tensors, recorded as one Loop node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from luminal.base.errors import GraphError, ShapeError
from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Branching, Extent, describe
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import Body
from luminal.hlir.ops import Value
from luminal.hlir.types import TensorType
from luminal.memory.state import Assignable
from luminal.shape.expression import Expression

Step = Callable[[Any, Any], tuple[Any, Any]]


def scan(fn: Step, init: Any, xs: Any = None, length: Extent | None = None) -> tuple[Any, Any]:
    """Runs `carry, y = fn(carry, x)` for each x of xs; gives the last carry and the stacked ys.

    init, xs and ys are trees (tuples, lists, dicts) of Tensors; xs are cut along their first dim,
    whose extent is the number of trips (`length` where xs is None; it may be a dim). Tensors and
    Weights from outside that fn uses come in by themselves. A carried value keeps its type.
    """
    carried, carry_tree = flatten(init)
    streams, stream_tree = flatten(xs)
    graph = graph_of("scan", [*carried, *streams])
    carried_tensors = [graph.constant(x) for x in carried]
    stream_tensors = [graph.constant(x) for x in streams]
    trips = _trips(graph, stream_tensors, stream_tree, length)

    body = BodyRecorder(graph)
    # The function is called once, with arguments that stand for every trip's values.
    carry_args = [body.argument(x.value.type) for x in carried_tensors]
    stream_args = [body.argument(_slice_type(x)) for x in stream_tensors]
    returned = fn(carry_tree.build(carry_args), stream_tree.build(stream_args))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise GraphError(f"scan: the function returned {returned!r}; return (carry, y)")
    next_leaves, next_tree = flatten(returned[0])
    ys, ys_tree = flatten(returned[1])
    results = [body.constant(x) for x in (*next_leaves, *ys)]
    _check_carry(carry_tree, next_tree, carry_args, results)

    arguments = [*carry_args, *stream_args, *map(body.wrap, body.captured.values())]
    begun = [x.value for x in carry_args]  # derivatives need them; unread, they are dropped
    block = Body(tuple(x.value.node for x in arguments), (*map(body.bring, results), *begun))
    body.closed = True
    loop = graph.builder.loop(
        trips,
        block,
        [x.value for x in carried_tensors],
        [x.value for x in stream_tensors],
        list(body.captured),
    )
    outputs = [graph.wrap(value) for value in loop]
    count = len(carried_tensors)
    return carry_tree.build(outputs[:count]), ys_tree.build(outputs[count : count + len(ys)])


def _trips(
    graph: Recorder, streams: Sequence[Tensor], tree: Tree, length: Extent | None
) -> Expression:
    """The number of iterations; raises ShapeError where the streams and `length` disagree."""
    trips = None if length is None else graph.extent(length)
    for x, path in zip(streams, tree.paths("xs"), strict=True):
        if x.ndim == 0:
            raise ShapeError(f"scan: {path} is {describe(x)}; it takes a leading dim to run along")
        if trips is None:
            trips = x.extents[0]
        if x.extents[0] != trips:
            raise ShapeError(
                f"scan: {path} is {describe(x)}, but the loop has {trips} trips; "
                "make the leading extents equal"
            )
    if trips is None:
        raise ShapeError("scan: the number of trips is unknown; give xs or length")
    return trips


def _slice_type(x: Tensor) -> TensorType:
    return TensorType(x.extents[1:], x.dtype)


def _check_carry(
    before: Tree, after: Tree, arguments: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    if before != after:
        raise ShapeError(
            f"scan: the carry starts as {before.paths('carry')} and is returned as "
            f"{after.paths('carry')}; return the same structure"
        )
    for path, old, new in zip(before.paths("carry"), arguments, results, strict=False):
        if old.value.type != new.value.type:
            raise ShapeError(
                f"scan: {path} starts as {old.value.type} and is returned as {new.value.type}; "
                "cast or reshape it so that both agree"
            )


# A body is recorded once and stands for all iterations, so a value in it has no elements, and what
# it takes from outside must become an operand of the Loop.
class BodyRecorder(Recorder):
    """Records one iteration. Values from outside become invariants at their first use."""

    transform = "scan"
    """The function of `lm` that records so."""
    stands_for = "every iteration"
    """What a value in the body is."""

    def __init__(self, parent: Recorder) -> None:
        super().__init__(f"the body of a scan in {parent.name}")
        self.parent = parent
        self.depth = parent.depth + 1
        # Shared, not copied: what the body declares and requires holds for the graph around it.
        self.dims = parent.dims
        self.requirements = parent.requirements
        self.required_at = parent.required_at
        self.diffs = parent.diffs
        self.derivatives = parent.derivatives
        self.parts = parent.parts
        self.closed = False
        self.captured: dict[
            Value, Value
        ] = {}  # the parent's value: the argument that stands for it

    @property
    def root(self) -> Recorder:
        return self.parent.root

    def argument(self, of_type: TensorType) -> Tensor:
        """A new argument of the body."""
        name = f"arg{len(self.leaves)}"
        value = self.leaves[name] = self.builder.input(name, *of_type)
        return self.wrap(value)

    def bring(self, x: Tensor) -> Value:
        """The value of `x` in the body: constants are recorded again, others become invariants."""
        if self.closed:
            raise GraphError(
                f"{describe(x)} meets a value that was recorded in {self.name} and has left it; "
                "return such values from the function"
            )
        if x.graph is self:
            return x.value
        outer = self.parent.bring(x)
        node = outer.node
        # Recorded again they stay literals, which rules can see; as operands they would be unknown.
        if node.op.name in ("Constant", "Iota"):
            return self.builder.make(node.op.name, (), node.attrs).value
        if outer not in self.captured:
            self.captured[outer] = self.argument(outer.type).value
        return self.captured[outer]

    def leaf_of(self, held: Assignable, name: str | None = None) -> Tensor:
        """The Weight of the graph around the body, or the State's value at the start of the run,
        as an invariant.
        """
        return self.wrap(self.bring(self.parent.leaf_of(held, name)))

    def tensor(
        self, shape_or_data: Any, dtype: Any = None, name: str | None = None, *, copy: bool = True
    ) -> Tensor:
        """Raises GraphError: inputs belong to the graph around the body."""
        self._refuse("tensor", "make the input outside of the function and use it inside")

    def latest(self, state: Assignable) -> Tensor:
        """The value of a State at the start of the run."""
        return self.constant(state)

    def assign(self, state: Assignable | Tensor, value: Tensor, *, again: bool = False) -> None:
        """Raises GraphError: a State is assigned once per run."""
        self._refuse("assign", f"carry the value and assign {self.transform}'s result")

    def output(self, value: Tensor, name: str | None = None, *, hidden: bool = False) -> None:
        """Raises GraphError: what leaves the body is returned from the function."""
        self._refuse("output", f"return the value as a y and output {self.transform}'s result")

    def computed(self, value: Value) -> Array:
        """Raises GraphError: in the body a value stands for several."""
        raise GraphError(
            f"{value.type} of {self.name} has no value while the function of {self.transform} is "
            f"recorded: it stands for {self.stands_for}; use lm.where for choices, return what you "
            "want to read"
        )

    def _refuse(self, what: str, fix: str) -> NoReturn:
        raise GraphError(f"{what}: not inside the function of {self.transform}; {fix}")


# --- tree -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree without its leaves: the kind of container and its parts. `None` has no leaves."""

    kind: Callable[..., Any] | None  # None: a leaf
    keys: tuple[Any, ...] = ()
    parts: tuple[Tree, ...] = ()

    def build(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves, in order."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        built = [part._build(leaves) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, built, strict=True))
        # It takes the parts one by one; the constructors of tuple and list take an iterable.
        if hasattr(self.kind, "_fields") or not isinstance(self.kind, type):
            return self.kind(*built)
        return self.kind(built)

    def paths(self, prefix: str = "") -> list[str]:
        """Each leaf's place, as one writes it behind the tree: `[0]['h']`."""
        if self.kind is None:
            return [prefix]
        pairs = zip(self.keys, self.parts, strict=True)
        return [path for key, part in pairs for path in part.paths(f"{prefix}[{key!r}]")]


def _is_never(part: Any) -> bool:
    return False


def flatten(tree: Any, is_leaf: Callable[[Any], bool] = _is_never) -> tuple[list[Any], Tree]:
    """The leaves from left to right, and the shape that builds the tree again. A complex Tensor is
    a tree of its two parts, a PackedSequence one of its padded batch and the lengths.

    `is_leaf`: containers that are taken as leaves.
    """
    if tree is None:
        return [], Tree(type(None))
    if is_leaf(tree):
        return [tree], Tree(None)
    kind: Callable[..., Any] = type(tree)
    if isinstance(tree, dict):
        kind = dict
        keys: tuple[Any, ...] = tuple(tree)
        children = list(tree.values())
    elif isinstance(tree, tuple | list):
        keys, children = tuple(range(len(tree))), list(tree)
    elif isinstance(tree, Branching):
        kind, named = tree.branches()
        keys, children = tuple(named), list(named.values())
    else:
        return [tree], Tree(None)
    flat = [flatten(child, is_leaf) for child in children]
    return [leaf for part, _ in flat for leaf in part], Tree(kind, keys, tuple(s for _, s in flat))
