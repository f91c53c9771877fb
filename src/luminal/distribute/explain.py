"""What is said of a program on a mesh: how its inputs and outputs lie, and every collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from luminal.distribute.choose import Choice, axes_of
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
    lines += aligned(cells)
    counted = Counter(row.kind for row in distributed.rows)
    kinds = ", ".join(f"{n} {kind}" for kind, n in counted.items())
    lines.append(f"  {kinds}; {total_bytes(distributed)} bytes sent by a rank in a run")
    return "\n".join(lines)


def why_chosen(choices: Sequence[Choice], memory: float) -> str:
    """What plan "auto" has taken, what the others would have cost, and how to write it down."""
    first = choices[0]
    cells = [("plan", "mesh", "step", "waits", "sends", "memory", "")]
    for choice in choices:
        cost = choice.price
        cells.append(
            (
                choice.plan,
                axes_of(choice.mesh),
                _seconds(cost.seconds),
                _seconds(cost.exposed),
                amount(cost.sent),
                amount(cost.peak),
                "" if choice.fits else "does not fit",
            )
        )
    text = first.text().replace("\n", "\\n")
    return "\n".join(
        [
            f"plan {first.plan} on {axes_of(first.mesh)} was chosen; a rank has {amount(memory)}; "
            "predicted:",
            *aligned(cells),
            f'  to keep it: mesh, plan = lm.distributed.read_plan("{text}")',
        ]
    )


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, whose columns begin below one another."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = (zip(line, widths, strict=True) for line in cells)
    return [("  " + "  ".join(cell.ljust(width) for cell, width in row)).rstrip() for row in rows]


def amount(size: float) -> str:
    """Bytes in words: `1.5 GB`."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.0f} bytes"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def total_bytes(distributed: Distributed) -> Expression:
    """The bytes that a rank sends in a run."""
    return sum_of([row.bytes * row.trips for row in distributed.rows])
