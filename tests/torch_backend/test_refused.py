"""What PyTorch's kernels refuse is refused, and what they do with odd arguments is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from luminal import luminal_backend
from luminal.torch_backend.kernel_checks import refusal
from tests.long_share import long_but, mostly_long
from tests.torch_backend.whole import compiled

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore:luminal. PyTorch runs"),
]

NAN = float("nan")
PICTURE = torch.arange(140.0).view(1, 2, 10, 7).sin()


def filled(x: torch.Tensor) -> torch.Tensor:
    return x.half().masked_fill(x > 0, -1e9)


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "bags weighed in another dtype": (
        lambda x: F.embedding_bag(
            torch.zeros(2, 2, dtype=torch.int64), x[0, 0], mode="sum",
            per_sample_weights=torch.ones(2, 2, dtype=torch.bfloat16),
        ),
        "same type",
    ),
    "labels of another dtype": (
        lambda x: F.binary_cross_entropy(x.sigmoid().half(), x.sigmoid()), "Found dtype Float"
    ),
    "multinomial of integers": (
        lambda x: torch.multinomial(x.flatten().to(torch.int32), 2),
        "floating-point dtypes",
    ),
    "margins of integers": (
        lambda x: F.soft_margin_loss(x.long(), x.sign()), "can't be cast to the desired output"
    ),
    "random bools beyond 1": (
        lambda x: torch.randint_like(x > 0, 2, 10), "out of bounds for bool"
    ),
    "random integers of 8 bits": (
        lambda x: torch.randint(0, 300, (4,), dtype=torch.uint8) + x.sum(), "out of bounds for"
    ),
    "random numbers of 16 bits": (
        lambda x: torch.randint_like(x.half(), 0, 2**40), "out of bounds for"
    ),
    "clamp": (lambda x: x.clamp(-1e300, 1e300), "without overflow"),
    "masked_fill of half": (filled, "without overflow"),
    "where": (lambda x: torch.where(x > 0, x, 1e300), "without overflow"),
    "pad": (lambda x: F.pad(x, (1, 1), value=1e39), "without overflow"),
    "full": (lambda x: torch.full((2,), 1e300) + x.sum(), "without overflow"),
    "threshold": (lambda x: F.threshold(x, 0.0, 1e300), "without overflow"),
    "product of two dtypes": (lambda x: x[0, 0] @ x[0, 1].mT.double(), "same dtype"),
    "sum with a product": (
        lambda x: torch.addmm(torch.ones(1, 1, 1), x[0, 0], x[0, 0].mT), "dimensions in the tensor"
    ),
    "norm of two dtypes": (
        lambda x: F.layer_norm(x, (7,), torch.ones(7, dtype=torch.float64)), "mixed dtype"
    ),
    "values of another dtype": (
        lambda x: x.index_put((torch.tensor([0]),), x[:1].double()), "dtypes match"
    ),
    "a value of another dtype that is added by a mask": (
        lambda x: x.index_put((x > 0,), torch.tensor(3, dtype=torch.uint8), True), "dtypes match"
    ),
    "heaviside": (lambda x: torch.heaviside(x, x.double()), "different dtypes"),
    "mask of integers": (
        lambda x: x.masked_scatter((x > 0).to(torch.uint8), x), "boolean mask"
    ),
    "bools from floats": (lambda x: (x[0, 0] > 0) - x[0], "with a bool tensor"),
    "range of uniform": (lambda x: x.clone().uniform_(3, -1), "from=3 > to=-1"),
    "probabilities": (lambda x: torch.bernoulli(x + 3), "p_in <= 1|between 0 and 1"),
    "pivots": (
        lambda x: torch.lu_unpack(x[0, :, :3, :3], x[0, :, 0, :3].to(torch.int32) * 0), "pivots"
    ),
    "interpolate": (lambda x: F.interpolate(x[:, :, :0], (3, 3)), "greater than 0"),
    "interpolate to nothing": (lambda x: F.interpolate(x, scale_factor=0.01), "greater than 0"),
    "dropout of more than all": (
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=2.0), "between 0 and 1"
    ),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x[:, :, :0], 2), "non-zero size"),
    "grid_sample": (
        lambda x: F.grid_sample(x[:, :, :0], x[:, :1, :, :2], align_corners=False), "non-empty"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", long_but(REFUSED, [*REFUSED][::6]))
def test_what_kernels_refuse_raises_as_in_eager_mode(name: str) -> None:
    function, text = REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        function(PICTURE)
    with pytest.raises(RuntimeError, match=text):
        torch.compile(function, backend=luminal_backend)(PICTURE)
    with pytest.raises(RuntimeError, match=f"UnsupportedError|{text}"):
        compiled(function)(PICTURE)


@pytest.mark.parametrize(
    ("number", "dtype", "is_refused"),
    [
        (65504.0, torch.float16, False), (65505.0, torch.float16, True),
        (-math.inf, torch.float16, False), (NAN, torch.float32, False), (3.5e38, torch.float32, 1),
        (255, torch.uint8, False), (256, torch.uint8, True), (-255, torch.uint8, False),
        (-256, torch.uint8, True), (NAN, torch.int32, True), (2**31, torch.int32, True),
        (7, torch.bool, False),
    ],
)  # fmt: skip
def test_numbers_beyond_a_dtype(number: float, dtype: torch.dtype, is_refused: bool) -> None:
    x = torch.zeros(2, dtype=dtype)
    fill = torch.ops.aten.fill.Scalar
    if is_refused:
        with pytest.raises(RuntimeError, match="without overflow"):
            fill(x, number)
    else:
        fill(x, number)
    assert bool(refusal(fill, (x, number), {})) == bool(is_refused)


def test_numbers_that_are_computed_with_may_be_beyond_the_dtype() -> None:
    for op in (torch.ops.aten.mul.Scalar, torch.ops.aten.pow.Tensor_Scalar):
        assert op(torch.ones(2) * 2, 1e300).isinf().all()
        assert not refusal(op, (torch.ones(2) * 2, 1e300), {})


KEPT = {
    "nearest": (1.05, (1.05, 1.5)),
    "bilinear": (1.05, (1.5, 1.05)),
    "bicubic": (1.05,),
    "nearest-exact": (1.05,),
}


@pytest.mark.parametrize("mode", long_but(KEPT, ("bilinear",)))
def test_scales_that_keep_a_size(mode: Any) -> None:
    for scale in KEPT[mode]:
        resized = partial(F.interpolate, scale_factor=scale, mode=mode)
        for x in (PICTURE, PICTURE.mul(40).add(90).to(torch.uint8)):
            allowed = 1 if x.dtype is torch.uint8 else 1e-5
            # a step of uint8, or 80 ulp: coordinates are products of the scale
            torch.testing.assert_close(compiled(resized)(x), resized(x), rtol=1e-5, atol=allowed)


@pytest.mark.parametrize("padding", mostly_long(["reflection", "zeros", "border"], 1))
@pytest.mark.parametrize("rank", [2, 3])
def test_grids_with_nan(rank: int, padding: Any) -> None:
    sizes = (3, 4, 5)[:rank]
    x = torch.arange(1.0, 1 + math.prod(sizes)).view(1, 1, *sizes)
    places = [
        [NAN] * rank,
        [NAN, *[0.0] * (rank - 1)],
        [0.0] * (rank - 1) + [math.inf],
        [0.1] * rank,
    ]
    grid = torch.tensor(places).view(1, *[1] * (rank - 1), -1, rank)

    def sampled(x: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.grid_sample(x, grid, mode, padding, align_corners)
            for mode in ("nearest", "bilinear")
            for align_corners in (False, True)
        ]

    torch.testing.assert_close(compiled(sampled)(x, grid), sampled(x, grid), equal_nan=True)


@pytest.mark.parametrize("eps", mostly_long([0.7, NAN, None, 0.2, 1.0, -1.0], 2))
def test_logit_between_bounds(eps: float | None) -> None:
    x = torch.linspace(0, 1, 9)
    torch.testing.assert_close(
        compiled(partial(torch.logit, eps=eps))(x), torch.logit(x, eps), equal_nan=True
    )


def test_singular_matrices_are_reported() -> None:
    x = torch.ones(2, 3, 3)
    x[0] += torch.eye(3)
    found, wanted = compiled(torch.linalg.lu_factor_ex)(x), torch.linalg.lu_factor_ex(x)
    assert found.info.tolist() == wanted.info.tolist() == [0, 2]
    b = torch.ones(2, 3)
    solved = compiled(torch.linalg.solve_ex)
    assert solved(x, b).info.tolist() == torch.linalg.solve_ex(x, b).info.tolist()
    with pytest.raises(RuntimeError, match=r"U\[2,2\] is zero"):
        compiled(torch.linalg.lu_factor)(x)
    with pytest.raises(RuntimeError, match=r"Batch element 1\).*singular"):
        compiled(torch.linalg.solve)(x, b)


X = torch.arange(20.0).view(4, 5)
SOURCE = torch.ones(4, 2)

PLACED: dict[str, Callable[[torch.Tensor], Any]] = {  # of positions below 5
    "gather": lambda v: X.gather(1, v.expand(4, 2)),
    "scatter": lambda v: X.scatter(1, v.expand(4, 2), SOURCE),
    "scatter of a value": lambda v: X.scatter(1, v.expand(4, 2), 3.0),
    "scatter_add": lambda v: X.scatter_add(1, v.expand(4, 2), SOURCE),
    "scatter_reduce": lambda v: X.scatter_reduce(1, v.expand(4, 2), SOURCE, "amax"),
    "index_select": lambda v: X.index_select(1, v),
    "index_add": lambda v: X.index_add(1, v, SOURCE),
    "index_copy": lambda v: X.index_copy(1, v, SOURCE),
    "index_reduce": lambda v: X.index_reduce(1, v, SOURCE, "amax"),
    "embedding": lambda v: F.embedding(v, X.mT),
    "embedding_bag": lambda v: F.embedding_bag(v[None], X.mT),
    "cross_entropy": lambda v: F.cross_entropy(X[:2], v),
    "getitem": lambda v: X[:, v.abs()],
    "index_put": lambda v: X.index_put((torch.arange(4)[:, None], v.abs()), SOURCE),
}


@pytest.mark.parametrize("computed", [False, True], ids=["given", "computed"])
@pytest.mark.parametrize("name", long_but(PLACED, [*PLACED][::6]))
def test_positions_out_of_range_raise(name: str, computed: bool) -> None:
    place = PLACED[name]

    def placed(v: torch.Tensor) -> Any:
        return place(v * 3 - 6) if computed else place(v)

    fast = compiled(placed)
    for wrong in (-1, 5, None):
        v = torch.tensor([0, 4 if wrong is None else wrong])
        v = (v + 6) // 3 if computed else v
        try:
            wanted = placed(v)
        except (IndexError, RuntimeError):
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                fast(v)
            continue
        torch.testing.assert_close(fast(v), wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_positions_that_are_filled_are_int64(dtype: torch.dtype) -> None:
    def filled(x: torch.Tensor) -> torch.Tensor:
        return x.index_fill(0, torch.zeros(1, dtype=dtype), 1.0)

    for function in (filled, torch.compile(filled, backend=luminal_backend)):
        with pytest.raises(IndexError, match="dtype int64"):
            function(X)


def test_a_single_value_of_another_dtype_is_put_by_a_mask() -> None:
    def put(x: torch.Tensor) -> torch.Tensor:
        return x.index_put((x > 7,), torch.tensor(3, dtype=torch.uint8))

    torch.testing.assert_close(compiled(put)(X), put(X))


OUTS: dict[str, tuple[Callable[..., Any], tuple[torch.dtype, ...]]] = {
    "multinomial": (lambda x, *out: torch.multinomial(x.abs(), 2, out=out[0]), (torch.float32,)),
    "diag": (lambda x, *out: torch.diag(x, out=out[0]), (torch.float64,)),
    "sort": (lambda x, *out: torch.sort(x, out=out), (torch.float32, torch.int32)),
    "add": (lambda x, *out: torch.add(x, 1, out=out[0]), (torch.float64,)),
    "add of the same": (lambda x, *out: torch.add(x, 1, out=out[0]), (torch.float32,)),
    "add to integers": (lambda x, *out: torch.add(x, 1, out=out[0]), (torch.int32,)),
}


@pytest.mark.parametrize("name", OUTS)
def test_places_for_results_have_the_dtypes_that_kernels_take(name: str) -> None:
    function, dtypes = OUTS[name]
    x = torch.arange(16.0).view(4, 4)
    shape = (4, 2) if name == "multinomial" else (4,) if name == "diag" else (4, 4)
    ours, theirs = ([torch.zeros(shape, dtype=dtype) for dtype in dtypes] for _ in range(2))
    fast = torch.compile(function, backend=luminal_backend)
    try:
        function(x, *theirs)
    except RuntimeError:
        with pytest.raises(RuntimeError, match=r"[Ee]xpect|can't be cast"):
            fast(x, *ours)
        return
    fast(x, *ours)
    torch.testing.assert_close(ours, theirs)


def test_labels_behind_an_end_do_not_count() -> None:
    x, labels = torch.randn(3, 4), torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [-1, 0, 0, 0]])
    loss = torch.compile(F.multilabel_margin_loss, backend=luminal_backend)
    torch.testing.assert_close(loss(x, labels), F.multilabel_margin_loss(x, labels))
