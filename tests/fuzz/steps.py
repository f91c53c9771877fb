"""The steps by which `graphs.build` grows a random graph: each gives new values, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from luminal.base import dtypes
from luminal.hlir.attributes import Body
from luminal.hlir.graph import Assign, Builder
from luminal.hlir.ops import BITS, FLOATS, INTEGERS, NUMBERS, Value
from luminal.hlir.types import TensorType
from luminal.shape import view as views
from luminal.shape.expression import Expression, const, product_of
from tests.fuzz.graphs import CACHE, Growth

Step = Callable[[Growth], Iterator[Value]]

UNARY = ("Exp", "Log", "Exp2", "Log2", "Sin", "Cos", "Sqrt", "Recip", "Floor")
BINARY = ("Add", "Add", "Mul", "Mul", "FloorDiv", "Mod", "Maximum", "LessThan", "Equal")


# --- pointwise ------------------------------------------------------------------------------------


def unary(g: Growth) -> Iterator[Value]:
    yield g.builder.apply(g.rng.choice(UNARY), g.pick(*FLOATS))


def cast(g: Growth) -> Iterator[Value]:
    x = g.pick()
    if g.rng.random() < 0.2:
        same_size = [dtype for dtype in dtypes.ALL if dtype.size == x.dtype.size]
        yield g.builder.bitcast(x, g.rng.choice(same_size))
    yield g.builder.cast(x, g.rng.choice(dtypes.ALL))


def binary(g: Growth) -> Iterator[Value]:
    x = g.pick(*NUMBERS)
    y = g.like(x.type)
    name = g.rng.choice([*BINARY, "Div", "Div"] if x.dtype in FLOATS else BINARY)
    yield g.builder.apply(name, x, y) if g.rng.random() < 0.7 else g.builder.apply(name, y, x)


def bits(g: Growth) -> Iterator[Value]:
    x = g.pick(*BITS)
    names = ["And", "Or", "Xor"] + (["Shl", "Shr"] if x.dtype in INTEGERS else [])
    yield g.builder.apply(g.rng.choice(names), x, g.like(x.type))


def select(g: Growth) -> Iterator[Value]:
    x = g.pick()
    condition = g.like(TensorType(x.shape, dtypes.bool_))
    if g.rng.random() < 0.5:  # a mask
        bound = g.iota(TensorType(x.shape, dtypes.int64))
        limit = g.iota(TensorType(x.shape, dtypes.int64))
        condition = g.builder.apply("LessThan", bound, limit)
    yield g.builder.apply("Select", condition, x, g.like(x.type))


# --- reductions -----------------------------------------------------------------------------------


def reduce(g: Growth) -> Iterator[Value]:
    x = g.pick(*NUMBERS)
    if x.shape:
        yield g.rng.choice([g.builder.sum, g.builder.max])(x, g.axis(x))


def softmax(g: Growth) -> Iterator[Value]:
    x = g.pick(*FLOATS)
    if x.shape:
        b, axis = g.builder, g.axis(x)
        top = along(g, b.apply("Detach", b.max(x, axis)), x, axis)
        e = b.apply("Exp", b.apply("Add", x, b.apply("Mul", top, filled(g, -1.0, x))))
        yield b.apply("Div", e, along(g, b.sum(e, axis), x, axis))


def along(g: Growth, reduced: Value, x: Value, axis: int) -> Value:
    """A reduced value spread over `axis` of x again."""
    inserted = (*x.shape[:axis], const(1), *x.shape[axis + 1 :])
    lifted = g.builder.view(reduced, views.reshape(reduced.shape, inserted))
    return g.builder.view(lifted, views.expand(inserted, x.shape))


def filled(g: Growth, number: float, x: Value) -> Value:
    """`number` in the type of x."""
    scalar = g.builder.constant(np.array(number, x.dtype.numpy), x.dtype)
    return g.builder.view(scalar, views.expand((), x.shape))


def contraction(g: Growth) -> Iterator[Value]:
    """(..., m, k) by (k, n)."""
    a = g.pick(dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
    if not a.shape:
        return
    b, k = g.builder, a.shape[-1]
    other = g.like(TensorType((k, g.extent()), a.dtype))
    full = (*a.shape[:-1], other.shape[1], k)
    order = [*range(len(a.shape) - 1), len(a.shape), len(a.shape) - 1]
    lifted = b.view(a, views.reshape(a.shape, (*a.shape, const(1))))
    left = b.view(lifted, views.permute(lifted.shape, order))
    right = b.view(other, views.permute(other.shape, [1, 0]))
    factors = (b.view(x, views.expand(x.shape, full)) for x in (left, right))
    yield b.sum(b.apply("Mul", *factors), len(full) - 1)


def ordered(g: Growth) -> Iterator[Value]:
    x = g.pick(*NUMBERS)
    if not x.shape:
        return
    if g.rng.random() < 0.5:
        yield g.builder.scan(x, g.rng.choice(["add", "mul", "max"]), g.axis(x))
    else:
        yield from g.builder.sort(x, g.axis(x))


# --- views ----------------------------------------------------------------------------------------


def view(g: Growth) -> Iterator[Value]:
    x = g.pick()
    for _ in range(g.rng.randint(1, 3)):
        made = g.rng.choice(VIEWS)(g, x.shape)
        if made is not None:
            x = g.builder.view(x, made)
    yield x


Shape = tuple[Expression, ...]
MakeView = Callable[[Growth, Shape], views.View | None]


def permute(g: Growth, shape: Shape) -> views.View:
    return views.permute(shape, g.rng.sample(range(len(shape)), len(shape)))


def expand(g: Growth, shape: Shape) -> views.View:
    stretched = [g.extent() if n == 1 and g.rng.random() < 0.7 else n for n in shape]
    return views.expand(shape, (*g.any_shape(0, 1), *stretched))


def flip(g: Growth, shape: Shape) -> views.View | None:
    return views.flip(shape, g.rng.randrange(len(shape))) if shape else None


def pad(g: Growth, shape: Shape) -> views.View:
    return views.pad(shape, [(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in shape])


def slice_(g: Growth, shape: Shape) -> views.View:
    """Literal extents only: a symbolic bound would need a requirement."""
    starts, steps, sizes = [], [], []
    for extent in shape:
        picked = range(extent.value) if extent.is_const else range(0)
        if len(picked) > 0:
            picked = picked[g.rng.randrange(len(picked)) :: g.rng.choice([1, 1, 2, 3])]
            picked = picked if g.rng.random() < 0.7 else picked[::-1]
        starts.append(picked.start if extent.is_const else 0)
        steps.append(picked.step if extent.is_const else 1)
        sizes.append(const(len(picked)) if extent.is_const else extent)
    return views.slice_(shape, starts, steps, sizes)


def window(g: Growth, shape: Shape) -> views.View | None:
    wide = [k for k, n in enumerate(shape) if n.is_const and n.value >= 2]
    if not wide:
        return None
    axis = g.rng.choice(wide)
    size, stride, dilation = 2, g.rng.randint(1, 3), g.rng.randint(1, shape[axis].value - 1)
    count = (shape[axis].value - 1 - dilation) // stride + 1
    return views.window(shape, axis, size, stride, dilation, count)


def reshape(g: Growth, shape: Shape) -> views.View:
    """Merges two neighbours, splits a literal extent, or inserts a 1."""
    new = list(shape)
    at = g.rng.randint(0, len(shape))
    kind = g.rng.choice(["merge", "split", "one", "flat"])
    if kind == "merge" and at + 1 < len(shape):
        new[at : at + 2] = [shape[at] * shape[at + 1]]
    elif (
        kind == "split" and at < len(shape) and shape[at].is_const and shape[at].value in (4, 6, 8)
    ):
        new[at : at + 1] = [const(2), const(shape[at].value // 2)]
    elif kind == "flat":
        new = [product_of(shape)]
    else:
        new.insert(at, const(1))
    return views.reshape(shape, new)


VIEWS: tuple[MakeView, ...] = (permute, expand, flip, pad, slice_, window, reshape)


def concat(g: Growth) -> Iterator[Value]:
    """Select(i < n, a, b shifted by n) along one axis."""
    x = g.pick()
    if not x.shape:
        return
    b, axis = g.builder, g.axis(x)
    y = g.like(x.type)
    n = x.shape[axis]
    none = [(const(0), const(0))] * len(x.shape)
    after, before = list(none), list(none)
    after[axis], before[axis] = (const(0), n), (n, const(0))
    first, second = b.view(x, views.pad(x.shape, after)), b.view(y, views.pad(y.shape, before))
    position = b.iota(views.index(axis, first.shape[axis]), first.shape, dtypes.int64)
    limit = b.iota(n, first.shape, dtypes.int64)
    yield b.apply("Select", b.apply("LessThan", position, limit), first, second)


# --- memory ---------------------------------------------------------------------------------------


def entries(g: Growth, target: Shape, shape: Shape) -> list[Expression | Value]:
    """One map entry per dimension of `target`, over the points of `shape`."""
    found: list[Expression | Value] = []
    for _ in target:
        if shape and g.rng.random() < 0.5:
            axis = g.rng.randrange(len(shape))
            step, start = g.rng.choice([1, 1, 1, 2, -1]), g.rng.randint(-1, 2)
            found.append(step * views.index(axis, shape[axis]) + start)
        else:
            found.append(g.like(TensorType(shape, g.rng.choice([dtypes.int32, dtypes.int64]))))
    return found


def gather(g: Growth) -> Iterator[Value]:
    source = g.pick()
    shape = g.any_shape()
    yield g.builder.gather(source, shape, entries(g, source.shape, shape))


def scatter(g: Growth) -> Iterator[Value]:
    dest = g.pick()
    source = g.like(TensorType(g.any_shape(), dest.dtype))
    mode = g.rng.choice(["set", "add"]) if dest.dtype in NUMBERS else "set"
    yield g.builder.scatter(dest, entries(g, dest.shape, source.shape), source, mode)


# --- States and Loops -----------------------------------------------------------------------------


def assign(g: Growth) -> Iterator[Value]:
    """A State takes a value of its type: its own flipped or any other."""
    taken = {sink.state for sink in g.assigns} | g.looped
    free = [state for state in g.states if state not in taken]
    for state in free[:2]:
        old = g.builder.state(state)
        new = g.like(old.type)
        if old.shape and g.rng.random() < 0.4:
            new = g.builder.view(old, views.flip(old.shape, g.axis(old)))
        if new in g.values or g.keep(new):
            g.assigns.append(Assign(state, new))
    yield from ()


def swap(g: Growth) -> Iterator[Value]:
    type_ = TensorType((const(3), const(2)), dtypes.float32)
    a, b = g.state(type_), g.state(type_)
    g.assigns += [Assign(a.node.attrs.state, b), Assign(b.node.attrs.state, a)]
    yield g.builder.apply("Add", a, b)


def cache(g: Growth) -> Iterator[Value]:
    """New rows written into a State at `past`, and its first past + n rows read."""
    width = const(g.rng.choice([1, 2, 4]))
    length = g.rng.choice([*(dim for dim in g.dims if dim.name == "s"), const(2)])
    rows = g.like(TensorType((length, width), dtypes.float32))
    old = g.state(TensorType((const(CACHE), width), dtypes.float32))
    past = g.past(length)
    place = [past + views.index(0, length), views.index(1, width)]
    written = g.builder.scatter(old, place, rows)
    if g.keep(written):
        g.assigns.append(Assign(old.node.attrs.state, written))
        used = (past + length, width)
        yield g.builder.view(written, views.slice_(written.shape, (0, 0), (1, 1), used))


def loop(g: Growth) -> Iterator[Value]:
    """carry' = f(carry, slice, invariant); y = carry', over a tensor or a list of leaves."""
    first = g.pick(dtypes.float32, dtypes.int32)
    type_ = first.type
    count = g.rng.randint(0, 3)
    trips = g.rng.choice([const(count), *(dim for dim in g.dims if dim.name == "s")])
    if trips.is_const and count and g.rng.random() < 0.4:
        stream: Value | list[Value] = [g.like(type_) for _ in range(count)]
    else:
        stream = g.like(TensorType((trips, *type_.shape), type_.dtype))
    invariant = g.like(type_)
    yield from g.builder.loop(trips, body(g, type_), [first], [stream], [invariant])


def states_loop(g: Growth) -> Iterator[Value]:
    """A list of States as stream; each iteration's y is assigned to one of them, or another."""
    type_ = TensorType((const(g.rng.randint(1, 3)), const(2)), dtypes.float32)
    old = [g.state(type_) for _ in range(g.rng.randint(1, 3))]
    states = tuple(value.node.attrs.state for value in old)
    if g.rng.random() < 0.4:
        states = tuple(g.state(type_).node.attrs.state for _ in old)
    g.looped.update(states)
    inner = Builder()
    carry, piece = (inner.input(f"arg{k}", *type_) for k in range(2))
    total = inner.apply("Add", carry, piece)
    turned = inner.view(total, views.flip(type_.shape, 0))
    body_ = Body((carry.node, piece.node), (total, turned))
    yield from g.builder.loop(const(len(old)), body_, [g.like(type_)], [old], [], (states,))


