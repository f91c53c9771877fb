"""The ranks that train together: which rows each has, and what all of them must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.held import spec_of_held
from luminal.distribute.layout import of_spec
from luminal.distribute.mesh import EXPERT, Mesh
from luminal.distribute.plans import axis_of, kinds_of
from luminal.memory.state import Assignable
from luminal.nn.module import Module
from luminal.session.on_mesh import engine_for, parts_on
from luminal.session.parallel import Plan, shard
from luminal.shape.expression import const
from luminal.training.data import Batches
from luminal.training.stream import Stream

PLAIN = (bool, int, float, str, tuple)
"""The types of numbers and names that ranks compare."""

if TYPE_CHECKING:
    from luminal.optim.optimizer import Optimizer
    from luminal.runtime.collectives.engine import Engine


@dataclass(frozen=True, slots=True)
class Ranks:
    """One rank among those of a mesh: of each batch it has part `place` of `parts`, which lie along
    the mesh axes `axes`; without any it has all rows. `mesh` is None where a run has one rank.
    """

    mesh: Mesh | None = None
    engine: Engine | None = None
    axes: tuple[str, ...] = ()
    place: int = 0
    parts: int = 1

    @staticmethod
    def of(mesh: Mesh | None, plan: Plan | None, model: Module) -> Ranks:
        """This rank of a mesh, whose batches are cut as the plan, or a cut model, has it.

        Raises InputError for a plan without a mesh or that is none, and a mesh of other ranks than
        were launched.
        """
        if mesh is None:
            if plan is not None:
                raise InputError(f"fit: plan={plan!r}, but there is no mesh; give both")
            return ALONE
        engine = engine_for(mesh, "fit")
        is_cut = any(p.spec or p.slots_spec or p.undecided for p in model.parameters())
        if isinstance(plan, str) or (plan is None and not is_cut):
            kinds_of(plan if isinstance(plan, str) else "data", mesh, "fit")
        return Ranks.along(batch_axes(mesh, plan, is_cut), mesh, engine)

    @staticmethod
    def along(axes: tuple[str, ...], mesh: Mesh, engine: Engine) -> Ranks:
        """This rank of a mesh over whose axes batches are cut, the outermost first."""
        if mesh.devices:  # of several devices a process has all rows
            return Ranks(mesh, engine, axes)
        at = mesh.coordinates(engine.rank)
        place, parts = 0, 1
        for axis in axes:
            place, parts = place * mesh.ranks(axis) + at[axis], parts * mesh.ranks(axis)
        return Ranks(mesh, engine, axes, place, parts)

    @property
    def is_first(self) -> bool:
        """Is it the rank that writes files and shows how the run goes?"""
        return self.engine is None or self.engine.rank == 0

    @property
    def size(self) -> int:
        """The number of ranks."""
        return 1 if self.engine is None else self.engine.size

    @property
    def together(self) -> Engine | None:
        """What carries values between several ranks; None where there is but one."""
        return self.engine if self.size > 1 else None

    def check_alike(self, optimizer: Optimizer, data: Batches | Stream, **options: Any) -> None:
        """Raises CollectiveError, which names the first that differs, where ranks call `fit` with
        other numbers: each would train its part by its own.
        """
        if self.together is None:
            return
        groups = [
            {name: value for name, value in group.items() if isinstance(value, PLAIN)}
            for group in optimizer.param_groups
        ]
        told = {"optimizer": type(optimizer).__name__, "groups": groups, **data.told(), **options}
        text = "\n".join(f"{name} = {value!r}" for name, value in told.items())
        self.together.check_same(text, "what fit was given")

    def said(self, text: str, what: str) -> str:
        """The first text that is not empty, of all ranks; all of them must ask."""
        if self.size == 1:
            return text
        assert self.engine is not None
        return next(
            (told.decode() for told in self.engine.exchange(text.encode(), what) if told), ""
        )

    def agreed(self, value: Any, what: str) -> Any:
        """What the first rank has. All of them must ask."""
        return value if self.size == 1 else self.engine.broadcast_object(value, what)  # type: ignore[union-attr]

    def check_same(self, model: Module, besides: Mapping[str, Assignable]) -> None:
        """Raises CollectiveError that names the first Parameter whose values differ between ranks,
        of those that are not cut yet: ranks that begin apart would train apart.
        """
        if self.size == 1:
            return
        assert self.engine is not None
        held: dict[str, Assignable] = dict(
            [
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False),
            ]
        )
        lines = [
            f"{path}: {hashlib.blake2b(owner.numpy().tobytes(), digest_size=8).hexdigest()}"
            for path, owner in {**held, **besides}.items()
            if owner.part is None
        ]
        self.engine.check_same(
            "\n".join(lines), "the model that fit begins with (lm.manual_seed makes it alike)"
        )

    def cut(self, model: Module, plan: Plan | None, besides: Mapping[str, Assignable]) -> None:
        """Says how the model is cut: as the plan has it; without one as it is, by `lm.shard`.

        Raises as `check_same` does.
        """
        self.check_same(model, besides)
        if self.mesh is None:
            return
        if plan is not None:
            shard(model, plan, self.mesh)
        held: list[Assignable] = [p for _, p in model.named_parameters(remove_duplicate=False)]
        for owner in [
            *held,
            *(buffer for _, buffer in model.named_buffers(remove_duplicate=False)),
        ]:
            self.hold(owner)

    def hold(self, owner: Assignable) -> None:
        """Lets go of all but this rank's part of a Parameter or State that is cut."""
        spec = spec_of_held(owner)
        if self.mesh is None or self.mesh.devices or spec is None or owner.part is not None:
            return
        assert self.engine is not None
        layout = of_spec(spec, tuple(map(const, owner.shape)), self.mesh, owner.name)
        parts_on(self.mesh, self.engine)(owner, layout)


ALONE = Ranks()
"""A run of one rank."""


def batch_axes(mesh: Mesh, plan: Plan | None, is_cut: bool) -> tuple[str, ...]:
    """The mesh axes along which batches are cut: "data" and "expert", or the only one where no plan
    has another use for it, nor `lm.shard`, by which the model `is_cut`.
    """
    if "sequence" in mesh.names:
        raise InputError(
            'fit: it gives ranks whole texts, and the mesh has an axis "sequence"; record the step '
            "with x.shard('data', 'sequence/1') and compile it, or leave that axis out"
        )
    named = tuple(axis for axis in ("data", EXPERT) if axis in mesh.names)
    if named:
        return named
    if isinstance(plan, str):
        is_free = kinds_of(plan, mesh, "fit") != ("tensor",)
    else:
        is_free = plan is None and not is_cut
    axis = axis_of("data", mesh) if is_free else None
    return () if axis is None else (axis,)
