"""Pictures of e-graphs for Graphviz: a box per class, a row per spelling."""

from __future__ import annotations

from pathlib import Path

from luminal.base.errors import InputError
from luminal.egraph.classes import Classes, EClass, Spelling
from luminal.egraph.intern import leaf_text
from luminal.hlir.monoid import REDUCTIONS


def to_dot(classes: Classes) -> str:
    """The classes as DOT. Solid edges belong to default spellings, dashed ones to the others."""
    lines = ["digraph egraph {", "  node [shape=record, fontname=monospace];"]
    for eclass in classes.classes:
        rows = "|".join(f"<s{k}> {_label(s)}" for k, s in enumerate(eclass.spellings))
        head = _escaped(f"{eclass.dtype}[{', '.join(sorted(a.name for a in eclass.axes))}]")
        lines.append(f'  c{eclass.number} [label="{{{head}|{rows}}}"];')
    for eclass in classes.classes:
        lines += [f"  {edge};" for edge in _edges(eclass)]
    lines += [f"  root{k} -> c{number};" for k, number in enumerate(classes.roots)]
    return "\n".join([*lines, "}"]) + "\n"


def write(classes: Classes, folder: Path) -> Path:
    """Writes the picture into a folder, under a name of its own. Raises InputError if it cannot."""
    roots = "-".join(classes.classes[number].fingerprint[:8] for number in classes.roots[:4])
    path = folder / f"egraph-{roots}.dot"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(to_dot(classes))
    except OSError as error:
        raise InputError(
            f"LUMINAL_GRAPHVIZ={folder}: cannot be written: {error.strerror}; name another folder"
        ) from None
    return path


def _edges(eclass: EClass) -> list[str]:
    return [
        f"c{eclass.number}:s{k} -> c{arg}" + (" [style=dashed]" if k else "")
        for k, spelling in enumerate(eclass.spellings)
        for arg in spelling.args
    ]


def _label(spelling: Spelling) -> str:
    op, attrs = spelling.op, spelling.attrs
    if op == "Leaf":
        text = leaf_text(attrs.value)
    elif op in ("Literal", "Index"):
        text = f"{op} {attrs}"
    elif op in REDUCTIONS:
        text = f"{op} {', '.join(a.name for a in attrs)}"
    elif op == "At":
        text = f"At {', '.join(f'{a.name}={i}' for a, i in attrs)}"
    else:
        text = op
    return _escaped(f"{text}  ({spelling.rule})" if spelling.rule else text)


def _escaped(text: str) -> str:
    for sign in '\\{}|<>"':
        text = text.replace(sign, "\\" + sign)
    return text
