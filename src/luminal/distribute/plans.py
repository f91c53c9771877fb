"""Plans: which Parameters of a model are cut over which axis of a mesh, by rules with names.

    data    none: every rank has the model, and its part of each batch
    zero1   as data, and the moments of the optimizer are cut
    zero2   the same program: gradients arrive reduced and cut, and are never whole on a rank
    zero3   Parameters too, which are gathered where they are read
    tensor  products: the outputs of the first of two, the inputs of the second

ZeRO: Rajbhandari et al., SC 2020. Tensor parallel: Shoeybi et al., Megatron-LM, 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.distribute.mesh import Mesh, Spec, spec_of
from luminal.memory.state import Assignable, Parameter

PLANS = ("data", "zero1", "zero2", "zero3", "tensor")

_OUTPUTS = (
    "q_proj", "k_proj", "v_proj", "query", "key", "value", "gate_proj", "up_proj", "w1", "w3",
    "fc1", "fc_in", "c_fc", "wi", "wi_0", "wi_1", "lin1",
)  # fmt: skip
"""Names of layers whose outputs are cut: what follows goes on in parts."""
_INPUTS = ("o_proj", "out_proj", "down_proj", "w2", "fc2", "fc_out", "wo", "lin2")
"""Names of layers whose inputs are cut: their results are added over the ranks."""
_TABLES = ("embed_tokens", "wte", "lm_head", "shared", "tok_embeddings")
"""Names of tables of a vocabulary, whose rows are cut."""


def follow(named: Iterable[tuple[str, Parameter]], plan: str, mesh: Mesh) -> list[str]:
    """Gives Parameters the specs of a plan; the names of those that it would cut and cannot.

    Raises InputError for an unknown plan.
    """
    if plan not in PLANS:
        hint = suggestion(plan, PLANS)
        raise InputError(f"shard: no plan {plan!r}; the plans are {', '.join(PLANS)}{hint}")
    if plan == "tensor":
        return _tensor(named, _axis(mesh, "tensor"), mesh)
    axis, left = _axis(mesh, "data"), []
    for name, parameter in {p: (n, p) for n, p in named}.values():
        if plan == "data":
            continue
        spec = _with(parameter, axis, mesh)
        if spec is None:
            left.append(name)
        elif plan == "zero3":
            parameter.spec = spec
        else:
            parameter.slots_spec = spec
    return left


def read_plan(text: str) -> tuple[Mesh, str]:
    """The mesh and the plan of a text: lines `mesh data=8 tensor=2` and `plan tensor+zero1`.

    Raises InputError that names the line it does not understand.
    """
    shape: list[int] = []
    names: list[str] = []
    plan = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "plan" and rest:
            plan = rest.strip()
        elif word == "mesh" and rest:
            for part in rest.split():
                name, _, count = part.partition("=")
                if not count.isdigit():
                    raise InputError(f"plan: {part!r} in {line!r}; write data=8")
                names.append(name)
                shape.append(int(count))
        elif not line.startswith("#"):
            raise InputError(f"plan: {line!r} is neither 'mesh data=8 tensor=2' nor 'plan zero1'")
    return Mesh(tuple(shape), tuple(names)), plan or "data"


def by_patterns(
    named: Sequence[tuple[str, Assignable]], patterns: Mapping[str, Sequence[object]], mesh: Mesh
) -> None:
    """Gives Parameters and States the specs of the patterns that their paths match, the last one.

    Raises InputError for a pattern that matches nothing, ShapeError for a spec that does not fit.
    """
    for pattern, entries in patterns.items():
        matching = [(name, held) for name, held in named if fnmatchcase(name, pattern)]
        if not matching:
            hint = suggestion(pattern, [name for name, _ in named])
            raise InputError(f"shard: the pattern {pattern!r} matches no Parameter or State{hint}")
        for name, held in matching:
            spec = spec_of(entries, len(held.shape), name)  # type: ignore[arg-type]
            for names in spec:
                for axis in names:
                    mesh.ranks(axis)
            held.spec = spec


def _axis(mesh: Mesh, name: str) -> str:
    """The mesh axis of this name, or the only one that there is."""
    if name in mesh.names or len(mesh.names) > 1:
        mesh.ranks(name)
        return name
    return mesh.names[0]


def _with(parameter: Parameter, axis: str, mesh: Mesh) -> Spec | None:
    """The Parameter's spec with one more mesh axis, on the first dimension that it divides, or as
    it is where the axis cuts it already: a plan may be followed twice.
    """
    spec = parameter.spec or ((),) * len(parameter.shape)
    if any(axis in names for names in spec):
        return spec
    for k, extent in enumerate(parameter.shape):
        taken = mesh.ranks(axis)
        for name in spec[k]:
            taken *= mesh.ranks(name)
        if extent and extent % taken == 0:
            return (*spec[:k], (*spec[k], axis), *spec[k + 1 :])
    return None


def _tensor(named: Iterable[tuple[str, Parameter]], axis: str, mesh: Mesh) -> list[str]:
    left = []
    for path, parameter in named:
        parts = path.split(".")
        layer = parts[-2] if len(parts) > 1 else ""
        if layer in _OUTPUTS or layer in _TABLES:
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
