"""The reference: a page for each public module, from signatures, docstrings and docs/ops.md.

Nothing is written by hand here, so nothing can be forgotten or grow old: what a module offers is
what its `__all__` says, and a test asks that every public name is on a page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from manual import examples

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

MODULES = {
    "luminal": "Graphs, compiles, settings and every function of Tensors, as in `torch`.",
    "luminal.nn": "Layers, with PyTorch's names, options and defaults.",
    "luminal.nn.functional": "What layers compute, as functions.",
    "luminal.nn.init": "How Parameters begin.",
    "luminal.nn.utils": "Clipping of gradients, and Parameters as one vector.",
    "luminal.nn.utils.rnn": "Sequences of several lengths, padded and packed.",
    "luminal.optim": "Optimizers.",
    "luminal.optim.lr_scheduler": "Schedules of learning rates.",
    "luminal.training": "`fit`, its data, callbacks and checkpoints.",
    "luminal.autograd": "Gradients as torch.autograd.grad gives them.",
    "luminal.linalg": "Linear algebra.",
    "luminal.fft": "Fourier transforms.",
    "luminal.special": "Special functions.",
    "luminal.random": "Keys and draws.",
    "luminal.distributions": "Distributions: samples, log-probabilities, divergences.",
    "luminal.models": "Loading and running models.",
    "luminal.distributed": "Ranks, meshes and collectives.",
    "luminal.onnx": "ONNX files.",
    "luminal.array_api": "The array API standard, for eager use.",
    "luminal.torch_backend": '`torch.compile(model, backend="luminal")`.',
}
"""Public modules, in the order of their pages, with a line about each."""


@dataclass(frozen=True)
class Entry:
    """A public name: what it is called, and what can be said of it."""

    name: str
    value: Any
    is_method: bool = False  # whose first parameter is what it is called on

    @property
    def signature(self) -> str:
        """How it is called; empty of what is not."""
        if not callable(self.value):
            return ""
        try:
            signature = inspect.signature(self.value)
        except (TypeError, ValueError):
            return ""
        parameters = list(signature.parameters.values())[self.is_method :]
        text = re.sub(r" at 0x[0-9a-f]+", "", str(signature.replace(parameters=parameters)))
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that are texts

    @property
    def text(self) -> str:
        """Its docstring; of a value that has none, what it is."""
        kind = type(self.value)
        own = getattr(self.value, "__doc__", None)
        if not callable(self.value) and not inspect.ismodule(self.value) and own == kind.__doc__:
            return f"`{self.value!r}`"
        return inspect.cleandoc(own or "")

    @property
    def source(self) -> str:
        """The file and line of its definition, from the root of the repository."""
        try:
            value = inspect.unwrap(self.value)
            path = Path(inspect.getsourcefile(value) or "").resolve()
            code = getattr(value, "__code__", None)
            line = code.co_firstlineno if code else inspect.findsource(value)[1] + 1
            return f"{path.relative_to(ROOT).as_posix()}:{line}"
        except (TypeError, ValueError, OSError):
            return ""


def public(module: ModuleType) -> list[str]:
    """The names that a module offers."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        ]
    return sorted({name for name in names if not name.startswith("__")}, key=str.lower)


def members(kind: type) -> Iterator[Entry]:
    """Public methods and properties of a class, without those that all modules have."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("luminal"):
            continue
        if owner is held("luminal.nn.Module") is not kind:
            continue
        found = inspect.getattr_static(kind, name)
        if isinstance(found, property):
            yield Entry(name, found.fget, is_method=True)
        elif callable(found) or isinstance(found, classmethod | staticmethod):
            is_plain = inspect.isfunction(found)
            yield Entry(name, getattr(kind, name), is_method=is_plain)


INDEX, TENSOR = "reference/index.md", "reference/Tensor.md"


def path_of(module: str) -> str:
    """The page of a module, within the site."""
    return f"reference/{module}.md"


def pages() -> dict[str, str]:
    """The Markdown of every page of the reference, by its path within the site."""
    made = {path_of(name): page(name, about) for name, about in MODULES.items()}
    tensor = page_of_class("luminal.Tensor", held("luminal.Tensor"))
    return {INDEX: _index(), **made, TENSOR: tensor}


def held(path: str) -> Any:
    """What a path names that ends in a module's attribute."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _index() -> str:
    lines = ["# Reference", "", "Written from the docstrings of what is installed.", ""]
    lines += ["Examples are run by a test. They begin with these lines, and some are methods or"]
    lines += ["layers that are given what `torch` has under the same name:", ""]
    lines += ["```python", examples.IMPORTS.strip(), "```", ""]
    lines += ["- [luminal.Tensor](Tensor.md): every method of a Tensor."]
    lines += ["- [The luminal command](commands.md) and [its flags](flags.md)."]
    lines += [f"- [{name}]({name}.md): {about}" for name, about in MODULES.items()]
    return "\n".join(lines) + "\n"


