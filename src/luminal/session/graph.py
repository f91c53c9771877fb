"""What users work with: `Graph` that compiles and executes, and `compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from luminal.autograd import transforms
from luminal.backends import registry
from luminal.backends.backend import Backend, Interpreter
from luminal.base import config, garbage, tracing
from luminal.base.byte_sizes import bytes_of
from luminal.base.errors import CompileError, DimError, GraphError, InputError
from luminal.base.near_names import suggesting
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.tensor import Tensor
from luminal.hlir import graph as hlir
from luminal.hlir.graph import Output
from luminal.hlir.ops import Value
from luminal.hlir.sharding import in_order
from luminal.memory import part
from luminal.runtime import program_cache
from luminal.runtime.arrays import Array
from luminal.runtime.binding import Interval
from luminal.runtime.executable import Executable
from luminal.runtime.on_demand import MAX_PROGRAMS, OnDemand
from luminal.runtime.report import CompileSummary, SearchSummary
from luminal.runtime.results import Results
from luminal.runtime.runner import Runner
from luminal.runtime.variants import Variant
from luminal.search.options import CompilationMode, SearchOptions, mode_of
from luminal.session.device_choice import chosen_device
from luminal.session.dim_choices import DimChoice, DimChoices, narrowed_to
from luminal.shape.expression import MAX_DIM

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from luminal.compiler.compile import Stages
    from luminal.compiler.dump import Dump
    from luminal.distribute.mesh import Mesh
    from luminal.program.launch_list import Program
    from luminal.runtime.collectives.engine import Engine
    from luminal.session.on_mesh import OnMesh

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
        self._on_demand = self._parts_on_demand()

    def to(self, device: Any) -> Graph:
        """Compiles for this device ("cpu", "opencl:0"), where they name none; gives itself.

        Raises InputError for one that cannot be used.
        """
        self.device = registry.usable("to", device).name
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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.name}: a Graph cannot be pickled or copied, as its Tensors are of it; record "
            "it again in a function that makes it (modules and state_dicts can be pickled)"
        )

    def compile(self, backend: str | None = None, **options: Any) -> Executable:
        """Compiles what is recorded so far (see `luminal.compile`); `execute` runs it."""
        self._executable = compile(self, backend, **options)
        self._backend = backend
        return self._executable

    def computed(self, value: Value) -> Array:
        """`value` for the inputs set; see `Tensor.numpy`."""
        return self._on_demand.array(self, value)

    def backward(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """Adds gradients of `loss` to those of inputs and weights; see `Tensor.backward`."""
        transforms.backward(loss, gradient)

    def _parts_on_demand(self, max_programs: int = MAX_PROGRAMS) -> OnDemand:
        """Compiles parts of this graph, for the device that it is for by then."""
        return OnDemand(self._compiled_part, lambda: _device_of(self, self._backend), max_programs)

    def _compiled_part(self, part: hlir.Graph) -> Executable:
        backend = _backend_of(self, self._backend)
        plan = _Plan(backend, Numerics.STANDARD, mode_of("fast"), SearchOptions(), {})
        return _compiled(self, part, DimChoices({}, {}), plan)

    def execute(self, dims: Mapping[str, int] | None = None) -> Results:
        """Runs the compiled graph on the values set; afterwards `t.numpy()` gives each output.

        Raises GraphError if the graph is not compiled or has changed since.
        """
        if self._executable is None:
            raise GraphError(f"{self.name}: not compiled; call compile() before execute()")
        # Frozen graphs are compared by identity of their nodes, so this costs nothing.
        if self._executable.graph != self.graph():
            raise GraphError(
                f"{self.name}: the graph changed after compile: "
                f"{_sink_names(self._executable.graph)} then, {_sink_names(self.graph())} now; "
                "call compile() again"
            )
        return self._keep(self._executable(dims=dims))

    def execute_debug(self, dims: Mapping[str, int] | None = None) -> Results:
        """Runs with the reference backend, no compile needed, and prints a row for every op."""
        from luminal.backends.reference.device import OpTrace, ReferenceRunner

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


@suggesting
def compile(
    graph: Graph | str | None = None,
    backend: str | None = None,
    mode: CompilationMode | str = "fast",
    dims: Mapping[Any, DimChoice] | None = None,
    numerics: str = "standard",
    search: SearchOptions | None = None,
    memory_limit: int | str | None = None,
    mesh: Mesh | None = None,
    collectives: str | None = None,
    dispatch: str | None = None,
) -> Executable:
    """Compiles a graph; without one, or with only a backend's name, the default graph.

    `backend`: a device ("cpu", "opencl:0", "reference"; see `lm.devices`) or "auto", a GPU if there
    is one, else the CPU; by default the graph's (`graph.to`), else the default one (`lm.device`).
    `mode`: "fast" (choices by rules, nothing is timed), "optimal" (candidates are timed here, and
    the fastest runs; `search` sets the limits), or `lm.TimeBudget(seconds)`, shared by all programs
    that `dims` asks for.
    `dims`: {"s": (1, 256)} narrows a dim, {"s": [(1, 1), (2, 256)]} compiles further programs for
    these intervals. `numerics`: which rewrites may change rounding. "exact" has none of them, and
    "standard" those after which a number stays that number but for rounding. "relaxed" has those,
    too, that keep digits which the graph rounds away, or let neighbours share rounding and what is
    not finite (3 x 3 convolutions with fewer multiplications). `memory_limit`: the most bytes of
    the arena ("200MB"), on a mesh of each rank's, with dims as large as they may be; where a
    training step needs more, values are computed again for gradients instead of kept (see
    `lm.checkpoint`), as few flops as do. It is checked for the program of "fast".

    `mesh`: the graph is one program for all ranks of an `lm.Mesh`, and this is the one of this
    rank. It takes and gives its own part of what is cut (`Tensor.shard`, `lm.shard`) and the
    whole of what is not; all ranks must compile it. `exe.explain_sharding()` lists what crosses
    the mesh. A mesh of `devices` has all ranks in this process, whose program takes and gives whole
    arrays (of `lm.spmd`: those of all ranks, stacked). A dim that is cut is bound from a rank's own
    arrays; `dims` names the whole. `collectives`: sums over ranks are added as a balanced "tree" of
    the ranks, so that bits follow from the graph and the mesh, or as the "engine" likes to, which
    is CUDA's and ROCm's default; of their devices a rank has its own, unless it has a number.
    `dispatch`: how a device is given the launches of a run: as a "list", as a "graph" or as "one"
    kernel; by default as a search finds fastest, else as a graph where the device has them.
    Raises CompileError, DimError, InputError for a mesh of other ranks than were launched,
    ShapeError for what does not divide.
    """
    if graph is None or isinstance(graph, str):
        backend = backend if graph is None else graph
        from luminal.session.eager import default_graph  # late: it is one of these graphs

        return default_graph().compile(
            backend, mode=mode, dims=dims, numerics=numerics, search=search,
            memory_limit=memory_limit, mesh=mesh, collectives=collectives, dispatch=dispatch,
        )  # fmt: skip
    if not isinstance(graph, Recorder):
        raise InputError(
            f"compile: takes a Graph, got a {type(graph).__name__}; record into cx = lm.Graph() "
            "and pass cx; for a function of arrays there is @lm.jit"
        )
    mesh = graph.mesh if mesh is None else mesh
    name = _device_of(graph, backend)
    if mesh is not None:
        from luminal.runtime.collectives.process import local_rank  # late: most have one rank
        from luminal.session.on_devices import on_devices
        from luminal.session.on_mesh import is_here

        if is_here(mesh):
            return on_devices(
                graph, mesh, backend, mode=mode, dims=dims, numerics=numerics, search=search,
                memory_limit=memory_limit, collectives=collectives, dispatch=dispatch,
            )  # fmt: skip
        name = registry.of_rank(name, local_rank())
    chosen = registry.find(name)
    frozen = graph.graph()
    # A user's numbers are those of the whole, as the dims were recorded.
    choices = DimChoices.of(frozen, {} if dims is None else dims)
    options = _options(frozen, choices.narrow, search)
    placed = None
    if mesh is None:
        if part.any_cut:
            from luminal.distribute.held import check_whole  # late: most programs have one rank

            check_whole(frozen)
    else:
        order = registry.adds(name) if collectives is None else collectives
        placed = _placed(graph, frozen, choices.narrow, mesh, chosen, order)
        parts = placed.parts
        frozen, choices = placed.graph, choices.on_ranks(placed.parts)
        options = replace(options, dims={n: k // parts.get(n, 1) for n, k in options.dims.items()})
    plan = _Plan(
        chosen, _numerics(numerics), mode_of(mode), options, graph.values, memory_limit,
        None if placed is None else placed.engine, _dispatch(chosen, dispatch), graph.name,
    )  # fmt: skip
    return _compiled(graph, frozen, choices, plan, placed)


def _placed(
    graph: Graph, frozen: hlir.Graph, narrow: _Intervals, mesh: Mesh,
    backend: Backend | Interpreter, order: str,
) -> OnMesh:  # fmt: skip
    """The program of this rank, by the plan that is chosen where a model waits for one."""
    from luminal.session.choosing import decide  # late: most programs have one rank
    from luminal.session.on_mesh import on_mesh

    why = decide(narrowed_to(frozen, narrow), mesh, backend)
    with garbage.held():
        return on_mesh(frozen, mesh, order, by_rank=graph.is_by_rank, why=why)


def _compiled(
    graph: Graph,
    frozen: hlir.Graph,
    choices: DimChoices,
    plan: _Plan,
    placed: OnMesh | None = None,
) -> Executable:
    # a search takes long and leaves cycles behind
    held = nullcontext() if plan.mode.is_search else garbage.held()
    with held, tracing.span(f"compile {graph.name} for {plan.backend.name}"):
        executable = _executable(graph, frozen, choices, plan, placed)
    if config.get("LUMINAL_DEBUG") >= 2:
        tracing.debug(2, str(executable.report()))
    global _compile_count
    _compile_count += 1
    return executable


def narrowed(graph: Graph, dims: Mapping[Any, DimChoice] | None = None) -> hlir.Graph:
    """What is recorded so far, with dims narrowed as `compile` does it; buckets are left out."""
    frozen = graph.graph()
    return narrowed_to(frozen, DimChoices.of(frozen, {} if dims is None else dims).narrow)


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


def _dispatch(backend: Backend | Interpreter, dispatch: str | None) -> str | None:
    """A way of giving launches to a device. Raises CompileError where it has none of the kind."""
    ways = () if isinstance(backend, Interpreter) else backend.dispatches
    if dispatch is not None and dispatch not in ways:
        kinds = " or ".join(repr(way) for way in ways) or "no dispatch"
        raise CompileError(f"dispatch {dispatch!r}: {backend.name} takes {kinds}")
    return dispatch


def _numerics(name: str) -> Numerics:
    """The Numerics of a name; CompileError for a name that is none."""
    try:
        return Numerics(name)
    except ValueError:
        names = ", ".join(repr(str(class_)) for class_ in Numerics)
        raise CompileError(f"numerics {name!r}: takes one of {names}") from None


def compile_count() -> int:
    """The number of graphs that this process has compiled."""
    return _compile_count


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the programs of one compile are made, of a mesh's ranks if there is an `engine`."""

    backend: Backend | Interpreter
    numerics: Numerics
    mode: CompilationMode
    search: SearchOptions
    values: Mapping[str, Array]  # set on the graph's inputs
    memory_limit: int | str | None = None
    engine: Engine | None = None
    dispatch: str | None = None
    title: str = ""

    def within_limit(
        self, graph: Recorder, frozen: hlir.Graph, narrow: _Intervals, placed: OnMesh | None
    ) -> tuple[hlir.Graph, OnMesh | None]:
        """What is recorded, or this rank's part, with values computed again as the limit asks."""
        if self.memory_limit is None:
            return frozen, placed
        from luminal.compiler import memory_limit

        backend, limit = self.backend, bytes_of(self.memory_limit)
        if isinstance(backend, Interpreter):
            raise CompileError(f"memory_limit: backend {backend.name!r} has no arena to limit")

        # Each candidate is compiled as far as its memory plan: nothing less knows what fusion
        # leaves stored. On a mesh the plans are those of the whole graph, which all ranks have, and
        # a rank's part of each counts: so all ranks take the same one.
        def arena(candidate: hlir.Graph) -> memory_limit.Arena:
            local = candidate if placed is None else placed.anew(candidate).graph
            return memory_limit.arena_of(narrowed_to(local, narrow), backend, self.numerics)

        whole = frozen if placed is None else placed.recorded
        with tracing.span("memory limit"):
            fitted = memory_limit.fitting(whole, graph.pulled, graph.cotangents, limit, arena)
        if placed is None:
            return fitted, None
        placed = placed.anew(fitted)
        return placed.graph, placed

    def runner(self, graph: hlir.Graph, share: int) -> tuple[Runner, SearchSummary | None]:
        """The compiled graph; `share` programs divide the time."""
        if isinstance(self.backend, Interpreter):
            return self.backend.interpret(graph), None
        # A program of rules depends on nothing but graph, backend and sources, so it can be kept
        # between processes; what a search chose is kept by its own database.
        place = None
        if not self.mode.is_search:
            with tracing.span("look up"):
                how = f"{self.numerics}, collectives in order: {in_order.get()}"
                place = program_cache.entry(graph, self.backend, how)
        if place is None:
            program, summary = self._program(graph, self.backend, share)
            return self._built(program, self.backend), summary
        kept = place.get()
        if kept is None:
            # Ranks on one machine compile one program on the same cores: the first of them does,
            # the others wait and load what it leaves. Where it fails, the next one tries.
            with place.alone():
                kept = place.get()
                if kept is None:
                    program, summary = self._program(graph, self.backend, share)
                    runner = self._built(program, self.backend)
                    with tracing.span("keep"):  # last: who finds it finds its kernels
                        place.put(program)
                    return runner, summary
        return self._built(kept, self.backend), None

    def _program(
        self, graph: hlir.Graph, backend: Backend, share: int
    ) -> tuple[Program, SearchSummary | None]:
        """What the compiler makes of a graph, and what a search of it did."""
        with tracing.span("compiler"):
            stages, summary = self.stages(graph, backend, share)
        if config.get("LUMINAL_DEBUG") >= 3:
            from luminal.program import launch_text  # late, as the compiler

            tracing.debug(3, launch_text.to_text(stages.program))
        return stages.program, summary

    def _built(self, program: Program, backend: Backend) -> Runner:
        with tracing.span("build"):
            if self.dispatch is not None:
                program = replace(program, dispatch=self.dispatch)
            return backend.runner(program)

    def stages(
        self, graph: hlir.Graph, backend: Backend, share: int = 1
    ) -> tuple[Stages, SearchSummary | None]:
        """Every IR of the compile, as rules or a search choose them."""
        from luminal.compiler import compile as compiler

        if not self.mode.is_search:
            return compiler.lower_by_stages(graph, backend, self.numerics, backend.begin), None
        from luminal.search.search import search

        backend.memory.memory()  # candidates are timed, so a device must be there
        mode = self.mode.shared_by(share)
        stages, summary = search(
            graph, backend, mode, self.search, self.numerics, self.values, self.engine,
            self.dispatch, self.title,
        )  # fmt: skip
        return compiler.arranged(stages, backend), summary

    def dumped(self, graph: hlir.Graph) -> Dump:
        """The stages of a graph as text."""
        from luminal.compiler.dump import Dump

        if isinstance(self.backend, Interpreter) or not self.mode.is_search:
            return Dump(graph, self.backend)
        alone = replace(self, engine=None)  # whoever looks at a program asks no other rank
        return Dump(graph, self.backend, alone.stages(graph, self.backend)[0])


