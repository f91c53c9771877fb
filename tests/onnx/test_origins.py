"""What values of a model say they come from: modules, operators and lines that exporters wrote."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from luminal import onnx
from luminal.base.lines import Recorded

SCOPES = {
    "pkg.torch.onnx.name_scopes": "['', 'blocks', 'blocks.3', 'blocks.3.act', 'sin_7']",
    "pkg.torch.onnx.class_hierarchy": "['net.Net', 'torch.nn.ModuleList', 'net.Block', "
    "'torch.nn.modules.act.Sine', 'aten.sin.default']",
    "pkg.torch.onnx.stack_trace": 'File "/home/net.py", line 12, in forward\n    return f(x)\n'
    '  File "/lib/torch/nn/modules/act.py", line 9, in forward\n    return torch.sin(x)\n',
}


def sine(name: str, told: dict[str, str] | None = None) -> NodeProto:
    node = helper.make_node("Sin", ["x"], ["y"], name=name)
    for key, value in (told or {}).items():
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    return node


def model(*nodes: NodeProto) -> ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph([*nodes], "small", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def origins(proto: ModelProto) -> list[Recorded]:
    """Of the values that nodes make."""
    program = onnx.load(proto).compile(backend="reference")
    program({"x": np.ones(4, np.float32)})
    (executable,) = program.executables()
    nodes = executable.graph.nodes()
    return [node.recorded for node in nodes if node.args and node.recorded is not None]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/Sin_3", "Sin_3 at test_origins.py"),
        ("", "Sin at test_origins.py"),
        ("node_5", "Sin node_5 at test_origins.py"),
        ("/blocks/blocks.3/act/Sin", "Sin in blocks.3.act (ONNX) at test_origins.py"),
        ("/net/blocks/blocks.3/Sin", "Sin in net.blocks.3 (ONNX) at test_origins.py"),
        ("a b/\n/Sin", "Sin in a b.\\n (ONNX) at test_origins.py"),
    ],
)
def test_names_say_which_module_and_operator(name: str, said: str) -> None:
    (recorded,) = origins(model(sine(name)))
    assert str(recorded).rpartition(":")[0] == said


def test_what_torch_export_writes_is_read() -> None:
    (recorded,) = origins(model(sine("node_Sin_4", SCOPES)))
    assert str(recorded) == "sin_7 in blocks.3.act (Sine) at net.py:12"


@pytest.mark.parametrize("text", ["[", "__import__('os')", "[1]", "(" * 10_000, "{}"])
def test_what_nobody_can_read_counts_for_nothing(text: str) -> None:
    (recorded,) = origins(model(sine("/a/Sin", dict.fromkeys(SCOPES, text))))
    assert str(recorded).startswith("Sin in a (ONNX) at test_origins.py")


def test_operators_that_others_define_are_these_operators() -> None:
    """Softplus is a function of nodes without names."""
    node = helper.make_node("Softplus", ["x"], ["y"], name="/up/Softplus")
    assert {(r.call, r.module) for r in origins(model(node))} == {("Softplus", "up (ONNX)")}
