"""A product by warp groups, written by hand from the functions that kernels' texts will use."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.base.dots import Dot
from luminal.base.swizzles import SWIZZLES, Swizzle
from luminal.codegen.c_family import matrices, warpgroups
from luminal.codegen.c_family.warpgroups import HOLD, Form, describer_of

TEXT = """
extern "C" __global__ void __launch_bounds__({lanes}, 1)
product(const unsigned char *a, const unsigned char *b, {sums} *c, int steps)
{{
    extern __shared__ __align__(1024) unsigned char memory[];
    const int group = threadIdx.x / 128;
    const long long rows = gridDim.x * (long long){m}, columns = gridDim.y * (long long){n};
    const long long sums = steps * (long long){deep};
    {sums} {zeros};
    {hold};
    const int lane = threadIdx.x % 32;
    auto word = [&](long long step, int n) {{
        const long long row = blockIdx.x * {m} + threadIdx.x / 32 * 16 + lane / 4 + n % 2 * 8;
        return *(const {word} *)(a + (row * sums + step) * {size} + (lane % 4 + n / 2 * 4) * 4);
    }};
    auto fetch = [&](int step) {{
        unsigned char *stage = memory + step % {stages} * {stage_bytes};
        {fetches}
    }};
    for (int step = 0; step < {ahead}; step++) {{
        if (step < steps) fetch(step);
        commit_copies();
    }}
    for (int step = 0; step < steps; step++) {{
        await_copies<{ahead} - 1>();
        publish_copies();
        await_products<{running}>();
        __syncthreads();
        if (step + {ahead} < steps) fetch(step + {ahead});
        commit_copies();
        const unsigned char *stage = memory + step % {stages} * {stage_bytes};
        {words}
        begin_products();
        {products}
        commit_products();
    }}
    await_products<0>();
    const long long row = blockIdx.x * {m} + group * 64 + threadIdx.x % 128 / 32 * 16
        + threadIdx.x % 32 / 4;
    {sums} *out = c + row * columns + blockIdx.y * {n} + threadIdx.x % 4 * 2;
    {stores}
}}
"""
FETCH = """for (int n = threadIdx.x; n < {lines} * {pieces}; n += {lanes}) {{
            int line = n / {pieces}, byte = n % {pieces} * 16;
            int at = (byte / {width} * {lines} + line) * {width} + byte % {width};
            copy_16(stage + {start} + (at ^ (at >> 3 & {width} - 16)),
                    {name} + ({first} + line) * {pitch} * {size} + {before} * {size} + byte, true);
        }}"""


@dataclass(frozen=True)
class Block:
    """A factor's block in shared memory, where its lines are steps of the sum if it is turned."""

    name: str
    side: int
    deep: int
    size: int
    turned: bool
    swizzle: Swizzle
    start: int

    @property
    def lines(self) -> int:
        return self.deep if self.turned else self.side

    @property
    def line_bytes(self) -> int:
        return (self.side if self.turned else self.deep) * self.size

    @property
    def bytes(self) -> int:
        """Those of whole tiles, up to where the next block may begin."""
        return -(-self.line_bytes // self.swizzle.width) * self.lines * self.swizzle.width

    @property
    def apart(self) -> int:
        return self.lines * self.swizzle.width

    def place(self, at: int, step: int) -> int:
        """Where a part begins, before pieces change places: the descriptor says how they do."""
        line, byte = (step, at * self.size) if self.turned else (at, step * self.size)
        return byte // self.swizzle.width * self.apart + (
            line * self.swizzle.width + byte % self.swizzle.width
        )

    def fetch(self, lanes: int) -> str:
        extent, along = ("rows", "blockIdx.x") if self.name == "a" else ("columns", "blockIdx.y")
        sides = f"{along} * {self.side}", f"step * (long long){self.deep}"
        first, before = sides[::-1] if self.turned else sides
        return FETCH.format(
            lines=self.lines, pieces=self.line_bytes // 16, lanes=lanes, name=self.name,
            width=self.swizzle.width, start=self.start, size=self.size, first=first,
            before=before, pitch=extent if self.turned else "sums",
        )  # fmt: skip


