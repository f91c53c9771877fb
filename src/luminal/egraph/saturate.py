"""Saturation: a program and its default spelling go in, classes of equal values come out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from luminal.algebra.lower import Lowered
from luminal.algebra.terms import Term, term_order
from luminal.base import config, tracing
from luminal.base.costs import Costs, Shares
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.egraph import graphviz
from luminal.egraph.classes import Classes, Report, RuleRow
from luminal.egraph.decode import Decoder
from luminal.egraph.guards import Guards
from luminal.egraph.handlers import HANDLERS
from luminal.egraph.session import Session, session
from luminal.egraph.table import New, Node, Table
from luminal.hlir.monoid import REDUCTIONS
from luminal.rules import RULES, Rule


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds at which saturation stops; that is reported, never an error. Seconds (of work, not
    of waiting) are a safety net only: they would make the result depend on the machine.
    """

    nodes: int = 20_000
    rounds: int = 12
    seconds: float = 30.0


def allowed(numerics: Numerics) -> tuple[Rule, ...]:
    """The rules of a choice of numerics."""
    return tuple(rule for rule in RULES if numerics.allows(rule.kind))


def saturate(
    lowered: Lowered,
    costs: Costs,
    default: Lowered | None = None,
    same: Mapping[Term, Term] | None = None,
    numerics: Numerics = Numerics.STANDARD,
    limits: Limits | None = None,
    rules: tuple[Rule, ...] | None = None,
) -> Classes:
    """The classes of equal values of a program.

    `default`: another spelling of it over the same Terms, whose terms come first in their classes;
    `same`: terms of it that equal terms of `lowered`. `rules` in place of those that `numerics`
    allows. Loop bodies are opaque here, each is a program of its own.
    """
    start = time.perf_counter()
    default = default or lowered
    limits = limits or Limits()
    rules = allowed(numerics) if rules is None else rules
    order = term_order(root.term for root in (*lowered.roots, *default.roots))
    with tracing.span("egraph"), session(rules) as egraph:
        # What is known to be equal is said first; rules find the rest.
        egraph.add_terms(order)
        for one, other in _equalities(lowered, default, same or {}):
            egraph.same(egraph.terms[one], egraph.terms[other])
        rounds, limit, by_handlers = _rounds(egraph, rules, limits, costs.shares)
        table = egraph.read(makers=True)
        class_of = {term: table.refs[number] for term, number in egraph.terms.items()}
        classes, numbers = Decoder(table, class_of, lowered, default, costs.weights).classes()
        rows = _rows(egraph, rules, table, by_handlers)
    nodes = sum(len(spellings) for spellings in table.nodes.values())
    seconds = time.perf_counter() - start
    report = Report(rows, rounds, nodes, len(table.nodes), limit, seconds)
    classes_found = Classes(
        classes,
        tuple(numbers[class_of[root.term]] for root in default.roots),
        lowered,
        default,
        {term: numbers[number] for term, number in class_of.items() if number in numbers},
        report,
    )
    pictures = config.get("LUMINAL_GRAPHVIZ")
    if pictures is not None:
        graphviz.write(classes_found, pictures)
    return classes_found


def _equalities(
    lowered: Lowered, default: Lowered, same: Mapping[Term, Term]
) -> Iterable[tuple[Term, Term]]:
    inside = set(term_order(root.term for root in lowered.roots))
    others = set(term_order(root.term for root in default.roots))
    for one, other in zip(lowered.roots, default.roots, strict=True):
        yield one.term, other.term
    for term, equal in same.items():
        if term in inside and equal in others:
            yield term, equal


def _rounds(
    egraph: Session, rules: tuple[Rule, ...], limits: Limits, shares: Shares
) -> tuple[int, str, Counter[str]]:
    """Rounds of egglog's rules, then of handlers, until nothing is new or a limit is met; then the
    last rules.
    """
    # Egglog's rules match patterns; what needs arithmetic on extents, sorting or more than one
    # match at once is a handler, which reads the graph as it stands and only adds equalities. It
    # stops when a round of both has added neither node nor class. Rules that only the result needs
    # run once: what they make (weights side by side) would be new operands for all others.
    matches: Counter[str] = Counter()
    handled = tuple(rule for rule in rules if rule.handler and not rule.last)
    limit, done, size = "rounds", 0, (0, 0)
    start = time.thread_time()
    while done < limits.rounds:
        done += 1
        egraph.step()
        table = egraph.read()
        before, size = size, (len(table.home), len(table.nodes))
        if len(table.home) > limits.nodes:
            limit = "nodes"
            break
        if time.thread_time() - start > limits.seconds:
            limit = "seconds"
            break
        if not _handle(egraph, table, handled, shares, matches) and size == before:
            limit = ""
            break
    # What handlers found last is only written so far, and the last rules are to see it.
    egraph.load()
    last = tuple(rule for rule in rules if rule.last)
    _handle(egraph, egraph.read(), last, shares, matches)
    egraph.load()
    return done, limit, matches


