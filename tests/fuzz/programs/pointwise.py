"""Steps that work by element, and those that reduce or run along a dim.

Literal factors are exact in every float, so that both libraries compute with the same number.
"""

from __future__ import annotations

from tests.fuzz.programs.growth import ALL, FLOATS, INTS, NUMBERS, Growth, Known

UNARY = (
    *("_0.exp()", "_0.sigmoid()", "_0.tanh()", "_0.relu()", "_0.sin()", "_0.cos()", "_0.abs()"),
    *("-_0", "_0.square()", "_0.abs().sqrt()", "(_0 * _0 + 1).rsqrt()", "_0.log()", "_0.erf()"),
    *("_0.reciprocal()", "F.gelu(_0)", "F.silu(_0)", "F.softplus(_0)", "_0.exp2()", "_0.atan()"),
    *("_0.expm1()", "_0.abs().log1p()", "F.elu(_0)", "F.leaky_relu(_0)", "F.hardswish(_0)"),
    *("_0.floor()", "_0.round()", "_0.trunc()", "_0.frac()", "_0.clamp(-9, 9).ceil()"),
    *("_0.clamp(-1, 2)", "_0.clamp(min=0.5)", "_0.nan_to_num(0.5, 2, -2)", "F.logsigmoid(_0)"),
    *("F.relu6(_0)", "F.hardtanh(_0)", "F.softsign(_0)", 'F.gelu(_0, approximate="tanh")'),
)
SCALARS = (
    *("_0 + 1.5", "2 - _0", "_0 * 0.5", "_0 / 4", "1 / _0", "_0 ** 2", "_0 ** 3", "_0 % 2"),
    *("_0 // 2", "_0 - 0.25", "-3 * _0", "3 / (_0 * _0 + 1)", "(_0 - 1) * (_0 + 1)"),
)
BINARY = (
    *("_0 + _1", "_0 + _1", "_0 - _1", "_0 - _1", "_0 * _1", "_0 * _1", "_0 * _1", "_0 / _1"),
    *("lm.maximum(_0, _1)", "lm.minimum(_0, _1)", "_0 / (_1 * _1 + 1)", "_0 * _1 + _0"),
    *("lm.atan2(_0, _1)", "lm.hypot(_0, _1)", "_0.lerp(_1, 0.5)", "lm.logaddexp(_0, _1 * 0.5)"),
    *("_0.fmax(_1)", "lm.copysign(_0, _1)", "_0 % (_1.abs() + 1)"),
)
WHOLE = (
    *("_0 + _1", "_0 - _1", "_0 * _1", "lm.maximum(_0, _1)", "lm.minimum(_0, _1)", "_0 & _1"),
    *("_0 | _1", "_0 ^ _1"),
)
WHOLE_UNARY = (
    *("_0 + 3", "_0 * 5", "_0 // 3", "_0 % 7", "_0 << 2", "_0 >> 1", "~_0", "-_0", "_0.abs()"),
    *("_0.clamp(-2, 5)", "_0 ** 2", "7 - _0", "_0.sign()", "_0 // -2", "_0 % -3", "_0 / 4"),
)
COMPARE = ("_0 < _1", "_0 <= _1", "_0 > _1", "_0 == _1", "_0 != _1", "_0 >= _1")
TRUTH = ("_0 & _1", "_0 | _1", "_0 ^ _1", "lm.logical_and(_0, ~_1)")


def unary(g: Growth) -> None:
    g.add(g.rng.choice(UNARY), g.pick())


def scalar(g: Growth) -> None:
    g.add(g.rng.choice(SCALARS), g.pick())


def binary(g: Growth) -> None:
    x = g.pick()
    y = g.beside(x)
    g.add(g.rng.choice(BINARY), *((x, y) if g.rng.random() < 0.5 else (y, x)))


def mixed(g: Growth) -> None:
    """Operands of two dtypes."""
    x, y = g.pick(NUMBERS), g.pick(ALL)
    g.add(g.rng.choice(("_0 + _1", "_0 * _1", "_0 - _1 * 2")), x, y)


def whole(g: Growth) -> None:
    """Integers."""
    x = g.pick(INTS)
    if g.rng.random() < 0.5:
        g.add(g.rng.choice(WHOLE_UNARY), x)
    else:
        g.add(g.rng.choice(WHOLE), x, g.beside(x))


def compare(g: Growth) -> None:
    x = g.pick(NUMBERS)
    g.add(g.rng.choice(COMPARE), x, g.beside(x))


def truth(g: Growth) -> None:
    kinds = ("_0 > 0.5", "_0 != 0", "_0 == 0", "_0 < 2", "_0.isnan()", "_0.isfinite()", "_0 >= -1")
    if g.rng.random() < 0.4:
        x = g.pick(("bool",))
        g.add(g.rng.choice(TRUTH), x, g.beside(x))
    else:
        g.add(g.rng.choice(kinds), g.pick(NUMBERS))


def where(g: Growth) -> None:
    x = g.pick(ALL)
    y = g.like(x.shape, x.dtype)
    kind = g.rng.random()
    if kind < 0.4 and x.dtype in NUMBERS:
        g.add(g.rng.choice(("lm.where(_0 > _1, _0, _1)", "lm.where(_0 > 0, _1, _0 * 2)")), x, y)
    elif kind < 0.6:
        mask = g.like(x.shape, "bool")
        g.add("lm.where(_0, _1, _2)", mask, x, y)
    elif kind < 0.8 and x.rank:
        n = x.shape[-1]
        g.add(f"lm.where(cx.arange({n}) % 2 == 0, _0, _1)", x, y)
    elif x.dtype in FLOATS:
        g.add("_0.masked_fill(_1, -1.5)", x, g.beside(g.like(x.shape, "bool")))


