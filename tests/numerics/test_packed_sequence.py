"""Packed sequences against torch.nn.utils.rnn: fields, layers, gradients, steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as theirs

import luminal as lm
from luminal import nn
from luminal.base.errors import InputError, ShapeError
from luminal.nn.utils import rnn as ours

FORWARD, TRAINED = 1e-5, 1e-4
"""How far results may be apart, as a share of the greatest: roundings of sums of a few dozen
products in float32, and the same through gradients and three steps."""


pytestmark = pytest.mark.usefixtures("new_default_graph")


def arrays_of(x: Any) -> list[Any]:
    """The arrays of a Tensor, of a packed sequence's fields, or of tuples and lists of these."""
    if x is None:
        return [None]
    if isinstance(x, tuple | list | ours.PackedSequence):
        return [array for part in x for array in arrays_of(part)]
    return [np.asarray(x.detach().numpy() if hasattr(x, "detach") else x)]


def alike(mine: Any, expected: Any, share: float = FORWARD) -> None:
    """Asserts that shapes and dtypes are equal, and elements but for a share of the greatest."""
    found, wanted = arrays_of(mine), arrays_of(expected)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            room = share * float(np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=0, atol=room)


# --- without layers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "is_sorted", "batch_first"),
    [
        ([1, 4, 2, 4], False, True),
        pytest.param([1, 4, 2, 4], False, False, marks=pytest.mark.long),
        pytest.param([5, 3, 3, 1], True, True, marks=pytest.mark.long),
        pytest.param([5, 3, 3, 1], True, False, marks=pytest.mark.long),
        pytest.param([2], True, False, marks=pytest.mark.long),
    ],
)
def test_fields_and_padding_are_pytorchs(
    lengths: list[int], is_sorted: bool, batch_first: bool
) -> None:
    # Steps beyond the longest sequence, which packing drops.
    steps, width = max(lengths) + 2, 2
    shape = (len(lengths), steps) if batch_first else (steps, len(lengths))
    x = np.random.default_rng(0).normal(0, 1, (*shape, width)).astype(np.float32)
    results = []
    for library, of_array in ((ours, lm.tensor), (theirs, torch.tensor)):
        packed = library.pack_padded_sequence(of_array(x), lengths, batch_first, is_sorted)
        again = library.PackedSequence(packed.data * 2, *packed[1:])
        results.append(
            [
                packed,
                library.pad_packed_sequence(packed, batch_first, -1.5, max(lengths) + 1),
                library.pad_packed_sequence(again),
                packed._replace(data=packed.data + 1)[0],
                library.unpack_sequence(packed),
            ]
        )
    alike(results[0], results[1])


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        (np.float32, "left"),
        pytest.param(np.int64, "left", marks=pytest.mark.long),
        pytest.param(np.float32, "right", marks=pytest.mark.long),
        pytest.param(np.int64, "right", marks=pytest.mark.long),
    ],
)
def test_sequences_of_several_lengths_are_padded(kind: type, side: str) -> None:
    sequences: list[Any] = [np.arange(n * 2).reshape(n, 2).astype(kind) for n in (3, 1, 4)]
    mine, other = [lm.tensor(x) for x in sequences], [torch.tensor(x) for x in sequences]
    expected = theirs.pad_sequence(other, True, 7, side)
    alike(ours.pad_sequence(mine, True, 7, side), expected)
    alike(ours.pad_sequence(sequences, True, 7, side), expected)  # arrays are padded at once
    lengths = torch.tensor([3, 1, 9])  # beyond the last step there is nothing
    rows = ours.unpad_sequence(lm.tensor(expected), lengths, batch_first=True)
    alike(rows, theirs.unpad_sequence(expected, lengths, batch_first=True))
    alike(ours.pack_sequence(mine, False), theirs.pack_sequence(other, False))


def test_other_lengths_need_no_other_program() -> None:
    counts = []
    for lengths in ([4, 2, 1], [4, 4, 3]):
        packed = ours.pack_padded_sequence(lm.tensor(np.ones((4, 3, 2), np.float32)), lengths)
        padded, _ = ours.pad_packed_sequence(packed)
        assert padded.numpy().sum() == 2 * sum(lengths)
        counts.append(lm.session.graph.compile_count())
    assert counts[0] == counts[1]


