"""The operations that cases are drawn of: texts with fields that `draft.py` fills in.

`{x}` is the operand; the other fields are named after what they stand for (`Fields` in `draft.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ANY_RANK = (1, 5)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a family.

    `types`: of its operand. `chained`: it may follow on another, which needs values that stay in
    bounds and results that rounding hardly moves. `smooth`: gradients are taken of it too.
    `positive`: its operand is above 0. `most`: elements of its operand, which keep it below some
    50 ms.
    """

    family: str
    text: str
    types: str = "float"
    rank: tuple[int, int] = ANY_RANK
    chained: bool = False
    smooth: bool = False
    positive: bool = False
    most: int = 10_000_000


def _each(family: str, texts: str, **fields: object) -> Iterator[Operation]:
    for line in texts.strip().splitlines():
        yield Operation(family, line.strip(), **fields)  # type: ignore[arg-type]


def _pointwise() -> Iterator[Operation]:
    yield from _each(
        "pointwise",
        """
        {x}.tanh()
        {x}.sigmoid()
        {x}.relu()
        F.gelu({x})
        F.silu({x})
        {x}.sin()
        {x}.abs()
        -{x}
        {x} * 0.5 + 1
        {x}.square()
        ({x} * 0.1).exp()
        F.softplus({x})
        F.elu({x})
        F.leaky_relu({x}, 0.1)
        F.hardswish({x})
        F.mish({x})
        {x}.clamp(-1, 1)
        {x}.erf()
        {x}.atan()
        {x} + {y}
        {x} * {y}
        {x} - {row}
        {x} * {column}
        {x} + {scalar}
        {x} / {p}
        lib.where({m}, {x}, {y})
        {x}.masked_fill({m}, 0.0)
        lib.maximum({x}, {y})
        lib.lerp({x}, {y}, 0.3)
        lib.addcmul({x}, {y}, {z})
        """,
        chained=True,
        smooth=True,
    )
    logs = "log sqrt rsqrt reciprocal log1p log2 lgamma digamma cosh asinh expm1"
    yield from _each(
        "pointwise",
        "\n".join(f"{{x}}.{name}()" for name in logs.split()) + "\n{x}.pow(2.5)\n{x}.pow({p})",
        smooth=True,
        positive=True,
    )
    yield from _each(
        "pointwise",
        """
        {x}.floor()
        {x}.round()
        {x}.sign()
        {x}.frac()
        {x}.isfinite()
        {x}.nan_to_num()
        lib.fmod({x}, {p})
        lib.atan2({x}, {y})
        lib.hypot({x}, {y})
        lib.copysign({x}, {y})
        """,
    )
    yield from _each(
        "compare", "{x} > {y}\n{x} <= {row}\n{x} == {column}\n{x} >= 0.5", types="number"
    )
    yield from _each(
        "integers",
        """
        {x} + {y}
        {x} * {row}
        {x} * 3 - 7
        {x} // {p}
        {x} % {p}
        {x} & {y}
        {x} ^ {y}
        {x} << 2
        lib.maximum({x}, {y})
        {x}.clamp(2, 5)
        lib.where({m}, {x}, {y})
        {x}.sum({axis})
        {x}.sum()
        {x}.amax({axis})
        {x}.prod({axis})
        {x}.cumsum({axis})
        """,
        types="integer",
    )
    yield from _each(
        "truth",
        """
        {x} & {y}
        {x} | {y}
        {x} ^ {y}
        ~{x}
        {x}.any({axis})
        {x}.all({axis})
        {x}.any()
        {x}.sum({axis})
        {x}.cumsum({axis})
        """,
        types="bool",
    )
    yield from _each(
        "cast", "{x}.float()\n{x}.double()\n{x}.int()\n{x}.long()\n{x}.bool()", types="any"
    )
    yield from _each("cast", "{x}.bfloat16()\n{x}.half()", types="any")


def _reductions() -> Iterator[Operation]:
    yield from _each(
        "reduction",
        """
        {x}.sum()
        {x}.mean()
        {x}.sum({axis})
        {x}.sum({axis}, keepdim=True)
        {x}.mean({axis})
        {x}.sum({axes})
        {x}.mean({axes}, keepdim=True)
        {x}.var({axis}, correction=0)
        {x}.amax({axis})
        {x}.amin({axes})
        {x}.logsumexp({axis})
        {x}.norm(dim={axis})
        """,
        chained=True,
        smooth=True,
    )
    yield from _each("reduction", "{x}.prod({axis})", smooth=True, positive=True)
    yield from _each(
        "greatest",
        "{x}.argmax({axis})\n{x}.argmin()\n{x}.max({axis})\n{x}.min({axis})",
        types="f32",
    )
    yield from _each("greatest", "{x}.max()\n{x}.max({axis})[0]\n{x}.aminmax()", types="number")
    yield from _each(
        "norm",
        """
        {x}.softmax({axis})
        {x}.softmax(-1)
        {x}.log_softmax({axis})
        F.layer_norm({x}, ({width},), {row}, {row})
        F.layer_norm({x}, ({width},))
        F.rms_norm({x}, ({width},), {row}, 1e-5)
        F.normalize({x}, dim={axis})
        """,
        chained=True,
        smooth=True,
    )
    yield from _each("norm", "F.group_norm({x}, {groups})", rank=(3, 5), smooth=True)
    yield from _each(
        "norm",
        "F.batch_norm({x}, {channels}, {channels_p}, {channels}, {channels})",
        rank=(2, 5),
        smooth=True,
    )
    yield from _each("scan", "{x}.cumsum({axis})\n{x}.diff(dim={axis})", chained=True, smooth=True)
    yield from _each("scan", "{x}.cummax({axis})[0]\n{x}.logcumsumexp({axis})")
    yield from _each("scan", "{x}.cumprod({axis})", positive=True)
    yield from _each(
        "loss",
        """
        F.mse_loss({x}, {y})
        F.smooth_l1_loss({x}, {y})
        F.l1_loss({x}, {y})
        F.binary_cross_entropy_with_logits({x}, {y})
        """,
        smooth=True,
    )
    yield from _each("loss", "F.cross_entropy({x}, {labels})", rank=(2, 2), smooth=True)


