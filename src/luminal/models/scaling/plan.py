"""A plan of a training step on many ranks: how often each axis cuts, and what is computed again."""

from __future__ import annotations

from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.base.records import dataclass
from luminal.distribute.mesh import EXPERT, Mesh
from luminal.distribute.pipeline.schedule import SCHEDULES
from luminal.models.scaling.parts import Cut

PIPE = "pipe"
AXES = (PIPE, "data", EXPERT, "sequence", "tensor")
"""The axes, the outermost first: neighbours along the last one are in one node."""
ZERO = ("data", "zero1", "zero3")
_KEYS = ("mesh", "plan", "rows", "recompute", "schedule", "chunks")


@dataclass(frozen=True, slots=True)
class Plan:
    """Ranks along each axis; `zero`: what is cut over "data", as the plans with names; `rows`:
    windows of a microbatch on each rank; `recompute`: what layers keep for gradients is computed
    again; `schedule` of the pipeline, each of whose ranks has `chunks` stages.
    """

    pipe: int = 1
    data: int = 1
    expert: int = 1
    sequence: int = 1
    tensor: int = 1
    zero: str = "data"
    rows: int = 1
    recompute: bool = False
    schedule: str = "1f1b"
    chunks: int = 1

    def __post_init__(self) -> None:
        for name in (*AXES, "rows", "chunks"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise InputError(f"plan: {name} is {count!r}; give an int of at least 1")
        for what, name, names in (
            ("plan", self.zero, ZERO), ("schedule", self.schedule, tuple(SCHEDULES)),
        ):  # fmt: skip
            if name not in names:
                raise InputError(
                    f"plan: {what} {name!r}; it is one of {', '.join(names)}"
                    f"{suggestion(name, names)}"
                )
        if self.chunks > 1 and self.schedule != "interleaved":
            raise InputError(
                f"plan: {self.chunks} chunks by schedule {self.schedule!r}; give 1, or schedule "
                "interleaved"
            )

    @property
    def mesh(self) -> Mesh:
        """The ranks, along every axis that has several; at least along "data"."""
        axes = [(name, getattr(self, name)) for name in AXES]
        axes = [(name, ranks) for name, ranks in axes if ranks > 1 or name == "data"]
        return Mesh(tuple(ranks for _, ranks in axes), tuple(name for name, _ in axes))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.mesh.size

    @property
    def cut(self) -> Cut:
        """How the ranks of a stage have its parts."""
        return Cut(self.expert, self.sequence, self.tensor, self.rows)

    def microbatches(self, batch: int) -> int:
        """Into how many microbatches a rank's windows are cut. Raises InputError where they do not
        divide.
        """
        together = self.data * self.expert * self.rows
        if batch % together:
            raise InputError(
                f"plan: a batch of {batch} windows does not divide into microbatches of "
                f"{self.rows} on {self.data * self.expert} ranks along data and expert; give a "
                f"multiple of {together}"
            )
        return batch // together

    @property
    def kinds(self) -> str:
        """The plan's name: `tensor+zero1`."""
        names = [name for name in ("tensor", EXPERT, "sequence") if getattr(self, name) > 1]
        if self.zero != "data" or not names:
            names.append(self.zero)
        return "+".join(names)

    def text(self) -> str:
        """The plan as text that can be edited and given to `luminal simulate --plan`."""
        axes = " ".join(f"{n}={k}" for n, k in zip(self.mesh.names, self.mesh.shape, strict=True))
        lines = [f"mesh {axes}", f"plan {self.kinds}", f"rows {self.rows}"]
        if self.recompute:
            lines.append("recompute layers")
        if self.pipe > 1:
            lines.append(f"schedule {self.schedule}")
        if self.chunks > 1:
            lines.append(f"chunks {self.chunks}")
        return "\n".join(lines)


def read_plan(text: str) -> Plan:
    """The plan of such a text; lines may be separated by ";".

    Raises InputError that names what it does not understand.
    """
    values: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.replace(";", "\n").splitlines())):
        key, _, rest = line.partition(" ")
        if key not in _KEYS or not rest.strip() or key in values:
            raise InputError(
                f"plan: the line {line!r}; give each of {', '.join(_KEYS)} once, as 'mesh data=8 "
                "tensor=2', 'plan zero1', 'rows 1', 'recompute layers'"
            )
        values[key] = rest.strip()
    axes = {}
    for part in values.get("mesh", "").split():
        name, _, count = part.partition("=")
        if name not in AXES or not count.isdigit():
            raise InputError(
                f"plan: {part!r} of the mesh; give data=8, of the axes {', '.join(AXES)}"
            )
        axes[name] = int(count)
    kinds = [kind.strip() for kind in values.get("plan", "data").split("+")]
    zero = [kind for kind in kinds if kind not in AXES or kind == "data"]
    if len(zero) > 1:
        raise InputError(f"plan: {values['plan']!r} has both {zero[0]} and {zero[1]}; give one")
    if values.get("recompute", "layers") != "layers":
        raise InputError(f"plan: recompute {values['recompute']!r}; it is 'layers', or no line")
    numbers = {key: int(values[key]) for key in ("rows", "chunks") if values.get(key, "").isdigit()}
    for key in ("rows", "chunks"):
        if key in values and key not in numbers:
            raise InputError(f"plan: {key} {values[key]!r}; give an int of at least 1")
    return Plan(
        **axes, **numbers, zero=zero[0] if zero else "data", recompute="recompute" in values,
        schedule=values.get("schedule", "1f1b"),
    )  # fmt: skip
