"""`lm.shard`, and the classes by which programs of several ranks were written before: one call that
wraps a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from luminal.backends import registry
from luminal.base.errors import InputError
from luminal.base.number_kinds import is_count
from luminal.distribute.mesh import Mesh, spec_of
from luminal.distribute.plans import by_patterns, follow, restored_on_error
from luminal.frontend.handle import is_tensor
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.nn.module import Module
from luminal.runtime.collectives.process import init, local_rank
from luminal.session.choosing import Auto, leave_undecided
from luminal.session.device_choice import device
from luminal.session.on_mesh import engine_for

Plan = str | Mapping[str, Sequence[Any]] | Auto
"""The name of a plan, several joined by "+", specs by patterns of paths, or what "auto" goes by."""


def shard(what: Any, plan: Plan | Sequence[Any], mesh: Mesh | None = None) -> Any:
    """Says how a model's Parameters and States are cut over a mesh, and gives back the model.

    `what`: a Module; or one Parameter or State, or a Tensor, with a spec (`Tensor.shard`).
    `plan`: "data", "zero1", "zero2", "zero3", "tensor", "expert", several as "tensor+zero1" (see
    docs/sharding.md), or {"*.q_proj.weight": ("tensor", None)}: for each dimension the mesh axis
    that cuts it. What no pattern names stays whole. Programs compiled with
    `lm.compile(cx, mesh=mesh)` from then on go by it. Under "auto" (`lm.distributed.Auto()`)
    the first of these programs chooses the plan by which it is predicted to be fastest within a
    rank's memory. So compile the training step first; `exe.explain_sharding()` says why.

    Raises InputError for an unknown plan or a pattern that matches nothing, ShapeError for a spec
    that does not fit; the model is then as it was.
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise InputError(f"shard: mesh is {mesh!r}; give lm.Mesh((4,), ('data',))")
    if is_tensor(what):
        spec = spec_of(plan, len(what.shape), f"shard of {what.value.type}", mesh)
        return what.shard(*spec)
    if isinstance(what, Parameter | State):
        what.spec = spec_of(plan, len(what.shape), what.name, mesh)
        if isinstance(what, Parameter):
            what.undecided = None
        return what
    if not isinstance(what, Module):
        raise InputError(
            f"shard: got a {type(what).__name__}; give a Module, a Parameter, a State or a Tensor"
        )
    if mesh is None:
        raise InputError("shard: a model is cut over a mesh; give mesh=lm.Mesh((4,), ('data',))")
    held: list[tuple[str, Assignable]] = [
        *what.named_parameters(remove_duplicate=False),
        *what.named_buffers(remove_duplicate=False),
    ]
    with restored_on_error(owner for _, owner in held):
        if (auto := Auto.of(plan)) is not None:
            leave_undecided([*what.named_parameters(remove_duplicate=False)], mesh, auto)
        elif isinstance(plan, str):
            follow(what.named_parameters(remove_duplicate=False), plan, mesh)
        elif isinstance(plan, Mapping):
            by_patterns(held, plan, mesh)
        else:
            raise InputError(
                f"shard: the plan is {plan!r}; give a name, or specs by patterns of paths"
            )
        if auto is None:  # what is named here holds, and no longer waits for a choice
            for parameter in what.parameters():
                parameter.undecided = None
    name_by_path(what)
    return what


def name_by_path(model: Module) -> None:
    """Names Parameters without a name of their own by their paths."""
    for path, parameter in model.named_parameters(remove_duplicate=False):
        # What is waited for is named in errors, and numbers need not be the same on all ranks.
        if parameter.name == f"parameter{parameter.id}":
            parameter.name = path


class MpiBackend:
    """The ranks that mpiexec, srun or `luminal launch` started, with MPI between them."""

    devices: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.engine = init()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(self.engine.size)

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return int(self.engine.rank)

    def mesh(self, shape: tuple[int, ...], names: tuple[str, ...]) -> Mesh:
        """A mesh of its ranks."""
        return Mesh(shape, names, self.devices)


