"""Luminal: a deep-learning compiler that searches. Lazy graphs, compiled for your machine."""

import importlib

from luminal import linalg, random, special
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
from luminal.frontend.convolution import conv1d, conv2d, conv3d
from luminal.frontend.creation import empty_like, full_like, ones_like, zeros_like
from luminal.frontend.custom import custom_kernel
from luminal.frontend.diagonals import diag, diag_embed, diagflat, diagonal, tril, triu
from luminal.frontend.einsum import einsum
from luminal.frontend.embedding import embedding, embedding_bag, one_hot
from luminal.frontend.indexing import gather, index_select, take, take_along_axis
from luminal.frontend.joining import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_tensors,
    cartesian_prod,
    column_stack,
    dstack,
    hstack,
    meshgrid,
    vstack,
)
from luminal.frontend.linalg import matmul
from luminal.frontend.movement import (
    broadcast_to,
    concat,
    flatten,
    flip,
    fliplr,
    flipud,
    matrix_transpose,
    movedim,
    permute,
    ravel,
    reshape,
    roll,
    rot90,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)
from luminal.frontend.padding import pad
from luminal.frontend.products import (
    addbmm,
    addmm,
    addmv,
    addr,
    baddbmm,
    bmm,
    cdist,
    cross,
    dot,
    inner,
    kron,
    linear,
    matrix_power,
    mm,
    multi_dot,
    mv,
    outer,
    tensordot,
    vdot,
    vecdot,
)
from luminal.frontend.repeating import repeat_interleave, tile
from luminal.frontend.scan import scan
from luminal.frontend.scatter import (
    diagonal_scatter,
    index_add,
    index_copy,
    index_fill,
    index_reduce,
    masked_scatter,
    scatter,
    scatter_add,
    scatter_reduce,
    select_scatter,
    slice_scatter,
)
from luminal.frontend.search import (
    argwhere,
    bucketize,
    nonzero,
    nonzero_static,
    searchsorted,
    unravel_index,
)
from luminal.frontend.sorting import argsort, kthvalue, msort, sort, topk
from luminal.frontend.splitting import (
    chunk,
    dsplit,
    hsplit,
    split,
    tensor_split,
    unbind,
    vsplit,
)
from luminal.frontend.subscript import index_put
from luminal.frontend.tensor import Tensor
from luminal.frontend.transposed import conv_transpose1d, conv_transpose2d, conv_transpose3d
from luminal.frontend.unary import cast as astype
from luminal.hlir.state import Parameter, State
from luminal.jit import jit
from luminal.loaders.state_dict import load
from luminal.loaders.write_gguf import save_gguf
from luminal.loaders.write_safetensors import save_safetensors as save
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode, SearchOptions, TimeBudget
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
    empty,
    execute,
    eye,
    full,
    iota,
    linspace,
    logspace,
    ones,
    read,
    recording,
    require,
    reset,
    tensor,
    tri,
    tril_indices,
    triu_indices,
    weight,
    zeros,
)
from luminal.shape.expression import Expression

GraphTensor = Tensor

# the array API's names
concatenate = cat = concat
permute_dims = permute
expand_dims = unsqueeze
moveaxis = movedim
swapaxes = transpose
broadcast_arrays = broadcast_tensors
unstack = unbind
repeat = repeat_interleave

__all__ = [
    "CompilationMode",
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
    "astype",
    "where",
    "concat",
    "stack",
    "maximum",
    "minimum",
    "matmul",
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "cdist",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross",
    "custom_kernel",
    "dot",
    "einsum",
    "inner",
    "kron",
    "linear",
    "matrix_power",
    "mm",
    "multi_dot",
    "mv",
    "outer",
    "tensordot",
    "vdot",
    "vecdot",
    "scan",
    "linalg",
    "random",
    # movement
    "reshape",
    "flatten",
    "ravel",
    "permute",
    "permute_dims",
    "transpose",
    "swapaxes",
    "matrix_transpose",
    "movedim",
    "moveaxis",
    "broadcast_to",
    "broadcast_tensors",
    "broadcast_arrays",
    "squeeze",
    "unsqueeze",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "roll",
    "rot90",
    "pad",
    "repeat",
    "repeat_interleave",
    "tile",
    "tril",
    "triu",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "cat",
    "concatenate",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "block_diag",
    "cartesian_prod",
    "meshgrid",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "split",
    "chunk",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "unbind",
    "unstack",
    # indexing, searching, sorting
    "gather",
    "take",
    "take_along_axis",
    "index_select",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "masked_scatter",
    "slice_scatter",
    "select_scatter",
    "diagonal_scatter",
    "embedding",
    "embedding_bag",
    "one_hot",
    "searchsorted",
    "bucketize",
    "nonzero",
    "nonzero_static",
    "argwhere",
    "unravel_index",
    "sort",
    "argsort",
    "msort",
    "topk",
    "kthvalue",
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
    # more functions
    "special",
]
__all__ += array_api.__all__  # the rest of the array API's functions


def __getattr__(name: str) -> object:
    if name in ("nn", "models"):  # late: models bring tokenizers and file formats
        return importlib.import_module(f"luminal.{name}")
    raise AttributeError(f"module 'luminal' has no attribute {name!r}")
