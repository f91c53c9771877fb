"""The VJP of every primitive: from the gradients of its results to those of its operands.

A row takes the operation and the gradients of its results (None: nothing flows there), and gives a
gradient, or None, for each operand. Rules are written with the operations of `frontend/`, so that
they can be differentiated again. An operation that is flat wherever it is smooth (Floor, FloorDiv)
passes nothing on; one that has no derivative at all raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from luminal.autograd.collectives import collective
from luminal.autograd.matrices import of_matrices
from luminal.autograd.views import transposed
from luminal.base import dtypes
from luminal.base.errors import GraphError
from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.scatter import written
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import AxisAttrs, GatherAttrs, ScanAttrs, ScatterAttrs
from luminal.hlir.lapack import Evaluation
from luminal.hlir.ops import OPS, Node, Value
from luminal.shape.expression import Expression


@dataclass(frozen=True, slots=True)
class Applied:
    """An operation of a graph, its operands and results as Tensors."""

    graph: Recorder
    node: Node
    args: tuple[Tensor, ...]
    results: tuple[Tensor, ...]

    @classmethod
    def of(cls, graph: Recorder, node: Node) -> Applied:
        """The operation of a node of the graph."""
        results = (graph.wrap(Value(node, k)) for k in range(len(node.types)))
        return cls(graph, node, tuple(map(graph.wrap, node.args)), tuple(results))


Gradients: TypeAlias = Sequence[Tensor | None]
Rule = Callable[[Applied, Gradients], Gradients]


def simple(rule: Callable[..., Tensor | tuple[Tensor | None, ...]]) -> Rule:
    """The row of an operation with one result y: `rule(g, y, *operands)`."""

    def row(at: Applied, gradients: Gradients) -> Gradients:
        result = rule(gradients[0], at.results[0], *at.args)
        return (result,) if is_tensor(result) else result  # type: ignore[return-value]

    return row


def flat(at: Applied, gradients: Gradients) -> Gradients:
    """Nothing flows back through the operation."""
    return [None] * len(at.args)


# --- by element -----------------------------------------------------------------------------------


def _maximum(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Equals share; where one is NaN nobody is the lesser, and both have it. As in PyTorch."""
    shared = where(a == b, g * 0.5, g)
    return where(a < b, 0, shared), where(b < a, 0, shared)


def _select(g: Tensor, y: Tensor, c: Tensor, a: Tensor, b: Tensor) -> tuple[None, Tensor, Tensor]:
    return None, where(c, g, 0), where(c, 0, g)


def _cast(at: Applied, gradients: Gradients) -> Gradients:
    (x,), (g,) = at.args, gradients
    assert g is not None
    return [g.cast(x.dtype) if x.dtype.is_float else None]


