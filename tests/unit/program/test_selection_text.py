"""The text form of the algebra and of Selections: a golden one, and texts that are read back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import luminal as lm
import luminal.nn.functional as F
from luminal.algebra import term_text
from luminal.algebra.lower import Lowered, lower
from luminal.algebra.terms import Phase
from luminal.base.errors import GraphError, VerifyError
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.program.selection import Choice, Residence, Selection, verify
from luminal.program.selection_text import parse, to_text
from luminal.selection.fast import select
from tests.fuzz.graphs import random_case
from tests.machines import COSTS, level
from tests.unit.program.selections import every_kind

GOLDEN = """\
selection {
  dim s in 1..512
  axis a0 < s
  axis a1 < 64
  %0 = Input x [a0, a1] : f32 @ inline
  %1 = Max{a1} %0 : f32 @ local
  %2 = Literal -1.0 (0xbf800000) : f32 @ inline
  %3 = Mul %1, %2 : f32 @ inline
  %4 = Add %0, %3 : f32 @ inline
  %5 = Exp %4 : f32 @ local
  %6 = Sum{a1} %5 : f32 @ local
  %7 = Div %5, %6 : f32 @ stored [a0, a1] row
  output y = %7 [a0, a1]
}
"""


def softmax() -> lm.Graph:
    graph = lm.Graph()
    s = graph.dim("s", 1, 512)
    graph.tensor((s, 64), name="x").softmax(-1).output("y")
    return graph


def round_trip(lowered: Lowered, selection: Selection) -> None:
    text = to_text(selection)
    again = parse(text, lowered)
    verify(again)
    assert again == selection
    assert to_text(again) == text


def test_golden() -> None:
    lowered = lower(softmax().graph())
    selection = select(lowered, COSTS)
    assert to_text(selection) == GOLDEN
    round_trip(lowered, selection)
    lines = [line.partition(" @ ")[0] for line in GOLDEN.splitlines()]
    assert term_text.to_text(lowered) == "\n".join(["algebra {", *lines[1:]]) + "\n"


def test_every_kind_of_term_is_read_back() -> None:
    lowered = lower(every_kind().graph())
    round_trip(lowered, select(lowered, COSTS))


def test_cascades_are_read_back() -> None:
    graph = lm.Graph()
    q, k, v = (graph.tensor((40, 8), name=name) for name in "qkv")
    ((q @ k.mT).softmax(-1) @ v).output("y")
    lowered = lower(graph.graph())
    selection = select(lowered, COSTS)
    assert "cascade %4, %12 Exp(-1.0 * %4), %11 Exp(-1.0 * %4) over %3\n" in to_text(selection)
    round_trip(lowered, selection)
    text = to_text(selection).replace("Exp(-1.0 * %4)", "Exp -1.0")
    with pytest.raises(GraphError, match=r"'Exp -1.0' is no rate of a sum, as Exp\(-1.0 "):
        parse(text, lowered)
    text = to_text(selection).replace("cascade %4", "cascade %5")
    with pytest.raises(GraphError, match=r"%5 is a \w+, no reduction"):
        parse(text, lowered)


def test_a_cascade_in_a_loop_is_read_back_and_verified() -> None:
    graph = lm.Graph()
    q = graph.tensor((40, 8), name="q")
    keys, values = (graph.tensor((3, 70, 8), name=name) for name in "kv")

    def attend(q: lm.Tensor, cache: tuple[lm.Tensor, lm.Tensor]) -> tuple[lm.Tensor, None]:
        k, v = cache
        return (q @ k.mT).softmax(-1) @ v, None

    lm.scan(attend, q, (keys, values))[0].output("y")
    lowered = lower(graph.graph())
    selection = select(lowered, COSTS)
    ((number, body),) = selection.bodies.items()
    (cascade,) = body.cascades
    round_trip(lowered, selection)
    planted = replace(body, cascades=(replace(cascade, inner=()),))
    with pytest.raises(VerifyError, match="is no cascade"):
        verify(replace(selection, bodies={number: planted}))


def test_windows_of_several_sizes_over_one_picture_are_read_back() -> None:
    graph = lm.Graph()
    picture = graph.tensor((1, 16, 33, 33), name="x") * 2
    for size in (5, 7):
        F.max_pool2d(picture, size, stride=1, padding=size // 2).output(f"pool{size}")
    taps = graph.weight((3, 16, 5, 5), name="w")
    for scale in (2, 4):
        small = graph.tensor((1, 16, 16 // scale, 16 // scale), name=f"x{scale}")
        large = F.interpolate(small, scale_factor=scale)
        F.conv2d(large, taps, padding=2).output(f"conv{scale}")
    lowered = lower(graph.graph())
    selection = select(lowered, level("avx2").costs)
    sizes = re.findall(r"axis \S+\.(?:at|met)\d* < (\d+)\n", to_text(selection))
    assert {*sizes} == {"37", "39", "2", "3"}  # without them nothing is tested
    round_trip(lowered, selection)


def test_a_reduction_in_two_stages_is_read_back() -> None:
    graph = lm.Graph()
    graph.tensor((1 << 20,), name="x").sum().output("y")
    lowered = lower(graph.graph())
    selection = select(lowered, COSTS)
    assert [term.op for term in selection.stored()] == ["Sum", "Sum"]
    round_trip(lowered, selection)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_are_read_back(seed: int) -> None:
    lowered = lower(random_case(seed).graph)
    round_trip(lowered, select(lowered, COSTS))


def test_layouts_merges_and_reads_are_read_back() -> None:
    lowered = lower(every_kind().graph())
    selection = select(lowered, COSTS)
    stored = list(selection.stored())
    panels = Layout((1, 0), ((1, 32), (0, 4)), padding=8, alignment=4096)
    choices = dict(selection.choices)
    user, weight = next((t, w) for t in choices for w in t.args if w.phase is Phase.WEIGHT)
    choices[weight] = Choice(Residence.INLINE, (ROW_MAJOR, panels))
    choices[stored[0]] = Choice(Residence.LOCAL_STORED, (panels,))
    merges = (frozenset(stored[:2]), frozenset(stored[2:4]))
    reads = {(user, user.args.index(weight)): 1}
    changed = replace(selection, choices=choices, merges=merges, reads=reads)
    round_trip(lowered, changed)
    with pytest.raises(VerifyError, match="reads operand 0 in layout 2 of 2"):
        verify(replace(changed, reads={(user, user.args.index(weight)): 2}))
    choices[stored[0]] = Choice(Residence.STORED, (ROW_MAJOR, panels))
    with pytest.raises(VerifyError, match="is no weight and has more than one layout"):
        verify(replace(changed, choices=choices))


def test_another_spelling_of_the_graph_is_read() -> None:
    lowered = lower(softmax().graph())
    text = GOLDEN.replace("%2 = Literal -1.0 (0xbf800000)", "%2 = Literal 1.0 (0x3f800000)")
    text = text.replace("%3 = Mul", "%3 = Div").replace("%4 = Add %0, %3", "%4 = Add %3, %0")
    assert to_text(parse(text, lowered)) == text


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("Input x", "Input z", "line 5: the graph has no 'Input z [a0, a1]'"),
        ("Input x [a0, a1]", "Input x [a1, a0]", "line 5: the graph has no"),
        ("%6 = Sum{a1} %5", "%6 = Sum{a1} %9", "line 11: %9 is used before its line"),
        ("%6 = Sum{a1}", "%6 = Sum{a7}", "line 11: no line declares the axis a7"),
        ("@ inline", "@ nowhere", "line 5: 'nowhere' is not a valid Residence"),
        ("[a0, a1] row", "[a0, a1] rows", "line 12: 'rows' is no part of a layout"),
        ("output y", "output z", "line 13: expected 'output y'"),
        ("  output y = %7 [a0, a1]\n", "", "the graph has 1 sinks, the text 0"),
        ("}\n", "", "the text ends before the closing '}' of the selection"),
    ],
)
def test_errors_name_the_line(before: str, after: str, message: str) -> None:
    assert before in GOLDEN
    start, found, end = GOLDEN.rpartition(before) if before == "}\n" else GOLDEN.partition(before)
    assert found
    with pytest.raises(GraphError) as caught:
        parse(start + after + end, lower(softmax().graph()))
    assert message in str(caught.value)
