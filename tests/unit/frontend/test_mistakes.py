"""What a new user does wrong is told with value, rule, fix, line and module path."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path

import pytest

import luminal as lm
from luminal.base.errors import LuminalError
from tests.unit.frontend.mistakes import HEAD, MISTAKES


def raised(source: str, path: Path) -> Exception:
    """The error of a user's file."""
    path.write_text(source)
    try:
        exec(compile(source, str(path), "exec"), {"__name__": path.stem})
    except Exception as error:
        return error
    raise AssertionError(f"no error: {source}")


def line_of(source: str) -> int:
    """The number of the line that is marked."""
    (number,) = (k for k, line in enumerate(source.splitlines(), 1) if "# HERE" in line)
    return number


@pytest.mark.parametrize("name", MISTAKES)
def test_a_typical_mistake(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mistake = MISTAKES[name]
    source, path = HEAD + mistake.source + "\n", tmp_path / "user.py"
    error = raised(source, path)
    said, number = str(error), line_of(source)
    for part, what in zip(mistake.text, ("value", "rule", "fix"), strict=True):
        assert part in said, f"the {what}, {part!r}, is not in: {said}"
    if mistake.module:
        assert f"in {mistake.module}" in said, said
    if mistake.module or mistake.is_run:
        assert re.search(rf"at user\.py:{number}\)$", said), said
    if not mistake.is_run:
        frames = traceback.extract_tb(error.__traceback__)
        inner = [frame for frame in frames if frame.filename == str(path)][-1]
        assert inner.lineno == number
        if isinstance(error, LuminalError):
            assert error.line is not None
            assert (error.line.file, error.line.number) == (str(path), number)


def test_there_are_forty() -> None:
    assert len(MISTAKES) >= 40
    assert sum(bool(mistake.module) for mistake in MISTAKES.values()) >= 10


def test_layers_in_a_plain_list_are_told_of() -> None:
    class Net(lm.nn.Module):
        def __init__(self, layers: object) -> None:
            self.layers = layers

        def forward(self, x: lm.Tensor) -> lm.Tensor:
            for layer in self.layers:  # type: ignore[attr-defined]
                x = layer(x)
            return x

    layers = [lm.nn.Linear(2, 2), lm.nn.ReLU()]
    with pytest.warns(UserWarning, match=r"net\.layers is a plain list .* nn\.ModuleList") as told:
        Outer(Net(layers))(lm.ones((1, 2)))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Net(tuple(layers))(lm.ones((1, 2)))
        Net(lm.nn.ModuleList(layers))(lm.ones((1, 2)))


class Outer(lm.nn.Module):
    def __init__(self, net: lm.nn.Module) -> None:
        self.net = net

    def forward(self, x: lm.Tensor) -> lm.Tensor:
        return self.net(x)  # type: ignore[no-any-return]
