"""PyTorch's functions of tensors: `torch.f` as `lm.f`.

Where torch.Tensor has the method too, `lm.f` is `Tensor.f`. What torch.nn.functional has (norms,
embedding, pooling) is called as there. `luminal.array_api` has the names of the array API
standard in the standard's own sense. Tests walk over PyTorch's names.
"""

from __future__ import annotations

from typing import Any

from luminal.frontend import conversion
from luminal.frontend.handle import is_tensor
from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.matrices import (
    decompositions,
    functions,
    matrix_norms,
    products,
)
from luminal.frontend.matrices import einsum as einsums
from luminal.frontend.matrices import (
    matmul as linalg,
)
from luminal.frontend.movement import embedding as tables
from luminal.frontend.movement import indexing, joining, padding, subscript, views
from luminal.frontend.movement import scatter as writing
from luminal.frontend.movement.subscript import index_put
from luminal.frontend.names import older_linalg, shaped_norms
from luminal.frontend.pointwise import (
    activation,
    binary,
    combine,
    exponential,
    gamma,
    rounding,
    special,
    trigonometric,
    unary,
)
from luminal.frontend.random import drawing
from luminal.frontend.random import drawing as dropouts
from luminal.frontend.reduce import (
    cumulative,
    normalization,
    norms,
    reduce,
    searching,
    sorting,
    statistics,
)
from luminal.frontend.windows import convolution, pooling, windows

# --- by element -----------------------------------------------------------------------------------

exp = unary.exp
exp2 = unary.exp2
log = unary.log
log2 = unary.log2
sqrt = unary.sqrt
rsqrt = unary.rsqrt
reciprocal = unary.reciprocal
sin = unary.sin
cos = unary.cos
abs = absolute = unary.abs
neg = negative = unary.neg
sign = sgn = unary.sign
signbit = unary.signbit
square = unary.square
isnan = unary.isnan
isinf = unary.isinf
isposinf = unary.isposinf
isneginf = unary.isneginf
isfinite = unary.isfinite
nan_to_num = unary.nan_to_num
logical_not = unary.logical_not
bitwise_not = unary.invert
detach = unary.stop_gradient
expm1 = exponential.expm1
log1p = exponential.log1p
log10 = exponential.log10
sigmoid = exponential.sigmoid
logit = exponential.logit
logaddexp = exponential.logaddexp
logaddexp2 = exponential.logaddexp2
xlogy = exponential.xlogy
hypot = unary.hypot
tan = trigonometric.tan
asin = arcsin = trigonometric.asin
acos = arccos = trigonometric.acos
atan = arctan = trigonometric.atan
atan2 = arctan2 = trigonometric.atan2
sinc = trigonometric.sinc
deg2rad = trigonometric.deg2rad
rad2deg = trigonometric.rad2deg
sinh = trigonometric.sinh
cosh = trigonometric.cosh
tanh = trigonometric.tanh
asinh = arcsinh = trigonometric.asinh
acosh = arccosh = trigonometric.acosh
atanh = arctanh = trigonometric.atanh
erf = special.erf
erfc = special.erfc
erfinv = special.erfinv
lgamma = gamma.lgamma
digamma = gamma.digamma
mvlgamma = gamma.mvlgamma
frexp = rounding.frexp
ldexp = rounding.ldexp
nextafter = rounding.nextafter
floor = rounding.floor
ceil = rounding.ceil
round = rounding.round
trunc = fix = rounding.trunc
frac = rounding.frac
fmod = rounding.fmod
remainder = rounding.remainder
relu = activation.relu
prelu = activation.prelu
selu = activation.selu
celu = activation.celu
hardshrink = activation.hardshrink
threshold = activation.threshold

# --- of several tensors ---------------------------------------------------------------------------

add = binary.add
sub = subtract = binary.sub
mul = multiply = binary.mul
div = divide = combine.divide
true_divide = binary.div
floor_divide = binary.floor_div
pow = binary.pow
maximum = binary.maximum
minimum = binary.minimum
clip = clamp = binary.clip
clamp_min = binary.clamp_min
clamp_max = binary.clamp_max
eq = binary.equal
ne = not_equal = binary.not_equal
lt = less = binary.less
le = less_equal = binary.less_equal
gt = greater = binary.greater
ge = greater_equal = binary.greater_equal
bitwise_and = binary.bit_and
bitwise_or = binary.bit_or
bitwise_xor = binary.bit_xor
bitwise_left_shift = binary.shift_left
bitwise_right_shift = binary.shift_right


