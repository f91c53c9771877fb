"""Options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer

Backend = Annotated[
    str, typer.Option("--backend", "--device", help="Where to run; see `luminal devices`.")
]
