"""Random graphs, cut by custom kernels at random values."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from luminal.backends.cpu import device
from luminal.backends.reference import evaluate_with_bounds
from luminal.hlir.attributes import Body, CustomKernel, LoopAttrs
from luminal.hlir.graph import Builder, topological
from luminal.hlir.ops import Value
from luminal.shape.expression import const
from tests.fuzz.cpu_run import check_run, compiled
from tests.fuzz.graphs import random_case
from tests.long_share import mostly_long


@pytest.fixture(autouse=True)
def _team_for_tiny_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)


def copy_ir(rank: int, size: int) -> str:
    """IR that copies the elements number chunk, chunk + chunks, ..."""
    extents = ", ".join(f"i64 %{name}{k}" for name in "xy" for k in range(rank))
    lines = ["  %n0 = add i64 1, 0"]
    lines += [f"  %n{k + 1} = mul i64 %n{k}, %x{k}" for k in range(rank)]
    return f"""
define void @copy(ptr %x, ptr %y, {extents}{", " if rank else ""}i64 %chunk, i64 %chunks) {{
entry:
{chr(10).join(lines)}
  br label %head
head:
  %i = phi i64 [ %chunk, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n{rank}
  br i1 %more, label %body, label %exit
body:
  %x.at = getelementptr i{8 * size}, ptr %x, i64 %i
  %y.at = getelementptr i{8 * size}, ptr %y, i64 %i
  %value = load i{8 * size}, ptr %x.at
  store i{8 * size} %value, ptr %y.at
  %next = add i64 %i, %chunks
  br label %head
exit:
  ret void
}}"""


def copied(builder: Builder, value: Value, rng: random.Random) -> Value:
    """The value, after a copy by a custom kernel."""
    is_ir = rng.random() < 0.5
    ir = copy_ir(len(value.shape), value.dtype.size) if is_ir else None
    kernel = CustomKernel("copy", lambda x, out: np.copyto(out, x), ir)
    chunks = const(rng.randint(1, 3))
    return builder.custom(kernel, [value], [value.type], chunks)[0]


def cut_at(
    roots: Sequence[Value], known: dict[Value, Value], builder: Builder, rng: random.Random
) -> list[Value]:
    """The same values, some of them copied by custom kernels on the way."""
    for node in topological(roots):
        if node.value in known:
            continue
        attrs = node.attrs
        if isinstance(attrs, LoopAttrs):
            inner = Builder()
            leaves = [inner.make(n.op.name, (), n.attrs) for n in attrs.body.arguments]
            old = [n.value for n in attrs.body.arguments]
            start = dict(zip(old, (n.value for n in leaves), strict=True))
            results = cut_at(attrs.body.results, start, inner, rng)
            attrs = attrs._replace(body=Body(tuple(leaves), tuple(results)))
        made = builder.make(node.op.name, [known[arg] for arg in node.args], attrs)
        for k in range(len(node.types)):
            value = Value(made, k)
            listed = node.op.name in ("State", "Weight")  # a Loop's list of leaves stays one
            is_cut = rng.random() < 0.2 and not listed
            known[Value(node, k)] = copied(builder, value, rng) if is_cut else value
    return [known[root] for root in roots]


@pytest.mark.parametrize("chunk", mostly_long(range(12), 1))
def test_random_graphs(chunk: int) -> None:
    for seed in range(10 * chunk, 10 * (chunk + 1)):
        case, rng = random_case(seed), random.Random(seed)
        values = cut_at(case.graph.roots, {}, Builder(), rng)
        pairs = zip(case.graph.sinks, values, strict=True)
        graph = replace(case.graph, sinks=tuple(replace(s, value=v) for s, v in pairs))
        exe, runner = compiled(graph)
        bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
        try:
            check_run(exe, runner, replace(case, graph=graph), bounds=bounds)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