def _mod(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g, -g * (a / b).floor()


# --- reductions and orders ------------------------------------------------------------------------


def _back(at: Applied, x: Tensor) -> Tensor:
    """A result of a reduction, repeated along the axis that it lost."""
    attrs: AxisAttrs = at.node.attrs
    return x.unsqueeze(attrs.axis).expand(at.args[0].extents)


def _sum(at: Applied, gradients: Gradients) -> Gradients:
    (g,) = gradients
    assert g is not None
    return [_back(at, g)]


def _max(at: Applied, gradients: Gradients) -> Gradients:
    """Equals share, as in PyTorch's amax; so do NaNs, to which its max(dim) gives all: its amax
    has NaN there for every element.
    """
    (x,), (y,), (g,) = at.args, at.results, gradients
    assert g is not None
    top = _back(at, y)
    hit = (x == top) | (x != x)  # a NaN is the greatest
    count = hit.cast(x.dtype).sum(at.node.attrs.axis)
    return [where(hit, _back(at, g / count), 0)]


def _scan(at: Applied, gradients: Gradients) -> Gradients:
    (x,), (y,), (g,) = at.args, at.results, gradients
    assert g is not None
    attrs: ScanAttrs = at.node.attrs
    if attrs.kind == "add":
        return [_sum_from(g, attrs.axis)]
    back = _product_back if attrs.kind == "mul" else _running_max_back
    return [back(x, y, g, attrs.axis)]


def _sum_from(g: Tensor, axis: int) -> Tensor:
    """At each position the sum of what is there and behind it."""
    return g.flip(axis).cumsum(axis).flip(axis)


def _product_back_again(
    h: Tensor, back: Tensor, x: Tensor, y: Tensor, g: Tensor, axis: int
) -> tuple[Tensor, None, Tensor]:
    """The gradients of `_product_back`, of its meaning: the product of all before times a linear
    recurrence from the end, which no zero interrupts.
    """
    behind = _moved(x, axis, -1, 0)
    before = _moved(x, axis, 1, 1).cumprod(axis)
    rest = _recurrence(behind, g, axis, backward=True)
    into_g = _recurrence(x, h * before, axis)
    others = _recurrence(behind, _moved(h * rest, axis, -1, 0), axis, backward=True)
    return _moved(into_g, axis, 1, 0) * rest + before * others, None, into_g


@differentiated(_product_back_again)
def _product_back(x: Tensor, y: Tensor, g: Tensor, axis: int) -> Tensor:
    """sum of g[j] * y[j] / x[i] over j >= i; where a zero comes in, the products without it.

    Up to the first zero y / x is what is wanted (but at that zero: there the products of all others
    up to the next zero). Behind it all products are zero. The cases hold for values, not for their
    derivatives.
    """
    zeros = (x == 0).cast(dtypes.int32).cumsum(axis)
    is_first = (x == 0) & (zeros == 1)
    before = zeros == 0
    plain = _sum_from(where(before, g * y, 0), axis) / where(x == 0, 1, x)
    others = where(is_first, 1, x).cumprod(axis)  # products without the first zero
    at_zero = _sum_from(where(zeros == 1, g * others, 0), axis)
    return where(before, plain, where(is_first, at_zero, 0))


def _moved(x: Tensor, axis: int, by: int, edge: float) -> Tensor:
    """`x` one position on (1) or back (-1) along an axis, `edge` at the free end."""
    place = x.graph.iota(x.extents, axis)
    free = place == 0 if by > 0 else place == x.extents[axis] - 1
    return where(free, edge, x.roll(by, axis))


def _recurrence(factors: Tensor, terms: Tensor, axis: int, *, backward: bool = False) -> Tensor:
    """r[i] = factors[i] * r[i - 1] + terms[i] along an axis, from 0; `backward`: of r[i + 1]."""
    rows = [x.movedim(axis, 0) for x in (factors, terms)]
    if backward:
        rows = [x.flip(0) for x in rows]

    def step(r: Tensor, row: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        r = row[0] * r + row[1]
        return r, r

    start = terms.graph.zeros(rows[1].extents[1:], dtype=terms.dtype)
    states: Tensor = scan(step, start, tuple(rows))[1]
    return (states.flip(0) if backward else states).movedim(0, axis)


def _running_max_back(x: Tensor, y: Tensor, g: Tensor, axis: int) -> Tensor:
    """To the newest position of each greatest value, NaN among them, as in PyTorch's cummax."""
    places = where((x == y) | (x != x), x.graph.iota(x.extents, axis), 0)
    owner = x.graph.wrap(x.graph.builder.scan(places.value, "max", axis))
    return x.graph.zeros(x.extents, dtype=g.dtype).scatter_add(axis, owner, g)


def _sort(at: Applied, gradients: Gradients) -> Gradients:
    g, axis = gradients[0], at.node.attrs.axis
    if g is None:
        return [None]
    return [at.graph.zeros(g.extents, dtype=g.dtype).scatter(axis, at.results[1], g)]


# --- memory ---------------------------------------------------------------------------------------


def _entries(
    map_: Sequence[Expression | int], tensors: Sequence[Tensor]
) -> list[Expression | Tensor]:
    return [tensors[entry] if isinstance(entry, int) else entry for entry in map_]


def _gather(at: Applied, gradients: Gradients) -> Gradients:
    source, *indices = at.args
    (g,) = gradients
    assert g is not None
    attrs: GatherAttrs = at.node.attrs
    zeros = at.graph.zeros(source.extents, dtype=g.dtype)
    return [written(zeros, _entries(attrs.map, indices), g, "add"), *(None for _ in indices)]


def _scatter(at: Applied, gradients: Gradients) -> Gradients:
    """What was overwritten gets nothing: of x, and of all writers to one place but the last."""
    _, source, *indices = at.args
    (g,) = gradients
    assert g is not None
    attrs: ScatterAttrs = at.node.attrs
    entries = _entries(attrs.map, indices)
    read = gather_at(g, source.extents, entries)
    if attrs.mode == "set":
        if indices:  # data says who meets whom, so each leaves its number where it writes
            number = at.graph.iota((math.prod(source.extents),)).reshape(source.extents)
            last = written(at.graph.zeros(g.extents, dtype=number.dtype), entries, number, "set")
            read = where(gather_at(last, source.extents, entries) == number, read, 0)
        g = written(g, entries, at.graph.zeros(source.extents, dtype=g.dtype), "set")
    return [g, read, *(None for _ in indices)]


def _view(at: Applied, gradients: Gradients) -> Gradients:
    (g,) = gradients
    assert g is not None
    return [transposed(g, at.node.attrs.view, at.args[0].extents)]


# --- written by hand ------------------------------------------------------------------------------


def _custom(at: Applied, gradients: Gradients) -> Gradients:
    kernel = at.node.attrs.kernel
    if isinstance(kernel.evaluate, Evaluation):
        return of_matrices(kernel.evaluate, at.args, at.results, gradients)
    if kernel.vjp is None:
        raise GraphError(
            f"{kernel.name}: this custom kernel has no derivative; give custom_kernel(vjp=), or "
            "stop_gradient() its result"
        )
    zeros = (at.graph.zeros(y.extents, dtype=y.dtype) for y in at.results)
    full = tuple(z if g is None else g for z, g in zip(zeros, gradients, strict=True))
    pulled = kernel.vjp(at.args, at.results, full)
    if pulled is None or is_tensor(pulled):
        pulled = (pulled,)
    if len(pulled) != len(at.args):
        raise GraphError(
            f"{kernel.name}: vjp gave {len(pulled)} gradients for {len(at.args)} operands; give "
            "one for each, None for zero"
        )
    return list(pulled)


def _not_differentiable(at: Applied, gradients: Gradients) -> Gradients:
    raise GraphError(
        f"{at.node.op.name}: its result {at.node.types[0]} has no derivative; stop_gradient() it, "
        "or give the function around it one with lm.custom_vjp"
    )


_LN2 = math.log(2)

NOT_DIFFERENTIABLE = ("Bitcast", "And", "Or", "Xor", "Shl", "Shr")
"""Operations on bits."""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Input", "Weight", "State", "Constant", "Iota"), flat),
    "Exp": simple(lambda g, y, x: g * y),
    "Log": simple(lambda g, y, x: g / x),
    "Exp2": simple(lambda g, y, x: g * (y * _LN2)),
    "Log2": simple(lambda g, y, x: g / (x * _LN2)),
    "Sin": simple(lambda g, y, x: g * x.cos()),
    "Cos": simple(lambda g, y, x: -g * x.sin()),
    "Sqrt": simple(lambda g, y, x: g / (2 * y)),
    "Recip": simple(lambda g, y, x: -g * (y * y)),
    "Floor": flat,
    "Cast": _cast,
    "Detach": flat,
    "Add": simple(lambda g, y, a, b: (g, g)),
    "Mul": simple(lambda g, y, a, b: (g * b, g * a)),
    "Div": simple(lambda g, y, a, b: (g / b, -g * (y / b))),
    "FloorDiv": flat,
    "Mod": simple(_mod),
    "Maximum": simple(_maximum),
    "LessThan": flat,
    "Equal": flat,
    "Select": simple(_select),
    "Sum": _sum,
    "Max": _max,
    "Scan": _scan,
    "Sort": _sort,
    "Gather": _gather,
    "Scatter": _scatter,
    "View": _view,
    "Custom": _custom,
    "After": lambda at, gradients: (gradients[0], None),
    "Shard": lambda at, gradients: gradients,
    "Collective": collective,
    **dict.fromkeys(NOT_DIFFERENTIABLE, _not_differentiable),
}
"""By op; a Loop's rule is `loop.py`."""
assert RULES.keys() | {"Loop"} == OPS.keys()