def page(name: str, about: str) -> str:
    """All that a module offers."""
    module = importlib.import_module(name)
    lines = [f"# {name}", "", about, ""]
    if module.__doc__:
        lines += [_prose(inspect.cleandoc(module.__doc__)), ""]
    for each in public(module):
        value = getattr(module, each)
        lines += _described(Entry(each, value), name, level=2)
        if inspect.isclass(value) and value is not held("luminal.Tensor"):
            lines += [*_methods(value), ""]
    return "\n".join(lines) + "\n"


def page_of_class(name: str, kind: type) -> str:
    """All methods of a class, with what operations have."""
    lines = [f"# {name}", "", _prose(inspect.cleandoc(kind.__doc__ or "")), ""]
    for member in members(kind):
        lines += _described(member, name, level=2)
    return "\n".join(lines) + "\n"


def _described(entry: Entry, home: str, level: int) -> list[str]:
    lines = [f"{'#' * level} {entry.name}", ""]
    if entry.signature:
        lines += ["```text", f"{home}.{entry.name}{entry.signature}", "```", ""]
    lines += [_prose(entry.text) or "*(no text)*", ""]
    if example := example_of(entry.name, home):
        lines += ["```python", str(example), "```", ""]
    facts = [
        f"**Source:** `{entry.source}`" if entry.source else "",
        f"**Tested against:** `{other}`" if (other := counterparts().get(entry.name)) else "",
        f"**Differs:** {what}" if (what := differences().get(entry.name)) else "",
        f"**Pages:** {shown}" if (shown := _mentions(entry.name, home)) else "",
    ]
    return [*lines, *(f"- {fact}" for fact in facts if fact), ""]


SAME = {
    "luminal.Tensor": ("luminal", "luminal.nn.functional", "luminal.linalg"),
    "luminal": ("luminal.nn.functional", "luminal.linalg", "luminal.Tensor"),
    "luminal.nn.functional": ("luminal",),
    "luminal.linalg": ("luminal",),
    "luminal.special": ("luminal",),
}
"""By module others whose names mean the same there, so that their examples do, too."""


def example_of(name: str, home: str) -> examples.Example | None:
    """What shows a name: an example of its own, or one of another name of the same function."""
    modules = (home, *SAME.get(home, ()))
    names = (name, *(other for other in _alike(home).get(name, ()) if other != name))
    found = (examples.read(module).get(each) for each in names for module in modules)
    return next(filter(None, found), None)


@cache
def _alike(home: str) -> dict[str, list[str]]:
    """By name those of the same function in a module (or a class)."""
    if home in MODULES:
        module = importlib.import_module(home)
        entries = [Entry(name, getattr(module, name)) for name in public(module)]
    else:
        entries = [*members(held(home))]
    kin: dict[int, list[str]] = {}
    for entry in entries:
        if callable(entry.value):
            kin.setdefault(id(inspect.unwrap(entry.value)), []).append(entry.name)
    return {name: names for names in kin.values() for name in names}


def _methods(kind: type) -> list[str]:
    lines = [
        f"- `{each.name}{each.signature}`: {_prose(' '.join(each.text.split()))}"
        for each in members(kind)
    ]
    return ["Methods and properties:", "", *lines] if lines else []


def _prose(text: str) -> str:
    """A docstring as Markdown: what looks like HTML or a link is shown as it is written."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<\[*_|])", r"\\\1", part) for part in parts
    )


@cache
def counterparts() -> dict[str, str]:
    """By operation what tests compare it with, from the tables of docs/ops.md."""
    rows = re.findall(
        r"^\| ([\w.]+) \|[^|]*\|[^|]*\| ((?:torch|numpy|scipy)\.[\w.]+) \|", _ops(), re.MULTILINE
    )
    return {name.rpartition(".")[2]: other for name, other in rows}


@cache
def differences() -> dict[str, str]:
    """By operation where it differs from PyTorch or NumPy, from the end of docs/ops.md."""
    _, _, table = _ops().partition("## Where NumPy and PyTorch differ")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+(?:\|x\|[^|]*)?) \|$", table, re.MULTILINE)
    return {
        name.strip().rpartition(".")[2]: what.strip()
        for names, what in rows
        for name in re.split(r", | and ", names)
    }


@cache
def _ops() -> str:
    return (DOCS / "ops.md").read_text("utf-8")


HISTORY = ("changes.md", "lessons.md", "measurements.md", "ops.md")
"""Pages that name everything, or that tell of the past."""


@cache
def _spellings() -> dict[str, list[str]]:
    """By a name with dots before it the pages that show it."""
    shown: dict[str, list[str]] = {}
    for path in sorted(DOCS.glob("*.md")):
        if path.name not in HISTORY:
            for spelled in set(re.findall(r"(?<![\w.])\w+(?:\.\w+)+", path.read_text("utf-8"))):
                shown.setdefault(spelled, []).append(path.name)
    return shown


def _mentions(name: str, home: str) -> str:
    """Links to the pages that show a name behind its module, as `lm.nn.Linear` or `nn.Linear`."""
    short = home.removeprefix("luminal").removeprefix(".")
    spellings = [f"lm.{short}.{name}", f"{short}.{name}"] if short else [f"lm.{name}"]
    pages = sorted({page for each in spellings for page in _spellings().get(each, ())})
    return ", ".join(f"[{page}](../{page})" for page in pages)
