"""The viewer's document against what is computed anew: by hand, or from the program itself."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.backends import registry
from luminal.base import config
from luminal.compiler.dump import Dump
from luminal.runtime.report import KernelRow, Report
from luminal.runtime.roofline import Peaks
from luminal.search import operands
from luminal.session import graph as session
from luminal.viz import server
from luminal.viz.kernels import costs
from luminal.viz.page import page
from luminal.viz.saved_trace import document_of
from luminal.viz.unrolled import values_of
from luminal.viz.values import ByOrigin, Values

Document = dict[str, Any]
SIZE = 16


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm = nn.LayerNorm(SIZE)
        self.up = nn.Linear(SIZE, 2 * SIZE)
        self.down = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: lm.Tensor) -> lm.Tensor:
        y: lm.Tensor = x + self.down(self.up(self.norm(x)).relu())
        return y


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        self.layers = nn.ModuleList([Block() for _ in range(layers)])

    def forward(self, x: lm.Tensor) -> lm.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def small() -> lm.Graph:
    """Two kernels: a product, and all that follows it."""
    cx = lm.Graph("small")
    x = cx.tensor((4, 8), name="x")
    w = cx.tensor((8, 6), name="w")
    (x @ w).softmax(-1).T.output("y")
    return cx


def layered(layers: int) -> lm.Graph:
    cx = lm.Graph("layered")
    x = cx.tensor(("s", SIZE), name="x")
    Net(layers)(x).sum(1).output("y")
    return cx


@pytest.fixture(scope="module")
def timed() -> Document:
    exe = lm.compile(small(), "cpu")
    exe.profile(x=np.ones((4, 8), np.float32), w=np.ones((8, 6), np.float32), runs=2)
    return exe.document()


@pytest.fixture(scope="module")
def rolled() -> Document:
    exe = lm.compile(layered(12), "cpu")
    arrays = operands.draw(exe.graph, {"s": 3}, {}, seed=0)
    exe.profile({**arrays.inputs, **arrays.parameters}, runs=1)
    return exe.document()


def words(document: Document, ids: list[int]) -> Counter[str]:
    """The operations of some values."""
    values = document["values"]
    return Counter(values["ops"][values["op"][n]] for n in ids)


# --- what computes what


def test_kernels_compute_what_their_launches_store(timed: Document) -> None:
    """The product's kernel has the product and no more; the other has all the rest."""
    calls = timed["values"]["call"]
    product, rest = timed["kernels"]
    assert {calls[n] for n in product["of"]} == {"matmul"}
    assert words(timed, product["of"]) == {"View": 2, "Mul": 1, "Sum": 1}
    assert {calls[n] for n in rest["of"]} == {"softmax", "T"}
    computed = [n for n, inputs in enumerate(timed["values"]["inputs"]) if inputs]
    assert sorted({*product["of"], *rest["of"]} & {*computed}) == computed


def covered(document: Document) -> list[tuple[str, set[int]]]:
    return [(s["name"], {n for of in s["of"] for n in of}) for s in document["stages"]]


def test_every_value_is_in_every_stage(timed: Document, rolled: Document) -> None:
    for document in (timed, rolled):
        values = document["values"]
        everything = {*range(len(values["op"]))}
        leaves = {n for n in everything if not values["inputs"][n]}
        for name, found in covered(document):
            assert found >= everything - leaves, name
            assert name == "program" or found == everything
        held = {n for buffer in document["memory"]["buffers"] for n in buffer["of"]}
        named = {n for n in leaves if values["name"][n]}
        assert held >= named  # inputs and weights


def test_every_node_of_every_stage_is_of_some_value(timed: Document, rolled: Document) -> None:
    for document in (timed, rolled):
        for stage in document["stages"]:
            assert all(stage["of"]), stage["name"]
        assert all(kernel["of"] for kernel in document["kernels"])


def test_a_rolled_layer_stands_for_all_layers(rolled: Document) -> None:
    """Each node of the body is of one value of each layer, of one operation."""
    values, modules = rolled["values"], rolled["modules"]
    algebra = rolled["stages"][0]
    products = [
        of
        for op, of, loop in zip(algebra["op"], algebra["of"], algebra["loop"], strict=True)
        if loop >= 0 and algebra["ops"][op] == "Mul" and len(of) > 12
    ]
    whole = [of for of in products if {values["call"][n] for n in of} == {"linear"}]
    assert len(products) >= 2
    for of in whole:
        paths = [modules[values["module"][n]]["path"] for n in of if n]
        assert {path.split(".")[1] for path in paths} == {str(k) for k in range(12)}


