"""Steps of contractions, windows, loops and States."""

from __future__ import annotations

from tests.fuzz.programs.growth import Extent, Growth, Known

FACTORS = ("float32",) * 8 + ("float64", "float16", "bfloat16", "int32", "int64")


def product(g: Growth) -> None:
    """x @ w: of matrices, batches, vectors."""
    x = g.pick(tuple(set(FACTORS)), 1, 2, 2, 3)
    if not x.rank:
        g.reject()
    k, n = x.shape[-1], g.extent()
    if g.rng.random() < 0.5:
        fits = [v for v in g.fits((x.dtype,)) if v.rank >= 2 and v.shape[-2] == k]
        if fits:
            n = g.rng.choice(fits).shape[-1]
    kind = g.rng.random()
    if kind < 0.6:
        g.add("_0 @ _1", x, g.like((k, n), x.dtype))
    elif kind < 0.75:
        g.add("_0 @ _1.mT", x, g.like((n, k), x.dtype))
    elif kind < 0.85 and x.rank == 3:
        g.add("_0 @ _1", x, g.like((x.shape[0], k, n), x.dtype))
    elif kind < 0.92:
        g.add("F.linear(_0, _1, _2)", x, g.like((n, k), x.dtype), g.like((n,), x.dtype))
    else:
        g.add("_0 @ _1", x, g.like((k,), x.dtype))


def with_itself(g: Growth) -> None:
    x = g.pick(("float32", "float32", "float64"), 2, 3)
    g.add(
        g.rng.choice(
            ("_0 @ _0.mT", "_0.mT @ _0", "(_0 @ _0.mT) @ _0", "(_0 @ _0.mT).softmax(-1) @ _0")
        ),
        x,
    )


def two_products(g: Growth) -> None:
    """The product of a product, with something in between."""
    x = g.pick(("float32", "float32", "float64"), 2, 3)
    k, m, n = x.shape[-1], g.extent(), g.extent()
    between = g.rng.choice((".softmax(-1)", "", ".relu()", " * 0.5", ".tanh()", ".softmax(-2)"))
    body = f"(_0 @ _1){between}" if between[:1] == "." else f"((_0 @ _1){between})"
    g.add(f"{body} @ _2", x, g.like((k, m), x.dtype), g.like((m, n), x.dtype))


def attention(g: Growth) -> None:
    q = g.pick(("float32", "float32", "float64"), 2, 3)
    d, m = q.shape[-1], g.extent()
    key, v = (g.like((*q.shape[:-2], m, d), q.dtype) for _ in range(2))
    texts = ("F.scaled_dot_product_attention(_0, _1, _2)", "(_0 @ _1.mT * 0.25).softmax(-1) @ _2")
    finite = all(bool(x.isfinite().all()) for known in (q, key) for x in known.arrays)
    # PyTorch's function gives 0 where all scores are -inf, ours only under a mask
    g.add(texts[g.rng.randint(0, 1) if finite else 1], q, key, v)


def by_letters(g: Growth) -> None:
    x = g.pick(("float32", "float32", "float64"), 2)
    a, b = x.shape
    kind = g.rng.choice(("ab,bc->ac", "ab,ab->b", "ab,ac->bc", "ab,c->abc", "ab,bc->ca", "ab,ab->"))
    sizes: dict[str, Extent] = {"a": a, "b": b, "c": g.extent()}
    other = tuple(sizes[letter] for letter in kind.split("->")[0].split(",")[1])
    g.add(f'lm.einsum("{kind}", _0, _1)', x, g.like(other, x.dtype))


# --- windows --------------------------------------------------------------------------------------


def pooled(g: Growth) -> None:
    x = g.static(("float32", "float32", "float64"), 3)
    size, stride, pad = g.rng.randint(1, 3), g.rng.randint(1, 3), g.rng.randint(0, 1)
    kinds = (f"F.max_pool1d(_0, {size}, {stride})", f"F.avg_pool1d(_0, {size}, {stride})")
    wide = (
        f"F.max_pool2d(_0, {size + 1}, {stride}, {pad})",
        f"F.avg_pool2d(_0, {size + 1}, {stride}, {pad})",
        f"F.adaptive_avg_pool2d(_0, ({size}, {stride}))",
    )
    g.add(g.rng.choice((*kinds, *wide)), x)


