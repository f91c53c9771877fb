"""A dialect of C: all that differs from one language of kernels to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError
from luminal.base.swizzles import Swizzle
from luminal.codegen.c_family.warpgroups import Form
from luminal.expand.builder import Instructions
from luminal.expand.ir import Type

KERNEL = "luminal_kernel"
"""The name of the kernel in every text."""
INTEGERS = "integers"
DYNAMIC = "dynamic_shared"


class Dialect(ABC):
    """One language of kernels.

    `types` has the names of the dtypes it computes in, by their short names; `suffixes` what ends a
    literal of i64, u32, u64 and f32. `space` stands before a type in global memory, `inline` before
    a function, `shared_space` before a variable in a group's memory and `in_shared` before the type
    that a pointer there points to; `worker` and `workers` are the number of this worker and of all,
    `group` and `groups` those of groups, `lane` that of a lane in its group, and `barrier` is a
    statement at which all of a group meet. Where lanes exchange values, `lane_in_rows` numbers them
    so that those of a row follow each other, and `exchanged` is {value} of the lane whose number
    differs in the bit {distance}. `integers` is the array of i64 in memory that a kernel with
    parameters reads them from. `not_unrolled` stands before a loop whose trips meet at a barrier,
    where a compiler would unroll it. `instructions` are those of the operations that only some
    machines have; `copies_beside`: what lanes that step together copy to shared memory
    without registers comes there side by side, and they wait until so many copies are left of all
    and not batches.
    `has_short_addresses`: what fits in an i32 is computed in 32 bits. A group's memory of more than
    `static_bytes` is given by the launch; None: all is declared.

    Where a device may begin with a kernel before earlier launches have ended, `depend` is the
    statement that waits for them, and `fetch` one that asks for the memory at {place}. Where groups
    of a kernel can wait for each other, `counters` defines how: ARRIVE(counter) adds 1 to it behind
    all that was done, and gives what it was; AWAIT(counter, count) waits until it is that; and
    CLEAR(counter) makes it 0. `part_barrier` is a statement at which the first {lanes} of a group
    meet, where there is one.
    Where loads can be told where a buffer ends, `ranges` defines how: RANGE(pointer, bytes) is a
    Range, and load_inside<T>(range, byte, live) what lies there, or 0 if it is not live.

    A compiler must not contract a*b + c nor flush denormals, and must round division and square
    roots correctly: what that takes stands in `head`, or in the options of the driver.
    """

    name: str
    types: Mapping[str, str]
    suffixes: Mapping[str, str]
    space: str
    inline: str
    worker: str
    workers: str
    shared_space: str
    group: str
    groups: str
    lane: str
    barrier: str
    lane_in_rows: str
    exchanged: str
    integers: str = INTEGERS
    depend: str = ""
    fetch: str = ""
    counters: str = ""
    part_barrier: str = ""
    ranges: str = ""
    not_unrolled: str = ""
    instructions: Instructions = frozenset()
    in_shared: str = ""
    copies_beside: bool = False
    has_short_addresses: bool = True
    static_bytes: int | None = None

    @abstractmethod
    def head(self, dtypes: AbstractSet[DType]) -> str:
        """What stands before everything else in the text of a kernel that computes in these."""

    @abstractmethod
    def signature(
        self, pointers: Sequence[str], has_integers: bool, lanes: int, subgroup: int
    ) -> str:
        """The kernel's, for memory under these names, then for a row of i64 under the name
        INTEGERS if it has one. Of more than one of `lanes` its groups consist, in rows of which
        more than one, a `subgroup`, exchange values.
        """

    @abstractmethod
    def bitcast(self, dtype: DType, value: str) -> str:
        """The expression of the same bytes as another dtype of this size."""

    def multiply(self, dot: Dot) -> str:
        """The function by which lanes multiply matrices together, as `matrices.name_of` names it.

        Raises CompileError where there is none.
        """
        raise CompileError(f"{self.name} multiplies no matrices by {dot}; choose another dot")

    def products(
        self,
        forms: Sequence[Form],
        swizzles: Sequence[Swizzle],
    ) -> Sequence[str]:
        """The functions of products by dots that read shared memory, in these swizzles; their names
        are those of `warpgroups`.
        """
        raise CompileError(f"{self.name} multiplies nothing in shared memory; choose another dot")

    def tensor_products(
        self, dots: Sequence[Dot], swizzles: Sequence[Swizzle], loaded: Sequence[tuple[DType, int]]
    ) -> Sequence[str]:
        """The functions of products in tensor memory by these dots, of factors in these swizzles,
        and those that load so many sums of a dtype; their names are those of `tensor_memory`.
        """
        raise CompileError(f"{self.name} has no tensor memory; choose another dot")

    def load_matrix(self, count: int, turned: bool) -> str:
        """The function by which lanes load matrices together; `instructions` says if there is
        one.
        """
        raise CompileError(f"{self.name} loads no matrices; leave load_matrix out of instructions")

    def copies(self, sizes: Sequence[int]) -> Sequence[str]:
        """The functions by which a lane copies so many bytes to shared memory, and waits for that.

        Raises CompileError where there are none.
        """
        raise CompileError(f"{self.name} copies nothing to shared memory without registers")

    def boxes(self, dimensions: Sequence[int], shared: Sequence[int]) -> Sequence[str]:
        """The functions of boxes of so many dimensions, and of what counts them; and of such as
        groups of a cluster share.

        Raises CompileError where there are none.
        """
        raise CompileError(f"{self.name} has no boxes; let lanes copy")

    def fetching(self) -> str:
        """What `fetch` is made of, where there is one; stands before the kernel."""
        raise CompileError(f"{self.name} asks for no memory early; leave fetch empty")

    def instruction(self, operation: str) -> str:
        """The function of an operation that only some machines have: one that converts 16-bit
        floats, which `instructions` names, or a dot of words.
        """
        raise CompileError(f"{self.name} has no {operation}; leave it out of instructions")

    def exchange(self, dtype: DType, value: str, distance: int) -> str:
        """A value of this dtype as another lane has it."""
        return self.exchanged.format(value=value, distance=distance)

    def function(self, operation: str, dtype: DType) -> str:
        """The name of the function for an operation of expanded IR on floats of this dtype."""
        return {"abs": "fabs"}.get(operation, operation)

    def extremes(self, dtype: DType) -> str:
        """What `extreme` calls for integers of this dtype; stands before the kernel."""
        return ""

    def extreme(self, operation: str, dtype: DType, a: str, b: str) -> str:
        """The greater ("max") or lesser ("min") of two integers."""
        return f"{a} {'>' if operation == 'max' else '<'} {b} ? {a} : {b}"

    def float_extreme(self, operation: str, dtype: DType, text: str) -> str:
        """The function of the greater ("max") or lesser ("min") of two floats, which `text` is
        where the machine has none that takes NaN and zeros as the reference does.
        """
        return text

    # A language's own vectors end at four elements in most; a struct is loaded at once as well.
    def vector(self, type_: Type) -> str:
        """The name of a type of several elements, which are loaded and stored at once."""
        return f"{type_.dtype.short}x{type_.lanes}"

    def vectors(self, types: Sequence[Type]) -> list[str]:
        """What declares these types; stands before the kernel."""
        return [
            f"struct alignas({type_.dtype.size * type_.lanes}) {self.vector(type_)} "
            f"{{ {self.types[type_.dtype.short]} part[{type_.lanes}]; }};"
            for type_ in types
        ]

    def part(self, vector: str, type_: Type, number: int) -> str:
        """One element of a vector."""
        return f"{vector}.part[{number}]"

    def joined(self, type_: Type, parts: Sequence[str]) -> str:
        """A vector of elements; of none it is zeros."""
        return f"{self.vector(type_)}{{{', '.join(parts)}}}"

    def shared(self, element: str, name: str, size: int) -> str:
        """Declares memory of a group, as aligned as what is accessed at once."""
        return f"alignas(16) {self.shared_space}{element} {name}[{size}];"

    def dynamic(self) -> str:
        """Declares the memory of a group that a launch gives, under the name DYNAMIC, where there
        are `static_bytes`.
        """
        raise NotImplementedError(self.name)

    def base(self, pointer: str) -> str:
        """The first byte of the memory under a name of `signature`."""
        return pointer
