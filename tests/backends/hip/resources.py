"""What kernels of each kind take of AMD's chips, as clang compiles them: `python -m
tests.backends.hip.resources` prints the tables of docs/measurements.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import luminal as lm
from luminal.backends.hip.backend import Hip
from luminal.codegen.c_family.launched import shared_bytes
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from tests.backends.c_family.accesses import LARGE
from tests.backends.c_family.matrix_products import product
from tests.backends.packed_products import product as packed_product
from tests.simt import offline

CHIPS = "gfx942", "gfx90a", "gfx1100"
MATRIX = re.compile(r"v_s?w?mf?ma")


def square(dtype: str, size: int = 4096) -> Callable[[], Graph]:
    """A product of square matrices, the second one turned."""
    return lambda: product(dtype, size, size, size, (False, True))


def packed(kind: str, rows: int) -> Callable[[], Graph]:
    """Rows of bfloat16 by a packed weight."""
    return lambda: packed_product(kind, rows, (4096, 4096), lm.bfloat16).graph


KINDS: Mapping[str, Callable[[], Graph]] = {
    **{f"product of {dtype}": square(dtype) for dtype in ("bfloat16", "int8", "float32")},
    "product of bfloat16, 1000 long": square("bfloat16", 1000),
    **{name: LARGE[name] for name in (
        "one row of bf16", "attention of bf16", "softmax", "layer norm", "gelu", "sum of rows",
        "sum of columns", "cumulative sum", "sort",
    )},
    "Q4_0, one row": packed("Q4_0", 1),
    "Q4_0, 16 rows": packed("Q4_0", 16),
}  # fmt: skip


class Taken(NamedTuple):
    """What the largest of a program's kernels take; matrix instructions in all of their code."""

    registers: int
    shared: int
    spilled: int
    matrices: int

    def __str__(self) -> str:
        return f"{self.registers}, {self.shared:,}, {self.spilled}, {self.matrices}"


def taken(graph: Graph, chip: str) -> Taken:
    """What a graph's program takes of a chip."""
    made, all_taken = Hip.named(chip), []
    for kernel in lower_to_program(graph, made).kernels:
        text = made.text(kernel)
        resources = offline.hip_resources(text, chip)
        code = offline.hip_instructions(text, chip)
        matrices = sum(n for name, n in code.items() if MATRIX.match(name))
        shared = shared_bytes(made.expansion(kernel))
        spilled = max(resources.spilled, resources.stack)
        all_taken.append(Taken(resources.registers, shared, spilled, matrices))
    *most, _ = map(max, zip(*all_taken, strict=True))
    return Taken(*most, sum(each.matrices for each in all_taken))


def main() -> None:
    """Prints the table."""
    print(f"| kernel | {' | '.join(CHIPS)} |\n|---|{'---|' * len(CHIPS)}")
    for name, graph in KINDS.items():
        cells = [str(taken(graph(), chip)) for chip in CHIPS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
