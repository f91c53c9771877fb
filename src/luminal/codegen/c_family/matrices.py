"""Matrix instructions as functions in the text of a kernel that uses them, one line each.

Each takes the results by reference, then the words of both factors. So the text of a kernel says
only what is multiplied; and a test that runs it elsewhere brings other bodies for these names.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dots import Dot
from luminal.base.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
)

COMMIT, AWAIT, AWAIT_BESIDE = "commit_copies", "await_copies", "await_copies_beside"
PTX = {bfloat16: "bf16", float16: "f16", float32: "tf32", int8: "s8", float64: "f64",
       float8_e4m3fn: "e4m3", float8_e5m2: "e5m2"}  # fmt: skip
PTX_SUMS = {float32: "f32", int32: "s32", float64: "f64"}
CONSTRAINTS = {float32: "f", int32: "r", float64: "d"}
CPP = {float32: "float", int32: "int", float64: "double"}


def name_of(dot: Dot) -> str:
    """The function of a dot."""
    return dot.name.replace(".", "_")


def loader_of(count: int, turned: bool) -> str:
    """The function that loads so many squares."""
    return f"load_matrix_{count}{'_turned' if turned else ''}"


def _named(letter: str, count: int) -> list[str]:
    return [f"{letter}{n}" for n in range(count)]


def parameters_of(dot: Dot, space: str = "") -> tuple[list[str], list[str], list[str], str]:
    """The names of results and of words, and the list of parameters."""
    c, a, b = (_named(block, dot.fragment(block).elements) for block in "cab")
    word = CPP.get(dot.a, "unsigned")
    results = [f"{space}{CPP[dot.accumulator]} &{name}" for name in c]
    return c, a, b, ", ".join([*results, *(f"{word} {name}" for name in (*a, *b))])


def mma_sync(dot: Dot) -> str:
    """NVIDIA's, by the assembler's own name: no header is needed."""
    c, a, b, parameters = parameters_of(dot)
    kind, sums = PTX[dot.a], PTX_SUMS[dot.accumulator]
    shape = f"m{dot.m}n{dot.n}k{dot.k}.row.col.{sums}.{kind}.{kind}.{sums}"
    places = iter(range(len(c) + len(a) + len(b)))
    blocks = ["{" + ", ".join(f"%{next(places)}" for _ in block) + "}" for block in (c, a, b)]
    outs = ", ".join(f'"+{CONSTRAINTS[dot.accumulator]}"({name})' for name in c)
    words = ", ".join(constrained(dot.a, (*a, *b)))
    code = f"mma.sync.aligned.{shape} {blocks[0]}, {blocks[1]}, {blocks[2]}, {blocks[0]};"
    return (
        f"__device__ inline void {name_of(dot)}({parameters}) "
        f'{{ asm volatile("{code}" : {outs} : {words}); }}'
    )


BLOCK_SCALED = {
    "mma.mxf8": "k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
    "mma.nvf4": "k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
}
"""What the assembler calls rows of factors with scales."""


def mma_scaled(dot: Dot) -> str:
    """NVIDIA's of factors with scales, for sm_120a alone; a word of scales of each comes last."""
    c, a, b, parameters = parameters_of(dot)
    places = iter(range(len(c) + len(a) + len(b) + 2))
    blocks = ["{" + ", ".join(f"%{next(places)}" for _ in block) + "}" for block in (c, a, b)]
    outs = ", ".join(f'"+f"({name})' for name in c)
    words = ", ".join(f'"r"({name})' for name in (*a, *b, "of_a", "of_b"))
    scales = ", ".join(f"%{next(places)}, {{0, 0}}" for _ in "ab")
    shape = f"m{dot.m}n{dot.n}{BLOCK_SCALED[dot.name]}"
    factors = f"{blocks[0]}, {blocks[1]}, {blocks[2]}, {blocks[0]}, {scales}"
    return (
        f"__device__ inline void {name_of(dot)}({parameters}, unsigned of_a, unsigned of_b) "
        f'{{ asm volatile("mma.sync.aligned.{shape} {factors};" : {outs} : {words}); }}'
    )


