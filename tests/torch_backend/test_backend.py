"""torch.compile(backend=luminal_backend): inference, training, open sizes, writes, fallbacks."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import luminal as lm
from luminal import luminal_backend
from luminal.torch_backend import explain, supported_ops
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops import registry
from tests.long_share import mostly_long
from tests.torch_backend.whole import compiled

# of PyTorch's own modules, when Dynamo imports them
pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def agree(found: Any, wanted: Any) -> None:
    # two layers of float32 with a norm: 80 ulp of values about 1
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_inference() -> None:
    model, x = network(), torch.randn(3, 4)
    with torch.no_grad():
        agree(compiled(model)(x), model(x))


def test_tensors_of_the_host_are_computed_there() -> None:
    model, x = network(), torch.randn(3, 4)
    with lm.device("reference"), torch.no_grad():
        agree(compiled(model)(x), model(x))


def test_gradients_for_all_lengths() -> None:
    model = network()
    fast, before = compiled(model, dynamic=True), lm.compile_count()
    for n in (3, 5, 9):
        x = torch.randn(n, 4)
        wanted = torch.autograd.grad(model(x).square().sum(), [*model.parameters()])
        agree(torch.autograd.grad(fast(x).square().sum(), [*model.parameters()]), wanted)
    assert lm.compile_count() == before + 2  # forward and backward


def test_a_parameter_that_changes() -> None:
    model, x = network(), torch.randn(3, 4)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        model[0].weight.mul_(2)
        agree(fast(x), model(x))
        model[0].weight = nn.Parameter(torch.randn(8, 4))
        agree(fast(x), model(x))
        model[3].weight.data.mul_(2)  # which moves no version
        agree(fast(x), model(x))


class Derived(nn.Module):
    """Multiplies by what is computed of a parameter, which programs compute once."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.exp().cumsum(0)


def test_what_is_derived_of_a_parameter_that_moves_no_version() -> None:
    model, x = Derived(), torch.randn(3, 8)
    fast = compiled(model)
    with torch.no_grad():
        agree(fast(x), model(x))
        for _ in range(2):
            model.weight.data.mul_(0.5)
            agree(fast(x), model(x))


