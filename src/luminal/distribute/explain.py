"""What is said of a program on a mesh: how its inputs and outputs lie, and every collective."""

from __future__ import annotations

from collections import Counter

from luminal.distribute.distribute import Distributed
from luminal.distribute.layout import text
from luminal.distribute.mesh import Mesh
from luminal.shape.expression import Expression, sum_of


def explanation(distributed: Distributed, mesh: Mesh) -> str:
    """A table of the collectives of a rank's run, in the order of the program."""
    axes = ", ".join(f"{name} {n}" for name, n in zip(mesh.names, mesh.shape, strict=True))
    lines = [f"{mesh.size} ranks: {axes}"]
    for what, layouts in (("input", distributed.inputs), ("output", distributed.outputs)):
        lines += [f"  {what} {name} {text(layout)}" for name, layout in layouts.items()]
    if not distributed.rows:
        return "\n".join([*lines, "  no collectives: nothing crosses the mesh"])
    cells = [("kind", "axis", "bytes sent", "value", "why")]
    for row in distributed.rows:
        trips = "" if row.trips == 1 else f" x {row.trips}"
        shape = ", ".join(map(str, row.shape))
        cells.append(
            (
                row.kind,
                row.axis,
                f"{row.bytes}{trips}",
                f"{row.dtype.short}[{shape}] {row.reason.value}",
                row.reason.why,
            )
        )
    widths = [max(len(line[k]) for line in cells) for k in range(4)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        lines.append(("  " + "  ".join([*padded, line[4]])).rstrip())
    counted = Counter(row.kind for row in distributed.rows)
    kinds = ", ".join(f"{n} {kind}" for kind, n in counted.items())
    lines.append(f"  {kinds}; {total_bytes(distributed)} bytes sent by a rank in a run")
    return "\n".join(lines)


def total_bytes(distributed: Distributed) -> Expression:
    """The bytes that a rank sends in a run."""
    return sum_of([row.bytes * row.trips for row in distributed.rows])
