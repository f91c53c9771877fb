"""Plans: which Parameters of a model are cut over which axis of a mesh, by rules with names.

    data    none: every rank has the model, and its part of each batch
    zero1   as data, and the moments of the optimizer are cut
    zero2   the same program: gradients arrive reduced and cut, and are never whole on a rank
    zero3   Parameters too, which are gathered where they are read
    tensor  products: the outputs of the first of two, the inputs of the second
    sequence  none: the positions of texts are cut, by the marks of inputs, and attention goes
            around a ring
    expert  mixtures: each rank has some of the experts, to which rows go, and a part of each batch

ZeRO: Rajbhandari et al., SC 2020. Tensor parallel: Shoeybi et al., Megatron-LM, 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.distribute.mesh import EXPERT, Mesh, Spec, dealt, spec_of
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable

STAGES = ("zero1", "zero2", "zero3")
PLANS = ("data", *STAGES, "tensor", "sequence", EXPERT)
AUTO = "auto"
"""The plan that is one of the others, as is predicted to be best."""

_PATHS = "; give paths as model.named_parameters() has them, with * for what differs"
_AXES = {axis: axis for axis in ("tensor", "sequence", EXPERT)} | dict.fromkeys(
    ("data", *STAGES), "data"
)
"""The mesh axis of each plan."""
_OUTPUTS = (
    "q_proj", "k_proj", "v_proj", "query", "key", "value", "gate_proj", "up_proj", "w1", "w3",
    "fc1", "fc_in", "c_fc", "wi", "wi_0", "wi_1", "lin1",
)  # fmt: skip
"""Names of layers whose outputs are cut: what follows goes on in parts."""
_INPUTS = ("o_proj", "out_proj", "down_proj", "w2", "fc2", "fc_out", "wo", "lin2")
"""Names of layers whose inputs are cut: their results are added over the ranks."""
_TABLES = ("embed_tokens", "wte", "lm_head", "shared", "tok_embeddings")
"""Names of tables of a vocabulary, whose rows are cut."""
_EXPERTS = "experts"
"""The name of experts side by side (`nn.moe.Experts`), whose first dimension is cut."""


def kinds_of(plan: str, mesh: Mesh, what: str = "shard") -> tuple[str, ...]:
    """The plans that a text joins by "+", in the order in which they are followed.

    Raises InputError that begins with `what` for a plan that is none, for several that say
    different things of the same, and for one whose axis the mesh lacks.
    """
    kinds = [name.strip() for name in plan.split("+")]
    joined = f" in {plan!r}" if len(kinds) > 1 else ""
    for kind in kinds:
        if kind == AUTO:
            raise InputError(
                f"{what}: {AUTO!r}{joined}: it chooses among all plans; give it alone, or name them"
            )
        if kind not in PLANS:
            raise InputError(
                f"{what}: no plan {kind!r}{joined}; the plans are {', '.join((*PLANS, AUTO))}, and "
                f"several, as 'tensor+zero1'{suggestion(kind, (*PLANS, AUTO))}"
            )
    if len(set(kinds)) < len(kinds) or len(set(kinds).intersection(STAGES)) > 1:
        raise InputError(
            f"{what}: plan {plan!r}: of {', '.join(STAGES)} each cuts what those before it do; "
            "give one of them, and each name once"
        )
    # Products and experts first: they set a Parameter's cut, to which the others add.
    kinds.sort(key=lambda kind: kind not in ("tensor", EXPERT))
    for kind in kinds:
        if axis_of(kind, mesh) is None:
            axis = _AXES[kind]
            raise InputError(
                f"{what}: plan {kind!r}{joined} cuts over the mesh axis {axis!r}, and the mesh has "
                f"{', '.join(mesh.names)}; name an axis of lm.Mesh so, or give another plan"
            )
    return tuple(kinds)


def axis_of(kind: str, mesh: Mesh) -> str | None:
    """The mesh axis that a plan cuts over: that of its name; for batches also the only one that
    there is, under any name but "tensor", "sequence" and "expert". None where the mesh lacks it.
    """
    axis = _AXES[kind]
    if axis in mesh.names:
        return axis
    alone = axis == "data" and len(mesh.names) == 1 and mesh.names[0] not in _AXES.values()
    return mesh.names[0] if alone else None


def follow(named: Iterable[tuple[str, Parameter]], plan: str, mesh: Mesh) -> list[str]:
    """Gives Parameters the specs of a plan; the names of those that it would cut and cannot.

    Raises InputError as `kinds_of` does.
    """
    listed, left = [*named], []
    for kind in kinds_of(plan, mesh):
        axis = axis_of(kind, mesh)
        assert axis is not None
        if kind == "tensor":
            left += _tensor(listed, axis, mesh)
        elif kind == EXPERT:
            left += _experts(listed, axis, mesh)
        elif kind in STAGES:
            left += _zero(listed, axis, mesh, cuts_parameters=kind == "zero3")
    return left


@contextmanager
def restored_on_error(owners: Iterable[Assignable]) -> Iterator[None]:
    """Inside of the block specs may be given; where it raises they are as they were before."""
    before = marks_of(owners)
    try:
        yield
    except BaseException:
        restore(before)
        raise


Marks = list[tuple[Assignable, Spec | None, Spec | None]]
"""Parameters and States with the specs of themselves and of their slots."""


def marks_of(owners: Iterable[Assignable]) -> Marks:
    """How Parameters and States are to be cut, to be given to `restore`."""
    return [(owner, owner.spec, getattr(owner, "slots_spec", None)) for owner in owners]


def restore(marks: Marks) -> None:
    """Cuts Parameters and States as they were to be cut before."""
    for owner, spec, slots in marks:
        owner.spec = spec
        if isinstance(owner, Parameter):
            owner.slots_spec = slots


def read_plan(text: str) -> tuple[Mesh, str]:
    """The mesh and the plan of a text: lines `mesh data=8 tensor=2` and `plan tensor+zero1`.

    Raises InputError that names the line it does not understand, or the plan that is none for the
    mesh.
    """
    if not isinstance(text, str):
        raise InputError(f"plan: got {text!r}; give its text, 'mesh data=8' and a line 'plan data'")
    shape: list[int] = []
    names: list[str] = []
    plan = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if (word == "plan" and plan) or (word == "mesh" and names):
            raise InputError(f"plan: {line!r} is the second line {word!r}; give one of each")
        if word == "plan" and rest:
            plan = rest.strip()
        elif word == "mesh" and rest:
            for part in rest.split():
                name, _, count = part.partition("=")
                if not (count.isascii() and count.isdigit()):
                    raise InputError(f"plan: {part!r} in {line!r}; write data=8")
                names.append(name)
                shape.append(int(count))
        elif not line.startswith("#"):
            raise InputError(f"plan: {line!r} is neither 'mesh data=8 tensor=2' nor 'plan zero1'")
    if not names:
        raise InputError(f"plan: {text!r} has no mesh; give a line 'mesh data=8'")
    mesh = Mesh(tuple(shape), tuple(names))
    plan = plan or "data"
    if plan != AUTO:
        kinds_of(plan, mesh, "plan")
    return mesh, plan


def by_patterns(
    named: Sequence[tuple[str, Assignable]], patterns: Mapping[str, Any], mesh: Mesh
) -> None:
    """Gives Parameters and States the specs of the patterns that their paths match, the last one.

    Raises InputError for a pattern that matches nothing, ShapeError for a spec that does not fit.
    """
    for pattern, entries in patterns.items():
        if not isinstance(pattern, str):
            raise InputError(
                f"shard: the pattern {pattern!r} is no text; give paths, as '*.q_proj.weight'"
            )
        matching = [(name, held) for name, held in named if fnmatchcase(name, pattern)]
        if not matching:
            fix = suggestion(pattern, [name for name, _ in named]) or _PATHS
            raise InputError(f"shard: the pattern {pattern!r} matches no Parameter or State{fix}")
        for name, held in matching:
            held.spec = spec_of(entries, len(held.shape), name, mesh)


def _zero(
    named: Iterable[tuple[str, Parameter]], axis: str, mesh: Mesh, *, cuts_parameters: bool
) -> list[str]:
    left = []
    for name, parameter in {p: (n, p) for n, p in named}.values():
        spec = _with(name, parameter, axis, mesh)
        if spec is None:
            left.append(name)
        elif cuts_parameters:
            parameter.spec = spec
        else:
            parameter.slots_spec = spec
    return left


def _with(path: str, parameter: Parameter, axis: str, mesh: Mesh) -> Spec | None:
    """The Parameter's spec with one more mesh axis, on the first dimension that it divides, or as
    it is where the axis cuts it already: a plan may be followed twice.
    """
    spec = parameter.spec or ((),) * len(parameter.shape)
    if any(axis == dealt(name)[0] for names in spec for name in names):
        return spec
    for k, extent in enumerate(parameter.shape):
        taken = mesh.ranks(axis)
        for name in spec[k]:
            taken *= mesh.ranks(dealt(name)[0], path)
        if extent and extent % taken == 0:
            return (*spec[:k], (*spec[k], axis), *spec[k + 1 :])
    return None


def _tensor(named: Iterable[tuple[str, Parameter]], axis: str, mesh: Mesh) -> list[str]:
    left = []
    for path, parameter in named:
        parts = path.split(".")
        layer = parts[-2] if len(parts) > 1 else ""
        if (layer in _OUTPUTS or layer in _TABLES) and parameter.shape:
            dimension = 0
        elif layer in _INPUTS and len(parameter.shape) > 1:
            dimension = 1
        else:
            continue
        if parameter.shape[dimension] % mesh.ranks(axis):
            left.append(path)
            continue
        spec: list[tuple[str, ...]] = [()] * len(parameter.shape)
        spec[dimension] = (axis,)
        parameter.spec = tuple(spec)
    return left


def has_experts(named: Iterable[tuple[str, Parameter]]) -> bool:
    """Are any of the Parameters those of experts side by side?"""
    return any(_is_of_experts(path) for path, _ in named)


def _is_of_experts(path: str) -> bool:
    return path.split(".")[-2:-1] == [_EXPERTS]


def _experts(named: Iterable[tuple[str, Parameter]], axis: str, mesh: Mesh) -> list[str]:
    left = []
    for path, parameter in named:
        if not _is_of_experts(path) or not parameter.shape:
            continue
        if parameter.shape[0] % mesh.ranks(axis):
            left.append(path)
        else:
            parameter.spec = ((axis,), *((),) * (len(parameter.shape) - 1))
    return left
