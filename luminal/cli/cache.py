"""`luminal cache`: look at the cache of compiled kernels, or empty it."""

from __future__ import annotations

import typer

app = typer.Typer(help="The on-disk cache of compiled kernels.", no_args_is_help=True)


@app.command("info")
def info() -> None:
    """Show where the cache is and how full."""
    from luminal.runtime import object_cache

    facts = object_cache.info()
    typer.echo(f"directory  {facts.directory or 'none usable: kept in memory'}")
    typer.echo(f"entries    {facts.entries}")
    typer.echo(f"bytes      {facts.bytes} of at most {facts.limit_bytes} (LUMINAL_CACHE_BYTES)")


@app.command("clear")
def clear() -> None:
    """Delete every entry."""
    from luminal.runtime import object_cache

    typer.echo(f"removed {object_cache.clear()} entries")
