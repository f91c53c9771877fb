"""Steps of random programs at the limits of rules: where a cut is nearly one of the other side, and
where a reduction may nearly be put off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luminal.distribute.mesh import Mesh, Spec
from tests.fuzz.programs.form import Extent
from tests.fuzz.programs.growth import Growth, Known

SUMS = (
    "lm.maximum(_0.sum({k}), _1.sum({k}))",
    "_0.sum({k}) * _1.sum({k})",
    "_0.sum({k}) * _1.amax({k})",
    "_0.sum({k}) + _1.amax({k})",
    "lm.maximum(_0.sum({k}), _1.amax({k}))",
    "_0.amax({k}) + _1.amax({k})",
    "_0.amax({k}) * -2.0",
    "lm.maximum(_0.amax({k}), _1.amax({k})).sum(0)",
    "_0.amax({k}).sum(0) + _1.sum({k}).amax(0)",
    "_0.sum({k}).amax(0)",
    "(_0.sum({k}) + _1.sum({k})).sum(0)",
    "(_0.sum({k}) * 0.5).sum(0) + _1.sum({k}).sum(0)",
    "_0.sum({k}) + 1.0",
    "lm.maximum(_0.amax({k}), _1.sum({k})).amax(0)",
    "F.pad(_0.amax({k}), (1, 1)).amax(-1) + F.pad(_1.sum({k}), (1, 1)).sum(-1)",
    "_0.amax({k}) * _1.sum({k})",
)

STEPS = (
    "lm.scan(lambda c, x: (sharded(c * 0.5 + x, {c}), sharded(c * x, {y})), _0, _1)",
    "lm.scan(lambda c, x: (c + sharded(x, {c}).sum(0), sharded(x.tanh(), {y}) - c), _0, _1)",
    "lm.scan(lambda c, x: (lm.maximum(c, x.amax(0)), (c + x).sum(0)), _0, _1)",
    "lm.scan(lambda c, x: (c * 0.5 + x.amax(0) * x.sum(0), x.sum(0) + c.sum(0)), _0, _1)",
)


def cut(g: Growth, shape: Sequence[Extent]) -> Spec:
    """A drawn spec that cuts the shape along as many mesh axes as divide it."""
    mesh: Mesh = g.mesh  # type: ignore[attr-defined]
    names: list[list[str]] = [[] for _ in shape]
    left = list(shape)
    for axis in g.rng.sample(mesh.names, len(mesh.names)):
        fits = [
            k for k, n in enumerate(left) if isinstance(n, int) and n and n % mesh.ranks(axis) == 0
        ]
        if fits:
            k = g.rng.choice(fits)
            names[k].append(axis)
            left[k] //= mesh.ranks(axis)  # type: ignore[operator]
    return tuple(map(tuple, names))


def sizes(g: Growth, count: int) -> list[int]:
    """Extents that the mesh divides, each of a few parts."""
    mesh: Mesh = g.mesh  # type: ignore[attr-defined]
    return [mesh.size * g.rng.choice((1, 1, 2)) for _ in range(count)]


def add(g: Growth, text: str, *args: Known) -> Known:
    """A new step; for PyTorch a value lies nowhere."""
    return g.add(text, *args, torch=f"(lambda sharded: {text})(lambda x, spec: x)")


def leaf(g: Growth, shape: tuple[int, ...]) -> Known:
    """A new leaf, or a value that lies in a drawn way."""
    x = g.leaf(shape, "float32")
    return add(g, f"sharded(_0, {cut(g, shape)!r})", x) if g.rng.random() < 0.8 else x


def window(g: Growth) -> None:
    """A window whose offset is no multiple of what a rank holds."""
    (n,) = sizes(g, 1)
    offset = g.rng.choice((1, n, g.rng.randint(1, n)))
    kinds = (f"_0[{offset}:{offset + n}]", f"_0[{offset}::2][:{n}]", f"_0.roll({offset}, 0)[:{n}]")
    kinds += (f"_0[:, 0].unfold(0, 3, 2)[:{n}]",)
    x, y = leaf(g, (g.rng.choice((4 * n, 3 * n + 1)), 2)), leaf(g, (n, 1))
    add(g, f"{g.rng.choice(kinds)} * _1", x, y)


def repeats(g: Growth) -> None:
    """The same positions read by several ranks, which are a digit of none."""
    (n,) = sizes(g, 1)
    x, cut_so = leaf(g, (4 * n,)), leaf(g, (1, 2 * n))
    y = add(g, f"_0.unflatten(0, (2, {2 * n}))[:, :{n}].tile((1, 2))", x)
    add(g, "_0 * _1", y, cut_so)


def turned(g: Growth) -> None:
    """Windows beside one another that are read backwards, the first of them partly outside."""
    (n,) = sizes(g, 1)
    size = g.rng.choice((2, 4))
    x, cut_so = leaf(g, (n * size,)), leaf(g, (n, 1))
    y = add(g, f"F.pad(_0, ({size - 1}, 0)).unfold(0, {size}, {size}).flip(-1)", x)
    add(g, "_0 * _1", y, cut_so)


def inner(g: Growth) -> None:
    """What is cut by an inner digit, then by one around it: exchanged, or added to its parts."""
    n, k = sizes(g, 2)
    mesh: Mesh = g.mesh  # type: ignore[attr-defined]
    spec, whole = [(), mesh.names[1:], mesh.names[:1]], (mesh.names, ())
    x = add(g, f"sharded(_0, {tuple(spec)!r})", g.leaf((2, n, k), "float32"))
    if g.rng.random() < 0.5:
        add(g, f"sharded(_0.flatten(0, 1).tanh(), {whole!r})", x)
    else:
        z = add(g, f"sharded(_0, {whole[:1]!r})", g.leaf((2 * n,), "float32"))
        add(g, "_0.flatten(0, 1).sum(-1) + _1", x, z)


def met(g: Growth) -> None:
    """Sums over ranks that meet sums, maxima and products."""
    n, m = sizes(g, 2)
    spec = cut(g, (n, m))
    k = int(bool(spec[1]))
    x = add(g, f"sharded(_0, {spec!r})", g.leaf((n, m), "float32"))
    if g.rng.random() < 0.6:
        y = add(g, f"sharded(_0, {spec!r})", g.leaf((n, m), "float32"))
    else:
        y = leaf(g, (n, m))
    add(g, g.rng.choice(SUMS).format(k=k), x, y)


def added(g: Growth) -> None:
    """Rows that several ranks add to what all have, and what is then done with the sum."""
    n, m = sizes(g, 2)
    x, rows = leaf(g, (n, m)), leaf(g, (m, m))
    at = g.leaf((m,), "int64", f"below {n}")
    if g.rng.random() < 0.2:
        add(g, "_2.sum(1).index_add(0, _0, _1.sum(1)) + _2.sum(1)", at, rows, x)
        return
    after = g.rng.choice(("", ".sum(1)", ".sum(0)", " + _2", " * 0.5", ".amax(1)"))
    add(g, f"_2.index_add(0, _0, _1){after}", at, rows, x)


def carried(g: Growth) -> None:
    """A Loop whose carried values, slices and results lie in ways of their own."""
    n, m = sizes(g, 2)
    text = g.rng.choice(STEPS)
    shape = (n,) if "x.sum(0)" in text or "amax(0)" in text or ".sum(0), sh" in text else (n, m)
    rows = (g.rng.choice((2, n)), *((m, n) if len(shape) == 1 else shape))
    x, xs = leaf(g, shape), leaf(g, rows)
    c, y = cut(g, rows[1:]), cut(g, rows[1:])
    part = g.rng.randint(0, 1)
    out = add(g, f"{text.format(c=repr(c), y=repr(y))}[{part}]", x, xs)
    if g.rng.random() < 0.7:
        add(g, f"sharded(_0 * 2.0, {cut(g, out.shape)!r})", out)


def kept(g: Growth) -> None:
    """States that a Loop's trips read and assign, each of which lies in a way of its own."""
    shape = (*sizes(g, 1), g.rng.choice((1, 3, 4)))
    x, *states = leaf(g, shape), *(g.state(shape, "float32") for _ in range(g.rng.randint(1, 3)))
    names = [f"_{k}" for k in range(1, len(states) + 1)]
    totals = [" + ".join(["_0", *names[:k]]) for k in range(1, len(states) + 1)]
    if g.rng.random() < 0.5:
        out, torch = "[0]", totals[-1]
    else:
        terms = (f"(({t}) * {n}).flip(0)" for t, n in zip(totals, names, strict=True))
        out, torch = "[1].sum(0)", " + ".join(terms)
    y = g.add(f"looped(_0, {', '.join(names)}){out}", x, *states, torch=torch)
    if g.rng.random() < 0.5:
        add(g, f"sharded(_0 * 2.0, {cut(g, y.shape)!r})", y)


DIRECTED: tuple[Callable[[Growth], None], ...] = (
    window, repeats, turned, inner, met, met, added, carried, carried, kept,
)  # fmt: skip
