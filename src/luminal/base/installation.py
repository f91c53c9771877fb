"""How this copy of Luminal came to be installed, and what installs more of it.

The distribution is not called `luminal`: an index has another project of that name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

NAME = "luminal-compiler"
VERSION = "0.1.0"  # pyproject.toml reads it here


def hint(extra: str) -> str:
    """The end of an error text: how an extra of pyproject.toml is added to this installation.

    A checkout is installed again in place; a wheel, a folder or a repository again from where it
    came from; what came from an index, by its name.
    """
    return f"install it by `{_shown(sys.executable)} -m pip install {_requirement(extra)}`"


def _requirement(extra: str) -> str:
    checkout = _checkout()
    if checkout is not None:
        return f"-e '{_shown(checkout)}[{extra}]'"
    origin = _origin()
    return f"'{NAME}[{extra}]'" if origin is None else f"'{NAME}[{extra}] @ {origin}'"


def _checkout() -> Path | None:
    """The folder with pyproject.toml that this file runs from; None where it is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() else None


def _origin() -> str | None:
    """The address that pip noted of a distribution that is from no index (PEP 610)."""
    from importlib import metadata  # late: takes longer than most of what is imported at a start

    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    # PEP 610: of what came from an index by its name, pip notes no address.
    if text is None:
        return None
    noted = json.loads(text)
    vcs = noted.get("vcs_info")
    if vcs is None:
        return str(noted["url"])
    # The commit, not a branch: an extra is added to the code that is installed.
    return f"{vcs['vcs']}+{noted['url']}@{vcs['commit_id']}"


def _shown(path: str | Path) -> str:
    """A path as one would type it: from here where it lies below, else whole."""
    path = os.path.abspath(path)
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
