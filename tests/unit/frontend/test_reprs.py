"""What Parameters print, and what notebooks show: values, and names that are never markup."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.memory.parameter import Parameter
from luminal.runtime.report import KernelRow, Report

HOSTILE = '<img src=x onerror="alert(1)">&</pre></td><script>'


class Shown(HTMLParser):
    """The tags and the text of markup in which every element is closed."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert not self.open
        assert self.tags <= {"div", "b", "table", "tr", "th", "td", "pre"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        assert all(name == "style" for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Any) -> str:
    return Shown(value._repr_html_()).text


def test_a_parameter_shows_its_values() -> None:
    weight = Parameter([[1.5, 2.0], [3.0, 4.25]], name="w")
    assert repr(weight) == ("Parameter([[1.5 , 2.  ],\n           [3.  , 4.25]], w: f32[2, 2])")
    assert repr(Parameter((2, 3), name="w")) == "Parameter(w: f32[2, 3], no value yet)"
    assert "4.25" in shown(weight)
    large = repr(Parameter(np.zeros((300, 300), np.float32), name="w"))
    assert "..." in large
    assert len(large) < 500


def test_to_look_at_a_drawn_parameter_changes_nothing() -> None:
    layer = nn.Linear(2, 3, bias=False)
    looked = repr(layer.weight)
    assert layer.weight._stored is None
    assert f"{layer.weight.numpy()[0, 0]:.4f}".rstrip("0") in looked
    assert repr(layer.weight) == looked
    layer = nn.Linear(2, 3, bias=False)
    repr(layer.weight)
    nn.init.zeros_(layer.weight)
    assert not layer.weight.numpy().any()


def test_a_packed_one_and_one_that_is_too_large_to_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Linear(64, 32, bias=False))
    lm.quantize(model, "int8")
    assert repr(model[0].weight).endswith("int8[32, 64])")
    assert "..." in shown(model[0].weight)
    monkeypatch.setattr("luminal.memory.parameter.MOST_SHOWN", 8)
    assert repr(Parameter(np.zeros(9, np.float32), name="w")) == "Parameter(w: f32[9])"


def test_notebooks_show_tensors_graphs_executables_and_reports() -> None:
    cx = lm.Graph(HOSTILE)
    x = cx.tensor(("s", 2), name=HOSTILE)
    y = (x @ cx.weight((2, 2), name=f"w{HOSTILE}")).output(f"y{HOSTILE}")
    assert HOSTILE in shown(x)
    assert "f32[s, 2]" in shown(y)
    graph = shown(cx)
    assert all(f"{name}{HOSTILE}" in graph for name in ("", "w", "y"))
    exe = lm.compile(cx, "reference")
    said = shown(exe)
    assert f"{HOSTILE}: f32[s, 2]" in said
    assert f"y{HOSTILE}: f32[s, 2]" in said
    assert shown(lm.tensor([1.0, 2.5])).endswith("[1. , 2.5]")
    exe.set({f"w{HOSTILE}": np.eye(2, dtype=np.float32)})
    exe({HOSTILE: np.ones((1, 2), np.float32)})
    assert "Mul" in shown(exe.report())


def test_a_report_shows_where_kernels_come_from_and_all_ranks() -> None:
    row = KernelRow("Sum", 0, 1, 1, 10, 20, origin=f"layers.*: {HOSTILE} (a.py:1)")
    report = Report({"s": 3}, (row,), (KernelRow(HOSTILE, 1, 1, 1, 0, 0),))
    text = shown(report)
    assert row.origin in text
    assert "at s = 3" in text
    assert HOSTILE in text
    ranks = Report({}, (), ranks=((HOSTILE, report), ("rank 1", report)))
    assert shown(ranks).count(row.origin) == 2
