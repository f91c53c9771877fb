"""How much of what ranks send is hidden behind kernels, where a link is slow.

In a network namespace of its own, whose loopback is limited, ranks of one thread train a Llama by
MPI over TCP. Measured are a step, its kernels without other ranks, and its collectives without
kernels; beside them stands the step that the measured link predicts. It takes Linux, `unshare` and
`tc`, and the right to use them.

`python -m bench.slow_link --ranks 2 --rate 1gbit` prints a line for each setting.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from luminal.runtime.timeline import Step, predicted

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY, LENGTH, HEADS = 1024, 128, 8

LIMITED = (
    "ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 256kb latency 50ms"
    ' && exec "$@"'
)
BY_TCP = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}


class Setting(NamedTuple):
    """A model and how it is trained: `batch` is of all ranks."""

    hidden: int
    layers: int
    batch: int
    plan: str
    order: str


SETTINGS = (
    Setting(256, 4, 32, "data", "tree"),
    Setting(256, 4, 32, "data", "engine"),
    Setting(256, 2, 64, "zero1", "tree"),
    Setting(256, 4, 16, "data", "tree"),
    Setting(256, 4, 64, "data", "tree"),
)


class Round(NamedTuple):
    """What a step, its kernels and its collectives took, and the seconds predicted for the step."""

    took: Step
    predicted: float

    @property
    def error(self) -> float:
        """What is predicted too much, as a share of the step."""
        return self.predicted / self.took.seconds - 1


def compiled(setting: Setting) -> Any:
    """The executable of a training step on this rank, and a call of it."""
    import luminal as lm
    from luminal import optim
    from luminal.models.train import ModelSettings, new_llama, next_token_loss

    ranks = lm.distributed.size()
    mesh = lm.Mesh((ranks,), ("data",))
    inner = setting.hidden * 11 // 4
    sizes = ModelSettings(
        setting.hidden, inner, setting.layers, HEADS, LENGTH, num_key_value_heads=HEADS
    )
    model = lm.shard(new_llama(sizes, VOCABULARY), setting.plan, mesh)
    graph = lm.Graph("step")
    shape = (setting.batch, LENGTH)
    ids = graph.tensor(shape, "int64", name="ids").shard("data")
    targets = graph.tensor(shape, "int64", name="targets").shard("data")
    loss = next_token_loss(model(ids), targets)
    loss.output("loss")
    optim.AdamW(model.named_parameters(), lr=1e-3).step(loss)
    return lm.compile(graph, mesh=mesh, collectives=setting.order)


def measure(setting: Setting, rounds: int, shows: bool) -> list[Round]:
    """A setting, measured by all ranks, of which the slowest counts: all that is compared is
    measured in each round, since the machine may have other work.
    """
    import luminal as lm
    from luminal.distribute.links import measured
    from luminal.session.on_mesh import engines_of

    engine = lm.distributed.init()
    engines = engines_of(lm.Mesh((engine.size,), ("data",)), engine)
    exe = compiled(setting)
    runner = exe._variants[0].runner
    windows = np.random.default_rng(0).integers(
        0, VOCABULARY, (setting.batch // engine.size, LENGTH + 1)
    )
    batch = {"ids": windows[:, :-1].copy(), "targets": windows[:, 1:].copy()}
    exe(batch)
    launches, dims = runner.program.launches, exe.report().dims
    moves = Moves(launches, dims, engines)

    def alone() -> Any:
        runner.ranks.is_alone = True
        try:
            return exe.profile(batch, runs=1).kernels
        finally:
            runner.ranks.is_alone = False

    alone()
    moves()
    out = []
    for _ in range(rounds):
        engine.barrier()
        rows = alone()
        kernels = sum(row.seconds for row in rows if not row.is_collective)
        step = _seconds(lambda: exe(batch), engine)
        collectives = _seconds(moves, engine)
        guess = predicted(launches, rows, dims, measured(engines)).seconds
        ours = np.array([step, kernels, collectives, guess])
        slowest = np.empty_like(ours)
        engine.run("all_reduce", ours, slowest, label="the slowest", monoid="max")
        *took, guess = slowest.tolist()
        out.append(Round(Step(*took), guess))
    if shows:
        together = exe.profile(batch, runs=1).kernels
        for row, before in zip(together, rows, strict=True) if not engine.rank else ():
            print(f"{row.seconds * 1e3:8.2f} {before.seconds * 1e3:8.2f} ms  {row.label}")
    return out


class Moves:
    """The collectives of a program, started and waited for in its order without its kernels."""

    def __init__(self, launches: Any, dims: dict[str, int], engines: Any) -> None:
        self._dims, self._engines = dims, engines
        self._calls = [self._call(launch) for launch in _unrolled(launches, dims)]

    def __call__(self) -> None:
        """Runs all of them."""
        tickets: dict[int, Any] = {}
        for phase, ticket, engine, start in self._calls:
            if phase != "wait":
                tickets[ticket] = start()
            if phase != "start":
                engine.wait(tickets.pop(ticket))

    def _call(self, launch: Any) -> tuple[str, int, Any, Callable[[], Any]]:
        attrs, members = launch.attrs, launch.members
        halves = (launch.sizes[:members], launch.sizes[members:])
        dtype = launch.dtype.numpy if attrs.reduction else np.uint8
        unit = 1 if attrs.reduction else launch.dtype.size
        source, target = (
            np.zeros(unit * sum(size.evaluate(self._dims) for size in half), dtype)
            for half in halves
        )
        engine = self._engines[attrs.axis]
        how = {"label": launch.label, "pairs": attrs.pairs}
        if attrs.reduction:
            how["monoid"] = attrs.reduction.lower()
        return (
            launch.phase, launch.ticket, engine,
            lambda: engine.start(attrs.kind, source, target, **how),
        )  # fmt: skip


def _unrolled(launches: Any, dims: dict[str, int]) -> list[Any]:
    from luminal.program.launch_list import CollectiveLaunch, LoopLaunch

    out = []
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            out += _unrolled(launch.body, dims) * launch.trips.evaluate(dims)
        elif isinstance(launch, CollectiveLaunch):
            out.append(launch)
    return out


def _seconds(run: Callable[[], object], engine: Any) -> float:
    engine.barrier()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _launch(arguments: Sequence[str], ranks: int, rate: str) -> int:
    """Runs this script on so many ranks behind a slow link."""
    own = [sys.executable, "-m", "luminal", "launch", "-n", str(ranks), "-m", "bench.slow_link"]
    limited = ["unshare", "--net", "sh", "-c", LIMITED.format(rate=rate), "sh"]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, **BY_TCP, "LUMINAL_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run([*limited, *own, "--here", *arguments], env=environment).returncode


def main() -> None:
    """Starts the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settings", default="", help="numbers of those to run, as 0,2")
    parser.add_argument("--show", action="store_true", help="the seconds of each launch")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.here:
        sys.exit(_launch(sys.argv[1:], options.ranks, options.rate))
    import luminal as lm

    engine = lm.distributed.init()
    numbers = map(int, options.settings.split(",")) if options.settings else range(len(SETTINGS))
    for number in numbers:
        setting = SETTINGS[number]
        rounds = measure(setting, options.rounds, options.show)
        if not engine.rank:
            print(f"{number}: {setting}, {engine.size} ranks: {_summary(rounds)}", flush=True)


def _summary(rounds: list[Round]) -> str:
    """The medians in words."""

    def mid(value: Callable[[Round], float]) -> float:
        return median(map(value, rounds))

    return (
        f"kernels {mid(lambda r: r.took.kernels) * 1e3:.0f} ms, "
        f"collectives {mid(lambda r: r.took.collectives) * 1e3:.0f}, "
        f"step {mid(lambda r: r.took.seconds) * 1e3:.0f}, "
        f"hidden {mid(lambda r: r.took.hidden):.2f}; "
        f"predicted {mid(lambda r: r.predicted) * 1e3:.0f}, {mid(lambda r: r.error):+.0%}"
    )


if __name__ == "__main__":
    main()
