"""Damaged and hostile models: errors of Luminal that say what and where, never anything else."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import luminal.onnx
from luminal.base.errors import InputError, LoadError, LuminalError
from luminal.onnx import OnnxError, UnsupportedError
from tests.onnx.random_models import random_model

RELU = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }
"""


def _run(text: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return luminal.onnx.load(parser.parse_model(text))(**inputs)


X = np.ones((2, 3), np.float32)


def test_no_model(tmp_path: Path):
    with pytest.raises(LoadError, match=r"not an ONNX model|truncated"):
        luminal.onnx.load(b"\xff\xff\xff\xff")
    with pytest.raises(LoadError, match="has no graph"):
        luminal.onnx.load(b"")
    with pytest.raises(LoadError, match="cannot be read"):
        luminal.onnx.load(tmp_path / "none.onnx")
    with pytest.raises(LoadError, match="takes a path, bytes or a ModelProto, got a int"):
        luminal.onnx.load(3)  # type: ignore[arg-type]


def test_a_truncated_file(tmp_path: Path):
    whole = random_model(3)[0].SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=r"cut.onnx: truncated or not an ONNX model"):
        luminal.onnx.load(path)


def test_a_cycle_names_the_node():
    text = RELU.replace("{ y = Relu(x) }", "{ a = Add(x, b)  b = Relu(a)  y = Relu(b) }")
    with pytest.raises(OnnxError, match=r"node of 'a' \(Add\): 'b' is read before it is made"):
        _run(text, x=X)


def _graph(nodes: str, inputs: str = "float[2, 3] x", initial: str = "") -> str:
    return RELU.replace("{ y = Relu(x) }", f"{initial} {{ {nodes} }}").replace(
        "float[2, 3] x", inputs
    )