def cast(g: Growth) -> None:
    x = g.pick(ALL)
    to = g.rng.choice(("float32", "float32", "float64", "float16", "bfloat16", *INTS, "bool"))
    name = "bool_" if to == "bool" else to
    if to in INTS and x.dtype in FLOATS:  # NaN and what does not fit is PyTorch's own business
        g.add(f"(_0.nan_to_num(0, 0, 0).clamp(0, 99) * 3 / 4).to(lm.{name})", x)
    else:
        g.add(f"_0.to(lm.{name})", x)


def sums(g: Growth) -> None:
    x = g.pick((*FLOATS, *FLOATS, "int32", "int64", "bool"))
    if x.dtype == "bool":
        kind = g.rng.choice(("any", "all", "sum"))
    elif x.dtype in INTS:
        kind = g.rng.choice(("sum", "amax", "amin", "prod"))
    else:
        names = ("sum", "sum", "sum", "mean", "amax", "amin", "var", "std", "norm", "logsumexp")
        kind = g.rng.choice((*names, "prod"))
    keep = g.rng.choice(("", "", ", keepdim=True"))
    if kind in ("sum", "mean", "amax", "amin", "var", "norm") and x.rank > 1:
        dims = g.rng.sample(range(x.rank), g.rng.randint(1, x.rank))
        text = str(dims[0]) if len(dims) == 1 else str(tuple(dims))
    else:
        text = str(g.axis(x))
    if kind in ("var", "std"):
        keep = f", correction={g.rng.choice((0, 1))}{keep}"
    if kind == "norm":
        text = f"dim={text}"
    g.add(f"_0.{kind}({text}{keep})", x)


def extreme(g: Growth) -> None:
    """Positions of extremes, and values beside them."""
    x = g.pick(("float32", "float32", "float64", "int32", "int64"))
    k = g.axis(x)
    kind = g.rng.choice(("argmax", "argmin", "max", "cummax"))
    if kind in ("argmax", "argmin"):
        keep = g.rng.choice((False, True))
        first = "lm.first_max" if kind == "argmax" else "lm.first_min"
        g.add(f"_0.{kind}({k}, keepdim={keep})", x, torch=f"{first}(_0, {k}, {keep})")
    else:
        g.add(f"_0.{kind}({k})[0]", x)


def softmax(g: Growth) -> None:
    x = g.pick()
    k = g.axis(x)
    name = g.rng.choice(("softmax", "softmax", "softmax", "log_softmax", "softmin"))
    if name == "softmin":
        g.add(f"F.softmin(_0, {k})", x)
    else:
        g.add(f"_0.{name}({k})", x)


def norm(g: Growth) -> None:
    x = g.pick()
    if not x.rank:
        g.reject()
    n, kind = x.shape[-1], g.rng.random()
    if kind < 0.4:
        g.add("(_0 - _0.mean(-1, keepdim=True)) * (_0.var(-1, keepdim=True) + 1).rsqrt()", x)
    elif kind < 0.6:
        g.add("_0 * (_0.square().mean(-1, keepdim=True) + 0.5).rsqrt()", x)
    elif kind < 0.8 and isinstance(n, int):
        w, b = g.like((n,), x.dtype), g.like((n,), x.dtype)
        g.add(f"F.layer_norm(_0, ({n},), _1, _2, 0.25)", x, w, b)
    else:
        g.add(f"_0 / (_0.abs().sum({g.axis(x)}, keepdim=True) + 1)", x)


def masked(g: Growth) -> None:
    """Reductions of which a condition on positions leaves a part: prefixes, triangles, bands."""
    x = g.pick(("float32", "float32", "float64"), 1, 2, 3)
    if not x.rank:
        g.reject()
    n, at = x.shape[-1], g.rng.randint(0, 12)
    side = g.rng.choice(("<", ">=", "!="))
    prefix = f"lm.where(cx.arange({n}) {side} {at}, _0, 0)"
    kinds = [f"{prefix}.sum(-1)", f"{prefix}.amax(-1)", f"({prefix} * _0).sum(-1)"]
    if x.rank >= 2:
        rows, columns = f"cx.arange({x.shape[-2]}).unsqueeze(1)", f"cx.arange({n})"
        seen = g.rng.choice((f"{columns} <= {rows}", f"({rows} - {columns}).abs() < 3"))
        kinds += [f'lm.where({seen}, _0, float("-inf")).softmax(-1)'] * 2
        kinds += [f"lm.where({seen}, _0, 0).sum(-1)", "_0.tril() @ _0.mT", "_0 @ _0.triu().mT"]
    g.add(g.rng.choice(kinds), x)


def running(g: Growth) -> None:
    x = g.pick(("float32", "float32", "float64", "int32", "int64"))
    k = g.axis(x)
    kinds = [f"_0.cumsum({k})"] * 3
    if x.dtype in FLOATS:
        kinds += [f"_0.tanh().cumprod({k})", f"_0.logcumsumexp({k})", f"_0.diff(dim={k})"]
    g.add(g.rng.choice(kinds), x)


def chain(g: Growth) -> None:
    """A value read by several others that meet again."""
    x = g.pick()
    y: Known = g.add(g.rng.choice(("_0.tanh()", "_0 * 0.5", "_0.softmax(-1)", "_0.sigmoid()")), x)
    kinds = ("_0 * _1 + _0", "_0 - _1", "lm.maximum(_0, _1) * _1", "_0 / (_1 * _1 + 1)")
    g.add(g.rng.choice(kinds), x, y)
