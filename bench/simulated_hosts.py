"""all_reduce of the links' model beside SimGrid's simulation of its messages, host by host.

SimGrid (https://simgrid.org; Debian's python3-simgrid) shares links among messages as they come.
Every host has a link of its own to a switch, with the latency and bandwidth that the model is
given; a message is one of an all_reduce by recursive doubling, or by halving and doubling. The flow
model is taken plain: SimGrid's calibration to TCP on one old cluster is no part of a latency and a
bandwidth.

`python -m bench.simulated_hosts` prints a line for each number of hosts and size; it says so where
SimGrid is not there. It may belong to another interpreter of this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HOSTS = (64, 256, 1024)
SIZES = (8, 64 << 10, 1 << 20, 64 << 20)
LATENCY, BANDWIDTH = 20e-6, 1.25e9  # of a network of 10 Gbit


class Row(NamedTuple):
    """The seconds of an all_reduce of `size` bytes on so many hosts."""

    hosts: int
    size: int
    simulated: float
    predicted: float

    @property
    def error(self) -> float:
        """What is predicted too much, as a share of what is simulated."""
        return self.predicted / self.simulated - 1


def interpreter() -> str | None:
    """A Python that has SimGrid: this one, or the system's; None where there is none."""
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        if python is not None:
            asked = [python, "-c", "import simgrid"]
            if not subprocess.run(asked, capture_output=True).returncode:
                return python
    return None


def compared(
    python: str, hosts: int, sizes: Sequence[int] = SIZES, latency: float = LATENCY
) -> list[Row]:
    """What SimGrid and the model say of so many hosts."""
    from luminal.base.costs import Link
    from luminal.distribute.price import collective_seconds

    asked = json.dumps({"hosts": hosts, "sizes": list(sizes), "latency": latency})
    child = [python, str(Path(__file__)), asked]
    said = subprocess.run(child, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    link = Link(latency, BANDWIDTH)
    return [
        Row(hosts, size, seconds, collective_seconds("all_reduce", size, hosts, link))
        for size, seconds in zip(sizes, json.loads(said.stdout), strict=True)
    ]


# --- what runs where SimGrid is


def messages(algorithm: str, rank: int, hosts: int, size: float) -> Iterator[tuple[int, float]]:
    """The rounds of an all_reduce on a power of two of hosts: with whom a rank exchanges how many
    bytes.
    """
    distances = [1 << k for k in range(hosts.bit_length() - 1)]
    if algorithm == "doubling":
        for distance in distances:
            yield rank ^ distance, size
        return
    for distance in reversed(distances):  # halves are reduced, then gathered again
        yield rank ^ distance, size * distance / hosts
    for distance in distances:
        yield rank ^ distance, size * distance / hosts


def simulated(hosts: int, sizes: Sequence[int], latency: float) -> list[float]:
    """The seconds of each size by the algorithm that is faster, in one simulation."""
    import simgrid

    plain = [
        "--cfg=network/model:CM02",
        "--cfg=network/crosstraffic:0",
        "--log=root.thres:critical",
    ]
    engine = simgrid.Engine(["hosts", *plain, "--cfg=network/TCP-gamma:1e12"])
    zone = simgrid.NetZone.create_star_zone("switch")
    places = [zone.create_host(f"host{k}", 1e9) for k in range(hosts)]
    for k, place in enumerate(places):
        link = zone.create_split_duplex_link(f"link{k}", BANDWIDTH)
        link.set_latency(latency / 2)  # a message takes two links
        way = simgrid.LinkInRoute(link, simgrid.LinkInRoute.Direction.UP)
        zone.add_route(place.netpoint, None, None, None, [way], True)
    zone.seal()
    barrier = simgrid.Barrier(hosts)
    runs = [(size, algorithm) for size in sizes for algorithm in ("doubling", "halving")]
    ends: list[float] = []

    def work(rank: int) -> None:
        for size, algorithm in runs:
            for other, count in messages(algorithm, rank, hosts, size):
                sent = simgrid.Mailbox.by_name(f"{rank} {other}").put_async(b"", round(count))
                simgrid.Mailbox.by_name(f"{other} {rank}").get()
                sent.wait()
            barrier.wait()
            if not rank:
                ends.append(simgrid.Engine.clock)

    for rank, place in enumerate(places):
        simgrid.Actor.create(f"rank{rank}", place, work, rank)
    engine.run()
    took = [end - start for start, end in zip([0.0, *ends], ends, strict=False)]
    return [min(pair) for pair in zip(took[::2], took[1::2], strict=True)]


def main(arguments: Sequence[str]) -> None:
    """Prints the comparison, or with an argument what SimGrid says."""
    if arguments:
        asked: dict[str, Any] = json.loads(arguments[0])
        print(json.dumps(simulated(**asked)))
        return
    python = interpreter()
    if python is None:
        sys.exit("SimGrid is not there: apt-get install python3-simgrid")
    for hosts in HOSTS:
        for row in compared(python, hosts):
            print(
                f"{row.hosts} hosts, {row.size} bytes: SimGrid {row.simulated * 1e6:.1f} us, "
                f"predicted {row.predicted * 1e6:.1f}, {row.error:+.1%}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
