"""Programs of ranks on devices over the stand-ins of a driver and of its library of collectives,
NVIDIA's or AMD's: run by test_nccl.py in a process that finds them. Ranks are threads, each with a
device of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base import dtypes
from luminal.base.errors import CollectiveError, CollectiveTimeoutError, DeviceError, InputError
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Builder, Graph, Output
from luminal.runtime import side_queue
from luminal.runtime.collectives import communicator
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.library import SWITCH
from luminal.runtime.collectives.local import run_local
from luminal.runtime.device_exchanges import Exchanges
from luminal.runtime.executable import Executable
from luminal.runtime.ranks import OnRanks
from luminal.runtime.side_queue import SideQueue
from luminal.runtime.variants import Variant
from luminal.shape.expression import const, symbol
from tests.distributed.cards import CARDS
from tests.distributed.graphs import Draw, collective
from tests.distributed.together import expected, run
from tests.long_share import mostly_long

RUNS = 3  # a launch list as it is, what is recorded of it, and that again
TIMEOUT = 5.0
NEAR = 2e-5  # sums of a few dozen float32 in another order


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with CARDS.compiler_stands_in(monkeypatch, tmp_path):
        yield
    CARDS.driver.stand_in_hurry(0)


def executable(graph: Graph, engine: Engine) -> Executable:
    """A rank's graph for its device."""
    backend: Any = CARDS.backend(engine.rank)
    variant = Variant({}, backend.runner(lower_to_program(graph, backend)))
    return Executable(graph, [variant], mesh=OnRanks({"data": engine}))


def on_devices(size: int, work: Callable[[Engine], Any]) -> list[Any]:
    return run_local(size, work, timeout=TIMEOUT)


@pytest.mark.parametrize("hurries", [0, 1], ids=["late", "early"])
@pytest.mark.parametrize("seed", mostly_long(range(int(os.environ.get("SEEDS", "6"))), 2))
def test_random_graphs_give_what_the_oracle_says(seed: int, hurries: int) -> None:
    ranks = 2 + 2 * (seed % 2)
    CARDS.driver.stand_in_hurry(hurries)
    drawn, oracles = ([Draw(seed, rank, ranks).drawn() for rank in range(ranks)] for _ in "12")
    wanted = []
    for _ in range(RUNS):
        wanted.append(expected(oracles))
        for oracle, values in zip(oracles, wanted[-1], strict=True):
            for state in oracle.states:
                state.set(values[state.name])

    def work(engine: Engine) -> list[dict[str, Any]]:
        exe = executable(drawn[engine.rank].graph, engine)
        return [run(drawn[engine.rank], exe) for _ in range(RUNS)]

    for rank, runs in enumerate(on_devices(ranks, work)):
        for values, of_all in zip(runs, wanted, strict=True):
            for name, value in of_all[rank].items():
                np.testing.assert_array_equal(values[name], value, err_msg=name)


def program(engine: Engine, axes: tuple[str, ...] = ("data",)) -> Callable[[int], float]:
    """A small program on this rank, of a batch by its number: kernels before and behind each sum
    over ranks.
    """
    shape = (engine.size,) if len(axes) == 1 else (2, engine.size // 2)
    cx = lm.Graph()
    x = cx.tensor((8, 6), name="x")
    own = (x * 2).shard(*[axes[0], axes[1] if len(axes) > 1 else None])
    total = (own + 1).sum(0).shard(axes[1] if len(axes) > 1 else None)
    (total * total).sum(0).output("y")
    mesh = lm.Mesh(shape, axes)
    exe = lm.compile(cx, CARDS.name(engine.rank), mesh=mesh, collectives="engine")
    exe._common = None  # what hosts tell one another before a run would notice late ranks first
    return lambda number: float(exe(x=batch(number))["y"])


def batch(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 9, (8, 6)).astype(np.float32)


def check_sums(ranks: int = 2, axes: tuple[str, ...] = ("data",), runs: int = RUNS) -> None:
    for values in on_devices(ranks, lambda engine: [*map(program(engine, axes), range(runs))]):
        assert values == [float(((2 * batch(k) + 1).sum(0) ** 2).sum()) for k in range(runs)]


def test_sums_over_one_axis_and_over_two() -> None:
    check_sums()
    check_sums(4, ("data", "tensor"))


def late_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    put = SideQueue.put

    def forgetful(self: Any, exchange: Any, main: int) -> None:
        if exchange.phase != "wait":
            put(self, exchange._replace(phase="start"), main)

    monkeypatch.setattr(SideQueue, "put", forgetful)
    monkeypatch.setattr(SideQueue, "join", lambda self, main: None)


def early_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = CARDS.queues.follow

    def forgetful(self: Any, event: Any, queue: int) -> None:
        if queue != _side():
            follow(self, event, queue)

    monkeypatch.setattr(CARDS.queues, "follow", forgetful)


def _side() -> int:
    """The side queue of the device that is current in this thread."""
    number = int(threading.current_thread().name.removeprefix("rank "))
    return int(CARDS.backend(number).memory.driver.side.queue)


def no_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SideQueue, "join", lambda self, main: None)