def where(condition: Any, *operands: Any) -> Any:
    """`where(condition, a, b)`; of a condition alone `nonzero(condition, as_tuple=True)`."""
    return binary.where(condition, *operands) if operands else searching.nonzero(condition, True)


fmax = combine.fmax
fmin = combine.fmin
float_power = combine.float_power
rsub = combine.rsub
isclose = combine.isclose
allclose = combine.allclose
logical_and = combine.logical_and
logical_or = combine.logical_or
logical_xor = combine.logical_xor
copysign = combine.copysign
heaviside = combine.heaviside
lerp = combine.lerp
addcmul = combine.addcmul
addcdiv = combine.addcdiv
masked_fill = combine.masked_fill
gcd = combine.gcd
lcm = combine.lcm
isin = searching.isin
equal = conversion.equal

# --- reductions, running sums, orders -------------------------------------------------------------

sum = reduce.sum
nansum = reduce.nansum
prod = reduce.prod
count_nonzero = reduce.count_nonzero
max = reduce.max
min = reduce.min
amax = reduce.amax
amin = reduce.amin
aminmax = reduce.aminmax
argmax = reduce.argmax
argmin = reduce.argmin
any = reduce.any
all = reduce.all
mean = statistics.mean
nanmean = statistics.nanmean
var = statistics.var
std = statistics.std
var_mean = statistics.var_mean
std_mean = statistics.std_mean
median = statistics.median
nanmedian = statistics.nanmedian
quantile = statistics.quantile
nanquantile = statistics.nanquantile
norm = matrix_norms.norm
renorm = matrix_norms.renorm
dist = norms.dist
diff = statistics.diff
trapezoid = trapz = statistics.trapezoid
cumulative_trapezoid = statistics.cumulative_trapezoid
cov = statistics.cov
corrcoef = statistics.corrcoef
softmax = normalization.softmax
log_softmax = normalization.log_softmax
logsumexp = normalization.logsumexp
layer_norm = shaped_norms.layer_norm
rms_norm = shaped_norms.rms_norm
group_norm = normalization.group_norm
instance_norm = normalization.instance_norm
batch_norm = normalization.batch_norm
cumsum = cumulative.cumsum
cumprod = cumulative.cumprod
cummax = cumulative.cummax
cummin = cumulative.cummin
logcumsumexp = cumulative.logcumsumexp
sort = sorting.sort
argsort = sorting.argsort
msort = sorting.msort
topk = sorting.topk
kthvalue = sorting.kthvalue
mode = sorting.mode

# --- movement -------------------------------------------------------------------------------------

reshape = views.reshape
flatten = views.flatten
ravel = views.ravel
unflatten = views.unflatten
permute = views.permute
transpose = swapaxes = swapdims = views.transpose
movedim = moveaxis = views.movedim
t = views.t
as_strided = views.as_strided
as_strided_scatter = subscript.as_strided_scatter
broadcast_to = views.broadcast_to
squeeze = views.squeeze
unsqueeze = views.unsqueeze
narrow = narrow_copy = views.narrow
select = views.select
flip = views.flip
fliplr = views.fliplr
flipud = views.flipud
roll = views.roll
rot90 = views.rot90
cat = concat = concatenate = views.concat
stack = views.stack
split = split_with_sizes = unsafe_split = unsafe_split_with_sizes = joining.split
chunk = unsafe_chunk = joining.chunk
tensor_split = joining.tensor_split
hsplit = joining.hsplit
vsplit = joining.vsplit
dsplit = joining.dsplit
unbind = joining.unbind
repeat = joining.repeat
tile = joining.tile
repeat_interleave = joining.repeat_interleave
tril = padding.tril
triu = padding.triu
diagonal = padding.diagonal
diag = padding.diag
diag_embed = padding.diag_embed
diagflat = padding.diagflat
atleast_1d = joining.atleast_1d
atleast_2d = joining.atleast_2d
atleast_3d = joining.atleast_3d
block_diag = joining.block_diag
broadcast_tensors = joining.broadcast_tensors
cartesian_prod = joining.cartesian_prod
combinations = searching.combinations
column_stack = joining.column_stack
dstack = joining.dstack
hstack = joining.hstack
meshgrid = joining.meshgrid
vstack = row_stack = joining.vstack

