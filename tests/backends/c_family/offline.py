"""Programs as texts for devices that are not here, and the compilers that take these texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc
from luminal.base.errors import CompileError
from luminal.compiler.compile import lower_to_program
from luminal.frontend.graph import Recorder
from luminal.hlir.graph import Graph
from luminal.session import graph as session
from tests.backends.c_family.dialects import DIALECTS
from tests.numerics import recording
from tests.simt import offline

CHIPS = {"cuda": "sm_90a", "hip": "gfx942", "metal": "apple9"}


@cache
def backend(name: str) -> CBackend:
    """CUDA, HIP or Metal for a chip that is not here: texts need none."""
    made = registry.compiling(f"{name}:{CHIPS[name]}")
    assert isinstance(made, CBackend)
    return made


def texts_of(graph: Graph, name: str) -> list[str]:
    """Those of the program of `fast`, each once."""
    made = backend(name)
    return [*dict.fromkeys(map(made.text, lower_to_program(graph, made).kernels))]


class Taken(Exception):
    """A graph was compiled, which is all that was wanted."""


@contextmanager
def graphs() -> Iterator[list[Graph]]:
    """Lists the graph of each compile inside, with dims narrowed. They end there, as Taken."""
    found: list[Graph] = []

    def runner(plan: Any, graph: Graph, share: int) -> Any:
        found.append(graph)
        raise Taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session._Plan, "runner", runner)
        yield found


def graph_of(compiles: Callable[[], object]) -> Graph:
    """The graph that is compiled first."""
    with graphs() as found, pytest.raises(Taken):
        compiles()
    return found[0]


# --- compilers ------------------------------------------------------------------------------------


def _nvrtc_absence() -> str | None:
    try:
        nvrtc.version()
    except CompileError as error:
        return str(error)
    return None


def _clang_absence() -> str | None:
    return None if offline.clang() else "neither clang 19 to 22 nor the wheel ziglang is installed"


def _spilled_by_nvrtc(text: str, architecture: str) -> int:
    return nvrtc.compile(text, architecture).spilled


def _spilled_by_clang(text: str, architecture: str) -> int:
    return offline.hip_resources(text, architecture).spilled


def _check_spaces(text: str, language: str) -> int:
    offline.check_metal(text)
    return 0


@dataclass(frozen=True)
class Compiler:
    """What takes a backend's texts for these architectures, and says how much of registers it had
    to put into memory; `absence` is why it is not here.
    """

    architectures: tuple[str, ...]
    absence: Callable[[], str | None]
    spilled: Callable[[str, str], int]


COMPILERS: dict[str, Compiler] = {
    "cuda": Compiler(("sm_80", "sm_90a", "sm_100a"), _nvrtc_absence, _spilled_by_nvrtc),
    "hip": Compiler(("gfx90a", "gfx942", "gfx1100"), _clang_absence, _spilled_by_clang),
    "metal": Compiler(("metal3.2",), _clang_absence, _check_spaces),
}
TARGETS = [(name, each) for name, made in COMPILERS.items() for each in made.architectures]


def skip_without(name: str) -> None:
    """Skips the test where nothing takes the texts of a backend."""
    absence = COMPILERS[name].absence()
    if absence is not None:
        pytest.skip(absence)


@cache
def _spilled(compiler: Compiler, text: str, architecture: str) -> int:
    return compiler.spilled(text, architecture)


def check(graph: Graph, name: str, architecture: str) -> int:
    """All kernels of a graph's program compile and keep their values in registers: how many."""
    texts = texts_of(graph, name)
    for text in texts:
        spilled = _spilled(COMPILERS[name], text, architecture)
        assert spilled == 0, f"{spilled} spilled for {architecture} by\n{text}"
    return len(texts)


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Every graph that `tests.numerics.recording` runs inside is compiled too, for all of the
    architectures of a backend, unless it has a dtype that the dialect lacks and refuses.
    """
    skip_without(name)
    computed = recording._computed

    def checked(cx: Recorder, graph: Graph, *rest: Any) -> Any:
        try:
            for architecture in COMPILERS[name].architectures:
                check(session.narrowed(cx), name, architecture)
        except CompileError as error:
            if f"{DIALECTS[name].name} computes no f64" not in str(error):
                raise
        return computed(cx, graph, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "_computed", checked)
        yield
