"""Products of warp groups on the CPU: bodies for functions that kernels' texts have in assembly.

A product is made where it is awaited or, by one of the orders of threads, at once. It reads shared
memory by its descriptors, as every lane's own reads, so that memory which is written too early or
never is found. Registers of the first factor lanes show each other as it is asked for. What begins
without a fence, or reads copies that a lane has not published, is no number.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from luminal.base.dots import WGMMA
from luminal.base.dtypes import bfloat16, float8_e4m3fn, float8_e5m2, float16, float32, int8
from luminal.base.fragments import fragment
from luminal.codegen.c_family import warpgroups
from luminal.codegen.c_family.matrices import CPP
from luminal.codegen.c_family.warpgroups import Form

ELEMENTS = {bfloat16: "bf16", float16: "_Float16", float32: "tf32",
            int8: "signed char", float8_e4m3fn: "e4m3", float8_e5m2: "e5m2"}  # fmt: skip
COMMON = """
namespace simt {
// Products under way, of each thread.
struct Product {
    void (*make)(const Product&); void* c[128]; unsigned long long a, b; int batch; bool spoilt;
    float rows[2][32];  // of the first factor, where lanes hold it
};
// What the lanes of each warp show each other.
struct Words { unsigned of[32][32][4]; };
struct Products { int count, made, batches; bool begun; Product all[128]; };
struct AllProducts { Products of[1024]; };
SIMT_UNCHECKED inline Products& own_products() {
    return of_group<AllProducts>().of[thread_index().x];
}
// Has every lane published, at last before the group met, what it has stored?
SIMT_UNCHECKED inline bool all_have_published() {
    bool all = true;
    for (unsigned t = 0; t < group_size().x; t++) {
        unsigned at = of_group<AllCopies>().of[t].published;
        all &= at && at <= group_barrier_clock();
    }
    return all;
}
SIMT_UNCHECKED inline bool all_published() {
    bool all = true;
    for (unsigned t = 0; t < group_size().x; t++) all &= !of_group<AllCopies>().of[t].hidden;
    return all;
}
// Of a factor's descriptor: lines of `width` bytes, eight of them `eight` bytes from the next, and
// tiles `apart`; the bits of an address change places last.
SIMT_UNCHECKED inline const void* place(unsigned long long factor, unsigned line, unsigned byte) {
    static const unsigned widths[] = {16, 128, 64, 32};
    unsigned width = widths[factor >> 62], start = (factor & 0x3fff) << 4;
    unsigned apart = (factor >> 16 & 0x3fff) << 4, eight = (factor >> 32 & 0x3fff) << 4;
    unsigned at = start + byte / width * apart + line / 8 * eight + line % 8 * width + byte % width;
    return (const char*)dynamic_shared() + (at ^ (at >> 3 & (width - 16)));
}
template <class T> __attribute__((noinline)) T loaded(const void* from) { return *(const T*)from; }
// Rows or columns of a factor, each read once.
template <class T, class Sum, int M, int K, bool TURNED> struct Side {
    Sum all[M][K]; bool read[M] = {};
    SIMT_UNCHECKED const Sum* steps(unsigned long long factor, int n) {
        for (int k = 0; k < K && !read[n]; k++)
            all[n][k] = loaded<T>(TURNED ? place(factor, k, n * sizeof(T))
                                         : place(factor, n, k * sizeof(T)));
        read[n] = true;
        return all[n];
    }
};
template <class Sum, int K> struct Shown {
    Sum all[2][K];
    SIMT_UNCHECKED explicit Shown(const Product& product) {
        for (int n = 0; n < 2 * K; n++) all[n / K][n % K] = (Sum)product.rows[n / K][n % K]; }
    SIMT_UNCHECKED const Sum* steps(unsigned long long, int n) { return all[n / 8 % 2]; }
};
SIMT_UNCHECKED inline void show(const void* words) {
    __builtin_memcpy(of_group<Words>().of[own_warp()][lane()], words, 16); }
SIMT_UNCHECKED inline void make_products(int younger) {
    Products& own = own_products();
    while (own.made < own.count && own.all[own.made % 128].batch < own.batches - younger) {
        const Product& product = own.all[own.made++ % 128];
        product.make(product);
    }
}
SIMT_UNCHECKED inline void multiply(Product product, int line) {
    meet(line);
    Products& own = own_products();
    product.batch = own.batches; product.spoilt = !own.begun || !all_published();
    if (order() == 0) product.make(product);
    else if (own.count - own.made < 128) own.all[own.count++ % 128] = product;
    else __builtin_trap();
}
}
inline unsigned long long __cvta_generic_to_shared(const void* at) {
    return (const char*)at - (const char*)simt::dynamic_shared(); }
