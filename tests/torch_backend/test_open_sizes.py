"""Sizes of one value that PyTorch spells in several ways, those that only formulas say, and floats
made of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional

import luminal as lm
from luminal import luminal_backend, pt2
from luminal.torch_backend.compiled import compiled as caller
from luminal.torch_backend.plans import Results
from luminal.torch_backend.translation import translated
from tests.long_share import long_but, mostly_long
from tests.torch_backend.whole import compiled

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:luminal. PyTorch runs"),
]


def attention_of_heads(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], 2, -1).transpose(0, 1)
    mixed = (heads @ heads.mT).softmax(-1) @ heads
    return mixed.transpose(0, 1).reshape(x.shape[0], -1)


def folded(x: Any, *sizes: int) -> Any:
    return x.unflatten(0, sizes)


SPELLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unflatten": lambda x: folded(x, -1, 2).sin(),
    "unflatten and sum": lambda x: folded(x, -1, 2).sum(1) * 2,
    "unflatten in front": lambda x: folded(x, 2, -1).sin().transpose(0, 1),
    "there and back": lambda x: x.view(2, -1, 6).flip(1).flatten(0, 1) + x,
    "rows of 4": lambda x: x.view(-1, 4).exp(),
    "halves": lambda x: folded(x, -1, 2).sum(1) * x[::2] + x[: x.shape[0] // 2],
    "heads": attention_of_heads,
}


@pytest.mark.parametrize("name", long_but(SPELLED, ("there and back", "halves")))
def test_sizes_known_to_be_equal_have_one_spelling(name: str) -> None:
    agree(SPELLED[name], (4, 6, 10))


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "var": lambda x: x.var(0),
    "std of all": lambda x: torch.cat([x, x]).std() / x.shape[0] ** 0.5,
    "a root": lambda x: x * float(x.shape[0]) ** -0.5,
    "var of all": lambda x: x.float().var().double(),
    "a quotient": lambda x: x + x.shape[0] / 2,
    "a part": lambda x: x[: int(x.shape[0] * 0.75)] * 2,
    "a third": lambda x: x[int(x.shape[0] / 3) :] * 2,
    "nearest": lambda x: functional.interpolate(x[None], scale_factor=1.5),
    "bilinear": lambda x: functional.interpolate(x[None, None], scale_factor=0.5, mode="bilinear"),
    "attention": lambda x: functional.scaled_dot_product_attention(*[x[None, None]] * 3),
}


@pytest.mark.parametrize("name", long_but(NUMBERS, ("a root", "attention")))
def test_floats_made_of_open_sizes(name: str) -> None:
    agree(NUMBERS[name], (4, 5, 11))


def test_a_float_of_sizes_that_crosses_parts() -> None:
    def spread(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x * x.shape[0] ** 0.5).abs().var(0) * 2

    fast = torch.compile(spread, backend=luminal_backend, dynamic=True)
    for n in (4, 7):
        x = torch.randn(n, 6, dtype=torch.float64, requires_grad=True)
        found, wanted = (torch.autograd.grad(f(x).sum(), x)[0] for f in (fast, spread))
        torch.testing.assert_close(found, wanted)


@pytest.mark.long
def test_a_search_in_all_elements_of_open_sizes() -> None:
    def found(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(x.flatten(), y)

    fast = compiled(found, dynamic=True)
    for n in (4, 5):
        x, y = torch.arange(6.0 * n).reshape(n, 3, 2), torch.rand(7) * 30
        assert torch.equal(fast(x, y), found(x, y))


def powers(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = 2 ** x.shape[0]
    return torch.ones(n + 1).cumsum(0) * x.sum(), torch.zeros(y.shape[0] ** 2, n), y.repeat(n) + 1


def test_sizes_that_no_expression_has() -> None:
    fast = compiled(powers, dynamic=True)
    ahead = pt2.compile(Module(powers), (torch.ones(3), torch.ones(5)), 0, dynamic_dim={0: 0, 1: 0})
    assert len(ahead.dim_params) == 2
    for n, m in ((3, 5), (6, 4), (2, 7)):
        x, y = torch.randn(n), torch.randn(m)
        wanted = powers(x, y)
        torch.testing.assert_close(fast(x, y), wanted)
        torch.testing.assert_close(ahead(x, y), wanted)
        assert ahead.output_shapes() == [tuple(each.shape) for each in wanted]
    with pytest.raises(lm.DimError, match=r"size Pow.*\(2, s\d+\): is 1099511627776; sizes are 0"):
        ahead(torch.ones(40), torch.ones(5))


def numbers(x: torch.Tensor, n: torch.Tensor) -> tuple[Any, ...]:
    k = n.sum().item()
    y = torch.fft.fft(x * k).abs()
    return y * k + 1, k * 2, k // 3, x.sum().item() * y, (x + 1.5).mean().item() / 2


@torch._dynamo.config.patch(capture_scalar_outputs=True)  # type: ignore[untyped-decorator]
def test_numbers_that_tensors_hold() -> None:
    """Also where PyTorch runs what lies between their making and their use."""
    fast = torch.compile(numbers, backend=luminal_backend, fullgraph=True)
    for n in ([2, 5], [-30, 8]):
        x, counts = torch.randn(6), torch.tensor(n)
        torch.testing.assert_close(fast(x, counts), numbers(x, counts))

    def scaled(x: torch.Tensor, n: torch.Tensor) -> tuple[Any, ...]:
        return x * n.item(), n.item() % 5, x.max().item() * 2

    x = torch.randn(4, 2).bfloat16()
    ahead = pt2.compile(Module(scaled), (x, torch.tensor(7)), 0)
    for n in (7, 2**40 + 3):
        torch.testing.assert_close(ahead(x, torch.tensor(n)), scaled(x, torch.tensor(n)))


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


def agree(function: Callable[[torch.Tensor], torch.Tensor], lengths: Sequence[int]) -> None:
    """Values and gradients are eager mode's, for all lengths by open sizes."""
    fast = compiled(function, dynamic=True)
    for n in lengths:
        x = torch.randn(n, 6, dtype=torch.float64, requires_grad=True)
        found, wanted = fast(x), function(x)
        torch.testing.assert_close(found, wanted)
        g = torch.randn_like(wanted)
        torch.testing.assert_close(
            torch.autograd.grad(found, x, g), torch.autograd.grad(wanted, x, g)
        )


GIVEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "twice": (lambda s: 2 * s, lambda s: s + 1),
    "one more": (lambda s: s + 1, lambda s: 3 * s),
    "half": (lambda s: s // 2, lambda s: 2 * (s // 2)),
}


@pytest.mark.parametrize("given_as", ["shape", "number"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_size_that_only_a_formula_gives(name: str, given_as: str) -> None:
    given, wanted = GIVEN[name]
    env = ShapeEnv()
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    fake = FakeTensorMode(shape_env=env)
    s = fake.from_tensor(torch.empty(7), symbolic_context=context).shape[0]
    graph = Graph()
    x = graph.placeholder("x")
    with fake:
        if given_as == "shape":
            x.meta["val"] = torch.empty(given(s))
        else:
            x.meta["val"] = given(s)
        size = graph.call_function(torch.sym_max, ())
        size.meta["val"] = wanted(s)
        node = graph.call_function(torch.ops.aten.full.default, ([size], 3.0))
        node.meta["val"] = torch.empty(wanted(s))
    graph.output((node, size))
    call = caller(translated(GraphModule({}, graph), (), Results(share=False)), {})
    for n in (7, 4, 9):
        x_given = torch.empty(given(n)) if given_as == "shape" else given(n)
        made, told = call([x_given])
        assert torch.equal(made, torch.full((wanted(n),), 3.0))
        assert told == wanted(n)


SLICES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "end beyond": lambda x: x[: 2 * x.shape[1]] + 1,
    "start beyond": lambda x: x[x.shape[1] :] + 1,
    "end before the start": lambda x: x[: -x.shape[1]] + 1,
    "start and end": lambda x: x[2 : x.shape[1] + 1] + 1,
    "a minimum": lambda x: x[: min(x.shape[1] ** x.shape[0], 50)] + 1,
}


@pytest.mark.parametrize("name", mostly_long(SLICES, 2))
def test_slices_whose_bounds_lie_beyond_an_open_extent_are_cut(name: str) -> None:
    function = SLICES[name]
    fast = compiled(function, dynamic=True)
    for shape in ((7, 8), (9, 3), (4, 6)):
        x = torch.randn(shape)
        assert torch.equal(fast(x), function(x))