def constrained(dtype: DType, names: Sequence[str]) -> list[str]:
    """Words as operands of assembly: f32 goes by its bits."""
    if dtype is float64:
        return [f'"d"({name})' for name in names]
    if dtype is float32:
        return [f'"r"(__float_as_uint({name}))' for name in names]
    return [f'"r"({name})' for name in names]


AMD_BUILT_IN = {
    "mfma.bf16": ("mfma_f32_16x16x16bf16_1k", "short"),
    "mfma.f16": ("mfma_f32_16x16x16f16", "_Float16"),
    "mfma.s8": ("mfma_i32_16x16x16i8", "int"),
    "mfma.s8.k32": ("mfma_i32_16x16x32_i8", "long"),
    "mfma.f32": ("mfma_f32_16x16x4f32", "float"),
    "mfma.f64": ("mfma_f64_16x16x4f64", "double"),
    "wmma.bf16": ("wmma_f32_16x16x16_bf16_w32", "short"),
    "wmma.f16": ("wmma_f32_16x16x16_f16_w32", "_Float16"),
    "wmma.s8": ("wmma_i32_16x16x16_iu8_w32", "int"),
    "wmma4.bf16": ("wmma_f32_16x16x16_bf16_w32_gfx12", "short"),
    "wmma4.f16": ("wmma_f32_16x16x16_f16_w32_gfx12", "_Float16"),
    "wmma4.s8": ("wmma_i32_16x16x16_iu8_w32_gfx12", "int"),
}
"""AMD's built-in functions, and what the vectors of factors are made of that they take."""
AMD_BYTES = {"short": 2, "_Float16": 2, "int": 4, "long": 8, "float": 4, "double": 8}


def amdgcn(dot: Dot) -> str:
    """AMD's, by the compiler's built-in function, which takes vectors."""
    c, a, b, parameters = parameters_of(dot)
    built_in, unit = AMD_BUILT_IN[dot.name]
    word = CPP.get(dot.a, "unsigned")
    count = AMD_BYTES.get(word, 4) * len(a) // AMD_BYTES[unit]
    vector = f"ext_vector_type({count})"
    factor = f"typedef {unit} Factor{f' __attribute__(({vector}))' if count > 1 else ''}; "
    words = [f"{{{{{', '.join(block)}}}}}" for block in (a, b)]
    first, second = "a.all", "b.all"
    if dot.name.startswith("mfma"):
        arguments = f"{first}, {second}, c, 0, 0, 0"
    elif dot.a is int8:  # with their signs, and sums that wrap
        arguments = f"true, {first}, true, {second}, c, false"
    else:
        arguments = f"{first}, {second}, c"
    body = (
        f"{factor}typedef {CPP[dot.accumulator]} Sums __attribute__((ext_vector_type({len(c)}))); "
        f"union {{ {word} words[{len(a)}]; Factor all; }} a = {words[0]}, b = {words[1]}; "
        f"Sums c = {{{', '.join(c)}}}; c = __builtin_amdgcn_{built_in}({arguments}); "
    )
    back = " ".join(f"{name} = c[{n}];" for n, name in enumerate(c))
    return f"__device__ inline void {name_of(dot)}({parameters}) {{ {body}{back} }}"


APPLE_TYPES = {float32: "float", float16: "half", bfloat16: "bfloat"}


