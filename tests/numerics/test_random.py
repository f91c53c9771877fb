"""The generator against its published vectors, distributions against their moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import luminal as lm
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.random.keyed import threefry
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

N = 50_000


def drawn(fn: Any, seed: int = 7) -> Any:
    """What `fn` draws from a key that is an input."""
    return run(fn, np.array([0, seed], np.uint32))


def test_known_answers_of_threefry() -> None:
    # Random123 1.14.0, tests/kat_vectors: threefry2x32 with 20 rounds
    words = np.array(
        [
            [0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x6B200159, 0x99BA4EFE],
            [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1CB996FC, 0xBB002BE7],
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xC4923A9C, 0x483DF7A0],
        ],
        np.uint32,
    )
    found = run(lambda w: threefry((w[:, 2], w[:, 3]), (w[:, 0], w[:, 1])), words)
    np.testing.assert_array_equal(np.stack(found, 1), words[:, 4:])


def test_keys() -> None:
    def fn(key: Any) -> Any:
        a, b = lm.random.split(key)
        more = lm.random.split(key, 5)
        step = key.graph.constant(3)
        return a, b, more, lm.random.fold_in(key, 3), lm.random.fold_in(key, step), (
            lm.random.key(2**32 * 5 + 7, key.graph),
            lm.random.key(key.graph.constant(-1)),
            lm.random.key(-1, key.graph),
        )  # fmt: skip

    a, b, more, folded, by_tensor, (seeded, wrapped, literal) = drawn(fn)
    np.testing.assert_array_equal(more[:2], [a, b])
    np.testing.assert_array_equal(more[3], folded)
    np.testing.assert_array_equal(folded, by_tensor)
    assert len(np.unique(more, axis=0)) == 5
    np.testing.assert_array_equal(seeded, [5, 7])
    np.testing.assert_array_equal(wrapped, literal)


def test_a_batch_of_keys_draws_what_each_draws_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 2**32, (2, 2)).astype(np.uint32)
    steps = np.array([5, 0], np.int32)
    draws = (
        lambda k, step: lm.random.bits(k, (4, 2), "uint64"),
        lambda k, step: lm.random.normal(k, (5,), dtype="float64"),
        lambda k, step: lm.random.gumbel(k),
        lambda k, step: lm.random.split(k, 3),
        lambda k, step: lm.random.uniform(lm.random.fold_in(k, step), (4,)),
        lambda k, step: lm.random.fold_in(lm.random.key(step), 1),
    )
    together = run(lambda k, s: tuple(draw(k, s) for draw in draws), keys, steps)
    for row in range(2):
        alone = run(lambda k, s: tuple(draw(k, s) for draw in draws), keys[row], steps[row])
        for found, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(found[row], expected)


def test_the_same_numbers_on_every_backend() -> None:
    """Recorded from the reference: CPU and others give the same bits."""

    def fn(key: Any) -> Any:
        draw = lm.random
        return (
            draw.bits(key, (3,)),
            draw.uniform(key, (3,)),
            draw.randint(key, (4,), -5, 5),
            draw.permutation(key, 6),
            draw.bernoulli(key, 0.5, (6,)),
        )

    bits, uniform, integers, order, coins = drawn(fn)
    np.testing.assert_array_equal(bits, EXPECTED["bits"])
    np.testing.assert_array_equal(uniform, (np.array(EXPECTED["bits"]) >> 8) * np.float32(2**-24))
    np.testing.assert_array_equal(integers, EXPECTED["randint"])
    np.testing.assert_array_equal(order, EXPECTED["permutation"])
    np.testing.assert_array_equal(coins, EXPECTED["bernoulli"])


EXPECTED: dict[str, Any] = {
    "bits": [2895194379, 4185947648, 1300703658],
    "randint": [3, -5, -3, -5],
    "permutation": [4, 1, 3, 2, 5, 0],
    "bernoulli": [False, False, True, True, False, False],
}


def test_distributions() -> None:
    def fn(key: Any) -> dict[str, Any]:
        draw = lm.random
        return {
            "uniform": draw.uniform(key, (N,)),
            "double": draw.uniform(key, (N,), -2, 6, "float64"),
            "half": draw.uniform(key, (N,), dtype="float16").float(),
            "bfloat": draw.uniform(key, (N,), dtype="bfloat16").float(),
            "normal": draw.normal(key, (N // 4, 4)),
            "wide": draw.normal(key, (N,), 3.0, 0.5, "float64"),
            "bits": draw.bits(key, (N,)),
            "bits64": draw.bits(key, (N,), "uint64"),
            "bytes": draw.bits(key, (N,), "uint8"),
            "dice": draw.randint(key, (N,), 1, 7, "int8"),
            "large": draw.randint(key, (N,), -(2**62), 2**62),
            "coins": draw.bernoulli(key, 0.3, (N,)),
        }

    found = drawn(fn)
    for name, low, high in (("uniform", 0, 1), ("double", -2, 6), ("half", 0, 1), ("bfloat", 0, 1)):
        x = found[name].astype(np.float64)
        assert low <= x.min()
        assert x.max() < high, name
        step = {"half": 2**-11, "bfloat": 2**-8}.get(name, 0.0)
        distance = stats.kstest(x, stats.uniform(low, high - low).cdf).statistic
        assert distance < 1.95 / N**0.5 + step, name  # p above 0.001
    for name, mean, std in (("normal", 0, 1), ("wide", 3, 0.5)):
        x = found[name].reshape(-1).astype(np.float64)
        assert stats.kstest(x, stats.norm(mean, std).cdf).pvalue > 0.001, name
        assert abs(x.mean() - mean) < 4 * std / N**0.5
        assert abs(x.var() - std**2) < 4 * std**2 * (2 / N) ** 0.5
        assert abs(stats.skew(x)) < 0.05
    rows = found["normal"]
    assert np.abs(np.corrcoef(rows.T) - np.eye(4)).max() < 0.04
    for name, width in (("bits", 32), ("bits64", 64), ("bytes", 8)):
        ones = [int(((found[name] >> k) & 1).sum()) for k in range(width)]
        chi_square = sum((2 * n - N) ** 2 / N for n in ones)
        assert stats.chi2(width).sf(chi_square) > 0.001, name
    assert stats.chisquare(np.bincount(found["dice"], minlength=7)[1:]).pvalue > 0.001
    assert stats.chisquare(np.bincount(found["bytes"], minlength=256)).pvalue > 0.001
    large = found["large"].astype(np.float64)
    assert abs(large.mean()) < 4 * 2**62 / (3 * N) ** 0.5
    assert abs(found["coins"].mean() - 0.3) < 4 * (0.21 / N) ** 0.5


def test_permutations_and_shapes() -> None:
    def fn(key: Any) -> Any:
        keys = lm.random.split(key, 3)
        rows = key.graph.arange(12).reshape(4, 3)
        return (
            [lm.random.permutation(each, 100) for each in keys],
            lm.random.permutation(key, rows),
            lm.random.permutation(key, rows, 1),
            lm.random.uniform(key),
            lm.random.normal(key, (0, 3)),
            lm.random.uniform(key, (2, 6)),
            lm.random.uniform(key, (12,)),
        )

    orders, rows, columns, scalar, empty, block, row = drawn(fn)
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(100))
    assert len({tuple(order) for order in orders}) == 3
    np.testing.assert_array_equal(np.sort(rows[:, 0]), [0, 3, 6, 9])
    np.testing.assert_array_equal(rows[:, 0] + 1, rows[:, 1])
    np.testing.assert_array_equal(np.sort(columns[0]), [0, 1, 2])
    assert scalar.shape == ()
    assert empty.shape == (0, 3)
    np.testing.assert_array_equal(block.reshape(-1), row)


def test_bernoulli_at_its_ends_and_of_tensors() -> None:
    p = np.array([0, 1, 0.5, np.nan], np.float32)

    def fn(key: Any, p: Any) -> Any:
        return lm.random.bernoulli(key, p.expand(500, 4)), lm.random.bernoulli(key, 1.0, (500,))

    found, always = run(fn, np.array([1, 2], np.uint32), p)
    assert found[:, 0].sum() == 0
    assert found[:, 1].all()
    assert 180 < found[:, 2].sum() < 320
    assert found[:, 3].sum() == 0
    assert always.all()


def test_dropout_selects() -> None:
    x = np.full((40, 50), np.inf, np.float32)

    def fn(key: Any, x: Any) -> Any:
        return (
            x.dropout(0.25, key),
            lm.random.dropout(x * 0 + 3, 0.25, key),
            x.dropout(1.0),
            x.dropout(0.0),
            x.dropout(0.5, training=False),
        )

    dropped, nan, none, *same = run(fn, np.array([1, 2], np.uint32), x)
    assert set(np.unique(dropped)) == {0, np.inf}
    np.testing.assert_array_equal(np.isnan(nan), dropped == np.inf)
    assert 0.2 < (dropped == 0).mean() < 0.3
    assert not none.any()
    for each in same:
        np.testing.assert_array_equal(each, x)


def test_dropout_leaves_half_by_default() -> None:
    x = np.ones((40, 50), np.float32)
    (y,) = run(lambda key, x: (lm.nn.functional.dropout(x, key=key),), np.uint32([1, 2]), x)
    assert set(np.unique(y)) == {0, 2}
    assert 0.45 < (y == 0).mean() < 0.55


def test_symbolic_shapes() -> None:
    cx = Recorder()
    n = cx.dim("n", 1, 2**40)
    key = lm.random.key(11, cx)
    part = lm.random.uniform(key, (n, 3))
    literal = lm.random.uniform(key, (4, 3))
    for each in (part, literal):
        cx.output(each)
    found = results(cx, [part, literal], {}, {"n": 4})
    np.testing.assert_array_equal(found[0], found[1])


def test_random_errors() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda k: lm.random.uniform(k[0], (2,)), DTypeError, r"uniform: u32\[\] is no key"),
        (lambda k: lm.random.uniform(3, (2,)), DTypeError, "uniform: 3 is no key; make one with"),
        (lambda k: lm.random.uniform(k, (2,), dtype="int32"), DTypeError, "int32 is no float"),
        (lambda k: lm.random.bits(k, (2,), "int32"), DTypeError, "no unsigned integer"),
        (lambda k: lm.random.randint(k, (2,), 3, 3), DTypeError, "3..3 .* is no interval of int64"),
        (lambda k: lm.random.randint(k, (2,), 0, 300, "int8"), DTypeError, "0..300 .* of int8"),
        (lambda k: lm.random.key(0.5, k.graph), DTypeError, "0.5 is no seed"),
        (lambda k: k.float().dropout(0.5), DTypeError, "no key; pass key="),
        (lambda k: k.float().dropout(1.5, k), ShapeError, "p=1.5 is no probability"),
        (lambda k: k.dropout(0.5, k), DTypeError, "holds no floats"),
        (lambda k: k.float().dropout(0.5, lm.random.split(k)), DTypeError, "dropout: .* batch of"),
        (lambda k: lm.random.permutation(lm.random.split(k), 3), DTypeError, "a batch of keys"),
    ]
    for fn, error, text in cases:
        with pytest.raises(error, match=text):
            drawn(fn)
