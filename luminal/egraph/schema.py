"""The algebra in egglog: constructors, how facts load them, and the analyses of e-classes.

What egglog need not look into is a number: leaves, Expressions, index maps, opaque operations (see
`intern`). Terms are loaded as facts, which is far quicker than a program of nested expressions:
`(f-Mul n a b by)` says that node n is the product of nodes a and b, and that rule `by` made it;
`(ref n)` is then its e-class.
"""

from __future__ import annotations

from luminal.hlir.ops import OPS

T, ARGS, AXES, NUMBER, TEXT = "T", "Args", "Axes", "i64", "String"
SORTS = (T, ARGS)

POINTWISE = {op.name: op.arity or 0 for op in OPS.values() if op.is_pointwise}
TYPED = ("Cast", "Bitcast")
COMPARISONS = ("LessThan", "Equal")
BY_NUMBER = ("Leaf", "Index", "Opaque")  # their axes, dtype and phase are facts of the number

CONSTRUCTORS: dict[str, tuple[str, ...]] = {
    "Leaf": (NUMBER,),
    "Index": (NUMBER,),
    "Literal": (TEXT, TEXT),  # dtype and number
    "Opaque": (NUMBER, ARGS),
    "At": (NUMBER, T, ARGS),  # the index map, what it reads, integer terms of the map
    "Sum": (AXES, T),
    "Max": (AXES, T),
    **{op: (T,) * arity for op, arity in POINTWISE.items()},
    **dict.fromkeys(TYPED, (TEXT, T)),
    "Nil": (),
    "Cons": (T, ARGS),
}
"""Columns by constructor; all make a T but for the lists Nil and Cons."""


def result(op: str) -> str:
    """The sort that a constructor makes."""
    return ARGS if op in ("Nil", "Cons") else T


ALWAYS = frozenset("Leaf Index Literal Opaque At Sum Max Nil Cons Mul Div Select Cast".split())
"""What every program may come to hold: handlers make these."""


def header(ops: frozenset[str]) -> str:
    """Sorts, the constructors `ops` and their analyses: all but rules and the program."""
    lines = [_DECLARATIONS]
    for op, columns in CONSTRUCTORS.items():
        if op not in ops:
            continue
        lines.append(f"(constructor {op} ({' '.join(columns)}) {result(op)})")
        lines.append(f"(function made-{op} ({' '.join(columns)}) String :merge old)")
        lines.append(_loader(op, columns))
    lines += [_analysis(op) for op in POINTWISE if op in ops]
    return "\n".join(lines) + _ANALYSES


def _loader(op: str, columns: tuple[str, ...]) -> str:
    """Reads the facts of a constructor."""
    facts = [NUMBER if column in SORTS else column for column in columns]
    names = [f"c{k}" for k in range(len(columns))]
    reads, values = "", []
    for name, column in zip(names, columns, strict=True):
        if column in SORTS:
            reads += f" (= {name}v ({_reference(column)} {name}))"
        values.append(f"{name}v" if column in SORTS else name)
    call = " ".join((op, *values))
    return (
        f"(relation f-{op} ({' '.join((NUMBER, *facts, TEXT))}))\n"
        f"(rule ((f-{op} {' '.join(('n', *names, 'by'))}){reads})\n"
        f"  ((set ({_reference(result(op))} n) ({call})) (set (made-{call}) by))\n"
        f'  :ruleset load :name "load {op}")'
    )


def _reference(sort: str) -> str:
    return "ref" if sort == T else "args-ref"


def _analysis(op: str) -> str:
    """Axes, dtype and phase of a pointwise operation."""
    names = "xyz"[: POINTWISE[op]]
    reads = "".join(f" (= a{n} (axes {n})) (= p{n} (phase {n}))" for n in names)
    axes, phase = f"a{names[0]}", f"p{names[0]}"
    for n in names[1:]:
        axes, phase = f"(set-union {axes} a{n})", f"(max {phase} p{n})"
    if op in COMPARISONS:
        dtype = '"bool"'
    elif op in TYPED:
        dtype = "d"
    else:
        reads += f" (= d (dtype {names[-1]}))"
        dtype = "d"
    call = " ".join((op, *(("d",) if op in TYPED else ()), *names))
    return (
        f"(rule ((= e ({call})){reads})"
        f" ((set (axes e) {axes}) (set (phase e) {phase}) (set (dtype e) {dtype}))"
        f' :ruleset analyse :name "analyse {op}")'
    )


