"""A Driver: all that a device must do so that programs run on it.

The runtime does the rest once for all devices (`device_runner.py`): it walks launch lists, places
buffers, keeps weights and States. Work is queued, and what is queued runs in that order, each
piece after the one before it has ended; only `read` and `wait` wait for it. Calls come one at a
time, from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from luminal.base.errors import CompileError
from luminal.base.errors import DeviceError as DeviceError
from luminal.memory.arrays import DeviceMemory as DeviceMemory
from luminal.shape.expression import Expression, ExpressionLike, Symbol, as_expression

if TYPE_CHECKING:  # a host without a device starts without kernels
    from luminal.hlir.library_product import LibraryProduct
    from luminal.kernel.tile_ir import Kernel
    from luminal.runtime.by_host import HostExchange
    from luminal.runtime.collectives.library import Library
    from luminal.runtime.exchange import Exchange
    from luminal.runtime.library_code import LibraryCode
    from luminal.runtime.side_queue import Queues, SideQueue


Array: TypeAlias = np.ndarray[Any, Any]
DeviceBlock: TypeAlias = Any
"""Memory that a driver's `allocate` gave; what it is, only the driver knows."""
Mark: TypeAlias = Any
"""A moment in the queue, likewise."""


class DevicePointer(NamedTuple):
    """A position in a device's memory: a block, and `offset` bytes from its first."""

    block: DeviceBlock
    offset: int = 0


class Call(NamedTuple):
    """A launch with all its places, as `Driver.enqueue` takes it, or a call of a library, which the
    host tells `numbers`.
    """

    code: Any
    workers: int
    operands: Sequence[DevicePointer]
    integers: DevicePointer | None
    scratch: DevicePointer | None
    numbers: tuple[int, ...] = ()


class Recording(Protocol):
    """A run's copies and launches, which one call queues."""

    def run(self) -> None:
        """Queues them. What is copied from the host is what lies there when its turn comes."""


class Code(Protocol):
    """A kernel as its device runs it.

    `lanes` threads are a worker: a group, where there are more than one; with none it is a
    library's. Of its parameters `scratch` makes the bytes of working memory in global memory that
    each worker needs.
    """

    @property
    def lanes(self) -> int: ...
    @property
    def params(self) -> tuple[Symbol, ...]: ...
    @property
    def scratch(self) -> Expression: ...


class TogetherCode(Code, Protocol):
    """Several kernels as one, a persistent one, whose groups wait for each other: it walks a list
    of tasks whose records have so many `words`.
    """

    @property
    def words(self) -> int: ...


def integers_of(
    code: Code, params: Sequence[ExpressionLike], chunks: ExpressionLike
) -> tuple[Expression, ...]:
    """What a launch's `integers` hold: the parameters, the bytes of scratch for each worker, and
    the number of chunks, of which there may be none; nothing where the kernel knows them.
    """
    if not code.params:
        return ()
    return (*map(as_expression, params), scratch_of(code, params), as_expression(chunks))


def scratch_of(code: Code, params: Sequence[ExpressionLike]) -> Expression:
    """The bytes of working memory of a worker, where the parameters are these."""
    return code.scratch.substitute(dict(zip(code.params, params, strict=True)))