def body(g: Growth, type_: TensorType) -> Body:
    inner = Builder()
    carry, piece, fixed = (inner.input(f"arg{k}", *type_) for k in range(3))
    value = carry
    for operand in (piece, fixed):
        value = inner.apply(g.rng.choice(["Add", "Maximum", "Mul"]), value, operand)
    if type_.shape and g.rng.random() < 0.5:
        value = inner.view(value, views.flip(type_.shape, g.axis(value)))
    return Body(
        (carry.node, piece.node, fixed.node), (value, value if g.rng.random() < 0.5 else carry)
    )


def swap_loop(g: Growth) -> Iterator[Value]:
    """Two carried values that change places, one of them gathered from; a Loop within the Loop."""
    first = g.pick(dtypes.float32, dtypes.int32, dtypes.int64, dtypes.bfloat16)
    if not first.shape:
        return
    type_ = first.type
    trips = g.rng.choice([const(g.rng.randint(0, 3)), *(d for d in g.dims if d.name in ("s", "z"))])
    inner = Builder()
    a, b = (inner.input(f"arg{k}", *type_) for k in range(2))
    at = inner.iota(1 - views.index(0, type_.shape[0]), type_.shape[:1], dtypes.int64)
    rest = [views.index(k, n) for k, n in enumerate(type_.shape) if k]
    spread = inner.view(at, views.expand(at.shape, type_.shape[1:] + at.shape))
    order = [len(rest), *range(len(rest))]
    gathered = inner.gather(
        b, type_.shape, [inner.view(spread, views.permute(spread.shape, order)), *rest]
    )
    body_ = Body((a.node, b.node), (gathered, a, b))
    if g.rng.random() < 0.4:
        outer = Builder()
        c, d = (outer.input(f"outer{k}", *type_) for k in range(2))
        again = outer.loop(const(2), body_, [c, d], [], [])
        body_ = Body((c.node, d.node), (again[1], again[0]))
    yield from g.builder.loop(trips, body_, [first, g.like(type_)], [], [])


STEPS: tuple[Step, ...] = (
    *(unary, unary, unary, binary, binary, binary, cast, bits, select),
    *(reduce, reduce, softmax, contraction, contraction, ordered),
    *(view, view, view, concat, gather, scatter),
    *(assign, swap, cache, loop, swap_loop, states_loop),
)
