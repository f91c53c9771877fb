"""Products of matrices by cuBLASLt, or by what has its functions under another prefix.

Such a library takes matrices by columns and multiplies `D = op(A) op(B)`. A result by rows is its
own turned matrix by columns, so D is c turned, A is our b, B is our a, and a bias along our columns
runs along D's rows, where the library wants it.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from typing import Any, NamedTuple, Protocol

from luminal.backends.library_calls import ALGORITHMS
from luminal.base.dtypes import DType, float32, float64, int32
from luminal.base.errors import CompileError, DeviceError
from luminal.base.records import dataclass
from luminal.hlir.library_product import Geometry, LibraryProduct
from luminal.runtime.driver import Call, Driver
from luminal.runtime.library_code import LibraryCode
from luminal.shape.expression import const

WORKSPACE = 32 << 20
"""Bytes of working memory: what cuBLAS itself takes on Hopper, where it takes the most."""
MOST_ALIGNED = 256  # bytes: no algorithm asks for more
PLANS = 256  # products whose descriptors are kept, by extents: those of decoders grow
SCALES: Mapping[DType, type[Any]] = {float32: c_float, float64: c_double, int32: c_int32}
_pointer = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Interface:
    """How a library spells all this: the prefix of its functions, and its numbers.

    `operations` are those for a matrix as it lies and a turned one; `compute` how sums are kept,
    "tf32" where factors may be narrowed; `sums` the mask of ways to add up parts of a sum that keep
    the accumulator's digits, with its attribute; `alignments` the attributes of A, B, C and D.
    `result` is the record of an algorithm, with `algo`, `workspaceSize` and `state`.
    """

    name: str
    prefix: str
    result: type[ctypes.Structure]
    dtypes: Mapping[str, int]
    compute: Mapping[str, int]
    operations: tuple[int, int]
    turned: tuple[int, int]
    epilogue: tuple[int, int]
    bias: tuple[int, int]
    batch: tuple[int, int]
    workspace: int
    sums: tuple[int, int] | None = None
    alignments: tuple[int, ...] = ()
    status: str = ""


def loadable(files: Sequence[str]) -> str | None:
    """The first of some names by which the loader finds a library."""
    for file in files:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return file
    return None


def result_of(algorithm: type[ctypes.Structure]) -> type[ctypes.Structure]:
    """The record of what the heuristic says of an algorithm, which has such a record itself."""

    class Result(ctypes.Structure):
        _fields_ = (
            ("algo", algorithm), ("workspaceSize", c_size_t), ("state", c_int),
            ("wavesCount", c_float), ("reserved", c_int * 4),
        )  # fmt: skip

    return Result


class Turn(NamedTuple):
    """A factor as the library takes it: turned or not, its rows and columns in memory, and how many
    elements apart its columns are.
    """

    is_turned: bool
    rows: int
    columns: int
    leading: int


def turns(g: Geometry) -> tuple[Turn, Turn, Turn]:
    """How the library takes a product: its A is our b by columns, its B our a, and its D our c."""
    first = _turn(g.b.row == 1 or g.k == 1, g.k, g.n, g.b.column, g.b.row)
    along_k, *rest = _turn(g.a.column == 1 or g.k == 1, g.k, g.m, g.a.row, g.a.column)
    return first, Turn(not along_k, *rest), Turn(False, g.n, g.m, max(g.c.row, g.n))


def starts(product: LibraryProduct, g: Geometry, addresses: Sequence[int]) -> list[int]:
    """The addresses of the first elements of a, b, the bias if any, and c."""
    first = (g.a.start, g.b.start, *[g.bias] * product.has_bias, g.c.start)
    dtypes = (product.a, product.b, *[product.c] * product.has_bias, product.c)
    return [
        address + start * dtype.size
        for address, start, dtype in zip(addresses, first, dtypes, strict=True)
    ]


def _turn(along_k: bool, k: int, others: int, step: int, step_k: int) -> Turn:
    """A factor whose neighbours lie along the sum, or not: turned in the first case, as A is."""
    rows, columns, leading = (k, others, step) if along_k else (others, k, step_k)
    return Turn(along_k, rows, columns, max(leading, rows))


class Plan(NamedTuple):
    """The library's records of a product: the operation, A, B, D, and the algorithm."""

    operation: Any
    layouts: tuple[Any, Any, Any]
    algorithm: Any


