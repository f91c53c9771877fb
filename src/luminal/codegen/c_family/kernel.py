"""Kernels as texts of C, with what their drivers must know of them."""

from __future__ import annotations

from luminal.base.dtypes import DType
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.codegen.c_family.dialect import Dialect
from luminal.codegen.c_family.launched import cluster_of, dynamic_bytes, tensors
from luminal.codegen.c_family.walk import Walk, dtypes_of
from luminal.expand.early import with_early
from luminal.expand.expand import expand
from luminal.expand.ir import Kernel, memory_dtype
from luminal.expand.narrow import narrowed
from luminal.kernel import tile_ir
from luminal.kernel.boxes import Tensor
from luminal.shape.expression import Expression, Symbol


@dataclass(frozen=True, slots=True)
class Spelled:
    """A kernel in one dialect, with what its driver must know: the dtypes that it computes in, the
    lanes and the scratch memory of a worker, and what memory of a group its launch has to give.
    """

    text: str
    dtypes: frozenset[DType]
    expanded: Kernel
    dynamic_bytes: int = 0

    @property
    def lanes(self) -> int:
        """The number of lanes of a worker: more than one are a group."""
        return self.expanded.lanes

    @property
    def cluster(self) -> int:
        """The groups that a launch puts on the device together."""
        return cluster_of(self.expanded)

    @property
    def params(self) -> tuple[Symbol, ...]:
        """The symbols of the kernel's parameters, in order."""
        return tuple(param.symbol for param in self.expanded.params)

    @property
    def scratch(self) -> Expression:
        """The bytes of global working memory that a worker needs."""
        return self.expanded.scratch_bytes

    @property
    def maps(self) -> tuple[tuple[int, Tensor], ...]:
        """What boxes are cut out of, each with the number of its buffer: a launch is given tensor
        maps of them behind the buffers.
        """
        numbers = {buffer.name: n for n, buffer in enumerate(self.expanded.buffers)}
        return tuple((numbers[tensor.source], tensor) for tensor in tensors(self.expanded))


def spell(kernel: Kernel, dialect: Dialect) -> Spelled:
    """The text of a kernel that is expanded to single lanes.

    Raises CompileError for a dtype that the dialect has no name for.
    """
    dtypes = dtypes_of(kernel)
    # A buffer of no elements is read by nobody, and has a pointer all the same.
    for dtype in sorted({*dtypes, *(memory_dtype(b.dtype) for b in kernel.buffers)}, key=str):
        if dtype.short not in dialect.types:
            raise CompileError(
                f"{dialect.name} computes no {dtype.short}; cast to f32, or use backend 'cpu'"
            )
    text = Walk(kernel, dialect).text()
    return Spelled(text, dtypes, kernel, dynamic_bytes(kernel, dialect))


def spell_tiles(kernel: tile_ir.Kernel, dialect: Dialect) -> Spelled:
    """The text of a kernel of tile IR, as `spell`; CompileError also for code written by hand."""
    return spell(expanded_for(kernel, dialect, early=bool(dialect.depend)), dialect)


def expanded_for(kernel: tile_ir.Kernel, dialect: Dialect, *, early: bool) -> Kernel:
    """A kernel of tile IR as the dialect's text says it; does it ask for memory `early`, before it
    waits for earlier launches?
    """
    expanded = expand(kernel, instructions=dialect.instructions)
    expanded = narrowed(expanded) if dialect.has_short_addresses else expanded
    return with_early(expanded) if early else expanded
