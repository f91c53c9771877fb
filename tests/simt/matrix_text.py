"""Matrix instructions on the CPU: bodies for the functions that kernels' texts have in assembly.

They are written from the rows of `dots`: the lanes of a warp show each other their words, and each
computes its results. Nothing of memory is ordered by it, as on the device.
"""

from __future__ import annotations

import re
from functools import cache

from luminal.base.dots import MATRIX_DOTS, MMA_SCALED, Dot, Rounding
from luminal.base.dtypes import (
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
)
from luminal.base.fragments import fragment
from luminal.codegen.c_family import phases
from luminal.codegen.c_family.matrices import name_of, parameters_of
from luminal.codegen.c_family.tensor_memory import AWAIT_PHASE
from luminal.codegen.c_family.warpgroups import PUBLISH
from tests.simt import box_text, tensor_text, warpgroup_text

FUNCTION = re.compile(
    r"^(?:template <(?:int N|class... C)> )?(?:__device__ )?inline void (\w+)\([^)]*\) \{.*\}$",
    re.MULTILINE,
)
ELEMENTS = {bfloat16: "bf16", float16: "_Float16", float32: "tf32", float64: "double",
            int8: "signed char", float8_e4m3fn: "e4m3", float8_e5m2: "e5m2"}  # fmt: skip