class Lt:
    """The library, for the device that is current when this is made and whenever it is called.

    Raises CompileError where it does not start.
    """

    def __init__(self, path: str, interface: Interface) -> None:
        self._library, self._interface = ctypes.CDLL(path), interface
        self._handle = _pointer()
        self._plans = functools.lru_cache(PLANS)(self._plan)
        try:
            self._do("Create", byref(self._handle))
        except DeviceError as error:
            raise CompileError(f"{error}; is the library as new as the driver?") from None
        destroy = getattr(self._library, f"{interface.prefix}Destroy")
        weakref.finalize(self, destroy, self._handle).atexit = False

    def queue(
        self,
        product: LibraryProduct,
        numbers: Sequence[int],
        addresses: Sequence[int],
        workspace: int,
        queue: int,
    ) -> None:
        """Queues the product of matrices in memory that begins at these addresses: of a, b, the
        bias if any, and c. Raises DeviceError with the library's words.
        """
        g = Geometry.of(numbers)
        if 0 in (g.batch, g.m, g.n):
            return
        a, b, *bias, c = starts(product, g, addresses)
        at = tuple(_alignment(address) for address in (b, a, c, *bias))
        plan = self._plans(product, g, at)
        for address in bias:
            self._set_bias(plan.operation, address)
        scale = SCALES[product.accumulator]
        of_a, of_b, of_d = plan.layouts
        self._do(
            "Matmul", self._handle, plan.operation, byref(scale(1)), _pointer(b), of_a, _pointer(a),
            of_b, byref(scale(0)), _pointer(c), of_d, _pointer(c), of_d, byref(plan.algorithm),
            _pointer(workspace), c_size_t(WORKSPACE), _pointer(queue),
        )  # fmt: skip

    def _plan(self, product: LibraryProduct, g: Geometry, at: tuple[int, ...]) -> Plan:
        """The records for a product of matrices that are aligned so."""
        library = self._interface
        first, second, result = turns(g)
        operation = self._operation(product, first, second)
        for alignment in at[3:]:  # the bias's, which is told by an address
            self._set_bias(operation, alignment)
        layouts = tuple(
            self._layout(dtype, turn, g.batch, steps.batch)
            for dtype, turn, steps in (
                (product.b, first, g.b), (product.a, second, g.a), (product.c, result, g.c)
            )
        )  # fmt: skip
        preference = self._made("MatmulPreference")
        self._set("MatmulPreference", preference, library.workspace, c_uint64(WORKSPACE))
        if library.sums is not None and product.c is not product.accumulator:
            attribute, mask = library.sums
            self._set("MatmulPreference", preference, attribute, c_uint32(mask))
        for attribute, alignment in zip(library.alignments, (*at[:2], at[2], at[2]), strict=False):
            self._set("MatmulPreference", preference, attribute, c_uint32(alignment))
        of_a, of_b, of_d = layouts
        results, count = (library.result * ALGORITHMS)(), c_int(0)
        self._do(
            "MatmulAlgoGetHeuristic", self._handle, operation, of_a, of_b, of_d, of_d, preference,
            c_int(ALGORITHMS), results, byref(count), what=f"{product.text}, {g}",
        )  # fmt: skip
        if not count.value:
            raise DeviceError(f"{library.name}: no algorithm for {product.text}, {g}")
        # Where there are fewer the last one stands for those beyond it.
        chosen = results[min(product.algorithm, count.value - 1)]
        return Plan(operation, (of_a, of_b, of_d), chosen.algo)

    def _operation(self, product: LibraryProduct, first: Turn, second: Turn) -> Any:
        library, scale = self._interface, library_dtype(self._interface, product.accumulator)
        is_narrowed = product.library.endswith("-tf32")
        compute = library.compute["tf32" if is_narrowed else str(product.accumulator)]
        operation = self._made("MatmulDesc", c_int(compute), c_int(scale))
        for attribute, turn in zip(library.turned, (first, second), strict=True):
            number = library.operations[turn.is_turned]
            self._set("MatmulDesc", operation, attribute, c_int32(number))
        if product.has_bias:
            attribute, number = library.epilogue
            self._set("MatmulDesc", operation, attribute, c_int32(number))
            dtype = library_dtype(library, product.c)
            self._set("MatmulDesc", operation, library.bias[1], c_int32(dtype))
        return operation

    def _set_bias(self, operation: Any, address: int) -> None:
        self._set("MatmulDesc", operation, self._interface.bias[0], c_uint64(address))

    def _layout(self, dtype: DType, turn: Turn, batch: int, step: int) -> Any:
        extents = c_uint64(turn.rows), c_uint64(turn.columns), c_int64(turn.leading)
        number = library_dtype(self._interface, dtype)
        layout = self._made("MatrixLayout", c_int(number), *extents)
        if batch > 1:
            count, offset = self._interface.batch
            self._set("MatrixLayout", layout, count, c_int32(batch))
            self._set("MatrixLayout", layout, offset, c_int64(step))
        return layout

    def _made(self, kind: str, *arguments: Any) -> Any:
        """A record of the library's, destroyed with this."""
        record = _pointer()
        self._do(f"{kind}Create", byref(record), *arguments)
        destroy = getattr(self._library, f"{self._interface.prefix}{kind}Destroy")
        weakref.finalize(record, destroy, _pointer(record.value)).atexit = False
        return record

    def _set(self, kind: str, record: Any, attribute: int, value: Any) -> None:
        size = c_size_t(ctypes.sizeof(value))
        self._do(f"{kind}SetAttribute", record, c_int(attribute), byref(value), size)

    def _do(self, name: str, *arguments: Any, what: str = "") -> None:
        """Calls a function. Raises DeviceError with its status."""
        prefix = self._interface.prefix
        status = getattr(self._library, f"{prefix}{name}")(*arguments)
        if status:
            of = f" of {what}" if what else ""
            words = self._words(status)
            raise DeviceError(f"{self._interface.name}: {prefix}{name}{of}: {words}")

    def _words(self, status: int) -> str:
        if not self._interface.status:
            return f"status {status}"
        function = getattr(self._library, self._interface.status)
        function.restype = ctypes.c_char_p
        words: bytes = function(c_int(status))
        return words.decode()


