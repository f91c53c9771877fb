"""Products of factors that stay in shared memory (wgmma), as CUDA has them: their
texts on the shims, where every access and wait is checked, and machine code for sm_90a.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import CCode
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.codegen.c_family.persistent import spell_tiles_together
from luminal.codegen.c_family.walk import Walk
from luminal.expand.expand import expand
from luminal.kernel.boxes import Tensor
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.schedule.groups.bounds import bounds
from luminal.schedule.groups.work import work
from tests.backends.c_family.left_products import check, device, program, scheduled
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.random_matrices import check as random_product
from tests.long_share import long_but
from tests.simt import driver
from tests.simt.launching import DeviceFault
from tests.simt.tensor_map import words


def ring(dtype: str, columns: int, deep: int, stages: int, copies: str = "boxes") -> Knobs:
    blocks = f"64x{columns} by 64x{columns}"
    return as_knobs(
        {
            "dot": f"wgmma.{dtype}", "blocks": blocks, "deep": deep, "stages": stages,
            "copies": copies,
        }
    )  # fmt: skip


SIZES = 72, 208, 136  # edges on all sides
CASES = {
    "bf16": ("bfloat16", (False, False), ring("bf16", 128, 32, 4)),
    "bf16 by lanes": ("bfloat16", (False, False), ring("bf16", 128, 32, 4, "lanes")),
    "bf16 turned": ("bfloat16", (True, True), ring("bf16", 128, 64, 3)),
    "f16 in two blocks": ("float16", (False, True), ring("f16", 64, 128, 2)),
    "tf32": ("float32", (False, True), ring("tf32", 64, 32, 3)),
    "tf32 turned on its way": ("float32", (True, False), ring("tf32", 64, 16, 2, "values")),
    "int8": ("int8", (False, True), ring("s8", 64, 64, 3)),
    "bf16, three rows of blocks": ("bfloat16", (False, True), ring("bf16", 64, 64, 3)),
    "int8, one factor by lanes": ("int8", (True, True), ring("s8", 64, 64, 3)),
    "e4m3": ("float8_e4m3fn", (False, True), ring("e4m3", 64, 64, 3)),
    "e4m3 by rows of lanes": ("float8_e4m3fn", (False, True), as_knobs({"dot": "mma.e4m3"})),
    "e5m2 by rows of lanes": ("float8_e5m2", (True, False), as_knobs({"dot": "mma.e5m2"})),
}


@pytest.mark.parametrize("name", long_but(CASES, ("bf16",)))
def test_rings_on_the_shims(name: str) -> None:
    dtype, turned, knobs = CASES[name]
    rows = 64 * ("three" in name)  # of which a cluster of two lacks one
    check(dtype, (rows + SIZES[0], *SIZES[1:]), turned, knobs)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 160, 8))
def test_random_products_on_the_shims(first: int) -> None:
    for seed in range(first, first + 8):
        random_product(seed, 140, device())


@pytest.mark.long
@pytest.mark.parametrize("copies", ["boxes", "lanes"])
def test_rows_that_are_a_dim_on_the_shims(copies: str) -> None:
    """Groups share boxes of the other factor, also where a cluster lacks rows."""
    cx, made, k, n = lm.Graph(), device(), 96, 136
    rows = cx.dim("m", 1, 400)
    a, b = cx.tensor((rows, k), lm.bfloat16, "a"), cx.tensor((k, n), lm.bfloat16, "b")
    (a @ b).cast(lm.float32).output("y")
    knobs = {**dict(ring("bf16", 64, 32, 3, copies)), "blocks": "128x64 by 64x64"}
    lowered = scheduled(made, cx.graph(), as_knobs(knobs))
    assert ("share_box" in made.text(lowered.kernels[0])) == (copies == "boxes")
    exe = Executable(cx.graph(), (Variant({}, made.runner(lowered)),))
    rng = np.random.default_rng(0)
    for count in (1, 128, 129, 321):
        x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((count, k), (k, n)))
        held = {"a": x.astype(lm.bfloat16.numpy), "b": y.astype(lm.bfloat16.numpy)}
        np.testing.assert_array_equal(exe(held)["y"], x @ y)


FAULTS = {
    "copies that are not published": (r"\n *publish_copies\(\);", ""),
    "products without a fence": (r"\n *begin_products\(\);", ""),
    "products that are never committed": (r"\n *commit_products\(\);", ""),
    "results that are not awaited": (r"\n *await_products<0>\(\);", ""),
    "a stage that is freed early": (r"await_products<1>", "await_products<2>"),
    "a missing barrier": (r"\n *__syncthreads\(\);", ""),
    "copies that are awaited late": (r"await_copies<1>", "await_copies<2>"),
    "another swizzle": (r"1ull << 62", "2ull << 62"),
    "tiles that lie elsewhere": (r", 4096\)(?=\);|, desc)", ", 2048)"),
}


BOX_FAULTS = {
    "barriers that are not published": (r"\n *publish_copies\(\);", ""),
    "a map that is not acquired": (r"\n *if \(threadIdx.x == 0\) acquire_map\(map_1\);", ""),
    "a barrier that does not begin": (r"\n *begin_barrier\(&\w+\[\(int\)2\]\);", ""),
    "barriers that do not end": (r"\n *end_barrier\(&.*\);", ""),
    "too many bytes": (r"(\n *expect_bytes\(&[^,]*), \(int\)12288\)", r"\1, (int)12304)"),
    "too few bytes": (r"(\n *expect_bytes\(&[^,]*), \(int\)12288\)", r"\1, (int)8192)"),
    "another parity": (r"(\n *await_barrier\(&[^,]*), (\w+)\)", r"\1, \2 ^ 1)"),
    "boxes that nobody awaits": (r"\n *await_barrier\(&.*\);", ""),
    "boxes at another place": (r"(\n *bring_box_2\(.*), (\w+)\);", r"\1, \2 + 8);"),
    "boxes in another line": (r"(\n *bring_box_2\(&\w+\[\w+)\]", r"\1 + 64]"),
    "a stage that is freed early": (r"await_products<1>", "await_products<2>"),
    "a missing barrier": (r"\n *__syncthreads\(\);", ""),
}


@pytest.mark.parametrize("fault", long_but(BOX_FAULTS, ("another parity",)))
def test_faults_of_boxes_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: boxes come at once, or where they are awaited."""
    found(*BOX_FAULTS[fault], "boxes", monkeypatch)


