"""Steps that move elements: views, joins, gathers, scatters, orders."""

from __future__ import annotations

from tests.fuzz.programs.growth import FLOATS, INTS, Extent, Growth, Known

MOVED = (*FLOATS, "float32", "float32", "float32", "int64", "int32", "bool")


def permuted(g: Growth) -> None:
    x = g.pick(MOVED)
    if x.rank < 2:
        g.reject()
    a, b = g.rng.sample(range(x.rank), 2)
    order = g.rng.sample(range(x.rank), x.rank)
    texts = (f"_0.transpose({a}, {b})", f"_0.permute({str(order)[1:-1]})", "_0.mT")
    g.add(g.rng.choice(texts), x)


def reshaped(g: Growth) -> None:
    x = g.pick(MOVED)
    kinds = [
        "_0.reshape(-1)",
        f"_0.unsqueeze({g.rng.randint(0, x.rank)})",
    ]
    if x.is_static:
        kinds.append("_0.squeeze()")
    if x.rank >= 2:
        rest = ", ".join(map(str, x.shape[2:]))
        kinds += ["_0.flatten(0, 1)", f"_0.reshape({_times(*x.shape[:2])}, {rest})"] * 2
    for k, n in enumerate(x.shape):
        if isinstance(n, int):
            kinds += [f"_0.unflatten({k}, ({p}, {n // p}))" for p in (2, 3, 4) if n and n % p == 0]
    g.add(g.rng.choice(kinds), x)


def _times(m: Extent, n: Extent) -> str:
    return f"({m}) * ({n})"


def cut(g: Growth) -> None:
    """Slices from ends, with steps, of one position."""
    x = g.pick(MOVED)
    k, n = g.literal_axis(x)
    a = g.rng.randint(0, n)
    b = g.rng.randint(a, n) if g.rng.random() < 0.9 else n + 2
    keys = [f"{a}:{b}", f"{a}:", f":{-g.rng.randint(1, n)}", f"::{g.rng.randint(2, 3)}"]
    keys += [f"{a}:{b}:2", str(g.rng.randint(-n, n - 1)), f"{g.rng.randint(-n, -1)}:"]
    g.add(f"_0[{':, ' * k}{g.rng.choice(keys)}]", x)


def cut_dim(g: Growth) -> None:
    """Slices of a dim that is known only at run time."""
    x = g.pick(MOVED)
    found = [k for k, n in enumerate(x.shape) if isinstance(n, str)]
    if not found:
        g.reject()
    k = g.rng.choice(found)
    keys = ("1:", ":-1", "::2", "1:-1", ":3", "-2:", "0", "-1")
    g.add(f"_0[{':, ' * k}{g.rng.choice(keys)}]", x)


def turned(g: Growth) -> None:
    x = g.pick(MOVED)
    k = g.axis(x)
    by = g.rng.choice((-2, -1, 1, 2, 3))
    g.add(g.rng.choice((f"_0.flip({k})", f"_0.roll({by}, {k})", f"_0.roll({by}, {k})")), x)


def padded(g: Growth) -> None:
    x = g.pick((*FLOATS, "float32", "float32"))
    if not x.rank:
        g.reject()
    a, b = g.rng.randint(0, 3), g.rng.randint(0, 3)
    kinds = [f"F.pad(_0, ({a}, {b}))", f"F.pad(_0, ({a}, {b}), value=-1.5)"]
    if x.rank >= 2:
        c = g.rng.randint(-1, 2)
        kinds.append(f"F.pad(_0, ({a}, {b}, {c}, 1))")
        mode = g.rng.choice(("reflect", "replicate", "circular"))
        kinds.append(f'F.pad(_0.reshape(1, *_0.shape), ({a}, {b}), "{mode}")[0]')
    g.add(g.rng.choice(kinds), x)


def joined(g: Growth) -> None:
    x = g.pick(MOVED)
    y = g.like(x.shape, x.dtype)
    kind = g.rng.random()
    if kind < 0.35:
        g.add(f"lm.cat([_0, _1], {g.axis(x)})", x, y)
    elif kind < 0.55:
        g.add(f"lm.stack([_0, _1, _0], {g.rng.randint(0, x.rank)})", x, y)
    elif kind < 0.8 and x.rank:
        k = g.rng.randrange(x.rank)
        fits = [v for v in g.fits((x.dtype,), x.rank) if _join(v, x, k)]
        z = g.rng.choice(fits) if fits else y
        g.add(f"lm.cat([_0, _1, _2], {k})", z, x, y)
    else:
        g.add("lm.cat([_0.reshape(-1), _1.reshape(-1)])", x, g.pick((x.dtype,)))


def _join(a: Known, b: Known, k: int) -> bool:
    return all(j == k or m == n for j, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)))


def repeated(g: Growth) -> None:
    x = g.pick(MOVED)
    k = g.axis(x)
    wide = ", ".join(map(str, (g.rng.randint(2, 3), *x.shape)))
    kinds = [f"_0.repeat_interleave(2, {k})", f"_0.expand({wide})", f"_0.unfold({k}, 2, 1)"]
    kinds += [f"_0.tile(({', '.join('21'[i > 0] for i in range(x.rank))},))"]
    g.add(g.rng.choice(kinds), x)