def test_wrong_lengths_are_refused() -> None:
    x = lm.tensor(np.zeros((4, 2, 3), np.float32))
    for lengths, text in (
        ([4, 0], "lengths: the 1th is 0, which is not within 1..4"),
        ([5, 1], "lengths: the 0th is 5, which is not within 1..4"),
        ([2, 3], "lengths: \\[2, 3\\] grow, and enforce_sorted asks for the longest first"),
    ):
        with pytest.raises(InputError, match=text):
            ours.pack_padded_sequence(x, lengths)
    with pytest.raises(ShapeError, match="for 2 sequences; give one for each"):
        ours.pack_padded_sequence(x, [4, 3, 2])
    packed = ours.pack_padded_sequence(x, [4, 3])
    with pytest.raises(InputError, match="total_length 3 is less than the 4 steps"):
        ours.pad_packed_sequence(packed, total_length=3)
    with pytest.raises(InputError, match="are 6 elements; data is"):
        ours.PackedSequence(packed.data, [2, 2, 2])
    with pytest.raises(InputError, match="positive numbers that never grow"):
        ours.PackedSequence(packed.data, [1, 2, 2, 2])
    with pytest.raises(InputError, match="does not name each of 2 sequences once"):
        ours.PackedSequence(packed.data, [2, 2, 2, 1], [0, 0])
    with pytest.raises(InputError, match=r"got a ndarray; pass lm\.tensor"):
        ours.pack_padded_sequence(np.zeros((4, 2, 3)), [4, 3])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is no sequence"):
        ours.pad_sequence([])


def test_lengths_of_a_run_have_no_fields() -> None:
    cx = lm.Graph()
    packed = ours.pack_padded_sequence(cx.tensor((4, "b", 3)), cx.tensor(("b",), "int64", "n"))
    with pytest.raises(InputError, match="n: i64\\[b\\] are known in a run only"):
        packed.data  # noqa: B018
    with pytest.raises(InputError, match="known in a run only"):
        ours.unpack_sequence(packed)


def test_lengths_of_an_argument_are_checked_in_the_run() -> None:
    @lm.jit(shapes={"x": ("s", "b", 1), "n": ("b",)})
    def total(x: Any, n: Any) -> Any:
        return ours.pad_packed_sequence(ours.pack_padded_sequence(x, n))[0].sum()

    x = np.ones((4, 2, 1), np.float32)
    assert total(x, np.array([4, 0])) == 4
    for lengths in ([5, 1], [4, -1]):
        with pytest.raises(InputError, match=r"n: index \d+ is out of range for an extent of 5"):
            total(x, np.array(lengths))
    assert total(np.ones((5, 2, 1), np.float32), np.array([5, 1])) == 6


def test_packed_sequences_are_trees_of_tensors() -> None:
    """Functions that look for Tensors in their arguments and results find them in it."""
    x = np.random.default_rng(0).normal(0, 1, (4, 3, 2)).astype(np.float32)
    packed = ours.pack_padded_sequence(lm.tensor(x), [2, 4, 1], enforce_sorted=False)
    double = lm.jit(lambda p: ours.PackedSequence.of_padded(p.padded * 2, p.lengths))
    for found in (double(packed), lm.checkpoint(double)(packed)):
        alike(found, [packed.data * 2, *packed[1:]])
    given = lm.jit(lambda x, n: ours.pack_padded_sequence(x, n, enforce_sorted=False))
    alike(given(x, np.array([2, 4, 1])), packed)
    assert given(x, np.array([4, 2, 1])).sorted_indices is not None
    in_order = lm.jit(lambda x, n: ours.pack_padded_sequence(x, n))(x, np.array([4, 2, 1]))
    assert in_order.sorted_indices is None


# --- layers ---------------------------------------------------------------------------------------


