"""Attention in fragments by a made-up dot, each kernel by both of its meanings; and planted faults,
which these find.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base.dots import MATRIX_DOTS
from luminal.base.dtypes import DType, float32
from luminal.base.errors import VerifyError
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages
from luminal.expand import fragments, interpreter
from luminal.expand.expand import expand
from luminal.expand.groups import Fold
from luminal.expand.ir import Operand
from luminal.expand.tiles import Tiles
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.kernel import tile_interpreter
from luminal.kernel.cascade_fragments import ByFragments
from luminal.kernel.knobs import Knobs
from luminal.kernel.streamed import shared_bytes
from luminal.kernel.tile_ir import Await, Barrier, Copy, Kernel, Load, Map, Retile, Space
from luminal.kernel.tile_text import to_text
from luminal.kernel.tile_verify import verify
from luminal.nn.paged import _read
from luminal.program.steps import CascadeStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.selection import cascades
from luminal.shape.expression import Symbol
from tests.backends.groups.cascade_fragments import DRAWS, NEAR, backend, drawn, given
from tests.backends.groups.matrix_backend import changed
from tests.backends.on_device import check_case
from tests.fuzz.graphs import Case
from tests.long_share import long_rows, mostly_long

SMALL_BLOCKS: Knobs = (("steps", 8),)


def step_of(run: Case) -> CascadeStep:
    """The one kernel of an attention."""
    (step,) = lower_by_stages(run.graph, backend()).partition.steps
    assert isinstance(step, CascadeStep)
    return step


def placed(run: Case) -> Kernel:
    """The kernel, of small blocks of keys."""
    return backend().schedules.place(step_of(run), SMALL_BLOCKS).kernel


def in_pages(queries: int) -> Case:
    """Attention of three texts over pages of four keys, the last of which one text lacks."""
    rng = np.random.default_rng(queries)
    cx = lm.Graph()
    q = cx.tensor((3, 2, queries, 8), name="q", dtype="bfloat16").cast("float32")
    k, v = (cx.tensor((9, 2, 4, 8), name=name, dtype="bfloat16") for name in "kv")
    tables = cx.tensor((3, 4), lm.int32, "tables")
    ends = cx.tensor((3, queries), lm.int32, "ends")
    keys, values = (_read(pages, tables).cast("float32") for pages in (k, v))
    seen = cx.arange(16).reshape(1, 1, 1, 16) <= ends.reshape(3, 1, queries, 1)
    scores = lm.where(seen, q @ keys.mT * 0.3, -np.inf)
    (scores.softmax(-1) @ values).output("y")
    shapes = {"q": (3, 2, queries, 8), "k": (9, 2, 4, 8), "v": (9, 2, 4, 8)}
    inputs = {n: rng.standard_normal(s).astype(ml_dtypes.bfloat16) for n, s in shapes.items()}
    inputs["tables"] = np.array([[8, 0, 3, 5], [1, 7, 2, 9], [6, 4, 8, 0]], np.int32)
    ends_ = rng.integers(0, 12, (3, queries)).astype(np.int32)
    return Case(cx.graph(), {**inputs, "ends": ends_}, {}, {})


@pytest.mark.long
@pytest.mark.parametrize("queries", mostly_long([2, 7], 1))
def test_keys_in_pages_by_both_meanings(queries: int) -> None:
    """Blocks of keys begin and end where pages do not, and few queries fill a part of a row."""
    run = in_pages(queries)
    step = step_of(run)
    made, _ = backend().schedules.explored(step, None, SMALL_BLOCKS)
    assert isinstance(made, ByFragments)
    assert len(made.found.steps) == 2  # pages, and keys of one
    check_run(run, f"{queries} queries", SMALL_BLOCKS)
    check_run(run, f"{queries} queries", ())


def check(seed: int, knobs: Knobs) -> None:
    check_run(*drawn(seed), knobs)


def check_run(run: Case, text: str, knobs: Knobs) -> None:
    stages = lower_by_stages(run.graph, backend())
    made, _ = backend().schedules.explored(step_of(run), None, knobs)
    assert isinstance(made, ByFragments)
    (usual,) = stages.program.kernels
    tuned = {text_key(to_text(usual)): knobs} if knobs else {}
    program = compile.reschedule(stages, backend(), tuned).program
    (kernel,) = program.kernels
    assert all(buffer.space is Space.SHARED for buffer in kernel.scratch), text
    taken = sum(each.size.constant * each.dtype.size for each in kernel.scratch)
    assert shared_bytes(made.found, made.tiling) == taken
    try:
        check_case(Executable(run.graph, (Variant({}, backend().runner(program)),)), run, 1.0)
    except Exception as error:
        error.add_note(f"{text} {knobs}")
        raise


@pytest.mark.parametrize("seed", mostly_long([*DRAWS], 1))
def test_attention_by_both_meanings(seed: int) -> None:
    check(seed, SMALL_BLOCKS if seed % 2 else ())


@pytest.mark.long
def test_numbers_of_keys_come_by_the_ring() -> None:
    """What is added to all scores of a key is copied with the keys: no lane waits for it."""
    run, text = drawn(7)
    size = len(run.inputs["c"])
    kernel = placed(run)
    (bias,) = (b.name for b in kernel.buffers if b.dtype is float32 and b.size.constant == size)
    of_bias = [each for each in kernel.statements() if getattr(each, "source", None) == bias]
    assert {type(each) for each in of_bias} == {Copy}
    assert not any(isinstance(each, Load) and each.buffer == bias for each in kernel.statements())
    check_run(run, text, SMALL_BLOCKS)


@pytest.mark.long
@pytest.mark.parametrize("seed", DRAWS)
def test_every_choice(seed: int) -> None:
    """Of teams and of keys at a time."""
    space = backend().schedules.space(step_of(drawn(seed)[0]))
    own = [knobs for knobs in space if not any(name == "dot" for name, _ in knobs)]
    assert len(own) < len(space)  # without the dot there are others
    for knobs in own:
        check(seed, knobs)


def parts_of_one(width: int, dtype: str, before: int = 0) -> Case:
    """An attention and its gradient where queries, keys and values are parts of one array, as a
    product with the weights of all three makes it; numbers of something else stand `before` them.
    """
    length, heads = 9, 2
    cx = lm.Graph()
    x = cx.tensor((length, before + 3 * heads * width), dtype, "x")
    parts = x[:, before:].cast("bfloat16").reshape(length, 3, heads, width).permute(1, 2, 0, 3)
    q, k, v = (parts[n] for n in range(3))
    y = scaled_dot_product_attention(q, k, v, is_causal=True)
    y.output("y")
    g = cx.tensor((heads, length, width), "bfloat16", "g")
    lm.grad((y * g).cast("float32").sum(), [x])[0].output("dx")
    rng = np.random.default_rng(width)
    inputs = {"x": rng.standard_normal(x.shape, np.float32).astype(x.dtype.numpy)}
    inputs["g"] = rng.standard_normal(g.shape, np.float32).astype(g.dtype.numpy)
    return Case(cx.graph(), inputs, {}, {})


PARTS = ((8, "bfloat16", 0, 2), (8, "bfloat16", 4, 1), (5, "bfloat16", 0, 1), (8, "float32", 8, 1))


@pytest.fixture
def always_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients stream as they do where scores are many."""
    monkeypatch.setattr(cascades, "is_gain", lambda *_: True)


