# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from luminal.frontend import conversion as _conversion
from luminal.frontend import creation as _creation
from luminal.frontend.handle import Handle
from luminal.frontend.matrices import decompositions as _decompositions
from luminal.frontend.matrices import linear_algebra as _linear_algebra
from luminal.frontend.matrices import matmul as _matmul
from luminal.frontend.matrices import norms as _norms
from luminal.frontend.matrices import products as _products
from luminal.frontend.movement import embedding as _embedding
from luminal.frontend.movement import indexing as _indexing
from luminal.frontend.movement import joining as _joining
from luminal.frontend.movement import padding as _padding
from luminal.frontend.movement import scatter as _scatter
from luminal.frontend.movement import subscript as _subscript
from luminal.frontend.movement import views as _views
from luminal.frontend.names import other_signatures as _other_signatures
from luminal.frontend.pointwise import activation as _activation
from luminal.frontend.pointwise import binary as _binary
from luminal.frontend.pointwise import combine as _combine
from luminal.frontend.pointwise import exponential as _exponential
from luminal.frontend.pointwise import gamma as _gamma
from luminal.frontend.pointwise import rounding as _rounding
from luminal.frontend.pointwise import special as _special
from luminal.frontend.pointwise import trigonometric as _trigonometric
from luminal.frontend.pointwise import unary as _unary
from luminal.frontend.random import drawing as _drawing
from luminal.frontend.random import keyed as _keyed
from luminal.frontend.reduce import cumulative as _cumulative
from luminal.frontend.reduce import normalization as _normalization
from luminal.frontend.reduce import reduce as _reduce
from luminal.frontend.reduce import searching as _searching
from luminal.frontend.reduce import sorting as _sorting
from luminal.frontend.reduce import statistics as _statistics
from luminal.frontend.windows import convolution as _convolution
from luminal.frontend.windows import grid as _grid
from luminal.frontend.windows import pooling as _pooling
from luminal.frontend.windows import resample as _resample
from luminal.frontend.windows import windows as _windows