"""
BATCHES = {
    warpgroups.BEGIN: "void {name}() {{ simt::own_products().begun = true; }}",
    warpgroups.COMMIT: "void {name}() {{ simt::own_products().batches++; }}",
    warpgroups.AWAIT: """void {name}() {{
    simt::own_products().begun = false; simt::make_products(N); }}""",
    warpgroups.PUBLISH: """void {name}() {{
    simt::own_copies().hidden = false;
    simt::own_copies().published = simt::group_barrier_clock() + 1; }}""",
}
MULTIPLY = """
namespace simt {{
SIMT_UNCHECKED inline void make_{name}(const Product& product) {{
    static const int rows[] = {rows}, row_of[] = {row_of};
    static const int columns[] = {columns}, column_of[] = {column_of};
    unsigned t = thread_index().x % {lanes};
    {first} a{of_product};
    Side<{element}, {sum}, {n}, {k}, {turned_b}> b;
    for (int e = 0; e < {results}; e++) {{
        const {sum}* x = a.steps(product.a, rows[t] + row_of[e]);
        const {sum}* y = b.steps(product.b, columns[t] + column_of[e]);
        {sum} sum = {before};
        for (int k = {k} - 1; k >= 0; k--) sum += x[k] * y[k];
        *({sum}*)product.c[e] = product.spoilt ? ({sum}){spoilt} : sum;
    }}
}}
}}
__attribute__((noinline)) inline void {name}_at(int line, {parameters}, unsigned long long b) {{
    {shown}
    simt::Product product{{simt::make_{name}, {{{addresses}}}, {a}, b}};
    {collected}
    simt::multiply(product, line);
}}
#define {name}(...) {name}_at(__LINE__, __VA_ARGS__)
"""


def body(name: str) -> str | None:
    """What stands for a function; None for one that is no matter of this."""
    if name in BATCHES:
        head = "template <int N> " if name == warpgroups.AWAIT else ""
        return f"{head}SIMT_UNCHECKED inline {BATCHES[name].format(name=name)}\n"
    if name == f"{warpgroups.HOLD}_one":
        return " "  # there is but one for all
    if name == warpgroups.HOLD:
        return f"template <class... C> void {name}(C&...) {{}}\n"
    return _multiply(_forms()[name]) if name in _forms() else None


@cache
def _forms() -> dict[str, Form]:
    """All products by their functions' names."""
    flags = False, True
    forms = (Form(*each) for each in product(WGMMA, ("", "a", "b", "ab"), flags, flags))
    return {form.name: form for form in forms}


HELD = """
namespace simt {{
SIMT_UNCHECKED inline void collect_{name}(Product& product) {{
    static const unsigned char at[16][{k}][2] = {table};
    for (int n = 0; n < {k} * 2; n++) {{
        const unsigned char* in = at[lane() / 4 + n % 2 * 8][n / 2];
        {element} x = (({element}*)of_group<Words>().of[own_warp()][in[0]])[in[1]];
        product.rows[n % 2][n / 2] = x;
    }}
}}
}}
"""


def _multiply(form: Form) -> str:
    dot, name, turned = form.dot, form.name, form.turned
    c_type, element = CPP[dot.accumulator], ELEMENTS[dot.a]
    word = CPP.get(dot.a, "unsigned")
    words = [f"a{n}" for n in range(4)] if form.held else []
    firsts = [f"{word} {each}" for each in words] or ["unsigned long long a"]
    turned_a = int("a" in turned)
    side = f"Side<{element}, {c_type}, {dot.m}, {dot.k}, {turned_a}>"
    places = [[[0, 0]] * dot.k for _ in range(16)]
    for lane, number, at in fragment(dot.fragments[0]).places():
        if lane < 32:  # a warp has sixteen rows
            places[at["m"]][at["k"]] = [lane, number]
    table = str(places).translate(str.maketrans("[]", "{}"))
    collect = HELD.format(name=name, k=dot.k, table=table, element=element) if form.held else ""
    results = dot.fragment("c")
    lanes, elements = range(dot.together), range(results.elements)
    tables = {
        "rows": [results.position("m", lane, 0) for lane in lanes],
        "row_of": [results.position("m", 0, element) for element in elements],
        "columns": [results.position("n", lane, 0) for lane in lanes],
        "column_of": [results.position("n", 0, element) for element in elements],
    }
    return collect + MULTIPLY.format(
        **{key: "{" + ", ".join(map(str, table)) + "}" for key, table in tables.items()},
        name=name, lanes=dot.together, results=results.elements,
        m=dot.m, n=dot.n, k=dot.k,
        element=element, turned_b=int("b" in turned), sum=c_type,
        first=f"Shown<{c_type}, {dot.k}>" if form.held else side,
        of_product="(product)" if form.held else "",
        before="0" if form.starts else f"*({c_type}*)product.c[e]",
        shown=f"{word} words[] = {{{', '.join(words)}}}; simt::show(words); simt::meet(line);"
        if form.held else "",
        a="0" if form.held else "a",
        collected=f"simt::collect_{name}(product);" if form.held else "",
        spoilt='__builtin_nanf("")' if dot.accumulator.is_float else "0x7fa5a5a5",
        parameters=", ".join([*(f"{c_type} &c{n}" for n in elements), *firsts]),
        addresses=", ".join(f"&c{n}" for n in elements),
    )  # fmt: skip
