"""`luminal completion`: the text by which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
)

completion_init()  # what a shell calls by that text; typer adds it else with options that change it


Shell = StrEnum("Shell", ["bash", "zsh", "fish", "powershell"])
"""A shell that typer has a text for."""


def command(
    shell: Annotated[
        Shell, typer.Argument(help="The shell that will read the text.", show_default=False)
    ],
) -> None:
    """Print what makes SHELL complete commands and options.

    For bash, add `source <(luminal completion bash)` to ~/.bashrc, for zsh the same to ~/.zshrc;
    for fish, `luminal completion fish | source` to ~/.config/fish/config.fish.
    """
    typer.echo(
        get_completion_script(
            prog_name="luminal", complete_var="_LUMINAL_COMPLETE", shell=shell.value
        )
    )
