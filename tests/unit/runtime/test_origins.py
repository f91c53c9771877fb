"""Reports, traces and memory errors name the user's modules, operations and lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends import registry
from luminal.base import config
from luminal.base.lines import Line, Recorded
from luminal.base.origins import described
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.program.launch_list import kernel_launches
from luminal.runtime import program_cache


class Gated(nn.Module):
    def __init__(self) -> None:
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.down(self.gate(x).silu() * self.up(x))


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm, self.mlp = nn.RMSNorm(8), Gated()

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        self.layers = nn.ModuleList([Block() for _ in range(layers)])
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x).log_softmax(-1)


def graph_of(layers: int) -> Graph:
    cx = lm.Graph()
    Net(layers)(cx.tensor((3, 8), name="x")).output("y")
    return cx.graph()


def origins(layers: int) -> list[str]:
    """Those of a program's kernels, without lines."""
    program = lower_to_program(graph_of(layers), registry.compiling("cpu"))
    texts = [described(launch.origins) for launch in kernel_launches(program.launches)]
    assert all(re.search(r" \(test_origins\.py:[\d, ]+\)$", text) for text in texts), texts
    return [text.rpartition(" (")[0] for text in texts]


def test_rolled_layers_are_one_with_a_star() -> None:
    texts = " | ".join(origins(12))
    assert "layers.*: norm" in texts
    assert re.search(r"layers\.\*\.mlp: [^|;]*gate, silu", texts)
    assert re.search(r"layers\.\*\.mlp: [^|]*mul[^|]*; layers\.\*: add|down", texts)
    assert texts.endswith("Net: head, log_softmax")
    assert "layers.0" not in texts


def test_layers_that_are_not_rolled_have_their_numbers() -> None:
    texts = " | ".join(origins(2))
    for number in "01":
        assert f"layers.{number}: norm" in texts
        assert f"layers.{number}.mlp: gate, silu" in texts
    assert "*" not in texts


def test_each_launch_names_its_own_place_though_their_kernel_is_one() -> None:
    cx = lm.Graph()
    x = cx.tensor((64, 64), name="x")
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    model(x).output("y")
    rows = lm.compile(cx).report().kernels
    products = [row for row in rows if row.label == "Contract"]
    assert len({row.kernel for row in products}) == 1
    assert [row.origin.split(" (test")[0] for row in products] == ["0 (Linear)", "1 (Linear)"]


def recorded(module: str, call: str, line: int, **more: Any) -> Recorded:
    return Recorded(Line("/home/m.py", line, "f"), module, call, **more)


def test_words() -> None:
    first = recorded("layers.0.mlp (MLP)", "silu", 3)
    star = first._replace(last=recorded("layers.7.mlp (MLP)", "silu", 3))
    up = recorded("layers.0.mlp.up (Linear)", "", 4)._replace(
        last=recorded("layers.7.mlp.up (Linear)", "", 4)
    )
    gradient = recorded("head (Linear)", "", 9, is_gradient=True)
    assert described([star, up, star]) == "layers.*.mlp: silu, up (m.py:3, 4)"
    assert described([first, gradient]) == "layers.0.mlp: silu; gradient of head (m.py:3, 9)"
    outer = recorded("blocks.1 (Block)", "relu", 5)._replace(last=recorded("Net", "relu", 5))
    assert described([outer]) == "blocks.1 to Net: relu (m.py:5)"
    assert described([recorded("Net", "exp", 1), recorded("head (Linear)", "", 2)]) == (
        "Net: exp, head (m.py:1, 2)"
    )
    assert described([recorded("", "exp", 1)._replace(line=Line("", 0, ""))]) == "exp"
    assert described([]) == described([None]) == ""
    strange = recorded("a\nb (Net)", "exp", 1)._replace(line=Line("/x\ny.py", 1, "f"))
    assert described([strange]) == "a\\nb: exp (x\\ny.py:1)"
    cell = first._replace(line=Line("/tmp/ipykernel_71/1234.py", 5, "f"))
    assert described([cell]) == "layers.0.mlp: silu (cell:5)"
    long = described(recorded(f"l.{k} (B)", "exp", k) for k in range(10_000))
    assert long.endswith("; 9993 more (m.py:0, 1, 2, 3, 4, 9995 more)")


def test_lines_change_no_kernel_and_no_program() -> None:
    backend = registry.compiling("cpu")
    with_lines = graph_of(12)
    with config.override(LUMINAL_LINES=0):
        without = graph_of(12)
    one, other = (lower_to_program(graph, backend) for graph in (with_lines, without))
    assert one.kernels == other.kernels
    assert next(iter(kernel_launches(other.launches))).origins == ()
    assert [*map(str, one.launches)] == [*map(str, other.launches)]


def test_a_kept_program_has_the_lines_of_the_graph_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program_cache, "_is_as_in_files", lambda: True)
    backend = registry.compiling("cpu")
    sources = [f"{lines}def f(x):\n    return x.exp().sum(0)\n" for lines in ("", "\n\n\n")]

    def traced(source: str) -> Graph:
        names: dict[str, Any] = {}
        exec(compile(source, "user.py", "exec"), names)
        cx = lm.Graph()
        names["f"](cx.tensor((64, 8), name="x")).output("y")
        return cx.graph()

    first, moved = map(traced, sources)
    with config.override(LUMINAL_VERIFY=False, LUMINAL_CACHE_DIR=tmp_path):
        entries = [program_cache.entry(graph, backend) for graph in (first, moved)]
        assert entries[0] is not None
        assert entries[1] is not None
        entries[0].put(lower_to_program(first, backend))
        kept = entries[1].get()
    assert kept is not None
    texts = [described(launch.origins) for launch in kernel_launches(kept.launches)]
    assert texts == ["exp, sum (user.py:5)"]


def test_a_report_has_them_in_text_and_json() -> None:
    exe = lm.compile(traced_model())
    text = str(exe.report())
    assert text.splitlines()[1].endswith("  of")
    assert re.search(r"Net: head, log_softmax \(test_origins\.py:\d+\)$", text, re.MULTILINE)
    origin = json.loads(exe.report().to_json())["kernels"][-1]["origin"]
    assert origin.startswith("Net: head, log_softmax (")
    row = replace(exe.report().kernels[0], origin="")
    assert row.name == row.label


def traced_model() -> Any:
    cx = lm.Graph()
    Net(2)(cx.tensor((3, 8), name="x")).output("y")
    return cx


def test_an_arena_beyond_memory_names_modules_and_lines() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x[:, None] * x[None]).sort(1)[0].sum(1)

    cx = lm.Graph()
    model = nn.Sequential(nn.Identity(), Pairs())
    model(cx.tensor((cx.dim("s", 1, 2**22),), name="x")).output("y")
    exe = lm.compile(cx)
    wanted = (
        r"the arena of a run takes [\d,.]+ TiB, most of it i64\[s, s\] of 'Sort' in 1: sort.* "
        r"\(test_origins\.py:\d+\): [\d,.]+ TiB.*smaller inputs.*memory_limit="
    )
    with pytest.raises(MemoryError, match=wanted):
        exe({"x": np.ones(2**22 - 1, np.float32)})


def test_a_limit_of_memory_out_of_reach_names_what_is_largest() -> None:
    cx = lm.Graph()
    x = cx.tensor((64, 8), name="x")
    Net(1)(x).sort(-1)[0].output("y")
    wanted = r"10 are allowed.*Its largest values: \w+\[[\d, ]+\] of '.+' in .+ \(test_origins\.py:"
    with pytest.raises(lm.CompileError, match=wanted):
        lm.compile(cx, memory_limit=10)
