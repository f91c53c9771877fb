"""Small valid models with one absurd number: what they ask for would take all time or memory.

Some are written here, a row for each way to ask for much; others are cases of ONNX's backend suite
in which one number was replaced: of an attribute, of an input that is an integer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, parser

Array = np.ndarray[Any, Any]

FAR = (300_000, 2**20, 2**24, 2**28, 2**31 - 1, 2**33, 2**36, 2**40, 2**62, 2**63 - 1)
"""The numbers that are drawn, those of the suite also as negative ones."""
SUITE = 100_000
"""The first number of a model of the backend suite."""


class Hostile(NamedTuple):
    """A model and what it is called with; `what` tells a reader which number is absurd."""

    what: str
    model: ModelProto
    inputs: dict[str, Array]


def hostile(number: int) -> Hostile:
    """The model of this number: from SUITE on one of the backend suite's."""
    random = np.random.default_rng([36, number])
    if number >= SUITE:
        return _damaged_case(random)
    names = sorted(ROWS)
    name = names[int(random.integers(len(names)))]
    n = FAR[int(random.integers(len(FAR)))]
    x = random.standard_normal((1, 2, 4, 4)).astype(np.float32)
    return Hostile(f"{name} {n}", row(name, n), {"x": x})


def row(name: str, n: int) -> ModelProto:
    """A model that is written here, with its number."""
    found = ROWS[name](n)
    if isinstance(found, ModelProto):
        return found
    return parser.parse_model(HEAD + (found if found.startswith("g (") else PLAIN % found))


HEAD = '<ir_version: 10, opset_import: ["" : 20, "d" : 1]>\n'
PLAIN = "g (float[1, 2, 4, 4] x) => (float y) { %s }"


def _functions(depth: int, body: str, calls: int = 2) -> str:
    """A function that calls the one before it so often, down to `body`."""
    texts = [PLAIN % f"y = d.f{depth}(x)"]
    texts.append(f'<domain: "d", opset_import: ["" : 20]> f0 (a) => (b) {{ b = {body} }}')
    for k in range(1, depth + 1):
        steps = [f"t{c} = d.f{k - 1}({f't{c - 1}' if c else 'a'})" for c in range(calls)]
        head = f'<domain: "d", opset_import: ["" : 20, "d" : 1]> f{k} (a) => (b)'
        texts.append(f"{head} {{ {' '.join(steps)} b = Identity(t{calls - 1}) }}")
    return "\n".join(texts)


def _depth(n: int) -> int:
    return n.bit_length() - 1


def _loop(n: int, body: str, before: str = "") -> str:
    """A Loop of n trips that carries x."""
    return (
        f"{before} n = Constant<value_int = {n}>() c = Constant<value = bool {{1}}>() "
        f"y = Loop(n, c, x) <body = b (int64 i, bool k, float[1, 2, 4, 4] a) => (bool m, float r) "
        f"{{ m = Identity(k) {body} }}>"
    )


def _endless(n: int) -> str:
    """A Loop whose condition is data that stays true."""
    return (
        "e = Constant<value = bool {1}>() y = Loop(, e, x) <body = b (int64 i, bool k, "
        "float[1, 2, 4, 4] a) => (bool m, float r) { r = Relu(a) s = ReduceMax<keepdims = 0>(a) "
        f"f = Constant<value_float = {float(n)}>() m = Less(s, f) }}>"
    )


def _nested(depth: int) -> str:
    """If in If; each branch reads what lies around it."""
    inner = "y = Relu(x)"
    for k in range(depth):
        inner = (
            f"c{k} = Constant<value = bool {{1}}>() y = If(c{k}) <then_branch = t () => (float y) "
            f"{{ {inner} }}, else_branch = e () => (float y) {{ y = Neg(x) }}>"
        )
    return inner


def _many(n: int, op: str) -> str:
    """A tensor that is made twice as large again and again."""
    count = _depth(n)
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return " ".join(f"{b} = {op.format(a)}" for a, b in pairwise(names))


def _initializer(n: int, **fields: Any) -> ModelProto:
    """An initializer that says it has n elements, and holds few."""
    model = parser.parse_model(HEAD + PLAIN % "y = Add(x, w)")
    tensor = TensorProto(name="w", data_type=fields.pop("data_type", 1), dims=[n])
    for name, value in fields.items():
        field = getattr(tensor, name)
        field.extend(value) if isinstance(value, list) else setattr(tensor, name, value)
    model.graph.initializer.append(tensor)
    return model