_DECLARATIONS = """
(ruleset load) (ruleset analyse) (ruleset clean) (ruleset grow)
(sort Axes (Set i64))
(sort T)
(sort Args)
(function ref (i64) T :merge old)
(function args-ref (i64) Args :merge old)
(function axes (T) Axes :merge (set-intersect old new))
(function phase (T) i64 :merge (min old new))
(function dtype (T) String :merge old)
(function args-axes (Args) Axes :merge (set-intersect old new))
(function args-phase (Args) i64 :merge (min old new))
(relation i-Leaf (i64 Axes String i64))
(relation i-Index (i64 Axes String i64))
(relation i-Opaque (i64 Axes String i64))
(relation i-At (i64 Axes Axes i64))
(function never-empty () Axes :merge (set-union old new))
(function fixed () Axes :merge (set-union old new))
(set (never-empty) (set-empty))
(set (fixed) (set-empty))
(relation same (i64 i64))
(rule ((same m n) (= x (ref m)) (= y (ref n))) ((union x y)) :ruleset load :name "load same")
(relation floating (String))
(relation integral (String))
(relation holds (String String))
(relation widens (String String))
(relation positive (String))
"""

_ANALYSES = """
(rule ((= e (Leaf n)) (i-Leaf n a d p))
  ((set (axes e) a) (set (dtype e) d) (set (phase e) p)) :ruleset analyse :name "analyse Leaf")
(rule ((= e (Index n)) (i-Index n a d p))
  ((set (axes e) a) (set (dtype e) d) (set (phase e) p)) :ruleset analyse :name "analyse Index")
(rule ((= e (Opaque n x)) (i-Opaque n a d p))
  ((set (axes e) a) (set (dtype e) d) (set (phase e) p)) :ruleset analyse :name "analyse Opaque")
(rule ((= e (Literal d n)))
  ((set (axes e) (set-empty)) (set (dtype e) d) (set (phase e) 0))
  :ruleset analyse :name "analyse Literal")
(rule ((= e (Nil)))
  ((set (args-axes e) (set-empty)) (set (args-phase e) 0)) :ruleset analyse :name "analyse Nil")
(rule ((= e (Cons x l)) (= a (axes x)) (= b (args-axes l)) (= p (phase x)) (= q (args-phase l)))
  ((set (args-axes e) (set-union a b)) (set (args-phase e) (max p q)))
  :ruleset analyse :name "analyse Cons")
(rule ((= e (At n x l)) (i-At n gone more p) (= a (axes x)) (= b (args-axes l))
    (= q (phase x)) (= r (args-phase l)) (= d (dtype x)))
  ((set (axes e) (set-union (set-diff a gone) (set-union more b))) (set (dtype e) d)
   (set (phase e) (max p (max q r)))) :ruleset analyse :name "analyse At")
""" + "".join(
    f"""
(rule ((= e ({op} k x)) (= a (axes x)) (= d (dtype x)))
  ((set (axes e) (set-diff a k)) (set (dtype e) d)) :ruleset analyse :name "analyse {op}")
(rule ((= e ({op} k x)) (= p (phase x)) (= f (fixed)) (= 0 (set-length (set-diff k f))))
  ((set (phase e) p)) :ruleset analyse :name "phase of {op} over literal extents")
(rule ((= e ({op} k x)) (= f (fixed)) (> (set-length (set-diff k f)) 0))
  ((set (phase e) 2)) :ruleset analyse :name "phase of {op}")
"""
    for op in ("Sum", "Max")
)
