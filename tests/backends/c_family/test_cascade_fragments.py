"""Attention in fragments as NVIDIA's chips run it: its texts on the shims, where every access and
barrier is checked, and as machine code of chips that are not here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.backends import device_costs, registry
from luminal.backends.c_backend import CBackend, machine
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.backends.cuda.chips import CHIPS
from luminal.base.costs import Costs
from luminal.base.dots import MMA, SIMDGROUP, SIMDGROUP_F32
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_to_program
from luminal.expand.expand import expand
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.hlir.graph import Graph
from luminal.kernel.cascade_fragments import Fragments
from luminal.kernel.tile_ir import Kernel, Retile
from luminal.program.launch_list import walk
from luminal.schedule.groups.bounds import bounds
from luminal.schedule.groups.counts import Work
from luminal.schedule.groups.work import work
from luminal.schedule.vectors.vector_target import VectorTarget
from tests.backends.c_family.checked import checked
from tests.backends.c_family.left_attention import by_warp_groups
from tests.backends.c_family.offline import skip_without
from tests.backends.cpu.schedule.cascade_cases import CASES, case
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
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


@pytest.mark.parametrize("dtype", mostly_long(["bfloat16", "float16"], 1))
def test_attention_by_apples_matrices(dtype: str) -> None:
    run, made = case("no heads", dtype, widened=True), checked("metal", SIMDGROUP)
    (kernel,) = lower_to_program(run.graph, made).kernels
    assert by_fragments(kernel)
    check_case(compiled_on(made, run.graph), run)


def test_apples_matrices_take_f32_whole() -> None:
    """Of f32 a computed factor is one part, which loses nothing."""
    run, made = case("no heads"), checked("metal", (SIMDGROUP_F32,))
    (kernel,) = lower_to_program(run.graph, made).kernels
    assert by_fragments(kernel)
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


@pytest.mark.long
def test_factors_beyond_the_range_of_f16_are_shares() -> None:
    """Of the greatest one of their row: nothing bounds what a step computes here."""
    run = case("relu", "float16", widened=True)
    device = checked()
    assert all(map(by_fragments, lower_to_program(run.graph, device).kernels))
    check_case(compiled_on(device, run.graph), run)


def test_a_missing_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rows of a chunk are copied; others are planted where kernels are interpreted."""
    own, barriers = Fragments.barrier, list[Fragments]()

    def all_but_the_first(self: Fragments) -> None:
        barriers.append(self)
        if len(barriers) % 2 == 0:
            own(self)

    monkeypatch.setattr(Fragments, "barrier", all_but_the_first)
    run = case("causal, added", "bfloat16", widened=True)
    with pytest.raises(DeviceFault, match=r"byte \d+ of shared memory, which"):
        check_case(compiled_on(small(), run.graph), run)


# --- machine code ---------------------------------------------------------------------------------

KINDS: dict[str, tuple[tuple[int, ...], str, dict[str, Any], int]] = {
    "64": ((8, 1024, 64), "bfloat16", {}, 2 * 32 + 8),
    "causal 128": ((4, 8, 1000, 128), "bfloat16", {"is_causal": True}, 0),
    "80": ((8, 1024, 80), "bfloat16", {}, 0),
    "96": ((2, 8, 500, 96), "bfloat16", {"is_causal": True}, 0),
    "f16": ((8, 1024, 64), "float16", {}, 0),
}


@pytest.mark.parametrize("kind", long_but([*KINDS], ("64",)))
@pytest.mark.parametrize("chip", long_but(["sm_80", "sm_100a"], ("sm_100a",)))
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
        for name in ("HMMA", "LDSM", "LDG.E.128", "LDGSTS", "STL", "LDL", "BAR", "F2F")
    }
    assert found["HMMA"] >= max(products, 20)
    assert min(found["LDSM"], found["LDG.E.128"], found["LDGSTS"]) > 0, counts
    assert not found["STL"] + found["LDL"], counts
    assert found["BAR"] == 2
    assert found["F2F"] >= 32  # two parts of each score are rounded, one or two by an instruction


def counted(graph: Graph) -> list[tuple[Work, float]]:
    """The work of each launch on an H100, and the seconds that the static model gives it."""
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    (chip,) = (chip for chip in CHIPS if chip.name == "sm_90a")
    program, found = lower_to_program(graph, made), []
    for launch in walk(program.launches):
        expanded = expand(program.kernels[launch.kernel], instructions=made.dialect.instructions)
        chunks, size = (int(n.evaluate({})) for n in (launch.chunks, launch.bytes))
        counts = work(expanded, {}, made.dialect.instructions)
        found.append((counts, bounds(counts, chip, chunks, size, 32).seconds))
    return found


def test_the_model_of_an_h100() -> None:
    """22 us, of which instructions take 15, when attention was first in fragments."""
    ((counts, seconds),) = counted(attention((8, 1024, 64), "bfloat16"))
    assert seconds < 25e-6
    assert not any(each.place == "scratch" for each in counts.accesses)


def test_f32_reads_keys_side_by_side() -> None:
    """Lanes that read rows of their own touched eight times as many sectors as these have."""
    ((counts, seconds),) = counted(attention((8, 1024, 64), "float32"))
    assert seconds < 300e-6  # 690 us before
    assert not any(each.place == "scratch" for each in counts.accesses)
    far = [each for each in counts.accesses if each.place == "global" and each.is_looped]
    assert max(each.excess for each in far) <= 2


# --- the gradient ---------------------------------------------------------------------------------


def gradient(shape: tuple[int, ...], **options: Any) -> Graph:
    cx = lm.Graph()
    q, k, v, g = (cx.tensor(shape, name=name, dtype="bfloat16") for name in "qkvg")
    y = scaled_dot_product_attention(q, k, v, **options)
    loss = (y.cast("float32") * g.cast("float32")).sum()
    for name, x in zip("qkv", lm.grad(loss, [q, k, v]), strict=True):
        x.output(f"d{name}")
    return cx.graph()


@pytest.mark.long
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("numerics", [Numerics.STANDARD, Numerics.RELAXED])
def test_gradients_stay_in_registers(width: int, numerics: Numerics) -> None:
    skip_without("cuda")
    made = Cuda.named("sm_90a")
    for kernel in lower_to_program(gradient((8, 1024, width)), made, numerics).kernels:
        assert by_fragments(kernel)
        code = nvrtc.compile(made.text(kernel), "sm_90a")
        assert code.spilled == code.stack == 0


@pytest.mark.long
def test_the_gradient_is_passes_in_fragments() -> None:
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    kernels = lower_to_program(gradient((8, 1024, 64)), made).kernels
    assert len(kernels) == 3
    assert all(map(by_fragments, kernels))
    assert all(map(by_warp_groups, kernels))


def of_slow_memory(target: VectorTarget) -> Costs:
    """The costs of a device that computes scores again before it stores them."""
    return replace(device_costs.gpu(target), memory=1e6, cache=1e6)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_gradients_on_the_shims(options: dict[str, Any]) -> None:
    target = machine("cuda", 2, 32 << 10, 1 << 17, dots=MMA)
    made = replace(checked(), target=target, costs_of=of_slow_memory)
    graph, rng = gradient((2, 70, 8), **options), np.random.default_rng(0)
    assert all(map(by_fragments, lower_to_program(graph, made).kernels))
    inputs = {n: rng.standard_normal((2, 70, 8)).astype(ml_dtypes.bfloat16) for n in "qkvg"}
    check_case(compiled_on(made, graph), Case(graph, inputs, {}, {}), 1.0)