COMMON = """
namespace simt {
struct bf16 { unsigned short bits; operator float() const {
    unsigned wide = (unsigned)bits << 16; return __builtin_bit_cast(float, wide); } };
struct tf32 { unsigned bits; operator float() const {
    unsigned kept = bits & 0xFFFFE000u; return __builtin_bit_cast(float, kept); } };
// Eight bits of f16 are e5m2; e4m3 has another exponent and one NaN of either sign instead of
// infinities.
struct e5m2 { unsigned char bits; operator float() const {
    unsigned short wide = bits << 8; return (float)__builtin_bit_cast(_Float16, wide); } };
struct e4m3 { unsigned char bits; operator float() const {
    unsigned short wide = (bits & 0x80) << 8 | (bits & 0x7f) << 7;
    float value = 256 * (float)__builtin_bit_cast(_Float16, wide);
    return (bits & 0x7f) == 0x7f ? __builtin_nanf("") : value; } };
// Four bits of e2m1, and powers of two by their exponents.
struct e2m1 { unsigned char bits; operator float() const {
    float value = bits & 6 ? (float)(2 + (bits & 1)) * (float)(1 << (bits >> 1 & 3)) / 4
                           : (float)(bits & 1) / 2;
    return bits & 8 ? -value : value; } };
struct e8m0 { unsigned char bits; operator double() const {
    return bits == 255 ? __builtin_nan("") : __builtin_ldexp(1.0, (int)bits - 127); } };
// Copies under way, of each thread: made where they are waited for or, by one of the orders of
// threads, at once. Until then what is copied over is nothing that anyone may read. They are hidden
// from what reads shared memory by descriptors (warpgroup_text.py) until the thread publishes them.
struct Copy { char* to; const char* from; int size; bool live; int batch; };
struct Copies { int count, made, batches; bool hidden; unsigned published; Copy all[512]; };
struct AllCopies { Copies of[1024]; };
SIMT_UNCHECKED inline Copies& own_copies() {
    return of_group<AllCopies>().of[thread_index().x];
}
template <class T> __attribute__((noinline)) void copy_words(char* to, const char* from, int size) {
    for (int at = 0; at < size; at += sizeof(T)) *(T*)(to + at) = from ? *(const T*)(from + at) : 0;
}
template <class T> __attribute__((noinline)) void poison(char* to, int size) {
    for (int at = 0; at < size; at += sizeof(T)) *(T*)(to + at) = ~(T)0;
}
SIMT_UNCHECKED inline void make(const Copy& copy) {
    const char* from = copy.live ? copy.from : nullptr;
    if (copy.size == 4) copy_words<uint32_t>(copy.to, from, 4);
    else if (copy.size == 8) copy_words<uint64_t>(copy.to, from, 8);
    else copy_words<unsigned __int128>(copy.to, from, 16);
}
SIMT_UNCHECKED inline void copy(void* to, const void* from, bool live, int size) {
    Copies& own = own_copies();
    Copy asked{(char*)to, (const char*)from, size, live, own.batches};
    if (order() == 0) return make(asked);
    if (size == 4) poison<uint32_t>(asked.to, 4); else poison<uint64_t>(asked.to, size);
    own.all[own.count++ % 512] = asked;
}
SIMT_UNCHECKED inline void await_copies(int younger) {
    Copies& own = own_copies();
    while (own.made < own.count && own.all[own.made % 512].batch < own.batches - younger)
        make(own.all[own.made++ % 512]), own.hidden = true;
}
// Those of all lanes of a warp at once, which end one by one and lie side by side behind the first
// lane's, or else the device puts them there all the same.
SIMT_UNCHECKED inline void copy_alone(void* to, const void* from, bool live, int size) {
    copy(to, from, live, size);
    own_copies().batches++;
}
inline void copy_beside(void* to, const void* from, bool live, int size, int line) {
    uint64_t first = exchange((uint64_t)to, 0, line);
    if ((uint64_t)to != first + lane() * size) refuse("copies beside its place in the row", line);
    copy_alone(to, from, live, size);
}
inline unsigned own_warp() { return thread_index().x / warp_size(); }
}
"""
MULTIPLY = """
namespace simt {{
struct {name}_Shown {{ unsigned char by_turn[2][32][64][2][64]; }};
SIMT_UNCHECKED inline void {name}_show(const void* a, const void* b) {{
    auto& own = of_group<{name}_Shown>().by_turn[meetings() % 2][own_warp()][lane()];
    __builtin_memcpy(own[0], a, {a_bytes}); __builtin_memcpy(own[1], b, {b_bytes});
}}
SIMT_UNCHECKED inline void {name}_sum({sum}* c) {{
    static const unsigned char A[{m}][{k}][2] = {a_table}, B[{n}][{k}][2] = {b_table};
    static const unsigned char C[{lanes}][{results}][2] = {c_table};
    auto& shown = of_group<{name}_Shown>().by_turn[(meetings() - 1) % 2][own_warp()];
    for (int e = 0; e < {results}; e++) {{
        const unsigned char *at = C[lane()][e];
        for (int k = {k} - 1; k >= 0; k--) {{
            const unsigned char *in_a = A[at[0]][k], *in_b = B[at[1]][k];
            {element} x = (({element}*)shown[in_a[0]][0])[in_a[1]];
            {element} y = (({element}*)shown[in_b[0]][1])[in_b[1]];
            c[e] = ({sum})(c[e] + ({sum})x * ({sum})y);
        }}
    }}
}}
}}
__attribute__((noinline)) inline void {name}_at(int line, {parameters}) {{
    {word} a[] = {{{a}}}, b[] = {{{b}}}; {sum} c[] = {{{c}}};
    simt::{name}_show(a, b); simt::meet(line); simt::{name}_sum(c);
    {back}
}}
#define {name}(...) {name}_at(__LINE__, __VA_ARGS__)
"""
SCALED = """
namespace simt {{
struct {name}_Shown {{ unsigned words[2][32][32][8]; }};
SIMT_UNCHECKED inline unsigned char {name}_byte(unsigned lane, unsigned first, unsigned at) {{
    auto& shown = of_group<{name}_Shown>().words[(meetings() - 1) % 2][own_warp()][lane];
    return shown[first + at / 4] >> at % 4 * 8;
}}
// Which lane's word has which scale is written out here anew, not taken from where kernels have it.
SIMT_UNCHECKED inline void {name}_sum(float* c) {{
    static const unsigned char A[16][32][2] = {a_table}, B[8][32][2] = {b_table};
    for (int e = 0; e < 4; e++) {{
        unsigned row = lane() / 4 + e / 2 * 8, column = lane() % 4 * 2 + e % 2;
        for (int block = 32 / {block} - 1; block >= 0; block--) {{
            double sum = 0;
            for (int k = block * {block}; k < (block + 1) * {block}; k++) {{
                unsigned char x = {name}_byte(A[row][k][0], 0, A[row][k][1]);
                unsigned char y = {name}_byte(B[column][k][0], 4, B[column][k][1]);
                sum += {product};
            }}
            unsigned char p = {name}_byte(row % 8 * 4 + row / 8, 6, block);
            unsigned char q = {name}_byte(column * 4, 7, block);
            c[e] = (float)(c[e] + sum * ((double){scale}{{p}} * (double){scale}{{q}}));
        }}
    }}
}}
}}
__attribute__((noinline)) inline void {name}_at(int line, {parameters}, unsigned p, unsigned q) {{
    unsigned words[] = {{{words}, p, q}}; float c[] = {{{c}}};
    auto& shown = simt::of_group<simt::{name}_Shown>();
    __builtin_memcpy(shown.words[simt::meetings() % 2][simt::own_warp()][simt::lane()], words, 32);
    simt::meet(line); simt::{name}_sum(c);
    {back}
}}
#define {name}(...) {name}_at(__LINE__, __VA_ARGS__)
"""
LOAD = """
inline unsigned {name}_word(const void* row, unsigned at) {{ return ((const unsigned*)row)[at]; }}
inline unsigned {name}_half(const void* row, unsigned at) {{
    return ((const unsigned short*)row)[at]; }}
__attribute__((noinline)) inline void {name}_at(int line, {parameters}) {{
    unsigned lane = simt::lane();
    auto from = [&](unsigned other) {{
        return (const void*)simt::exchange((uint64_t)row, other, line); }};
{loads}
}}
#define {name}(...) {name}_at(__LINE__, __VA_ARGS__)
"""
STRAIGHT = "    r{n} = {name}_word(from({first} + lane / 4), lane % 4);"
TURNED = """    {{ unsigned row = {first} + lane % 4 * 2;
      const void *low = from(row), *high = from(row + 1);
      r{n} = {name}_half(low, lane / 4) | {name}_half(high, lane / 4) << 16; }}"""


