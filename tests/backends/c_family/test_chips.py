"""Chips by name: programs are compiled for those that are not here, and facts come from rows where
no driver tells them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import chips as cuda_chips
from luminal.backends.cuda import sass
from luminal.backends.hip import chips as hip_chips
from luminal.backends.metal import chips as metal_chips
from luminal.base.dots import (
    MFMA_BF16,
    MFMA_F16,
    MFMA_F32,
    MFMA_F64,
    MFMA_S8_DEEP,
    MMA_BF16,
    MMA_F64,
    MMA_S8,
    MMA_TF32,
    Dot,
)
from luminal.cli.main import app
from luminal.schedule.groups.chip import nearest
from tests.backends.cuda.present import needs_nvrtc

TABLES = {"cuda": cuda_chips.CHIPS, "hip": hip_chips.CHIPS, "metal": metal_chips.CHIPS}
NAMES = [f"{base}:{chip.name}" for base, chips in TABLES.items() for chip in chips]
ONE = "cuda:sm_90a"


def softmax() -> lm.Graph:
    cx = lm.Graph()
    cx.tensor((64, 256), name="x").softmax(-1).output("y")
    return cx


PEAKS = (
    ("cuda:sm_80", MMA_BF16, 312), ("cuda:sm_80", MMA_TF32, 156), ("cuda:sm_80", MMA_F64, 19.5),
    ("cuda:sm_80", MMA_S8, 624), ("hip:gfx90a", MFMA_F16, 383 / 2),
    ("hip:gfx90a", MFMA_F32, 95.7 / 2), ("hip:gfx90a", MFMA_F64, 95.7 / 2),
    ("hip:gfx942", MFMA_BF16, 1307), ("hip:gfx942", MFMA_F32, 163.4),
    ("hip:gfx942", MFMA_F64, 163.4), ("hip:gfx942", MFMA_S8_DEEP, 2615),
)  # fmt: skip
"""Of the makers' data sheets, in 1e12 operations a second, two for a product."""


@pytest.mark.parametrize(("name", "dot", "peak"), PEAKS)
def test_products_of_each_row_have_the_makers_rate(name: str, dot: Dot, peak: float) -> None:
    made = registry.compiling(name)
    assert isinstance(made, CBackend)
    assert made.chip is not None
    rate = 2e-12 * made.chip.pipes.products(dot) * made.chip.units * made.chip.hertz
    assert rate == pytest.approx(peak, rel=0.01)  # data sheets have three digits


def test_the_chips() -> None:
    expected = [
        *(f"cuda:sm_{name}" for name in ("80", "86", "89", "90a", "100a", "120a")),
        *(f"hip:gfx{name}" for name in ("90a", "942", "1100", "1201")),
        *(f"metal:apple{n}" for n in (7, 8, 9)),
    ]
    assert expected == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_plausible(name: str) -> None:
    """A unit's groups fit in it, and no pipe does more than is issued."""
    base, _, own = name.partition(":")
    (chip,) = (chip for chip in TABLES[base] if chip.name == own)
    assert 16 <= chip.units <= 512
    assert 32 << 10 <= chip.group_bytes <= chip.unit_bytes <= 256 << 10
    assert chip.most_lanes <= chip.resident <= chip.registers
    assert 1e11 < chip.memory < 1e13
    assert 1e9 < chip.hertz < 3e9
    pipes = chip.pipes
    assert max(pipes.f32, pipes.f64, pipes.i32, pipes.special, pipes.exchange) <= pipes.issue
    assert chip.memory / chip.units / chip.hertz < 64  # bytes a cycle


@pytest.mark.parametrize("name", NAMES)
def test_programs_are_compiled_and_do_not_run(name: str) -> None:
    exe = lm.compile(softmax(), name)
    assert "luminal_kernel" in exe.text("c")
    assert f", {name}, fast" in repr(exe)
    assert "Max.Mul.Add.Exp2.Sum.Recip" in str(exe.report())
    x = np.ones((64, 256), np.float32)
    reason = f"^{name}: this chip is not here; .* 'cpu'$"
    with pytest.raises(lm.DeviceError, match=reason):
        exe(x=x)
    with pytest.raises(lm.DeviceError, match=reason):
        exe.profile(x=x)
    with pytest.raises(lm.DeviceError, match=reason):
        lm.State((4,)).to(name)
    with pytest.raises(lm.DeviceError, match=reason):
        lm.compile(softmax(), name, mode=lm.TimeBudget(1.0))
    np.testing.assert_allclose(exe.to("cpu")(x=x)["y"], 1 / 256)


def test_a_run_that_fails_leaves_states_as_they_were() -> None:
    cx = lm.Graph()
    state = lm.State((4,), name="s")
    state.set(np.arange(4, dtype=np.float32))
    cx.assign(state, cx.read(state) + 1.0)
    exe = lm.compile(cx, ONE)
    with pytest.raises(lm.DeviceError, match="not here"):
        exe()
    np.testing.assert_array_equal(state.numpy(), np.arange(4))


@pytest.mark.parametrize(("base", "name"), [("cuda", "sm_70"), ("hip", "sm_80"), ("metal", "m4")])
def test_an_unknown_chip_is_an_error_with_the_known_ones(base: str, name: str) -> None:
    with pytest.raises(lm.CompileError) as error:
        registry.find(f"{base}:{name}")
    text = str(error.value)
    assert f"backend '{base}:{name}': no chip '{name}' is known; takes" in text
    assert all(f"'{base}:{chip.name}'" in text for chip in TABLES[base])
    assert f"'{base}:0'" in text