def _options(graph: hlir.Graph, narrow: Mapping[str, Interval], options: Any) -> SearchOptions:
    """The options of a search; CompileError for what is no SearchOptions, DimError where a dim's
    rules are broken.
    """
    if options is None:
        return SearchOptions()
    if not isinstance(options, SearchOptions):
        got = type(options).__name__
        raise CompileError(f"search: takes lm.SearchOptions(seed=0, ...), got a {got}")
    declared = {dim.name: dim for dim in graph.dims}
    for name, value in options.dims.items():
        if name not in declared:
            names = ", ".join(declared) or "none"
            raise DimError(f"SearchOptions: dims: {name}: no such dim; the dims are {names}")
        lo, hi = narrow.get(name, (declared[name].lo or 0, declared[name].hi or MAX_DIM))
        if not lo <= value <= hi:
            raise DimError(f"SearchOptions: dims: {name}: {value} is not within its {lo}..{hi}")
    return options


def _executable(
    graph: Graph, frozen: hlir.Graph, choices: DimChoices, plan: _Plan, placed: OnMesh | None
) -> Executable:
    variants = []
    all_intervals = list(choices.variants())
    chosen, spread = plan.within_limit(graph, frozen, choices.narrow, placed)
    graphs = [narrowed_to(chosen, choices.narrow | intervals) for intervals in all_intervals]
    for intervals, narrowed in zip(all_intervals, graphs, strict=True):
        with tracing.record() as spans:
            runner, searched = plan.runner(narrowed, len(all_intervals))
        tracing.debug(1, f"compiled {graph.name} for {plan.backend.name}\n{tracing.summary(spans)}")
        summary = CompileSummary(tracing.self_seconds(spans), searched, tuple(spans))
        variants.append(Variant(intervals, runner, summary))
    title = f"{graph.name}, {plan.backend.name}, {plan.mode}"

    def for_device(device: str) -> Executable:
        backend = registry.usable("to", device)
        there = replace(plan, backend=backend, dispatch=_dispatch(backend, plan.dispatch))
        return _compiled(graph, frozen, choices, there, placed)

    def stage(name: str) -> str:
        return "\n\n".join(plan.dumped(narrowed).text(name) for narrowed in graphs)

    def view(exe: Executable) -> dict[str, Any]:
        from luminal.viz.document import document  # late: few programs are looked at

        dims = exe.report().dims
        number = next(k for k, variant in enumerate(variants) if variant.can_take(dims))
        return document(exe, graphs[number], plan.backend, title, plan.numerics)

    if spread is None:
        return Executable(
            frozen, variants, graph.values, choices.narrow, dict(graph.leaves), title, for_device,
            stage, view=view, show=_show,
        )  # fmt: skip
    declared = spread.declared(graph.leaves)
    kind: Callable[..., Executable] = Executable
    if spread.has_pads:
        from luminal.session.padded import PaddedExecutable  # late: most programs have one rank

        kind = partial(PaddedExecutable, spread)
    return kind(
        frozen, variants, graph.values, choices.narrow, declared, title, for_device, stage,
        spread.on_ranks, view, _show,
    )  # fmt: skip


def _show(*arguments: Any) -> None:
    """Shows a document of the viewer (`viz.show.show`)."""
    from luminal.viz.show import show  # late: few programs are looked at

    show(*arguments)


def _sink_names(graph: hlir.Graph) -> str:
    return ", ".join(
        sink.name if isinstance(sink, Output) else f"assign {sink.state.name}"
        for sink in graph.sinks
    )


def _backend_of(graph: Recorder, backend: str | None) -> Backend | Interpreter:
    """The backend that a compile names, or the graph's, or the default one."""
    return registry.find(_device_of(graph, backend))


def _device_of(graph: Recorder, backend: str | None) -> str:
    return chosen_device(graph.device if backend is None else backend)
