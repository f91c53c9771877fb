"""Mutants of a module: its source with one small change each, of the kinds that people make."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "reversed": "list",
    "sorted": "list",
}
STRICTER = {"ROUNDING": "EXACT", "DOMAIN": "ROUNDING"}
# What only people read: no test is to fix a wording, and a repr decides nothing.
TEXTS = ("__repr__", "__str__", "text", "report")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: `file` from the package's root, where it is, and the whole module after it."""

    file: str
    scope: str  # the functions and classes around it
    line: int
    before: str
    after: str
    number: int  # among changes that read the same
    source: str

    @property
    def name(self) -> str:
        """What tells it from all others, whatever lines stand above it."""
        return _name(self.file, self.scope, self.before, self.after, self.number)

    @property
    def key(self) -> str:
        """A short form of the name; mutants in the order of their keys are a fair sample."""
        return key_of(self.name)


def key_of(name: str) -> str:
    """The key of the mutant with this name."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _name(file: str, scope: str, before: str, after: str, number: int) -> str:
    """The file as the package's users see it: from `luminal/` on, wherever that lies."""
    again = f" #{number}" if number else ""
    return f"{file.removeprefix('src/')} {scope}: {before} -> {after}{again}"


def keys(file: str, source: str) -> list[str]:
    """The keys of all mutants of a module, in a fraction of the time that their sources take."""
    found: list[str] = []

    def noted(key: str) -> bool:
        found.append(key)
        return False

    mutants(file, source, noted)
    return found


def mutants(
    file: str, source: str, wanted: Callable[[str], bool] = lambda key: True
) -> list[Mutant]:
    """The mutants of a module whose keys are wanted: all by default."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    count: Counter[tuple[str, str, str]] = Counter()
    for scope, holder, field, place, new in _changes(tree):
        siblings = getattr(holder, field)
        old = siblings if place is None else siblings[place]
        before, after = _brief(old), _brief(new)
        number = count[scope, before, after]
        count[scope, before, after] += 1
        if not wanted(key_of(_name(file, scope, before, after, number))):
            continue
        _put(holder, field, place, new)
        text = ast.unparse(ast.fix_missing_locations(tree))
        _put(holder, field, place, old)
        line = getattr(old, "lineno", getattr(holder, "lineno", 0))
        found.append(Mutant(file, scope, line, before, after, number, text))
    return found


def _put(holder: ast.AST, field: str, place: int | None, node: Any) -> None:
    if place is None:
        setattr(holder, field, node)
    else:
        getattr(holder, field)[place] = node


def _brief(node: Any) -> str:
    """The code of a node on one line."""
    if isinstance(node, ast.cmpop):
        return ast.unparse(ast.Compare(ast.Name("_"), [node], [ast.Name("_")]))
    if isinstance(node, ast.operator):
        return ast.unparse(ast.BinOp(ast.Name("_"), node, ast.Name("_")))
    return " ".join(ast.unparse(node).split())


Change = tuple[str, ast.AST, str, int | None, Any]
"""The scope, and what to put where: into a field of a node, at a place of it if it is a list."""


def _changes(tree: ast.Module) -> Iterator[Change]:
    """All changes of a module, from top to bottom."""
    stack: list[tuple[str, ast.AST, str, int | None, ast.AST]] = []
    _push(stack, "", tree)
    while stack:
        scope, holder, field, place, node = stack.pop()
        if _is_skipped(node, field):
            continue
        for new in _replacements(node, holder):
            yield scope or "module", holder, field, place, new
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            scope = f"{scope}.{node.name}" if scope else node.name
        _push(stack, scope, node)


def _push(stack: list[Any], scope: str, node: ast.AST) -> None:
    inner: list[Any] = []
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            inner.append((scope, node, field, None, value))
        elif isinstance(value, list):
            inner += [(scope, node, field, k, v) for k, v in enumerate(value) if _is_node(v)]
    stack.extend(reversed(inner))


def _is_node(value: Any) -> bool:
    return isinstance(value, ast.AST)


def _is_skipped(node: ast.AST, field: str) -> bool:
    """Annotations, texts, imports, and what is there for the type checker."""
    if field in ("annotation", "returns", "decorator_list", "type_params"):
        return True
    if isinstance(node, ast.FunctionDef) and node.name in TEXTS:
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # an assertion
        return True
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        names = isinstance(node.value.left, ast.Name) and isinstance(node.value.right, ast.Name)
        if names and isinstance(node.value.op, ast.BitOr):  # a name for two types
            return True
    return isinstance(
        node, ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr | ast.expr_context
    )


def _replacements(node: ast.AST, holder: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.cmpop():
            for kind in COMPARISONS[type(node)]:
                yield kind()
        case ast.operator() if type(node) in ARITHMETIC and not _is_text(holder):
            yield ARITHMETIC[type(node)]()
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for k in range(len(values)):
                rest = values[:k] + values[k + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value if value else 1.0)
        case ast.Constant(value=str(value)) if isinstance(holder, ast.Compare):
            yield ast.Constant(value + "~")
        case ast.Call(func=ast.Name(id="Rule")):
            yield from _rules(node)
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name]), node.args, node.keywords)
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=step)):
            for bound in (lower, upper):
                if bound is not None:
                    kept = (None, upper) if bound is lower else (lower, None)
                    yield ast.Subscript(node.value, ast.Slice(*kept, step), node.ctx)
        case ast.If() | ast.While() | ast.IfExp() if _is_plain(node.test):
            yield _negated(node)
        case ast.comprehension(ifs=[_, *_]):
            for k in range(len(node.ifs)):
                rest = node.ifs[:k] + node.ifs[k + 1 :]
                yield ast.comprehension(node.target, node.iter, rest, node.is_async)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def _rules(row: ast.Call) -> Iterator[ast.AST]:
    """A row of the rule tables without one of its guards, or of a stricter class than it is."""
    for k, arg in enumerate(row.args):
        others = row.args[:k], row.args[k + 1 :]
        match arg:
            case ast.Tuple(elts=guards):
                for g in range(len(guards)):
                    kept = ast.Tuple(guards[:g] + guards[g + 1 :], ast.Load())
                    yield ast.Call(row.func, [*others[0], kept, *others[1]], row.keywords)
            case ast.Name(id=name) if name in STRICTER:
                new = ast.Name(STRICTER[name])
                yield ast.Call(row.func, [*others[0], new, *others[1]], row.keywords)


def _is_plain(test: ast.expr) -> bool:
    """Has a condition no parts of its own to change?"""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp)


def _negated(node: Any) -> ast.AST:
    fields = dict(ast.iter_fields(node))
    return type(node)(**(fields | {"test": ast.UnaryOp(ast.Not(), node.test)}))


def _is_text(node: ast.AST) -> bool:
    """Is a string put together there?"""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.iter_child_nodes(node)
    )