# Handlers look at the e-graph between egglog's rounds, when it is frozen: they may walk products to
# any depth and compute with Expressions, which patterns cannot. Merging weights runs once, at the
# end: its slices would otherwise be pushed about and merged again.
def _handle(
    egraph: Session, table: Table, rules: tuple[Rule, ...], shares: Shares, matches: Counter[str]
) -> bool:
    """Runs the handlers of these rules; True if they found anything new."""
    # All handlers look at one state of the graph; what they find is written afterwards, so that the
    # order of rules in the table does not show.
    loaded: dict[int, int] = {}
    for node, number in table.refs.items():
        loaded.setdefault(number, node)
    discovered: list[tuple[int, New | int, str]] = []
    for rule in rules:
        start = time.perf_counter()
        guards = Guards(rule, table, shares)
        for number, new in HANDLERS[rule.handler](table, _looked_at(table, rule), guards):
            there = table.find(new)
            if there != number:
                discovered.append((number, new, rule.name))
                matches[rule.name] += 1
        egraph.seconds[rule.name] += time.perf_counter() - start
    for number, new, name in discovered:
        for part in _classes_in(new):
            _loaded(egraph, table, part, loaded)
        _loaded(egraph, table, number, loaded)
        egraph.same(loaded[number], egraph.new(new, loaded, name))
    return bool(discovered)


def _looked_at(table: Table, rule: Rule) -> list[tuple[int, Node]]:
    """The nodes a handler gets: reductions of one kind, if its row's left side starts with one."""
    op = rule.lhs.partition("(")[0]
    reduces = op in REDUCTIONS
    return [
        (number, node)
        for number, nodes in table.nodes.items()
        for node in nodes
        if (not reduces or (node.op == op and node.attrs)) and node not in table.subsumed
    ]


def _classes_in(new: New | int) -> Iterable[int]:
    if isinstance(new, int):
        return (new,)
    return [number for arg in new.args for number in _classes_in(arg)]


def _loaded(egraph: Session, table: Table, number: int, loaded: dict[int, int]) -> int:
    """A loaded node of a class; one that rules made is loaded again, with what it stands on."""
    stack = [number]
    # Facts name nodes by numbers, and those that egglog's rules made have none.
    ways = {} if number in loaded else _derivations(table, loaded)
    while stack:
        top = stack[-1]
        waiting = [] if top in loaded else [arg for arg in ways[top].args if arg not in loaded]
        if waiting:
            stack.extend(waiting)
            continue
        if top not in loaded:
            node = ways[top]
            args = tuple(loaded[arg] for arg in node.args)
            loaded[top] = egraph.node(node.op, node.attrs, args, node.dtype, "")
        stack.pop()
    return loaded[number]


def _derivations(table: Table, loaded: Mapping[int, int]) -> dict[int, Node]:
    """A node of every class that is not loaded, such that none stands on itself."""
    # Only nodes that stand on loaded ones can be written into egglog again, so ways are found level
    # by level; a class whose every node refers to itself gets none.
    ways: dict[int, Node] = {}
    waiting = {n: nodes for n, nodes in table.nodes.items() if n not in loaded}
    while waiting:
        reachable = {}
        for number, nodes in waiting.items():
            for node in nodes:
                if all(arg in loaded or arg in ways for arg in node.args):
                    reachable[number] = node
                    break
        ways.update(reachable)
        waiting = {n: nodes for n, nodes in waiting.items() if n not in reachable}
        if not reachable:
            break
    return ways


def _rows(
    egraph: Session, rules: Iterable[Rule], table: Table, handled: Counter[str]
) -> tuple[RuleRow, ...]:
    """A row for each rule that matched anything."""
    new_nodes = Counter(table.made.get(node, "") for node in table.home)
    rows = []
    for rule in rules:
        matches = egraph.matches[rule.name] + handled[rule.name]
        seconds = egraph.seconds[rule.name]
        if matches:
            rows.append(RuleRow(rule.name, rule.kind, matches, new_nodes[rule.name], seconds))
    return tuple(rows)
