"""`luminal env`: every flag with its value, and the versions of packages and libraries in use."""

from __future__ import annotations

import importlib.metadata
import platform

from luminal.backends import registry
from luminal.base import config, installation
from luminal.cli.console import console, table

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite")


def command() -> None:
    """Show all flags (environment variables) with their values, and versions."""
    out = console()
    flags = table("flag", "value", "meaning", title="flags", title_justify="left")
    flags.columns[0].no_wrap = True  # one is longer than a third of a terminal
    for row in config.table():
        value = "unset" if row.value is None else str(row.value)
        origin = "default" if row.is_default else "set"
        meaning = f"{row.flag.help}; {row.flag.rule}"
        flags.add_row(row.flag.name, f"{value}\n({origin})", meaning)
    out.print(flags)
    out.print(f"python {platform.python_version()}, {platform.platform()}")
    out.print(f"luminal {installation.VERSION}", highlight=False)
    for package in _PACKAGES:
        out.print(f"{package} {_version(package)}", highlight=False)
    for backend in registry.BACKENDS.values():
        for library in backend.libraries():
            out.print(f"{backend.name}: {library}", highlight=False)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
