"""Every kernel of the numerics suite compiles for chips that are not here, and spills nothing under
default schedules: see offline.py. The suite itself goes on by the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from luminal.base.errors import CompileError
from luminal.frontend.graph import Recorder
from luminal.hlir.graph import Graph
from luminal.session import graph as session
from tests.backends.c_devices.test_numerics import *  # noqa: F403
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import DIALECTS
from tests.backends.c_family.offline import COMPILERS, skip_without
from tests.numerics import recording
from tests.numerics.recording import Array

pytestmark = pytest.mark.long


def check(graph: Graph, name: str) -> None:
    """For all of its architectures, unless it has a dtype that the dialect lacks and refuses."""
    try:
        for architecture in COMPILERS[name].architectures:
            offline.check(graph, name, architecture)
    except CompileError as error:
        if f"{DIALECTS[name].name} computes no f64" not in str(error):
            raise


@pytest.fixture(autouse=True, params=COMPILERS)
def _compiled_too(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    name: str = request.param
    skip_without(name)
    computed = recording._computed

    def checked(
        cx: Recorder, graph: Graph, inputs: Mapping[str, Array], dims: Mapping[str, int]
    ) -> Mapping[str, Any]:
        check(session.narrowed(cx), name)
        return computed(cx, graph, inputs, dims)

    monkeypatch.setattr(recording, "_computed", checked)