def launch_shape(
    code: Code, workers: int, group: int, scratch: DevicePointer | None
) -> tuple[int, int]:
    """The number of groups that are launched, and of threads in each: where each thread is a
    worker, groups of `group` at most.
    """
    if code.lanes > 1:
        return workers, code.lanes
    group = min(group, workers)
    # Threads beyond `workers` find no chunk left, but would have no scratch memory either.
    return (workers // group if scratch else -(-workers // group)), group


class Driver(ABC):
    """One device. A new one needs the abstract methods below and its facts.

    `name` is the user's name for it ("opencl:0"). `workers` is how many walk the chunks of a launch
    at most, `groups` how many where a worker is a group of lanes, which are `most_lanes` at most.
    `survives_fork`: can a forked child go on using it? `dlpack_device` is DLPack's name for it, and
    `stream_number` that of its queue, where other libraries can read its memory by address;
    `goes_by_address`: an address is all that a launch has of a place. A kernel that
    is several may leave each `warp` of so many lanes idle in some of them; 0: none. The clock that
    such a kernel tells times by counts `tick` seconds.
    """

    name: str
    workers: int
    groups: int
    most_lanes: int
    survives_fork: bool = False
    dlpack_device: tuple[int, int] | None = None
    stream_number: int | None = None
    goes_by_address: bool = False
    warp: int = 0
    tick: float = 1e-9

    def address(self, place: DevicePointer) -> int:
        """The address of a place, for other libraries; where `dlpack_device` is None, none."""
        raise DeviceError(f"{self.name}: memory without addresses")

    def block_at(self, address: int, size: int) -> DeviceBlock:
        """The block that is another library's memory, which is not given back here."""
        raise DeviceError(f"{self.name}: memory without addresses")

    def follow(self, queue: int) -> None:
        """What is queued from now on waits for all that another library has queued by now on this
        device, in the queue that it knows by this number.
        """
        raise DeviceError(f"{self.name}: no other library has a queue here")

    def precede(self, queue: int) -> None:
        """What that library queues from now on waits for all that is queued here by now."""
        raise DeviceError(f"{self.name}: no other library has a queue here")

    @abstractmethod
    def memory(self) -> DeviceMemory:
        """The memory that the device has, and how much of it is free."""

    @abstractmethod
    def allocate(self, size: int) -> DeviceBlock:
        """`size` > 0 bytes, uninitialised, aligned to 256. Raises MemoryError if there are not."""

    @abstractmethod
    def free(self, block: DeviceBlock) -> None:
        """Gives a block back, once all that is queued has run."""

    @abstractmethod
    def write(self, target: DevicePointer, source: Array) -> None:
        """Queues a copy of a row-major array; the caller may change it after this call."""

    @abstractmethod
    def read(self, source: DevicePointer, target: Array) -> None:
        """Copies into a row-major array once all that is queued has run, and waits for it."""

    @abstractmethod
    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        """Queues a copy of `size` bytes within the device; the two do not overlap."""

    @abstractmethod
    def compile(self, kernel: Kernel, text: str) -> Code:
        """The kernel's code; `text` is its canonical text, its name in every cache.

        Custom kernels do not come here. Raises CompileError that names what the device lacks.
        """

    @abstractmethod
    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        """Queues a launch of what `compile` gave, whose chunks are walked by `workers` of 1 to
        `self.workers`: worker w takes the chunks w, w + workers, ..., if there are any. Where the
        code has lanes a worker is a group of that many threads, of 1 to what `workers_of` says.

        `operands` are those of the kernel's buffers, in order; offsets are multiples of 16, of
        buffers that are not aligned of their dtypes' sizes. `integers` is a row of i64 in the
        device's memory, which holds what `integers_of` says when the launch's turn comes; None for
        code without parameters, which knows its chunks. `scratch` holds `workers` times the code's
        `scratch` bytes, worker w's at w times that; None where it needs none.
        """

    def with_maps(self, code: Any, operands: Sequence[DevicePointer]) -> Sequence[DevicePointer]:
        """The operands of a launch of what `compile` gave, and behind them what tells the device
        how it cuts boxes out of some of them, where it does.
        """
        return operands

    def put(self, call: Call | Exchange | HostExchange) -> None:
        """Queues a launch, a library's call, or a collective of several ranks."""
        if not isinstance(call, Call):
            call.put(self)
        elif call.code.lanes:
            self.enqueue(*call[:5])
        else:
            self.call_library(call)

    def product(self, product: LibraryProduct) -> LibraryCode:
        """The code of a product that a library computes. Raises CompileError where this device has
        no such library.
        """
        raise CompileError(f"{self.name}: {product.library} is not installed for this device")

    def call_library(self, call: Call) -> None:
        """Queues a call of what `product` gave."""
        raise DeviceError(f"{self.name}: no library is called here")

    has_library = False
    """Is there something that moves values between devices of this kind? Else the host does."""

    def library(self) -> Library:
        """What moves values between devices of this kind. Raises CompileError where it is not
        installed.
        """
        raise CompileError(f"{self.name}: the host carries what its ranks exchange")

    def queues(self) -> Queues:
        """Queues beside the main one, for collectives, where there is a `library`."""
        raise DeviceError(f"{self.name}: there is one queue")

    def card(self) -> str:
        """The device's own name, the same in all processes and of no other device anywhere."""
        raise DeviceError(f"{self.name}: nobody else knows this device")

    @property
    def side(self) -> SideQueue:
        """The queue of collectives, made at first."""
        if self._side is None:
            from luminal.runtime.side_queue import SideQueue  # late: most programs have one rank

            self._side = SideQueue(self, self.queues())
        return self._side

    _side: SideQueue | None = None

    def expect(self, collectives: int) -> None:
        """Prepares for a run with so many collectives."""
        self.side.reserve(collectives)

    def exchange(self, exchange: Exchange) -> None:
        """Queues a collective: what was queued before has ended when it begins, and what is queued
        behind a wait begins when it has ended.
        """
        assert self.stream_number is not None
        self.put_beside(exchange, self.stream_number)

    def put_beside(self, exchange: Exchange, queue: int) -> None:
        """Queues a collective in the order of what the queue of that number is given."""
        if exchange.communicator is not None:
            self.side.put(exchange, queue)
        elif exchange.phase != "wait":
            moved = exchange.moved
            self.queues().copy(moved.source, moved.target, min(exchange.sizes), queue)

    def is_reached(self, mark: Mark) -> bool:
        """Whether all that was queued before a mark has run."""
        raise DeviceError(f"{self.name}: tells nothing of what is under way")

    def fetch(self, source: DevicePointer, target: Array) -> None:
        """Queues a copy into a row-major array, which has it once somebody has waited."""
        self.read(source, target)

    def staging(self, size: int) -> Array:
        """Bytes of the host that recordings copy from and to."""
        return np.empty(size, np.uint8)

    def record(
        self,
        sent: tuple[Array, DevicePointer],
        calls: Sequence[Call | Exchange],
        taken: tuple[DevicePointer, Array],
    ) -> Recording | None:
        """A call that copies the array of `sent` to the device, launches, and copies back to the
        array of `taken`; both arrays are of `staging`.

        None where the device has nothing of the kind: then calls are queued one by one.
        """
        return None

    @abstractmethod
    def wait(self, mark: Mark | None = None) -> None:
        """Waits until all that was queued before a mark, or at all, has run. Raises DeviceError
        with what the device reports.
        """

    @abstractmethod
    def mark(self) -> Mark:
        """Queues a note of the device's time."""

    @abstractmethod
    def seconds(self, first: Mark, last: Mark) -> float:
        """The seconds from one mark to a later one, once both have been reached."""

    def workers_of(self, code: Code) -> int:
        """The number of workers that may walk the chunks of this code: of groups as many as the
        device holds at once, where it says how many.
        """
        return self.workers if code.lanes == 1 else self.groups

    def together(self, kernels: Sequence[Kernel]) -> TogetherCode | None:
        """Kernels as one that walks a list of tasks; None where groups cannot wait for each
        other.
        """
        return None

    def check_lanes(self, lanes: int) -> None:
        """Raises CompileError for groups that are too large for the device."""
        if lanes > self.most_lanes:
            raise CompileError(
                f"{self.name}: a kernel by groups of {lanes} lanes; the device has at most "
                f"{self.most_lanes} in one: schedule the kernel for this device"
            )

    def fill(self, target: DevicePointer, size: int, pattern: bytes) -> None:
        """Queues `size` bytes of a repeated pattern (for tests: it may be slow)."""
        count = -(-size // len(pattern))
        self.write(target, np.frombuffer(pattern * count, np.uint8)[:size])
