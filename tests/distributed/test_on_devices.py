"""Meshes whose ranks are devices of this process compute what one device does, of whole arrays."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.base.errors import DeviceError, InputError, ShapeError
from luminal.distributed import DataParallel, LocalBackend, PipelineParallel, TensorParallel
from luminal.training import EMA
from tests.distributed.on_devices import check, devices, opencl, trained
from tests.distributed.programs import drawn
from tests.distributed.training_run import network, run
from tests.long_share import mostly_long

FIRST = ["cpu", opencl]
CHUNK = 8
CPUS = lm.Mesh(devices=["cpu", "cpu"])


def near(actual: Any, expected: Any) -> None:
    """Sums in another order differ by a few ulps, which Adam divides by a gradient's own size."""
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)  # ulps of small gradients


def rows(count: int = 10) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((count, 32)).astype(np.float32)


def summed(mesh: lm.Mesh) -> tuple[Any, lm.Parameter]:
    """A program that counts its runs, of rows that are cut, and the Parameter that it reads."""
    cx = lm.Graph("summed")
    x = cx.tensor((10, 32), name="x").shard("data")
    w = lm.Parameter(np.eye(32, 8, dtype=np.float32), name="w")
    count = lm.State((8,), name="count")
    y = (x @ cx.constant(w)).tanh()
    y.output("y")
    total = y.sum(0)
    cx.assign(count, cx.read(count) + 1)
    total.output("total")
    (cx.read(count) * 1).output("count")
    return lm.compile(cx, mesh=mesh), w


@pytest.mark.parametrize("first", FIRST)
def test_whole_arrays_go_in_and_out(first: str) -> None:
    exe, w = summed(lm.Mesh(devices=devices(first, 2)))
    x = rows()  # 10 rows over 2 ranks, and over 3 below
    for number in range(3):
        out = np.zeros((10, 8), np.float32)
        results = exe(x=x, out={"y": out})
        np.testing.assert_allclose(
            results["y"], np.tanh(x[:, :8]), rtol=1e-5
        )  # of tanh, and of 10 terms below
        assert results["y"] is out
        np.testing.assert_allclose(
            results["total"], np.tanh(x[:, :8]).sum(0), rtol=1e-4
        )  # as above
        assert (results["count"] == number).all()
    w.set(np.zeros((32, 8), np.float32))
    assert not exe(x=x)["y"].any()
    assert f"rank 0 on {first}, rank 1 on cpu" in exe.explain_sharding()
    assert f"rank on {first}: " in str(exe.report())
    assert f"{first}, cpu" in repr(exe)


def test_values_are_whole_between_runs_and_for_programs_of_one_device() -> None:
    exe, w = summed(CPUS)
    exe(x=rows())
    assert w.shape == w.numpy().shape == (32, 8)
    cx = lm.Graph()
    (cx.constant(w) * 2).output("double")
    double = lm.compile(cx)
    assert double()["double"][0, 0] == 2
    exe(x=rows())
    assert double()["double"][0, 0] == 2
    assert copy.deepcopy(w).numpy()[0, 0] == 1


def test_extents_that_ranks_do_not_divide_and_dims() -> None:
    mesh = lm.Mesh(devices=["cpu"] * 3)
    cx = lm.Graph()
    n = lm.dim("n", 3, 60)
    (cx.tensor((n, 4), name="x").shard("data") * 2).output("y")
    (cx.tensor((10,), name="z").shard("data").sum() + 1).output("total")
    exe = lm.compile(cx, mesh=mesh)
    for count in (9, 6):
        x = np.arange(4.0 * count, dtype=np.float32).reshape(count, 4)
        results = exe(x=x, z=np.ones(10, np.float32))
        assert (results["y"] == 2 * x).all()
        assert results["total"] == 11
    with pytest.raises(lm.DimError, match="n: 7 rows over 3 ranks do not divide"):
        exe(x=np.ones((7, 4), np.float32))
    with pytest.raises(ShapeError, match=r"z: expected shape \(10\), got \(9,\)"):
        exe(z=np.ones(9, np.float32))
    with pytest.raises(InputError, match="zz: no such input or weight; this graph takes x, z"):
        exe(zz=1)