COPY = """
inline void {name}(void* to, const void* from, bool live) {{ simt::copy(to, from, live, {size}); }}
"""
COPY_BESIDE = """
inline void {name}_at(int line, const void* to, int further, const void* from, bool live) {{
    simt::copy_beside((char*)to + further, from, live, {size}, line); }}
#define {name}(...) {name}_at(__LINE__, __VA_ARGS__)
"""
COPIES = {
    "await_copies_beside": """
template <int N> void await_copies_beside() { simt::await_copies(N); }
""",
    "commit_copies": """
SIMT_UNCHECKED inline void commit_copies() { simt::own_copies().batches++; }
""",
    "await_copies": """
template <int N> void await_copies() { simt::await_copies(N); }
""",
}


def without_assembly(text: str) -> tuple[str, str]:
    """The text without its functions of assembly, and bodies of the same names."""
    bodies = {name: body for name in FUNCTION.findall(text) if (body := _body(name))}
    rest = FUNCTION.sub(lambda found: "" if found[1] in bodies else found[0], text)
    common = COMMON + (warpgroup_text.COMMON if PUBLISH in bodies else "")
    common += tensor_text.COMMON if AWAIT_PHASE in bodies else ""
    common += box_text.COMMON if phases.ACQUIRE in bodies else ""
    return rest, common + "".join(bodies.values()) if bodies else ""


def _body(name: str) -> str | None:
    """What stands for a function; None for one that is no matter of this."""
    if name.startswith("copy_beside_"):
        return COPY_BESIDE.format(name=name, size=name.removeprefix("copy_beside_"))
    if name in COPIES or name.startswith("copy_"):
        return COPIES.get(name) or COPY.format(name=name, size=name.removeprefix("copy_"))
    dots = {name_of(dot): dot for dot in (*MATRIX_DOTS.values(), *MMA_SCALED)}
    if name in dots:
        return _multiply(dots[name]) if dots[name].scale is None else _scaled(dots[name])
    for text in (warpgroup_text, tensor_text, box_text):
        if (found := text.body(name)) is not None:
            return found
    return _load(name)


