"""A Program as a Graphviz picture: a box is a launch, an edge a buffer from writer to reader."""

from __future__ import annotations

from luminal.hlir.graphviz import text
from luminal.kernel.tile_ir import Role
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import CollectiveLaunch, Launch, LoopLaunch, Program

_OWNED = (BufferKind.INPUT, BufferKind.WEIGHT, BufferKind.STATE, BufferKind.CONSTANT)
_GIVEN = ", shape=ellipse, fillcolor=lightblue"
_RESULT = ", shape=ellipse, fillcolor=lightgreen"


def to_dot(program: Program) -> str:
    """The program in the DOT language; the prologue and every Loop have a frame of their own."""
    picture = _Picture(program)
    if program.prologue:
        picture.frame("prologue", program.prologue, "  ")
    picture.launches(program.launches, "  ")
    picture.results()
    head = ["digraph program {", "  node [shape=box, style=filled, fillcolor=white];"]
    return "\n".join([*head, *picture.boxes, *picture.edges, "}"]) + "\n"


class _Picture:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.boxes: list[str] = []
        self.edges: list[str] = []  # and the ellipses, which belong to no frame
        self.writers: dict[int, list[str]] = {}  # the owner of a buffer, or who has written it
        self.updated: set[int] = set()  # buffers that a launch has written
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def ellipse(self, label: str, style: str) -> str:
        name = self.name()
        self.edges.append(f"  {name} [label={text(label)}{style}];")
        return name

    def frame(self, title: str, launches: tuple[Launch, ...], indent: str) -> None:
        """Launches inside a border with a title."""
        self.boxes.append(f"{indent}subgraph cluster_{self.name()} {{")
        self.boxes.append(f"{indent}  label={text(title)};")
        self.launches(launches, indent + "  ")
        self.boxes.append(indent + "}")

    def launches(self, launches: tuple[Launch, ...], indent: str) -> None:
        """The boxes of a list of launches, with the edges to them."""
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                self.frame(f"loop {launch.trips}", launch.body, indent)
                continue
            name = self.name()
            words = (
                launch.title
                if isinstance(launch, CollectiveLaunch)
                else f"k{launch.kernel}[{launch.chunks}]\n{launch.label}"
            )
            label = text(words)
            self.boxes.append(f"{indent}{name} [label={label}];")
            accesses = dict.fromkeys(self.program.accesses(launch))
            for number, role in accesses:
                if role is not Role.OUT:
                    self.edge(number, name)
            for number, role in accesses:
                if role is not Role.IN:
                    self.writers.setdefault(number, []).append(name)
                    self.updated.add(number)

    def edge(self, number: int, reader: str) -> None:
        """Draws edges to the reader of a buffer from everybody who has written it, else from its
        owner.

        Nobody yet: the entry of a carried value that an iteration writes for the next one.
        """
        buffer = self.program.buffers[number]
        if number not in self.writers and buffer.kind in _OWNED:
            label = f"{buffer.kind.value} {buffer.owner_name}".strip()
            self.writers[number] = [self.ellipse(label, _GIVEN)]
        extents = ", ".join(map(str, buffer.shape))
        label = text(f"b{number}: {buffer.dtype}[{extents}]")
        for writer in self.writers.get(number, ()):
            self.edges.append(f"  {writer} -> {reader} [label={label}];")

    def results(self) -> None:
        """The outputs, and the States that were written."""
        for output in self.program.outputs:
            self.edge(output.buffer, self.ellipse(f"output {output.name}", _RESULT))
        for number in sorted(self.updated):
            buffer = self.program.buffers[number]
            if buffer.kind in (BufferKind.STATE, BufferKind.NEXT):
                self.edge(number, self.ellipse(f"state {buffer.owner_name}", _RESULT))
