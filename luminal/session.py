"""What users work with: `Graph` that compiles and executes, `compile`, and the default graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal import config, garbage, tracing
from luminal.autograd import transforms
from luminal.backends import registry
from luminal.backends.backend import Backend, Interpreter
from luminal.backends.reference.device import OpTrace, ReferenceRunner
from luminal.dtypes import float32, int64
from luminal.errors import CompileError, DeviceError, DimError, GraphError, InputError
from luminal.frontend.foreign import placed
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.hlir import graph as hlir
from luminal.hlir.graph import Output
from luminal.hlir.memory import DeviceMemory
from luminal.hlir.ops import Value
from luminal.hlir.state import Assignable, State
from luminal.hlir.substitute import substitute_dims
from luminal.numerics import Numerics
from luminal.runtime.arrays import Array
from luminal.runtime.binding import Interval
from luminal.runtime.executable import Executable, Variant
from luminal.runtime.on_demand import OnDemand
from luminal.runtime.report import CompileSummary, SearchSummary
from luminal.runtime.results import Results
from luminal.runtime.runner import Runner
from luminal.search.options import CompilationMode, SearchOptions, mode_of
from luminal.shape.expression import MAX_DIM, Expression, Symbol, const, symbol

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from luminal.compiler import Stages

DimChoice: TypeAlias = "int | Interval | Sequence[Interval]"
"""An int or one interval narrows a dim; a list of intervals compiles a program for each as well."""

_Intervals: TypeAlias = Mapping[str, Interval]

_compile_count = 0


class Graph(Recorder):
    """A lazy graph: record Tensors, mark outputs, compile, execute.

    Either `exe = lm.compile(cx)` and `exe({...})`, or set values on Tensors, then `cx.compile()`,
    `cx.execute()` and `t.numpy()`.
    """

    recorded_once = False  # for many calls, as jit does

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._executable: Executable | None = None
        self._backend: str | None = None  # the last compile's, for values computed on demand
        self._on_demand = OnDemand(self._compiled_part)

    def to(self, device: Any) -> Graph:
        """Compiles for this device ("cpu", "opencl:0"), where they name none; gives itself.

        Raises InputError for one that cannot be used.
        """
        self.device = registry.usable("to", device).name
        self._on_demand = OnDemand(self._compiled_part)
        return self

    def place(self, what: str, device: Any) -> None:
        """A Tensor asks for a device: the graph's, for all of it. The CPU changes nothing."""
        name = registry.usable(what, device).name
        if name not in ("cpu", self.device):
            if self.device is not None:
                raise InputError(
                    f"{what}: device {name!r}: {self.name} is for {self.device!r}, and a graph "
                    "runs on one device; move all of it with graph.to(...)"
                )
            self.to(name)

    def compile(self, backend: str | None = None, **options: Any) -> Executable:
        """Compiles what is recorded so far (see `luminal.compile`); `execute` runs it."""
        self._executable = compile(self, backend, **options)
        if backend != self._backend:
            self._backend, self._on_demand = backend, OnDemand(self._compiled_part)
        return self._executable

    def computed(self, value: Value) -> Array:
        """`value` for the inputs set; see `Tensor.numpy`."""
        return self._on_demand.array(self, value)

    def backward(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """Adds gradients of `loss` to those of inputs and weights; see `Tensor.backward`."""
        transforms.backward(loss, gradient)

    def _compiled_part(self, part: hlir.Graph) -> Executable:
        backend = _backend_of(self, self._backend)
        plan = _Plan(backend, Numerics.STANDARD, mode_of("fast"), SearchOptions(), {})
        return _compiled(self, part, _Choices({}, {}), plan)

    def execute(self, dims: Mapping[str, int] | None = None) -> Results:
        """Runs the compiled graph on the values set; afterwards `t.numpy()` gives each output.

        Raises GraphError if the graph is not compiled or has changed since.
        """
        if self._executable is None:
            raise GraphError(f"{self.name}: not compiled; call compile() before execute()")
        if self._executable.graph != self.graph():
            raise GraphError(
                f"{self.name}: the graph changed after compile: "
                f"{_sink_names(self._executable.graph)} then, {_sink_names(self.graph())} now; "
                "call compile() again"
            )
        return self._keep(self._executable(dims=dims))

    def execute_debug(self, dims: Mapping[str, int] | None = None) -> Results:
        """Runs with the reference backend, no compile needed, and prints a row for every op."""
        graph, ops = self.graph(), OpTrace()
        runner = ReferenceRunner(graph, ops)
        results = Executable(graph, [Variant({}, runner)], self.values)(dims=dims)
        print(ops.table())
        return self._keep(results)

    def _keep(self, results: Results) -> Results:
        self.results = {
            sink.value: results[sink.name]
            for sink in self.sinks
            if isinstance(sink, Output) and not sink.hidden
        }
        return results


def compile(
    graph: Graph | str | None = None,
    backend: str | None = None,
    mode: CompilationMode | str = "fast",
    dims: Mapping[Any, DimChoice] | None = None,
    numerics: str = "standard",
    search: SearchOptions | None = None,
    memory_limit: int | str | None = None,
) -> Executable:
    """Compiles a graph; without one, or with only a backend's name, the default graph.

    `backend`: a device ("cpu", "opencl:0", "reference"; see `lm.devices`) or "auto", a GPU if there
    is one, else the CPU; by default the graph's (`graph.to`), else the default one (`lm.device`).
    `mode`: "fast" (choices by rules, nothing is timed), "optimal" (candidates are timed here, and
    the fastest runs; `search` sets the limits), or `lm.TimeBudget(seconds)`, shared by all programs
    that `dims` asks for.
    `dims`: {"s": (1, 256)} narrows a dim, {"s": [(1, 1), (2, 256)]} compiles further programs for
    these intervals. `numerics`: which rewrites may change rounding: none ("exact"), those after
    which a number stays that number but for rounding ("standard"), or those, too, that keep digits
    which the graph rounds away or let neighbours share rounding and what is not finite ("relaxed":
    3 x 3 convolutions with fewer multiplications). `memory_limit`: the most bytes
    of the arena ("200MB"), with dims as large as they may be; where a training step needs more,
    values are computed again for gradients instead of kept (see `lm.checkpoint`), as few flops as
    do. It is checked for the program of "fast". Raises CompileError, DimError.
    """
    if graph is None or isinstance(graph, str):
        backend = backend if graph is None else graph
        return default_graph().compile(
            backend, mode=mode, dims=dims, numerics=numerics, search=search,
            memory_limit=memory_limit,
        )  # fmt: skip
    if not isinstance(graph, Recorder):
        raise InputError(
            f"compile: takes a Graph, got a {type(graph).__name__}; record into cx = lm.Graph() "
            "and pass cx; for a function of arrays there is @lm.jit"
        )
    chosen = _backend_of(graph, backend)
    frozen = graph.graph()
    choices = _Choices.of(frozen, dims or {})
    options = _options(frozen, choices.narrow, search)
    plan = _Plan(chosen, _numerics(numerics), mode_of(mode), options, graph.values, memory_limit)
    return _compiled(graph, frozen, choices, plan)


def _compiled(graph: Graph, frozen: hlir.Graph, choices: _Choices, plan: _Plan) -> Executable:
    # a search takes long and leaves cycles behind
    with nullcontext() if plan.mode.searches else garbage.held():
        made = _executable(graph, frozen, choices, plan)
    if config.get("LUMINAL_DEBUG") >= 2:
        tracing.debug(2, str(made.report()))
    global _compile_count
    _compile_count += 1
    return made


def narrowed(graph: Graph, dims: Mapping[Any, DimChoice] | None = None) -> hlir.Graph:
    """What is recorded so far, with dims narrowed as `compile` does it; buckets are left out."""
    frozen = graph.graph()
    return _narrowed(frozen, _Choices.of(frozen, dims or {}).narrow)


def stages(
    graph: Graph,
    backend: str | None = None,
    mode: CompilationMode | str = "fast",
    dims: Mapping[Any, DimChoice] | None = None,
    numerics: str = "standard",
) -> Stages:
    """Every IR of the program that `compile` would make; raises as it does."""
    chosen = _backend_of(graph, backend)
    if isinstance(chosen, Interpreter):
        raise CompileError(f"backend {chosen.name!r} runs the graph itself; there are no stages")
    plan = _Plan(chosen, _numerics(numerics), mode_of(mode), SearchOptions(), graph.values)
    return plan.stages(narrowed(graph, dims), chosen)[0]


def _numerics(given: str) -> Numerics:
    """Raises CompileError for another name."""
    try:
        return Numerics(given)
    except ValueError:
        known = ", ".join(repr(str(each)) for each in Numerics)
        raise CompileError(f"numerics {given!r}: takes one of {known}") from None


def compile_count() -> int:
    """How many graphs this process has compiled."""
    return _compile_count


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the programs of one compile are made. `values`: arrays set on the graph's inputs."""

    backend: Backend | Interpreter
    numerics: Numerics
    mode: CompilationMode
    search: SearchOptions
    values: Mapping[str, Array]
    memory_limit: int | str | None = None

    def within_limit(self, graph: Recorder, frozen: hlir.Graph, narrow: _Intervals) -> hlir.Graph:
        """What is recorded, with values computed again where the limit asks for it."""
        if self.memory_limit is None:
            return frozen
        from luminal import memory_limit  # late, as the compiler

        backend, limit = self.backend, memory_limit.bytes_of(self.memory_limit)
        if isinstance(backend, Interpreter):
            raise CompileError(f"memory_limit: backend {backend.name!r} has no arena to limit")

        def arena(candidate: hlir.Graph) -> int:
            return memory_limit.arena_bytes(_narrowed(candidate, narrow), backend, self.numerics)

        with tracing.span("memory limit"):
            return memory_limit.fitting(frozen, graph.pulled, graph.cotangents, limit, arena)

    def runner(self, graph: hlir.Graph, share: int) -> tuple[Runner, SearchSummary | None]:
        """The compiled graph; `share` programs divide the time."""
        if isinstance(self.backend, Interpreter):
            return self.backend.interpret(graph), None
        from luminal.program import launch_text  # late, as the compiler

        with tracing.span("compiler"):
            stages, summary = self.stages(graph, self.backend, share)
        if config.get("LUMINAL_DEBUG") >= 3:
            tracing.debug(3, launch_text.to_text(stages.program))
        with tracing.span("build"):
            return self.backend.runner(stages.program), summary

    def stages(
        self, graph: hlir.Graph, backend: Backend, share: int = 1
    ) -> tuple[Stages, SearchSummary | None]:
        """Every IR of the compile, as rules or a search choose them."""
        from luminal import compiler  # late: the compiler is most of what there is to import

        if not self.mode.searches:
            return compiler.lower_by_stages(graph, backend, self.numerics, backend.begin), None
        from luminal.search.search import search

        mode = self.mode.shared_by(share)
        return search(graph, backend, mode, self.search, self.numerics, self.values)


def _options(graph: hlir.Graph, narrow: Mapping[str, Interval], given: Any) -> SearchOptions:
    """Raises CompileError for what is no SearchOptions, DimError where a dim's rules are broken."""
    if given is None:
        return SearchOptions()
    if not isinstance(given, SearchOptions):
        got = type(given).__name__
        raise CompileError(f"search: takes lm.SearchOptions(seed=0, ...), got a {got}")
    declared = {dim.name: dim for dim in graph.dims}
    for name, value in given.dims.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise DimError(f"SearchOptions: dims: {name}: no such dim; the dims are {known}")
        lo, hi = narrow.get(name, (declared[name].lo or 0, declared[name].hi or MAX_DIM))
        if not lo <= value <= hi:
            raise DimError(f"SearchOptions: dims: {name}: {value} is not within its {lo}..{hi}")
    return given


def _executable(graph: Graph, frozen: hlir.Graph, choices: _Choices, plan: _Plan) -> Executable:
    variants = []
    all_intervals = list(choices.variants())
    chosen = plan.within_limit(graph, frozen, choices.narrow)
    for intervals in all_intervals:
        narrowed = _narrowed(chosen, choices.narrow | intervals)
        with tracing.record() as spans:
            runner, found = plan.runner(narrowed, len(all_intervals))
        tracing.debug(1, f"compiled {graph.name} for {plan.backend.name}\n{tracing.summary(spans)}")
        made = CompileSummary(tracing.self_seconds(spans), found)
        variants.append(Variant(intervals, runner, made))
    title = f"{graph.name}, {plan.backend.name}, {plan.mode}"

    def for_device(device: str) -> Executable:
        backend = registry.usable("to", device)
        return _compiled(graph, frozen, choices, replace(plan, backend=backend))

    return Executable(
        frozen, variants, graph.values, choices.narrow, dict(graph.leaves), title, for_device
    )


@dataclass(frozen=True, slots=True)
class _Choices:
    """`dims=` of a compile: intervals that hold for all runs, and buckets by dim."""

    narrow: dict[str, Interval]
    buckets: dict[str, list[Interval]]

    @classmethod
    def of(cls, graph: hlir.Graph, dims: Mapping[Any, DimChoice]) -> _Choices:
        """Raises DimError for an unknown dim or an interval outside the declared one."""
        if not isinstance(dims, Mapping):
            raise DimError(f'dims: takes a dict, as {{"s": (1, 64)}}; got a {type(dims).__name__}')
        declared = {dim.name: dim for dim in graph.dims}
        choices = cls({}, {})
        for key, choice in dims.items():
            name = key.name if isinstance(key, Symbol) else key
            if name not in declared:
                raise DimError(f"{name}: no such dim; the dims are {', '.join(declared) or 'none'}")
            if isinstance(choice, list):
                choices.buckets[name] = [_interval(declared[name], each) for each in choice]
            else:
                choices.narrow[name] = _interval(declared[name], choice)
        return choices

    def variants(self) -> Iterable[dict[str, Interval]]:
        """Every combination of buckets, then the general program."""
        if self.buckets:
            for combination in itertools.product(*self.buckets.values()):
                yield dict(zip(self.buckets, combination, strict=True))
        yield {}


def _interval(dim: Symbol, choice: Any) -> Interval:
    try:
        lo, hi = (choice, choice) if isinstance(choice, int) else choice
        inside = (dim.lo or 0) <= lo <= hi and (dim.hi is None or hi <= dim.hi)
    except (TypeError, ValueError):
        raise DimError(f"dims: {dim.name}: {choice!r} is not an interval (lo, hi)") from None
    if not inside:
        raise DimError(f"dims: {dim.name}: ({lo}, {hi}) is not within its {dim.lo}..{dim.hi}")
    return int(lo), int(hi)


def _narrowed(graph: hlir.Graph, intervals: Mapping[str, Interval]) -> hlir.Graph:
    """The graph with dims of smaller intervals; a dim with one value left becomes that literal."""
    replaced: dict[Symbol, Expression] = {}
    for dim in graph.dims:
        if dim.name in intervals:
            lo, hi = intervals[dim.name]
            replaced[dim] = const(lo) if lo == hi else symbol(dim.name, lo, hi)
    return substitute_dims(graph, replaced) if replaced else graph


def _sink_names(graph: hlir.Graph) -> str:
    return ", ".join(
        sink.name if isinstance(sink, Output) else f"assign {sink.state.name}"
        for sink in graph.sinks
    )


# --- the default graph ----------------------------------------------------------------------------

_default: ContextVar[Graph | None] = ContextVar("luminal_default_graph", default=None)


def default_graph() -> Graph:
    """The graph of this context that `lm.tensor`, `lm.arange`, ... record into."""
    graph = _default.get()
    if graph is None:
        graph = Graph("default graph")
        _default.set(graph)
    return graph


@contextmanager
def recording(graph: Graph) -> Iterator[Graph]:
    """Makes `graph` the default graph inside the block."""
    token = _default.set(graph)
    try:
        yield graph
    finally:
        _default.reset(token)


def reset() -> None:
    """Starts a new default graph; Tensors of the old one stay valid."""
    _default.set(None)


def execute(dims: Mapping[str, int] | None = None) -> Results:
    """Runs the default graph (see `Graph.execute`)."""
    return default_graph().execute(dims)


@placed
def tensor(
    shape_or_data: Any, dtype: Any = None, name: str | None = None, *, copy: bool = True
) -> Tensor:
    """An Input of the default graph: a tuple is a shape, a list, number or array is its value.

    An array is copied, unless told not to.
    """
    return default_graph().tensor(shape_or_data, dtype, name, copy=copy)


def weight(shape: Sequence[int], dtype: Any = float32, name: str = "") -> Tensor:
    """A Weight of the default graph."""
    return default_graph().weight(shape, dtype, name)


def read(state: State) -> Tensor:
    """The value of a State at the start of a run of the default graph."""
    return default_graph().read(state)


def assign(state: Assignable | Tensor, value: Tensor) -> None:
    """`state`, which may be a Parameter, holds `value` at the end of a run."""
    value.graph.assign(state, value)


def dim(name: str, lo: int = 1, hi: int = MAX_DIM) -> Symbol:
    """A dim of the default graph, with values lo..hi."""
    return default_graph().dim(name, lo, hi)


def require(condition: Expression | bool) -> None:
    """A condition that every run of the default graph must meet."""
    default_graph().require(condition)


def constant(value: Any, dtype: Any = None) -> Tensor:
    """Exactly this number, list or array, in the default graph."""
    return default_graph().constant(value, dtype)


@placed
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """`start, start + step, ...` below `stop`, in the default graph."""
    return default_graph().arange(start, stop, step, dtype)


def iota(shape: Sequence[Extent], dim: int = -1, dtype: Any = int64) -> Tensor:
    """Each element's position along `dim`, in the default graph."""
    return default_graph().iota(shape, dim, dtype)


@placed
def zeros(*shape: Any, dtype: Any = None) -> Tensor:
    """All zeros, in the default graph."""
    return default_graph().zeros(*shape, dtype=dtype)


@placed
def ones(*shape: Any, dtype: Any = None) -> Tensor:
    """All ones, in the default graph."""
    return default_graph().ones(*shape, dtype=dtype)


@placed
def full(shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
    """All `value`, in the default graph."""
    return default_graph().full(shape, value, dtype)


@placed
def eye(rows: Extent, columns: Extent | None = None, dtype: Any = float32) -> Tensor:
    """Ones on the main diagonal, in the default graph."""
    return default_graph().eye(rows, columns, dtype)


@placed
def empty(*shape: Any, dtype: Any = None) -> Tensor:
    """All zeros, in the default graph: nothing is uninitialised here."""
    return default_graph().empty(*shape, dtype=dtype)


@placed
def linspace(
    start: float, stop: float, num: Extent, dtype: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers at even distances from start to stop, in the default graph."""
    return default_graph().linspace(start, stop, num, dtype, endpoint)


@placed
def logspace(
    start: float, stop: float, num: Extent, base: float = 10.0, dtype: Any = None
) -> Tensor:
    """`base` to the powers that `linspace` gives, in the default graph."""
    return default_graph().logspace(start, stop, num, base, dtype)


def tri(
    rows: Extent, columns: Extent | None = None, diagonal: int = 0, dtype: Any = float32
) -> Tensor:
    """Ones at and below a diagonal, zeros above it, in the default graph."""
    return default_graph().tri(rows, columns, diagonal, dtype)


@placed
def tril_indices(rows: int, columns: int, offset: int = 0, dtype: Any = int64) -> Tensor:
    """The positions (2, count) at and below a diagonal, in the default graph."""
    return default_graph().tril_indices(rows, columns, offset, dtype)


@placed
def triu_indices(rows: int, columns: int, offset: int = 0, dtype: Any = int64) -> Tensor:
    """The positions (2, count) at and above a diagonal, in the default graph."""
    return default_graph().triu_indices(rows, columns, offset, dtype)


# --- devices --------------------------------------------------------------------------------------


_device: ContextVar[str | None] = ContextVar("luminal_device", default=None)


class device:
    """Makes a device the default of compiles in this context: from now on, or in a `with` block.

    `lm.device("opencl:0")`; compiles that name a backend, and graphs that were moved (`graph.to`),
    keep theirs. Raises InputError for a device that cannot be used.
    """

    def __init__(self, device: Any) -> None:
        self.name = registry.usable("device", device).name
        self._token = _device.set(self.name)

    def __enter__(self) -> device:
        return self

    def __exit__(self, *error: object) -> None:
        _device.reset(self._token)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name


def default_device() -> str | None:
    """The name that `lm.device` gave in this context."""
    return _device.get()


def chosen_device(device: str | None) -> str:
    """The name that is given, else that of this context, else the CPU's: for what compiles later,
    perhaps in another context.
    """
    return device or _device.get() or "cpu"


def _backend_of(graph: Recorder, backend: str | None) -> Backend | Interpreter:
    """The backend that a compile names, or the graph's, or the default one."""
    return registry.find(chosen_device(backend or graph.device))


@dataclass(frozen=True, slots=True)
class Device:
    """One device as this machine has it; `memory` in bytes, where it says."""

    name: str
    summary: str
    usable: bool
    reason: str | None  # why it is not usable
    memory: DeviceMemory | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}" if self.usable else f"{self.name}: {self.reason}"


def devices() -> list[Device]:
    """Every device that programs can be compiled for, and why the rest is not usable."""
    rows = []
    for row in registry.BACKENDS.values():
        reason = row.unavailable()
        if reason is not None:
            rows.append(Device(row.name, row.summary, False, reason))
            continue
        for backend in map(row.current, range(row.count())):
            try:
                memory = backend.memory.memory()
            except DeviceError as error:  # that of a parent process, or one that has failed
                rows.append(Device(backend.name, row.summary, False, str(error)))
            else:
                rows.append(Device(backend.name, row.summary, True, None, memory))
    return rows
