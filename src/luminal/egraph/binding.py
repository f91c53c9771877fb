"""egglog's compiled part alone: parser, e-graph and rule engine.

The package `egglog` is a Python front end around one extension module. The front end imports a
formatter of source text, widgets of notebooks and tracing, some 35 packages and 0.4 s; nothing of
it is used here, as rules are written as egglog's own text. So the extension is loaded by its file,
without the package around it; whoever imports the package later gets the same module.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import util
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from luminal.base import installation
from luminal.base.errors import CompileError

if TYPE_CHECKING:
    from egglog.bindings import EGraph

_NAME = "egglog.bindings"


@cache
def egraph_class() -> type[EGraph]:
    """The class of egglog's e-graphs; CompileError where egglog is not installed."""
    module = sys.modules.get(_NAME)
    if module is None:
        package = util.find_spec("egglog")  # finds it without running it
        spec = package and PathFinder.find_spec(_NAME, package.submodule_search_locations)
        if spec is None or spec.loader is None:
            raise CompileError(
                "search: egglog, which holds the equal programs, is not installed; "
                f'{installation.hint("search")}, or compile with mode="fast"'
            )
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    engine: type[EGraph] = module.EGraph
    return engine
