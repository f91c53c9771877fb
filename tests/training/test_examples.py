"""The examples that train, run small."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from examples import char_llama, linear_regression, mnist_cnn, train_math_net
from luminal.training import MNIST, ArrayDataset
from tests.training.small_run import digest


def test_a_line_is_found() -> None:
    slope, offset, losses = linear_regression.regress(100)
    x, y = linear_regression.points()
    expected = np.polyfit(x[:, 0], y[:, 0], 1)
    # learned, not computed: what 200 steps leave
    np.testing.assert_allclose([slope, offset], expected, atol=1e-3)
    assert losses[-1] < 0.02 < losses[0]


def test_arithmetic_is_learned(capsys: pytest.CaptureFixture[str]) -> None:
    model, record = train_math_net.train(400)
    assert "validation loss" in capsys.readouterr().out
    assert record.validation_loss is not None
    assert record.validation_loss < 2e-3
    # learned, not computed: the loss of 2e-3 is the mean square of such a difference
    np.testing.assert_allclose(train_math_net.ask(model, 1.5, 1.25), [1.875, 1.2, 1.953], atol=0.1)


@pytest.mark.long
def test_letters_are_learned() -> None:
    text = "abcabcabd" * 60
    letters = char_llama.Letters(text)
    lm.manual_seed(0)
    model = char_llama.new_model(len(letters.letters), width=16, layers=1, context=32)
    record = char_llama.train(model, letters.encode(text), 60, length=16)
    assert record.losses[-1] < 0.3 < record.losses[0]
    written = char_llama.write(model, letters.encode("abca"), 14, temperature=0.0)
    assert letters.decode(written) in text


def stripes(count: int) -> ArrayDataset:
    """Images (count, 1, 28, 28) with a bright row at twice their digit, under noise."""
    draw = np.random.default_rng(count)
    digits = draw.integers(0, 10, count)
    images = draw.normal(0, 0.3, (count, 1, 28, 28)).astype(np.float32)
    images[np.arange(count), 0, 2 * digits + 4] += 4
    return ArrayDataset(images, digits)


@pytest.mark.long
def test_digits_are_learned_the_same_way_twice() -> None:
    found = []
    for _ in range(2):
        lm.manual_seed(0)
        model = mnist_cnn.DigitCNN(4, 8, 16)
        record = mnist_cnn.train(model, stripes(960), stripes(100))
        found.append(digest(model))
    assert found[0] == found[1]
    assert record.history[-1]["accuracy"] >= 0.9


@pytest.mark.long
@pytest.mark.timeout(1800)  # two epochs, on a machine with other work
def test_real_digits_reach_98_and_a_half_percent(shared_data: Path) -> None:
    learned, tested = (MNIST(shared_data / "mnist", train=part) for part in (True, False))
    lm.manual_seed(0)
    record = mnist_cnn.train(mnist_cnn.DigitCNN(), learned, tested)
    assert record.history[-1]["accuracy"] >= 0.985


@pytest.mark.long
def test_the_step_of_digits_is_searched(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mnist_cnn.compare(MNIST(shared_data / "mnist", train=False), 20)
    printed = capsys.readouterr().out
    assert "structures" in printed
    assert (
        float(printed.rsplit(": ", 1)[1].rstrip("x\n")) > 0.8
    )  # of the same time, beside other work


def test_the_commands_read_their_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 10)
    arguments = [str(tmp_path / "text.txt"), "--steps", "3", "--letters", "5"]
    monkeypatch.setattr(sys, "argv", ["char_llama.py", *arguments])
    char_llama.main()
    assert len(capsys.readouterr().out.splitlines()[-1]) >= 1
    monkeypatch.setattr(sys, "argv", ["mnist_cnn.py", str(tmp_path)])
    with pytest.raises(lm.LoadError, match="no train-images-idx3-ubyte"):
        mnist_cnn.main()