def diagonals(g: Growth) -> None:
    x = g.pick((*FLOATS, "float32", "int64"), 2, 3)
    by = g.rng.randint(-2, 2)
    kinds = [f"_0.tril({by})", f"_0.triu({by})", f"_0.tril({by})"]
    if x.rank == 2 and x.is_static:
        kinds.append("_0.diagonal()")
    g.add(g.rng.choice(kinds), x)


# --- by positions ---------------------------------------------------------------------------------


def positions(g: Growth, shape: tuple[Extent, ...], n: int) -> Known:
    """Valid positions of an axis of n elements: a leaf, or computed from integers there are."""
    if g.rng.random() < 0.3:
        fits = [v for v in g.fits(INTS[:2]) if v.shape == shape]
        if fits:
            return g.add(f"(_0 % {n}).to(lm.int64)", g.rng.choice(fits))
    dtype = "int64" if g.rng.random() < 0.8 else "int32"
    found = g.leaf(shape, dtype, f"below {n}")
    return found if dtype == "int64" else g.add("_0.to(lm.int64)", found)


def selected(g: Growth) -> None:
    x = g.pick(MOVED)
    k, n = g.literal_axis(x)
    count = g.extent()
    at = positions(g, (count,), n)
    g.add(f"_0.index_select({k}, _1)", x, at)


def gathered(g: Growth) -> None:
    x = g.pick(MOVED, 1, 2)
    k, n = g.literal_axis(x)
    shape = tuple(g.extent() if j == k else m for j, m in enumerate(x.shape))
    g.add(f"_0.gather({k}, _1)", x, positions(g, shape, n))


def looked_up(g: Growth) -> None:
    """Rows of a table by a tensor of positions."""
    x = g.static(MOVED, 2)
    if not x.shape[0]:
        g.reject()
    at = positions(g, g.shape(1, 1, 2), int(x.shape[0]))
    g.add("_0[_1]", x, at)


def scattered(g: Growth) -> None:
    x = g.static(("float32", "float32", "float64", "int64"), 1, 2)
    k, n = g.literal_axis(x)
    count = g.rng.choice((1, 3, 8))
    shape = tuple(count if j == k else m for j, m in enumerate(x.shape))
    at, source = positions(g, shape, n), g.like(shape, x.dtype)
    if g.rng.random() < 0.6:
        g.add(f"_0.scatter_add({k}, _1, _2)", x, at, source)
        return
    order = g.add(
        f"_0.argsort({k})", g.like(x.shape, x.dtype), torch=f"_0.argsort(dim={k}, stable=True)"
    )
    g.add(f"_0.scatter({k}, _1, _2)", x, order, g.like(x.shape, x.dtype))


def added_rows(g: Growth) -> None:
    x = g.static(("float32", "float32", "int64"), 1, 2)
    k, n = g.literal_axis(x)
    at = positions(g, (5,), n)
    shape = tuple(5 if j == k else m for j, m in enumerate(x.shape))
    g.add(f"_0.index_add({k}, _1, _2)", x, at, g.like(shape, x.dtype))


def ordered(g: Growth) -> None:
    x = g.pick(("float32", "float32", "float64", "int32", "int64"))
    k = g.axis(x)
    down = g.rng.choice((False, True))
    kind, n = g.rng.random(), x.shape[k]
    if kind < 0.35:
        g.add(
            f"_0.sort({k}, descending={down})[0]",
            x,
            torch=f"_0.sort(dim={k}, descending={down})[0]",
        )
    elif kind < 0.6:
        text = f"_0.argsort({k}, descending={down})"
        g.add(text, x, torch=f"_0.argsort(dim={k}, descending={down}, stable=True)")
    elif isinstance(n, int) and n > 0:
        count, part = g.rng.randint(1, n), g.rng.randint(0, 1)
        g.add(f"_0.topk({count}, {k})[{part}]", x, torch=f"lm.top(_0, {count}, {k}, {part})")
    else:
        g.add(f"_0.median({k})[0]", x)


def one_hot(g: Growth) -> None:
    n = g.rng.choice((2, 5, 9))
    g.add(f"F.one_hot(_0, {n})", positions(g, g.shape(1, 2), n))


def created(g: Growth) -> None:
    """Values from nothing."""
    n = g.extent()
    kinds = [f"cx.arange({n})", f"cx.arange({n}) * 0.5", f"cx.arange({n}) % 3"]
    if isinstance(n, int):
        kinds += [
            f"cx.eye({n})",
            f"cx.zeros(({n}, 3))",
            f"cx.ones((2, {n}))",
            f"cx.full(({n},), 1.5)",
        ]
    g.add(g.rng.choice(kinds))


def bits(g: Growth) -> None:
    """The bits of a float as an integer and back."""
    x = g.pick(("float32", "int32"))
    to = "int32" if x.dtype == "float32" else "float32"
    if not g.is_exact(x):
        g.reject()
    g.add(f"_0.view(lm.{to})", x, by_bits=True)