@pytest.mark.parametrize("base", TABLES)
def test_an_absent_device_says_what_compiles_without_one(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def current(number: int) -> Backend:
        raise lm.CompileError("there is no driver")

    row = registry.BACKENDS[base]
    monkeypatch.setattr(f"{row.module}.current", current)
    with pytest.raises(lm.CompileError) as error:
        registry.find(base)
    text = f"backend '{base}' is not usable: there is no driver; '{base}:{row.example}' compiles"
    assert str(error.value) == f"{text} for a chip that need not be here"
    assert registry.find(f"{base}:{row.example}").name == f"{base}:{row.example}"


def test_other_backends_take_numbers_only() -> None:
    with pytest.raises(lm.CompileError, match="backend 'cpu:sm_80': takes 'cpu'"):
        registry.find("cpu:sm_80")


@pytest.mark.parametrize(
    ("name", "like"),
    [("sm_87", "sm_86"), ("sm_103a", "sm_100a"), ("sm_121a", "sm_120a"), ("sm_75", "sm_80")],
)
def test_a_chip_without_a_row_is_like_an_older_one(name: str, like: str) -> None:
    chip = nearest(name, cuda_chips.CHIPS, cuda_chips.capability)
    assert (chip.name, chip.like) == (name, like)
    assert str(chip) == f"{name}, taken for {like}"
    (row,) = (row for row in cuda_chips.CHIPS if row.name == like)
    assert replace(chip, name=like, like="") == row


@pytest.mark.parametrize(
    ("name", "like"), [("gfx950", "gfx942"), ("gfx1030", "gfx1100"), ("gfx1200", "gfx1100")]
)
def test_a_chip_of_amd_is_like_one_of_its_family(name: str, like: str) -> None:
    assert hip_chips.like(name).like == like
    assert hip_chips.like(like).like == ""


def test_what_the_driver_tells_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dict.fromkeys(cuda_chips.presence.ATTRIBUTES, 0)
    facts |= {"major": 9, "units": 114, "memory_clock": 1_593_000, "memory_bits": 5120}
    monkeypatch.setattr(cuda_chips.presence, "attributes", lambda number: facts)
    chip = cuda_chips.present(0)
    assert (chip.name, chip.like, chip.units) == ("sm_90a", "", 114)  # an H100 for PCIe
    assert chip.memory == pytest.approx(2.039e12, rel=1e-3)
    assert chip.cache_bytes == 50 << 20
    properties: Any = SimpleNamespace(
        gcnArchName="gfx950:sramecc+:xnack-", multiProcessorCount=256, sharedMemPerBlock=160 << 10,
        maxThreadsPerMultiProcessor=2048, maxThreadsPerBlock=1024, warpSize=64,
        clockRate=2_400_000, memoryClockRate=0, memoryBusWidth=8192,
    )  # fmt: skip
    chip = hip_chips.present(properties)
    assert (str(chip), chip.units) == ("gfx950, taken for gfx942", 256)
    assert (chip.group_bytes, chip.memory) == (160 << 10, 5.3e12)
    device: Any = SimpleNamespace(
        supportsFamily_=lambda family: family <= 1010, maxThreadgroupMemoryLength=lambda: 32 << 10
    )
    assert str(metal_chips.present(device)) == "apple10, taken for apple9"


def test_devices_say_which_chip_they_are_taken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = nearest("sm_103a", cuda_chips.CHIPS, cuda_chips.capability)
    backend: CBackend = replace(registry.find(ONE), target=type(registry.find(ONE)).of(chip).target)
    monkeypatch.setattr(registry.Row, "unavailable", lambda row: None if row.name == "cuda" else "")
    monkeypatch.setattr(registry.Row, "current", lambda row, number=0: backend)
    monkeypatch.setattr(registry.Row, "count", lambda row: 1)
    monkeypatch.setattr(
        "luminal.runtime.absent_driver.AbsentDriver.memory",
        lambda driver: lm.devices.__globals__["DeviceMemory"](1, 1),
    )
    (cuda,) = (device for device in lm.devices() if device.usable)
    assert "on NVIDIA's GPUs: sm_103a, taken for sm_100a" in cuda.summary


def test_the_command_prints_texts_without_a_device(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "graphs.py"
    file.write_text(
        "import luminal as lm\n\ndef f():\n    cx = lm.Graph()\n"
        "    (cx.tensor((4096,), name='x') * 2).output('y')\n    return cx\n"
    )
    app(["compile", f"{file}:f", "--device", ONE, "--dump", "c"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert printed.startswith("k0:\n")
    assert "__global__" in printed
    app(["compile", f"{file}:f", "--device", ONE, "--explain"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert re.search(r"^k0 Mul.*: \S+ us, bound by \w+ \(.*\); \d+ registers, .*$", printed, re.M)
    assert re.search(r"^a run: \S+ us, of which launches 5 each$", printed, re.M)
    app(["compile", f"{file}:f", "--explain"], standalone_mode=False)
    assert "bound by" not in capsys.readouterr().out


@needs_nvrtc
def test_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed (wheel nvidia-cuda-nvdisasm)")
    exe = lm.compile(softmax(), ONE)
    counted = sass.counts(exe.text("sass"))
    assert counted["EXIT"] >= 1
    assert any(name.startswith("LDG.E") for name in counted)
    monkeypatch.setattr(sass, "tool", lambda: None)
    with pytest.raises(lm.CompileError, match="nvdisasm is not installed; install it by"):
        exe.text("sass")
    with pytest.raises(lm.CompileError, match=r"'hip:gfx942' has no stage 'sass': .* c$"):
        lm.compile(softmax(), "hip:gfx942").text("sass")