def _positions() -> Iterator[Operation]:
    yield from _each(
        "order", "{x}.sort({axis})\n{x}.argsort({axis})\n{x}.topk({count}, {axis})", types="f32",
        most=500_000,
    )  # fmt: skip
    yield from _each(
        "order",
        """
        {x}.sort({axis})[0]
        {x}.topk({count}, {axis})[0]
        {x}.topk({few}, -1)[0]
        """,
        types="number",
        most=500_000,
    )
    yield from _each("order", "{x}.topk({few}, -1)[0]", types="f32", smooth=True, most=2_000_000)
    yield from _each(
        "gather",
        """
        {x}.index_select({axis}, {positions})
        {x}.gather({axis}, {places})
        {x}[{rows}]
        """,
        types="number",
    )
    yield from _each(
        "gather", "{x}.index_select({axis}, {positions})\n{x}[{rows}]", chained=True, smooth=True
    )
    yield from _each("gather", "F.embedding({ids}, {x})", rank=(2, 2), smooth=True)
    yield from _each(
        "scatter",
        """
        {x}.index_add({axis}, {positions}, {source})
        {x}.scatter_add({axis}, {places}, {y})
        """,
        smooth=True,
    )
    yield from _each("scatter", "{x}.index_fill({axis}, {positions}, 2)", types="number")
    yield from _each("scatter", "F.one_hot({ids}, {height})", types="integer", rank=(2, 2))


def _movement() -> Iterator[Operation]:
    yield from _each(
        "movement",
        """
        lib.cat(({x}, {y}), {axis})
        lib.stack(({x}, {y}), {axis})
        {x}.flip({axis})
        {x}.roll({few}, {axis})
        F.pad({x}, ({few}, {few}))
        {x}.repeat_interleave(2, {axis})
        {x}.clone()
        """,
        types="any",
    )
    yield from _each(
        "movement",
        """
        {x}.transpose({axis}, {axis2}).contiguous()
        {x}.tril()
        {x}.triu(1)
        """,
        types="any",
        rank=(2, 5),
    )
    yield from _each(
        "movement",
        """
        lib.cat(({x}, {y}), {axis})
        {x}.flip({axis})
        {x}.roll({few}, {axis})
        F.pad({x}, ({few}, {few}))
        """,
        chained=True,
        smooth=True,
    )
    yield from _each("movement", "F.pixel_shuffle({x}, 2)", rank=(4, 4), smooth=True)


def _products() -> Iterator[Operation]:
    yield from _each(
        "product", "{x} @ {vector}\n{x} @ {matrix}\nF.linear({x}, {weight}, {bias})", chained=True,
        smooth=True, most=2_000_000,
    )  # fmt: skip
    yield from _each(
        "product", "{x}.mT @ {x}\n{x} @ {stack}", rank=(2, 4), smooth=True, most=500_000
    )
    yield from _each("product", "lib.outer({x}, {vector})", rank=(1, 1), smooth=True, most=3_000)
    yield from _each(
        "attention",
        """
        F.scaled_dot_product_attention({x}, {y}, {z})
        F.scaled_dot_product_attention({x}, {y}, {z}, is_causal=True)
        """,
        rank=(4, 4),
        smooth=True,
        most=300_000,
    )


def _windows() -> Iterator[Operation]:
    for rank in (1, 2, 3):
        ranks, most = (rank + 2, rank + 2), 2_000_000
        yield Operation(
            "convolution", f"F.conv{rank}d({{x}}, {{filter}}, {{stepping}})", rank=ranks,
            smooth=True, most=most, chained=True,
        )  # fmt: skip
        yield Operation(
            "convolution", f"F.conv_transpose{rank}d({{x}}, {{back_filter}})", rank=ranks,
            smooth=True, most=most,
        )  # fmt: skip
        yield Operation(
            "pool", f"F.max_pool{rank}d({{x}}, {{window}})", rank=ranks, smooth=True
        )  # fmt: skip
        yield Operation(
            "pool", f"F.avg_pool{rank}d({{x}}, {{window}})", rank=ranks, smooth=True, chained=True
        )  # fmt: skip
    yield Operation(
        "convolution", "F.conv2d({x}, {depthwise}, {grouping})", rank=(4, 4), smooth=True
    )
    yield Operation("pool", "F.adaptive_avg_pool2d({x}, {few})", rank=(4, 4), smooth=True)
    yield from _each(
        "resize",
        """
        F.interpolate({x}, scale_factor=2, mode='nearest')
        F.interpolate({x}, scale_factor=2, mode='bilinear')
        """,
        rank=(4, 4),
        smooth=True,
        most=1_000_000,
    )


OPERATIONS: tuple[Operation, ...] = (
    *_pointwise(), *_reductions(), *_positions(), *_movement(), *_products(), *_windows(),
)  # fmt: skip
