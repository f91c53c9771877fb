"""Files of NVIDIA's wheels, wherever Python finds these."""

from __future__ import annotations

from importlib import metadata


def files(wheel: str, beginning: str) -> list[str]:
    """The paths of a wheel's files whose names begin so; none where it is not installed."""
    try:
        packed = metadata.distribution(wheel).files or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file.locate()) for file in packed if file.name.startswith(beginning)]
