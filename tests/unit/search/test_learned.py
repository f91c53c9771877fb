"""What is learned of how far predictions are off, and the order that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from luminal.backends.backend import Prediction
from luminal.search.database import Sample
from luminal.search.learned import Learned, correlation
from luminal.search.order import EXPLORED, Order

KERNELS, SCHEDULES = 8, 40


def drawn(seed: int = 0) -> list[Sample]:
    """Schedules of kernels on a chip whose misses of its cache take twenty times what is predicted,
    and on which one kernel is always slower than another by the same factor.
    """
    rng = np.random.default_rng(seed)
    samples = []
    for kernel in range(KERNELS):
        cycles = rng.uniform(1e5, 1e6, SCHEDULES)
        misses = 1e5 * 10 ** rng.uniform(-1, 0.5, SCHEDULES)
        clock = (cycles + 20 * misses) * rng.uniform(0.95, 1.05, SCHEDULES) * rng.uniform(1, 2)
        for taken, cycle, miss in zip(clock, cycles, misses, strict=True):
            features = {"cycles": cycle, "misses": miss, "kind": 1.0}
            samples.append(Sample(str(kernel), taken / 1e9, (cycle + miss) / 1e9, features))
    return samples


def predictions(samples: Sequence[Sample]) -> list[Prediction]:
    return [Prediction(sample.predicted, sample.features) for sample in samples]


def left_out(train: Callable[[list[Sample]], list[Sample]] = lambda samples: samples) -> float:
    """The mean correlation with the clock for a kernel of which nothing is known."""
    samples, found = drawn(), []
    for kernel in {sample.kernel for sample in samples}:
        known = [sample for sample in samples if sample.kernel != kernel]
        asked = [sample for sample in samples if sample.kernel == kernel]
        expected = Learned(train(known)).all_expected(predictions(asked), kernel)
        found.append(correlation(expected, [sample.seconds for sample in asked]))
    return float(np.mean(found))


def test_nothing_timed_is_the_prediction() -> None:
    asked = predictions(drawn())
    assert Learned().all_expected(asked, "0") == [each.seconds for each in asked]
    assert Learned().expected(asked[0]) == asked[0].seconds
    assert Learned(drawn()).all_expected([]) == []


def test_other_kernels_say_how_predictions_are_off() -> None:
    samples = drawn()
    alone = correlation([s.predicted for s in samples[:40]], [s.seconds for s in samples[:40]])
    assert alone < 0.9
    assert left_out() > 0.95


def permuted(samples: list[Sample]) -> list[Sample]:
    places = np.random.default_rng(1).permutation(len(samples))
    return [
        Sample(s.kernel, s.seconds, s.predicted, samples[k].features)
        for s, k in zip(samples, places, strict=True)
    ]


def turned(samples: list[Sample]) -> list[Sample]:
    return [Sample(s.kernel, s.predicted**2 / s.seconds, s.predicted, s.features) for s in samples]


@pytest.mark.parametrize("spoil", [permuted, turned])
def test_what_is_wrong_in_the_samples_shows(
    spoil: Callable[[list[Sample]], list[Sample]],
) -> None:
    """The bound above is no accident of the data: it does not hold for samples that lie."""
    assert left_out(spoil) < 0.9


def test_what_was_timed_of_a_kernel_counts_most() -> None:
    """A kernel that behaves as no other does is learned from its own schedules."""
    samples = drawn()
    odd = [
        Sample("odd", s.predicted**3 / s.seconds**2, s.predicted, s.features) for s in samples[:40]
    ]
    learned = Learned(samples)
    clock = [sample.seconds for sample in odd[20:]]
    before = correlation(learned.all_expected(predictions(odd[20:]), "odd"), clock)
    learned.add(odd[:20])
    after = correlation(learned.all_expected(predictions(odd[20:]), "odd"), clock)
    assert after > before + 0.1
    unnamed = correlation(learned.all_expected(predictions(odd[20:])), clock)
    assert after > unnamed


def test_features_that_are_new_or_missing_are_none() -> None:
    samples = drawn()
    one = samples[0]
    learned = Learned([*samples, Sample("other", 1e-3, 1e-3, {"calls": 1.0})])
    (found,) = learned.all_expected([Prediction(one.predicted, {**one.features, "new": 5.0})], "0")
    assert found == pytest.approx(learned.expected(predictions([one])[0], "0"))
    assert np.isfinite(learned.expected(Prediction(1e-3, {})))
    assert learned.expected(Prediction(float("inf"), {})) == float("inf")


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e-300, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["seconds", "predicted"])
def test_what_no_clock_gives_teaches_nothing(field: str, seconds: float) -> None:
    """As the prices of a damaged file, or a prediction without end."""
    one, *others = drawn()
    damaged = replace(one, **{field: seconds})
    asked = predictions(others)
    learned = Learned(others)
    expected = learned.all_expected(asked, "0")
    learned.add([damaged])
    assert learned.all_expected(asked, "0") == expected


def test_any_samples_that_may_be_give_numbers() -> None:
    rng = np.random.default_rng(0)
    seconds, counts = (2e-12, 1e-9, 1e-3, 9e5), (-1e308, 0.0, 1e-300, 1.0, 1e18, 1.7e308)
    for _ in range(50):
        features = [dict(zip("abc", rng.choice(counts, 3).tolist(), strict=True)) for _ in range(9)]
        samples = [Sample("k", *rng.choice(seconds, 2).tolist(), each) for each in features]
        assert all(sample.is_possible for sample in samples)
        found = Learned(samples[:8]).all_expected(predictions(samples), "k")
        assert np.isfinite(found).all()
        assert min(found) >= 0


def test_alike_samples_are_no_trouble() -> None:
    one = drawn()[0]
    assert Learned([one] * 5).expected(*predictions([one]), "0") == pytest.approx(one.seconds)


def test_an_order_names_each_once_and_the_fastest_early() -> None:
    order, expected = Order(12), [12.0 - k for k in range(12)]
    given = [order.next(expected) for _ in range(12)]
    assert sorted(given) == [*range(12)]
    assert given[0] == 0  # the present one
    assert given[1:EXPLORED] == [11]
    assert given[EXPLORED : EXPLORED + 2] == [1, 10]  # the first that waits, then the next fastest


def test_equal_expectations_leave_the_order_of_the_rules() -> None:
    order = Order(9)
    assert [order.next([1.0] * 9) for _ in range(9)] == [*range(9)]


def test_correlation_of_what_is_all_equal_is_none() -> None:
    assert correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0