def test_unrolling_finds_the_recorded_nodes_themselves() -> None:
    """Of a body with one operation a line, each node is those of its line and nothing else."""
    cx = lm.Graph()
    x = cx.tensor((4, 8), name="x")
    for k in range(40):
        w = cx.tensor((8,), name=f"w{k}")
        x = (x * w).exp().sum(1).sqrt().reshape(4, 1) * x
    x.output("y")
    graph = session.narrowed(cx)
    values = Values(graph)
    rolled = Dump(graph, registry.find("cpu")).stages.graph
    (loop,) = rolled.by_op()["Loop"]
    nothing = ByOrigin(Values(session.narrowed(small())))  # so that only structure relates
    of_nodes = values_of(rolled, values, nothing)
    inner = [n for n in Values(rolled).nodes if n not in rolled.nodes() and n.args]
    assert loop.attrs.trips.value >= 38
    assert len(inner) >= 5
    for node in inner:
        mine = [values.nodes[n] for n in of_nodes[node]]
        assert {m.op for m in mine} == {node.op}
        assert len(mine) >= loop.attrs.trips.value


def test_the_way_back_through_layers_is_related_by_structure_too() -> None:
    """A training step's second Loop reads slices, in reverse, of what its first one kept: each
    operation in it is the same one of several layers, and mostly of all.
    """
    cx = lm.Graph()
    net = Net(12)
    loss = net(cx.tensor((4, SIZE), name="x")).square().mean().output("loss")
    optim.SGD(net.parameters(), lr=0.1).step(loss)
    graph = session.narrowed(cx)
    values = Values(graph)
    rolled = Dump(graph, registry.find("cpu")).stages.graph
    nothing = ByOrigin(Values(session.narrowed(small())))  # so that only structure relates
    of_nodes = values_of(rolled, values, nothing)
    inner = [n for n in Values(rolled).nodes if n not in rolled.nodes() and n.args]
    computing = [n for n in inner if n.op.name != "View"]
    assert len(rolled.by_op()["Loop"]) == 2
    assert len(computing) > 60
    for node in computing:
        mine = [values.nodes[n] for n in of_nodes[node]]
        assert {m.op for m in mine} == {node.op}
        assert len(mine) > 1, node
    assert sum(len(of_nodes[node]) >= 11 for node in computing) > 0.8 * len(computing)


def test_lines_are_those_that_recorded(timed: Document) -> None:
    values = timed["values"]
    (file,) = {f for f in values["file"] if f >= 0}
    texts = timed["files"][file]["lines"]
    for call, line in zip(values["call"], values["line"], strict=True):
        if call:
            assert f".{call}" in texts[str(line)] or "@" in texts[str(line)]


# --- memory


def test_the_arena_has_no_two_values_in_one_place() -> None:
    exe = lm.compile(chain(), "cpu")
    memory = exe.document()["memory"]
    buffers = [b for b in memory["buffers"] if b["offset"] is not None]
    assert len(buffers) >= 3
    for one, other in itertools.combinations(buffers, 2):
        in_time = one["first"] <= other["last"] and other["first"] <= one["last"]
        in_space = (
            one["offset"] < other["offset"] + other["bytes"]
            and other["offset"] < one["offset"] + one["bytes"]
        )
        assert not (in_time and in_space), (one["text"], other["text"])
    assert max(b["offset"] + b["bytes"] for b in buffers) <= memory["arena_bytes"]
    assert memory["sum_bytes"] == sum(b["bytes"] for b in buffers) > memory["arena_bytes"]
    most = max(sum(b["bytes"] for b in buffers if b["first"] <= n <= b["last"]) for n in range(100))
    assert memory["peak"]["bytes"] == most <= memory["arena_bytes"]


def test_buffers_live_as_long_as_launches_touch_them(timed: Document, rolled: Document) -> None:
    """And for the whole of a Loop that reads them before it writes them."""
    for document in (timed, rolled):
        buffers = {b["id"]: b for b in document["memory"]["buffers"]}
        launches = document["launches"]
        inside = [n for n, launch in enumerate(launches) if launch["loop"] >= 0]
        written: set[int] = set()
        for n, launch in enumerate(launches):
            for buffer in (buffers[b] for b in (*launch["reads"], *launch["writes"])):
                assert buffer["first"] <= n <= buffer["last"]
            for buffer in (buffers[b] for b in launch["reads"] if n in inside):
                if buffer["id"] not in written:
                    assert buffer["first"] <= min(inside)
                    assert buffer["last"] >= max(inside)
            written |= {*launch["writes"]} if n in inside else set()
    assert inside


def chain() -> lm.Graph:
    """Products in a row, so that the first one's memory is free when the third one runs."""
    cx = lm.Graph("chain")
    x = cx.tensor((64, 64), name="x")
    for k in range(5):
        x = (x @ cx.tensor((64, 64), name=f"w{k}")).sin()
    x.output("y")
    return cx


# --- times


def test_shares_are_of_the_whole_and_bars_in_order(timed: Document) -> None:
    launches, bars = timed["launches"], timed["timeline"]["run"]
    assert sum(launch["share"] for launch in launches) == pytest.approx(1)
    assert [bar["launch"] for bar in bars] == [0, 1]
    ends = [bar["end"] for bar in bars]
    assert ends[-1] == pytest.approx(sum(launch["seconds"] for launch in launches))
    assert bars[1]["barrier"]  # it reads what the first one stores
    assert bars[0]["start"] == 0
    assert bars[1]["start"] == bars[0]["end"]


