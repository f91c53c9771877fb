"""The algebra in egglog: constructors, and the analyses of e-classes.

Operations of one form are one constructor with their name as a column: `(Binary "Mul" a b)`. What
egglog need not look into is a number: leaves, Expressions, index maps, opaque operations (see
`intern`). Python writes numbered nodes as facts, which is far quicker than expressions one by one:
`(f-Binary n "Mul" a b by)` says that node n is the product of nodes a and b, and that rule `by`
made it; `(ref n)` is then its e-class, and `(made-Binary "Mul" a b)` gives the rule.
"""

from __future__ import annotations

from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import OPS

T, ARGS, AXES, NUMBER, TEXT = "T", "Args", "Axes", "i64", "String"

CONSTRUCTORS: dict[str, tuple[str, ...]] = {
    "Leaf": (NUMBER,),
    "Index": (NUMBER,),
    "Literal": (TEXT, TEXT),  # dtype and number
    "Opaque": (NUMBER, ARGS),
    "At": (NUMBER, T, ARGS),  # the index map, what it reads, integer terms of the map
    "Reduce": (TEXT, AXES, T),
    "Convert": (TEXT, TEXT, T),  # Cast or Bitcast, dtype
    "Unary": (TEXT, T),
    "Binary": (TEXT, T, T),
    "Ternary": (TEXT, T, T, T),
    "Nil": (),
    "Cons": (T, ARGS),
}
"""Columns by constructor; all make a T but for the lists Nil and Cons."""

FORMS = {op.name: op.group.capitalize() for op in OPS.values() if op.is_pointwise}
FORMS |= {"Cast": "Convert", "Bitcast": "Convert"} | dict.fromkeys(REDUCTIONS, "Reduce")
"""The constructor of each operation that is a column."""


def head(op: str) -> str:
    """What a node of the operation starts with: `Binary "Mul"`."""
    return f'{FORMS[op]} "{op}"' if op in FORMS else op


def result(constructor: str) -> str:
    """The sort that a constructor makes."""
    return ARGS if constructor in ("Nil", "Cons") else T


def header() -> list[str]:
    """Everything that does not depend on the program or the rules, in pieces."""
    lines = _DECLARATIONS.strip().split("\n")
    for op, columns in CONSTRUCTORS.items():
        lines.append(f"(constructor {op} ({' '.join(columns)}) {result(op)})")
        lines.append(f"(function made-{op} ({' '.join(columns)}) String :merge old)")
        lines.append(_loader(op, columns))
    return [*lines, *_ANALYSES]


def _loader(op: str, columns: tuple[str, ...]) -> str:
    """Makes nodes of the facts of a constructor."""
    sorts = {T: "ref", ARGS: "args-ref"}
    facts = [NUMBER if column in sorts else column for column in columns]
    names = [f"c{k}" for k in range(len(columns))]
    reads, values = "", []
    for name, column in zip(names, columns, strict=True):
        if column in sorts:
            reads += f" (= {name}v ({sorts[column]} {name}))"
        values.append(f"{name}v" if column in sorts else name)
    call = " ".join((op, *values))
    return (
        f"(relation f-{op} ({' '.join((NUMBER, *facts, TEXT))}))\n"
        f"(rule ((f-{op} {' '.join(('n', *names, 'by'))}){reads})\n"
        f"  ((set ({sorts[result(op)]} n) ({call})) (set (made-{call}) by))\n"
        f'  :ruleset load :name "load {op}")'
    )


def _analysis(name: str, facts: str, actions: str) -> str:
    return f'(rule ({facts}) ({actions}) :ruleset analyse :name "{name}")'


def _pointwise(constructor: str, names: str) -> tuple[str, str]:
    """Axes, dtype and phase of pointwise operations; comparisons have a dtype of their own."""
    reads = "".join(f" (= a{n} (axes {n})) (= p{n} (phase {n}))" for n in names)
    axes, phase = f"a{names[0]}", f"p{names[0]}"
    for n in names[1:]:
        axes, phase = f"(set-union {axes} a{n})", f"(max {phase} p{n})"
    node = f"(= e ({constructor} op {' '.join(names)}))"
    of_last = f"{node} (arithmetic op) (= d (dtype {names[-1]}))"
    return (
        _analysis(constructor, node + reads, f"(set (axes e) {axes}) (set (phase e) {phase})"),
        _analysis(f"dtype of {constructor}", of_last, "(set (dtype e) d)"),
    )