@cache
def _multiply(dot: Dot) -> str:
    tables = {}
    for block, held, rows, columns in (("a", 0, "m", "k"), ("b", 1, "n", "k")):
        places = [[(0, 0)] * getattr(dot, columns) for _ in range(getattr(dot, rows))]
        for lane, element, at in fragment(dot.fragments[held]).places():
            places[at[rows]][at[columns]] = (lane, element)
        tables[block] = _table(places)
    results = fragment(dot.fragments[2])
    own = [[(0, 0)] * results.elements for _ in range(dot.together)]
    for lane, element, at in results.places():
        own[lane][element] = at["m"], at["n"]
    c, a, b, parameters = parameters_of(dot)
    size = {"a": dot.a.size * dot.in_word("a"), "b": dot.b.size * dot.in_word("b")}
    wide = {Rounding.NONE: "int"}.get(dot.rounding, "double" if dot.a is float64 else "float")
    # Apple's take all bits of f32, which NVIDIA's shorten.
    whole = dot.a is float32 and dot.rounding is not Rounding.SHORT
    element = "float" if whole else ELEMENTS[dot.a]
    return MULTIPLY.format(
        name=name_of(dot), m=dot.m, n=dot.n, k=dot.k, lanes=dot.together, sum=wide,
        results=results.elements, element=element, a_table=tables["a"],
        b_table=tables["b"], c_table=_table(own), parameters=parameters,
        word={4: "float" if dot.a is float32 else "unsigned", 8: "double"}[size["a"]],
        a=", ".join(a), b=", ".join(b), c=", ".join(c),
        a_bytes=len(a) * size["a"], b_bytes=len(b) * size["b"],
        back=" ".join(f"{name} = c[{n}];" for n, name in enumerate(c)),
    )  # fmt: skip


@cache
def _scaled(dot: Dot) -> str:
    """A product of factors with scales."""
    tables = []
    for held, rows in enumerate("mn"):
        places = [[(0, 0)] * dot.k for _ in range(getattr(dot, rows))]
        for lane, element, at in fragment(dot.fragments[held]).places():
            places[at[rows]][at["k"]] = (lane, element)
        tables.append(_table(places))
    c, a, b, parameters = parameters_of(dot)
    codes = "(double)e4m3{x} * (double)e4m3{y}"
    pairs = (
        "(double)e2m1{(unsigned char)(x & 15)} * (double)e2m1{(unsigned char)(y & 15)} + "
        "(double)e2m1{(unsigned char)(x >> 4)} * (double)e2m1{(unsigned char)(y >> 4)}"
    )
    return SCALED.format(
        name=name_of(dot), block=dot.block, a_table=tables[0], b_table=tables[1],
        product=pairs if dot.pairs else codes, scale="e4m3" if dot.pairs else "e8m0",
        parameters=parameters, words=", ".join((*a, *b)), c=", ".join(c),
        back=" ".join(f"{name} = c[{n}];" for n, name in enumerate(c)),
    )  # fmt: skip


def _table(rows: list[list[tuple[int, int]]]) -> str:
    """As C has it."""
    return str(rows).translate(str.maketrans("[]()", "{}{}"))


def _load(name: str) -> str | None:
    found = re.fullmatch(r"load_matrix_(\d)(_turned)?", name)
    if found is None:
        return None
    count, line = int(found[1]), TURNED if found[2] else STRAIGHT
    loads = "\n".join(line.format(n=n, first=8 * n, name=name) for n in range(count))
    parameters = ", ".join([*(f"unsigned &r{n}" for n in range(count)), "const void *row"])
    return LOAD.format(name=name, loads=loads, parameters=parameters)