def test_a_loop_has_a_bar_for_each_trip(rolled: Document) -> None:
    trips = {n: launch["trips"] for n, launch in enumerate(rolled["launches"])}
    assert Counter(bar["launch"] for bar in rolled["timeline"]["run"]) == trips
    assert max(trips.values()) == 12


def test_compile_steps_lie_within_those_around_them(timed: Document) -> None:
    steps = timed["timeline"]["compile"]
    assert steps
    for step in steps:
        assert 0 <= step["start"] <= step["end"]
        inside = [s for s in steps if s["depth"] < step["depth"]]
        assert step["depth"] == 0 or any(
            s["start"] <= step["start"] and step["end"] <= s["end"] + 1e-6 for s in inside
        )


@pytest.mark.parametrize(
    ("flops", "moved", "seconds", "said"),
    [
        (10**6, 1, 10e-6, ""),  # on the roof
        (10**6, 1, 9e-6, "above 100%: the roof is float32's"),
        (0, 10**6, 99e-6, "above 100%: part of what it reads still lay in a cache"),
        (0, 400, 7.9e-9, "above 100%: what it reads lay in a nearer cache"),
        (10**6, 1, 1e-6, "less time than the counted work can take on this machine"),
    ],
)
def test_a_share_of_the_roof_that_needs_a_word_has_one(
    flops: int, moved: int, seconds: float, said: str
) -> None:
    peaks = Peaks(flops=1e11, memory=1e10, cache=5e10, cache_bytes=1000)
    row = KernelRow("Contract", 0, 1, 1, flops, moved, seconds)
    assert costs(Report({}, (row,), peaks=peaks), row)["note"].startswith(said)
    assert bool(said) == bool(costs(Report({}, (row,), peaks=peaks), row)["note"])


# --- the page


def test_the_page_has_the_document_whatever_is_in_it() -> None:
    nasty = {"title": "</script><script>alert(1)</script><!-- & \u2028 'x'", "list": [1, None]}
    text = page(nasty)
    assert text.count("</script>") == 2  # that of the data, and that of the page's own script
    (data,) = re.findall(r'id="document">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data) == nasty
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?!data:)', text)


def test_integers_that_javascript_would_round_are_text() -> None:
    """All of its numbers are float64; amounts are added up, and shown by three digits."""
    most = 2**53 - 1
    given = {"seed": most + 2, "least": -most - 2, "whole": [most, (2**64,)], "flops": 2**60}
    (data,) = re.findall(r'id="document">(.*?)</script>', page(given), re.DOTALL)
    assert json.loads(data) == {
        "seed": str(most + 2), "least": str(-most - 2), "whole": [most, [str(2**64)]],
        "flops": 2**60,
    }  # fmt: skip


def test_the_server_gives_one_page_to_this_machine_alone() -> None:
    import threading
    from http.client import HTTPConnection

    with server.server("<p>page</p>") as listening:
        assert listening.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            answers = []
            for path, host in (("/", None), ("/etc/passwd", None), ("/", "evil.example:80")):
                connection = HTTPConnection("127.0.0.1", listening.server_port, timeout=20)
                connection.request("GET", path, headers={} if host is None else {"Host": host})
                answer = connection.getresponse()
                answers.append((answer.status, b"page" in answer.read()))
                connection.close()
        finally:
            listening.shutdown()
            thread.join()
    assert answers == [(200, True), (404, False), (404, False)]


def test_backends_without_stages_say_so() -> None:
    with pytest.raises(lm.CompileError, match="viz: backend 'reference' runs the graph as it is"):
        lm.compile(small(), "reference").document()


def test_a_port_that_is_taken_is_named() -> None:
    with server.server("x") as first, pytest.raises(lm.InputError, match="cannot be had"):
        server.server("x", first.server_port)


def test_a_saved_trace_is_shown_by_its_longest_program(tmp_path: Path) -> None:
    path = tmp_path / "saved.trace"
    with config.override(LUMINAL_TRACE=path):
        exe = lm.compile(small(), "cpu")
        arrays = {"x": np.ones((4, 8), np.float32), "w": np.ones((8, 6), np.float32)}
        for _ in range(12):
            exe(arrays)
    document = document_of(path)
    rows = exe.report().kernels
    assert [launch["label"] for launch in document["launches"]] == [row.label for row in rows]
    assert {bar["launch"] for bar in document["timeline"]["run"]} == {*range(len(rows))}
    assert all(bar["start"] < bar["end"] for bar in document["timeline"]["run"])
    assert any("compile" in step["name"] for step in document["timeline"]["compile"])
    (tmp_path / "other.trace").write_text("hello\n")
    with pytest.raises(lm.InputError, match="no trace: its first line"):
        document_of(tmp_path / "other.trace")