def _sparse(n: int) -> ModelProto:
    model = parser.parse_model(HEAD + PLAIN % "y = Add(x, w)")
    values = helper.make_tensor("w", 1, [1], [1.0])
    places = helper.make_tensor("at", 7, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [n]))
    return model


def _shape(n: int, *rest: int) -> str:
    return f"s = Constant<value_ints = [{', '.join(map(str, (n, *rest)))}]>() "


def _window(op: str, options: str) -> Callable[[int], str]:
    return lambda n: f"y = {op}<{options.replace('N', str(n))}>(x)"


def _scalar(n: int, text: str) -> str:
    return f"n = Constant<value_int = {n}>() {text}"


def _filled(n: int, *rest: int, value: str = "float {1}") -> str:
    return _shape(n, *rest) + f"w = ConstantOfShape<value = {value}>(s) "


ROWS: dict[str, Callable[[int], Any]] = {
    "functions": lambda n: _functions(_depth(n), "Relu(a)"),
    "functions of names": lambda n: _functions(_depth(n), "Identity(a)"),
    "functions of sums": lambda n: _functions(_depth(n), "Add(a, a)"),
    "wide functions": lambda n: _functions(_depth(n) // 3, "Sin(a)", 8),
    "functions in a row": lambda n: _functions(min(n // 300, 4000), "Relu(a)", 1),
    "branches in branches": lambda n: _nested(min(_depth(n), 24)),
    "loop": lambda n: _loop(n, "r = Relu(a)"),
    "loop that counts": lambda n: _loop(n, "f = Cast<to = 1>(i) r = Add(a, f)"),
    "loop of other types": lambda n: _loop(n, "r = Concat<axis = 0>(a, a)"),
    "loop in a loop": lambda n: _loop(
        n,
        "n = Constant<value_int = 300000>() r = Loop(n, k, a) <body = b (int64 i, bool k, "
        "float[1, 2, 4, 4] a) => (bool m, float r) { m = Identity(k) r = Sin(a) }>",
    ),
    "loop whose condition is data": _endless,
    "doubled by Concat": lambda n: _many(n, "Concat<axis = 0>({0}, {0})"),
    "doubled by Add": lambda n: _many(n, "Add({0}, {0})"),
    "sums of tables": lambda n: _filled(n) + "v = ReduceSum<keepdims = 0>(w) y = Add(x, v)",
    "Expand": lambda n: _shape(n, 1, 1, 1, 1) + "y = Expand(x, s)",
    "Expand and sum": lambda n: (
        _shape(n, 1, 1, 1, 1) + "e = Expand(x, s) z = Sin(e) y = ReduceSum<keepdims = 0>(z)"
    ),
    "Tile": lambda n: _shape(1, 1, n, n) + "y = Tile(x, s)",
    "ConstantOfShape": lambda n: _filled(n) + "y = Identity(w)",
    "Range": lambda n: _scalar(
        n,
        "a = Constant<value_int = 0>() b = Constant<value_int = 1>() r = Range(a, n, b) "
        "f = Cast<to = 1>(r) y = Sin(f)",
    ),
    "Range of floats": lambda n: (
        "a = Constant<value_float = 0.0>() b = Constant<value_float = 1.0>() "
        f"n = Constant<value_float = {float(n)}>() r = Range(a, n, b) y = Sin(r)"
    ),
    "OneHot": lambda n: _scalar(
        n, "v = Constant<value_floats = [0.0, 1.0]>() i = Cast<to = 7>(x) y = OneHot(i, n, v)"
    ),
    "Pad": lambda n: _shape(0, 0, n, n, 0, 0, n, n) + "y = Pad(x, s)",
    "Pad by an edge": lambda n: _shape(0, 0, 0, n, 0, 0, 0, 0) + 'y = Pad<mode = "edge">(x, s)',
    "Resize to sizes": lambda n: _shape(1, 2, n, n) + "y = Resize(x, , , s)",
    "Resize by scales": lambda n: (
        f"s = Constant<value_floats = [1.0, 1.0, {float(n)}, 1.0]>() "
        'y = Resize<mode = "linear">(x, , s)'
    ),
    "Resize cubic": lambda n: (
        _shape(1, 2, 1, n) + 'y = Resize<mode = "cubic", antialias = 1>(x, , , s)'
    ),
    "SplitToSequence": lambda n: (
        _filled(n) + "q = SplitToSequence(w) l = SequenceLength(q) y = Cast<to = 1>(l)"
    ),
    "SplitToSequence in parts": lambda n: (
        _filled(n)
        + "p = Constant<value_int = 2>() q = SplitToSequence(w, p) "
        + "y = ConcatFromSequence<axis = 0>(q)"
    ),
    "SequenceMap": lambda n: (
        _filled(n) + "q = SplitToSequence(w) r = SequenceMap(q) "
        "<body = b (float[1] a) => (float c) { c = Relu(a) }> y = ConcatFromSequence<axis = 0>(r)"
    ),
    "Split": lambda n: f"y = Split<axis = 0, num_outputs = {n}>(x)",
    "Split of many": lambda n: _filled(n) + f"y = Split<axis = 0, num_outputs = {n}>(w)",
    "MaxPool": _window("MaxPool", "kernel_shape = [N, N], pads = [N, N, N, N]"),
    "MaxPool along a row": _window("MaxPool", "kernel_shape = [1, N], pads = [0, N, 0, N]"),
    "MaxPool with gaps": _window("MaxPool", "kernel_shape = [2, 2], dilations = [N, N]"),
    "MaxPool of SAME": _window("MaxPool", 'kernel_shape = [N, N], auto_pad = "SAME_UPPER"'),
    "MaxPool of padding": _window("MaxPool", "kernel_shape = [2, 2], pads = [N, N, N, N]"),
    "MaxPool in steps": _window("MaxPool", "kernel_shape = [2, 2], strides = [N, N], ceil_mode=1"),
    "AveragePool": _window("AveragePool", "kernel_shape = [N, N], pads = [N, N, N, N]"),
    "AveragePool with padding": _window(
        "AveragePool", "kernel_shape = [1, N], pads = [0, N, 0, N], count_include_pad = 1"
    ),
    "LpPool": _window("LpPool", "kernel_shape = [N, 1], pads = [N, 0, N, 0], p = 2"),
    "LRN": _window("LRN", "size = N"),
    "Conv": lambda n: (
        _filled(1, 2, n, n) + f"y = Conv<pads = [{n}, {n}, {n}, {n}]>(x, w)"
    ),
    "Conv of padding": lambda n: (
        _filled(1, 2, 3, 3) + f"y = Conv<pads = [{n}, {n}, {n}, {n}]>(x, w)"
    ),
    "Conv with gaps": lambda n: (
        _filled(1, 2, 3, 3)
        + f"y = Conv<pads = [{n}, {n}, {n}, {n}], dilations = [{n}, {n}]>(x, w)"
    ),
    "Conv in groups": lambda n: _filled(n, 2, 3, 3) + f"y = Conv<group = {n}>(x, w)",
    "ConvTranspose": lambda n: _filled(2, 1, n, n) + "y = ConvTranspose(x, w)",
    "ConvTranspose in steps": lambda n: (
        _filled(2, 1, 3, 3) + f"y = ConvTranspose<strides = [{n}, {n}]>(x, w)"
    ),
    "ConvTranspose to a shape": lambda n: (
        _filled(2, 1, 3, 3) + f"y = ConvTranspose<output_shape = [{n}, {n}]>(x, w)"
    ),
    "ConvTranspose and more": lambda n: (
        _filled(2, 1, 3, 3)
        + f"y = ConvTranspose<output_padding = [{n}, {n}], strides = [{n}, {n}]>(x, w)"
    ),
    "Col2Im": lambda n: (
        f"i = Constant<value_ints = [{n}, {n}]>() b = Constant<value_ints = [1, 1]>() "
        "s = Constant<value_ints = [1, 2, 16]>() r = Reshape(x, s) y = Col2Im(r, i, b)"
    ),
    "Col2Im of one dim": lambda n: (
        f"i = Constant<value_ints = [{n}]>() b = Constant<value_ints = [{n}]>() "
        "s = Constant<value_ints = [1, 2, 16]>() r = Reshape(x, s) y = Col2Im(r, i, b)"
    ),
    "MaxUnpool": lambda n: (
        f"i = Cast<to = 7>(x) y = MaxUnpool<kernel_shape = [{n}, {n}], strides = [{n}, 1]>(x, i)"
    ),
    "DFT": lambda n: _scalar(n, "y = DFT<axis = 3>(x, n)"),
    "STFT": lambda n: (
        "s = Constant<value_ints = [1, 32, 1]>() r = Reshape(x, s) "
        f"h = Constant<value_int = 1>() n = Constant<value_int = {n}>() y = STFT(r, h, , n)"
    ),
    "MelWeightMatrix": lambda n: (
        f"a = Constant<value_int = {n}>() b = Constant<value_int = 16>() "
        "lo = Constant<value_float = 0.0>() hi = Constant<value_float = 4000.0>() "
        "r = Constant<value_int = 8000>() y = MelWeightMatrix(a, b, r, lo, hi)"
    ),
    "MelWeightMatrix of bins": lambda n: (
        f"a = Constant<value_int = 4>() b = Constant<value_int = {n}>() "
        "lo = Constant<value_float = 0.0>() hi = Constant<value_float = 4000.0>() "
        "r = Constant<value_int = 8000>() y = MelWeightMatrix(a, b, r, lo, hi)"
    ),
    "HannWindow": lambda n: _scalar(n, "y = HannWindow(n)"),
    "BlackmanWindow": lambda n: _scalar(n, "y = BlackmanWindow(n)"),
    "CenterCropPad": lambda n: _shape(1, 2, n, n) + "y = CenterCropPad(x, s)",
    "DepthToSpace": _window("DepthToSpace", "blocksize = N"),
    "SpaceToDepth": _window("SpaceToDepth", "blocksize = N"),
    "AffineGrid": lambda n: (
        "f = Constant<value = float[1, 2, 3] {1, 0, 0, 0, 1, 0}>() "
        + _shape(1, 2, n, 2)
        + "y = AffineGrid(f, s)"
    ),
    "GridSample": lambda n: _filled(1, n, 2, 2) + "y = GridSample(x, w)",
    "RoiAlign": lambda n: (
        "b = Constant<value = float[1, 4] {0, 0, 3, 3}>() i = Constant<value = int64[1] {0}>() "
        f"y = RoiAlign<output_height = {n}, output_width = 2>(x, b, i)"
    ),
    "RoiAlign of samples": lambda n: (
        "b = Constant<value = float[1, 4] {0, 0, 3, 3}>() i = Constant<value = int64[1] {0}>() "
        f"y = RoiAlign<sampling_ratio = {n}>(x, b, i)"
    ),
    "RoiAlign of far boxes": lambda n: (
        f"b = Constant<value = float[1, 4] {{0, 0, {float(n)}, {float(n)}}}>() "
        "i = Constant<value = int64[1] {0}>() y = RoiAlign(x, b, i)"
    ),
    "LSTM": lambda n: (
        _shape(n, 1, 4)
        + "e = ConstantOfShape<value = float {1}>(s) w = Constant<value = float[1, 4, 4] "
        "{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}>() r = Constant<value = float[1, 4, 1] "
        "{1, 2, 3, 4}>() y = LSTM<hidden_size = 1>(e, w, r)"
    ),
    "Scan": lambda n: (
        _filled(n, 1) + "z = Constant<value = float[1] {0}>() y, ys = Scan<num_scan_inputs = 1, "
        "body = b (float[1] a, float[1] v) => (float[1] o, float[1] p) "
        "{ o = Add(a, v) p = Sin(o) }>(z, w)"
    ),
    "CumSum": lambda n: (
        _filled(n) + "a = Constant<value_int = 0>() y = CumSum(w, a)"
    ),
    "TopK": lambda n: _shape(n) + "y, i = TopK(x, s)",
    "TopK of many": lambda n: _filled(n) + f"k = Constant<value_ints = [{n}]>() y, i = TopK(w, k)",
    "NonZero": lambda n: _filled(n) + "i = NonZero(w) y = Cast<to = 1>(i)",
    "Unique": lambda n: _filled(n) + "y = Unique(w)",
    "GatherND": lambda n: (
        _filled(n, 1, value="int64 {0}") + "y = GatherND(x, w)"
    ),
    "EyeLike": lambda n: _filled(n, n) + "y = EyeLike(w)",
    "MatMul": lambda n: (
        _filled(n, 1) + f"t = Constant<value_ints = [1, {n}]>() "
        "v = ConstantOfShape<value = float {2}>(t) y = MatMul(w, v)"
    ),
    "MatMul of columns": lambda n: (
        _filled(1, n) + f"t = Constant<value_ints = [{n}, 1]>() "
        "v = ConstantOfShape<value = float {2}>(t) p = MatMul(w, v) y = Add(x, p)"
    ),
    "Einsum": lambda n: _filled(n) + 'y = Einsum<equation = "i,j,k->ijk">(w, w, w)',
    "known numbers": lambda n: (
        _filled(n, value="int64 {1}") + "r = ReduceSum<keepdims = 0>(w) o = Constant<value_ints = "
        "[1]>() q = Reshape(r, o) y = Expand(x, q)"
    ),
    "known sorted numbers": lambda n: _scalar(
        n,
        "a = Constant<value_int = 0>() b = Constant<value_int = 1>() r = Range(a, n, b) "
        "o = Constant<value_ints = [1]>() k, i = TopK(r, o) z = Sub(k, k) e = Add(z, o) "
        "y = Expand(x, e)",
    ),
    "Unsqueeze": lambda n: _shape(n) + "y = Unsqueeze(x, s)",
    "Reshape": lambda n: _shape(n, -1) + "y = Reshape(x, s)",
    "Shape": lambda n: f"s = Shape<start = {-n}, end = {n}>(x) y = Cast<to = 1>(s)",
    "Slice": lambda n: (
        f"a = Constant<value_ints = [{-n}]>() b = Constant<value_ints = [{n}]>() y = Slice(x, a, b)"
    ),
    "Trilu": lambda n: _scalar(n, "y = Trilu(x, n)"),
    "raw data": lambda n: _initializer(n, raw_data=b"1234"),
    "numbers": lambda n: _initializer(n, float_data=[1.0]),
    "nothing": lambda n: _initializer(n),
    "four bits": lambda n: _initializer(n, data_type=22, int32_data=[1]),
    "strings": lambda n: _initializer(n, data_type=8, string_data=[b"1"]),
    "sparse": _sparse,
    "GroupNormalization": lambda n: (
        "s = Constant<value_floats = [1.0, 1.0]>() "
        f"y = GroupNormalization<num_groups = {n}>(x, s, s)"
    ),
    "LpNormalization": _window("LpNormalization", "p = N"),
}  # fmt: skip


# --- ONNX's backend suite -------------------------------------------------------------------------


@cache
def _cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [case for case in found if case.data_sets and _is_plain(case.data_sets[0][0])]


def _is_plain(inputs: Any) -> bool:
    return all(isinstance(x, np.ndarray) and x.dtype.kind in "biuf" for x in inputs)


def _damaged_case(random: np.random.Generator) -> Hostile:
    """A case in which one number is far off: an attribute's, or one of an input of integers."""
    while True:
        case = _cases()[int(random.integers(len(_cases())))]
        model = ModelProto()
        model.CopyFrom(case.model)
        inputs = {
            each.name: x for each, x in zip(model.graph.input, case.data_sets[0][0], strict=False)
        }
        places = [*_attribute_places(model), *_input_places(model, inputs)]
        if places:
            n = FAR[int(random.integers(len(FAR)))] * (1 if random.integers(4) else -1)
            what = places[int(random.integers(len(places)))](n)
            return Hostile(f"{case.name}: {what} {n}", model, inputs)


def _attribute_places(model: ModelProto) -> list[Callable[[int], str]]:
    found: list[Callable[[int], str]] = []
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT:
                found.append(lambda n, a=attribute: (setattr(a, "i", n), a.name)[1])
            for k in range(len(attribute.ints)):
                found.append(lambda n, a=attribute, k=k: (a.ints.__setitem__(k, n), a.name)[1])
    return found


def _input_places(model: ModelProto, inputs: dict[str, Array]) -> list[Callable[[int], str]]:
    found = []
    for name, x in inputs.items():
        if x.dtype.kind in "iu" and 0 < x.size <= 16:

            def damage(n: int, name: str = name, x: Array = x) -> str:
                array = x.copy()
                low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
                array.reshape(-1)[0] = min(max(n, low), high)
                model.graph.initializer.append(numpy_helper.from_array(array, name))
                del inputs[name]
                return name

            found.append(damage)
    return found
