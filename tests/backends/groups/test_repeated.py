"""Norms of a row in the kernels of the products that read it: which, and what they compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.hlir.graph import Graph
from luminal.selection import repeated
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.groups import both_meanings
from tests.backends.groups.decode_graphs import decode
from tests.backends.groups.launch_labels import drawn, labels
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import long_but

Fn = Callable[[lm.Tensor, lm.Tensor], lm.Tensor]


def root_mean_square(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    return x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * g


def scaled_first(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    return g * (x * (1 / ((x * x).mean(-1, keepdim=True) + 1e-5).sqrt()))


def rounded(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    return root_mean_square(x, g).cast(lm.bfloat16).cast(lm.float32)


def rounded_twice(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    scale = ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return ((x * scale).cast(lm.bfloat16) * g.cast(lm.bfloat16)).cast(lm.float32)


def greatest(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    return x * (1 / x.abs().amax(-1, keepdim=True)) * g


def norm_of_mean(x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    return (x - x.mean(-1, keepdim=True)) * g


NORMS: dict[str, Fn] = {
    "root mean square": root_mean_square,
    "scaled first": scaled_first,
    "rounded": rounded,
    "rounded twice": rounded_twice,
    "greatest": greatest,
}
"""Those whose scale leaves the product."""


def before_products(norm: Fn, rows: int = 1, extents: tuple[int, ...] = (24, 16)) -> Graph:
    cx = lm.Graph()
    x, g = cx.tensor((rows, 40), name="x"), cx.tensor((40,), name="g")
    y = norm(x, g)
    for number, extent in enumerate(extents):
        (y @ cx.tensor((extent, 40), name=f"w{number}").mT).relu().output(f"y{number}")
    return cx.graph()


@pytest.mark.parametrize("device", ["meanings", "cuda"])
@pytest.mark.parametrize("name", long_but(tuple(NORMS), ("root mean square", "rounded twice")))
def test_a_norm_and_the_products_are_one_launch(name: str, device: str) -> None:
    backend = both_meanings.backend() if device == "meanings" else checked(device)
    run = drawn(before_products(NORMS[name]))
    assert len(labels(run.graph, backend)) == 1
    check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize("size", [1e-18, 1e18])
def test_rows_of_any_size(size: float) -> None:
    run = drawn(before_products(root_mean_square))
    run.inputs["x"] *= np.float32(size)
    check_case(compiled_on(checked("cuda"), run.graph), run)


def test_what_stays_a_kernel() -> None:
    """A norm that is less than a factor, of many rows, of too many results, that others read."""
    backend = checked("cuda")
    assert len(labels(before_products(norm_of_mean), backend)) > 1
    assert len(labels(before_products(root_mean_square, rows=17), backend)) > 1
    assert len(labels(before_products(root_mean_square, extents=(1 << 17,)), backend)) > 1
    cx = lm.Graph()
    x, g = cx.tensor((1, 40), name="x"), cx.tensor((40,), name="g")
    y = root_mean_square(x, g)
    (y @ cx.tensor((24, 40), name="w").mT).output("product")
    y.output("norm")
    run = drawn(cx.graph())
    assert len(labels(run.graph, backend)) > 1
    check_case(compiled_on(backend, run.graph), run)


def test_a_scale_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    run = drawn(before_products(root_mean_square))
    run.inputs["x"] *= np.float32(3)
    whole = repeated._pulled_out
    monkeypatch.setattr(
        repeated,
        "_pulled_out",
        lambda terms, product, scales: whole(terms, product, scales).args[1],
    )
    with pytest.raises(AssertionError, match="points differ"):
        check_case(compiled_on(checked("cuda"), run.graph), run)


@pytest.mark.parametrize(("texts", "launches"), [(1, 6), (8, 7)])
def test_launches_of_a_layer_of_a_decode_step(texts: int, launches: int) -> None:
    """Norm, q, k, v, rotations and cache; attention in chunks, and combined; its product; norm and
    the gated products; the last product. Of eight texts the second norm is a launch of its own.
    """
    backend = offline.backend("cuda")
    one, other = (len(labels(decode(layers, texts=texts), backend)) for layers in (1, 2))
    assert other - one == launches
