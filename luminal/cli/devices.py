"""`luminal devices`: the backends that can run here, and why the others cannot."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def command() -> None:
    """List the usable backends, and the reason where one is not."""
    from luminal import session

    table = Table("backend", "usable", "detail")
    for device in session.devices():
        table.add_row(device.name, "yes" if device.usable else "no", device.detail)
    Console().print(table)