def convolved(g: Growth) -> None:
    x = g.static(("float32", "float32", "float64"), 3)
    channels, out, size = x.shape[-2], g.rng.randint(1, 4), g.rng.randint(1, 3)
    if not channels:
        g.reject()  # PyTorch gives nothing, whatever the shape says
    stride, pad = g.rng.randint(1, 2), g.rng.randint(0, 2)
    kind = g.rng.random()
    if kind < 0.6:
        w = g.like((out, channels, size), x.dtype)
        g.add(f"F.conv1d(_0, _1, None, {stride}, {pad})", x, w)
    elif kind < 0.85:
        w = g.like((out, 1, size, size), x.dtype)
        g.add(f"F.conv2d(_0.unsqueeze(1), _1, None, {stride}, {pad})", x, w)
    else:
        w = g.leaf((channels, out, size), x.dtype, "normal")  # finite: see docs/ops.md
        g.add(f"F.conv_transpose1d(_0, _1, None, {stride})", x, w)


# --- loops ----------------------------------------------------------------------------------------

LOOPS = (
    "lm.scan(lambda c, x: ((c * 0.5 + x).tanh(), c * x), _0, _1)",
    "lm.scan(lambda c, x: (lm.maximum(c, x), c + x * _2), _0, _1)",
    "lm.scan(lambda c, x: ((c + x).softmax(-1), c.sum(-1)), _0, _1)",
    "lm.scan(lambda c, x: (c.flip(-1) * 0.5 + x, x * 2), _0, _1)",
    "lm.scan(lambda c, x: (c * 0.5 + x * _2, c.amax(-1) + _2.sum()), _0, _1)",
)


def rows_of(g: Growth, x: Known) -> Known:
    """A stack of values like x, to run along."""
    n = g.extent()
    if isinstance(n, int) and n > 17:
        g.reject()
    return g.like((n, *x.shape), x.dtype)


def loop(g: Growth) -> None:
    """A value carried along the rows of another."""
    x = g.pick(("float32", "float32", "float64"), 1, 2)
    if not x.rank:
        g.reject()
    rows = rows_of(g, x)
    part = g.rng.randint(0, 1)
    g.add(f"{g.rng.choice(LOOPS)}[{part}]", x, rows, g.like(x.shape, x.dtype))


def loop_of_products(g: Growth) -> None:
    x = g.pick(("float32",), 1, 2)
    if not x.rank:
        g.reject()
    n = x.shape[-1]
    w = g.like((n, n), x.dtype)
    if g.rng.random() < 0.5:
        trips, part = g.rng.randint(1, 4), g.rng.randint(0, 1)
        g.add(
            f"lm.scan(lambda c, _: ((c @ _1).tanh(), c.sum(-1)), _0, length={trips})[{part}]",
            x,
            w,
        )
    else:
        rows = rows_of(g, x)
        g.add("lm.scan(lambda c, x: ((c @ _2 + x).tanh(), c @ _2), _0, _1)[1]", x, rows, w)


def two_carried(g: Growth) -> None:
    x = g.pick(("float32", "float32", "int32"), 1, 2)
    if not x.rank:
        g.reject()
    y, rows = g.like(x.shape, x.dtype), rows_of(g, x)
    part = g.rng.choice(("[0][0]", "[0][1]", "[1]"))
    g.add(f"lm.scan(lambda c, x: ((c[1], c[0] + x), c[0] * 2), (_0, _1), _2){part}", x, y, rows)


# --- States ---------------------------------------------------------------------------------------


def assigned(g: Growth) -> None:
    """A State's new value: some value of its type."""
    taken = {leaf for leaf, _ in g.assigns}
    states = [v for v in g.values if g.is_state(v) and v.number not in taken]
    if states and g.rng.random() < 0.5:
        state = g.rng.choice(states)
    else:
        state = _new_state(g)
    fits = [v for v in g.values if v.shape == state.shape and v.dtype == state.dtype]
    value = g.rng.choice(fits)
    g.assigns.append((state.number, value.number))


def _new_state(g: Growth) -> Known:
    like = g.pick()
    if not like.is_static:
        g.reject()
    return g.state(like.shape, like.dtype)


def written_state(g: Growth) -> None:
    """A State whose rows are scattered into, read before and after."""
    n, width = g.rng.choice((4, 8)), g.extent()
    if not isinstance(width, int):
        g.reject()
    table = g.state((n, width), "float32")
    rows = g.like((3, width), "float32")
    start = g.rng.randint(0, n - 3)
    new = g.add(f"_0.slice_scatter(_1, 0, {start}, {start + 3})", table, rows)
    g.assigns.append((table.number, new.number))
    g.add("_0 + _1 * 2" if g.rng.random() < 0.5 else "_0 @ _1.mT", table, new)
