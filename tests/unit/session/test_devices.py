"""Which device a graph is for: by its own word, the default, or the compile's; and what moves."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.array_api import deferred
from luminal.backends import registry
from luminal.cli.devices import command
from luminal.frontend.foreign import is_device
from luminal.memory.arrays import HOST
from luminal.memory.parameter import Parameter
from luminal.runtime.device import Device

X = np.arange(4, dtype=np.float32)
DEVICE = "interpreted"


@pytest.fixture(autouse=True)
def _no_default() -> Iterator[None]:
    with lm.device("cpu"):
        yield


def doubled() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((4,), name="x") * 2).output("y")
    return cx


def device_of(exe: lm.Executable) -> str:
    """The device of an executable, which its repr names."""
    np.testing.assert_array_equal(exe(x=X)["y"], 2 * X)
    return next(name for name in registry.BACKENDS if f", {name}, fast" in repr(exe))


def test_the_default_is_the_cpu_until_another_one_is() -> None:
    assert device_of(lm.compile(doubled())) == "cpu"
    with lm.device(DEVICE) as chosen:
        assert str(chosen) == DEVICE
        assert device_of(lm.compile(doubled())) == DEVICE
        assert device_of(doubled().compile("cpu")) == "cpu"
        lm.device("reference")  # from now on
        assert device_of(lm.compile(doubled())) == "reference"
    assert device_of(lm.compile(doubled())) == "cpu"


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = {"cpu", "reference", "opencl"}
    monkeypatch.setattr(
        registry.Row, "unavailable", lambda row: None if row.name in usable else "not here"
    )
    monkeypatch.setattr(registry.Row, "current", lambda row, number=0: row)
    for added, expected in (("", "cpu"), ("metal", "metal"), ("hip", "hip"), ("cuda", "cuda")):
        usable.add(added)
        assert registry.find("auto").name == expected
    for missing, expected in ({"cuda", "hip", "metal", "cpu"}, "opencl"), ({"opencl"}, "reference"):
        usable -= missing
        with pytest.warns(RuntimeWarning, match=f"CPU backend.*not here; '{expected}' is used"):
            assert registry.find("auto").name == expected


@pytest.mark.parametrize("error", [OSError("a\nb"), SystemExit("a\n b"), lm.CompileError("a\n\nb")])
def test_why_a_backend_is_not_usable_is_one_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def current(row: registry.Row, number: int = 0) -> None:
        raise error

    monkeypatch.setattr(registry.Row, "current", current)
    reasons = {device.reason for device in lm.devices()}
    assert reasons == {
        "a b" if isinstance(error, lm.CompileError) else f"{type(error).__name__}: a b"
    }


def test_auto_hides_no_flag_that_breaks_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_TARGET", "NEON")
    with pytest.raises(lm.InputError, match="LUMINAL_TARGET=NEON: LUMINAL_TARGET takes one of"):
        lm.compile(doubled(), "auto")
    (cpu,) = (device for device in lm.devices() if device.name == "cpu")
    assert cpu.reason is not None
    assert cpu.reason.startswith("LUMINAL_TARGET=NEON: ")


def test_a_jitted_function_is_compiled_for_each_default() -> None:
    f = lm.jit(lambda x: x * 2)
    for name in ("cpu", DEVICE, "cpu", DEVICE):
        with lm.device(name):
            np.testing.assert_array_equal(f(X), 2 * X)
            assert f"{name}, fast" in repr([*f._forms.entries.values()][-1][-1].executable)
    assert f.entries == 2


def test_a_graph_that_was_moved_keeps_its_device() -> None:
    cx = doubled()
    assert cx.to(DEVICE) is cx
    with lm.device("reference"):
        assert device_of(cx.compile()) == DEVICE
    assert device_of(lm.compile(cx, "cpu")) == "cpu"
    assert device_of(cx.to("cpu").compile()) == "cpu"


def test_a_tensor_moves_its_graph() -> None:
    cx = lm.Graph()
    x = cx.tensor((4,), name="x")
    y = (x.to(DEVICE) * 2).to("cpu").cpu()  # results come to the host from anywhere
    y.output("y")
    assert x.device == y.device == cx.device == DEVICE
    assert device_of(cx.compile()) == DEVICE
    assert y.to(DEVICE, lm.int32).dtype is lm.int32
    with pytest.raises(
        lm.InputError, match=r"to: device 'reference': .* is for 'interpreted'.*one"
    ):
        x.to("reference")


@pytest.mark.usefixtures("new_default_graph")
def test_values_on_demand_are_computed_where_the_context_says() -> None:
    x = lm.tensor([1.0, 2.0])
    for name in ("cpu", DEVICE, "cpu", DEVICE):
        with lm.device(name):
            np.testing.assert_array_equal((x * 3).numpy(), [3, 6])
            latest = [*lm.default_graph()._on_demand._programs.values()][-1]
            assert f"{name}, fast" in repr(latest.executable)
    assert len(lm.default_graph()._on_demand._programs) == 2


def test_arrays_are_computed_on_the_cpu_whatever_the_context_says() -> None:
    xp = lm.array_api
    with lm.device(DEVICE):
        assert np.asarray(xp.asarray([1.0, 2.0]) * 1.25 + 7).tolist() == [8.25, 9.5]
    latest = [*deferred.programs._programs.values()][-1]
    assert "cpu, fast" in repr(latest.executable)


@pytest.mark.usefixtures("new_default_graph")
def test_values_on_demand_come_from_the_graphs_device() -> None:
    x = lm.tensor([1.0, 2.0], device=DEVICE)
    assert x.device == DEVICE
    np.testing.assert_array_equal((x * 2).numpy(), [2, 4])


def test_an_executable_for_another_device_shares_states_and_weights() -> None:
    state, weight = lm.State((4,), name="s"), lm.Parameter(X, name="w")
    cx = lm.Graph()
    held = cx.read(state)
    (held + cx.weight_of(weight)).output("y")
    cx.assign(state, held + 1)
    first = cx.compile("cpu")
    second = first.to(DEVICE)
    for run, exe in enumerate((first, second, first, second.to("cpu"))):
        np.testing.assert_array_equal(exe()["y"], X + run)
    with pytest.raises(lm.InputError, match="to: device 'tpu': backend 'tpu'"):
        first.to("tpu")


def test_states_parameters_and_modules_move() -> None:
    space = registry.space(DEVICE)
    state, weight = lm.State((4,), init=X, name="s"), lm.Parameter(X, name="w")
    for held in (state, weight):
        for name, expected in ((DEVICE, space), ("cpu", HOST), (f"{DEVICE}:0", space)):
            assert held.to(name) is held
            assert held.buffer.space is expected
            np.testing.assert_array_equal(held.numpy(), X)
    with pytest.raises(lm.InputError, match="'interpreted:1': there is 1 device here"):
        state.to("interpreted:1")
    model = nn.Linear(3, 2)
    drawn = model.weight.numpy().copy()
    assert model.to(DEVICE) is model
    assert {p.buffer.space for p in model.parameters()} == {space}
    np.testing.assert_array_equal(model.to("cpu").weight.numpy(), drawn)


@pytest.mark.parametrize("name", ["cpu", DEVICE])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_and_pickles_are_their_own(copied: Callable[[Any], Any], name: str) -> None:
    state, weight = lm.State((4,), init=X, name="s"), lm.Parameter(X, name="w")

    def run(weight: lm.Parameter, state: lm.State) -> Any:
        cx = lm.Graph()
        cx.assign(state, (cx.read(state) + cx.weight_of(weight)).output("y"))
        cx.assign(weight, cx.weight_of(weight) + 1)
        return cx.compile(name)()["y"]

    np.testing.assert_array_equal(run(weight, state), 2 * X)  # now both lie there, with a lock
    others = (
        copied([weight, state]) if copied is not copy.copy else [*map(copy.copy, (weight, state))]
    )
    assert {held.buffer.space for held in others} == {HOST}
    assert others[0].id != weight.id
    assert others[0].version != weight.version
    weight.set(X * 0)
    state.reset()
    np.testing.assert_array_equal(run(*others), 3 * X + 1)
    np.testing.assert_array_equal(state.numpy(), X)


def test_a_weight_that_moves_is_found_where_it_is() -> None:
    weight = lm.Parameter(X, name="w")
    cx = lm.Graph()
    (cx.tensor((4,), name="x") * cx.weight_of(weight)).output("y")
    exe = cx.compile("cpu")
    for name in ("cpu", DEVICE, "cpu"):
        weight.to(name)
        np.testing.assert_array_equal(exe(x=X)["y"], X * X)
        weight.set(weight.numpy())  # by another array


def test_every_backend_is_a_device_by_its_name() -> None:
    for name in (*registry.BACKENDS, "mps", "auto"):
        assert is_device(name)
        assert is_device(f"{name}:1")
    for other in ("float8", "cpux", ":1", 1, lm.int8):
        assert not is_device(other)


@pytest.mark.parametrize("made", [lambda: doubled().tensor((4,)), lambda: nn.Linear(3, 2)])
def test_tensors_and_modules_take_the_devices_that_graphs_take(made: Callable[[], Any]) -> None:
    made().to("auto")
    for wrong in ("cpu:x", "opencl:-1", "cuda:99", "auto:0"):
        with pytest.raises(lm.InputError, match=rf"to: device '{wrong}': .*see lm\.devices"):
            made().to(wrong)
    with pytest.raises(lm.DTypeError, match=r"'tpu' is not an element .* device: see lm\.devices"):
        made().to("tpu")


def test_names_that_no_device_has() -> None:
    for wrong in ("tpu", "cpu:x", "cpu:-1", "cpu:"):
        with pytest.raises(lm.InputError, match=rf"device: device '{wrong}': .*see lm\.devices"):
            lm.device(wrong)
    with pytest.raises(lm.CompileError, match="backend 'cpu:1': there is 1 device here"):
        lm.compile(doubled(), "cpu:1")
    nameless: tuple[Any, ...] = (3, 0, "", False)
    for wrong in nameless:
        with pytest.raises(lm.CompileError, match=f"backend {wrong!r}: takes 'cpu', "):
            lm.compile(doubled(), wrong)
    assert device_of(lm.compile(doubled(), "cpu:0")) == "cpu"


def test_the_command_lists_devices_with_their_memory(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row.name: row for row in lm.devices()}
    memory = rows[DEVICE].memory
    assert memory is not None
    assert memory.total == 4 << 30
    assert rows["cpu"].memory is not None
    command()
    text = capsys.readouterr().out
    assert "4.0" in text
    assert all(row.name.split(":")[0][:3] in text for row in rows.values())


def test_a_device_of_the_parent_process_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = registry.find(DEVICE).memory
    assert isinstance(device, Device)
    monkeypatch.setattr(device, "_process", -1)
    monkeypatch.setattr(type(device.driver), "survives_fork", False)
    rows = {row.name: row for row in lm.devices()}
    assert rows["cpu"].usable
    assert not rows[DEVICE].usable
    assert "this process was forked" in (rows[DEVICE].reason or "")
    monkeypatch.undo()
    assert {row.name: row for row in lm.devices()}[DEVICE].usable


def test_a_run_waits_for_its_states_before_any_parameter_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Parameter, "newest", 0)  # as in a process that has none
    cx = lm.Graph()
    held = cx.state((4,), name="held")
    cx.assign(held.state, held + cx.tensor((4,), name="x"))
    exe = lm.compile(cx, "cpu")
    thread = threading.Thread(target=lambda: exe(x=X))
    with held.state.lock:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    np.testing.assert_array_equal(held.state.numpy(), X)
