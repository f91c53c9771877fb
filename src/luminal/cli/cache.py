"""`luminal cache`: look at what is kept between processes, or delete it."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Compiled kernels and searches kept on disk.", no_args_is_help=True)


@app.command("info")
def info() -> None:
    """Show where the caches are and how full."""
    from luminal.runtime import object_cache
    from luminal.search import database

    facts = object_cache.info()
    typer.echo(f"directory  {facts.directory or 'none usable: kept in memory'}")
    typer.echo(f"entries    {facts.entries}")
    typer.echo(f"bytes      {facts.bytes} of at most {facts.limit_bytes} (LUMINAL_CACHE_BYTES)")
    searches = database.default()
    prices, programs = searches.counts()
    typer.echo(f"searches   {programs} programs, {prices} prices of kernels in {searches.path}")

    for chip, count in searches.chips().items():
        typer.echo(f"timings    {count} of {chip}")


@app.command("export")
def export(file: Path) -> None:
    """Write what searches measured and decided into a new file, for other machines of the chip."""
    from luminal.search import database, moved

    moved.export(database.default(), file)
    for chip, count in database.default().chips().items():
        typer.echo(f"wrote {count} timings of {chip}")


@app.command("import")
def import_(file: Path) -> None:
    """Take in such a file: the rows that are of a chip of this machine."""
    from luminal.search import chip, database, moved

    taken = moved.take(database.default(), file, chip.chips_here())
    typer.echo(f"took {taken.samples} timings and {taken.programs} searches")
    for name, count in taken.left.items():
        typer.echo(f"left {count} timings of another chip: {name}")


@app.command("clear")
def clear() -> None:
    """Delete every compiled kernel, and what searches measured and decided."""
    from luminal.runtime import object_cache
    from luminal.search import database

    prices, programs = database.default().clear()
    typer.echo(f"removed {object_cache.clear()} entries, {programs} searches, {prices} prices")
