"""Convolution, pooling, resampling and attention against PyTorch, on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as torch_functional

import luminal as lm
import luminal.nn.functional as functional
from luminal.base.errors import DTypeError, ShapeError
from tests.close import close
from tests.long_share import mostly_long
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import run

rng = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


def case(name: str, *shapes: tuple[int, ...], args: tuple[Any, ...] = (), **options: Any) -> Case:
    """A function of nn.functional that PyTorch has too, with its arguments."""
    arrays = [normal(*shape) for shape in shapes]
    ours, theirs = (
        lambda *xs, m=module: getattr(m, name)(*xs, *args, **options)
        for module in (functional, torch_functional)
    )
    return Case(f"{name}{shapes}{args}{options}", ours, theirs, arrays, 32)


CONVOLUTIONS = [
    case("conv1d", (2, 3, 11), (4, 3, 3), (4,), stride=2, padding=1),
    case("conv1d", (3, 11), (4, 3, 4), padding="same"),
    case("conv1d", (2, 3, 5), (4, 3, 5), padding="valid"),
    case("conv2d", (3, 9, 8), (4, 3, 2, 3), (4,), padding=(1, 0), dilation=(2, 1)),
    case("conv2d", (2, 4, 7, 7), (4, 1, 3, 3), padding="same", groups=4, dilation=2),
    case("conv2d", (0, 3, 5, 5), (4, 3, 3, 3)),
    case("conv2d", (1, 2, 2, 2), (1, 2, 3, 3), padding=1),
    case("conv3d", (1, 4, 5, 6, 7), (6, 2, 2, 3, 1), (6,), stride=(1, 2, 3), padding=1, groups=2),
]

TRANSPOSED = [
    case(
        "conv_transpose1d",
        (2, 3, 5),
        (3, 4, k),
        (4,),
        stride=s,
        padding=p,
        dilation=d,
        output_padding=o,
    )
    for k, s, p, d, o in [
        (3, 1, 0, 1, 0),
        (3, 2, 1, 1, 1),
        (4, 2, 1, 1, 0),
        (2, 3, 0, 1, 2),
        (5, 3, 4, 1, 0),
        (3, 2, 0, 2, 0),
        (3, 4, 1, 2, 3),
        (2, 6, 0, 4, 5),
        (4, 3, 2, 2, 1),
        (1, 2, 0, 1, 0),
        (3, 1, 2, 3, 2),
    ]
] + [
    case("conv_transpose1d", (3, 5), (3, 4, 3)),
    case(
        "conv_transpose2d",
        (2, 4, 5, 4),
        (4, 3, 3, 2),
        (6,),
        stride=(2, 1),
        padding=(1, 0),
        groups=2,
    ),
    case("conv_transpose2d", (1, 2, 4, 4), (2, 3, 4, 4), stride=2, padding=1),
    case(
        "conv_transpose3d",
        (1, 2, 3, 4, 3),
        (2, 3, 3, 2, 3),
        (3,),
        stride=(2, 1, 3),
        output_padding=(1, 0, 2),
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_convolutions(backend: str) -> None:
    check(CONVOLUTIONS + TRANSPOSED, backend)


POOLS = [
    case(f"{kind}_pool{rank}d", (2, 3, *(9, 8, 7)[:rank]), **options)
    for kind in ("max", "avg")
    for rank in (1, 2, 3)
    for options in (
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    )
] + [
    case(
        "max_pool2d",
        (3, 9, 8),
        kernel_size=(3, 2),
        dilation=(2, 3),
        stride=1,
        padding=1,
        ceil_mode=True,
    ),
    case("avg_pool1d", (3, 9), args=(3, 2, 1, True, False)),
    case("avg_pool2d", (2, 9, 8), args=((3, 2), 2, 1, True, False)),
    case("avg_pool2d", (2, 2, 9, 8), kernel_size=3, divisor_override=5),
    case("avg_pool3d", (2, 7, 6, 5), kernel_size=3, stride=2, padding=1, count_include_pad=False),
    *(
        case(
            f"max_pool{rank}d",
            (2, 2, *(7, 6, 5)[:rank]),
            kernel_size=3,
            stride=2,
            padding=1,
            return_indices=True,
        )
        for rank in (1, 2, 3)
    ),
    case("max_pool2d", (1, 9, 8), kernel_size=2, dilation=3, ceil_mode=True, return_indices=True),
    *(case(f"lp_pool{rank}d", (2, 2, *(7, 6, 5)[:rank]), args=(2, 3)) for rank in (1, 2, 3)),
    case("lp_pool2d", (2, 2, 7, 7), args=(4, (3, 2)), stride=2, ceil_mode=True),
    *(
        case(f"adaptive_{kind}_pool{rank}d", (2, 3, *(9, 8, 7)[:rank]), args=(size,))
        for kind in ("avg", "max")
        for rank in (1, 2, 3)
        for size in (1, 4, 11)
    ),
    case("adaptive_avg_pool2d", (3, 9, 8), args=((3, None),)),
    case("adaptive_max_pool2d", (2, 3, 9, 8), args=((4, 5),), return_indices=True),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_pools(backend: str) -> None:
    check(POOLS, backend)


def unpooled(rank: int, **options: Any) -> Case:
    """max_unpool of what max_pool returns."""

    def fn(module: Any) -> Callable[..., Any]:
        pool, unpool = (getattr(module, f"max_{kind}{rank}d") for kind in ("pool", "unpool"))
        return lambda x: unpool(*pool(x, 2, return_indices=True), 2, **options)

    shape = (2, 2, *(6, 4, 8)[:rank])
    return Case(f"max_unpool{rank}d", fn(functional), fn(torch_functional), [normal(*shape)])


WINDOWS = [
    *(unpooled(rank) for rank in (1, 2, 3)),
    unpooled(2, output_size=(7, 5)),
    case("unfold", (2, 3, 7, 6), args=((3, 2),), dilation=(1, 2), padding=1, stride=(2, 1)),
    case("unfold", (3, 5, 5), kernel_size=2),
    case(
        "fold", (2, 3 * 6, 4 * 6), args=((7, 6), (3, 2)), dilation=(1, 2), padding=1, stride=(2, 1)
    ),
    case("fold", (2 * 4, 9), output_size=(6, 6), kernel_size=2, stride=2),
    case("fold", (1, 9, 4), output_size=(8, 9), kernel_size=3, stride=3, dilation=2),
    case("pixel_shuffle", (2, 12, 3, 4), args=(2,)),
    case("pixel_unshuffle", (12, 4, 6), args=(2,)),
    case("channel_shuffle", (2, 6, 3), args=(3,)),
    *(
        Case(
            f"Tensor.unfold {shape}",
            lambda x, d=d: x.unfold(d, 3, 2),
            lambda x, d=d: x.unfold(d, 3, 2),
            [normal(*shape)],
        )
        for shape, d in [((7,), 0), ((4, 8, 3), 1), ((4, 8, 3), -1)]
    ),
]

RESIZED = (
    [
        case("interpolate", (2, 3, *(7, 6, 5)[:rank]), mode=mode, **size)
        for rank, modes in (
            (1, ("nearest", "nearest-exact", "linear", "area")),
            (2, ("nearest", "nearest-exact", "bilinear", "bicubic", "area")),
            (3, ("nearest", "nearest-exact", "trilinear", "area")),
        )
        for mode in modes
        for size in (
            {"size": (13, 3, 8)[:rank]},
            {"scale_factor": 2.0},
            {"scale_factor": 0.6},
            {"scale_factor": 1.7, "recompute_scale_factor": True},
        )
    ]
    + [
        case(
            "interpolate",
            (2, 3, *(7, 6, 5)[:rank]),
            mode=mode,
            align_corners=True,
            size=size[:rank],
        )
        for rank, mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear"))
        for size in ((13, 4, 5), (1, 1, 1))
    ]
    + [
        case("interpolate", (1, 1, 1, 3), mode="bicubic", size=(4, 6)),
        case("interpolate", (1, 2, 100), mode="nearest", size=73),
    ]
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_and_resizing(backend: str) -> None:
    check(WINDOWS + RESIZED, backend)


def grids(*shape: int) -> np.ndarray[Any, Any]:
    return rng.uniform(-1.6, 1.6, shape).astype(np.float32)


SAMPLED = (
    [
        Case(
            f"grid_sample {rank} {options}",
            lambda x, g, o=options: functional.grid_sample(x, g, **o),
            lambda x, g, o=options: torch_functional.grid_sample(x, g, **o),
            [normal(2, 3, *(5, 6, 4)[:rank]), grids(2, *(4, 5, 3)[:rank], rank)],
            128,
        )
        for rank, modes in ((2, ("bilinear", "nearest", "bicubic")), (3, ("bilinear", "nearest")))
        for mode in modes
        for padding_mode in ("zeros", "border", "reflection")
        for align in (False, True)
        if rank == 2 or not align
        for options in ({"mode": mode, "padding_mode": padding_mode, "align_corners": align},)
    ]
    + [
        case("affine_grid", (2, 2, 3), args=((2, 3, 4, 5),), align_corners=align)
        for align in (False, True)
    ]
    + [case("affine_grid", (2, 3, 4), args=((2, 3, 4, 5, 1),), align_corners=False)]
)


@pytest.mark.parametrize("backend", mostly_long(BACKENDS, 1))
def test_sampling(backend: str) -> None:
    check(SAMPLED, backend)


def attention(name: str, *shapes: tuple[int, ...], mask: Any = None, **options: Any) -> Case:
    given = [normal(*shape) for shape in shapes]
    if mask is not None:
        given.append(mask)

    def call(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: f(*xs, **options)

    ours = call(functional.scaled_dot_product_attention)
    theirs = call(torch_functional.scaled_dot_product_attention)
    return Case(name, ours, theirs, given, 64)


Q, K = (2, 4, 5, 8), (2, 4, 7, 8)
SEEN = rng.random((5, 7)) < 0.5
SEEN[1] = False
ATTENTION = [
    attention("plain", Q, K, K),
    attention("causal", Q, K, K, is_causal=True),
    attention("bool mask", Q, K, K, mask=SEEN),
    attention("added mask", Q, K, K, mask=normal(4, 5, 7)),
    attention("scale", (5, 8), (7, 8), (7, 3), scale=0.3),
    attention("grouped", Q, (2, 2, 7, 8), (2, 2, 7, 8), enable_gqa=True),
    attention(
        "grouped, masked", Q, (2, 2, 7, 8), (2, 2, 7, 8), mask=normal(2, 4, 5, 7), enable_gqa=True
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention(backend: str) -> None:
    check(ATTENTION, backend)


# --- what earlier systems got wrong ---------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_and_inf_stay_where_they_are(backend: str) -> None:
    """Padding is chosen, not multiplied: inf beside it gives no NaN; NaN wins a maximum."""
    x = normal(1, 1, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 4, 4], x[0, 0, 3, 0] = np.nan, -np.inf, np.inf
    low = np.full((1, 1, 4, 4), -np.inf, np.float32)
    with_x = lambda name, **options: Case(  # noqa: E731
        name,
        lambda a: getattr(functional, name)(a, **options),
        lambda a: getattr(torch_functional, name)(a, **options),
        [x],
    )
    cases = [
        with_x("max_pool2d", kernel_size=3, stride=2, padding=1),
        with_x("avg_pool2d", kernel_size=3, stride=2, padding=1),
        with_x("adaptive_max_pool2d", output_size=4),
        with_x("interpolate", scale_factor=2, mode="nearest"),
        with_x("pixel_unshuffle", downscale_factor=2),
        Case(
            "all -inf",
            lambda a: a.max_pool2d(3, 1, 1, return_indices=True),
            lambda a: torch_functional.max_pool2d(a, 3, 1, 1, return_indices=True),
            [low],
        ),
        Case(
            "fold",
            lambda a: functional.fold(a.reshape(1, 4, 9), (4, 4), 2),
            lambda a: torch_functional.fold(a.reshape(1, 4, 9), (4, 4), 2),
            [x],
        ),
    ]
    check(cases, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers(backend: str) -> None:
    x = rng.integers(-100, 100, (1, 2, 6, 6))
    w = rng.integers(-5, 5, (3, 2, 3, 3))
    cases = [
        Case("max", lambda a: a.max_pool2d(2), lambda a: torch_functional.max_pool2d(a, 2), [x]),
        Case("conv", lambda a, b: a.conv2d(b), lambda a, b: torch_functional.conv2d(a, b), [x, w]),
        Case(
            "int8",
            lambda a: a.max_pool2d(3, 1, 1),
            lambda a: torch_functional.max_pool2d(a.float(), 3, 1, 1).to(torch.int8),
            [x.astype(np.int8)],
        ),
        Case(
            "nearest",
            lambda a: functional.interpolate(a, 4),
            lambda a: torch_functional.interpolate(a.float(), 4).long(),
            [x],
        ),
    ]
    check(cases, backend)


def test_storage_types_round_once() -> None:
    x, w = normal(1, 3, 8, 8).astype(BF16), normal(4, 3, 3, 3).astype(BF16)
    wide = [torch.from_numpy(a.astype(np.float32)) for a in (x, w)]
    found = run(
        lambda a, b: (
            a.conv2d(b),
            a.avg_pool2d(2),
            functional.interpolate(a, 5, mode="bilinear"),
        ),
        x,
        w,
    )
    expected = (
        torch_functional.conv2d(*wide),
        torch_functional.avg_pool2d(wide[0], 2),
        torch_functional.interpolate(wide[0], 5, mode="bilinear"),
    )
    for value, wanted in zip(found, expected, strict=True):
        assert value.dtype == BF16
        close(value, wanted.numpy().astype(BF16), ulp=1)


def test_symbolic_extents() -> None:
    x, w, t = normal(2, 3, 9, 7), normal(4, 3, 3, 3), normal(3, 4, 4, 4)
    tensors = [torch.from_numpy(a) for a in (x, w, t)]
    f = torch_functional

    def ours(a: Any, b: Any, c: Any, f: Any = functional) -> Any:
        return [
            f.conv2d(a, b, padding=1, stride=2),
            f.conv_transpose2d(a, c, stride=2, padding=1),
            f.max_pool2d(a, 3, 2, 1, ceil_mode=True, return_indices=True)[1],
            f.avg_pool2d(a, 3, 2, 1, True, False),
            f.adaptive_avg_pool2d(a, (4, 3)),
            f.interpolate(a, scale_factor=2, mode="bilinear"),
            f.interpolate(a, size=(5, 5), mode="nearest"),
            f.interpolate(a, size=(5, 5), mode="bilinear", align_corners=True),
        ]

    shapes, dims = [("n", 3, "h", 7), w.shape, t.shape], {"n": 2, "h": 9}
    for value, wanted in zip(
        run(ours, x, w, t, shapes=shapes, dims=dims), ours(*tensors, f), strict=True
    ):
        close(value, wanted.numpy(), ulp=64)


# --- errors ---------------------------------------------------------------------------------------

f = functional
ERRORS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: f.conv2d(x[:, :2], x), "in 1 groups takes 3 channels and gives 2; .* has 2"),
    (lambda x: f.conv2d(x, x, padding="full"), "padding 'full'; give ints, 'same' or 'valid'"),
    (lambda x: f.conv2d(x, x, padding="same", stride=2), "padding 'same' takes stride 1"),
    (lambda x: f.conv2d(x, x, stride=0), "conv2d: stride is 0; give ints of at least 1"),
    (lambda x: f.conv2d(x, x, stride=(1, 2, 3)), "give an int or 2 ints"),
    (lambda x: f.conv2d(x, x, groups=2), "in 2 groups"),
    (lambda x: f.conv2d(x, x, x[0, 0, 0], padding=9), "conv2d: the bias is"),
    (lambda x: f.conv3d(x, x), "conv3d: .* two dims of channels and 3"),
    (lambda x: f.conv_transpose2d(x, x, output_padding=1), "output_padding 1 must be below"),
    (lambda x: f.max_pool2d(x, 9), "a window spans 9 positions, dim 2"),
    (lambda x: f.max_pool2d(x, 2, padding=2), "padding 2 exceeds half of the window"),
    (lambda x: f.adaptive_avg_pool2d(x, (2, 2, 2)), "give one size or 2"),
    (lambda x: f.fold(x[0], 9, 2), "fold: .* is not c \\* 4 by 64"),
    (lambda x: f.pixel_shuffle(x, 2), "3 channels do not divide by 2 \\* 2"),
    (lambda x: f.interpolate(x), "give either size or scale_factor"),
    (lambda x: f.interpolate(x, 3, mode="cubic"), "mode 'cubic'; give one of nearest"),
    (lambda x: f.interpolate(x, 3, mode="linear"), "linear takes .* 1 more dims"),
    (lambda x: f.interpolate(x, 3, align_corners=True), "nearest takes no align_corners"),
    (lambda x: f.grid_sample(x, x), "grid_sample: takes"),
    (lambda x: f.affine_grid(x, (3, 3, 4, 4)), "affine_grid: .* for size"),
    (lambda x: f.scaled_dot_product_attention(x, x, x, x, is_causal=True), "give one of them"),
    (lambda x: f.scaled_dot_product_attention(x, x, x, dropout_p=0.1), "dropout: no key"),
]


@pytest.mark.parametrize(("fn", "message"), ERRORS)
def test_errors(fn: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((ShapeError, DTypeError), match=message):
        run(fn, normal(2, 3, 5, 5))


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [((4, 5), (17, 3), (3, 2)), ((3,), (40,), (7,)), ((5, 5, 5), (3, 5, 4), (2, 3, 3))],
)
def test_transposed_in_many_runs_of_residues(
    kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> None:
    """So many convolutions are one instead, with the same values."""
    rank, draw = len(kernel), np.random.default_rng(0)
    x = draw.standard_normal((2, 2, *(3,) * rank)).astype(np.float32)
    weight = draw.standard_normal((2, 3, *kernel)).astype(np.float32)
    name = f"conv_transpose{rank}d"

    def ours(x: lm.Tensor, weight: lm.Tensor) -> lm.Tensor:
        given: lm.Tensor = getattr(functional, name)(x, weight, stride=stride, dilation=dilation)
        return given

    compiled = lm.jit(ours)
    expected = getattr(torch_functional, name)(
        torch.tensor(x), torch.tensor(weight), stride=stride, dilation=dilation
    )
    close(compiled(x, weight), expected)