def simdgroup(dot: Dot) -> str:
    """Apple's, by the elements of matrices that a lane holds."""
    c, a, b, parameters = parameters_of(dot, "thread ")
    count, type_ = dot.in_word("a"), APPLE_TYPES[dot.a]
    shape = f"{dot.m}x{dot.n}"
    there = [f"c.thread_elements()[{n}] = {name};" for n, name in enumerate(c)]
    for block, words in (("a", a), ("b", b)):
        if count > 1:
            there.append(f"{block}.thread_elements() = as_type<{type_}{count}>({words[0]});")
        else:
            there += [f"{block}.thread_elements()[{n}] = {word};" for n, word in enumerate(words)]
    back = " ".join(f"{name} = c.thread_elements()[{n}];" for n, name in enumerate(c))
    return (
        f"inline void {name_of(dot)}({parameters}) {{ simdgroup_{type_}{shape} a, b; "
        f"simdgroup_float{shape} c; {' '.join(there)} "
        f"simdgroup_multiply_accumulate(c, a, b, c); {back} }}"
    )


def ldmatrix(count: int, turned: bool) -> str:
    """NVIDIA's load of squares, from the row that each lane points to."""
    names = _named("r", count)
    parameters = ", ".join([*(f"unsigned &{name}" for name in names), "const void *row"])
    outs = ", ".join(f'"=r"({name})' for name in names)
    places = "{" + ", ".join(f"%{n}" for n in range(count)) + "}"
    code = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if turned else ''}.shared.b16"
    return (
        f"__device__ inline void {loader_of(count, turned)}({parameters}) "
        f'{{ asm volatile("{code} {places}, [%{count}];" : {outs} : '
        f'"r"((unsigned)__cvta_generic_to_shared(row)) : "memory"); }}'
    )


def copier_of(size: int, beside: bool = False) -> str:
    """The function that copies so many bytes, beside those of the lane before or anywhere."""
    return f"copy_{'beside_' * beside}{size}"


def cp_async(sizes: Sequence[int]) -> list[str]:
    """NVIDIA's copies to shared memory without registers: 16 bytes pass by the first cache. What
    is not `live` is not read.
    """
    lines = []
    for size in sizes:
        code = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size}, %2;"
        lines.append(
            f"__device__ inline void {copier_of(size)}(void *to, const void *from, bool live) "
            f'{{ asm volatile("{code}" :: "r"((unsigned)__cvta_generic_to_shared(to)), '
            f'"l"(from), "r"(live ? {size} : 0) : "memory"); }}'
        )
    lines.append(
        f"__device__ inline void {COMMIT}() "
        '{ asm volatile("cp.async.commit_group;" ::: "memory"); }'
    )
    lines.append(
        f"template <int N> __device__ inline void {AWAIT}() "
        '{ asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }'
    )
    return lines


# The built-in function would do, but clang 22 waits for all copies at every barrier. Assembly stays
# as it is, and nothing else in these kernels uses m0, which is there one wait state before it is
# read (AMD's manual of CDNA 3, required wait states).
def load_lds(sizes: Sequence[int]) -> list[str]:
    """AMD's copies to shared memory without registers: the lane of a number copies so many bytes
    behind where the first lane does. What is not `live` is copied from zeros.
    """
    lines = ["alignas(16) __device__ const unsigned zeros[4] = {};"]
    for size in sizes:
        name, code = copier_of(size, beside=True), f"global_load_lds_dword{LDS_WORDS[size]}"
        lines.append(
            f"__device__ inline void {name}(const void *to, int further, const void *from, "
            "bool live) { const int at = __builtin_amdgcn_readfirstlane((unsigned long long)to); "
            "const void *const source = live ? from : zeros; "
            f'asm volatile("s_mov_b32 m0, %0\\n s_nop 0\\n {code} %1, off" '
            ':: "s"(at + further), "v"(source) : "memory"); }'
        )
    lines.append(
        f"template <int N> __device__ inline void {AWAIT_BESIDE}() "
        '{ asm volatile("s_waitcnt vmcnt(%0)" :: "n"(N) : "memory"); }'
    )
    return lines


LDS_WORDS = {4: "", 16: "x4"}  # of 16 bytes from CDNA 4 on
MOST_AWAITED = 63  # copies of a lane that may be under way behind a wait, which counts so far
