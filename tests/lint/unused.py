"""The lint of what nothing uses: names of modules and methods that only their definition says.

`python -m tests.lint.unused` prints them and ends with 1 if there are any; `make lint` runs it. A
name is used where the package's own code reads it, outside of its own definition: what only tests
call is dead too. Public names (`tests/unit/frontend/public_names.txt`) are used by users.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
DOCS = ROOT / "docs"
READERS = (ROOT / "examples", ROOT / "bench")
PUBLIC_NAMES = ROOT / "tests/unit/frontend/public_names.txt"

EXCEPTIONS: Mapping[str, str] = {
    "luminal.backends.reference.ranks:interpret_ranks": "the oracle of programs for many ranks",
    "luminal.array_api.inspection:Info": "the array API standard asks for it",
    "luminal.cli.compile:Stage": "members are values of an option, read by their texts",
    "luminal.models.architectures.*:[A-Z]*": "records, which the package takes from its modules",
    "luminal.models.architectures:read_decoder": "as `read_model`",
    "luminal.models.families:read_model": "opens a model without a runner: tests of families do",
    "luminal.nn.init": "public, with PyTorch's names: users draw first values",
    "luminal.onnx.backend:Backend": "ONNX's own interface of backends, which its suite calls",
    "luminal.rolling.roll:_Choice.is_plain": "choices are compared by their fields",
    "luminal.session.parallel:_Wrapped.sync_gradients": "public: as programs were written before",
    "luminal.torch_backend.exported:CompiledModel": "public: what `compile_exported` gives",
}
"""Names that the package does not read and that stay, each with who does: of a module, of a class,
or single ones.
"""

# Decorators that leave a function what it is; any other hands it to somebody who calls it.
PLAIN = frozenset(
    """abstractmethod cache cached_property classmethod contextmanager dataclass lru_cache overload
    property staticmethod final total_ordering wraps""".split()
)


# Strings that may name something: "Linear", "luminal.nn:Linear", "linear relu"; in any other, code
# that is written as text calls methods.
_LIST = re.compile(r"[\w.:\s]+")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"\.([A-Za-z_]\w*)\(")

# Bases from outside that call no methods which a class adds.
OURS_TO_CALL = frozenset("ABC Enum Flag Generic IntEnum Protocol StrEnum Exception".split())


class Definition(NamedTuple):
    """A name of a module, or of a class in it, and the lines that define it."""

    module: str
    name: str
    owner: str | None
    first: int
    last: int

    def holds(self, module: str, line: int) -> bool:
        """Whether a line of a module is one of its own."""
        return self.module == module and self.first <= line <= self.last

    @property
    def text(self) -> str:
        """As the lint prints it and as `EXCEPTIONS` lists it."""
        return f"{self.module}:{self.owner + '.' if self.owner else ''}{self.name}"


class Module(NamedTuple):
    """A module's tree, and what it reads: identifiers and lines by how they are written.

    `names`: by themselves; `others`: after a dot, as a keyword or in a string; `imports`: from
    which module.
    """

    name: str
    tree: ast.Module
    names: dict[str, list[int]]
    others: dict[str, list[int]]
    imports: set[tuple[str, str]]


def parsed(source: Path) -> list[Module]:
    """All modules of a folder of packages, stubs among them."""
    modules = []
    for path in sorted([*source.rglob("*.py"), *source.rglob("*.pyi")]):
        place = path.relative_to(source).with_suffix("")
        name = ".".join(part for part in place.parts if part != "__init__")
        module = Module(
            name, ast.parse(path.read_text()), defaultdict(list), defaultdict(list), set()
        )
        for node in ast.walk(module.tree):
            _note(module, node)
        modules.append(module)
    return modules


def _note(module: Module, node: ast.AST) -> None:
    """Adds what one node reads."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            module.names[node.id].append(node.lineno)
    elif isinstance(node, ast.Attribute):
        module.others[node.attr].append(node.lineno)
    elif isinstance(node, ast.keyword):
        if node.arg:
            module.others[node.arg].append(node.value.lineno)
    elif isinstance(node, ast.ImportFrom):
        module.imports.update((node.module or "", alias.name) for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        pattern = _WORD if _LIST.fullmatch(node.value) else _CALL
        for word in pattern.findall(node.value):
            module.others[word].append(node.lineno)


def definitions(module: Module) -> Iterator[Definition]:
    """The names that a module and its classes define."""
    for node in module.tree.body:
        yield from _defined(module.name, node, None)
        if isinstance(node, ast.ClassDef) and not _is_of_others(node, module):
            for inner in node.body:
                yield from _defined(module.name, inner, node.name)


def _is_of_others(node: ast.ClassDef, module: Module) -> bool:
    """Whether a class has a base from outside of the package, which calls its methods; the fields
    of a NamedTuple are read by position.
    """
    outside = {name for where, name in module.imports if not where.startswith("luminal")}
    bases = {_word(base) for base in node.bases} - OURS_TO_CALL
    return "NamedTuple" in bases or any(
        _word(base) in bases & outside or (isinstance(base, ast.Attribute) and _word(base) in bases)
        for base in node.bases
    )


def _defined(module: str, node: ast.stmt, owner: str | None) -> Iterator[Definition]:
    first, last = node.lineno, node.end_lineno or node.lineno
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if all(_word(decorator) in PLAIN for decorator in node.decorator_list):
            yield Definition(module, node.name, owner, first, last)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield Definition(module, name.id, owner, first, last)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield Definition(module, node.target.id, owner, first, last)


def _word(decorator: ast.expr) -> str:
    """The last word of a decorator or base: `functools.lru_cache(1)` is lru_cache."""
    while isinstance(decorator, ast.Call | ast.Subscript):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def unused(source: Path = SOURCE, public: Path = PUBLIC_NAMES) -> list[Definition]:
    """The definitions that nothing of the package reads, and that are not public.

    What definitions of one name read of each other is no use: a method that calls the function of
    its name is dead with it.
    """
    modules = parsed(source)
    readers = [*modules, *(module for folder in READERS for module in parsed(folder))]
    imports = set().union(*(module.imports for module in readers))
    others = defaultdict(list)
    for module in readers:
        for name, lines in module.others.items():
            others[name].append((module.name, lines))
    offered = {_WORD.findall(line)[-1] for line in public.read_text().splitlines()}
    pages = "\n".join(page.read_text() for page in [*DOCS.glob("*.md"), ROOT / "README.md"])
    documented = {*re.findall(r"[.`](\w+)", pages)}
    defined = defaultdict(list)
    for module in modules:
        for definition in definitions(module):
            defined[definition.name].append(definition)

    def is_read(one: Definition, names: dict[str, list[int]], live: list[Definition]) -> bool:
        """Whether anything reads it but the definitions of its name that are not live."""
        if one.owner is None and imports & {(one.module, one.name), (one.module, "*")}:
            return True
        dead = [d for d in defined[one.name] if d not in live or d == one]
        places = [(where, line) for where, lines in others[one.name] for line in lines]
        places += [(one.module, line) for line in names.get(one.name, ())]
        return any(not any(d.holds(*place) for d in dead) for place in places)

    def is_public(method: Definition) -> bool:
        """Whether users may call a method: its class is public, or a page names it."""
        is_hidden = method.name.startswith("_")
        return method.name in documented or (method.owner in offered and not is_hidden)

    by_module = {module.name: module.names for module in modules}
    found = []
    for name, waiting in defined.items():
        if name in offered or name.startswith("__"):
            continue
        live: list[Definition] = []
        dead = waiting
        while new := [d for d in dead if is_read(d, by_module[d.module], live)]:
            live += new
            dead = [d for d in dead if d not in live]
        found += [d for d in dead if d.owner is None or not is_public(d)]
    return sorted(found, key=lambda d: (d.module, d.first))


def faults(definitions: Sequence[Definition], exceptions: Mapping[str, str]) -> list[str]:
    """What is to be removed: definitions that are no exceptions, and exceptions that are none."""

    def excepted(text: str) -> str | None:
        fits = (e for e in exceptions if fnmatchcase(text, e) or fnmatchcase(text, f"{e}[.:]*"))
        return next(fits, None)

    found = {definition.text: excepted(definition.text) for definition in definitions}
    dead = [f"{text} is not used" for text, exception in found.items() if exception is None]
    needless = [e for e in exceptions if e not in found.values()]
    return dead + [f"{e} is used: take it from the exceptions" for e in needless]


def main() -> int:
    """Prints what nothing uses."""
    lines = faults(unused(), EXCEPTIONS)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
