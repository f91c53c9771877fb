"""Every stage of a compile as text, and the pictures of HLIR and Programs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base import config
from luminal.base.errors import CompileError
from luminal.compiler import dump
from tests.unit.program.selections import every_kind


def dumped(graph: lm.Graph, backend: str = "cpu") -> dump.Dump:
    return dump.Dump(graph.graph(), registry.find(backend))


def two_kernels() -> lm.Graph:
    graph = lm.Graph()
    x, w = graph.tensor((40, 64), name="x"), graph.weight((64, 32), name='the "weight"')
    state = lm.State((40, 32), name="last")
    y = (x @ w).softmax(-1)
    y.output("y")
    graph.assign(state, y)
    return graph


def test_stages_name_the_same_things() -> None:
    stages = dumped(two_kernels())
    assert stages.text("hlir").startswith("graph {\n  %0 = Input x : f32[40, 64]")
    assert stages.text("algebra").startswith("algebra {\n  axis a0 < 40\n")
    assert "@ stored [a0, a2] row" in stages.text("selection")
    launched = set(re.findall(r"k\d+(?=\[)", stages.text("program")))
    for stage in ("tile", "llvm", "asm"):
        assert set(re.findall(r"^k\d+(?=:$)", stages.text(stage), re.MULTILINE)) == launched
    assert "define void @kernel(" in stages.text("llvm")
    assert "kernel:" in stages.text("asm")


@pytest.mark.parametrize(
    "stage", [*dump.STAGES, "expanded", "llvm", "asm", "hlir.dot", "program.dot"]
)
def test_every_kind_of_graph_can_be_shown(stage: str) -> None:
    assert dumped(every_kind()).text(stage)


def test_the_picture_of_hlir() -> None:
    graph = lm.Graph()
    (graph.tensor((3,), name="x") + graph.constant([1.0, 2.0, 3.0])).output("y")
    assert dumped(graph, "reference").text("hlir.dot").splitlines()[2:-1] == [
        r'  n0 [label="Input x\nf32[3]", fillcolor=lightblue];',
        r'  n1 [label="Constant 0x0000803f0000004000004040\nf32[3]", fillcolor=lightblue];',
        r'  n2 [label="Add %0, %1\nf32[3]", fillcolor=white];',
        "  n0 -> n2;",
        "  n1 -> n2;",
        r'  s0 [label="output y", shape=ellipse, fillcolor=lightgreen];',
        "  n2 -> s0;",
    ]


@pytest.mark.parametrize("graph", [two_kernels, every_kind])
def test_the_picture_of_a_program(graph: Callable[[], lm.Graph]) -> None:
    text = dumped(graph()).text("program.dot")
    boxes = re.findall(r"^ *(n\d+) \[label=", text, re.MULTILINE)
    edges = re.findall(r"^  (n\d+) -> (n\d+) \[label=", text, re.MULTILINE)
    assert len(boxes) == len(set(boxes))
    assert {end for edge in edges for end in edge} == set(boxes)  # nothing hangs loose
    assert text.count("{") == text.count("}")
    outputs = re.findall(r'label="(output \S+|state \S+)".*lightgreen', text)
    assert len(outputs) == len(graph().sinks)


def test_a_backend_has_its_own_stages() -> None:
    with pytest.raises(CompileError, match="'reference' has no stage 'tile'"):
        dumped(two_kernels(), "reference").text("tile")


LADDER = ("compiled", "1 launch", "selection {", "kernel(", "define void @kernel(", "addps")


@pytest.mark.parametrize("level", range(len(config.DEBUG_LADDER)))
def test_the_debug_ladder(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step prints what the ones below it do, and its own."""
    graph = lm.Graph()
    (graph.tensor((32,), name="x") + 1.0).output("y")
    with config.override(LUMINAL_DEBUG=level, LUMINAL_TARGET="baseline"):
        lm.compile(graph)
    printed = capsys.readouterr().err
    assert [text in printed for text in LADDER] == [step < level for step in range(len(LADDER))]