class Products(Protocol):
    """What queues products: this library, or another one that is told the same."""

    def queue(
        self,
        product: LibraryProduct,
        numbers: Sequence[int],
        addresses: Sequence[int],
        workspace: int,
        queue: int,
    ) -> None: ...


class LtDriver(Driver):
    """A Driver of devices whose vendor has such a library."""

    _products: Products | None = None  # made at first

    @abstractmethod
    def opened(self) -> Products:
        """The library for this device. Raises CompileError where it is not there."""

    def product(self, product: LibraryProduct) -> LibraryCode:
        self._products = self._products or self.opened()
        return LibraryCode(product, const(WORKSPACE))

    def call_library(self, call: Call) -> None:
        assert self.stream_number is not None
        self.queue_product(call, self.stream_number)

    def queue_product(self, call: Call, queue: int) -> None:
        """Gives a call of the library to the queue of a number."""
        assert self._products is not None
        assert call.scratch is not None
        places = [*map(self.address, call.operands)]
        scratch = self.address(call.scratch)
        self._products.queue(call.code.product, call.numbers, places, scratch, queue)


def library_dtype(interface: Interface, dtype: DType) -> int:
    """The library's number for a dtype."""
    return interface.dtypes[str(dtype)]


def _alignment(address: int) -> int:
    """The largest power of two that divides an address, up to the largest that counts."""
    return min(MOST_ALIGNED, address & -address) if address else MOST_ALIGNED
