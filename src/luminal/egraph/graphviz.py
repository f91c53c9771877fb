"""Pictures of e-graphs for Graphviz: a box per class, a row per spelling."""

from __future__ import annotations

from pathlib import Path

from luminal.base.errors import InputError
from luminal.egraph.classes import Classes, EClass, Spelling
from luminal.egraph.intern import leaf_text
from luminal.hlir.monoid import REDUCTIONS


def to_dot(found: Classes) -> str:
    """The classes as DOT. Solid edges belong to default spellings, dashed ones to the others."""
    lines = ["digraph egraph {", "  node [shape=record, fontname=monospace];"]
    for each in found.classes:
        rows = "|".join(f"<s{k}> {_label(s)}" for k, s in enumerate(each.spellings))
        head = _escaped(f"{each.dtype}[{', '.join(sorted(a.name for a in each.axes))}]")
        lines.append(f'  c{each.number} [label="{{{head}|{rows}}}"];')
    for each in found.classes:
        lines += [f"  {edge};" for edge in _edges(each)]
    lines += [f"  root{k} -> c{number};" for k, number in enumerate(found.roots)]
    return "\n".join([*lines, "}"]) + "\n"


def write(found: Classes, folder: Path) -> Path:
    """Writes the picture into a folder, under a name of its own. Raises InputError if it cannot."""
    roots = "-".join(found.classes[number].fingerprint[:8] for number in found.roots[:4])
    path = folder / f"egraph-{roots}.dot"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(to_dot(found))
    except OSError as error:
        raise InputError(
            f"LUMINAL_GRAPHVIZ={folder}: cannot be written: {error.strerror}; name another folder"
        ) from None
    return path


def _edges(each: EClass) -> list[str]:
    return [
        f"c{each.number}:s{k} -> c{arg}" + (" [style=dashed]" if k else "")
        for k, spelling in enumerate(each.spellings)
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