class Cache(nn.Module):
    """Writes rows into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, at, x)
        return self.rows.sum(0)


def test_a_buffer_is_written() -> None:
    plain, fast = Cache(), Cache()
    step = compiled(fast)
    for k in range(3):
        x, at = torch.randn(1, 8), torch.tensor([k])
        agree(step(x, at), plain(x, at))
        agree(fast.rows, plain.rows)


def test_arguments_are_written_through_their_strides() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    for view in (lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x[::2]):
        base = torch.arange(16.0).reshape(4, 4)
        other = base.clone()
        agree(compiled(f)(view(base)), f(view(other)))
        agree(base, other)
        torch._dynamo.reset()


def test_an_empty_argument_is_written() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(2)
        return x

    x = torch.ones(0, 3)
    assert compiled(f)(x) is x


def test_results_lie_as_in_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 2).t(), x.t(), x, x.sin().permute(1, 0)

    x = torch.randn(3, 4)
    found, wanted = compiled(f)(x), f(x)
    agree(found, wanted)
    assert [y.stride() for y in found] == [y.stride() for y in wanted]
    assert found[1].data_ptr() == x.data_ptr()


def test_random_numbers_follow_the_seed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5)

    fast, x = compiled(f), torch.ones(1000)
    torch.manual_seed(1)
    first, second = fast(x), fast(x)
    torch.manual_seed(1)
    assert torch.equal(fast(x), first)
    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}
    assert 400 < int((first == 0).sum()) < 600


def test_what_is_missing_runs_in_pytorch_with_a_warning() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs().sort()[0] + torch.sin(x)

    x = torch.randn(8, 8)
    with pytest.warns(UserWarning, match=r"PyTorch runs aten\.linalg_eig\.default"):
        found = torch.compile(f, backend=luminal_backend, fullgraph=True)(x)
    agree(found, f(x))


def test_what_is_missing_is_an_error_on_request() -> None:
    with pytest.raises(Exception, match=r"aten\.linalg_eig\.default") as caught:
        compiled(torch.linalg.eigvals)(torch.randn(8, 8))
    assert UnsupportedError.__name__ in str(caught.value) or caught.value.__cause__ is not None


def test_what_a_row_has_no_place_for_runs_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ROWS, "aten.celu", lambda x: x)
    x, celu = torch.tensor([-2.0, 3.0]), partial(nn.functional.celu, alpha=2.0)
    with pytest.warns(UserWarning, match=r"PyTorch runs aten\.celu\.default"):
        found = torch.compile(celu, backend=luminal_backend)(x)
    agree(found, celu(x))


def test_a_fault_of_a_row_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(x: lm.Tensor) -> lm.Tensor:
        raise TypeError("a fault")

    monkeypatch.setitem(registry.ROWS, "aten.sin", row)
    with pytest.raises(Exception, match="TypeError: a fault"):
        torch.compile(torch.sin, backend=luminal_backend)(torch.ones(2))


def test_a_function_of_sizes_is_pytorch_s() -> None:
    fast = compiled(lambda x: x[: int(x.shape[0] * 0.7)] * 2, dynamic=True)  # 0.7 * 10 is rounded
    for n in (5, 10, 7, 30):
        x = torch.randn(n, 3)
        assert torch.equal(fast(x), x[: int(n * 0.7)] * 2)


def test_unknown_options() -> None:
    with pytest.raises(Exception, match="option 'speed': takes 'mode'"):
        torch.compile(torch.sin, backend=luminal_backend, options={"speed": 1})(torch.ones(2))


def test_a_cache_is_written_where_it_lies() -> None:
    """No second buffer, in any layout that fills its memory."""

    def write(cache: torch.Tensor, at: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, row)
        return cache.sum(1)

    plain = torch.zeros(2, 8, 4)
    cache, turned = plain.clone(), torch.zeros(4, 8, 2).permute(2, 1, 0)
    fast = compiled(write)
    for k in (3, 5):
        at, row = torch.tensor([k]), torch.randn(2, 1, 4)
        wanted = write(plain, at, row)
        for each in (cache, turned):
            before = each.data_ptr(), each._version
            agree(fast(each, at, row), wanted)
            agree(each, plain)
            assert each.data_ptr() == before[0]
            assert each._version > before[1]


def test_threads_write_arguments_of_their_own() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    # fullgraph=True counts compiled frames in one number for all threads: its check fails in turns
    fast = torch.compile(add, backend=luminal_backend, options={"fallback": "error"})
    kept = [torch.zeros(1000) for _ in range(4)]
    fast(torch.zeros(1000), torch.zeros(1000))

    def many(k: int) -> None:
        for _ in range(200):
            fast(kept[k], torch.full((1000,), float(k)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(many, range(4)))
    finally:
        sys.setswitchinterval(interval)
    for k, x in enumerate(kept):
        agree(x, torch.full((1000,), 200.0 * k))


@pytest.mark.parametrize("kind", mostly_long(["AdamW", "SGD"], 1))
def test_a_compiled_optimizer_step(kind: str) -> None:
    how = {"SGD": {"lr": 0.1, "momentum": 0.9}, "AdamW": {"lr": 0.01}}[kind]
    values = [torch.randn(4, 3), torch.randn(5)]
    found, wanted = ([nn.Parameter(x.clone()) for x in values] for _ in range(2))
    fast, plain = (getattr(torch.optim, kind)(each, **how) for each in (found, wanted))
    step = torch.compile(fast.step, backend=luminal_backend, options={"fallback": "error"})
    for _ in range(3):
        for x, y in zip(found, wanted, strict=True):
            x.grad = torch.randn_like(x)
            y.grad = x.grad.clone()
        step()
        plain.step()
        agree(found, wanted)


def test_the_backend_goes_by_its_name() -> None:
    """As installed: no import of Luminal is needed."""
    fast = torch.compile(torch.sin, backend="luminal", fullgraph=True)
    agree(fast(torch.ones(3)), torch.sin(torch.ones(3)))


@pytest.mark.long
def test_many_calls_hold_no_more_memory() -> None:
    """Weights are the parameters' own memory; a call leaves nothing behind."""
    model, x = (
        nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)),
        torch.randn(8, 256),
    )
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(50):
            fast(x)
        gc.collect()
        before = resident_bytes()
        for _ in range(1000):
            fast(x)
        gc.collect()
    assert resident_bytes() - before < 2_000_000


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_parameters_have_no_second_copy() -> None:
    model, x = nn.Linear(64, 48), torch.randn(4, 64)
    fast = compiled(model)
    made = recorded_executables(lambda: fast(x))
    (executable,) = made
    report = executable.memory_report()
    kept = sum(p.nbytes for p in model.parameters())
    assert report.weight_bytes == kept
    held = [parameter.memory.ctypes.data for parameter in executable._weights.values()]
    assert set(held) == {p.data_ptr() for p in model.parameters()}
    assert report.derived_bytes <= 2 * kept


def recorded_executables(run: Callable[[], Any]) -> list[Any]:
    """What is compiled during a call without gradients."""
    found: list[Any] = []
    plain = lm.compile

    def spy(*args: Any, **how: Any) -> Any:
        found.append(plain(*args, **how))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(lm, "compile", spy)
        run()
    return found


@pytest.mark.parametrize("mode", mostly_long(["optimal", 0.5], 1), ids=["optimal", "seconds"])
def test_modes_that_search(mode: str | float) -> None:
    model, x = nn.Linear(16, 16), torch.randn(4, 16)
    options = {"mode": mode, "search_iterations": 2, "numerics": "relaxed"}
    with torch.no_grad():
        agree(torch.compile(model, backend=luminal_backend, options=options)(x), model(x))


def test_what_a_model_would_leave_to_pytorch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs()

    assert explain(nn.Linear(4, 3), torch.ones(2, 4)) == []
    assert explain(f, torch.eye(4))[0] == "aten.linalg_eig.default: not in the library"
    known = supported_ops()
    assert known == sorted(known)
    assert {"aten.addmm", "aten.convolution", "aten.silu"} <= set(known)
    assert "aten.linalg_eig" not in known