class LocalBackend(MpiBackend):
    """The ranks that are devices of this process, one for each of `devices`; no launcher starts
    them. Raises InputError where several processes were launched.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__()
        self.devices = Mesh(devices=tuple(devices)).devices
        engine_for(self.mesh((self.size,), ("data",)), type(self).__name__)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.devices)


class _DeviceBackend(MpiBackend):
    """Ranks each of which has a device of a kind; where a node has fewer, they take turns."""

    _base: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        try:
            self.device = device(registry.of_rank(self._base, local_rank())).name
        except InputError as error:
            raise InputError(f"{type(self).__name__}: {error}{_instead(self._base)}") from None
        registry.BACKENDS[self._base].check_library()


class NcclBackend(_DeviceBackend):
    """The ranks that `luminal launch`, mpiexec or srun started, each with a device of CUDA, and
    NCCL between these.

    That device is the default one of compiles in this context from now on. Raises InputError where
    there is none, CompileError where NCCL is not installed.
    """

    _base = registry.CUDA


class RcclBackend(_DeviceBackend):
    """The ranks that `luminal launch`, mpiexec or srun started, each with a device of ROCm, and
    RCCL between these.

    That device is the default one of compiles in this context from now on. Raises InputError where
    there is none, CompileError where RCCL is not installed.
    """

    _base = registry.ROCM


_OF_VENDORS = {cls._base: cls for cls in (NcclBackend, RcclBackend)}


def _instead(base: str) -> str:
    """The end of an error: the class for the devices that are here, where these are another's."""
    for other, cls in _OF_VENDORS.items():
        if other != base and registry.BACKENDS[other].unavailable() is None:
            name = cls.__name__
            return f"; for the devices of {other!r}, which are here, there is lm.distributed.{name}"
    return ""


def _ranks(backend: object, what: str) -> int:
    if not isinstance(backend, MpiBackend):
        got = type(backend).__name__
        raise InputError(f"{what}: got a {got}; give a backend, as lm.distributed.MpiBackend()")
    return backend.size


class _Wrapped(Module):
    """A model on a mesh: what is called records for it."""

    def __init__(self, model: Module, mesh: Mesh) -> None:
        super().__init__()
        if not isinstance(model, Module):
            raise InputError(f"{type(self).__name__}: got a {type(model).__name__}; give a Module")
        self.model = model
        self.mesh = mesh

    def sync_gradients(self, gradients: Mapping[Parameter, Tensor]) -> dict[Parameter, Tensor]:
        """The gradients, summed over all ranks: from here on every rank has them whole."""
        return {parameter: gradient.shard() for parameter, gradient in gradients.items()}


class DataParallel(_Wrapped):
    """A model whose batch is cut over all ranks of a backend: each takes its rows of each input.

    A graph that it is called in compiles for that mesh. Losses and gradients are those of the whole
    batch.
    """

    def __init__(self, model: Module, backend: MpiBackend) -> None:
        ranks = _ranks(backend, type(self).__name__)
        super().__init__(model, backend.mesh((ranks,), ("data",)))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the model gives for inputs whose first dimension is the batch."""
        cut = [x.shard("data") if is_tensor(x) and x.shape else x for x in inputs]
        for x in cut:
            if is_tensor(x):
                x.graph.root.mesh = self.mesh
        return self.model(*cut, **options)


class TensorParallel(_Wrapped):
    """A model whose products are cut over `size` ranks, by the plan "tensor"."""

    def __init__(self, model: Module, backend: MpiBackend, size: int | None = None) -> None:
        every = _ranks(backend, type(self).__name__)
        ranks = every if size is None else size
        if not is_count(ranks) or every % ranks:
            raise InputError(
                f"TensorParallel: size={ranks!r} does not divide the {every} ranks; give "
                "an int that does"
            )
        super().__init__(model, backend.mesh((every // ranks, ranks), ("data", "tensor")))
        follow(model.named_parameters(remove_duplicate=False), "tensor", self.mesh)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the model gives; inputs are whole on every rank."""
        for x in inputs:
            if is_tensor(x):
                x.graph.root.mesh = self.mesh
        return self.model(*inputs, **options)
