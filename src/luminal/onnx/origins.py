"""What a node of a model is called where values say whence they come: its module, its operator,
and the line of the program that it was exported from, as far as the exporter wrote them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from onnx import NodeProto

from luminal.base import lines
from luminal.base.lines import NOWHERE, Line, Recorded, printable

SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"
STACK = "pkg.torch.onnx.stack_trace"
"""What `torch.onnx.export` of a torch.export program writes of a node: the paths of the modules
around it, their classes, and lines of Python as tracebacks have them, the innermost last."""

LONGEST = 200  # letters of a name
UNKNOWN = "ONNX"  # the class of a module of which the name alone is known


@contextmanager
def recorded(node: NodeProto) -> Iterator[None]:
    """While it lasts, what is recorded comes from the node; of one without a name that lies in
    another's body, from that one.
    """
    around = lines.now.get()
    if not node.name and not node.metadata_props and isinstance(around, Recorded):
        yield
        return
    token = lines.now.set(_origin(node, around))
    try:
        yield
    finally:
        lines.now.reset(token)


def _origin(node: NodeProto, around: str | Recorded) -> Recorded:
    told = {entry.key: entry.value for entry in node.metadata_props}
    scopes, classes = _names(told.get(SCOPES, "")), _names(told.get(CLASSES, ""))
    *path, last = scopes or [part for part in node.name.split("/") if part] or [node.op_type]
    kind = classes[-2].rpartition(".")[2] if len(classes) > 1 else UNKNOWN
    module = _short(_joined(path))
    is_told = node.op_type.lower() in last.lower()
    call = _short(last if is_told else f"{node.op_type} {last}")
    line = _line(told.get(STACK, ""))
    if line is None:
        line = around.line if isinstance(around, Recorded) else lines.line_here() or NOWHERE
    return Recorded(line, f"{module} ({kind})" if module else "", call)


def _short(name: str) -> str:
    """A name for a line of text: a damaged model's may be long, and hold anything."""
    name = printable(name)
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}...{name[-half:]}"


def _names(text: str) -> Sequence[str]:
    """A list of names as Python writes it; empty for what is none."""
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return names if isinstance(names, list) and all(isinstance(n, str) for n in names) else ()


def _joined(parts: Sequence[str]) -> str:
    """The path of a module: each part, or the path up to it if it begins with the one before."""
    path = ""
    for part in parts:
        is_whole = not path or part.startswith(f"{path}.")
        last = path.rpartition(".")[2]
        if is_whole:
            path = part
        elif part.startswith(f"{last}."):  # of a list in a module: `blocks`, then `blocks.0`
            path = f"{path[: len(path) - len(last)]}{part}"
        else:
            path = f"{path}.{part}"
    return path


def _line(stack: str) -> Line | None:
    """The innermost line of a traceback that is not one of torch's own layers."""
    frames = re.findall(r'^\s*File "([^"\n]+)", line (\d+), in (\S+)', stack, re.MULTILINE)
    theirs = [frame for frame in frames if "/torch/nn/" not in frame[0].replace("\\", "/")]
    file, number, function = (theirs or frames or [("", "0", "")])[-1]
    return Line(file, int(number), function) if file else None