EXPECTED = r"(\n *expect_bytes\(&[^,]*), \(int\)12288\)"
CLUSTER_FAULTS = {
    "a room that nobody waits for": (r"\n *enter_room\(&.*\);", ""),
    "a room that nobody frees": (r"\n *free_room\(&.*\);", ""),
    "a room that is free for its own group alone": (r"(\n *free_room\(&[^,]*), 2\)", r"\1, 1)"),
    "a room for one group": (r"(\n *begin_barrier\(&[^,]*), 2\)", r"\1, 1)"),
    "another parity": (r"(\n *enter_room\(&[^,]*), (\w+)\)", r"\1, \2 ^ 1)"),
    "boxes for oneself alone": (r"(\n *share_box.*)3\);", r"\g<1>1 << rank);"),
    "boxes for the first group alone": (r"(\n *share_box.*)3\);", r"\g<1>1);"),
    "boxes for a group that is not there": (r"(\n *share_box.*)3\);", r"\g<1>7);"),
    "one part, which both bring": (r"(\n *const int rank = ).*", r"\g<1>0;"),
    "lines of the other part": (r"(\n *share_box.*)rank \* 16,", r"\1(1 - rank) * 16,"),
    "bytes of one part": (EXPECTED, r"\1, (int)8192)"),
    "groups that do not meet before": (r"(?s)(\n *)meet_cluster\(\);(.*meet_cluster)",
                                       r"\1__syncthreads();\2"),
    "groups that do not meet after": (r"(?s)(meet_cluster.*\n *)meet_cluster\(\);",
                                      r"\1__syncthreads();"),
    "a stage that is freed early": (r"await_products<1>", "await_products<2>"),
    "a missing barrier": (r"\n *__syncthreads\(\);", ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", long_but(CLUSTER_FAULTS, ("a room that nobody waits for",)))
def test_faults_of_clusters_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads, and of two groups that bring boxes to each other."""
    found(*CLUSTER_FAULTS[fault], "boxes", monkeypatch, rows=128)


@pytest.mark.long
def test_groups_that_are_not_together_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CCode, "cluster", 1)
    with pytest.raises(DeviceFault, match="not there"):
        check("bfloat16", (128, 256, 128), (False, False), ring("bf16", 128, 32, 4))


@pytest.mark.long
def test_another_swizzle_of_a_map_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver is told is the kernel's own word: a map of other lines brings another
    order."""

    def wrong(tensor: Tensor, address: int) -> Any:
        made = words(tensor, address)
        made[1] = made[1] & ~np.uint64(0xFFFF << 16) | np.uint64(32 << 16)
        return made

    monkeypatch.setattr(driver, "words", wrong)
    with pytest.raises(AssertionError, match="not equal"):
        check("bfloat16", (64, 256, 128), (False, False), ring("bf16", 128, 32, 4))


@pytest.mark.parametrize("fault", long_but(FAULTS, ("a stage that is freed early",)))
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: products are made at once, or where they are awaited."""
    found(*FAULTS[fault], "lanes", monkeypatch)


def found(
    before: str, after: str, copies: str, monkeypatch: pytest.MonkeyPatch, rows: int = 64
) -> None:
    """Sees that a kernel in whose text this stands in place of that does not pass for right."""
    own = Walk.text

    def wrong(self: Walk) -> str:
        head, name, rest = own(self).partition('extern "C"')
        where = r"\n" in before or "await" in before or "4096" in before
        if where:
            rest, count = re.subn(before, after, rest)
        else:
            head, count = re.subn(before, after, head)
        assert count, f"{before} is not there"
        return head + name + rest

    monkeypatch.setattr(Walk, "text", wrong)
    with pytest.raises((DeviceFault, AssertionError)):
        check("bfloat16", (rows, 256, 128), (False, False), ring("bf16", 128, 32, 4, copies))


N = 2048
MACHINE = {
    "bf16": ("bfloat16", (False, False), {"dot": "wgmma.bf16"}),
    "bf16 in a ring of four": (
        "bfloat16", (False, True), {"dot": "wgmma.bf16", "deep": 64, "stages": 4},
    ),
    "f16": ("float16", (True, True), {"dot": "wgmma.f16"}),
    "int8": ("int8", (False, True), {"dot": "wgmma.s8"}),
    "int8 turned on its way": ("int8", (True, False), {"dot": "wgmma.s8"}),
}  # fmt: skip


@pytest.mark.parametrize("name", long_but(MACHINE, ("bf16 in a ring of four",)))
def test_machine_code_multiplies_by_warp_groups(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is one batch of as many products as it has steps of the dot, none of which waits."""
    skip_without("cuda")
    dtype, turned, knobs = MACHINE[name]
    made = Cuda.named("sm_90a")
    (kernel,) = program(made, dtype, (N, N, N), turned, as_knobs(knobs)).kernels
    text, words, own = made.text(kernel), [], nvrtc._measured

    def measured(code: bytes, log: str) -> nvrtc.Cubin:
        words.append(log)
        return own(code, log)

    monkeypatch.setattr(nvrtc, "_measured", measured)
    code = nvrtc.compile(text, "sm_90a")
    assert code.spilled == code.stack == 0
    assert "C75" not in words[0]
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    batch = sum(n for key, n in counts.items() if key.startswith(("HGMMA", "IGMMA")))
    assert batch >= 2 * counts["WARPGROUP.ARRIVE"] > 0, "products are serialized"
    comes = not (turned[0] and dtype == "int8")  # else both are turned on their way
    boxes = "UTMALDG.2D", "UTMALDG.2D.MULTICAST", "UCGABAR_ARV"  # the second to a cluster
    barriers = "SYNCS.ARRIVE.TRANS64", "SYNCS.PHASECHK.TRANS64.TRYWAIT"
    assert all((counts[key] > 0) == comes for key in (*boxes, *barriers))
    assert not any(key.startswith(("HMMA", "IMMA")) for key in counts)


@pytest.mark.long
@pytest.mark.parametrize("chip", ["sm_80", "sm_100a"])
def test_other_chips_have_other_dots(chip: str) -> None:
    made = Cuda.named(chip)
    (kernel,) = program(made, "bfloat16", (N, N, N), (False, True), ()).kernels
    assert "wgmma" not in made.text(kernel)


@pytest.mark.long
def test_a_persistent_kernel_multiplies_by_warp_groups() -> None:
    """As a task among others: in registers, and without products that wait for each other."""
    skip_without("cuda")
    made = Cuda.named("sm_90a")
    kernels = [
        program(made, "bfloat16", (n, n, n), (False, False), as_knobs({"dot": dot})).kernels[0]
        for n, dot in ((4096, "wgmma.bf16"), (1024, "mma.bf16"))
    ]
    code = nvrtc.compile(spell_tiles_together(kernels, made.dialect).text, "sm_90a")
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    assert counts["HGMMA.64"] >= 2 * counts["WARPGROUP.ARRIVE"] > 0
    assert counts["HMMA.16816.F32.BF16"]


def test_warp_groups_share_the_time_of_the_matrix_units() -> None:
    """By the static model of a large product; and a search may try the other dot."""
    made, n = Cuda.named("sm_90a"), 8192
    assert made.chip is not None
    shares = {}
    for dot in ("wgmma.bf16", "mma.bf16"):
        (kernel,) = program(
            made, "bfloat16", (n, n, n), (False, False), as_knobs({"dot": dot})
        ).kernels
        expanded = expand(kernel, instructions=made.dialect.instructions)
        chunks = int(expanded.chunks.evaluate({}))
        found = bounds(work(expanded, {}), made.chip, chunks, 6 * n * n, made.walkers)
        least = n**3 / (made.chip.pipes.left * made.chip.units * made.chip.hertz)
        shares[dot] = least / max(found.issue, found.shared), least / found.seconds
    assert shares["wgmma.bf16"][0] > 0.9 > 0.65 > shares["mma.bf16"][0]
    assert shares["wgmma.bf16"][1] > 0.93 > 0.5 > shares["mma.bf16"][1]