CALLS_ITSELF = """
<ir_version: 9, opset_import: ["" : 17, "d" : 1]>
g (float[2, 3] x) => (float[2, 3] y) { y = d.F(x) }
<domain: "d", opset_import: ["" : 17, "d" : 1]> F (a) => (b) { c = d.G(a)  b = Relu(c) }
<domain: "d", opset_import: ["" : 17, "d" : 1]> G (a) => (b) { c = Neg(a)  b = d.F(c) }
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_graph("y = Relu(x)  y = Neg(x)"), "g: 'y' is an output of Neg and made before"),
        (_graph("x = Neg(x)  y = Relu(x)"), "g: 'x' is an output of Neg and made before"),
        (_graph("y = Relu(x)", "float[2, 3] x, float[2, 3] x"), "two inputs have the name 'x'"),
        (
            _graph("w = Neg(x)  y = Add(w, x)", initial="<float[1] w = {1}>"),
            "'w' is an output of Neg and made before",
        ),
        (
            _graph("y = Add(w, x)", initial="<float[1] w = {1}, float[1] w = {2}>"),
            "two initializers have the name 'w'",
        ),
        (CALLS_ITSELF, "the function 'F' calls itself"),
    ],
    ids=["outputs", "input", "inputs", "initializer", "initializers", "function"],
)
def test_a_name_stands_for_one_thing(text: str, message: str):
    with pytest.raises(LoadError, match=message):
        _run(text, x=X)


def test_an_operator_set_that_is_not_known():
    with pytest.raises(UnsupportedError, match="operator set 99"):
        _run(RELU.replace('"" : 17', '"" : 99'), x=X)


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Constant<value_ints = [1048576, 1048576, 1048576]>()  y = ConstantOfShape(s)",
        "s = Constant<value_ints = [1048576, 1048576]>()  y = Tile(x, s)",
        "s = Constant<value_ints = [4503599627370496, 2, 3]>()  y = Expand(x, s)",
    ],
    ids=["constant", "tile", "expand"],
)
def test_results_that_no_memory_holds(nodes: str):
    with pytest.raises(OnnxError, match=r"makes a (tensor|value) of .*; (there|it) may"):
        _run(_graph(nodes), x=X)


def test_an_operator_that_is_none():
    with pytest.raises(UnsupportedError, match=r"node of 'y' \(Rleu\): Rleu is not an operator"):
        _run(RELU.replace("Relu", "Rleu"), x=X)
    with pytest.raises(OnnxError, match="the domain 'my' is neither imported"):
        _run(RELU.replace("Relu", "my.Relu"), x=X)


def test_shapes_that_do_not_fit_name_the_node():
    text = RELU.replace("(float[2, 3] x)", "(float[2, 3] x, float[4] b)").replace(
        "Relu(x)", "Add(x, b)"
    )
    with pytest.raises(OnnxError, match=r"node of 'y' \(Add\): add\(.*3 != 4"):
        _run(text, x=X, b=np.ones(4, np.float32))


def test_an_attribute_that_is_missing():
    with pytest.raises(OnnxError, match="the attribute 'kernel_shape' is missing"):
        _run(RELU.replace("Relu", "MaxPool").replace("[2, 3]", "[1, 1, 2, 3]"), x=X[None, None])


def test_an_attribute_that_nothing_looks_at():
    with pytest.raises(UnsupportedError, match=r"\(Relu\): the attribute 'slope' is not supported"):
        _run(RELU.replace("Relu(x)", "Relu<slope = 2>(x)"), x=X)


def test_what_a_message_says_is_bounded():
    axes = ", ".join(["0"] * 1000)
    text = _graph(f"a = Constant<value = int64[1000] {{{axes}}}>()  y = Unsqueeze(x, a)")
    with pytest.raises(
        OnnxError, match=r"Unsqueeze: axes \[0, 0.* \.\.\. .*result of 1002"
    ) as caught:
        _run(text, x=X)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("nodes", "inputs", "message"),
    [
        ("a = Constant<value = int64[1] {1}>()  y = Squeeze(x, a)", "float[2, 3] x",
         "Squeeze: extent 3 of dim 1, which must be 1: the condition never holds"),
        ("y = ScatterElements<axis = 1>(x, i, u)", "float[2, 3] x, int64[4, 1] i, float[4, 1] u",
         "extent 4 of the indices in dim 0, at most 2: the condition never holds"),
    ],
)  # fmt: skip
def test_extents_that_a_node_does_not_take_are_named(nodes: str, inputs: str, message: str):
    given = {"x": X, "i": np.zeros((4, 1), np.int64), "u": np.ones((4, 1), np.float32)}
    model = luminal.onnx.load(parser.parse_model(_graph(nodes, inputs)))
    with pytest.raises(OnnxError, match=message):
        model({name: given[name] for name in model.input_names})


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("ceil", [0, 1])
def test_windows_beyond_the_padded_input_are_refused(pool: str, ceil: int):
    row = np.ones((1, 1, 5), np.float32)
    for kernel, step in itertools.product((5, 6, 7, 12), (1, 3)):
        said = f"kernel_shape = [{kernel}], strides = [{step}], ceil_mode = {ceil}"
        text = _graph(f"y = {pool}<{said}>(x)", "float[1, 1, 5] x").replace(": 17", ": 18")
        model = luminal.onnx.load(parser.parse_model(text.replace("[2, 3] y", "[1, 1, 1] y")))
        if kernel <= 5 + ceil * (step - 1):  # one that rounding up adds may end behind
            assert model(row)["y"].shape == (1, 1, 1)
            continue
        with pytest.raises(OnnxError, match=rf"y.*{pool}: a window spans {kernel} positions"):
            model(row)


@pytest.mark.parametrize("name", [b"Relu", b"xx", b"yy"])
def test_a_name_that_is_no_text(name: bytes):
    text = RELU.replace("x)", "xx)").replace("] x", "] xx").replace("y =", "yy =")
    data = parser.parse_model(text.replace("] y", "] yy")).SerializeToString()
    with pytest.raises(LoadError, match=r"the name b'.*\\xa3.*' is no UTF-8; the file is damaged"):
        luminal.onnx.load(data.replace(name, name[:-1] + b"\xa3"))


def test_inputs_of_types_that_there_are_not():
    model = parser.parse_model(RELU)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnsupportedError, match="input 'x': elements of string"):
        luminal.onnx.load(model)(X)
    model.graph.input[0].ClearField("type")
    with pytest.raises(OnnxError, match="input 'x': the model gives it no type"):
        luminal.onnx.load(model)(X)


def test_a_dim_of_minus_one_is_open():
    model = parser.parse_model(RELU)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    loaded = luminal.onnx.load(model)
    assert "x: float32[?, 3]" in repr(loaded)
    for n in (1, 2, 5):
        assert loaded(np.ones((n, 3), np.float32))["y"].shape == (n, 3)


def test_inputs():
    with pytest.raises(InputError, match=r"input 'x' is missing; pass \['x'\]"):
        _run(RELU)
    with pytest.raises(InputError, match=r"x: takes float32\[2, 3\], got the shape \(3, 2\)"):
        _run(RELU, x=X.T)
    with pytest.raises(LuminalError, match="x: expected float32, got complex64"):
        _run(RELU, x=X.astype(np.complex64))
    with pytest.raises(InputError, match="'z' is not an input"):
        _run(RELU, x=X, z=X)


# --- data -----------------------------------------------------------------------------------------


def _with_data(change) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((64, 3), np.float32), "w")
    change(weight)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["w", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, (3,))],
        [helper.make_tensor_value_info("y", 1, (64,))],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _external(weight: TensorProto, **entries: str) -> None:
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.dims.__setitem__(0, 65), "take 780 bytes, the data has 768"),
        (lambda w: w.dims.__setitem__(0, -1), "hold a negative extent"),
        (lambda w: w.dims.extend([2**40, 2**40]), "no memory holds the shape"),
        (lambda w: setattr(w, "data_type", 99), "element type 99"),
        (lambda w: setattr(w, "data_type", 14), "complex64 is not supported"),
    ],
    ids=["more", "negative", "huge", "no dtype", "complex"],
)
def test_initializers(change, message: str):
    with pytest.raises(LuminalError, match=message):
        luminal.onnx.load(_with_data(change))(np.ones(3, np.float32))


def test_external_data(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 64 + np.full((64, 3), 2, np.float32).tobytes())

    def load(**entries: str):
        path = tmp_path / "model.onnx"
        onnx.save(_with_data(lambda w: _external(w, **entries)), path)
        return luminal.onnx.load(path)(np.ones(3, np.float32))["y"]

    np.testing.assert_array_equal(load(location="w.bin", offset="64"), np.full(64, 6))
    with pytest.raises(LoadError, match="the entry says 768, the file has 832"):
        load(location="w.bin", offset="65")
    with pytest.raises(LoadError, match=r"'w': 768 bytes at 0 .* the entry says 7,"):
        load(location="w.bin", length="7")
    for location in ("../w.bin", str(tmp_path.parent / "w.bin"), "/etc/hostname", ""):
        with pytest.raises(LoadError, match="outside of the model's folder"):
            load(location=location)
    (tmp_path / "link.bin").symlink_to("/etc/hostname")
    with pytest.raises(LoadError, match="outside of the model's folder"):
        load(location="link.bin")
    with pytest.raises(LoadError, match="the model came without a path"):
        luminal.onnx.load(_with_data(lambda w: _external(w, location="w.bin")))(X[0])


def _mutated(seed: int) -> bytes:
    """A random model with a few bytes changed, taken out or doubled."""
    draw = np.random.default_rng(seed)
    data = bytearray(random_model(seed % 7)[0].SerializeToString())
    for _ in range(int(draw.integers(1, 5))):
        at = int(draw.integers(len(data)))
        match int(draw.integers(3)):
            case 0:
                data[at] = int(draw.integers(256))
            case 1:
                del data[at : at + int(draw.integers(1, 9))]
            case _:
                data[at:at] = data[at : at + int(draw.integers(1, 9))]
    return bytes(data)


def _damaged(seed: int) -> bytes:
    """A random model with nodes, attributes and constants that are not as they should be."""
    draw = np.random.default_rng(seed)
    proto, _ = random_model(seed % 50)
    nodes, constants = proto.graph.node, proto.graph.initializer
    for _ in range(int(draw.integers(1, 4))):
        node = nodes[draw.integers(len(nodes))]
        other = nodes[draw.integers(len(nodes))]
        match int(draw.integers(8)):
            case 0:
                node.op_type = other.op_type
            case 1 if node.input:
                del node.input[-1]
            case 2:
                node.input.append(other.output[0])
            case 3 if node.input:
                node.input[0] = other.output[0]
            case 4 if node.attribute:
                attribute = node.attribute[draw.integers(len(node.attribute))]
                attribute.i = int(draw.integers(-9, 9))
                if attribute.ints:
                    attribute.ints[-1] = int(draw.integers(-9, 9))
            case 5 if node.attribute:
                node.attribute[0].type = int(draw.integers(1, 9))
            case 6 if constants:
                tensor = constants[draw.integers(len(constants))]
                tensor.data_type = int(draw.integers(0, 27))
            case 7 if constants:
                tensor = constants[draw.integers(len(constants))]
                if tensor.data_type == TensorProto.INT64:
                    noise = draw.integers(-9, 9, len(tensor.raw_data) // 8)
                    tensor.raw_data = noise.astype(np.int64).tobytes()
                elif tensor.dims:
                    tensor.dims[0] += 1
    return proto.SerializeToString()


def _survives(seeds: range) -> None:
    """Whatever the model: outputs, or an error of Luminal."""
    for seed in seeds:
        for data, inputs in (
            (_mutated(seed), random_model(seed % 7)[1]),
            (_damaged(seed), random_model(seed % 50)[1]),
        ):
            try:
                luminal.onnx.load(data)(inputs)
            except (LuminalError, MemoryError):
                pass  # it may ask for more memory than there is
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def test_mutations():
    _survives(range(25))


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
def test_more_mutations(block: int):
    _survives(range(100 * (block + 1), 100 * (block + 2)))


@pytest.mark.parametrize("axis", [3, -4, 2**62, -(2**40)])
@pytest.mark.parametrize(
    "node",
    [
        "ReduceMax <axes = [AXIS]> (x)",
        "ReduceSum (x, at)",
        "ReduceLogSumExp <axes = [1, AXIS]> (x)",
        "ArgMax <axis = AXIS> (x)",
        "CumSum (x, at)",
        "Flatten <axis = AXIS> (x)",
        "LayerNormalization <axis = AXIS> (x, one)",
        "OneHot <axis = AXIS> (at, two, pair)",
        "ReverseSequence <time_axis = AXIS> (x, three)",
        "ScatterElements <axis = AXIS> (x, zero, one_one)",
        "Slice (x, nought, at, at)",
        "Split <axis = AXIS> (x, two)",
        "SplitToSequence <axis = AXIS> (x)",
    ],
)
def test_an_axis_beyond_the_rank_is_refused(node: str, axis: int):
    initial = (
        f"<int64[1] at = {{{axis}}}, int64[1] two = {{2}}, int64[1] nought = {{0}}, "
        "int64[1, 1] zero = {0}, float[1] one = {1}, float[1, 1] one_one = {1}, "
        "float[2] pair = {0, 1}, int64[2] three = {1, 1}>"
    )
    with pytest.raises(OnnxError, match=r"axis|dim .* is out of range; the range is"):
        _run(_graph("y = " + node.replace("AXIS", str(axis)), initial=initial), x=X)


def test_every_axis_of_the_rank_is_taken():
    for axis in range(-2, 3):
        if axis < 2:
            found = _run(_graph(f"y = ReduceMax <axes = [{axis}], keepdims = 0> (x)"), x=X)
            assert found["y"].shape == ((3,), (2,))[axis]
        found = _run(_graph(f"y = Flatten <axis = {axis}> (x)"), x=X)
        assert found["y"].shape == ((1, 6), (2, 3), (6, 1))[axis if axis >= 0 else axis + 2]
