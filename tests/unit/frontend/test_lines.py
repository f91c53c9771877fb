"""The lines that nodes remember: a user's, through modules and gradients; they change nothing."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends import registry
from luminal.base import config
from luminal.base.lines import Recorded
from luminal.hlir.graph import Graph
from luminal.hlir.printer import to_text
from luminal.rolling.roll import roll
from luminal.runtime import program_cache


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(width, 4)

    def forward(self, x: Any) -> Any:
        hidden = self.up(x).softmax(-1)
        return self.down(hidden) + 1  # of Block


def recorded(nodes: Any, name: str) -> list[Recorded]:
    """Where the nodes of an op come from, in their order."""
    return [node.recorded for node in nodes if node.op.name == name]


def text(where: Recorded) -> str:
    """The text of the line itself."""
    return linecache.getline(where.line.file, where.line.number).strip()


def test_a_node_remembers_the_users_line_the_module_and_the_call() -> None:
    cx = lm.Graph()
    model = nn.Sequential(nn.Identity(), Block(8))
    loss = model(cx.tensor((3, 4))).square().sum()  # of the loss
    (first, *_), (*_, last) = recorded(cx.builder, "Input"), recorded(cx.builder, "Sum")
    assert (text(first), first.module, first.call) == (text(last), "", "tensor")
    assert (text(last)[-13:], last.module, last.call) == ("# of the loss", "", "sum")
    (exp,) = recorded(cx.builder, "Exp")
    assert (exp.module, exp.call) == ("1 (Block)", "softmax")
    assert text(exp) == "hidden = self.up(x).softmax(-1)"
    # What a layer of ours records comes from the line that calls it.
    up, down, *_ = (where for where in recorded(cx.builder, "Mul") if "Linear" in where.module)
    assert (up.module, text(up)) == ("1.up (Linear)", text(exp))
    assert (down.module, text(down)[-10:]) == ("1.down (Linear)", "# of Block")
    assert str(last) == f"sum at test_lines.py:{last.line.number}"
    count = len(cx.builder)
    loss.backward()
    gradients = {node.recorded for node in cx.builder.since(count)}
    assert all(where.is_gradient for where in gradients)
    assert exp._replace(is_gradient=True) in gradients
    assert f"gradient of softmax in 1 (Block) at {exp.line}" in map(str, gradients)
    after = (loss + 2).value.node.recorded
    assert after is not None
    assert not after.is_gradient


def test_equal_content_is_one_node_of_the_first_line() -> None:
    cx = lm.Graph()
    x = cx.tensor((3,))
    first = x.exp()
    second = x.exp()
    assert first.value == second.value
    where = second.value.node.recorded
    assert where is not None
    assert text(where) == "first = x.exp()"


def test_the_body_of_a_scan_and_copies_for_dims_have_lines() -> None:
    cx = lm.Graph()

    def step(carry: Any, x: Any) -> Any:
        return carry + x.tanh(), carry  # of the step

    lm.scan(step, cx.zeros(2), cx.tensor(("s", 2)))[1].output()
    frozen = lm.session.graph.narrowed(cx, {"s": 3})
    (loop,) = frozen.by_op()["Loop"]
    assert text(loop.attrs.body.results[0].node.recorded)[-13:] == "# of the step"


def graph_of(model: nn.Module, lines: int) -> Graph:
    with config.override(LUMINAL_LINES=lines):
        cx = lm.Graph()
    model(cx.tensor((3, 4), name="x")).output("y")
    return cx.graph()


def test_lines_change_no_text_no_key_and_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "_is_as_in_files", lambda: True)
    backend = registry.compiling("cpu")
    model = nn.Sequential(*[Block(8) for _ in range(12)])
    with_lines, without = graph_of(model, lines=1), graph_of(model, lines=0)
    assert all(node.recorded is None for node in without.nodes())
    assert all(node.recorded is not None for node in with_lines.nodes())
    assert to_text(with_lines) == to_text(without)
    rolled = [roll(graph, backend.costs) for graph in (with_lines, without)]
    assert to_text(rolled[0]) == to_text(rolled[1])
    assert "Loop" in rolled[0].by_op()
    with config.override(LUMINAL_VERIFY=0):
        entries = [program_cache.entry(graph, backend) for graph in (with_lines, without)]
    assert entries[0] is not None
    assert entries[1] is not None
    assert entries[0]._key == entries[1]._key


def test_errors_name_the_line_and_the_module() -> None:
    model = nn.Sequential(nn.Identity(), Block(9))
    x = lm.ones((3, 4))
    with pytest.raises(
        lm.ShapeError, match=r" \(in 1\.down, a Linear of Sequential, at "
    ) as caught:
        model(x)
    line = caught.value.line
    assert line is not None
    assert str(caught.value).endswith(f", at test_lines.py:{line.number})")
    assert linecache.getline(line.file, line.number).strip()[-10:] == "# of Block"
    with pytest.raises(lm.ShapeError, match=r"\(in up, a Linear of Block, at test_lines.py:\d+\)$"):
        Block(8)(lm.ones((3, 9)))
    with pytest.raises(lm.ShapeError) as outside:
        x @ x
    line = outside.value.line
    assert line is not None
    assert linecache.getline(line.file, line.number).strip() == "x @ x"


def test_errors_of_a_run_name_the_line_that_recorded() -> None:
    cx = lm.Graph()
    ids, past = cx.tensor(("s",), lm.int32, "ids"), cx.tensor(("past",), name="past")
    cx.require(ids.extents[0] <= past.extents[0])  # the rule
    nn.Sequential(nn.Embedding(5, 2))(ids).output("y")  # the look-up
    past.exp().output("z")
    exe = lm.compile(cx, "reference")
    with pytest.raises(
        lm.InputError, match=r"index 5 is .*\(in 0 \(Embedding\) at test_lines\.py:"
    ):
        exe({"ids": np.full(2, 5, np.int32), "past": np.zeros(3, np.float32)})
    with pytest.raises(
        lm.DimError, match=r"s <= past does not hold.* \(require at test_lines\.py:"
    ):
        exe({"ids": np.zeros(3, np.int32), "past": np.zeros(2, np.float32)})
