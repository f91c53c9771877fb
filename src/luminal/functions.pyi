# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from luminal.frontend import conversion as _conversion
from luminal.frontend import handle as _handle
from luminal.frontend.losses import classification as _classification
from luminal.frontend.losses import loss as _loss
from luminal.frontend.matrices import decompositions as _decompositions
from luminal.frontend.matrices import einsum as _einsum
from luminal.frontend.matrices import linear_algebra as _linear_algebra
from luminal.frontend.matrices import matmul as _matmul
from luminal.frontend.matrices import norms as _norms
from luminal.frontend.matrices import products as _products
from luminal.frontend.movement import embedding as _embedding
from luminal.frontend.movement import indexing as _indexing
from luminal.frontend.movement import joining as _joining
from luminal.frontend.movement import padding as _padding
from luminal.frontend.movement import patterns as _patterns
from luminal.frontend.movement import scatter as _scatter
from luminal.frontend.movement import subscript as _subscript
from luminal.frontend.movement import views as _views
from luminal.frontend.names import other_signatures as _other_signatures
from luminal.frontend.pointwise import activation as _activation
from luminal.frontend.pointwise import binary as _binary
from luminal.frontend.pointwise import combine as _combine
from luminal.frontend.pointwise import exponential as _exponential
from luminal.frontend.pointwise import gamma as _gamma
from luminal.frontend.pointwise import special as _special
from luminal.frontend.pointwise import trigonometric as _trigonometric
from luminal.frontend.pointwise import unary as _unary
from luminal.frontend.random import drawing as _drawing
from luminal.frontend.reduce import normalization as _normalization
from luminal.frontend.reduce import reductions as _reductions
from luminal.frontend.reduce import searching as _searching
from luminal.frontend.reduce import sorting as _sorting
from luminal.frontend.reduce import statistics as _statistics
from luminal.frontend.windows import convolution as _convolution
from luminal.frontend.windows import pooling as _pooling
from luminal.frontend.windows import unfold as _unfold