class Case:
    """A recurrent layer with options that are drawn, and sequences for it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.kind = ("LSTM", "GRU", "RNN")[seed % 3]
        self.options = {
            "num_layers": int(rng.integers(1, 3)),
            "bidirectional": bool(rng.integers(2)),
            "bias": bool(rng.integers(2)),
            "batch_first": bool(rng.integers(2)),
        }
        if self.kind == "LSTM" and rng.integers(2):
            self.options["proj_size"] = 2
        self.batch, self.steps = int(rng.integers(1, 5)), int(rng.integers(1, 7))
        self.lengths = rng.integers(1, self.steps + 1, self.batch)
        self.is_sorted = bool(rng.integers(2))
        if self.is_sorted:
            self.lengths = np.sort(self.lengths)[::-1].copy()
        self.x = rng.normal(0, 1, (self.steps, self.batch, 3)).astype(np.float32)
        self.beyond = (np.nan, np.inf, 3)[seed // 3 % 3]
        if self.options["batch_first"]:
            self.x = self.x.transpose(1, 0, 2).copy()
        lasts = self.options["num_layers"] * (1 + self.options["bidirectional"])
        widths = (self.options.get("proj_size", 4), 4)[: 1 + (self.kind == "LSTM")]
        self.start = [rng.normal(0, 1, (lasts, self.batch, n)).astype(np.float32) for n in widths]
        self.has_start = bool(rng.integers(2))

    def sequences(self, lengths: Any) -> Any:
        """x with padding beyond the lengths, of which nothing may come, by a gradient neither."""
        inside = np.arange(self.steps)[:, None] < lengths
        inside = inside.T if self.options["batch_first"] else inside
        return np.where(inside[..., None], self.x, np.float32(self.beyond))

    def layer(self, library: Any) -> Any:
        """A layer of torch.nn or of ours."""
        torch.manual_seed(1)
        return getattr(library, self.kind)(3, 4, **self.options)

    def call(self, layer: Any, library: Any, x: Any, lengths: Any, start: list[Any]) -> Any:
        """Every h, padded, with the lengths, and the last state."""
        first = self.options["batch_first"]
        packed = library.pack_padded_sequence(x, lengths, first, self.is_sorted)
        begun = start if self.kind == "LSTM" else start[0]
        out, last = layer(packed, begun if self.has_start else None)
        return library.pad_packed_sequence(out, first, total_length=self.steps), last

    def trained(self, library: Any, of_array: Any, layer: Any, optimizer: Any) -> Any:
        """Results, gradients, and results after three steps."""
        found: list[Any] = []
        for step in range(3):
            x = of_array(self.sequences(self.lengths))
            start = [of_array(s) for s in self.start]
            (padded, lengths), last = self.call(layer, library, x, self.lengths.tolist(), start)
            if step == 0:
                found += [padded, lengths, last]
            ends = last if self.kind == "LSTM" else [last]
            loss = (padded * padded).sum() + sum((k + 1) * end.sum() for k, end in enumerate(ends))
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                found += [[p.grad for p in layer.parameters()]]
            optimizer.step()
        return found, self.call(layer, library, x, self.lengths.tolist(), start)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.long) for k in range(18)])
def test_layers_learn_as_in_pytorch(seed: int) -> None:
    case = Case(seed)
    other, mine = case.layer(torch.nn), case.layer(nn)
    mine.load_state_dict(other.state_dict())
    expected = case.trained(
        theirs, torch.tensor, other, torch.optim.SGD(other.parameters(), lr=0.01)
    )
    found = case.trained(ours, lm.tensor, mine, lm.optim.SGD(mine.parameters(), lr=0.01))
    alike(found[0][:3], expected[0][:3])
    alike(found, expected, TRAINED)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.long) for k in range(30, 40)])
def test_lengths_of_a_run_give_the_same(seed: int) -> None:
    """One program for all lengths: of each the results are PyTorch's."""
    case = Case(seed)
    other, mine = case.layer(torch.nn), case.layer(nn)
    mine.load_state_dict(other.state_dict())

    def run(x: Any, lengths: Any, start: Any) -> Any:
        return case.call(mine, ours, x, lengths, start)

    compiled = lm.jit(run)
    for lengths in (case.lengths, np.full(case.batch, case.steps), np.ones(case.batch, np.int64)):
        x, start = case.sequences(lengths), [torch.tensor(s) for s in case.start]
        with torch.no_grad():
            wanted = case.call(other, theirs, torch.tensor(x), lengths.tolist(), start)
        (padded, counts), last = compiled(x, lengths, case.start)
        alike([padded, counts, last], [*wanted[0], wanted[1]])
    assert compiled.entries == 1


def test_states_of_other_shapes_are_refused() -> None:
    """PyTorch refuses them; broadcast, they would give numbers."""
    x = lm.tensor(np.zeros((1, 2, 3), np.float32))  # of one step, for which there is no loop
    packed = ours.pack_padded_sequence(x, [1, 1])
    gru, lstm = nn.GRU(3, 4, num_layers=2), nn.LSTM(3, 4, proj_size=2)
    for shape in ((2, 1, 4), (3, 2, 4), (2, 2, 5), (2, 4)):
        for given in (x, packed):
            with pytest.raises(ShapeError, match=r"GRU: begins with .*; it takes \(2, 2, 4\)"):
                gru(given, lm.zeros(shape))
    with pytest.raises(ShapeError, match=r"GRU: begins with .*; it takes \(2, 4\)"):
        gru(x[:, 0], lm.zeros(2, 1, 4))
    with pytest.raises(ShapeError, match=r"LSTM: begins with .*; it takes \(1, 2, 2\)"):
        lstm(x, (lm.zeros(1, 2, 4), lm.zeros(1, 2, 4)))
    with pytest.raises(ShapeError, match=r"LSTM: it begins with h and c; give both, as \(h, c\)"):
        lstm(x, lm.zeros(1, 2, 2))
    with pytest.raises(ShapeError, match=r"GRUCell: begins with .*; it takes \(2, 4\)"):
        nn.GRUCell(3, 4)(x[0], lm.zeros(1, 4))
