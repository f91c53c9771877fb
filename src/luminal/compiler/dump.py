"""Every stage of a compile as text: what `luminal compile --dump` prints and the tour shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from luminal.algebra import term_text
from luminal.backends.backend import Backend, Interpreter
from luminal.base.errors import CompileError
from luminal.base.forks import cached_property
from luminal.compiler import compile
from luminal.hlir import graphviz as hlir_dot
from luminal.hlir import printer
from luminal.hlir.graph import Graph
from luminal.kernel import tile_text
from luminal.kernel.tile_ir import Kernel
from luminal.program import graphviz as program_dot
from luminal.program import launch_text, selection_text

STAGES = ("hlir", "algebra", "selection", "program", "tile")
"""The IRs in processing order. A backend's sources follow ("expanded", "llvm", "asm"); ".dot" are
pictures.
"""


class Dump:
    """The stages of one graph for one backend; the compiler runs when a stage first needs it.

    `compiled`: the stages of a program that is chosen already, as by a search; else `fast` chooses.
    """

    def __init__(
        self, graph: Graph, backend: Backend | Interpreter, compiled: compile.Stages | None = None
    ) -> None:
        self.graph = graph
        self.backend = backend
        self._compiled = compiled
        self._texts: dict[str, Callable[[], str]] = {
            "hlir": lambda: printer.to_text(graph),
            "hlir.dot": lambda: hlir_dot.to_dot(graph),
        }
        if not isinstance(backend, Interpreter):
            self._texts |= {
                "algebra": lambda: term_text.to_text(self.stages.lowered),
                "selection": lambda: selection_text.to_text(self.stages.selection),
                "program": lambda: launch_text.to_text(self.stages.program),
                "tile": lambda: self._kernels(tile_text.to_text),
                "program.dot": lambda: program_dot.to_dot(self.stages.program),
            }
            self._texts |= {
                name: partial(self._kernels, write) for name, write in backend.renderers.items()
            }

    @cached_property
    def stages(self) -> compile.Stages:
        """The IRs of the whole compile, in order."""
        if self._compiled is not None:
            return self._compiled
        assert not isinstance(self.backend, Interpreter)
        return compile.lower_by_stages(self.graph, self.backend)

    def text(self, stage: str) -> str:
        """The text of one stage; raises CompileError where the backend has no such stage."""
        if stage not in self._texts:
            stages = ", ".join(self._texts)
            raise CompileError(f"backend {self.backend.name!r} has no stage {stage!r}: {stages}")
        return self._texts[stage]().rstrip("\n")

    def _kernels(self, write: Callable[[Kernel], str]) -> str:
        """Every distinct kernel under its number, which launches in the program's text name."""
        kernels = enumerate(self.stages.program.kernels)
        return "\n\n".join(f"k{number}:\n{write(kernel)}" for number, kernel in kernels)
