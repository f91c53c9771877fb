"""`luminal links`: what joins ranks here, measured."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.console import console, table


def command(
    ranks: Annotated[int, typer.Option("-n", min=2, help="How many ranks there are.")] = 2,
    mesh: Annotated[
        str | None,
        typer.Option(metavar="AXIS=N,...", help="The mesh; by default one axis of all ranks."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The links as JSON.")] = False,
    here: Annotated[bool, typer.Option("--here", hidden=True)] = False,
) -> None:
    """Measure the latency and the bandwidth between neighbours along each axis of a mesh.

    It starts the ranks itself; under mpiexec or srun give --here. `luminal simulate` takes the
    numbers as --near and --far.
    """
    axes = _axes(mesh or f"data={ranks}")
    if not here:
        from luminal.runtime.collectives.elastic import launch
        from luminal.runtime.collectives.launcher import Ranks

        text = ",".join(f"{name}={count}" for name, count in axes.items())
        asked = ["-m", "luminal", "links", "--here", "-n", str(ranks), "--mesh", text]
        asked += ["--json"] if as_json else []
        raise typer.Exit(launch(Ranks.parse(str(ranks)), asked, 0))
    from luminal.distribute.links import measured
    from luminal.distribute.mesh import Mesh
    from luminal.runtime.collectives.process import init
    from luminal.session.on_mesh import engines_of

    engine = init()
    placed = Mesh(tuple(axes.values()), tuple(axes))
    if placed.size != engine.size:
        raise InputError(
            f"links: the mesh has {placed.size} ranks, and {engine.size} were launched; "
            "give them the same number"
        )
    links = measured(engines_of(placed, engine))
    if engine.rank:
        return
    if as_json:
        rows = {a: {"latency": k.latency, "bandwidth": k.bandwidth} for a, k in links.items()}
        typer.echo(json.dumps(rows))
        return
    shown = table("axis", "ranks", "latency", "bandwidth", "as an option")
    for axis, link in links.items():
        shown.add_row(
            axis, str(axes[axis]), f"{link.latency * 1e6:.1f} us",
            f"{link.bandwidth / 1e9:.2f} GB/s", f"{link.latency:.3g},{link.bandwidth:.4g}",
        )  # fmt: skip
    console().print(shown)


def _axes(text: str) -> dict[str, int]:
    axes = {}
    for part in text.split(","):
        name, _, count = part.strip().partition("=")
        if not name.isidentifier() or not count.isdigit() or int(count) < 1:
            raise InputError(f"links: --mesh {text!r}: {part!r} is no axis; write data=4,tensor=2")
        axes[name] = int(count)
    return axes
