"""Luminal: a deep-learning compiler that searches. Lazy graphs, compiled for your machine."""

import importlib

from luminal import random
from luminal.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from luminal.errors import (
    CompileError,
    DimError,
    DTypeError,
    GraphError,
    InputError,
    LoadError,
    LuminalError,
    ShapeError,
    VerifyError,
)
from luminal.frontend import array_api
from luminal.frontend.array_api import *  # noqa: F403
from luminal.frontend.binary import maximum, minimum, where
from luminal.frontend.linalg import matmul
from luminal.frontend.movement import concat, stack
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import Parameter, State
from luminal.jit import jit
from luminal.loaders.state_dict import load
from luminal.loaders.write_gguf import save_gguf
from luminal.loaders.write_safetensors import save_safetensors as save
from luminal.runtime.executable import Executable
from luminal.session import (
    Graph,
    arange,
    assign,
    compile,
    compile_count,
    constant,
    default_graph,
    devices,
    dim,
    execute,
    eye,
    full,
    iota,
    ones,
    read,
    require,
    reset,
    tensor,
    weight,
    zeros,
)
from luminal.shape.expression import Expression

GraphTensor = Tensor

__all__ = [
    # graphs and running them
    "Graph",
    "Tensor",
    "GraphTensor",
    "Executable",
    "Expression",
    "State",
    "Parameter",
    "compile",
    "compile_count",
    "jit",
    "devices",
    # files
    "save",
    "save_gguf",
    "load",
    # the default graph
    "default_graph",
    "tensor",
    "weight",
    "read",
    "assign",
    "dim",
    "require",
    "execute",
    "reset",
    # tensors from nothing, and functions of several tensors
    "constant",
    "arange",
    "iota",
    "zeros",
    "ones",
    "full",
    "eye",
    "where",
    "concat",
    "stack",
    "maximum",
    "minimum",
    "matmul",
    "scan",
    "random",
    # dtypes
    "DType",
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    # errors
    "LuminalError",
    "CompileError",
    "DTypeError",
    "DimError",
    "GraphError",
    "InputError",
    "LoadError",
    "ShapeError",
    "VerifyError",
]
__all__ += array_api.__all__  # the rest of the array API's functions


def __getattr__(name: str) -> object:
    if name in ("nn", "models"):  # late: models bring tokenizers and file formats
        return importlib.import_module(f"luminal.{name}")
    raise AttributeError(f"module 'luminal' has no attribute {name!r}")
