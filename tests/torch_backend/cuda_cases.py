"""Tensors of CUDA through `torch.compile`: run by test_cuda.py in a process of its own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import luminal as lm
from luminal.backends import registry
from tests.long_share import mostly_long
from tests.simt import stand_in, torch_cuda
from tests.torch_backend.whole import compiled

os.environ.pop("LD_PRELOAD", None)  # of this process, not of the compilers that it starts
KEPT = torch_cuda.install()
COUNTED = ("copy", "graph", "launch", "wait", "order", "sent", "fetched")

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of torch.export itself
]


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with stand_in.nvrtc_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield


def calls() -> dict[str, int]:
    """How often the driver was asked, by what for, and the bytes copied from and to the host."""
    count = ctypes.CDLL(stand_in.CUDA).stand_in_calls
    return {name: count(name.encode()) for name in COUNTED}


def steady(call: Callable[[], Any], warm: int = 4) -> dict[str, int]:
    """What one call asks of the driver, and which operators PyTorch runs there, once it is warm."""
    for _ in range(warm):
        result = call()
    before, operators = calls(), torch_cuda.USED.copy()
    result = call()  # while the last one's result is there, as in loops
    del result
    asked = {name: n - before[name] for name, n in calls().items()}
    return asked | dict(torch_cuda.USED - operators)


def there(x: Any, index: int = 0) -> Any:
    """Tensors of the host, on the device."""
    if isinstance(x, nn.Module):
        return x.to(f"cuda:{index}")
    return x.to(f"cuda:{index}") if isinstance(x, torch.Tensor) else x


def agree(found: Any, wanted: Any) -> None:
    # a few layers of float32: 80 ulp of values about 1
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


ONE_CALL = {"copy": 0, "graph": 1, "launch": 0, "wait": 0, "order": 2, "sent": 0, "fetched": 0}
"""A run: its graph, and two waits between streams, by which nobody on the host waits."""


def test_a_call_is_one_launch_and_copies_nothing() -> None:
    model, x = network(), torch.randn(3, 4)
    with torch.no_grad():
        wanted = model(x)
        fast, on_device = compiled(there(model)), there(x)
        y = fast(on_device)
        assert y.device == torch.device("cuda:0")
        agree(y, wanted)
        assert steady(lambda: fast(on_device)) == ONE_CALL | {"empty_strided": 1}
        agree(fast(on_device), wanted)


@pytest.mark.parametrize("ours_first", mostly_long([False, True], 1))
def test_runs_and_pytorchs_stream_wait_for_each_other(ours_first: bool) -> None:
    """What PyTorch has queued is not there before somebody waits, and our runs' results neither:
    both orders in which a device may get to the two streams are right.
    """
    fast, driver = compiled(lambda x: x * 2 + 1), registry.find("cuda:0").memory.driver
    found = []
    for step in range(6):
        x = there(torch.full((5,), float(step)))
        y = fast(x)
        if ours_first:
            driver.wait()
        x.fill_(100.0)  # behind the run that reads it
        found.append(y.cpu()[0].item())
    assert found == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]


def test_memory_is_used_again_behind_the_run_that_reads_it() -> None:
    """Nobody holds what a chain of calls hands on, and no call is waited for."""
    fast = compiled(lambda x: x * 2)
    x = there(torch.ones(7))
    for _ in range(9):
        x = fast(x)
    torch.testing.assert_close(x.cpu(), torch.full((7,), 512.0))


@pytest.mark.long
def test_training_changes_parameters_where_they_lie() -> None:
    torch.manual_seed(3)
    models = [network(), network()]
    models[1].load_state_dict(models[0].state_dict())
    there(models[1])
    fast = compiled(models[1])
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in models]
    update = torch.compile(optimizers[1].step, backend="luminal")
    addresses = [p.data_ptr() for p in models[1].parameters()]
    x = torch.randn(3, 4)
    on_device = there(x)

    def step() -> Any:
        optimizers[1].zero_grad()
        loss = fast(on_device).square().mean()
        loss.backward()
        update()
        return loss.detach()

    for _ in range(6):
        optimizers[0].zero_grad()
        loss = models[0](x).square().mean()
        loss.backward()
        optimizers[0].step()
        agree(step(), loss.detach())
    for found, wanted in zip(models[1].parameters(), models[0].parameters(), strict=True):
        agree(found.detach(), wanted.detach())
    assert [p.data_ptr() for p in models[1].parameters()] == addresses
    asked = steady(lambda: update())
    assert asked["sent"] == asked["fetched"] == asked["wait"] == 0


@pytest.mark.parametrize(
    "function",
    mostly_long(
        [
            lambda x, s: (x.cpu() * 2, x * 3),
            lambda x, s: (x.to(torch.bfloat16) * 2, x.double().sum(), (x * 4).view(torch.int32)),
            lambda x, s: x * s + 1,
            lambda x, s: x + torch.arange(4, device=x.device) * s,
            lambda x, s: x + torch.arange(4.0).to(x.device),
            lambda x, s: (x + 1, (x + 1) * 1, x.sum().cpu()),
            lambda x, s: (y := x * 2, y.clone(), y.cpu()),
            lambda x, s: x.t() @ x,
            lambda x, s: x[1:] * 2,
            lambda x, s: x.view(torch.int32)[:, ::2] + 1,
            lambda x, s: (x.max(-1).values, x.argmax(-1), x > 0),
            lambda x, s: x.new_zeros(2, 2) + torch.full((2,), 7, device=x.device),
        ],
        3,
    ),
)
def test_mixed_devices_and_places(function: Callable[..., Any]) -> None:
    """A scalar of the host beside, what graphs make there, copies to and from the host within."""
    x, s = torch.randn(3, 4), torch.tensor(2.5)
    fast = compiled(function)
    for run in range(3):
        found, wanted = fast(there(x + run), s), function(x + run, s)
        for y, expected in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
            assert y.dtype is expected.dtype
            agree(y, expected)


@pytest.mark.long
def test_results_of_the_host_lie_there() -> None:
    fast = compiled(lambda x: (x.cpu() + 1, x + 1, x.cpu().to("cuda")))
    at_host, stayed, again = fast(there(torch.ones(3)))
    devices = [y.device.type for y in (at_host, stayed, again)]
    assert devices == ["cpu", "cuda", "cuda"]
    torch.testing.assert_close(at_host, torch.full((3,), 2.0))
    agree(stayed, torch.full((3,), 2.0))
    agree(again, torch.ones(3))


def test_results_of_the_host_are_waited_for() -> None:
    """Those of a recorded run too, which it leaves in memory of its own first."""
    fast, x = compiled(lambda x: (x.sum().cpu(), x * 2)), there(torch.zeros(3))
    for step in range(6):
        before = calls()["graph"]
        assert fast(x)[0].item() == 3.0 * step
        x.add_(1)
    assert calls()["graph"] == before + 1


@pytest.mark.long
def test_arguments_of_the_host_alone_are_brought() -> None:
    fast = compiled(lambda x: x.to("cuda") * 2)
    for step in range(3):
        y = fast(torch.full((4,), float(step)))
        assert y.device.type == "cuda"
        agree(y, torch.full((4,), 2.0 * step))


def test_the_second_device_by_its_index() -> None:
    fast = compiled(lambda x: x.softmax(-1))
    x = torch.randn(3, 4)
    for index in (0, 1, 0, 1):
        y = fast(there(x, index))
        assert y.device == torch.device("cuda", index)
        assert torch_cuda.torch_exchange(-1) == 0  # what was current before
        agree(y, x.softmax(-1))


@pytest.mark.long
def test_two_devices_in_one_graph_are_named() -> None:
    a, b = there(torch.ones(3), 0), there(torch.ones(3), 1)

    def both(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a * 2, b * 3

    words = "tensors on cuda:0 and cuda:1: a program runs on one device"
    with pytest.raises(Exception, match=words):
        compiled(both)(a, b)
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match=words):
        found = torch.compile(both, backend="luminal")(a, b)
    agree(found[1], torch.full((3,), 3.0))


def test_states_are_the_tensors_that_calls_write() -> None:
    cache = torch.zeros(4, 3)
    on_device, odd = there(cache), there(torch.arange(6.0).reshape(2, 3)).t()

    def write(cache: torch.Tensor, odd: torch.Tensor, at: torch.Tensor) -> Any:
        cache.index_copy_(0, at, torch.ones(1, 3, device=cache.device) * (at + 1))
        odd.copy_(odd.flip(0) + 1)
        return cache.sum()

    fast, expected = compiled(write), torch.arange(6.0).reshape(2, 3).t()
    for step in (0, 2, 1, 3, 0):
        at = torch.tensor([step])
        total = write(cache, expected, at)
        agree(fast(on_device, odd, there(at)), total)
        agree(on_device, cache)
        agree(odd, expected)
    asked = steady(lambda: fast(on_device, odd, there(torch.tensor([1]))))
    assert asked["fetched"] == 0
    assert asked["sent"] == 8  # the position that the test itself brings


def test_positions_are_looked_at_where_they_lie() -> None:
    table = nn.Embedding(5, 4)
    fast, ids = compiled(there(table)), there(torch.tensor([1, 4, 0]))
    with torch.no_grad():
        agree(fast(ids), table.cpu()(torch.tensor([1, 4, 0])))
        there(table)
        asked = steady(lambda: fast(ids))
        assert (asked["sent"], asked["fetched"], asked["graph"]) == (0, 0, 1)
        assert asked["_assert_async"] == 1
        with pytest.raises(RuntimeError, match="out of range"):
            fast(there(torch.tensor([1, 5, 0])))


@pytest.mark.parametrize("index", mostly_long([[0, 7], [-7, 1]], 1))
def test_what_is_cut_out_by_positions_is_looked_at(index: list[int]) -> None:
    fast, x = compiled(lambda x, at: x[at] * 2), torch.arange(6.0)
    agree(fast(there(x), there(torch.tensor([-6, 5]))), torch.tensor([0.0, 10.0]))
    with pytest.raises(RuntimeError, match="out of range"):
        fast(there(x), there(torch.tensor(index)))


@pytest.mark.long
def test_open_sizes_and_none_at_all() -> None:
    fast = compiled(lambda x: (x * 2).sum(-1), dynamic=True)
    for n in (5, 3, 9, 2, 5):
        x = torch.randn(n, 4)
        agree(fast(there(x)), (x * 2).sum(-1))
    whole = compiled(lambda x: x * 2)
    assert whole(there(torch.empty(0, 4))).shape == (0, 4)


@pytest.mark.parametrize("start", mostly_long(range(5), 1))
def test_memory_that_starts_anywhere(start: int) -> None:
    """What starts between multiples of 16 bytes, which kernels read at once, is copied aside."""
    fast, add, x = compiled(lambda x: x * 2), compiled(lambda x: x.add_(1)), torch.arange(9.0)
    part, aside = there(x)[start : start + 4], int(start % 4 > 0)
    agree(fast(part), x[start : start + 4] * 2)
    assert steady(lambda: fast(part)).get("copy_", 0) == aside
    add(part)
    agree(part, x[start : start + 4] + 1)
    assert steady(lambda: add(part)).get("copy_", 0) == 2 * aside  # and back


@pytest.mark.long
def test_numbers_and_random_ones() -> None:
    fast = compiled(lambda x: torch.dropout(x, 0.5, True) + x.max().item())
    x = there(torch.ones(1000))
    torch.manual_seed(1)
    first, other = fast(x).cpu(), fast(x).cpu()
    torch.manual_seed(1)
    torch.testing.assert_close(fast(x).cpu(), first)
    assert not torch.equal(first, other)
    assert sorted({*first.tolist()}) == [1.0, 3.0]


def test_what_is_not_in_the_library_is_left_to_pytorch() -> None:
    x = torch.randn(8)
    fast = torch.compile(lambda x: torch.special.airy_ai(x * 2) + 1, backend="luminal")
    with pytest.warns(UserWarning, match="airy_ai"):
        found = fast(there(x))
    agree(found, torch.special.airy_ai(x * 2) + 1)


@pytest.mark.long
def test_an_exported_module() -> None:
    model, x = network(), torch.randn(3, 4)
    with torch.no_grad():
        wanted = model(x)
    ahead = lm.pt2.compile(there(model), (there(x),), search_iterations=0)
    agree(ahead(there(x))[0], wanted)
    with pytest.raises(lm.InputError, match=r"on cuda:0, got one of .* on cpu; pass x.to\('cuda:0"):
        ahead(x)


@pytest.mark.long
def test_a_parameter_that_changes_is_seen_whatever_changes_it() -> None:
    model, x = network(), torch.randn(3, 4)
    fast = compiled(there(model))
    with torch.no_grad():
        fast(there(x))
        model[0].weight.data.mul_(2)  # type: ignore[union-attr,operator]
        found = fast(there(x))
        agree(found, model.cpu()(x))


def test_other_devices_are_named() -> None:
    with pytest.raises(Exception, match="meta: programs take those of CPUs, CUDA and ROCm"):
        compiled(lambda x: x * 2)(torch.ones(3, device="meta"))
