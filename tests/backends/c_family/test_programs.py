"""Random graphs and whole models in the texts of each dialect that the shims run, every access and
barrier checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.base.errors import CompileError
from tests.backends.c_family.dialects import CHECKED, DIALECTS, checked
from tests.backends.c_family.small_models import CHECKS
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import random_case
from tests.long_share import long_but

CHUNK = 25


@dataclass(frozen=True)
class Here:
    """A row of the registry whose one device is the shims."""

    backend: CBackend
    knows_chips = False

    def current(self, number: int = 0) -> CBackend:
        """The device, which is the first."""
        return self.backend

    def unavailable(self) -> None:
        """It is always here."""

    def count(self) -> int:
        """There is one."""
        return 1


@pytest.mark.parametrize("name", long_but(CHECKED, ("cuda", "metal")))
def test_a_few_random_graphs(name: str) -> None:
    check_seeds(name, range(1))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(12))
@pytest.mark.parametrize("name", CHECKED)
def test_random_graphs(name: str, chunk: int) -> None:
    check_seeds(name, range(CHUNK * chunk, CHUNK * (chunk + 1)))


def check_seeds(name: str, seeds: range) -> None:
    """Near the reference; a graph of a dtype that the dialect lacks is refused by its name."""
    backend, refused = checked(name), 0
    for seed in seeds:
        case = random_case(seed)
        try:
            check_case(compiled_on(backend, case.graph), case)
        except CompileError as error:
            if f"{DIALECTS[name].name} computes no f64" not in str(error):
                raise
            refused += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert refused < len(seeds), "every graph was refused"


@pytest.mark.long
@pytest.mark.parametrize("model", CHECKS)
@pytest.mark.parametrize("name", CHECKED)
def test_models(name: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, name, Here(checked(name)))
    CHECKS[model](tmp_path, name)
