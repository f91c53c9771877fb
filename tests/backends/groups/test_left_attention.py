"""Attention by a made-up dot that reads keys and values in shared memory, by both meanings; and
what is wrong in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.dots import MADE_UP_CHAIN, Dot, Rounding
from luminal.base.dtypes import bfloat16, float32
from luminal.base.errors import VerifyError
from luminal.compiler.compile import lower_by_stages
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.verify import verify
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.kernel import tile_verify
from luminal.kernel.tile_ir import Batch, Contract, Kernel, Load
from luminal.program.steps import CascadeStep
from luminal.schedule.groups.facts import USUAL
from tests.backends.groups import cascade_fragments as fragments
from tests.backends.groups.both_meanings import Both
from tests.backends.groups.matrix_backend import changed
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import mostly_long

LEFT = tuple(
    Dot(f"made.left.n{n}", 16, bfloat16, bfloat16, float32, Rounding.BLOCK, 16, n, 16,
        ("k1 m0 m2 m3 | k0 m1 k2 k3", "", f"n1 m0 m2 m3 | n0 m1 n2 n3 {'n4' * (n > 16)}"))
    for n in (16, 32)
)  # fmt: skip


@cache
def backend() -> Both:
    """A device that prefers dots which read shared memory."""
    made = fragments.backend()
    groups = replace(made.groups, lanes=16, most=32, left=LEFT, pipes=replace(USUAL, left=4096))
    return replace(made, groups=groups)


def placed() -> Kernel:
    """Few queries, and keys for two blocks."""
    cx = lm.Graph()
    q, k, v = (cx.tensor((n, 8), name=x, dtype="bfloat16") for x, n in zip("qkv", (12, 25, 25)))  # noqa: B905
    scaled_dot_product_attention(q, k, v).output("y")
    (step,) = lower_by_stages(cx.graph(), backend()).partition.steps
    assert isinstance(step, CascadeStep)
    kernel = backend().schedules.place(step, (("steps", 16),)).kernel
    dots = {each.dot for each in kernel.statements() if isinstance(each, Contract)}
    assert dots & {*LEFT}
    return kernel


@pytest.mark.parametrize("seed", mostly_long(fragments.DRAWS, 0))
def test_attention_by_both_meanings(seed: int) -> None:
    run, text = fragments.drawn(seed)
    (step,) = lower_by_stages(run.graph, backend()).partition.steps
    assert isinstance(step, CascadeStep)
    try:
        check_case(compiled_on(backend(), run.graph), run, 1.0)
    except Exception as error:
        error.add_note(text)
        raise


def test_which_dots_chain() -> None:
    assert all(dot.chains for dot in (MADE_UP_CHAIN, *LEFT))


def results(kernel: Kernel, body: tuple[Any, ...] | None = None) -> Any:
    arrays, expanded = fragments.given(kernel), expand(kernel)
    if body is not None:
        assert body != expanded.body
        expanded = replace(expanded, body=body)
    else:
        verify(expanded)
    interpreter.run(expanded, arrays, {})
    return np.concatenate([arrays[b.name].astype("f8") for b in kernel.buffers[3:]])


Changed = Callable[[Any], Any]


def body_without(body: tuple[Any, ...], kind: type, *of: Batch) -> tuple[Any, ...]:
    inside = (
        replace(each, body=body_without(each.body, kind, *of)) if hasattr(each, "body") else each
        for each in body
    )
    return tuple(s for s in inside if not (isinstance(s, kind) and (not of or s.of in of)))


def of_words(statement: Any) -> Any:
    """The words of the first factor in another order."""
    if isinstance(statement, ir.MultiplyLeft) and isinstance(statement.a, tuple):
        return replace(statement, a=statement.a[::-1])
    return statement


def of_values(statement: Any) -> Any:
    """Values that lie along the other side."""
    if isinstance(statement, ir.MultiplyLeft) and isinstance(statement.a, tuple):
        return replace(statement, b=replace(statement.b, turned=not statement.b.turned))
    return statement


@pytest.mark.long
def test_faults_are_found() -> None:
    kernel = placed()
    body, right = expand(kernel).body, results(kernel)
    for kind, of, message in (
        (ir.Begin, (), "put a Begin before it"),
        (ir.Publish, (), "put a Publish before the Barrier"),
        (ir.Barrier, (), "put a barrier between them"),
    ):
        with pytest.raises(VerifyError, match=message):
            results(kernel, body_without(body, kind, *of))
    for wrong in (
        body_without(body, ir.Await, Batch.PRODUCTS),
        body_without(body, ir.Commit, Batch.PRODUCTS),
        changed(body, of_words),
        changed(body, of_values),
    ):
        try:
            found = results(kernel, wrong)
        except VerifyError:
            continue
        assert not np.allclose(found, right, rtol=fragments.NEAR)


def test_factors_of_registers_lie_in_plain_memory() -> None:
    """A second factor has no other place than swizzled memory."""
    kernel = placed()
    straight = tuple(replace(each, swizzle=0) for each in kernel.scratch)
    assert any(isinstance(each, Load) for each in kernel.statements())
    with pytest.raises(VerifyError, match="factors lie in swizzled memory for dots that read them"):
        tile_verify.verify(replace(kernel, scratch=straight))
