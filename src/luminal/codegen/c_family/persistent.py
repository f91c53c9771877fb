"""Kernels of a launch list as one kernel, whose groups stay from the first launch to the last.

All groups walk one list of tasks, a task for each launch, in the list's order. Of each they take
the chunks that they would take of a launch, and then add 1 to the task's counter; before it they
wait until the counters of the tasks that it depends on stand at the number of groups. Every wait is
for a task that stands earlier in every group's list, and all groups are on the device at once, so
none waits for ever. What a kernel asks for early, before it waits (`expand/early.py`), is under way
while the last groups of the task before are still at work.

The last group to end leaves the counters at 0, as it found them. How the list lies in memory is
`program/task_list.py`'s to say. Where that has room for times, each group writes for each task
where it runs, when it came to the task, when all was there that it waits for, and when it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.codegen.c_family.dialect import INTEGERS, Dialect
from luminal.codegen.c_family.kernel import expanded_for
from luminal.codegen.c_family.launched import shared_bytes, tensors
from luminal.codegen.c_family.walk import CHUNKS, SCRATCH, Walk, dtypes_of
from luminal.expand.ir import Kernel
from luminal.kernel import tile_ir
from luminal.kernel.boxes import Tensor
from luminal.program.task_list import HEADER, RECORD, STAMPS
from luminal.shape.expression import Expression, Symbol, const

THREADS = 128
"""Of a group, where each thread is a worker in all kernels."""


@dataclass(frozen=True, slots=True)
class Together:
    """Kernels in one text: groups have so many `lanes` and bytes of memory, and a task's record has
    so many `words`. What its kernels take, each task says.
    """

    text: str
    lanes: int
    dynamic_bytes: int
    words: int
    cluster: int = 1
    params: tuple[Symbol, ...] = ()
    scratch: Expression = const(0)
    maps: tuple[tuple[int, Tensor], ...] = ()  # they stand in records


class _Task(Walk):
    """A kernel as a function of a task's record, for groups of so many lanes, of which it may leave
    the last idle.
    """

    def __init__(self, kernel: Kernel, dialect: Dialect, lanes: int) -> None:
        super().__init__(kernel, dialect)
        self.cluster = 1  # any groups may be neighbours, so each brings all for itself
        self._has_idle = 1 < kernel.lanes < lanes
        if self._has_idle:
            self.barrier = dialect.part_barrier.format(lanes=kernel.lanes)

    def function(self, name: str) -> str:
        """The text of the function under this name."""
        dialect, index = self.dialect, self.dialect.types["i64"]
        self.lines = [f"{dialect.inline} void {name}({PARAMETERS})", "{"]
        self.depth = 1
        for place, pointer in enumerate(self.pointers[:-1]):
            self._put(f"unsigned char *const {pointer} = task->places[{place}];")
        self._put(f"unsigned char *const {SCRATCH} = task->scratch;")
        self._put(f"const {index} *const {INTEGERS} = task->integers;")
        self.base_pointers()
        is_group = self.kernel.lane is not None
        worker, workers = dialect.worker, dialect.workers
        if is_group:
            worker, workers = dialect.group, dialect.groups
        self._put(f"const {index} worker = {worker}, all = {workers};")
        self._put(f"const {index} workers = all < task->workers ? all : task->workers;")
        integers = self.integers()
        is_busy = f" && {dialect.lane} < {self.kernel.lanes}" if self._has_idle else ""
        integers[CHUNKS] = f"worker < workers{is_busy} ? {integers[CHUNKS]} : 0"
        for value, text in integers.items():
            self._put(f"const {index} {value} = {text};")
        self.group(is_dynamic=bool(self.kernel.shared))
        self.lane()
        self.rest("wait_for(task, waits, counters, times);")
        return "\n".join(self.lines)


PARAMETERS = "const Task *task, const long long *waits, unsigned *counters, long long *times"
_TASK = """struct Task {{
    long long kernel, workers, first_wait, last_wait;
    const long long *integers;
    unsigned char *scratch, *places[{places}];
}};
{inline} void wait_for({parameters})
{{
    for (long long i = task->first_wait + threadIdx.x; i < task->last_wait; i += blockDim.x)
        AWAIT(&counters[waits[i]], gridDim.x);
    {barrier}
    if (times && threadIdx.x == 0) times[{began}] = CLOCK();
}}"""
_MAIN = """{signature}
{{
    const long long *const head = (const long long *)tasks_memory, *const waits = head + head[1];
    unsigned *const counters = (unsigned *)counters_memory;
    long long *const all_times = (long long *)head[2];
    BEGIN_PARTS;
    for (long long number = 0; number < head[0]; ++number) {{
        const Task *const task = (const Task *)(head + {header}) + number;
        long long *const times =
            all_times ? all_times + {stamps} * (number * gridDim.x + blockIdx.x) : nullptr;
        if (times && threadIdx.x == 0) times[{unit}] = UNIT(), times[{came}] = CLOCK();
        switch (task->kernel) {{
{cases}
        }}
        {barrier}
        if (threadIdx.x == 0) {{
            if (times) times[{ended}] = CLOCK();
            ARRIVE(&counters[number]);
        }}
    }}
    if (threadIdx.x == 0 && ARRIVE(&counters[head[0]]) == gridDim.x - 1)
        for (long long number = 0; number <= head[0]; ++number) CLEAR(&counters[number]);
}}
"""


def spell_tiles_together(kernels: Sequence[tile_ir.Kernel], dialect: Dialect) -> Together:
    """One text of kernels of tile IR, as `spell_together`."""
    early = bool(dialect.fetch)
    return spell_together(
        [expanded_for(kernel, dialect, early=early) for kernel in kernels], dialect
    )


def spell_together(kernels: Sequence[Kernel], dialect: Dialect) -> Together:
    """One text of expanded kernels, in C++ as vendors of groups of lanes have it.

    Raises CompileError where the dialect has no counters, or where groups of kernels have different
    numbers of lanes.
    """
    if not dialect.counters:
        raise CompileError(f"{dialect.name}: groups cannot wait for each other within a kernel")
    sizes = {kernel.lanes for kernel in kernels if kernel.lanes > 1}
    if len(sizes) > 1 and not dialect.part_barrier:
        raise CompileError(f"{dialect.name}: kernels of {sorted(sizes)} lanes cannot be one")
    # Whoever waits for columns of tensor memory waits for the end of another group, which may wait
    # for it: groups that stay would have to share them out.
    if any(kernel.tensor for kernel in kernels):
        raise CompileError(f"{dialect.name}: products in tensor memory are kernels of their own")
    lanes = max(sizes, default=THREADS)
    dtypes = frozenset().union(*map(dtypes_of, kernels))
    places = max(1, *(len(kernel.buffers) + len(tensors(kernel)) for kernel in kernels))
    declared: dict[str, None] = {dialect.head(dtypes): None, dialect.counters: None}
    functions = []
    for number, kernel in enumerate(kernels):
        walk = _Task(kernel, dialect, lanes)
        declared |= dict.fromkeys(walk.declarations())
        functions.append(walk.function(f"task_{number}"))
    stamps = {name: place for place, name in enumerate(STAMPS)}
    form = {"inline": dialect.inline, "parameters": PARAMETERS, "barrier": dialect.barrier}
    subgroup = max(kernel.subgroup for kernel in kernels)
    pointers = ["tasks_memory", "counters_memory", SCRATCH]
    cases = [
        f"            case {number}: task_{number}(task, waits, counters, times); break;"
        for number in range(len(kernels))
    ]
    main = _MAIN.format(
        signature=dialect.signature(pointers, False, lanes, subgroup),
        header=len(HEADER),
        cases="\n".join(cases),
        barrier=dialect.barrier,
        stamps=len(STAMPS),
        **stamps,
    )
    record = _TASK.format(places=places, **form, **stamps)
    text = "\n".join([*declared, record, *functions, main])
    dynamic = max(shared_bytes(kernel) for kernel in kernels)
    return Together(text, lanes, dynamic, len(RECORD) + places)
