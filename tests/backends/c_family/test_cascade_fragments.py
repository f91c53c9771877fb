"""Attention in fragments as NVIDIA's chips run it: its texts on the shims, where every access and
barrier is checked, and as machine code of chips that are not here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.compiler.compile import lower_to_program
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.hlir.graph import Graph
from luminal.kernel.cascade_fragments import Fragments
from luminal.kernel.tile_ir import Kernel, Retile
from tests.backends.c_family.offline import skip_without
from tests.backends.c_family.test_matrices import checked
from tests.backends.cpu.schedule.cascade_cases import CASES, case
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import long_but, mostly_long
from tests.simt.launching import DeviceFault

NARROW = ("one query", "few queries", "grouped, one query", "relu, few queries")
OTHERS = ("given scores", "two axes of keys", "where greatest")
"""What is no product by a dot, reduces two axes, or has positions to compare."""
NAMES = [name for name in CASES if name not in OTHERS]


@cache
def small() -> CBackend:
    """The device with so little shared memory that blocks, and texts, are small."""
    made = checked()
    return replace(made, groups=replace(made.groups, shared_bytes=6 << 10))


def by_fragments(kernel: Kernel) -> bool:
    return any(isinstance(each, Retile) for each in kernel.statements())


@pytest.mark.parametrize("name", long_but(NAMES, ("grouped",)))
def test_attention_on_the_shims(name: str) -> None:
    run, made = case(name, "bfloat16", widened=True), small() if name == "grouped" else checked()
    check_case(compiled_on(made, run.graph), run)


@pytest.mark.parametrize("name", ["no heads", "grouped", "causal", "width 80", "capped"])
def test_attention_is_in_fragments(name: str) -> None:
    run = case(name, "bfloat16", widened=True)
    (kernel,) = lower_to_program(run.graph, checked()).kernels
    assert by_fragments(kernel)


def attention(shape: tuple[int, ...], dtype: str, **options: Any) -> Graph:
    cx = lm.Graph()
    q, k, v = (cx.tensor(shape, name=name, dtype=dtype) for name in "qkv")
    scaled_dot_product_attention(q, k, v, **options).output("y")
    return cx.graph()


def test_the_range_of_f16_is_that_of_exponentials() -> None:
    (kernel,) = lower_to_program(attention((2, 64, 16), "float16"), checked()).kernels
    assert by_fragments(kernel)
    run = case("relu", "float16", widened=True)
    assert not any(map(by_fragments, lower_to_program(run.graph, checked()).kernels))


@pytest.mark.parametrize("number", mostly_long([0, 1, 2], 1))
def test_a_missing_barrier_is_found(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rows are copied, before steps are, and before they are multiplied."""
    own, barriers = Fragments.barrier, list[Fragments]()

    def all_but_one(self: Fragments) -> None:
        barriers.append(self)
        if len(barriers) % 3 != (number + 1) % 3:
            own(self)

    monkeypatch.setattr(Fragments, "barrier", all_but_one)
    run = case("causal, added", "bfloat16", widened=True)
    with pytest.raises(DeviceFault, match=r"byte \d+ of shared memory, which"):
        check_case(compiled_on(small(), run.graph), run)


# --- machine code ---------------------------------------------------------------------------------

KINDS: dict[str, tuple[tuple[int, ...], str, dict[str, Any], int]] = {
    "64": ((8, 1024, 64), "bfloat16", {}, 2 * 32 + 8),
    "causal 128": ((4, 8, 1000, 128), "bfloat16", {"is_causal": True}, 0),
    "80": ((8, 1024, 80), "bfloat16", {}, 0),
    "f16": ((8, 1024, 64), "float16", {}, 0),
}


@pytest.mark.parametrize("kind", long_but([*KINDS], ("64",)))
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a"])
def test_nothing_of_a_step_leaves_registers(chip: str, kind: str) -> None:
    skip_without("cuda")
    shape, dtype, options, products = KINDS[kind]
    made = Cuda.named(chip)
    (kernel,) = lower_to_program(attention(shape, dtype, **options), made).kernels
    code = nvrtc.compile(made.text(kernel), chip)
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    found = {
        name: sum(n for each, n in counts.items() if each.startswith(name))
        for name in ("HMMA", "LDSM", "LDG.E.128", "STL", "LDL", "BAR")
    }
    assert found["HMMA"] >= max(products, 20)
    assert min(found["LDSM"], found["LDG.E.128"]) > 0, counts
    assert not found["STL"] + found["LDL"], counts
    assert found["BAR"] == 3
