"""Products by warp groups, checked on the shims."""

from __future__ import annotations

from functools import cache

from luminal.backends.c_backend import CBackend
from luminal.base.dots import MMA, MMA_FLOAT8, WGMMA
from luminal.base.numerics import Numerics
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages
from luminal.hlir.graph import Graph
from luminal.kernel.knobs import Knobs
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.c_family.checked import preferring
from tests.backends.c_family.matrix_products import check_product, product
from tests.backends.groups.matrix_backend import dots_of


@cache
def device() -> CBackend:
    """A device on the shims that prefers wgmma."""
    return preferring(WGMMA, (*MMA_FLOAT8, *MMA), boxes=True)


def program(
    made: CBackend, dtype: str, sizes: tuple[int, int, int], turned: tuple[bool, bool], knobs: Knobs
) -> Program:
    return scheduled(made, product(dtype, *sizes, turned), knobs)


def scheduled(made: CBackend, graph: Graph, knobs: Knobs) -> Program:
    """The program of a graph of one kernel, scheduled by knobs."""
    stages = lower_by_stages(graph, made, Numerics.RELAXED)
    (step,) = stages.partition.steps
    key = text_key(to_text(made.schedules.place(step).kernel))
    return compile.reschedule(stages, made, {key: knobs}).program


def check(
    dtype: str,
    sizes: tuple[int, int, int],
    turned: tuple[bool, bool],
    knobs: Knobs,
    made: CBackend | None = None,
) -> None:
    """Sees that a product is right, and by the family of dots that knobs name."""
    (m, k, n), made = sizes, made or device()
    lowered = program(made, dtype, sizes, turned, knobs)
    (multiplied,) = dots_of(lowered.kernels[0])
    assert multiplied.family == dict(knobs)["dot"]
    exe = Executable(product(dtype, m, k, n, turned), (Variant({}, made.runner(lowered)),))
    check_product(exe, dtype, m, k, n, turned)