def wrong_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "name_of", lambda dtype, title, library: "int32")


def wrong_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reduce = CARDS.bindings.all_reduce

    def short(self: Any, comm: Any, source: int, target: int, count: int, *rest: Any) -> None:
        reduce(self, comm, source, target, count - 1, *rest)

    monkeypatch.setattr(CARDS.bindings, "all_reduce", short)


def wrong_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Exchanges.__init__

    def turned(self: Any, driver: Any, communicators: Any) -> None:
        axes = [*communicators]
        made(self, driver, {a: communicators[b] for a, b in zip(axes, axes[::-1], strict=True)})

    monkeypatch.setattr(Exchanges, "__init__", turned)


def own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    init = CARDS.bindings.init

    def alone(self: Any, size: int, rank: int, unique_id: bytes) -> Any:
        return init(self, size, rank, self.unique_id())

    monkeypatch.setattr(CARDS.bindings, "init", alone)


@pytest.mark.parametrize(
    ("plant", "axes", "runs", "hurries", "words"),
    [
        (late_waits, ("data",), 1, 0, "assert"),
        (late_waits, ("data",), RUNS, 0, "not joined|Unjoined"),
        (early_starts, ("data",), 1, 1, "assert"),
        (early_starts, ("data",), RUNS, 1, "(?i)isolation"),
        (no_join, ("data",), RUNS, 0, "not joined|Unjoined"),
        (wrong_dtype, ("data",), 1, 0, "assert"),
        (wrong_count, ("data",), 1, 0, "assert"),
        (wrong_axis, ("data", "tensor"), 1, 0, "assert"),
        (own_ids, ("data",), 1, 0, "CCL communicator over mesh axis 'data' has waited 2 s"),
    ],
)
def test_what_is_planted_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    axes: tuple[str, ...],
    runs: int,
    hurries: int,
    words: str,
) -> None:
    CARDS.driver.stand_in_hurry(hurries)
    plant(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "TIMEOUT", 0.2)
    with pytest.raises((AssertionError, CollectiveError, DeviceError), match=words):
        check_sums(2 * len(axes), axes, runs)


def check_late() -> None:
    """Rank 1 comes to one run less: the error says which collective waits and for whom, and what is
    under way on the device is ended.
    """
    gone = threading.Event()
    before = CARDS.library.stand_in_nccl_calls(b"abort")

    def work(engine: Engine) -> None:
        step = program(engine)
        step(0), step(1)
        if engine.rank == 1:
            gone.wait(10)
            return
        try:
            step(2)
        finally:
            gone.set()

    words = r"all_reduce of .* over mesh axis 'data' has waited 0\.3 s; not come: rank 1 computes"
    with pytest.raises(CollectiveTimeoutError, match=words):
        run_local(2, work, timeout=0.3)
    assert CARDS.library.stand_in_nccl_calls(b"abort") > before


def test_a_late_rank_is_named_and_what_waits_on_the_device_is_ended() -> None:
    check_late()


def test_without_an_abort_the_device_would_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator.Communicator, "abort", lambda self: None)
    with pytest.raises(AssertionError):
        check_late()


def test_a_rank_that_has_ended_is_named() -> None:
    def work(engine: Engine) -> None:
        step = program(engine)
        for number in range(2 - engine.rank):
            step(number)

    with pytest.raises(CollectiveError, match=r"will not come: rank 1 has ended"):
        on_devices(2, work)


