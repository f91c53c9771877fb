"""Writes what follows from the table of names: `make names`.

Beside each module whose functions `luminal.frontend.names.table` lists lies a `.pyi`, by which
editors and type checkers see their signatures. `tests/unit/frontend/public_names.txt` lists all
names that are public, so that the loss of one is seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import luminal as lm
from luminal.frontend.names.table import homes

PACKAGE = Path(lm.__file__).parent
PUBLIC_NAMES = Path(__file__).parent / "unit" / "frontend" / "public_names.txt"

MODULES = {
    "functions.pyi": ("lm",),
    "nn/functional.pyi": ("functional", "inplace"),
    "linalg.pyi": ("linalg",),
    "special.pyi": ("special",),
}
"""The derived modules, and the places of the table whose functions they have."""

HEAD = "# Made from the table of names, luminal/frontend/names/table.py, by `make names`.\n"


# --- what editors and type checkers read ----------------------------------------------------------


def stubs() -> dict[Path, str]:
    """The text of each `.pyi`, by its path."""
    texts = {path: _module(*places) for path, places in MODULES.items()}
    texts["frontend/names/methods.pyi"] = _methods()
    texts["array_api/elementwise.pyi"] = _elementwise()
    return {PACKAGE / path: text for path, text in texts.items()}


def _module(*places: str) -> str:
    """A module whose functions are those of other modules, with their signatures."""
    functions = dict(sorted(homes(*places).items()))
    aliases = [f"{name} = {_reference(*home)}" for name, home in functions.items()]
    return _lines(*_imports(functions.values()), "", *aliases, "", *_all(functions))


def _methods() -> str:
    functions = dict(sorted(homes("method").items()))
    handle = "from luminal.frontend.handle import Handle"
    aliases = [f"    {name} = {_reference(*home)}" for name, home in functions.items()]
    imports = sorted([handle, *_imports(functions.values())])
    return _lines(*imports, "", "class Methods(Handle):", *aliases)


def _elementwise() -> str:
    """Functions of Arrays and numbers, or of Tensors: types that no signature here tells apart."""
    names = sorted(homes("array", "promoted", "literal"))
    imports = ["from collections.abc import Callable", "from typing import Any"]
    return _lines(
        *imports, "", *(f"{name}: Callable[..., Any]" for name in names), "", *_all(names)
    )


def _lines(*lines: str) -> str:
    return "\n".join([HEAD, *lines, ""])


def _imports(functions: Iterable[tuple[str, str]]) -> list[str]:
    """An import of each module that has one of the functions, under a name that hides nothing."""
    folders = (module.rpartition(".") for module in sorted({module for module, _ in functions}))
    return [f"from {folder} import {name} as _{name}" for folder, _, name in folders]


def _reference(module: str, name: str) -> str:
    return f"_{module.rpartition('.')[2]}.{name}"


def _all(names: Iterable[str]) -> list[str]:
    return ["__all__ = [", *(f'    "{name}",' for name in names), "]"]


# --- public names ---------------------------------------------------------------------------------

OWNERS = (
    "luminal", "luminal:Tensor", "luminal.linalg", "luminal.special", "luminal.fft",
    "luminal.distributions", "luminal.autograd",
    "luminal.random", "luminal.nn", "luminal.nn.functional",
    "luminal.nn.utils", "luminal.nn.utils.rnn", "luminal.optim", "luminal.training",
    "luminal.models", "luminal.distributed", "luminal.array_api", "luminal.array_api.linalg",
)  # fmt: skip


def public_names() -> list[str]:
    """Every name that users may rely on, with what has it."""
    return [f"{owner} {name}" for owner in OWNERS for name in sorted(_names_of(owner))]


def _names_of(place: str) -> Iterator[str]:
    module, _, name = place.partition(":")
    owner: Any = import_module(module)
    if name:
        owner = getattr(owner, name)
        yield from (name for name in dir(owner) if name not in dir(object))
    elif hasattr(owner, "__all__"):
        yield from owner.__all__
    else:
        yield from (name for name, _ in inspect.getmembers(owner, inspect.isfunction))


def main() -> None:
    """Writes the files that are not as they should be, and says which."""
    texts = stubs()
    texts[PUBLIC_NAMES] = "".join(f"{name}\n" for name in public_names())
    for path, text in texts.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