@dataclass(frozen=True)
class Staged:
    """A product by a dot through a ring of stages in shared memory, with `turned` factors, in
    swizzles of these widths.
    """

    dot: Dot
    turned: str = ""
    widths: tuple[int, int] = (128, 128)
    stages: int = 4

    @property
    def deep(self) -> int:
        """The steps of a stage."""
        return 4 * self.dot.k

    @property
    def rows(self) -> int:
        """Those of a block."""
        return self.dot.m

    @property
    def blocks(self) -> tuple[Block, Block]:
        size = self.dot.a.size
        a, b = (SWIZZLES[width] for width in self.widths)
        first = Block("a", self.rows, self.deep, size, "a" in self.turned, a, 0)
        start = -(-first.bytes // 1024) * 1024
        return first, Block("b", self.dot.n, self.deep, size, "b" in self.turned, b, start)

    @property
    def stage_bytes(self) -> int:
        return -(-(self.blocks[1].start + self.blocks[1].bytes) // 1024) * 1024

    @property
    def shared_bytes(self) -> int:
        """Those of the stages."""
        return self.stages * self.stage_bytes


@dataclass(frozen=True)
class Product(Staged):
    """By `groups` warp groups above each other, and with so many batches of products that run on
    while the next ones begin. `held`: is the first factor in registers, by the PTX ISA's formulas?
    """

    groups: int = 1
    running: int = 1
    held: bool = False

    @property
    def lanes(self) -> int:
        return self.dot.together * self.groups

    @property
    def rows(self) -> int:
        return self.dot.m * self.groups

    @property
    def text(self) -> str:
        sums = [f"c{n}" for n in range(self.dot.fragment("c").elements)]
        return self.functions + TEXT.format(
            sums=matrices.CPP[self.dot.accumulator],
            lanes=self.lanes, m=self.rows, n=self.dot.n, deep=self.deep, stages=self.stages,
            stage_bytes=self.stage_bytes, ahead=self.stages - 1 - self.running,
            running=self.running, zeros=", ".join(f"{each} = 0" for each in sums),
            hold=f"{HOLD}({', '.join(sums)})",
            word=matrices.CPP.get(self.dot.a, "unsigned"), size=self.dot.a.size,
            fetches="\n        ".join(
                block.fetch(self.lanes) for block in self.blocks[self.held :]
            ),
            words="\n        ".join(self._words),
            products="\n        ".join(
                self._product(step, sums) for step in range(0, self.deep, self.dot.k)
            ),
            stores="\n    ".join(
                f"out[{n // 2 % 2 * 8} * columns + {n // 4 * 8 + n % 2}] = {each};"
                for n, each in enumerate(sums)
            ),
        )  # fmt: skip

    @property
    def functions(self) -> str:
        describers = {block.swizzle: warpgroups.describer(block.swizzle) for block in self.blocks}
        return "\n".join(
            [
                *matrices.cp_async([16]),
                *warpgroups.batches(),
                *describers.values(),
                *warpgroups.holders(),
                warpgroups.wgmma(self.form),
            ]
        )

    @property
    def _words(self) -> list[str]:
        """Those of the first factor for a stage."""
        first = f"step * (long long){self.deep}"
        names = [(at, n) for at in range(0, self.deep * self.held, self.dot.k) for n in range(4)]
        return [
            f"const auto a{at}_{n} = word({first} + {at}, {n}); {HOLD}(a{at}_{n});"
            for at, n in names
        ]

    @property
    def form(self) -> Form:
        return Form(self.dot, self.turned, self.held)

    def _product(self, step: int, sums: list[str]) -> str:
        a, b = self.blocks
        parts = [
            f"{describer_of(block.swizzle)}(stage + {block.start + block.place(0, step)}{group}, "
            f"{block.apart})"
            for block, group in ((a, f" + group * {a.place(self.dot.m, 0)}"), (b, ""))
        ]
        if self.held:
            parts[:1] = [f"a{step}_{n}" for n in range(4)]
        return f"{self.form.name}({', '.join([*sums, *parts])});"
