"""Rows of rules as egglog text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from luminal.base.dtypes import DType, float32, float64
from luminal.egraph.intern import literal_data, literal_text
from luminal.egraph.schema import head
from luminal.rules import notation
from luminal.rules.notation import (
    COMMUTATIVE,
    SHORT,
    Apply,
    AxesOf,
    Compare,
    Number,
    Pattern,
    Property,
    SetOf,
    SetOperation,
    SetPattern,
    SetVariable,
    Variable,
)
from luminal.rules.rule import Rule

_SETS = {"-": "set-diff", "|": "set-union", "&": "set-intersect"}


def rule_text(rule: Rule) -> str:
    """The rule for egglog; of one that subsumes, a rule for every order of operands; of one that
    makes a number that no binary fraction equals, a rule for every dtype.
    """
    lhs, rhs = notation.pattern(rule.lhs), notation.pattern(rule.rhs)
    # Only the node that matched is subsumed: the commuted one must match by itself, or it stays.
    orders = [*dict.fromkeys(_orders(lhs))] if rule.subsumes else [lhs]
    # A literal is the text of its exact value, and log2(e) is not the same number in f32 and f64.
    inexact = any(_exact(n.text, float32) != n.text for n in notation.numbers(rhs))
    of_dtype = (float32, float64) if inexact else (None,)
    texts: list[str] = []
    for order, dtype in itertools.product(orders, of_dtype):
        name = rule.name if not texts else f"{rule.name}/{len(texts)}"
        texts.append(_Compiled(rule, order, rhs, dtype).text(name))
    return "\n".join(texts)


def _exact(number: str, dtype: DType) -> str:
    """The number as the dtype has it."""
    return literal_text(literal_data(number, dtype), dtype)


def _orders(term: Pattern) -> Iterator[Pattern]:
    """The pattern with the operands of commutative operations in every order."""
    if not isinstance(term, Apply):
        yield term
        return
    for args in itertools.product(*map(_orders, term.args)):
        yield Apply(term.op, args, term.attrs)
        if term.op in COMMUTATIVE:
            yield Apply(term.op, args[::-1], term.attrs)


class _Compiled:
    """One rule while it is written: facts to match, actions to take."""

    def __init__(self, rule: Rule, lhs: Pattern, rhs: Pattern, dtype: DType | None) -> None:
        self.rule = rule
        self.of_dtype = dtype
        self.numbers = itertools.count()
        self.known: dict[str, str] = {}  # analysis of a variable -> the name of its value
        self.actions: list[str] = []
        self.matched = self.match(lhs)
        self.facts = [f"(= _e {self.matched})"]
        for text in rule.guards:
            self.facts.append(self.guard(notation.guard(text)))
        if dtype is not None:
            self.facts.append(f'(= {self.read("dtype", "_e")} "{dtype.short}")')
        built = self.build(rhs)
        self.actions.append(f"(union _e {built})")
        if rule.subsumes:
            self.actions.append(f"(subsume {self.matched})")

    def text(self, name: str) -> str:
        facts = " ".join((*self.facts, *(f"(= {n} {read})" for read, n in self.known.items())))
        group = "clean" if self.rule.subsumes else "grow"
        actions = " ".join(self.actions)
        return f'(rule ({facts}) ({actions}) :ruleset {group} :name "{name}")'

    def fresh(self) -> str:
        return f"_{next(self.numbers)}"

    def read(self, analysis: str, variable: str) -> str:
        """The name of an analysis's value."""
        return self.known.setdefault(f"({analysis} {variable})", f"{analysis}_{variable}")

    # --- matching

    def match(self, term: Pattern) -> str:
        match term:
            case Variable(name=name):
                return name
            case Number(text=text):
                return f'(Literal {self.fresh()} "{text}")'
            case Apply(op=op, args=args, attrs=attrs):
                words = [head(op)]
                if isinstance(attrs, str):
                    words.append(self.dtype(attrs))
                elif attrs is not None:
                    assert isinstance(attrs, SetVariable), self.rule
                    words.append(attrs.name)
                return f"({' '.join((*words, *map(self.match, args)))})"
        raise ValueError(f"rule {self.rule.name}: {term} is only for examples")

    def dtype(self, name: str) -> str:
        return f'"{name}"' if name in SHORT else name

    def guard(self, guard: notation.Guard) -> str:
        if isinstance(guard, Compare):
            left, right = guard.left, guard.right
            if guard.op == "<=":
                left, right = SetOperation("-", left, right), SetOf(())
            assert right == SetOf(()), self.rule
            length = f"(set-length {self.set(left)})"
            return f"(> {length} 0)" if guard.op == "!=" else f"(= 0 {length})"
        return self.property(guard)

    def property(self, guard: Property) -> str:
        name, first = guard.name, guard.args[0]
        match name:
            case "literal":
                return f"(= {first} (Literal {self.fresh()} {self.fresh()}))"
            case "number" | "positive":
                number = self.fresh()
                return f"(= {first} (Literal {self.fresh()} {number})) ({name} {number})"
            case "nonempty":
                bound = self.set(notation.axes(first))
                never = self.known.setdefault("(never-empty)", "never_empty")
                return f"(= 0 (set-length (set-diff {bound} {never})))"
            case "weight":
                return f"(< {self.read('phase', first)} 2)"
            case "varies":
                return f"(> {self.read('phase', first)} 0)"
            case "run":
                return f"(= {self.read('phase', first)} 2)"
            case "boolean":
                return f'(= {self.read("dtype", first)} "bool")'
            case "float" | "integer":
                relation = {"float": "floating", "integer": "integral"}[name]
                return f"({relation} {self.read('dtype', first)})"
            case "floating":
                return f"(floating {first})"
            case "dtype":
                return f"(= {first} {self.read('dtype', guard.args[1])})"
            case "holds" | "widens":
                return f"({name} {first} {self.read('dtype', guard.args[1])})"
            case "alike":
                return f"(= {self.read('dtype', first)} {self.read('dtype', guard.args[1])})"
        raise ValueError(f"rule {self.rule.name}: {name} is no guard")

    # --- building

    def set(self, axes: SetPattern) -> str:
        match axes:
            case SetVariable(name=name):
                return name
            case AxesOf(name=name):
                return self.read("axes", name)
            case SetOperation(op=op, left=left, right=right):
                return f"({_SETS[op]} {self.set(left)} {self.set(right)})"
            case SetOf(names=()):
                return "(set-empty)"
        raise ValueError(f"rule {self.rule.name}: {axes} is only for examples")

    def build(self, term: Pattern) -> str:
        match term:
            case Variable(name=name):
                return name
            case Number(text=text):
                number = text if self.of_dtype is None else _exact(text, self.of_dtype)
                return self.made(f'Literal {self.read("dtype", "_e")} "{number}"')
            case Apply(op=op, args=args, attrs=attrs):
                words = [head(op)]
                if isinstance(attrs, str):
                    words.append(self.dtype(attrs))
                elif attrs is not None:
                    words.append(self.set(attrs))
                return self.made(" ".join((*words, *map(self.build, args))))
        raise ValueError(f"rule {self.rule.name}: {term} is only for examples")

    def made(self, call: str) -> str:
        """A new node, and who made it."""
        name = self.fresh()
        self.actions.append(f'(let {name} ({call})) (set (made-{call}) "{self.rule.name}")')
        return name
