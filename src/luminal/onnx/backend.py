"""The interface that ONNX's own tools call a runtime through (`onnx.backend.base`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend as Base
from onnx.backend.base import BackendRep, Device, DeviceType, namedtupledict

from luminal.onnx.model import Model, load


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs in order, or a mapping of names; a tuple with fields by name."""
        arguments = (inputs,) if isinstance(inputs, dict) else tuple(inputs)
        outputs = self.model(*arguments)
        # ONNX's own test tools read outputs by position and by name.
        return namedtupledict("Outputs", list(outputs))(*outputs.values())


class Backend(Base):
    """`Backend.run_model(model, inputs)`; prepared models run on the CPU."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Always: what is not supported is an error that says so."""
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """A model that can be run many times."""
        return Prepared(load(model))

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepares and runs a model once."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node on arrays, in the newest operator set or `opset_version`."""
        import numpy as np

        arrays = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(names, arrays, strict=True)
            ],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        version = kwargs.get("opset_version")
        imports = [helper.make_opsetid(node.domain, version)] if version else None
        model = helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> Any:
        """Only the CPU is supported."""
        return bool(Device(device).type == DeviceType.CPU)
