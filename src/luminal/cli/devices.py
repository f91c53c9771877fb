"""`luminal devices`: the devices that programs can run on here, and why others cannot be used."""

from __future__ import annotations

from luminal.cli.console import console, table


def command() -> None:
    """List the usable devices with their memory, and the reason where one is not."""
    from luminal.session import device_choice

    shown = table("device", "what it is", "usable", "memory", "free")
    for device in device_choice.devices():
        usable = "yes" if device.usable else f"no: {device.reason}"
        memory = device.memory or (None, None)
        shown.add_row(device.name, device.summary, usable, *map(_size, memory))
    console().print(shown)


def _size(count: int | None) -> str:
    return "" if count is None else f"{count / 2**30:.1f} GiB"