class Methods(Handle):
    abs = _unary.abs
    absolute = _unary.abs
    acos = _trigonometric.acos
    acosh = _trigonometric.acosh
    adaptive_avg_pool1d = _pooling.adaptive_avg_pool1d
    adaptive_avg_pool2d = _pooling.adaptive_avg_pool2d
    adaptive_avg_pool3d = _pooling.adaptive_avg_pool3d
    adaptive_max_pool1d = _pooling.adaptive_max_pool1d
    adaptive_max_pool2d = _pooling.adaptive_max_pool2d
    adaptive_max_pool3d = _pooling.adaptive_max_pool3d
    add = _binary.add
    addbmm = _products.addbmm
    addcdiv = _combine.addcdiv
    addcmul = _combine.addcmul
    addmm = _products.addmm
    addmv = _products.addmv
    addr = _products.addr
    adjoint = _views.matrix_transpose
    all = _reduce.all
    allclose = _combine.allclose
    amax = _reduce.amax
    amin = _reduce.amin
    aminmax = _reduce.aminmax
    angle = _conversion.angle
    any = _reduce.any
    arccos = _trigonometric.acos
    arccosh = _trigonometric.acosh
    arcsin = _trigonometric.asin
    arcsinh = _trigonometric.asinh
    arctan = _trigonometric.atan
    arctan2 = _trigonometric.atan2
    arctanh = _trigonometric.atanh
    argmax = _reduce.argmax
    argmin = _reduce.argmin
    argsort = _sorting.argsort
    argwhere = _searching.argwhere
    as_strided = _views.as_strided
    as_strided_scatter = _subscript.as_strided_scatter
    asin = _trigonometric.asin
    asinh = _trigonometric.asinh
    atan = _trigonometric.atan
    atan2 = _trigonometric.atan2
    atanh = _trigonometric.atanh
    avg_pool1d = _pooling.avg_pool1d
    avg_pool2d = _pooling.avg_pool2d
    avg_pool3d = _pooling.avg_pool3d
    baddbmm = _products.baddbmm
    batch_norm = _normalization.batch_norm
    bernoulli = _drawing.bernoulli
    bfloat16 = _conversion.bfloat16
    bilinear = _products.bilinear
    bincount = _searching.bincount
    bitcast = _unary.bitcast
    bitwise_and = _binary.bit_and
    bitwise_left_shift = _binary.shift_left
    bitwise_not = _unary.invert
    bitwise_or = _binary.bit_or
    bitwise_right_shift = _binary.shift_right
    bitwise_xor = _binary.bit_xor
    bmm = _products.bmm
    bool = _conversion.bool_
    broadcast_to = _views.broadcast_to
    bucketize = _searching.bucketize
    byte = _conversion.byte
    cast = _unary.cast
    cbrt = _unary.cbrt
    cdist = _products.cdist
    ceil = _rounding.ceil
    celu = _activation.celu
    channel_shuffle = _windows.channel_shuffle
    char = _conversion.char
    cholesky = _other_signatures.cholesky
    cholesky_inverse = _linear_algebra.cholesky_inverse
    cholesky_solve = _linear_algebra.cholesky_solve
    chunk = _joining.chunk
    clamp = _binary.clip
    clamp_max = _binary.clamp_max
    clamp_min = _binary.clamp_min
    clip = _binary.clip
    clone = _conversion.real
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
    count_nonzero = _reduce.count_nonzero
    cov = _statistics.cov
    cross = _products.cross
    cummax = _cumulative.cummax
    cummin = _cumulative.cummin
    cumprod = _cumulative.cumprod
    cumsum = _cumulative.cumsum
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
    double = _conversion.double
    dropout = _keyed.dropout
    dsplit = _joining.dsplit
    element_size = _conversion.element_size
    elu = _activation.elu
    embedding = _embedding.embedding
    eq = _binary.equal
    equal = _conversion.equal
    erf = _special.erf
    erfc = _special.erfc
    erfinv = _special.erfinv
    exp = _unary.exp
    exp2 = _unary.exp2
    expand = _views.expand
    expand_as = _views.expand_as
    expm1 = _exponential.expm1
    fix = _rounding.trunc
    flatten = _views.flatten
    flip = _views.flip
    fliplr = _views.fliplr
    flipud = _views.flipud
    float = _conversion.float_
    float_power = _combine.float_power
    floor = _rounding.floor
    floor_divide = _binary.floor_div
    fmax = _combine.fmax
    fmin = _combine.fmin
    fmod = _rounding.fmod
    fold = _windows.fold
    frac = _rounding.frac
    frexp = _rounding.frexp
    gather = _indexing.gather
    gcd = _combine.gcd
    ge = _binary.greater_equal
    gelu = _activation.gelu
    ger = _products.outer
    glu = _activation.glu
    greater = _binary.greater
    greater_equal = _binary.greater_equal
    grid_sample = _grid.grid_sample
    group_norm = _normalization.group_norm
    gt = _binary.greater
    half = _conversion.half
    hardshrink = _activation.hardshrink
    hardsigmoid = _activation.hardsigmoid
    hardswish = _activation.hardswish
    hardtanh = _activation.hardtanh
    heaviside = _combine.heaviside
    histc = _searching.histc
    histogram = _searching.histogram
    hsplit = _joining.hsplit
    hypot = _unary.hypot
    index_add = _scatter.index_add
    index_copy = _scatter.index_copy
    index_fill = _scatter.index_fill
    index_put = _subscript.index_put
    index_reduce = _scatter.index_reduce
    index_select = _indexing.index_select
    inner = _products.inner
    instance_norm = _normalization.instance_norm
    int = _conversion.int_
    interpolate = _resample.interpolate
    inv = _decompositions.inv
    inverse = _decompositions.inv
    is_complex = _conversion.is_complex
    is_floating_point = _conversion.is_floating_point
    is_same_size = _conversion.is_same_size
    is_signed = _conversion.is_signed
    isclose = _combine.isclose
    isfinite = _unary.isfinite
    isinf = _unary.isinf
    isnan = _unary.isnan
    isneginf = _unary.isneginf
    isposinf = _unary.isposinf
    isreal = _conversion.isreal
    kron = _products.kron
    kthvalue = _sorting.kthvalue
    layer_norm = _normalization.layer_norm
    lcm = _combine.lcm
    ldexp = _rounding.ldexp
    le = _binary.less_equal
    leaky_relu = _activation.leaky_relu
    lerp = _combine.lerp
    less = _binary.less
    less_equal = _binary.less_equal
    lgamma = _gamma.lgamma
    linear = _products.linear
    local_response_norm = _normalization.local_response_norm
    log = _unary.log
    log10 = _exponential.log10
    log1p = _exponential.log1p
    log2 = _unary.log2
    log_softmax = _normalization.log_softmax
    logaddexp = _exponential.logaddexp
    logaddexp2 = _exponential.logaddexp2
    logcumsumexp = _cumulative.logcumsumexp
    logdet = _linear_algebra.logdet
    logical_and = _combine.logical_and
    logical_not = _unary.logical_not
    logical_or = _combine.logical_or
    logical_xor = _combine.logical_xor
    logit = _exponential.logit
    logsigmoid = _exponential.log_sigmoid
    logsumexp = _normalization.logsumexp
    long = _conversion.long
    lp_pool1d = _pooling.lp_pool1d
    lp_pool2d = _pooling.lp_pool2d
    lp_pool3d = _pooling.lp_pool3d
    lt = _binary.less
    lu_solve = _other_signatures.lu_solve
    masked_fill = _combine.masked_fill
    masked_scatter = _scatter.masked_scatter
    masked_select = _searching.masked_select
    matmul = _matmul.matmul
    matrix_exp = _decompositions.matrix_exp
    matrix_power = _products.matrix_power
    max = _reduce.max
    max_pool1d = _pooling.max_pool1d
    max_pool2d = _pooling.max_pool2d
    max_pool3d = _pooling.max_pool3d
    maximum = _binary.maximum
    mean = _statistics.mean
    median = _statistics.median
    merge_dims = _views.merge_dims
    min = _reduce.min
    minimum = _binary.minimum
    mish = _activation.mish
    mm = _products.mm
    mode = _sorting.mode
    moveaxis = _views.movedim
    movedim = _views.movedim
    msort = _sorting.msort
    mul = _binary.mul
    multinomial = _drawing.multinomial
    multiply = _binary.mul
    mv = _products.mv
    mvlgamma = _gamma.mvlgamma
    nan_to_num = _unary.nan_to_num
    nanmean = _statistics.nanmean
    nanmedian = _statistics.nanmedian
    nanquantile = _statistics.nanquantile
    nansum = _reduce.nansum
    narrow = _views.narrow
    narrow_copy = _views.narrow
    ne = _binary.not_equal
    neg = _unary.neg
    negative = _unary.neg
    nelement = _conversion.numel
    new_empty = _creation.new_zeros
    new_full = _creation.new_full
    new_ones = _creation.new_ones
    new_zeros = _creation.new_zeros
    nextafter = _rounding.nextafter
    nonzero = _searching.nonzero
    nonzero_static = _searching.nonzero_static
    norm = _norms.norm
    normalize = _norms.normalize
    not_equal = _binary.not_equal
    one_hot = _embedding.one_hot
    outer = _products.outer
    pad = _padding.pad
    permute = _views.permute
    pinverse = _linear_algebra.pinverse
    pixel_shuffle = _windows.pixel_shuffle
    pixel_unshuffle = _windows.pixel_unshuffle
    positive = _conversion.real
    pow = _binary.pow
    prelu = _activation.prelu
    prod = _reduce.prod
    put = _scatter.put
    qr = _other_signatures.qr
    quantile = _statistics.quantile
    rad2deg = _trigonometric.rad2deg
    ravel = _views.ravel
    reciprocal = _unary.reciprocal
    relu = _activation.relu
    relu6 = _activation.relu6
    remainder = _rounding.remainder
    renorm = _norms.renorm
    repeat = _joining.repeat
    repeat_interleave = _joining.repeat_interleave
    reshape = _views.reshape
    reshape_as = _views.reshape_as
    resolve_conj = _conversion.real
    resolve_neg = _conversion.real
    rms_norm = _normalization.rms_norm
    roll = _views.roll
    rot90 = _views.rot90
    round = _rounding.round
    rsqrt = _unary.rsqrt
    rsub = _combine.rsub
    scatter = _scatter.scatter
    scatter_add = _scatter.scatter_add
    scatter_reduce = _scatter.scatter_reduce
    select = _views.select
    select_scatter = _scatter.select_scatter
    selu = _activation.selu
    sgn = _unary.sign
    short = _conversion.short
    sigmoid = _exponential.sigmoid
    sign = _unary.sign
    signbit = _unary.signbit
    silu = _activation.silu
    sin = _unary.sin
    sinc = _trigonometric.sinc
    sinh = _trigonometric.sinh
    slice = _views.narrow
    slice_scatter = _scatter.slice_scatter
    slogdet = _decompositions.slogdet
    softmax = _normalization.softmax
    softmin = _normalization.softmin
    softplus = _exponential.softplus
    softshrink = _activation.softshrink
    softsign = _activation.softsign
    solve = _decompositions.solve
    sort = _sorting.sort
    split = _joining.split
    split_dims = _views.split_dims
    split_with_sizes = _joining.split
    sqrt = _unary.sqrt
    square = _unary.square
    squeeze = _views.squeeze
    std = _statistics.std
    std_mean = _statistics.std_mean
    stop_gradient = _unary.stop_gradient
    stride = _conversion.stride
    sub = _binary.sub
    subtract = _binary.sub
    sum = _reduce.sum
    sum_to_size = _subscript.sum_to_size
    svd = _other_signatures.svd
    swapaxes = _views.transpose
    swapdims = _views.transpose
    t = _views.t
    take = _indexing.take
    take_along_axis = _indexing.take_along_axis
    take_along_dim = _indexing.take_along_axis
    tan = _trigonometric.tan
    tanh = _trigonometric.tanh
    tanhshrink = _trigonometric.tanhshrink
    tensor_split = _joining.tensor_split
    tensordot = _products.tensordot
    threshold = _activation.threshold
    tile = _joining.tile
    to = _conversion.to
    topk = _sorting.topk
    trace = _products.trace
    transpose = _views.transpose
    trapezoid = _statistics.trapezoid
    triangular_solve = _linear_algebra.triangular_solve
    tril = _padding.tril
    triu = _padding.triu
    true_divide = _binary.div
    trunc = _rounding.trunc
    type_as = _conversion.type_as
    unbind = _joining.unbind
    unflatten = _views.unflatten
    unfold = _windows.unfold_dim
    unique = _searching.unique
    unique_consecutive = _searching.unique
    unsafe_chunk = _joining.chunk
    unsafe_split = _joining.split
    unsafe_split_with_sizes = _joining.split
    unsqueeze = _views.unsqueeze
    var = _statistics.var
    var_mean = _statistics.var_mean
    vdot = _products.dot
    vecdot = _products.vecdot
    view = _conversion.view
    view_as = _views.reshape_as
    vsplit = _joining.vsplit
    xlogy = _exponential.xlogy