def test_what_the_library_reports_names_the_collective() -> None:
    failed = threading.Event()

    def work(engine: Engine) -> None:
        step = program(engine)
        step(0)
        if engine.rank == 1:
            CARDS.library.stand_in_nccl_fail(0)
            failed.wait(10)
            return
        try:
            step(1)
        finally:
            failed.set()

    words = (
        r"rank 0: all_reduce of .* over mesh axis 'data' has failed on the device: "
        f"{CARDS.title}: .*remote process"
    )
    with pytest.raises(CollectiveError, match=words):
        on_devices(2, work)


def chain(engine: Engine, sums: int) -> Callable[[], float]:
    """A program of sums over all ranks, with a kernel before each and one behind the last."""
    builder = Builder()
    value = builder.input("x", (const(4),), dtypes.float32)
    for _ in range(sums):
        value = collective(builder, "all_reduce", builder.apply("Add", value, value), engine.size)
    value = builder.apply("Add", value, value)
    graph = Graph((Output(value, "y"),), (symbol("rank_data", 0, engine.size - 1),))
    exe = executable(graph, engine)
    return lambda: float(exe(x=np.ones(4, np.float32))["y"][0])


@pytest.mark.parametrize(("sums", "slow"), [(8, (0, 100)), (1, (600, 600))])
def test_a_deadline_is_for_one_collective(
    monkeypatch: pytest.MonkeyPatch, sums: int, slow: tuple[int, int]
) -> None:
    """Rank 0 waits longer than it for all collectives together, or computes longer before and
    behind one.
    """
    monkeypatch.setattr(side_queue, "MOST", 1)
    for rank in range(2):  # with new queues, which have numbers for one collective
        monkeypatch.setattr(CARDS.backend(rank).memory.driver, "_side", None)
    CARDS.driver.stand_in_hurry(1)

    def work(engine: Engine) -> list[float]:
        step = chain(engine, sums)
        values = [step()]
        CARDS.driver.stand_in_slow(engine.rank, slow[engine.rank])
        return [*values, step()]

    try:
        assert run_local(2, work, timeout=0.5) == [[2.0 * 4**sums] * 2] * 2
    finally:
        for rank in range(2):
            CARDS.driver.stand_in_slow(rank, 0)


def test_each_rank_has_a_card_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    library = CARDS.backend(0).memory.driver.library()
    cards = ["card 7", "card 8", "card 7"]
    library.check_cards(cards[:2])
    words = f"ranks 0 and 2 are both on card 7; .* set {SWITCH}=1 .*{CARDS.of_ranks}"
    with pytest.raises(InputError, match=words):
        library.check_cards(cards)
    monkeypatch.setenv(SWITCH, "1")
    library.check_cards(cards)
    monkeypatch.setenv("STAND_IN_NCCL", "22903")
    with pytest.raises(
        InputError, match=rf"{CARDS.title} 2\.29\.3 takes one rank of each card \(from 2\.30"
    ):
        library.check_cards(cards)


def test_a_library_that_is_too_old_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_NCCL", "21408")
    with pytest.raises(
        CollectiveError, match=rf"{CARDS.title} 2\.14\.8 is too old; .* need 2\.18 or newer"
    ):
        on_devices(2, lambda engine: program(engine)(0))


def test_a_rank_takes_a_device_and_its_library() -> None:
    here, other = lm.distributed.NcclBackend, lm.distributed.RcclBackend
    if CARDS.vendor != registry.CUDA:
        here, other = other, here

    def work(engine: Engine) -> str:
        # Ranks of a node take turns with its devices.
        return str(here().device)

    assert on_devices(5, work) == [CARDS.backend(rank % 4).name for rank in range(5)]
    words = f"{other.__name__}: .* for the devices of '{CARDS.vendor}', .*{CARDS.of_ranks}"
    with pytest.raises(InputError, match=words):
        on_devices(1, lambda engine: other())


def test_dtypes_that_it_does_not_reduce_are_named() -> None:
    library = CARDS.backend(0).memory.driver.library()
    with pytest.raises(
        CollectiveError, match=f"all_reduce of 'x': {CARDS.title} reduces no int16; cast"
    ):
        communicator.name_of(dtypes.int16, "all_reduce of 'x'", library)
