"""A model as it was given: its graph, its functions, its initializers as Parameters."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, ModelProto, TensorProto, ValueInfoProto

from luminal.errors import LoadError
from luminal.hlir.state import Parameter
from luminal.loaders.mapped import given_path, map_file
from luminal.onnx.errors import OnnxError
from luminal.onnx.tensor_proto import ExternalFiles, array_of_tensor
from luminal.onnx.values import NARROW_NUMBERS, codes_of

Array = np.ndarray[Any, Any]

MAX_CONSTANT = 64
"""Elements of an initializer that the compiler sees as a literal; larger ones are Weights."""

OPSETS = {"ai.onnx": ""}


def plain(domain: str) -> str:
    """The domain by its one name: ONNX's own has two."""
    return OPSETS.get(domain, domain)


class Source:
    """A ModelProto, checked, with what its graphs refer to by name."""

    def __init__(self, proto: ModelProto, folder: Path | None, name: str) -> None:
        self.name = name
        self.proto = proto
        self.graph = proto.graph
        self.opsets = {plain(each.domain): each.version for each in proto.opset_import}
        if not proto.HasField("graph"):
            raise LoadError(f"{name}: not an ONNX model: it has no graph")
        if not self.opsets:
            raise LoadError(f"{name}: the model imports no operator set; the file is damaged")
        self.functions: dict[tuple[str, str], FunctionProto] = {
            (plain(each.domain), each.name): each for each in proto.functions
        }
        self._files = ExternalFiles(folder)
        self._parameters: dict[str, Parameter] = {}
        self._arrays: dict[str, Array] = {}
        self.initializers = {tensor.name for tensor in self.graph.initializer}
        initial = self.initializers | {t.values.name for t in self.graph.sparse_initializer}
        self.inputs: list[ValueInfoProto] = [
            each for each in self.graph.input if each.name not in initial
        ]
        self.outputs = [each.name for each in self.graph.output]

    @classmethod
    def of(cls, model: str | Path | bytes | ModelProto) -> Source:
        """A model from a path, its bytes, or as a message. Raises LoadError for anything else."""
        if isinstance(model, ModelProto):
            return cls(model, None, model.graph.name or "model")
        if isinstance(model, bytes):
            return cls(_parsed(model, "the model"), None, "model")
        if not isinstance(model, str | Path):
            raise LoadError(
                f"onnx.load: takes a path, bytes or a ModelProto, got a {type(model).__name__}"
            )
        path = given_path(model)
        return cls(_parsed(map_file(path), str(path)), path.parent, path.name)

    def array(self, tensor: TensorProto) -> Array:
        """The elements of a tensor of the model; of its initializers once."""
        return array_of_tensor(tensor, self._files, f"{self.name}: tensor {tensor.name!r}")

    def parameter(self, key: str, array: Array, name: str) -> Parameter:
        """The Parameter that holds a large constant of the model: the array itself, no copy."""
        found = self._parameters.get(key)
        if found is None:
            array.flags.writeable = False
            found = self._parameters[key] = Parameter(array.shape, array.dtype, name)
            found.set(array)
        return found

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Every Parameter that was needed till now, by name."""
        return {parameter.name: parameter for parameter in self._parameters.values()}


def _parsed(data: Any, name: str) -> Any:
    try:
        return ModelProto.FromString(bytes(data))
    except DecodeError as error:
        raise LoadError(f"{name}: truncated or not an ONNX model: {error}") from None


def content_key(array: Array) -> str:
    """What tells large constants without a name of their own apart: their content."""
    digest = hashlib.blake2b(np.ascontiguousarray(array).data.cast("B"), digest_size=16).hexdigest()
    return f"{array.dtype}{list(array.shape)} {digest}"


def stored(array: Array) -> Array:
    """The array that is put into a graph: codes for narrow dtypes."""
    return codes_of(array) if array.dtype in NARROW_NUMBERS else array


def sparse_array(source: Source, sparse: Any) -> Array:
    """A SparseTensorProto as a dense array. Raises OnnxError for indices out of range."""
    values, places = source.array(sparse.values), source.array(sparse.indices)
    shape = tuple(sparse.dims)
    dense = np.zeros(shape, values.dtype)
    try:
        if places.ndim == 1:
            dense.reshape(-1)[places] = values
        else:
            dense[tuple(places.T)] = values
    except IndexError as error:
        raise OnnxError(f"sparse tensor {sparse.values.name!r}: {error}") from None
    return dense