@pytest.mark.usefixtures("always_streams")
@pytest.mark.parametrize(("width", "dtype", "before", "stages"), long_rows(PARTS, PARTS[::2]))
def test_parts_of_one_array_are_multiplied_by_fragments(
    width: int, dtype: str, before: int, stages: int
) -> None:
    """Gradients too; whole words are copied without registers, and numbers that are rounded first,
    or lie between words, by way of these.
    """
    steps = lower_by_stages(parts_of_one(width, dtype, before).graph, backend()).partition.steps
    streamed = [step for step in steps if isinstance(step, CascadeStep)]
    assert len(streamed) == 2
    for step in streamed:
        made, _ = backend().schedules.explored(step, None, SMALL_BLOCKS)
        assert isinstance(made, ByFragments)
        assert made.tiling.stages == stages


@pytest.mark.long
@pytest.mark.usefixtures("always_streams")
@pytest.mark.parametrize(("width", "dtype", "before", "stages"), long_rows(PARTS, PARTS[::2]))
def test_parts_of_one_array_by_both_meanings(
    width: int, dtype: str, before: int, stages: int
) -> None:
    run = parts_of_one(width, dtype, before)
    program = backend().runner(lower_by_stages(run.graph, backend()).program)
    check_case(Executable(run.graph, (Variant({}, program),)), run, 1.0)


def two_blocks() -> Case:
    """Few queries, and keys for two blocks."""
    cx = lm.Graph()
    shapes = {"q": (4, 8), "k": (13, 8), "v": (13, 8)}
    q, k, v = (cx.tensor(shape, name=n, dtype="bfloat16") for n, shape in shapes.items())
    scaled_dot_product_attention(q, k, v).output("y")
    return Case(cx.graph(), {}, {}, {})


