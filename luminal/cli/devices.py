"""`luminal devices`: the backends that can run here, and why the others cannot."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def command() -> None:
    """List the usable backends, and the reason where one is not."""
    from luminal import session

    table = Table("backend", "what it is", "usable")
    for device in session.devices():
        usable = "yes" if device.usable else f"no: {device.reason}"
        table.add_row(device.name, device.summary, usable)
    Console().print(table)
