"""`fit` by batches that something else makes: lists, functions, generators, PyTorch's loaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import CollectiveError, DTypeError, InputError
from luminal.distributed import run_local
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, Callback, Record, fit
from tests.close import close_each
from tests.long_share import mostly_long

rng = np.random.default_rng(0)
X = rng.standard_normal((14, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3).astype(np.float32)
ROWS = [slice(k, k + 4) for k in range(0, 14, 4)]
PAIRS = [(X[rows], Y[rows]) for rows in ROWS]


class Weighed(nn.Module):
    """A layer whose result is weighed, by arguments with names."""

    def __init__(self) -> None:
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Any, weights: Any = None) -> Any:
        y = self.layer(x)
        return y if weights is None else y * weights[0] + weights[1]["more"]


def trained(data: Any, loss: Any = F.mse_loss, **options: Any) -> tuple[bytes, Record]:
    """The bits that come of some steps of SGD, and their record."""
    lm.manual_seed(0)
    model = Weighed()
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    record = fit(model, loss, data, optimizer, **({"progress": False} | options))
    return b"".join(a.tobytes() for a in model.state_dict().values()), record


def generated() -> Iterator[Any]:
    """Batches in one pair of arrays, which the next ones overwrite."""
    x, y = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)
    for a, b in PAIRS:
        x[: len(a)], y[: len(b)] = a, b
        yield x[: len(a)], y[: len(b)]


def by_torch() -> Any:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y, requires_grad=True))
    return torch.utils.data.DataLoader(data, batch_size=4)


SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: PAIRS,
    "function": lambda: generated,
    "DataLoader": by_torch,
    "dicts": lambda: [{"labels": y, "x": x} for x, y in PAIRS],
    "lists": lambda: [[x.tolist(), y] for x, y in PAIRS],
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources_train_as_batches_do(name: str) -> None:
    data = Batches(ArrayDataset(X, Y), 4, shuffle=False)
    options: dict[str, Any] = {"epochs": 2, "validate": data}
    expected, wanted = trained(data, **options)
    source, held = SOURCES[name](), SOURCES[name]()
    bits, record = trained(source, epochs=2, validate=PAIRS if callable(held) else held)
    assert bits == expected
    assert (record.losses, record.steps) == (wanted.losses, 8)
    assert [row["epoch"] for row in record.history] == [0] * 4 + [1] * 4
    assert record.validation_loss == wanted.validation_loss
    assert [k for k, row in enumerate(record.history) if "validation_loss" in row] == [3, 7]


def test_a_generator_has_one_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    bits, record = trained(generated(), progress=True)
    assert (bits, record.steps) == (trained(PAIRS)[0], 4)
    # nobody knows how long it is
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == list("1234")
    assert trained(generated(), steps=3)[1].steps == 3
    assert trained(generated(), steps=9, validate=PAIRS)[1].validation_loss is not None
    assert trained(PAIRS, steps=9)[1].steps == 9  # what begins anew does


def test_parts_and_targets_of_any_form() -> None:
    weights = (np.float32([[2]] * 4), {"more": np.float32(1)})
    batch = {"x": X[:4], "weights": weights, "target": {"mean": Y[:4], "scale": np.float32(3)}}

    def loss(y: Any, target: Any) -> Any:
        return (y - target["mean"]).square().mean() * target["scale"]

    first = trained([batch], loss)[1].losses[0]
    lm.manual_seed(0)
    layer = Weighed().layer
    y = (X[:4] @ layer.weight.numpy().T + layer.bias.numpy()) * 2 + 1
    close_each(np.float32(first), 3 * np.square(y - Y[:4]).mean())
    alone = trained([X[:4]], lambda y: y.square().mean())[1].losses[0]
    close_each(np.float32(alone), np.square((y - 1) / 2).mean())


def test_steps_of_several_batches_end_with_the_epoch() -> None:
    data = [*PAIRS[:3], PAIRS[0], PAIRS[1]]
    _, record = trained(data, epochs=2, accumulate=2)
    assert record.steps == 4  # of each epoch's five batches one is left over
    assert trained(lambda: iter(data), epochs=2, accumulate=2)[1].losses == record.losses
    with pytest.raises(InputError, match=r"gave 5 batches in epoch 0, which make no step of accu"):
        trained(data, accumulate=6)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (generated(), {"epochs": 2}, r"is a generator, which gives its batches once, and epochs=2"),
        (PAIRS, {"validate": generated()}, "validate is a generator, which gives its batches once"),
        ([], {}, "data gave 0 batches in epoch 0; give what has some"),
        ([{"x": X, "z": Y}], {}, "batch 0 has x, z and no target; name it labels or target"),
        ([{"x": X, "y": "a b"}], {}, r"batch 0\[0\]: 'a b' is not made of numbers.*; leave it out"),
        ([{"y": Y}], {}, "batch 0 has no array but the target"),
        ([X], {}, "batch of one array has no target, so its loss .* and mse_loss wants more"),
        (PAIRS, {"callbacks": [3]}, "callbacks has 3, which is neither a Callback nor a function"),
        (PAIRS, {"callbacks": Callback}, r"neither a Callback .*; call it: Callback\(\)"),
    ],
)
def test_what_is_refused(data: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, DTypeError), match=words):
        trained(data, **options)


# --- going on -------------------------------------------------------------------------------------


class Noisy:
    """Examples that draw from every generator as they are taken."""

    def __len__(self) -> int:
        return 14

    def __getitem__(self, k: int) -> Any:
        torch = pytest.importorskip("torch")
        noise = random.random() + np.random.random() + torch.rand(()).item()
        return X[k] + np.float32(noise), Y[k]


@pytest.mark.parametrize("stop", mostly_long([7, 3, 8], 1))
@pytest.mark.parametrize("own", [False, True])
def test_a_shuffled_loader_goes_on(tmp_path: Path, stop: int, own: bool) -> None:
    torch = pytest.importorskip("torch")

    def loader() -> Any:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        generator = torch.Generator().manual_seed(9) if own else None
        return torch.utils.data.DataLoader(Noisy(), 4, shuffle=True, generator=generator)

    held = torch.utils.data.DataLoader(Noisy(), 7, shuffle=True)
    options: dict[str, Any] = {"epochs": 3, "validate": held, "validate_every": 2}
    expected, whole = trained(loader(), **options)
    trained(loader(), **(options | {"steps": stop}), checkpoint=tmp_path)
    torch.rand(7)
    bits, record = trained(loader(), **options, checkpoint=tmp_path)
    assert (record.resumed, record.steps) == (stop, 12)
    assert record.losses == whole.losses[stop:]
    assert bits == expected
    assert len(set(whole.losses)) == 12


def test_a_generator_goes_on(tmp_path: Path) -> None:
    expected = trained(generated())[0]
    trained(generated(), steps=2, checkpoint=tmp_path)
    bits, record = trained(generated(), checkpoint=tmp_path)
    assert (record.resumed, record.steps, bits) == (2, 4, expected)
    assert trained(generated(), checkpoint=tmp_path)[0] == expected  # nothing is left to do
    with pytest.raises(
        InputError, match=r"position in the data has epoch, taken, examples.* is of"
    ):
        trained(PAIRS, checkpoint=_of_batches(tmp_path / "other"))
    trained(generated(), steps=3, checkpoint=tmp_path / "short")
    with pytest.raises(InputError, match="at batch 3 of epoch 0, and data gave 1; make it alike"):
        trained(PAIRS[:1], checkpoint=tmp_path / "short")


def _of_batches(folder: Path) -> Path:
    trained(Batches(ArrayDataset(X, Y), 4), checkpoint=folder, steps=1)
    return folder


# --- ranks ----------------------------------------------------------------------------------------


def on_two(data: Callable[[int], Any], **options: Any) -> list[tuple[bytes, Record]]:
    """What two ranks of threads have trained."""
    models, mesh = [Weighed() for _ in range(2)], lm.Mesh((2,), ("data",))
    for model in models:
        for path, held in model.named_parameters():
            held.set(np.full(held.shape, 0.1, np.float32))
            held.name = path

    def work(engine: Any) -> tuple[bytes, Record]:
        model = models[engine.rank]
        optimizer = optim.SGD(model.parameters(), lr=0.05)
        record = fit(
            model, F.mse_loss, data(engine.rank), optimizer, mesh=mesh, progress=False, **options
        )
        return b"".join(a.tobytes() for a in model.state_dict().values()), record

    return run_local(2, work, timeout=20)


class Dealt:
    """A loader whose sampler deals each rank its part, as PyTorch's DistributedSampler."""

    def __init__(self, rank: int, ranks: int = 2) -> None:
        self.sampler, self.rank, self.num_replicas = self, rank, ranks
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        mine = slice(2 * self.rank, 2 * self.rank + 2)
        return ((x[mine], y[mine]) for x, y in PAIRS[:3])


