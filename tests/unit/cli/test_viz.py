"""`luminal viz` of the models that people have: whole ones, and packed ones as they lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from luminal.cli import main
from luminal.models import SHIPPED
from tests.unit.cli.traces import document, written


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """What the command ends with: None, 0, or a message."""
    monkeypatch.setattr("sys.argv", ["luminal", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return ended.value.code


GRAPH = """
import luminal as lm

def graph():
    cx = lm.Graph("small")
    (cx.tensor((8, 16), name="x") @ cx.tensor((16, 8), name="w")).output("y")
    return cx

def broken():
    return inner()

def inner():
    raise ValueError("a user's own error")
"""


def test_two_traces_are_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(tmp_path / "before.trace")
    after = written(tmp_path / "after.trace", first=50, second=45)
    page = tmp_path / "page.html"
    assert not run(monkeypatch, "viz", str(before), str(after), "--export", str(page))
    shown = document(page)
    assert shown["title"].startswith(str(after))
    assert shown["other"]["title"] == f"{before}: m, cpu, fast"
    seconds = [[row["seconds"] for row in rows]
               for rows in (shown["launches"], shown["other"]["launches"])]  # fmt: skip
    assert seconds == [pytest.approx([50e-6, 45e-6]), pytest.approx([60e-6, 20e-6])]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.trace", "b.onnx"), "viz: a.trace b.onnx: takes one target, or two traces"),
        (("a.trace", "b.trace", "c.trace"), "takes one target, or two traces"),
        (("a.trace", "--export", "/no/such/x.html"), "there is no folder /no/such"),
        (("a.trace", "--export", "x.txt"), "takes a name that ends in .html"),
        (("no.sqlite3",), "viz: no.sqlite3: no such file; `luminal cache info` names the database"),
    ],
)
def test_what_cannot_be_shown_is_said(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said in str(run(monkeypatch, "viz", *arguments))


def test_what_a_user_s_function_raises_is_told_with_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GRAPH)
    assert run(monkeypatch, "viz", f"{file}:broken") == 1
    told = capsys.readouterr().err
    assert re.findall(r'File "([^"]+)", line (\d+)', told) == [(str(file), "10"), (str(file), "13")]
    assert told.endswith("ValueError: a user's own error\n")
    file.write_text("def f(:\n")
    assert run(monkeypatch, "viz", f"{file}:f") == 1
    told = capsys.readouterr().err
    assert "SyntaxError" in told
    assert "luminal" not in told
    monkeypatch.setenv("LUMINAL_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["luminal", "viz", f"{file}:f"])
    with pytest.raises(SyntaxError):
        main.main()


@pytest.mark.long
def test_a_chip_that_is_not_here_is_shown_without_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "mine.py", tmp_path / "page.html"
    file.write_text(GRAPH)
    target = f"{file}:graph"
    assert not run(monkeypatch, "viz", target, "--device", "cuda:sm_90a", "--export", str(page))
    shown = document(page)
    assert shown["launches"][0]["seconds"] is None
    assert "cuda:sm_90a: this chip is not here" in shown["notes"]["kernels"]
    assert "c" in shown["kernels"][0]["texts"]


@pytest.mark.long
@pytest.mark.parametrize("kind", [None, "q8_0"])
def test_the_page_of_a_model(
    kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, page = str(SHIPPED), tmp_path / "page.html"
    if kind is not None:
        target = str(tmp_path / "packed")
        assert not run(monkeypatch, "quantize", str(SHIPPED), target, "--type", kind)
    assert not run(monkeypatch, "viz", target, "--no-profile", "--export", str(page))
    shown = document(page)
    assert shown["title"] == f"{target}, decode"
    assert shown["launches"]
    assert shown["files"] == []  # nothing of it is a user's line
    buffers = shown["memory"]["buffers"]
    weights = {buffer["name"] for buffer in buffers}
    assert ("model.embed_tokens.weight.words" in weights) is (kind is not None)
    assert ("model.embed_tokens.weight" in weights) is (kind is None)
    twins = {b["name"]: buffers[b["same_as"]]["name"] for b in buffers if b["same_as"] is not None}
    assert bool(twins) is (kind is not None)
    for one, other in twins.items():
        assert one.rpartition(".")[0] == other.rpartition(".")[0]
    held = sum(b["bytes"] for b in buffers if b["kind"] == "weight" and b["same_as"] is None)
    assert held == shown["memory"]["report"]["weight_bytes"]