# --- faults ---------------------------------------------------------------------------------------


def results(kernel: Kernel) -> Any:
    arrays = given(kernel)
    verify(kernel)
    interpreter.run(expand(kernel), arrays, {})
    return np.concatenate([arrays[b.name].astype("f8") for b in kernel.buffers[3:]])


def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescaling left out, keys behind the last one, sums of other lanes."""
    kernel = placed(two_blocks())
    right = results(kernel)
    arrays = given(kernel)
    tile_interpreter.run(kernel, arrays, {})
    own = np.concatenate([arrays[b.name].astype("f8") for b in kernel.buffers[3:]])
    np.testing.assert_allclose(right, own, rtol=NEAR)

    def without_rescaling(each: Any) -> Any:
        is_move = isinstance(each, Map) and each.op == "Select" and each.out.dtype.is_float
        return replace(each, args=(each.args[0], each.args[1], each.args[1])) if is_move else each

    def without_a_mask(each: Any) -> Any:
        """The last block's keys behind the last one count."""
        is_mask = isinstance(each, Map) and each.op == "Select" and each.args[1].dtype is float32
        own = is_mask and len(each.out.axes) > 2
        return replace(each, args=(each.args[0], each.args[1], each.args[1])) if own else each

    for change in (without_rescaling, without_a_mask):
        wrong = results(replace(kernel, body=changed(kernel.body, change)))
        assert not np.allclose(wrong, right, rtol=NEAR), change.__name__

    def of_other_lanes(
        tiles: Tiles, axis: Symbol, dtype: DType, value: Operand, fold: Fold
    ) -> Operand:
        (row,) = (a for a, part in tiles.parts.items() if part.side == "m")
        return own_folded(tiles, row, dtype, value, fold)

    own_folded = fragments.folded
    monkeypatch.setattr(fragments, "folded", of_other_lanes)
    assert not np.allclose(results(kernel), right, rtol=NEAR)


def without(body: tuple[Any, ...], kind: type, number: int) -> tuple[Any, ...]:
    """A body without the statement of a kind that comes after so many others."""
    left = [number]

    def kept(body: tuple[Any, ...]) -> tuple[Any, ...]:
        found = []
        for each in body:
            if isinstance(each, kind):
                left[0] -= 1
                if left[0] == -1:
                    continue
            found.append(replace(each, body=kept(each.body)) if hasattr(each, "body") else each)
        return tuple(found)

    return kept(body)


@pytest.mark.parametrize(("stages", "number"), [(1, 1), (1, 2), (2, 1)])
def test_a_missing_barrier_is_a_race(stages: int, number: int) -> None:
    """Before steps are copied, and before they are multiplied; one is both where two blocks take
    turns. That before the rows are copied is for workers of several chunks, which the shims have.
    """
    step = step_of(two_blocks())
    knobs = (*SMALL_BLOCKS, ("stages", stages))
    kernel = backend().schedules.place(step, knobs).kernel
    assert sum(isinstance(each, Barrier) for each in kernel.statements()) == 4 - stages
    broken = replace(kernel, body=without(kernel.body, Barrier, number))
    with pytest.raises(VerifyError, match=r"lane \d+ (reads|writes) s\d\[\d+\], which lane \d+"):
        interpreter.run(expand(broken), given(kernel), {})


def test_a_missing_wait_is_seen() -> None:
    kernel = placed(two_blocks())
    assert sum(isinstance(each, Await) for each in kernel.statements()) == 2
    broken = replace(kernel, body=without(kernel.body, Await, 0))
    with pytest.raises(VerifyError, match=r"lane \d+ (reads|writes) s\d\[\d+\], which lane \d+"):
        interpreter.run(expand(broken), given(kernel), {})


def test_what_is_no_factor_as_it_lies_is_refused() -> None:
    kernel = placed(two_blocks())

    def change(each: Any) -> Any:
        return replace(each, first=4) if isinstance(each, Retile) else each

    with pytest.raises(VerifyError, match="8 steps from 4 are no block of 8 columns"):
        verify(replace(kernel, body=changed(kernel.body, change)))


def test_which_dots_chain() -> None:
    chains = {name for name, dot in MATRIX_DOTS.items() if dot.chains}
    apples = {"simdgroup.f32", "simdgroup.f16", "simdgroup.bf16"}
    assert chains == {"mma.bf16", "mma.f16", "made.chain", *apples}