def test_inputs_that_nothing_reads_are_taken_and_tell_dims() -> None:
    cx = lm.Graph()
    n, m = cx.dim("n", 1, 40), cx.dim("m", 1, 40)
    x = cx.tensor((n, 3), name="x").shard("data")  # of which a rank has a part
    z = cx.tensor((m + 1,), name="z")
    cx.tensor((), name="step")  # which `fit` gives to each step, also to one that draws nothing
    (lm.zeros_like(x) + cx.tensor((), name="y")).output("rows")
    (lm.ones_like(z) * 2).output("twos")
    exe = lm.compile(cx, mesh=CPUS)
    given = {"x": np.ones((6, 3), np.float32), "z": np.ones(5, np.float32), "y": 1.0, "step": 4.0}
    longer = {"x": np.ones((7, 3), np.float32)}
    for inputs, rows, value in ((given, 6, 1), ({"y": 2.0}, 6, 2), (longer, 7, 2)):
        results = exe(inputs)
        assert results["rows"].tolist() == [[value] * 3] * rows
        assert results["twos"].tolist() == [2.0] * 5
    with pytest.raises(InputError, match="steps: no such input or weight; this graph takes y"):
        exe(steps=1)


def test_ranks_that_are_written_by_hand_have_stacked_arrays() -> None:
    with lm.spmd(CPUS):
        cx = lm.Graph()
        x = cx.tensor((3,), name="x")
        lm.all_reduce(x, "data").output("sum")
        (lm.rank_along(x, "data") + 0).output("rank")
        exe = lm.compile(cx)
        x.mean().output("mean")
        cx.assign(lm.State((), name="kept"), x.sum())
        with pytest.raises(InputError, match="kept: a program that is written rank by rank"):
            lm.compile(cx)
    results = exe(x=np.arange(6, dtype=np.float32).reshape(2, 3))
    assert results["sum"].tolist() == [[3, 5, 7]] * 2
    assert results["rank"].tolist() == [0, 1]
    with pytest.raises(ShapeError, match=r"x: the program is written rank by rank, for 2 ranks"):
        exe(x=np.arange(3, dtype=np.float32))


def failing(fails: threading.Event) -> Any:
    """A kernel that fails on the thread of one rank when told."""

    def kernel(x: Any, out: Any) -> None:
        if fails.is_set() and x[0, 0] == 0:
            raise RuntimeError("no more")
        out[...] = x * 2

    return lm.custom_kernel("fails", kernel, results=lambda x: (x.shape, x.dtype))


def test_an_error_of_one_rank_ends_all_and_the_next_run_is_right() -> None:
    fails = threading.Event()
    kernel = failing(fails)
    with lm.spmd(CPUS):
        cx = lm.Graph()
        x = cx.tensor((2, 2), name="x")
        lm.all_reduce(kernel(x), "data").output("y")
        exe = lm.compile(cx)
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    for _ in range(2):
        fails.clear()
        assert (exe(x=x)["y"] == 2 * (x[0] + x[1])).all()
        fails.set()
        with pytest.raises(RuntimeError, match="no more"):
            exe(x=x)
    fails.clear()
    assert (exe(x=x)["y"] == 2 * (x[0] + x[1])).all()


def test_what_a_failed_run_began_to_replace_has_no_value() -> None:
    fails = threading.Event()
    cx = lm.Graph()
    x = cx.tensor((2, 2), name="x").shard("data")
    held = lm.State((2, 2), name="held")
    new = cx.read(held) + x
    cx.assign(held, new)
    failing(fails)(new).sum().output("y")
    exe = lm.compile(cx, mesh=CPUS)
    exe(x=np.ones((2, 2), np.float32))
    fails.set()
    with pytest.raises(RuntimeError, match="no more"):
        exe(x=-np.ones((2, 2), np.float32))
    with pytest.raises(DeviceError, match="held: a run on cpu, cpu failed while it replaced"):
        held.numpy()
    fails.clear()
    held.reset()
    exe(x=np.full((2, 2), 3, np.float32))
    assert (held.numpy() == 3).all()


