"""The lint of tolerances: a number that says how far results may differ has its reason beside it.

`python -m tests.lint.tolerances` prints the numbers without one and ends with 1 if there are any;
`make lint` runs it. Most comparisons need no number: `tests.close` counts in ulps of the dtype.
Where a test says `rtol=` or `atol=`, or `rel=` and `abs=` to `pytest.approx`, a comment in the call
or in the line above says why the number is what it is.
For a whole file it may stand beside a constant: `TOLERANCE = 1e-5  # sums of 64 terms`.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

KEYWORDS = frozenset({"rtol", "atol"})
# What compares two values, with the position of its first tolerance, for calls that do not name it.
COMPARISONS = {"assert_allclose": 2, "allclose": 2, "isclose": 2, "assert_close": 2, "approx": 1}
LARGEST = 0.5  # what is greater is a factor or a size


def faults(text: str) -> Iterator[tuple[int, str]]:
    """The tolerances of a module that are numbers without a reason: line and expression."""
    tree, commented = ast.parse(text), _commented(text)
    for node in ast.walk(tree):
        for place, value in _tolerances(node):
            if _has_number(value) and commented.isdisjoint(_lines_of(place)):
                yield value.lineno, ast.unparse(value)


def _tolerances(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, ast.expr]]:
    """The tolerances that a call passes or a statement names, each with what it stands in."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        keywords = KEYWORDS | ({"rel", "abs"} if name == "approx" else set())
        for keyword in node.keywords:
            if keyword.arg in keywords:
                yield node, keyword.value
        for value in node.args[COMPARISONS.get(name, len(node.args)) :]:
            yield node, value
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_names_a_tolerance(target) for target in targets):
            yield node, node.value


def _names_a_tolerance(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.lower().endswith((*KEYWORDS, "tolerance"))


def _has_number(value: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, float)
        and 0 < part.value <= LARGEST
        for part in ast.walk(value)
    )


def _lines_of(node: ast.stmt | ast.expr) -> range:
    """The lines of a call or a statement, and the one above."""
    return range(node.lineno - 1, (node.end_lineno or node.lineno) + 1)


def _commented(text: str) -> set[int]:
    """The lines with a comment that says something: directives to tools give no reason."""
    return {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and not token.string.startswith(("# type:", "# noqa", "# fmt:", "# ---"))
    }


def main() -> int:
    """Prints the faults of the tests; 1 if there are any."""
    lines = [
        f"{path.relative_to(ROOT)}:{line}: the tolerance {value} has no reason; compare with "
        "`tests.close`, or say beside it why this number"
        for path in sorted(TESTS.rglob("*.py"))
        for line, value in faults(path.read_text())
    ]
    print("\n".join(lines), end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
