"""A model as it was given: its graph, its functions, its initializers as Parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, ModelProto, TensorProto, ValueInfoProto, defs

from luminal.base.errors import LoadError
from luminal.loaders.mapped import given_path, map_file
from luminal.memory.parameter import Parameter
from luminal.onnx.budget import check_table
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.names import check_names, count_nodes
from luminal.onnx.tensor_proto import ExternalFiles, array_of_tensor
from luminal.onnx.values import NARROW_NUMBERS, codes_of
from luminal.onnx.wire import without_data

Array = np.ndarray[Any, Any]

MAX_CONSTANT = 64
"""Elements of an initializer that the compiler sees as a literal; larger ones are Weights."""

OPSETS = {"ai.onnx": ""}


def plain(domain: str) -> str:
    """The domain by its one name: ONNX's own has two."""
    return OPSETS.get(domain, domain)


class Constant(NamedTuple):
    """A large constant: its Parameter, and the number of a narrow dtype whose codes that holds."""

    parameter: Parameter
    number: int | None


# Large constants become Parameters: what programs derive from them is made once, and a piece that
# is translated again finds the same ones.
class Source:
    """A ModelProto, checked, with what its graphs refer to by name."""

    def __init__(
        self,
        proto: ModelProto,
        folder: Path | None,
        name: str,
        mapped: Mapping[int, memoryview] | None = None,
    ) -> None:
        self.name = name
        self.nodes = count_nodes(proto)
        self._size: int = proto.ByteSize() + sum(map(len, (mapped or {}).values()))
        self.proto = proto
        self.graph = proto.graph
        self.opsets = {plain(entry.domain): entry.version for entry in proto.opset_import}
        if not proto.HasField("graph"):
            raise LoadError(f"{name}: not an ONNX model: it has no graph")
        if not self.opsets:
            raise LoadError(f"{name}: the model imports no operator set; the file is damaged")
        check_names(proto, name)
        newest = defs.onnx_opset_version()
        if self.opsets.get("", 0) > newest:
            raise UnsupportedError(
                f"{name}: operator set {self.opsets['']} of ai.onnx; the newest that is known "
                f"is {newest}"
            )
        self.functions: dict[tuple[str, str], FunctionProto] = {
            (plain(entry.domain), entry.name): entry for entry in proto.functions
        }
        self._files = ExternalFiles(folder)
        self._constants: dict[str, Constant] = {}
        self._owns_proto = mapped is not None  # is the message nobody else's?
        self._mapped = {
            proto.graph.initializer[number].name: data for number, data in (mapped or {}).items()
        }
        self.initializers = {tensor.name for tensor in self.graph.initializer}
        initial = self.initializers | {t.values.name for t in self.graph.sparse_initializer}
        self.inputs: list[ValueInfoProto] = [
            entry for entry in self.graph.input if entry.name not in initial
        ]
        self.outputs = [entry.name for entry in self.graph.output]

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
        data = map_file(path)
        message, mapped = without_data(data)
        proto = _parsed(message, str(path))
        return cls(proto, path.parent, path.name, mapped)

    @property
    def size(self) -> int:
        """Bytes of the model, with those of the files beside it that were read till now."""
        return self._size + self._files.size

    def array(self, tensor: TensorProto, data: memoryview | None = None) -> Array:
        """The elements of a tensor of the model, whose `data` may lie outside of the message."""
        what = f"{self.name}: tensor {tensor.name!r}"
        return array_of_tensor(tensor, self._files, what, data)

    def initializer(self, tensor: TensorProto) -> Array | Constant:
        """An initializer of the main graph; a large one is a Constant, which is read once."""
        constant = self._constants.get(tensor.name)
        if constant is not None:
            return constant
        array = self.array(tensor, self._mapped.get(tensor.name))
        if array.dtype == object or array.size <= MAX_CONSTANT:
            return array
        fresh = self.constant(tensor.name, array, tensor.name)
        if self._owns_proto:
            tensor.ClearField("raw_data")  # the Constant holds it
        return fresh

    def constant(self, key: str, array: Array, name: str) -> Constant:
        """A large constant of the model, held by a Parameter: the array itself, no copy."""
        constant = self._constants.get(key)
        if constant is None:
            codes = stored(array)
            codes.flags.writeable = False
            parameter = Parameter(codes.shape, codes.dtype, name)
            parameter.set(codes)
            constant = Constant(parameter, NARROW_NUMBERS.get(array.dtype))
            self._constants[key] = constant
        return constant

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Every Parameter that was needed till now, by name."""
        return {
            constant.parameter.name: constant.parameter for constant in self._constants.values()
        }


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
    check_table(*shape)
    dense = np.zeros(shape, values.dtype)
    try:
        if places.ndim == 1:
            dense.reshape(-1)[places] = values
        else:
            dense[tuple(places.T)] = values
    except IndexError as error:
        raise OnnxError(f"sparse tensor {sparse.values.name!r}: {error}") from None
    return dense
