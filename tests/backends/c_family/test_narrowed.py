"""Two f32 that are rounded to short floats by one instruction, as a word."""

from __future__ import annotations

import re
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from luminal.backends.cuda import nvrtc, sass
from luminal.base.dtypes import DType, bfloat16, float16, float32, int64, uint32
from luminal.codegen.c_family.cuda import CUDA, SAME_BYTES
from luminal.expand.builder import Builder
from luminal.expand.casts import cast, narrowed_pair, word_of
from luminal.expand.ir import Apply, Load, Loop, Type, Value
from luminal.expand.operations import IN_PAIRS
from luminal.kernel.tile_ir import Role
from luminal.schedule.groups.pipes import F32, I32
from luminal.schedule.groups.touched import ROW
from luminal.schedule.groups.work import work
from tests.backends.c_family.dialects import driver, run
from tests.backends.c_family.kernels import Writer, edges, index
from tests.backends.cuda.present import needs_nvrtc

SHORT = {bfloat16: ml_dtypes.bfloat16, float16: np.float16}


def rounded(dtype: DType) -> Writer:
    """Of x and y, as one word."""
    w = Writer()
    x, y = (w.load(name, float32, w.chunk) for name in "xy")
    w.store("z", w.chunk, w.apply(IN_PAIRS[dtype], x, y))
    return w


BUFFERS = ("x", float32, Role.IN), ("y", float32, Role.IN), ("z", uint32, Role.OUT)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_each_is_rounded_to_nearest_even(dtype: DType) -> None:
    """Ties, subnormal numbers, infinities and NaN, the first one in the lower half."""
    ties = np.arange(64, dtype=np.float32) * np.float32(2.0**-12) + 1
    x = np.concatenate((edges(float32), ties, np.float32(2.0**-24) * np.arange(9, dtype="f")))
    y, z = np.roll(x, 5), np.zeros(len(x), np.uint32)
    run(driver("cuda"), rounded(dtype).kernel(*BUFFERS), [x, y, z], len(x))
    with np.errstate(over="ignore"):
        wanted = np.stack([x, y], 1).astype(SHORT[dtype])
    found = z.view(np.uint16).reshape(-1, 2).view(SHORT[dtype])
    same = found.view(np.uint16) == wanted.view(np.uint16)
    assert np.all(same | np.isnan(found) & np.isnan(wanted))


@needs_nvrtc
def test_the_first_one_is_lowest_in_machine_code() -> None:
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    op = IN_PAIRS[bfloat16]
    text = (
        f"{SAME_BYTES}\n{CUDA.instruction(op)}\n"
        f'extern "C" __global__ void kernel(unsigned *x) {{ x[0] = {op}(1.f, 2.f); }}'
    )
    code = sass.of(nvrtc.compile(text, "sm_90a").code)
    assert re.search(r"F2FP\.BF16\.F32\.PACK_AB R\d+, R\d+, 1 ;", code)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_a_word_of_both_is_the_word_they_came_from(dtype: DType) -> None:
    b = Builder(frozenset({(IN_PAIRS[dtype], Type(uint32))}))
    x, y = (b.value(Type(float32)) for _ in range(2))
    parts = narrowed_pair(b, x, y, dtype)
    word = word_of(b, parts, dtype)
    assert isinstance(word, Value)
    assert b.made[word.id] == Apply(word, IN_PAIRS[dtype], (x, y))
    assert word_of(b, parts[::-1], dtype) != word


def test_halves_are_widened_from_the_word() -> None:
    b = Builder()
    x, y = (b.value(Type(float32)) for _ in range(2))
    wide = [cast(b, bfloat16, part, float32) for part in narrowed_pair(b, x, y, bfloat16)]
    words = [b.made[value.id].args[0] for value in wide if isinstance(value, Value)]
    made = [b.made[word.id] for word in words if isinstance(word, Value)]
    assert [each.op for each in made] == ["shl", "and"]
    assert made[0].args[0] == made[1].args[0]


def issued(*further: str) -> Mapping[str, float]:
    """By pipe, in a loop of one turn, with further operations whose results nobody reads."""
    w = rounded(bfloat16)
    (x,) = (s.out for s in w.body[:1] if isinstance(s, Load))
    for op in further:
        x = w.apply(op, x, x)
    w.body = [Loop(w.new(int64), index(0), index(1), 1, (), w.taken())]
    return work(w.kernel(*BUFFERS), {"n": 64}).issued


def test_the_model_counts_one_instruction_and_nothing_unused() -> None:
    found = issued()
    assert found == issued("mul", "add")
    assert F32 not in found
    assert found[I32] == 3 * ROW  # two of them the loop's
