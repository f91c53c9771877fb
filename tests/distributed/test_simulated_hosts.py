"""The links' model beside SimGrid's simulation of the messages; skipped where that is not there."""

from __future__ import annotations

import pytest

from bench.simulated_hosts import Row, compared, interpreter, messages

PYTHON = interpreter()


@pytest.mark.skipif(PYTHON is None, reason="no Python here has SimGrid (Debian: python3-simgrid)")
@pytest.mark.parametrize("latency", [2e-5, 2e-4])
def test_an_all_reduce_of_64_hosts_takes_what_is_simulated(latency: float) -> None:
    assert PYTHON is not None
    rows = compared(PYTHON, 64, (8, 1 << 16, 1 << 23), latency)
    assert len(rows) == 3
    assert all(abs(row.error) < 0.05 for row in rows), rows


@pytest.mark.parametrize(("algorithm", "times"), [("doubling", 4), ("halving", 2 * 15 / 16)])
def test_the_messages_lead_from_every_host_to_every_other(algorithm: str, times: float) -> None:
    hosts, size = 16, 1024
    reached = [{rank} for rank in range(hosts)]
    sent = 0.0
    for rounds in zip(*(messages(algorithm, r, hosts, size) for r in range(hosts)), strict=True):
        assert all(rounds[other] == (r, count) for r, (other, count) in enumerate(rounds))
        reached = [reached[r] | reached[other] for r, (other, _) in enumerate(rounds)]
        sent += rounds[0][1]
    assert reached == [set(range(hosts))] * hosts
    assert sent == times * size


def test_an_error_is_a_share_of_what_is_simulated() -> None:
    assert Row(2, 8, 2.0, 2.5).error == 0.25
