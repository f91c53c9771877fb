"""Which backend computes a graph of FX: what its tensors without data say, which need no device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import luminal as lm
from luminal.backends.cuda import presence
from luminal.base.errors import CompileError
from luminal.torch_backend.compiled import compiled
from luminal.torch_backend.devices import HOST, backend_of, device_of
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.plans import OutputPlan, Results
from luminal.torch_backend.translation import translated


def traced(function: Callable[..., Any], *devices: str) -> Any:
    """The aten graph of a function of 4 by 4 tensors on these devices."""
    with FakeTensorMode():
        held = [torch.empty(4, 4, device=device) for device in devices]
    return make_fx(function, tracing_mode="fake")(*held)


@pytest.mark.parametrize(
    ("function", "devices", "backend"),
    [
        (lambda x: x + 1, ["cpu"], "cpu"),
        (lambda x: x + 1, ["cuda"], "cuda:0"),
        (lambda x: x + 1, ["cuda:1"], "cuda:1"),
        (lambda x, y: x + y[0, 0], ["cuda:1", "cpu"], "cuda:1"),
        (lambda x: x.to("cuda:2") * 2, ["cpu"], "cuda:2"),
        (lambda x: x.cpu() * 2, ["cuda:1"], "cuda:1"),
        (lambda: torch.arange(4, device="cuda:3"), [], "cuda:3"),
        (lambda x: torch.arange(4) * 2, ["cpu"], "cpu"),
    ],
)
def test_the_backend_is_that_of_the_tensors(
    function: Callable[..., Any], devices: list[str], backend: str
) -> None:
    assert backend_of(device_of(traced(function, *devices))) == backend


def test_gpus_of_amd_are_cuda_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "rocm", "7.0")
    assert backend_of(torch.device("cuda:1")) == "hip:1"
    assert backend_of(HOST) == "cpu"


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (["cuda:0", "cuda:1"], "cuda:0 and cuda:1: a program runs on one device; compile"),
        (["meta"], "meta: programs take those of CPUs, CUDA and ROCm"),
    ],
)
def test_what_no_program_can_take_is_named(devices: list[str], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        device_of(traced(lambda *xs: [x * 2 for x in xs], *devices))


def test_a_plan_says_what_lies_where() -> None:
    def function(x: torch.Tensor, s: torch.Tensor) -> Any:
        return x * s[0, 0], x.cpu(), x.sum()

    made = translated(traced(function, "cuda:1", "cpu"), (), Results())
    assert [plan.is_host for plan in made.inputs] == [False, True]
    plans = [plan for plan in made.results if isinstance(plan, OutputPlan)]
    assert [str(plan.device) for plan in plans] == ["cuda:1", "cpu", "cuda:1"]


def test_parameters_are_read_where_they_lie_and_positions_are_asserted_there() -> None:
    def function(table: torch.Tensor, ids: torch.Tensor) -> Any:
        return (table.index_select(0, ids.flatten().to(torch.int64)),)

    on_device = translated(traced(function, "cuda", "cuda"), (0,), Results())
    on_host = translated(traced(function, "cpu", "cpu"), (0,), Results())
    assert [plan.parameter is None for plan in on_device.inputs] == [True, True]
    assert [plan.parameter is None for plan in on_host.inputs] == [False, True]
    assert len(on_device.checks) == 1


def test_programs_for_a_chip_that_is_not_here() -> None:
    made = translated(traced(lambda x: (x.softmax(-1),), "cuda"), (), Results())
    assert "__global__" in lm.compile(made.graph, "cuda:sm_90a").text("c")


@pytest.mark.skipif(presence.absence() is None, reason="there is a device")
def test_a_device_that_cannot_be_used_says_why() -> None:
    made = translated(traced(lambda x: (x + 1,), "cuda"), (), Results())
    with pytest.raises(CompileError, match="backend 'cuda:0' is not usable: "):
        compiled(made, {})