def test_ranks_take_their_rows_of_whole_batches_or_have_parts() -> None:
    (bits, record), (other, _) = on_two(lambda rank: iter(PAIRS[:3]))
    loaders = [Dealt(rank) for rank in range(2)]
    dealt = on_two(loaders.__getitem__, epochs=2)
    assert bits == other
    assert dealt[0][1].losses[:3] == record.losses
    assert [loader.epochs for loader in loaders] == [[0, 1]] * 2
    lm.manual_seed(0)
    alone = Weighed()
    for held in alone.parameters():
        held.set(np.full(held.shape, 0.1, np.float32))
    optimizer = optim.SGD(alone.parameters(), lr=0.05)
    wanted = fit(alone, F.mse_loss, PAIRS[:3], optimizer, progress=False)
    np.testing.assert_allclose(record.losses, wanted.losses, rtol=1e-6)  # sums in another order


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda rank: PAIRS[rank : rank + 2], "batch 0 of data"),
        (lambda rank: iter(PAIRS[: 2 + rank]), "batch 2 of data"),
        (lambda rank: Dealt(rank, 4), "sampler of data deals to rank . of 4, and this is . of 2"),
        (lambda rank: [(X[:3], Y[:3])], "batch 0 of data has 3 rows, which do not divide by 2"),
    ],
)
def test_ranks_whose_batches_differ(data: Callable[[int], Any], words: str) -> None:
    with pytest.raises((CollectiveError, InputError), match=words):
        on_two(data)
