"""A product in tensor memory, written by hand from the functions that kernels' texts will use."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.codegen.c_family import matrices, tensor_memory, warpgroups
from luminal.codegen.c_family.tensor_memory import (
    columns_awaiter_of,
    columns_loader_of,
    factor_of,
    instruction_of,
    multiplier_of,
)
from tests.backends.c_family.warpgroup_product import Staged

LANES = 128
TEXT = """
extern "C" __global__ void __launch_bounds__({lanes}, 1)
product(const unsigned char *a, const unsigned char *b, const {sum} *bias, {sum} *c, int steps)
{{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) unsigned long long made[{stages}];
    __shared__ unsigned place;
    const int warp = threadIdx.x / 32;
    const long long rows = gridDim.x * (long long){m}, columns = gridDim.y * (long long){n};
    const long long sums = steps * (long long){deep};
    if (warp == 0) {{
        allocate_columns<{allocated}>(&place);
        end_allocation();
    }}
    if (threadIdx.x == 0)
        for (int stage = 0; stage < {stages}; stage++) begin_phases(&made[stage]);
    before_meeting();
    __syncthreads();
    after_meeting();
    const unsigned sum = place;
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
        __syncthreads();
        if (threadIdx.x == 0) {{
            const unsigned char *stage = memory + step % {stages} * {stage_bytes};
            {products}
            commit_to(&made[step % {stages}]);
        }}
        const int next = step + {ahead};
        if (next < steps) {{
            if (step > 0) await_phase(&made[next % {stages}], next / {stages} - 1 & 1);
            fetch(next);
        }}
        commit_copies();
    }}
    await_phase(&made[(steps - 1) % {stages}], (steps - 1) / {stages} & 1);
    after_meeting();
    const long long row = blockIdx.x * {m} + {row};
    {sum} *out = c + row * columns + blockIdx.y * {n};
    for (int column = 0; column < {n}; column += {wide}) {{
        {sum} r[{wide}];
        {load}({registers}, sum + (warp * 32 << 16) + column);
        {awaits}({registers});
        if ({live})
            for (int at = 0; at < {wide}; at++) {{
                const {sum} value = r[at] + bias[blockIdx.y * {n} + column + at];
                out[column + at] = value > 0 ? value : 0;
            }}
    }}
    before_meeting();
    __syncthreads();
    after_meeting();
    if (warp == 0) free_columns<{allocated}>(sum);
}}
"""


@dataclass(frozen=True)
class Product(Staged):
    """Adds a number to each column of sums, and leaves what is above zero. Barriers and the address
    of the columns stand beside the stages.
    """

    @property
    def allocated(self) -> int:
        """The columns of tensor memory."""
        return max(32, self.dot.n)

    @property
    def wide(self) -> int:
        """The columns that a lane loads at once."""
        return min(32, self.dot.n)

    @property
    def text(self) -> str:
        is_whole = self.dot.m == 128
        return self.functions + TEXT.format(
            lanes=LANES, m=self.dot.m, n=self.dot.n, deep=self.deep, stages=self.stages,
            stage_bytes=self.stage_bytes, ahead=self.stages - 1, allocated=self.allocated,
            sum=matrices.CPP[self.dot.accumulator], wide=self.wide,
            load=columns_loader_of(self.wide), awaits=columns_awaiter_of(self.wide),
            registers=", ".join(f"r[{n}]" for n in range(self.wide)),
            row="threadIdx.x" if is_whole else "warp * 16 + threadIdx.x % 16",
            live="true" if is_whole else "threadIdx.x % 32 < 16",
            fetches="\n        ".join(block.fetch(LANES) for block in self.blocks),
            products="\n            ".join(
                self._product(step) for step in range(0, self.deep, self.dot.k)
            ),
        )  # fmt: skip

    @property
    def functions(self) -> str:
        factors = {block.swizzle: tensor_memory.factor(block.swizzle) for block in self.blocks}
        publish = next(text for text in warpgroups.batches() if warpgroups.PUBLISH in text)
        return "\n".join(
            [
                *matrices.cp_async([16]),
                publish,
                *tensor_memory.functions(),
                *factors.values(),
                tensor_memory.multiplier(self.dot),
                tensor_memory.columns_loader(self.dot.accumulator, self.wide),
                tensor_memory.columns_awaiter(self.dot.accumulator, self.wide),
            ]
        )

    def _product(self, step: int) -> str:
        parts = (
            f"{factor_of(block.swizzle)}(stage + {block.start + block.place(0, step)}, "
            f"{block.apart})"
            for block in self.blocks
        )
        adds = "true" if step else "step > 0"
        instruction = instruction_of(self.dot, self.turned)
        return f"{multiplier_of(self.dot)}(sum, {', '.join(parts)}, {instruction:#x}, {adds});"
