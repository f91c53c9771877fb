"""The reference of the `luminal` command and of its flags, from what the command itself says."""

from __future__ import annotations

import re
from typing import Any

import typer

from luminal.base import config
from luminal.cli.main import app

COMMANDS, FLAGS = "reference/commands.md", "reference/flags.md"


def pages() -> dict[str, str]:
    """The Markdown of both pages, by their paths within the site."""
    return {COMMANDS: _commands(), FLAGS: _flags()}


def _commands() -> str:
    lines = ["# The luminal command", "", "`luminal COMMAND --help` says the same.", ""]
    for path, command in _leaves("luminal", typer.main.get_command(app)):
        lines += [f"## {path}", "", _text(command.help), ""]
        if shown := [each for each in command.params if not each.hidden]:
            lines += ["| argument | what it is | default |", "|---|---|---|"]
            lines += [_parameter(each) for each in shown]
        lines += [""]
    return "\n".join(lines)


def _leaves(path: str, command: Any) -> list[tuple[str, Any]]:
    """The commands that run something; a group of commands is none."""
    if not hasattr(command, "commands"):
        return [(path, command)]
    inside = command.commands.items()
    return [leaf for name, each in inside for leaf in _leaves(f"{path} {name}", each)]


def _parameter(each: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
    default = each.default
    if isinstance(each.show_default, str):
        default = each.show_default
    elif each.required:
        default = "required"
    elif default is None or default is False or default == "" or callable(default):
        default = ""
    return f"| {names} | {_cell(each.help)} | {_cell(str(getattr(default, 'value', default)))} |"


def _flags() -> str:
    lines = [
        "# Flags",
        "",
        "Environment variables; `luminal env` prints them with their values.",
        "",
    ]
    lines += ["| flag | what it decides | it |", "|---|---|---|"]
    flags = [state.flag for state in config.table()]
    lines += [f"| `{flag.name}` | {_cell(flag.help)} | {_cell(flag.rule)} |" for flag in flags]
    return "\n".join(lines) + "\n"


def _cell(text: str | None) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")


def _text(text: str | None) -> str:
    """What would be HTML or a link is shown as it is written."""
    parts = re.split(r"(`[^`]*`)", text or "")
    return "".join(
        part if part.startswith("`") else re.sub(r"([<\[*_])", r"\\\1", part) for part in parts
    )
