"""Luminal: a deep-learning compiler that searches. Lazy graphs, compiled for your machine."""

from math import e, inf, nan, pi
from typing import TYPE_CHECKING

from luminal import functions, linalg, random, special
from luminal.autograd.checkpoint import checkpoint
from luminal.autograd.jacobians import hessian, jacfwd, jacrev
from luminal.autograd.transforms import (
    custom_vjp,
    grad,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
)
from luminal.autograd.vmap import vmap
from luminal.base import lazy
from luminal.base.complex_dtypes import complex64, complex128
from luminal.base.dtypes import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
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
from luminal.base.errors import (
    CompileError,
    DeviceError,
    DimError,
    DTypeBoundaryError,
    DTypeError,
    GraphError,
    InputError,
    LoadError,
    LuminalError,
    ShapeError,
    VerifyError,
)
from luminal.base.generator import initial_seed, manual_seed
from luminal.base.installation import VERSION as __version__
from luminal.frontend import foreign
from luminal.frontend.complex.making import complex_ as complex
from luminal.frontend.complex.making import imag, polar, view_as_complex, view_as_real
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.conversion import can_cast, finfo, iinfo, promote_types, result_type
from luminal.frontend.creation import empty_like, full_like, ones_like, zeros_like
from luminal.frontend.custom import custom_kernel
from luminal.frontend.pointwise.derivatives import enable_grad, no_grad
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.functions import *  # noqa: F403
from luminal.loaders.state_dict import load
from luminal.loaders.write_safetensors import save_safetensors as save
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.runtime.executable import Executable
from luminal.runtime.run import Run
from luminal.search.options import CompilationMode, SearchOptions, TimeBudget
from luminal.session import older
from luminal.session.default_graph import (
    arange,
    assign,
    constant,
    dim,
    empty,
    eye,
    full,
    iota,
    linspace,
    logspace,
    ones,
    read,
    require,
    tensor,
    tri,
    tril_indices,
    triu_indices,
    weight,
    zeros,
)
from luminal.session.device_choice import device, devices
from luminal.session.eager import default_graph, execute, recording, reset
from luminal.session.exchange import as_tensor, asarray, from_dlpack, from_numpy, to_dlpack
from luminal.session.graph import Graph, compile, compile_count
from luminal.session.jit import jit
from luminal.session.seeded import (
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)
from luminal.shape.expression import Expression

if TYPE_CHECKING:
    from luminal import array_api, distributed, distributions, fft
    from luminal.array_api import bitwise_invert, cumulative_prod, cumulative_sum
    from luminal.distribute.mesh import Mesh
    from luminal.exported import load_exported
    from luminal.loaders.write_gguf import save_gguf
    from luminal.nn.quantization import quantize
    from luminal.session.parallel import shard
    from luminal.session.spmd import (
        all_gather,
        all_reduce,
        all_to_all,
        permute_ranks,
        rank_along,
        reduce_scatter,
        spmd,
    )
    from luminal.training.amp import autocast

GraphTensor = Tensor
inference_mode = no_grad
newaxis = None

__all__ = [
    "__version__",
    "CompilationMode",
    "Run",
    "SearchOptions",
    "TimeBudget",
    # graphs and running them
    "Graph",
    "Tensor",
    "GraphTensor",
    "Executable",
    "Expression",
    "State",
    "Parameter",
    "Mesh",
    "shard",
    "spmd",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "permute_ranks",
    "rank_along",
    "reduce_scatter",
    "compile",
    "compile_count",
    "jit",
    "device",
    "devices",
    # derivatives
    "grad",
    "value_and_grad",
    "vjp",
    "jvp",
    "jacrev",
    "jacfwd",
    "hessian",
    "vmap",
    "custom_vjp",
    "stop_gradient",
    "checkpoint",
    "autocast",
    "no_grad",
    "enable_grad",
    "inference_mode",
    # random data
    "manual_seed",
    "initial_seed",
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    # arrays of other libraries
    "as_tensor",
    "asarray",
    "from_dlpack",
    "from_numpy",
    "to_dlpack",
    # files
    "quantize",
    "save",
    "save_gguf",
    "load",
    "load_exported",
    # the default graph
    "default_graph",
    "recording",
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
    "empty",
    "linspace",
    "logspace",
    "tri",
    "tril_indices",
    "triu_indices",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    # what is written here beside the functions of the table of names
    "array_api",
    "distributed",
    "distributions",
    "fft",
    "bitwise_invert",
    "cumulative_prod",
    "cumulative_sum",
    "custom_kernel",
    "scan",
    "linalg",
    "random",
    "special",
    # complex numbers
    "ComplexTensor",
    "complex",
    "complex64",
    "complex128",
    "imag",
    "polar",
    "view_as_complex",
    "view_as_real",
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
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "can_cast",
    "finfo",
    "iinfo",
    "promote_types",
    "result_type",
    # numbers
    "e",
    "inf",
    "nan",
    "newaxis",
    "pi",
    # errors
    "LuminalError",
    "CompileError",
    "DeviceError",
    "DTypeBoundaryError",
    "DTypeError",
    "DimError",
    "GraphError",
    "InputError",
    "LoadError",
    "ShapeError",
    "VerifyError",
]
__all__ += functions.__all__


_LATE = {
    "Mesh": "luminal.distribute.mesh:Mesh",
    "all_gather": "luminal.session.spmd:all_gather",
    "all_reduce": "luminal.session.spmd:all_reduce",
    "all_to_all": "luminal.session.spmd:all_to_all",
    "array_api": "luminal.array_api",
    "autocast": "luminal.training.amp:autocast",
    "bitwise_invert": "luminal.array_api:bitwise_invert",
    "cumulative_prod": "luminal.array_api:cumulative_prod",
    "cumulative_sum": "luminal.array_api:cumulative_sum",
    "distributed": "luminal.distributed",
    "load_exported": "luminal.exported:load_exported",
    "distributions": "luminal.distributions",
    "fft": "luminal.fft",
    "luminal_backend": "luminal.torch_backend:luminal_backend",  # for `torch.compile`
    "models": "luminal.models",
    "nn": "luminal.nn",
    "onnx": "luminal.onnx",
    "optim": "luminal.optim",
    "permute_ranks": "luminal.session.spmd:permute_ranks",
    "pt2": "luminal.pt2",
    "quantize": "luminal.nn.quantization:quantize",
    "rank_along": "luminal.session.spmd:rank_along",
    "reduce_scatter": "luminal.session.spmd:reduce_scatter",
    "save_gguf": "luminal.loaders.write_gguf:save_gguf",
    "shard": "luminal.session.parallel:shard",
    "spmd": "luminal.session.spmd:spmd",
    "training": "luminal.training",
}


def __getattr__(name: str) -> object:
    if name in _LATE:
        return lazy.found(_LATE[name])
    if name in foreign.DTYPES:
        return foreign.DTYPES[name]
    if name in older.CONSTRUCTORS:
        return older.constructor(name)
    raise foreign.absent("luminal", name, lambda known: False)