# Spellings of a class have one value: what one of them does not depend
# on, the value does not, and what one of them knows before a run is known
# before it. So axes meet in their intersection and phases in the least.
_DECLARATIONS = """
(ruleset load) (ruleset analyse) (ruleset clean) (ruleset grow)
(sort Axes (Set i64))
(sort T)
(sort Args)
(function ref (i64) T :merge old)
(function args-ref (i64) Args :merge old)
(relation same (i64 i64))
(rule ((same m n) (= x (ref m)) (= y (ref n))) ((union x y)) :ruleset load :name "load same")
(function axes (T) Axes :merge (set-intersect old new))
(function phase (T) i64 :merge (min old new))
(function dtype (T) String :merge old)
(function args-axes (Args) Axes :merge (set-intersect old new))
(function args-phase (Args) i64 :merge (min old new))
(relation known (i64 Axes String i64))
(relation i-Index (i64 Axes String i64))
(relation i-At (i64 Axes Axes i64))
(function never-empty () Axes :merge (set-union old new))
(function fixed () Axes :merge (set-union old new))
(set (never-empty) (set-empty))
(set (fixed) (set-empty))
(relation arithmetic (String))
(relation floating (String))
(relation integral (String))
(relation holds (String String))
(relation widens (String String))
(relation number (String))
(relation positive (String))
"""

_ALL = "(set (axes e) a) (set (dtype e) d) (set (phase e) p)"
_REDUCE = "(= e (Reduce op k x))"

_ANALYSES = (
    *_pointwise("Unary", "x"),
    *_pointwise("Binary", "xy"),
    *_pointwise("Ternary", "xyz"),
    _analysis("program", "(known n a d p) (= e (ref n))", _ALL),
    _analysis("Index", "(= e (Index n)) (i-Index n a d p)", _ALL),
    _analysis("Convert", "(= e (Convert op d x)) (= a (axes x)) (= p (phase x))", _ALL),
    _analysis(
        "Literal",
        "(= e (Literal d n))",
        "(set (axes e) (set-empty)) (set (dtype e) d) (set (phase e) 0)",
    ),
    _analysis("<", '(= e (Binary "LessThan" x y))', '(set (dtype e) "bool")'),
    _analysis("==", '(= e (Binary "Equal" x y))', '(set (dtype e) "bool")'),
    _analysis("Nil", "(= e (Nil))", "(set (args-axes e) (set-empty)) (set (args-phase e) 0)"),
    _analysis(
        "Cons",
        "(= e (Cons x l)) (= a (axes x)) (= b (args-axes l)) (= p (phase x)) (= q (args-phase l))",
        "(set (args-axes e) (set-union a b)) (set (args-phase e) (max p q))",
    ),
    _analysis(
        "At",
        "(= e (At n x l)) (i-At n gone more p) (= a (axes x)) (= b (args-axes l))"
        " (= q (phase x)) (= r (args-phase l)) (= d (dtype x))",
        "(set (axes e) (set-union (set-diff a gone) (set-union more b))) (set (dtype e) d)"
        " (set (phase e) (max p (max q r)))",
    ),
    _analysis(
        "Reduce",
        f"{_REDUCE} (= a (axes x)) (= d (dtype x))",
        "(set (axes e) (set-diff a k)) (set (dtype e) d)",
    ),
    _analysis(
        # An extent with a dim is known in the run only, whatever is summed over it.
        "phase of Reduce over literal extents",
        f"{_REDUCE} (= p (phase x)) (= f (fixed)) (= 0 (set-length (set-diff k f)))",
        "(set (phase e) p)",
    ),
    _analysis(
        "phase of Reduce",
        f"{_REDUCE} (= f (fixed)) (> (set-length (set-diff k f)) 0)",
        "(set (phase e) 2)",
    ),
    *(f'(arithmetic "{op}")' for op in FORMS if op not in ("LessThan", "Equal", "Cast", "Bitcast")),
)
