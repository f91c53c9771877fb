"""The device that the tests run on, or the reason to skip them."""

from __future__ import annotations

from typing import Any

import pytest

from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.opencl import OPENCL
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from tests.backends.on_device import compiled_on

platforms = pytest.importorskip("luminal.backends.opencl.platforms")
try:
    platforms.devices()
except CompileError as error:
    pytest.skip(str(error), allow_module_level=True)

OpenClDriver = pytest.importorskip("luminal.backends.opencl.driver").OpenClDriver


def driver() -> Any:
    """A new one, for kernels that are expanded already."""
    return OpenClDriver(lambda kernel: spell(kernel.expanded, OPENCL))


backend = pytest.importorskip("luminal.backends.opencl.backend")


def compiled(graph: Graph) -> Executable:
    """The executable of a graph on the first device."""
    return compiled_on(backend.current(), graph)
