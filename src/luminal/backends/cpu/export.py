"""Programs with all they need as one shared object, which runs without Luminal and without Python.

Weights are in it as kernels read them: what a prologue would derive (packed panels, sums) is
derived now. States begin with the values that they have now. Memory for runs is counted for the
greatest dims, and stands in the library as zeros that take no room in the file.
`include/luminal.h` says what the library's one symbol points to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np

from luminal.backends.cpu import compiler, kernels, systems, target
from luminal.backends.cpu.cpu_flags import flags
from luminal.backends.cpu.launch_ir import KERNEL, LAUNCH, RUN
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.backends.cpu.linker import KERNEL as KERNEL_SYMBOL
from luminal.backends.cpu.shared_object import (
    FIXED,
    SEGMENT,
    SYMBOL,
    VERSION,
    Blob,
    Code,
    fixed_bytes,
    write,
    write_fixed,
)
from luminal.backends.cpu.standalone_ir import (
    HELPERS,
    Body,
    index_format,
    table_global,
    text_global,
    within,
)
from luminal.backends.cpu.team_ir import MAX_WORKERS, team_ir
from luminal.base.errors import CompileError
from luminal.base.lines import told
from luminal.hlir.attributes import WeightAttrs
from luminal.hlir.index_inputs import IndexInput
from luminal.kernel import tile_text
from luminal.memory.arrays import HOST, Array, address
from luminal.memory.state import Assignable
from luminal.program import memory_plan
from luminal.program.launch_list import Program
from luminal.program.quantities import Quantities
from luminal.runtime.binding import InputSpec, Interval
from luminal.runtime.interface import Interface
from luminal.runtime.table import Table
from luminal.shape.expression import MAX_DIM, Expression, Symbol, symbol

MOST_THREADS = 64
MOST_BYTES = 1 << 40
"""Of memory for runs: more is a dim without an end."""
BUSY, THREADS, POINTER, INDEX = 1, 2, 3, 4
"""Numbers that a run gives, beside those of checks; 0 where it ran."""
_MESSAGES = (
    "",
    "busy: another thread runs this model; runs come one at a time",
    "threads: less than 0; 0 takes all CPUs of the process",
    "a pointer is null or its data does not begin at a multiple of its element's size",
    "",  # of an index: a run writes it
)
_CPUS_ONLINE = 84  # _SC_NPROCESSORS_ONLN of Linux


class Exported:
    """A library that grows by one program after the other, and is written."""

    def __init__(self, interface: Interface, machine: Any) -> None:
        if "linux" not in machine.triple:
            raise CompileError(
                f"export: writes libraries of Linux, and this is {machine.triple}; export there"
            )
        self._interface = interface
        self._machine = machine
        self._globals: list[str] = []
        self._codes: list[Code] = []
        self._kernels: dict[str, str] = {}  # names by text
        self._blobs: dict[str, Blob] = {}
        self._held: list[Array] = []  # as long as blobs show their memory
        self._arrays: dict[tuple[int, int], str] = {}  # blobs' names by address and bytes
        self._states: dict[Assignable, str] = {}
        self._messages = list(_MESSAGES)
        self._limits = {
            dim.name: symbol(dim.name, least, most) for dim, (least, most) in interface.dims.items()
        }
        open_ends = [name for name, limit in self._limits.items() if limit.hi == MAX_DIM]
        if open_ends:
            raise CompileError(
                f"export: {', '.join(open_ends)} has no greatest value, for which memory is laid "
                f"out; give it, as dims={{{open_ends[0]!r}: 512}}"
            )
        names = [dim.name for dim in interface.dims]
        self._body = Body({name: f"%dim{k}" for k, name in enumerate(names)})
        self._memory = 0

    # --- data

    def _zeros(self, name: str, size: int) -> str:
        """The name of memory for runs."""
        self._memory += size
        if self._memory > MOST_BYTES:
            ends = ", ".join(f"{dim} <= {limit.hi}" for dim, limit in self._limits.items())
            raise CompileError(
                f"export: memory for runs of up to {ends} takes {self._memory / 2**40:,.1f} TiB; "
                f"give smaller ones, as dims={{{next(iter(self._limits), 's')!r}: 512}}"
            )
        self._blobs[name] = Blob(name, max(size, 1))
        return name

    def _array(self, array: Array) -> str:
        """The name of a fixed array, of which equal memory has one."""
        key = address(array), array.nbytes
        if key not in self._arrays:
            name = self._arrays[key] = f"fixed{len(self._arrays)}"
            self._held.append(array)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            self._blobs[name] = Blob(name, array.nbytes, data)
        return self._arrays[key]

    def _text(self, text: str) -> str:
        name = f"text{len(self._globals)}"
        self._globals.append(text_global(name, text))
        return f"@{name}"

    def _table(self, name: str, words: Sequence[int | str], constant: bool = True) -> str:
        self._globals.append(table_global(name, words, constant))
        return f"@{name}"

    def _message(self, text: str) -> int:
        if text not in self._messages:
            self._messages.append(text)
        return self._messages.index(text)

    def _most(self, expression: Expression) -> int:
        """The greatest value within the limits of all dims."""
        dims = {dim: self._limits[dim.name] for dim in expression.symbols()}
        most = expression.substitute(dims).interval.hi
        return MOST_BYTES + 1 if most is None else int(most)

    def _kernel(self, program: Program, number: int) -> str:
        kernel = program.kernels[number]
        if kernel.call is not None:
            raise CompileError(
                f"export: {kernel.call.kernel.name} is hand-written or a library's, which another "
                "process need not have; compile without custom kernels and without a search"
            )
        text = tile_text.to_text(kernel)
        if text not in self._kernels:
            name = self._kernels[text] = f"kernel{len(self._kernels)}"
            data = kernels.compiled(kernel, text, self._machine)
            self._codes.append(Code(data, {name: KERNEL_SYMBOL}))
        return self._kernels[text]

    def _state(self, state: Assignable) -> str:
        """The number of a State: where its value and its second buffer are is in two globals."""
        if state not in self._states:
            number = self._states[state] = str(len(self._states))
            size = state.on(HOST).nbytes
            for which in ("value", "spare"):
                self._zeros(f"{which}{number}", size)
                self._globals.append(f"@{which}.at{number} = internal global ptr @{which}{number}")
        return self._states[state]

    # --- a run

    def checks(self) -> None:
        """Writes what a run looks at first: its dims, what these must meet, pointers, indices."""
        body = self._body
        positive = body.set("icmp sge i64 %threads, 0")
        body.check(positive, THREADS)
        for k, (dim, (least, most)) in enumerate(self._interface.dims.items()):
            body.lines.append(f"  %dim{k} = load i64, ptr {body.at('%dims', k, 'i64')}")
            low = body.set(f"icmp sge i64 %dim{k}, {least}")
            high = body.set(f"icmp sle i64 %dim{k}, {most}")
            number = self._message(f"{dim.name}: must lie in {least}..{most}")
            body.check(body.all_of((low, high)), number)
        for condition, words in self._interface.requirements.items():
            body.check(body.holds(condition), self._message(words))
        for pointers, arguments in self._sides():
            for k, argument in enumerate(arguments):
                place = body.load(pointers, k)
                some = body.set(f"icmp ne i64 {place}, 0")
                rest = body.set(f"urem i64 {place}, {argument.dtype.size}")
                whole = body.set(f"icmp eq i64 {rest}, 0")
                body.check(body.all_of((some, whole)), POINTER)
        for slot, use in self._interface.checks:
            self._check_index(slot, use)

    def _sides(self) -> tuple[tuple[str, tuple[InputSpec, ...]], ...]:
        return ("%inputs", self._interface.inputs), ("%outputs", self._interface.outputs)

    def _check_index(self, slot: int, use: IndexInput) -> None:
        argument, body = self._interface.inputs[slot], self._body
        kinds = {step.op.name for step in use.steps}
        if argument.dtype.kind not in ("int", "uint") or not kinds <= {"Cast", "View"}:
            raise CompileError(
                f"export: {argument.name} is an index after {', '.join(sorted(kinds))} of "
                f"{argument.dtype}; give the index itself as an input, of an integer dtype"
            )
        function, name = within(argument.dtype.bits, argument.dtype.is_signed)
        if function not in self._globals:
            self._globals.append(function)
        data, count = body.load("%inputs", slot, "ptr"), body.product(argument.shape)
        extent = body.value(use.extent)
        words = self._text(index_format(argument.name, told(use.recorded)))
        arguments = f"ptr {data}, i64 {count}, i64 {extent}, ptr {words}"
        body.check(body.set(f"call i1 @{name}({arguments})"), INDEX)

    def program(self, number: int, runner: Any, follower: str) -> None:
        """Writes what runs one program, and then goes to a block."""
        program: Program = runner.program
        self._check_program(program)
        names = [self._kernel(program, k) for k in range(len(program.kernels))]
        quantities = Quantities(tuple(dim.name for dim in program.dims))
        rows = LaunchRows(program, program.launches, range(len(names)), quantities)
        words = self._rows(f"rows{number}", rows, names, quantities.expressions)
        table = self._addresses(f"table{number}", program, runner)
        body = self._body
        strides = [body.value(quantities.expressions[k]) for k in rows.scratch]
        most = "0"
        for stride in strides:
            most = body.set(f"call i64 @llvm.smax.i64(i64 {most}, i64 {stride})")
        more = body.set(f"add i64 {most}, {CACHE_LINES - 1}")
        stride = body.set(f"and i64 {more}, {-CACHE_LINES}")
        room = max((self._most(quantities.expressions[k]) for k in rows.scratch), default=0)
        room = -(-room // CACHE_LINES) * CACHE_LINES
        scratch = self._zeros(f"scratch{number}", room * MOST_THREADS)
        ends = {dim: limit.hi or 0 for dim, limit in self._limits.items()}
        saving = runner.saving(runner.quantities.evaluate(ends), ends)
        threads = "%team" if saving >= runner.worth(awake=True) else "1"
        launches = len(rows)
        slots = f"getelementptr (i8, ptr {words}, i64 {launches * LAUNCH.itemsize})"
        record: dict[str, int | str] = {
            "launches": words, "n": launches, "table": table, "slot_refs": slots,
            "scratch": f"@{scratch}", "scratch_stride": 0, "max_threads": 1, "times": 0,
            "wakes": int(saving >= runner.worth(awake=False)), "places": 0, "n_places": 0,
            "bars": 0, "bar_room": 0,
        }  # fmt: skip
        assert RUN.names is not None
        run = self._table(f"run{number}", [record[name] for name in RUN.names], constant=False)
        body.store(stride, run, RUN.names.index("scratch_stride"))
        body.store(threads, run, RUN.names.index("max_threads"))
        body.set(f"call i64 @luminal_run(ptr {run})")
        for state in program.swaps:
            value, spare = (f"@{which}.at{self._state(state)}" for which in ("value", "spare"))
            pair = body.load(value, 0, "ptr"), body.load(spare, 0, "ptr")
            body.store(pair[1], value, 0, "ptr")
            body.store(pair[0], spare, 0, "ptr")
        body.goto(follower)

    def _check_program(self, program: Program) -> None:
        assigned = {b.owner for b in program.buffers if isinstance(b.owner, Assignable)}
        for launch in program.prologue:
            for number, _ in program.accesses(launch):
                owner = program.buffers[number].owner
                if isinstance(owner, WeightAttrs) and owner.parameter in assigned:
                    raise CompileError(
                        f"export: the program assigns {owner.name!r}, and reads what is derived "
                        "from it before each run, which a library does not do; compile the graph "
                        "without what assigns it"
                    )

    def _rows(
        self, name: str, rows: LaunchRows, names: list[str], expressions: Sequence[Expression]
    ) -> str:
        """The rows of a launch list with what does not depend on dims; the rest is written."""
        words, positions, numbers = rows.template
        cells: list[int | str] = words.tolist()
        body = self._body
        for position, quantity in zip(positions.tolist(), numbers.tolist(), strict=True):
            expression = expressions[quantity]
            cells[position] = expression.constant if expression.is_const else 0
            if not expression.is_const:
                body.store(body.value(expression), f"@{name}", position)
        launches = words[: len(rows) * LAUNCH.itemsize // 8].view(LAUNCH)
        params = len(words) - rows.params
        fields: Mapping[str, Any] = LAUNCH.fields or {}
        for k, launch in enumerate(launches):
            if launch["kind"] == KERNEL:
                row = k * LAUNCH.itemsize // 8
                at = 8 * (params + int(launch["dims"]))
                cells[row + fields["fn"][1] // 8] = f"@{names[int(launch['fn'])]}"
                cells[row + fields["dims"][1] // 8] = f"getelementptr (i8, ptr @{name}, i64 {at})"
        return self._table(name, cells, constant=False)

    def _addresses(self, name: str, program: Program, runner: Any) -> str:
        """The table of a run's buffers: fixed ones, those of its memory, and what is written."""
        inputs, outputs = ([a.name for a in arguments] for _, arguments in self._sides())
        plan, body = runner.placements.plan, self._body
        table = Table.of(program, plan, inputs, outputs)
        cells: list[int | str] = [0] * len(program.table)
        runner.prologue.refresh()
        for entry, number in table.fixed:
            cells[entry] = f"@{self._array(runner.prologue.buffers[number].array)}"
        sizes = [self._most(program.buffers[number].bytes) for number in plan.buffers]
        placement = memory_plan.place(plan, sizes)
        arena = self._zeros(f"arena{name}", placement.arena_bytes)
        for entry, place in table.arena.T.tolist():
            cells[entry] = f"getelementptr (i8, ptr @{arena}, i64 {placement.offsets[place]})"
        for entry, number in table.hidden:
            size = self._most(program.buffers[number].bytes)
            cells[entry] = f"@{self._zeros(f'hidden{number}{name}', size)}"
        address_of = self._table(name, cells, constant=False)
        for (pointers, _), entries in zip(
            self._sides(), (table.inputs, table.outputs), strict=True
        ):
            for entry, k in entries:
                body.store(body.load(pointers, k, "ptr"), address_of, entry, "ptr")
        for which, held in (("value", table.states), ("spare", table.following)):
            for entry, state in held:
                place = body.load(f"@{which}.at{self._state(state)}", 0, "ptr")
                body.store(place, address_of, entry, "ptr")
        return address_of

    def run(self, variants: Sequence[tuple[Mapping[str, Interval], Any]]) -> list[str]:
        """The lines of the function that runs once, by the first variant that takes the dims."""
        body = self._body
        taken = body.set("cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic")
        body.check(body.set(f"extractvalue {{ i64, i1 }} {taken}, 1"), BUSY)
        self.checks()
        body.do("call void @prepare()")
        cpus = body.set(f"call i64 @sysconf(i32 {_CPUS_ONLINE})")
        asked = body.set("icmp ne i64 %threads, 0")
        wanted = body.set(f"select i1 {asked}, i64 %threads, i64 {cpus}")
        body.lines.append(
            f"  %team = call i64 @llvm.smin.i64(i64 {wanted}, i64 {min(MOST_THREADS, MAX_WORKERS)})"
        )
        for number, (intervals, runner) in enumerate(variants):
            conditions = [
                condition
                for name, (least, most) in intervals.items() if name in self._limits
                for condition in (self._limits[name] >= least, self._limits[name] <= most)
            ]  # fmt: skip
            here, after = f"program{number}", f"after{number}"
            if number == len(variants) - 1:
                body.goto(here)
            else:
                fits = body.all_of(body.holds(c) for c in conditions if not c.is_const)
                body.do(f"br i1 {fits}, label %{here}, label %{after}")
            body.enter(here)
            self.program(number, runner, "done")
            if number != len(variants) - 1:
                body.enter(after)
        body.enter("done")
        body.left.append((0, "done"))
        body.goto("out")
        rows = ", ".join(f"[{number}, %{block}]" for number, block in body.left)
        head = "define internal i64 @run(ptr %dims, ptr %inputs, ptr %outputs, i64 %threads) {"
        # Who finds it busy leaves it so.
        return [
            head, "entry:", *body.lines, "out:", f"  %result = phi i64 {rows}",
            f"  %other = icmp eq i64 %result, {BUSY}",
            "  br i1 %other, label %leave, label %free", "free:",
            "  store atomic i64 0, ptr @busy release, align 8", "  br label %leave", "leave:",
            "  ret i64 %result", "}",
        ]  # fmt: skip

    def shapes(self) -> list[str]:
        """The lines of the function that gives the extents of all inputs and outputs."""
        body = Body({dim.name: f"%dim{k}" for k, dim in enumerate(self._interface.dims)})
        for k in range(len(self._interface.dims)):
            body.lines.append(f"  %dim{k} = load i64, ptr {body.at('%dims', k, 'i64')}")
        arguments = (*self._interface.inputs, *self._interface.outputs)
        for k, extent in enumerate(e for argument in arguments for e in argument.shape):
            body.store(body.value(extent), "%extents", k)
        body.do("ret void")
        return ["define internal void @shapes(ptr %dims, ptr %extents) {", *body.lines, "}"]

    def reset(self) -> list[str]:
        """The lines of the functions that give States the values with which they were exported."""
        lines = []
        for state, number in self._states.items():
            value = state.on(HOST).array
            where = f"ptr @value{number}", f"i64 {value.nbytes}, i1 false)"
            if np.ascontiguousarray(value).view(np.uint8).any():
                data = f"ptr @{self._array(value.copy())}"
                lines.append(f"  call void @llvm.memcpy.p0.p0.i64({where[0]}, {data}, {where[1]}")
            else:
                lines.append(f"  call void @llvm.memset.p0.i64({where[0]}, i8 0, {where[1]}")
            for which in ("value", "spare"):
                lines.append(f"  store ptr @{which}{number}, ptr @{which}.at{number}")
        return [
            "define internal void @reset() {", *lines, "  ret void", "}",
            "define internal void @prepare() {",
            "  %is.ready = load i1, ptr @ready", "  br i1 %is.ready, label %done, label %first",
            "first:", "  %failed = call i32 @luminal_team_init(ptr @slow.cores)",
            "  call void @reset()", "  store i1 true, ptr @ready", "  br label %done",
            "done:", "  ret void", "}",
        ]  # fmt: skip

    # --- the whole

    def describe(self) -> None:
        """Writes the record that says what the library has."""
        needs = flags(self._machine)
        sides = self._interface.inputs, self._interface.outputs
        rows: list[tuple[str, list[int | str]]] = [
            ("features", [self._text(flag) for flag in needs]),
            ("dims", [
                word for dim, ends in self._interface.dims.items()
                for word in (self._text(dim.name), *ends)
            ]),
            *(
                (name, [word for argument in side for word in self._argument(argument)])
                for name, side in zip(("inputs", "outputs"), sides, strict=True)
            ),
            ("states", [
                word for state, number in self._states.items()
                for word in (
                    *self._argument(state, self._unlike(state)), state.on(HOST).nbytes,
                    f"@value.at{number}",
                )
            ]),
            ("messages", [
                "@wrong.index" if k == INDEX else self._text(message)
                for k, message in enumerate(self._messages)
            ]),
        ]  # fmt: skip
        counts = len(needs), len(self._limits), *map(len, sides), len(self._states)
        words: list[int | str] = [VERSION, self._text(self._interface.title)]
        words += [self._text(f"{self._machine.triple.split('-')[0]} {self._machine.cpu}".strip())]
        for count, (name, cells) in zip((*counts, len(self._messages)), rows, strict=True):
            words += [count, self._table(f"all.{name}", cells) if cells else 0]
        apart = self._interface.weights
        place = f"@{FIXED}" if apart and self._fixed() else 0
        name, stamp = (apart or "", self._stamp) if place else ("", "")
        words += [place, fixed_bytes(self._fixed()), self._text(name), self._text(stamp)]
        words += [self._memory, "@shapes", "@run", "@reset"]
        self._globals.append(table_global(SYMBOL, words).replace("internal ", "", 1))

    def _unlike(self, state: Assignable) -> str:
        """The name of a State, "NAME.2" where an earlier one has the same."""
        before = [*self._states]
        count = sum(s.name == state.name for s in before[: before.index(state)])
        return f"{state.name}.{count + 1}" if count else state.name

    def _fixed(self) -> list[Blob]:
        return [blob for blob in self._blobs.values() if blob.data is not None]

    @cached_property
    def _stamp(self) -> str:
        """What tells the weights of this program from those of others."""
        digest = hashlib.sha256()
        for blob in self._fixed():
            digest.update(str(blob.size).encode())
            digest.update(blob.data or b"")
        return digest.hexdigest()

    def _argument(self, argument: Any, name: str = "") -> list[int | str]:
        shape = ", ".join(map(str, argument.shape))
        texts = self._text(name or argument.name), self._text(argument.dtype.name)
        axes: list[int | str] = [self._number(extent) for extent in argument.shape]
        table = self._table(f"axes{len(self._globals)}", axes) if axes else 0
        return [*texts, argument.dtype.size, len(axes), self._text(f"[{shape}]"), table]

    def _number(self, extent: Expression | int) -> int:
        """Which dim an extent is; -1 for any other expression."""
        names = [*self._limits]
        return names.index(extent.name) if isinstance(extent, Symbol) else -1

    def write(
        self,
        file: BinaryIO,
        variants: Sequence[tuple[Mapping[str, Interval], Any]],
        weights: BinaryIO | None,
    ) -> None:
        """Writes the library of these programs, its weights into a file of their own if there is
        one.
        """
        lines = [*self.run(variants), *self.shapes(), *self.reset()]
        self.describe()
        outside = [*self._kernels.values(), *self._blobs, FIXED]
        declared = [f"@{name} = external global i8" for name in outside]
        state_of_runs = [
            "@busy = internal global i64 0", "@ready = internal global i1 false",
            "@slow.cores = internal constant [128 x i8] zeroinitializer",
        ]  # fmt: skip
        text = "\n".join((*state_of_runs, *declared, *self._globals, HELPERS, *lines, ""))
        plain = target.cap(self._machine, target.BASELINE)
        driver = compiler.object_code(text, plain)
        team = compiler.object_code(team_ir(plain.triple, systems.find, False), plain)
        entries = {name: name for name in ("luminal_team_init", "luminal_run")}
        codes = [Code(driver, {SYMBOL: SYMBOL}), Code(team, entries), *self._codes]
        write(file, codes, [*self._blobs.values()], weights is None)
        if weights is not None:
            weights.write(self._stamp.encode().ljust(SEGMENT, b"\0"))
            write_fixed(weights, self._fixed())


def write_library(
    file: BinaryIO,
    interface: Interface,
    variants: Sequence[tuple[Mapping[str, Interval], Any]],
    weights: BinaryIO | None,
) -> None:
    """Writes programs of one graph as a shared object. Raises CompileError for what cannot be in
    one.
    """
    Exported(interface, variants[0][1].target).write(file, variants, weights)