# --- positions ------------------------------------------------------------------------------------

gather = indexing.gather
take = indexing.take
index_select = indexing.index_select
take_along_dim = indexing.take_along_axis
scatter = writing.scatter
scatter_add = writing.scatter_add
scatter_reduce = writing.scatter_reduce
index_add = writing.index_add
index_copy = writing.index_copy
index_fill = writing.index_fill
index_reduce = writing.index_reduce
slice_scatter = writing.slice_scatter
select_scatter = writing.select_scatter
diagonal_scatter = writing.diagonal_scatter
masked_scatter = writing.masked_scatter
put = writing.put
embedding = tables.embedding
embedding_bag = tables.embedding_bag
bucketize = searching.bucketize
searchsorted = searching.searchsorted
nonzero = searching.nonzero
nonzero_static = searching.nonzero_static
argwhere = searching.argwhere
masked_select = searching.masked_select
unique = searching.unique
unique_consecutive = searching.unique_consecutive
unravel_index = searching.unravel_index
bincount = searching.bincount
histc = searching.histc
histogram = searching.histogram

# --- products, windows ----------------------------------------------------------------------------

matmul = linalg.matmul
dot = products.dot
vdot = products.vdot
inner = products.inner
outer = ger = products.outer
cross = products.cross
mv = products.mv
mm = products.mm
bmm = products.bmm
addmv = products.addmv
addmm = products.addmm
baddbmm = products.baddbmm
addbmm = products.addbmm
addr = products.addr
matrix_power = products.matrix_power
multi_dot = products.multi_dot
trace = products.trace
kron = products.kron
tensordot = products.tensordot
cdist = products.cdist
pdist = products.pdist
bilinear = products.bilinear
einsum = einsums.einsum
conv1d = convolution.conv1d
conv2d = convolution.conv2d
conv3d = convolution.conv3d
conv_transpose1d = convolution.conv_transpose1d
conv_transpose2d = convolution.conv_transpose2d
conv_transpose3d = convolution.conv_transpose3d
max_pool1d = pooling.max_pool1d
max_pool2d = pooling.max_pool2d
max_pool3d = pooling.max_pool3d
avg_pool1d = pooling.avg_pool1d
adaptive_avg_pool1d = pooling.adaptive_avg_pool1d
adaptive_max_pool1d = pooling.adaptive_max_pool1d
pixel_shuffle = windows.pixel_shuffle
pixel_unshuffle = windows.pixel_unshuffle
channel_shuffle = windows.channel_shuffle
dropout = dropouts.dropout
alpha_dropout = dropouts.alpha_dropout
feature_alpha_dropout = dropouts.feature_alpha_dropout
bernoulli = drawing.bernoulli
multinomial = drawing.multinomial
rrelu = drawing.rrelu

# --- linear algebra -------------------------------------------------------------------------------

det = decompositions.det
logdet = functions.logdet
slogdet = decompositions.slogdet
inv = inverse = decompositions.inv
solve = decompositions.solve
cholesky = older_linalg.cholesky
cholesky_inverse = functions.cholesky_inverse
cholesky_solve = functions.cholesky_solve
qr = older_linalg.qr
svd = older_linalg.svd
pinverse = functions.pinverse
matrix_exp = decompositions.matrix_exp
triangular_solve = functions.triangular_solve
lu_solve = older_linalg.lu_solve
lu_unpack = functions.lu_unpack
chain_matmul = older_linalg.chain_matmul
vander = older_linalg.vander

# --- what is known of a tensor, and what does nothing ---------------------------------------------

is_complex = conversion.is_complex
is_floating_point = conversion.is_floating_point
is_same_size = conversion.is_same_size
is_signed = conversion.is_signed
isreal = conversion.isreal
angle = conversion.angle
numel = conversion.numel
clone = positive = real = conj = conj_physical = resolve_conj = resolve_neg = conversion.real
adjoint = views.matrix_transpose