abs = _unary.abs
absolute = _unary.abs
acos = _trigonometric.acos
acosh = _trigonometric.acosh
adaptive_avg_pool1d = _pooling.adaptive_avg_pool1d
adaptive_max_pool1d = _pooling.adaptive_max_pool1d
add = _binary.add
addbmm = _products.addbmm
addcdiv = _combine.addcdiv
addcmul = _combine.addcmul
addmm = _products.addmm
addmv = _products.addmv
addr = _products.addr
adjoint = _views.matrix_transpose
all = _reductions.all
allclose = _combine.allclose
alpha_dropout = _drawing.alpha_dropout
amax = _reductions.amax
amin = _reductions.amin
aminmax = _reductions.aminmax
angle = _conversion.angle
any = _reductions.any
arccos = _trigonometric.acos
arccosh = _trigonometric.acosh
arcsin = _trigonometric.asin
arcsinh = _trigonometric.asinh
arctan = _trigonometric.atan
arctan2 = _trigonometric.atan2
arctanh = _trigonometric.atanh
argmax = _reductions.argmax
argmin = _reductions.argmin
argsort = _sorting.argsort
argwhere = _searching.argwhere
as_strided = _views.as_strided
as_strided_scatter = _subscript.as_strided_scatter
asin = _trigonometric.asin
asinh = _trigonometric.asinh
astype = _unary.cast
atan = _trigonometric.atan
atan2 = _trigonometric.atan2
atanh = _trigonometric.atanh
atleast_1d = _joining.atleast_1d
atleast_2d = _joining.atleast_2d
atleast_3d = _joining.atleast_3d
avg_pool1d = _pooling.avg_pool1d
baddbmm = _products.baddbmm
batch_norm = _normalization.batch_norm
bernoulli = _drawing.bernoulli
bilinear = _products.bilinear
bincount = _searching.bincount
bitwise_and = _binary.bit_and
bitwise_left_shift = _binary.shift_left
bitwise_not = _unary.invert
bitwise_or = _binary.bit_or
bitwise_right_shift = _binary.shift_right
bitwise_xor = _binary.bit_xor
block_diag = _joining.block_diag
bmm = _products.bmm
broadcast_arrays = _joining.broadcast_tensors
broadcast_tensors = _joining.broadcast_tensors
broadcast_to = _views.broadcast_to
bucketize = _searching.bucketize
cartesian_prod = _joining.cartesian_prod
cat = _views.concat
cdist = _products.cdist
ceil = _unary.ceil
celu = _activation.celu
chain_matmul = _other_signatures.chain_matmul
channel_shuffle = _unfold.channel_shuffle
cholesky = _other_signatures.cholesky
cholesky_inverse = _linear_algebra.cholesky_inverse
cholesky_solve = _linear_algebra.cholesky_solve
chunk = _joining.chunk
clamp = _binary.clip
clamp_max = _binary.clamp_max
clamp_min = _binary.clamp_min
clip = _binary.clip
clone = _conversion.real
column_stack = _joining.column_stack
combinations = _searching.combinations
concat = _views.concat
concatenate = _views.concat
conj = _conversion.real
conj_physical = _conversion.real
conv1d = _convolution.conv1d
conv2d = _convolution.conv2d
conv3d = _convolution.conv3d
conv_transpose1d = _convolution.conv_transpose1d
conv_transpose2d = _convolution.conv_transpose2d
conv_transpose3d = _convolution.conv_transpose3d
copysign = _combine.copysign
corrcoef = _statistics.corrcoef
cos = _unary.cos
cosh = _trigonometric.cosh
cosine_embedding_loss = _loss.cosine_embedding_loss
cosine_similarity = _loss.cosine_similarity
count_nonzero = _reductions.count_nonzero
cov = _statistics.cov
cross = _products.cross
ctc_loss = _classification.ctc_loss
cummax = _reductions.cummax
cummin = _reductions.cummin
cumprod = _reductions.cumprod
cumsum = _reductions.cumsum
cumulative_trapezoid = _statistics.cumulative_trapezoid
deg2rad = _trigonometric.deg2rad
det = _decompositions.det
detach = _unary.stop_gradient
diag = _padding.diag
diag_embed = _padding.diag_embed
diagflat = _padding.diagflat
diagonal = _padding.diagonal
diagonal_scatter = _scatter.diagonal_scatter
diff = _statistics.diff
digamma = _gamma.digamma
dist = _norms.dist
div = _combine.divide
divide = _combine.divide
dot = _products.dot
dropout = _drawing.dropout
dsplit = _joining.dsplit
dstack = _joining.dstack
einsum = _einsum.einsum
embedding = _embedding.embedding
embedding_bag = _embedding.embedding_bag
eq = _binary.equal
equal = _conversion.equal
erf = _special.erf
erfc = _special.erfc
erfinv = _special.erfinv
exp = _unary.exp
exp2 = _unary.exp2
expand_dims = _views.unsqueeze
expm1 = _exponential.expm1
feature_alpha_dropout = _drawing.feature_alpha_dropout
fix = _unary.trunc
flatten = _views.flatten
flip = _views.flip
fliplr = _views.fliplr
flipud = _views.flipud
float_power = _combine.float_power
floor = _unary.floor
floor_divide = _binary.floor_div
fmax = _combine.fmax
fmin = _combine.fmin
fmod = _combine.fmod
frac = _unary.frac
frexp = _unary.frexp
gather = _indexing.gather
gcd = _combine.gcd
ge = _binary.greater_equal
ger = _products.outer
greater = _binary.greater
greater_equal = _binary.greater_equal
group_norm = _normalization.group_norm
gt = _binary.greater
hardshrink = _activation.hardshrink
heaviside = _combine.heaviside
hinge_embedding_loss = _loss.hinge_embedding_loss
histc = _searching.histc
histogram = _searching.histogram
hsplit = _joining.hsplit
hstack = _joining.hstack
hypot = _unary.hypot
index_add = _scatter.index_add
index_copy = _scatter.index_copy
index_fill = _scatter.index_fill
index_put = _subscript.index_put
index_reduce = _scatter.index_reduce
index_select = _indexing.index_select
inner = _products.inner
instance_norm = _normalization.instance_norm
inv = _decompositions.inv
inverse = _decompositions.inv
is_complex = _conversion.is_complex
is_floating_point = _conversion.is_floating_point
is_same_size = _conversion.is_same_size
is_signed = _conversion.is_signed
is_tensor = _handle.is_tensor
isclose = _combine.isclose
isfinite = _unary.isfinite
isin = _searching.isin
isinf = _unary.isinf
isnan = _unary.isnan
isneginf = _unary.isneginf
isposinf = _unary.isposinf
isreal = _conversion.isreal
kl_div = _loss.kl_div
kron = _products.kron
kthvalue = _sorting.kthvalue
layer_norm = _other_signatures.layer_norm
lcm = _combine.lcm
ldexp = _combine.ldexp
le = _binary.less_equal
lerp = _combine.lerp
less = _binary.less
less_equal = _binary.less_equal
lgamma = _gamma.lgamma
linear = _products.linear
log = _unary.log
log10 = _exponential.log10
log1p = _exponential.log1p
log2 = _unary.log2
log_softmax = _normalization.log_softmax
logaddexp = _exponential.logaddexp
logaddexp2 = _exponential.logaddexp2
logcumsumexp = _reductions.logcumsumexp
logdet = _linear_algebra.logdet
logical_and = _combine.logical_and
logical_not = _unary.logical_not
logical_or = _combine.logical_or
logical_xor = _combine.logical_xor
logit = _exponential.logit
logsumexp = _normalization.logsumexp
lt = _binary.less
lu_solve = _other_signatures.lu_solve
lu_unpack = _linear_algebra.lu_unpack
margin_ranking_loss = _loss.margin_ranking_loss
masked_fill = _combine.masked_fill
masked_scatter = _scatter.masked_scatter
masked_select = _searching.masked_select
matmul = _matmul.matmul
matrix_exp = _decompositions.matrix_exp
matrix_power = _products.matrix_power
matrix_transpose = _views.matrix_transpose
max = _reductions.max
max_pool1d = _pooling.max_pool1d
max_pool2d = _pooling.max_pool2d
max_pool3d = _pooling.max_pool3d
maximum = _binary.maximum
mean = _statistics.mean
median = _statistics.median
meshgrid = _joining.meshgrid
min = _reductions.min
minimum = _binary.minimum
mm = _products.mm
mode = _sorting.mode
moveaxis = _views.movedim
movedim = _views.movedim
msort = _sorting.msort
mul = _binary.mul
multi_dot = _products.multi_dot
multinomial = _drawing.multinomial
multiply = _binary.mul
mv = _products.mv
mvlgamma = _gamma.mvlgamma
nan_to_num = _unary.nan_to_num
nanmean = _statistics.nanmean
nanmedian = _statistics.nanmedian
nanquantile = _statistics.nanquantile
nansum = _reductions.nansum
narrow = _views.narrow
narrow_copy = _views.narrow
ne = _binary.not_equal
neg = _unary.neg
negative = _unary.neg
nextafter = _combine.nextafter
nonzero = _searching.nonzero
nonzero_static = _searching.nonzero_static
norm = _norms.norm
not_equal = _binary.not_equal
numel = _conversion.numel
one_hot = _embedding.one_hot
outer = _products.outer
pad = _padding.pad
pairwise_distance = _loss.pairwise_distance
pdist = _products.pdist
permute = _views.permute
permute_dims = _views.permute
pinverse = _linear_algebra.pinverse
pixel_shuffle = _unfold.pixel_shuffle
pixel_unshuffle = _unfold.pixel_unshuffle
poisson_nll_loss = _loss.poisson_nll_loss
positive = _conversion.real
pow = _exponential.pow
prelu = _activation.prelu
prod = _reductions.prod
put = _scatter.put
qr = _other_signatures.qr
quantile = _statistics.quantile
rad2deg = _trigonometric.rad2deg
ravel = _views.ravel
real = _conversion.real
rearrange = _patterns.rearrange
reciprocal = _unary.reciprocal
relu = _activation.relu
remainder = _combine.remainder
renorm = _norms.renorm
repeat = _joining.repeat
repeat_interleave = _joining.repeat_interleave
reshape = _views.reshape
resolve_conj = _conversion.real
resolve_neg = _conversion.real
rms_norm = _other_signatures.rms_norm
roll = _views.roll
rot90 = _views.rot90
round = _unary.round
row_stack = _joining.vstack
rrelu = _drawing.rrelu
rsqrt = _unary.rsqrt
rsub = _combine.rsub
scatter = _scatter.scatter
scatter_add = _scatter.scatter_add
scatter_reduce = _scatter.scatter_reduce
searchsorted = _searching.searchsorted
select = _views.select
select_scatter = _scatter.select_scatter
selu = _activation.selu
sgn = _unary.sign
sigmoid = _exponential.sigmoid
sign = _unary.sign
signbit = _unary.signbit
sin = _unary.sin
sinc = _trigonometric.sinc
sinh = _trigonometric.sinh
slice_scatter = _scatter.slice_scatter
slogdet = _decompositions.slogdet
softmax = _normalization.softmax
solve = _decompositions.solve
sort = _sorting.sort
split = _joining.split
split_with_sizes = _joining.split
sqrt = _unary.sqrt
square = _unary.square
squeeze = _views.squeeze
stack = _views.stack
std = _statistics.std
std_mean = _statistics.std_mean
sub = _binary.sub
subtract = _binary.sub
sum = _reductions.sum
svd = _other_signatures.svd
swapaxes = _views.transpose
swapdims = _views.transpose
t = _views.t
take = _indexing.take
take_along_axis = _indexing.take_along_axis
take_along_dim = _indexing.take_along_axis
tan = _trigonometric.tan
tanh = _trigonometric.tanh
tensor_split = _joining.tensor_split
tensordot = _products.tensordot
threshold = _activation.threshold
tile = _joining.tile
topk = _sorting.topk
trace = _products.trace
transpose = _views.transpose
trapezoid = _statistics.trapezoid
trapz = _statistics.trapezoid
triangular_solve = _linear_algebra.triangular_solve
tril = _padding.tril
triplet_margin_loss = _loss.triplet_margin_loss
triu = _padding.triu
true_divide = _binary.div
trunc = _unary.trunc
unbind = _joining.unbind
unflatten = _views.unflatten
unique = _searching.unique
unique_consecutive = _searching.unique_consecutive
unravel_index = _searching.unravel_index
unsafe_chunk = _joining.chunk
unsafe_split = _joining.split
unsafe_split_with_sizes = _joining.split
unsqueeze = _views.unsqueeze
unstack = _joining.unbind
vander = _other_signatures.vander
var = _statistics.var
var_mean = _statistics.var_mean
vdot = _products.dot
vecdot = _products.vecdot
vsplit = _joining.vsplit
vstack = _joining.vstack
where = _other_signatures.where
xlogy = _exponential.xlogy

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "all",
    "allclose",
    "alpha_dropout",
    "amax",
    "amin",
    "aminmax",
    "angle",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_strided",
    "as_strided_scatter",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "avg_pool1d",
    "baddbmm",
    "batch_norm",
    "bernoulli",
    "bilinear",
    "bincount",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "block_diag",
    "bmm",
    "broadcast_arrays",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "cartesian_prod",
    "cat",
    "cdist",
    "ceil",
    "celu",
    "chain_matmul",
    "channel_shuffle",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "clone",
    "column_stack",
    "combinations",
    "concat",
    "concatenate",
    "conj",
    "conj_physical",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "cross",
    "ctc_loss",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "deg2rad",
    "det",
    "detach",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "div",
    "divide",
    "dot",
    "dropout",
    "dsplit",
    "dstack",
    "einsum",
    "embedding",
    "embedding_bag",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "feature_alpha_dropout",
    "fix",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frexp",
    "gather",
    "gcd",
    "ge",
    "ger",
    "greater",
    "greater_equal",
    "group_norm",
    "gt",
    "hardshrink",
    "heaviside",
    "hinge_embedding_loss",
    "histc",
    "histogram",
    "hsplit",
    "hstack",
    "hypot",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "inner",
    "instance_norm",
    "inv",
    "inverse",
    "is_complex",
    "is_floating_point",
    "is_same_size",
    "is_signed",
    "is_tensor",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "kl_div",
    "kron",
    "kthvalue",
    "layer_norm",
    "lcm",
    "ldexp",
    "le",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "linear",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "lt",
    "lu_solve",
    "lu_unpack",
    "margin_ranking_loss",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "matrix_transpose",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mm",
    "mode",
    "moveaxis",
    "movedim",
    "msort",
    "mul",
    "multi_dot",
    "multinomial",
    "multiply",
    "mv",
    "mvlgamma",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "narrow_copy",
    "ne",
    "neg",
    "negative",
    "nextafter",
    "nonzero",
    "nonzero_static",
    "norm",
    "not_equal",
    "numel",
    "one_hot",
    "outer",
    "pad",
    "pairwise_distance",
    "pdist",
    "permute",
    "permute_dims",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "positive",
    "pow",
    "prelu",
    "prod",
    "put",
    "qr",
    "quantile",
    "rad2deg",
    "ravel",
    "real",
    "rearrange",
    "reciprocal",
    "relu",
    "remainder",
    "renorm",
    "repeat",
    "repeat_interleave",
    "reshape",
    "resolve_conj",
    "resolve_neg",
    "rms_norm",
    "roll",
    "rot90",
    "round",
    "row_stack",
    "rrelu",
    "rsqrt",
    "rsub",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "select",
    "select_scatter",
    "selu",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "slice_scatter",
    "slogdet",
    "softmax",
    "solve",
    "sort",
    "split",
    "split_with_sizes",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "sum",
    "svd",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_axis",
    "take_along_dim",
    "tan",
    "tanh",
    "tensor_split",
    "tensordot",
    "threshold",
    "tile",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "tril",
    "triplet_margin_loss",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unflatten",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsqueeze",
    "unstack",
    "vander",
    "var",
    "var_mean",
    "vdot",
    "vecdot",
    "vsplit",
    "vstack",
    "where",
    "xlogy",
]
