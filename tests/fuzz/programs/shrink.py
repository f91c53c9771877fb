"""Makes a failing Program smaller while it still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs.form import Leaf, Node, Program, Step, extents
from tests.fuzz.programs.record import record

Fails = Callable[[Program], bool]
MOST_TRIES = 400


def shrink(program: Program, fails: Fails, tries: int = MOST_TRIES) -> Program:
    """The smallest program found whose failure stays; one that fails no more is given back as is.

    Outputs and assigns go first, then runs and dims, then steps: cut off as leaves or passed over.
    """
    left = tries
    progress = True
    while progress:
        progress = False
        for smaller in candidates(program):
            if left == 0:
                return program
            left -= 1
            if fails(smaller):
                program, progress = smaller, True
                break
    return program


def failure_of(check: Callable[[Program], object], program: Program) -> str:
    """How a program fails, without numbers; empty if it does not."""
    try:
        check(program)
    except Exception as error:
        return (
            f"{type(error).__name__}: {re.sub(r'[0-9]+', 'N', str(error).split(chr(10))[0])[:60]}"
        )
    return ""


def same_failure(check: Callable[[Program], object], program: Program) -> Fails:
    """Whether a program fails as this one does: the same error, or wrong values."""
    wanted = _kind(failure_of(check, program))
    return lambda other: _kind(failure_of(check, other)) == wanted


def _kind(failure: str) -> str:
    return "wrong" if "points differ" in failure or "differs with" in failure else failure


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are one move smaller, the greatest cuts first."""
    yield from _fewer_sinks(program)
    yield from _fewer_runs(program)
    types = _types(program)
    if types is not None:
        for number in range(len(program.nodes) - 1, -1, -1):
            if isinstance(program.nodes[number], Step):
                yield from _without(program, number, types)
    yield from _plainer(program)


def _fewer_sinks(program: Program) -> Iterator[Program]:
    outputs, assigns = program.outputs, program.assigns
    for k in range(len(outputs)):
        if len(outputs) > 1:
            yield replace(program, outputs=(outputs[k],), assigns=()).live()
    if assigns and outputs:
        yield replace(program, assigns=()).live()
    for k in range(len(outputs)):
        if len(outputs) + len(assigns) > 1:
            yield replace(program, outputs=outputs[:k] + outputs[k + 1 :]).live()
    for k in range(len(assigns)):
        if len(outputs) + len(assigns) > 1:
            yield replace(program, assigns=assigns[:k] + assigns[k + 1 :]).live()


def _fewer_runs(program: Program) -> Iterator[Program]:
    for run in range(program.runs if program.runs > 1 else 0):
        dims = tuple(dim._replace(values=(dim.values[run],)) for dim in program.dims)
        yield replace(program, dims=dims, runs=1)
    for dim in program.dims:
        if len(set(dim.values)) == 1:
            rest = tuple(other for other in program.dims if other is not dim)
            nodes = tuple(_literal(node, dim.name, dim.values[0]) for node in program.nodes)
            yield replace(program, nodes=nodes, dims=rest)


def _literal(node: Node, name: str, value: int) -> Node:
    """The node with a dim replaced by a number."""
    if isinstance(node, Leaf):
        return replace(node, shape=extents([_subst(n, name, value) for n in node.shape], {}))
    return replace(node, text=_subst(node.text, name, value), torch=_subst(node.torch, name, value))


def _subst(text: str | int, name: str, value: int) -> str | int:  # type: ignore[misc]
    return text if isinstance(text, int) else re.sub(rf"\b{name}\b", str(value), text)


def _types(program: Program) -> list[tuple[tuple[int | str, ...], str]] | None:
    """Shape and dtype of every value; None where the program cannot be recorded."""
    try:
        tensors = record(program).tensors
    except Exception:
        return None
    return [
        (tuple(n.value if n.is_const else str(n) for n in t.extents), t.dtype.name) for t in tensors
    ]


def _without(
    program: Program, number: int, types: list[tuple[tuple[int | str, ...], str]]
) -> Iterator[Program]:
    """The step's value taken from an operand of its type, or from a leaf."""
    step = program.nodes[number]
    assert isinstance(step, Step)
    shape, dtype = types[number]
    for arg in step.args:
        if types[arg] == types[number]:
            yield _redirected(program, number, arg)
    if number in program.outputs:
        outputs = tuple(a for v in program.outputs for a in (step.args if v == number else (v,)))
        if outputs:
            yield replace(program, outputs=outputs).live()
    static = all(isinstance(n, int) for n in shape)
    for kind in ("input", "weight") if static else ("input",):
        leaf = Leaf(kind, shape, dtype, 2 * number)
        nodes = (*program.nodes[:number], leaf, *program.nodes[number + 1 :])
        yield replace(program, nodes=nodes).live()


def _redirected(program: Program, number: int, to: int) -> Program:
    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(to if value == number else value for value in values)

    nodes = tuple(
        replace(node, args=moved(node.args)) if isinstance(node, Step) else node
        for node in program.nodes
    )
    assigns = tuple((leaf, to if value == number else value) for leaf, value in program.assigns)
    return replace(program, nodes=nodes, outputs=moved(program.outputs), assigns=assigns).live()


def _plainer(program: Program) -> Iterator[Program]:
    """Leaves of plain inputs with plain values."""
    for number, leaf in enumerate(program.nodes):
        if not isinstance(leaf, Leaf):
            continue
        plainer = []
        if leaf.values in ("wild", "wide"):
            plainer.append(replace(leaf, values="normal" if leaf.values == "wild" else "small"))
        if leaf.kind != "input" and all(leaf is not program.nodes[s] for s, _ in program.assigns):
            plainer.append(replace(leaf, kind="input"))
        for each in plainer:
            nodes = (*program.nodes[:number], each, *program.nodes[number + 1 :])
            yield replace(program, nodes=nodes)
