"""The choice of tokens: filters and penalties as transformers', draws by their frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

import luminal as lm
from luminal.models.choice import FILTERS, NOT_A_NUMBER, NOTHING_LEFT, Chooser, choose, declared
from luminal.models.sampling import Draw, Sampling, arrays, features_of
from tests.close import close
from tests.long_share import mostly_long

VOCABULARY = 70
RNG = np.random.default_rng(0)
LOGITS = (RNG.standard_normal((4, VOCABULARY)) * 3).astype(np.float32)


def chosen(
    logits: Any, draws: Sequence[Draw], backend: str = "reference", features: Any = None
) -> dict[str, Any]:
    """What a program of these features chooses."""
    graph = lm.Graph()
    names = features_of(draws) if features is None else features
    x = graph.tensor((graph.dim("rows", 1, 16), logits.shape[1]), lm.float32, "logits")
    inputs = declared(graph, x.shape[0], names, logits.shape[1])
    for name, value in choose(x, names, inputs)._asdict().items():
        if value is not None:
            value.output(name)
    given = {"logits": logits, **arrays(draws, names, logits.shape[1])}
    return dict(graph.compile(backend)(given))


def left(name: str, logits: Any, value: float) -> Any:
    """Which logits a filter leaves."""
    graph = lm.Graph()
    x = graph.tensor(logits.shape, lm.float32, "x")
    limit = graph.constant(np.float32(value)).expand((len(logits), 1))
    FILTERS[name](x, limit).output("kept")
    return graph.compile("reference")(x=logits)["kept"]


@pytest.mark.parametrize(
    ("name", "warper", "value"),
    [
        ("top_k", "TopKLogitsWarper", 1),
        ("top_k", "TopKLogitsWarper", 7),
        ("top_k", "TopKLogitsWarper", VOCABULARY),
        ("top_p", "TopPLogitsWarper", 0.01),
        ("top_p", "TopPLogitsWarper", 0.6),
        ("top_p", "TopPLogitsWarper", 0.97),
        ("min_p", "MinPLogitsWarper", 0.02),
        ("min_p", "MinPLogitsWarper", 0.5),
        ("typical_p", "TypicalLogitsWarper", 0.2),
        ("typical_p", "TypicalLogitsWarper", 0.9),
    ],
)
def test_filters_leave_what_transformers_leaves(name: str, warper: str, value: float) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    logits = LOGITS.copy()
    logits[0, 5:9] = -math.inf
    theirs = getattr(transformers, warper)(value)(None, torch.from_numpy(logits)).numpy()
    found = left(name, logits, value) & ~np.isneginf(logits)
    np.testing.assert_array_equal(found, ~np.isneginf(theirs))
    assert found.any(-1).all()


def test_a_filter_of_all_leaves_all() -> None:
    for name, value in (("top_k", VOCABULARY), ("top_p", math.inf), ("typical_p", math.inf)):
        assert left(name, LOGITS, value).all()
    assert left("min_p", LOGITS, 0).all()


def test_penalties_and_biases() -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    text = [3, 5, 3, 60, 60, 60, 9]
    sampling = Sampling(
        repetition_penalty=1.7,
        frequency_penalty=0.4,
        presence_penalty=-0.9,
        logit_bias={0: 2.5, 69: -math.inf},
    )
    draws = [Draw(sampling, text, 3), Draw(Sampling()), Draw(sampling), Draw(sampling, [1] * 9, 9)]
    repeated = transformers.RepetitionPenaltyLogitsProcessor(1.7)
    expected = LOGITS.copy()
    for row, draw in enumerate(draws):
        if draw.sampling is not sampling:
            continue
        if draw.tokens:
            ids, scores = torch.tensor([draw.tokens]), torch.from_numpy(LOGITS[row : row + 1])
            expected[row] = repeated(ids, scores.clone()).numpy()
        counts = np.bincount(draw.tokens[draw.prompt :] or [0], minlength=VOCABULARY)
        counts = counts * bool(draw.tokens[draw.prompt :])
        expected[row] -= 0.4 * counts - 0.9 * (counts > 0)
        expected[row, 0] += 2.5
        expected[row, 69] = -math.inf
    # the greatest, then the next ones with all before forbidden: the whole order is compared
    order = np.argsort(-expected, 1)[:, :12]
    allowed = np.ones((4, VOCABULARY), np.uint8)
    for wanted in order.T:
        found = chosen(LOGITS, [_only(d, a) for d, a in zip(draws, allowed, strict=True)])
        np.testing.assert_array_equal(found["tokens"], wanted)
        allowed[np.arange(4), wanted] = 0


def _only(draw: Draw, allowed: Any) -> Draw:
    bits = np.zeros(96, np.uint8)
    bits[:VOCABULARY] = allowed
    return Draw(
        draw.sampling, draw.tokens, draw.prompt, np.packbits(bits, bitorder="little").view("<u4")
    )


def test_what_is_forbidden_never_comes() -> None:
    one = np.zeros(VOCABULARY, np.uint8)
    one[37] = 1
    draws = [_only(Draw(Sampling(temperature=5, seed=seed)), one) for seed in range(8)]
    assert (chosen(np.tile(LOGITS[0], (8, 1)), draws)["tokens"] == 37).all()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=1.7, top_k=6),
        Sampling(temperature=0.8, top_p=0.8, min_p=0.05),
    ],
    ids=["plain", "top_k", "top_p_min_p"],
)
def test_draws_come_as_often_as_they_should(sampling: Sampling) -> None:
    """By chi-square; positions in a text draw independently."""
    logits, count = LOGITS[0, :20] / 2, 3000
    draws = [
        Draw(
            Sampling(
                **{name: getattr(sampling, name) for name in sampling.__slots__} | {"seed": 5}
            ),
            range(step),
        )
        for step in range(count)
    ]
    names = features_of(draws)
    graph = lm.Graph()
    x = graph.tensor((count, 20), lm.float32, "logits")
    choose(x, names, declared(graph, count, names, 20)).tokens.output("tokens")
    inputs = {"logits": np.tile(logits, (count, 1)), **arrays(draws, names, 20)}
    tokens = graph.compile("reference")(inputs)["tokens"]
    x64 = logits.astype(np.float64) / sampling.temperature
    kept = np.ones(20, bool)
    for name, value in (("top_k", sampling.top_k or 20), ("top_p", sampling.top_p)):
        if value < 20 if name == "top_k" else value < 1:
            rows = np.where(kept, x64, -math.inf)[None].astype(np.float32)
            kept &= left(name, rows, value)[0]
    if sampling.min_p:
        kept &= np.exp(x64 - x64.max()) >= sampling.min_p
    expected = np.where(kept, np.exp(x64 - x64.max()), 0)
    expected *= count / expected.sum()
    counts = np.bincount(tokens, minlength=20)
    assert not counts[~kept].any()
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-3


def test_a_text_is_chosen_alike_alone_and_in_any_batch() -> None:
    draw = Draw(Sampling(temperature=0.9, top_k=30, seed=2**40 + 3), [4, 4, 7], 1)
    others = [
        Draw(Sampling()),
        Draw(Sampling(temperature=2, top_p=0.3, min_p=0.01, typical_p=0.5, seed=1), [1] * 20),
        Draw(Sampling(frequency_penalty=1, repetition_penalty=2, logit_bias={1: 3}), [5, 6], 1),
    ]
    tokens = []
    for step in range(8):
        draw.tokens = range(step)
        logits = RNG.standard_normal((4, VOCABULARY)).astype(np.float32)
        alone = chosen(logits[:1], [draw])["tokens"][0]
        among = chosen(np.roll(logits, 2, 0), [*others[:2], draw, others[2]])["tokens"]
        assert among[2] == alone
        assert among[0] == logits[2].argmax()
        tokens.append(int(alone))
    assert len(set(tokens)) > 3


def test_log_probabilities() -> None:
    torch = pytest.importorskip("torch")
    draws = [Draw(Sampling(temperature=1, top_k=3, seed=seed)) for seed in range(4)]
    found = chosen(LOGITS, draws, features=(*features_of(draws), "top_logprobs"))
    theirs = torch.from_numpy(LOGITS).log_softmax(-1)
    top = theirs.topk(20)
    np.testing.assert_array_equal(found["top_tokens"], top.indices.numpy())
    close(found["top_logprobs"], top.values.numpy())
    own = theirs.numpy()[np.arange(4), found["tokens"]]
    close(found["logprobs"], own)


def test_a_logit_that_is_no_number() -> None:
    logits = LOGITS.copy()
    logits[1, 3] = math.nan
    for sampling in (Sampling(), Sampling(temperature=1)):
        tokens = chosen(logits, [Draw(sampling)] * 4)["tokens"]
        np.testing.assert_array_equal(tokens == NOT_A_NUMBER, [False, True, False, False])


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_options_that_leave_nothing(backend: str, temperature: float) -> None:
    none = dict.fromkeys(range(VOCABULARY), -math.inf)
    most = dict.fromkeys(range(VOCABULARY), float(np.finfo(np.float32).max))
    logits = LOGITS.copy()
    logits[2, 5] = np.finfo(np.float32).max
    biases = [{}, none, most, {number: -math.inf for number in none if number != 7}]
    draws = [Draw(Sampling(temperature=temperature, logit_bias=each)) for each in biases]
    tokens = chosen(logits, draws, backend)["tokens"]
    np.testing.assert_array_equal(tokens[1:], [NOTHING_LEFT, NOTHING_LEFT, 7])
    assert tokens[0] >= 0
    draws = [Draw(Sampling(temperature=temperature), allowed=np.zeros(3, np.uint32))]
    assert chosen(LOGITS[:1], draws, backend)["tokens"] == [NOTHING_LEFT]


@pytest.mark.parametrize("temperature", mostly_long([1e-45, 1e-3, 1e-30, 1e-38, 1e-60], 1))
@pytest.mark.parametrize(
    "filters", [{}, {"top_p": 0.9}, {"min_p": 0.1}, {"typical_p": 0.9}], ids=str
)
def test_a_low_temperature_takes_the_likeliest(temperature: float, filters: Any) -> None:
    draws = [Draw(Sampling(temperature=temperature, seed=seed, **filters)) for seed in range(4)]
    tokens = chosen(LOGITS, draws, "cpu")["tokens"]
    np.testing.assert_array_equal(tokens, LOGITS.argmax(-1))


def test_the_cpu_chooses_as_the_reference() -> None:
    draws = [
        Draw(Sampling(temperature=1, top_k=9, top_p=0.9, typical_p=0.8, seed=3), [1, 2]),
        Draw(Sampling(repetition_penalty=1.3, presence_penalty=1.0), [5, 9], 1),
        Draw(Sampling(logit_bias={3: 9.0})),
        Draw(Sampling(temperature=0.5, min_p=0.1, seed=8), [1, 2]),
    ]
    found, expected = (chosen(LOGITS, draws, backend) for backend in ("cpu", "reference"))
    np.testing.assert_array_equal(found["tokens"], expected["tokens"])


def test_only_features_that_are_needed() -> None:
    assert features_of([Draw(Sampling())]) == ()
    assert features_of([Draw(Sampling(top_k=3, seed=9))]) == ()  # greedy takes the first anyway
    draws = [Draw(Sampling(temperature=1, top_p=0.5)), Draw(Sampling(presence_penalty=1))]
    assert features_of(draws) == ("temperature", "top_p", "presence_penalty")


def test_a_chooser_of_logits_compiles_once_for_each_kind_of_choice() -> None:
    choose_one, before = Chooser(VOCABULARY, "reference"), lm.compile_count()
    for row, sampling in enumerate(
        (Sampling(), Sampling(temperature=1, top_k=9), Sampling(), Sampling(temperature=2, top_k=4))
    ):
        draw = Draw(sampling, [1, 2, 3])
        assert choose_one(draw, LOGITS[row]) == chosen(LOGITS[row : row + 1], [draw])["tokens"][0]
    assert lm.compile_count() - before == 4 + 2  # four of this test's own