# fmt: off
__all__ = [
    "abs", "absolute", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_max_pool1d", "add",
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint", "all", "allclose",
    "alpha_dropout", "amax", "amin", "aminmax", "angle", "any", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere",
    "as_strided", "as_strided_scatter", "asin", "asinh", "atan", "atan2", "atanh", "atleast_1d",
    "atleast_2d", "atleast_3d", "avg_pool1d", "baddbmm", "batch_norm", "bernoulli", "bilinear",
    "bincount", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "block_diag", "bmm", "broadcast_tensors",
    "broadcast_to", "bucketize", "cartesian_prod", "cat", "cdist", "ceil", "celu", "chain_matmul",
    "channel_shuffle", "cholesky", "cholesky_inverse", "cholesky_solve", "chunk", "clamp",
    "clamp_max", "clamp_min", "clip", "clone", "column_stack", "combinations", "concat",
    "concatenate", "conj", "conj_physical", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "copysign", "corrcoef", "cos", "cosh",
    "count_nonzero", "cov", "cross", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "deg2rad", "det", "detach", "diag", "diag_embed", "diagflat",
    "diagonal", "diagonal_scatter", "diff", "digamma", "dist", "div", "divide", "dot", "dropout",
    "dsplit", "dstack", "einsum", "embedding", "embedding_bag", "eq", "equal", "erf", "erfc",
    "erfinv", "exp", "exp2", "expm1", "feature_alpha_dropout", "fix", "flatten", "flip", "fliplr",
    "flipud", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "frexp",
    "gather", "gcd", "ge", "ger", "greater", "greater_equal", "group_norm", "gt", "hardshrink",
    "heaviside", "histc", "histogram", "hsplit", "hstack", "hypot", "index_add", "index_copy",
    "index_fill", "index_put", "index_reduce", "index_select", "inner", "instance_norm", "inv",
    "inverse", "is_complex", "is_floating_point", "is_same_size", "is_signed", "is_tensor",
    "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "kron",
    "kthvalue", "layer_norm", "lcm", "ldexp", "le", "lerp", "less", "less_equal", "lgamma", "log",
    "log10", "log1p", "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logdet",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logsumexp", "lt",
    "lu_solve", "lu_unpack", "masked_fill", "masked_scatter", "masked_select", "matmul",
    "matrix_exp", "matrix_power", "max", "max_pool1d", "max_pool2d", "max_pool3d", "maximum",
    "mean", "median", "meshgrid", "min", "minimum", "mm", "mode", "moveaxis", "movedim", "msort",
    "mul", "multi_dot", "multinomial", "multiply", "mv", "mvlgamma", "nan_to_num", "nanmean",
    "nanmedian", "nanquantile", "nansum", "narrow", "narrow_copy", "ne", "neg", "negative",
    "nextafter", "nonzero", "nonzero_static", "norm", "not_equal", "numel", "outer", "pdist",
    "permute", "pinverse", "pixel_shuffle", "pixel_unshuffle", "positive", "pow", "prelu", "prod",
    "put", "qr", "quantile", "rad2deg", "ravel", "real", "reciprocal", "relu", "remainder",
    "renorm", "repeat", "repeat_interleave", "reshape", "resolve_conj", "resolve_neg", "rms_norm",
    "roll", "rot90", "round", "row_stack", "rrelu", "rsqrt", "rsub", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "select", "select_scatter", "selu", "sgn", "sigmoid",
    "sign", "signbit", "sin", "sinc", "sinh", "slice_scatter", "slogdet", "softmax", "solve",
    "sort", "split", "split_with_sizes", "sqrt", "square", "squeeze", "stack", "std", "std_mean",
    "sub", "subtract", "sum", "svd", "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan",
    "tanh", "tensor_split", "tensordot", "threshold", "tile", "topk", "trace", "transpose",
    "trapezoid", "trapz", "triangular_solve", "tril", "triu", "true_divide", "trunc", "unbind",
    "unflatten", "unique", "unique_consecutive", "unravel_index", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "unsqueeze", "vander", "var", "var_mean", "vdot", "vsplit",
    "vstack", "where", "xlogy",
]
# fmt: on

for _name in __all__:
    globals()[_name] = _of_tensors(globals()[_name])
