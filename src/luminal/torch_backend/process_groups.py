"""Process groups of PyTorch (gloo, MPI) as engines: what a program's collectives go by on the host.

Torch's groups have deadlines, abort and order of their own, so an engine here only starts and
waits. Ranks may have programs that differ, as DTensor writes each rank's own offsets into them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from luminal.base.errors import CollectiveError
from luminal.torch_backend.types import tensor_over

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def group_of(name: str) -> Any:
    """The process group that functional collectives name so."""
    resolve: Any = vars(distributed_c10d)["_resolve_process_group"]
    return resolve(name)


class GroupEngine:
    """One process group, seen by this rank; `axis` is the name that PyTorch has for the group.

    Reductions are added in the group's own order, as in eager mode.
    """

    unlike = False

    def __init__(self, name: str) -> None:
        self._group = group_of(name)
        self.axis = name
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)

    def start(
        self, kind: str, source: Any, target: Any, *, label: Any, monoid: str = "sum",
        pairs: Any = (), root: int = 0,
    ) -> Any:  # fmt: skip
        """Starts a collective on contiguous arrays; what `wait` takes."""
        sent, received = tensor_over(source), tensor_over(target)
        how: dict[str, Any] = {"group": self._group, "async_op": True}
        match kind:
            case "all_reduce":
                received.copy_(sent)
                work = dist.all_reduce(received, _OPS[monoid], **how)
            case "reduce_scatter":
                work = dist.reduce_scatter_tensor(received, sent, _OPS[monoid], **how)
            case "all_gather":
                work = dist.all_gather_into_tensor(received, sent, **how)
            case _:
                work = dist.all_to_all_single(received, sent, **how)
        return work, label, (sent, received)  # which are read and written until then

    def wait(self, ticket: Any, *, first: bool = False) -> None:
        """Waits for the target. Raises CollectiveError with what PyTorch says of a failure."""
        work, label, _ = ticket
        try:
            work.wait()
        except RuntimeError as error:
            raise CollectiveError(f"{label}: {error}") from error

    def check_same(self, text: str, label: str) -> None:
        """Nothing: ranks' programs may differ."""


@cache
def engine(name: str) -> Any:
    """The engine of a process group; what is asked of engines for devices it has not."""
    return GroupEngine(name)
