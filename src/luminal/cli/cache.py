"""`luminal cache`: look at what is kept between processes, or delete it."""

from __future__ import annotations

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


@app.command("clear")
def clear() -> None:
    """Delete every compiled kernel, and what searches measured and decided."""
    from luminal.runtime import object_cache
    from luminal.search import database

    prices, programs = database.default().clear()
    typer.echo(f"removed {object_cache.clear()} entries, {programs} searches, {prices} prices")