def test_an_interrupt_is_raised_once_all_ranks_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, _ = summed(CPUS)
    before = exe(x=rows())["count"]
    join, asked = threading.Thread.join, []

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if not asked:
            asked.append(1)
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exe(x=rows())
    assert (exe(x=rows())["count"] == before + 2).all()


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(
    "case",
    mostly_long(
        [
            ("norm", {"plan": "zero1"}, None),
            ("batch", {}, None),
            ("norm", {"plan": "zero3", "accumulate": 2}, None),
            ("norm", {"plan": "tensor"}, lm.Mesh((2,), ("tensor",))),
            ("norm", {"plan": "tensor+zero1"}, lm.Mesh((2, 2), ("data", "tensor"))),
            ("norm", {"plan": {"0.weight": ("data", None)}}, lm.Mesh((2,), ("data",))),
            ("norm", {"plan": "auto"}, None),
            ("norm", {"amp": "float16"}, None),
            ("batch", {"detect_nan": True}, None),
            ("norm", {"memory_limit": "1MB"}, None),
            ("mixture", {"accumulate": 2}, None),
            ("mixture", {"plan": "expert"}, lm.Mesh((2,), ("expert",))),
        ],
        1,
    ),
)
def test_devices_train_as_one(case: Any, first: str) -> None:
    kind, options, axes = case
    axes = axes or lm.Mesh((2,), ("data",))
    plain = {k: v for k, v in options.items() if k != "plan"}
    alone, model = network(kind), network(kind)
    expected = run(alone, None, steps=3, **plain)
    mesh = lm.Mesh(axes.shape, axes.names, devices=devices(first, axes.size))
    record = run(model, mesh, steps=3, **options)
    near(record.losses, expected.losses)
    wanted = trained(alone)
    for path, value in trained(model).items():
        near(value, wanted[path])


@pytest.mark.long
def test_a_run_goes_on_from_its_checkpoint_on_other_devices(tmp_path: Path) -> None:
    alone = network()
    expected = run(alone, None, steps=4)
    model = network()
    run(model, CPUS, steps=2, plan="zero3", checkpoint=tmp_path, checkpoint_every=1)
    again = network()
    record = run(
        again, lm.Mesh(devices=["cpu"] * 4), steps=4, plan="zero1", checkpoint=tmp_path,
        checkpoint_every=1,
    )  # fmt: skip
    assert record.resumed == 2
    near(record.losses, expected.losses[2:])
    for path, value in trained(again).items():
        near(value, trained(alone)[path])


@pytest.mark.long
def test_wrapped_models_and_averages() -> None:
    x = np.random.default_rng(2).standard_normal((8, 6)).astype(np.float32)
    wanted = {}
    for wrap in (None, DataParallel, TensorParallel):
        model = network()
        called = model if wrap is None else wrap(model, LocalBackend(["cpu", "cpu"]))
        cx = lm.Graph()
        loss = (called.eval()(cx.tensor(x.shape, name="x")) ** 2).mean()
        loss.output("loss")
        optim.SGD(model.named_parameters(), lr=0.1).step(loss)
        average = EMA(model.parameters(), 0.5)
        average.update(cx)
        exe = lm.compile(cx)
        losses = [float(exe(x=x)["loss"]) for _ in range(3)]
        average.apply()
        if wrap is None:
            wanted = {"losses": losses, **trained(model)}
        near(losses, wanted["losses"])
        for path, value in trained(model).items():
            near(value, wanted[path])


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("chunk", mostly_long(range(12), 0))
def test_random_programs(chunk: int, first: str) -> None:
    met = [check(*drawn(seed), first) for seed in range(CHUNK * chunk, CHUNK * (chunk + 1))]
    assert sum(count > 0 for count in met) >= CHUNK // 4, met


def test_what_a_mesh_of_devices_cannot_be() -> None:
    with pytest.raises(ShapeError, match=r"the shape \(2,\) has 2 ranks, and there are 3 devices"):
        lm.Mesh((2,), ("data",), devices=["cpu"] * 3)
    with pytest.raises(ShapeError, match="is no list of devices"):
        lm.Mesh(devices=2)
    cx = lm.Graph()
    cx.tensor((4,), name="x").output("y")
    with pytest.raises(InputError, match="2 ranks are on 'interpreted', and only the CPU"):
        lm.compile(cx, mesh=lm.Mesh(devices=["interpreted", "interpreted"]))
    with pytest.raises(InputError, match="the mesh has devices of its own, cpu, cpu; leave"):
        lm.compile(cx, "cpu", mesh=CPUS)
    with pytest.raises(InputError, match="device 'tpu:0'"):
        lm.compile(cx, mesh=lm.Mesh(devices=["tpu:0", "cpu"]))
    exe = lm.compile(cx, mesh=CPUS)
    with pytest.raises(InputError, match="the outputs are put together on the host"):
        exe(x=np.ones(4, np.float32), out="device")
    with pytest.raises(InputError, match="PipelineParallel"):
        PipelineParallel(network(), LocalBackend(["cpu", "cpu"]), stages=2, microbatches=2)
    with pytest.raises(InputError, match="leaves"):
        run(network(), CPUS, leaves=2)
