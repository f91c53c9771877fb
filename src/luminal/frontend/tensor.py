"""Tensor, a value of a lazy graph. Its methods record operations; family modules define them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from luminal.base.errors import GraphError, ShapeError
from luminal.base.near_names import methods_with_suggestions
from luminal.frontend import conversion, creation
from luminal.frontend.foreign import absent
from luminal.frontend.handle import Array, Handle, Operand, describe
from luminal.frontend.matrices import (
    decompositions,
    functions,
    matrix_norms,
    products,
)
from luminal.frontend.matrices import (
    matmul as linalg,
)
from luminal.frontend.movement import embedding as tables
from luminal.frontend.movement import indexing, joining, padding, views
from luminal.frontend.movement import scatter as writing
from luminal.frontend.movement import subscript as resizing
from luminal.frontend.movement.subscript import index_put, subscript
from luminal.frontend.names import numpy_calls, older_linalg
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
from luminal.frontend.random import drawing, keyed
from luminal.frontend.reduce import (
    cumulative,
    normalization,
    norms,
    reduce,
    searching,
    sorting,
    statistics,
)
from luminal.frontend.windows import convolution, grid, pooling, resample, windows
from luminal.hlir.attributes import StateAttrs, WeightAttrs
from luminal.memory import dlpack
from luminal.memory.state import Parameter, State


class Tensor(Handle):
    """One value of a graph: known shape and dtype, no elements before the graph has run.

    Methods follow torch.Tensor in names and defaults; `axis` and `keepdims` are accepted too.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    # --- setting, keeping, reading

    def set(self, value: Any) -> Tensor:
        """Sets an Input, Weight or State; raises ShapeError or DTypeError if it does not fit."""
        attrs = self.value.node.attrs
        if isinstance(attrs, WeightAttrs):
            attrs.parameter.set(value)
        elif isinstance(attrs, StateAttrs):
            attrs.state.set(value)
        else:
            self.graph.set_value(self.value, value)
        return self

    def output(self, name: str | None = None) -> Tensor:
        """Makes this a result of the graph, by default named out0, out1, ..."""
        self.graph.output(self, name)
        return self

    def retrieve(self, name: str | None = None) -> Tensor:
        """The same as `output`."""
        return self.output(name)

    def keep(self) -> Tensor:
        """Has this computed and readable with `numpy()`, without being among the results."""
        self.graph.output(self, hidden=True)
        return self

    def numpy(self) -> Array:
        """The elements: those of the graph's last execution if this was an output, else computed.

        What was not executed is compiled (once, whatever the inputs' values) and run on the inputs
        set; States are read, never assigned. Raises InputError where an input has no value,
        GraphError while `scan` or `lm.jit` record a function.
        """
        return self.graph.result(self.value)

    def backward(self, gradient: Tensor | None = None) -> None:
        """Adds the gradients of this scalar to `grad` of the inputs and weights it depends on.

        They are Tensors of the graph: output them, or read them with `numpy()`. `gradient` comes in
        from above where this is no scalar. Raises as `lm.grad`.
        """
        self.graph.backward(self, gradient)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has found so far, of an input or a weight."""
        return self.graph.gradients.get(self.value)

    def item(self) -> Any:
        """The only element as a Python number, computed as by `numpy`; ShapeError for several."""
        return self._single("item").item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers, computed as by `numpy`."""
        return self.numpy().tolist()

    def _single(self, wanted: str) -> Array:
        count = self.numel()
        array = self.numpy() if count == 1 or not isinstance(count, builtins.int) else None
        if array is None or array.size != 1:
            count = count if array is None else array.size
            raise ShapeError(
                f"{wanted} of {describe(self)}: it has {count} elements, not one; use "
                f"{'any() or all(), or lm.where for choices' if wanted == 'bool' else 'tolist()'}"
            )
        return array

    @property
    def state(self) -> State:
        """The State this reads; raises GraphError if it is another kind of value."""
        attrs = self.value.node.attrs
        if isinstance(attrs, StateAttrs):
            return attrs.state
        raise GraphError(f"state: {describe(self)} does not read a State; use cx.state(...)")

    @property
    def parameter(self) -> Parameter:
        """The Parameter behind a Weight; raises GraphError for other values."""
        attrs = self.value.node.attrs
        if isinstance(attrs, WeightAttrs):
            return attrs.parameter
        raise GraphError(f"parameter: {describe(self)} is not a Weight; use cx.weight(...)")

    # --- where it is, as PyTorch asks

    is_cuda = requires_grad = False

    @property
    def device(self) -> str:
        """The name of the device that its graph is for."""
        return self.graph.device or "cpu"

    def cpu(self) -> Tensor:
        """This itself, as torch.Tensor.cpu of a tensor there."""
        return self

    def is_contiguous(self) -> builtins.bool:
        """True: a Tensor has no strides before it is compiled."""
        return True

    @property
    def data(self) -> Tensor:
        """This itself: there are no gradients that would look at it."""
        return self

    # --- Python's manners

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            raise absent(self, name, lambda known: hasattr(Tensor, known))

    def __repr__(self) -> str:
        known = self.graph.known(self.value)
        shown = "" if known is None else f"{_elements(known)}, "
        return f"Tensor({shown}{describe(self)}, {self.graph.origin(self.value)})"

    def __len__(self) -> builtins.int:
        if self.ndim == 0:
            raise ShapeError("len: a 0-d tensor has no length")
        extent = self.extents[0]
        if not extent.is_const:
            raise ShapeError(f"len: the first extent is {extent}, not a literal; use x.shape[0]")
        return extent.value

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def __bool__(self) -> builtins.bool:
        return builtins.bool(self._single("bool").item())

    def __float__(self) -> builtins.float:
        return builtins.float(self._single("float").item())

    def __int__(self) -> builtins.int:
        return builtins.int(self._single("int").item())

    def __index__(self) -> builtins.int:
        if not self.dtype.is_int:
            raise TypeError(f"{describe(self)} is no integer, so it is no index; cast it")
        return builtins.int(self._single("index").item())

    def __format__(self, spec: str) -> str:
        return format(self._single("format").item(), spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Array:
        return np.array(self.numpy(), dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_calls.ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_calls.function(function, args, kwargs)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: builtins.bool | None = None,
    ) -> Any:  # fmt: skip
        return dlpack.capsule_of(
            self.numpy(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        return dlpack.CPU, 0

    def __contains__(self, item: Any) -> builtins.bool:
        return builtins.bool(reduce.any(self == item))

    # --- operators

    # fmt: off
    def __add__(self, other: Operand) -> Tensor: return binary.add(self, other)
    def __radd__(self, other: Operand) -> Tensor: return binary.add(other, self)
    def __sub__(self, other: Operand) -> Tensor: return binary.sub(self, other)
    def __rsub__(self, other: Operand) -> Tensor: return binary.sub(other, self)
    def __mul__(self, other: Operand) -> Tensor: return binary.mul(self, other)
    def __rmul__(self, other: Operand) -> Tensor: return binary.mul(other, self)
    def __truediv__(self, other: Operand) -> Tensor: return binary.div(self, other)
    def __rtruediv__(self, other: Operand) -> Tensor: return binary.div(other, self)
    def __floordiv__(self, other: Operand) -> Tensor: return binary.floor_div(self, other)
    def __rfloordiv__(self, other: Operand) -> Tensor: return binary.floor_div(other, self)
    def __mod__(self, other: Operand) -> Tensor: return binary.mod(self, other)
    def __rmod__(self, other: Operand) -> Tensor: return binary.mod(other, self)
    def __pow__(self, other: Operand) -> Tensor: return binary.pow(self, other)
    def __rpow__(self, other: Operand) -> Tensor: return binary.pow(other, self)
    def __divmod__(self, other: Operand) -> combine.Pair: return combine.divmod(self, other)
    def __rdivmod__(self, other: Operand) -> combine.Pair: return combine.divmod(other, self)
    def __matmul__(self, other: Operand) -> Tensor: return linalg.matmul(self, other)
    def __rmatmul__(self, other: Operand) -> Tensor: return linalg.matmul(other, self)
    def __and__(self, other: Operand) -> Tensor: return binary.bit_and(self, other)
    def __rand__(self, other: Operand) -> Tensor: return binary.bit_and(other, self)
    def __or__(self, other: Operand) -> Tensor: return binary.bit_or(self, other)
    def __ror__(self, other: Operand) -> Tensor: return binary.bit_or(other, self)
    def __xor__(self, other: Operand) -> Tensor: return binary.bit_xor(self, other)
    def __rxor__(self, other: Operand) -> Tensor: return binary.bit_xor(other, self)
    def __lshift__(self, other: Operand) -> Tensor: return binary.shift_left(self, other)
    def __rlshift__(self, other: Operand) -> Tensor: return binary.shift_left(other, self)
    def __rshift__(self, other: Operand) -> Tensor: return binary.shift_right(self, other)
    def __rrshift__(self, other: Operand) -> Tensor: return binary.shift_right(other, self)
    def __lt__(self, other: Operand) -> Tensor: return binary.less(self, other)
    def __le__(self, other: Operand) -> Tensor: return binary.less_equal(self, other)
    def __gt__(self, other: Operand) -> Tensor: return binary.less(other, self)
    def __ge__(self, other: Operand) -> Tensor: return binary.less_equal(other, self)
    def __eq__(self, other: Operand) -> Tensor: return binary.equal(self, other)  # type: ignore[override]
    def __ne__(self, other: Operand) -> Tensor: return binary.not_equal(self, other)  # type: ignore[override]
    def __neg__(self) -> Tensor: return unary.neg(self)
    def __pos__(self) -> Tensor: return self
    def __abs__(self) -> Tensor: return unary.abs(self)
    def __invert__(self) -> Tensor: return unary.invert(self)
    def __getitem__(self, key: Any) -> Tensor: return subscript(self, key)
    # fmt: on

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"x[...] = v: {describe(self)} does not change; use index_put, slice_scatter or where, "
            "which give a new Tensor"
        )

    # --- named methods: functions whose first parameter is the Tensor

    cast = unary.cast
    to = conversion.to
    type_as = conversion.type_as
    float = conversion.float_
    double = conversion.double
    half = conversion.half
    bfloat16 = conversion.bfloat16
    bool = conversion.bool_
    byte = conversion.byte
    char = conversion.char
    short = conversion.short
    int = conversion.int_
    long = conversion.long
    bitcast = unary.bitcast
    view = conversion.view
    stop_gradient = detach = unary.stop_gradient
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

    expm1 = exponential.expm1
    log1p = exponential.log1p
    log10 = exponential.log10
    sigmoid = exponential.sigmoid
    logit = exponential.logit
    logaddexp = exponential.logaddexp
    logaddexp2 = exponential.logaddexp2
    xlogy = exponential.xlogy
    cbrt = unary.cbrt
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
    relu6 = activation.relu6
    leaky_relu = activation.leaky_relu
    prelu = activation.prelu
    elu = activation.elu
    selu = activation.selu
    celu = activation.celu
    gelu = activation.gelu
    silu = activation.silu
    mish = activation.mish
    softplus = exponential.softplus
    logsigmoid = exponential.log_sigmoid
    softsign = activation.softsign
    hardswish = activation.hardswish
    hardsigmoid = activation.hardsigmoid
    hardtanh = activation.hardtanh
    softshrink = activation.softshrink
    hardshrink = activation.hardshrink
    tanhshrink = trigonometric.tanhshrink
    threshold = activation.threshold
    glu = activation.glu

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
    fmax = combine.fmax
    fmin = combine.fmin
    clamp_min = binary.clamp_min
    clamp_max = binary.clamp_max
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
    equal = conversion.equal

    sum = reduce.sum
    nansum = reduce.nansum
    prod = reduce.prod
    count_nonzero = reduce.count_nonzero
    max = reduce.max
    min = reduce.min
    amax = reduce.amax
    amin = reduce.amin
    argmax = reduce.argmax
    aminmax = reduce.aminmax
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
    normalize = norms.normalize
    dist = norms.dist
    diff = statistics.diff
    trapezoid = statistics.trapezoid
    cumulative_trapezoid = statistics.cumulative_trapezoid
    cov = statistics.cov
    corrcoef = statistics.corrcoef
    softmax = normalization.softmax
    log_softmax = normalization.log_softmax
    softmin = normalization.softmin
    logsumexp = normalization.logsumexp
    layer_norm = normalization.layer_norm
    rms_norm = normalization.rms_norm
    group_norm = normalization.group_norm
    instance_norm = normalization.instance_norm
    batch_norm = normalization.batch_norm
    local_response_norm = normalization.local_response_norm

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

    reshape = views.reshape
    reshape_as = view_as = views.reshape_as
    flatten = views.flatten
    ravel = views.ravel
    unflatten = views.unflatten
    merge_dims = views.merge_dims
    split_dims = views.split_dims
    permute = views.permute
    transpose = swapaxes = swapdims = views.transpose
    movedim = moveaxis = views.movedim
    t = views.t
    as_strided = views.as_strided
    as_strided_scatter = resizing.as_strided_scatter
    sum_to_size = resizing.sum_to_size
    adjoint = views.matrix_transpose
    expand = views.expand
    expand_as = views.expand_as
    broadcast_to = views.broadcast_to
    squeeze = views.squeeze
    unsqueeze = views.unsqueeze
    narrow = slice = narrow_copy = views.narrow
    select = views.select
    flip = views.flip
    fliplr = views.fliplr
    flipud = views.flipud
    roll = views.roll
    rot90 = views.rot90
    pad = padding.pad
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

    gather = indexing.gather
    take = indexing.take
    index_select = indexing.index_select
    take_along_axis = take_along_dim = indexing.take_along_axis
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
    index_put = index_put
    embedding = tables.embedding
    one_hot = tables.one_hot

    bucketize = searching.bucketize
    nonzero = searching.nonzero
    nonzero_static = searching.nonzero_static
    argwhere = searching.argwhere
    masked_select = searching.masked_select
    unique = searching.unique
    unique_consecutive = searching.unique_consecutive

    new_full = creation.new_full
    new_zeros = creation.new_zeros
    new_ones = creation.new_ones
    new_empty = creation.new_empty
    bincount = searching.bincount
    histc = searching.histc
    histogram = searching.histogram
    bernoulli = drawing.bernoulli
    multinomial = drawing.multinomial
    dropout = keyed.dropout

    matmul = linalg.matmul
    dot = products.dot
    vdot = products.vdot
    vecdot = products.vecdot
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
    trace = products.trace
    kron = products.kron
    linear = products.linear
    tensordot = products.tensordot
    cdist = products.cdist
    bilinear = products.bilinear
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
    avg_pool2d = pooling.avg_pool2d
    avg_pool3d = pooling.avg_pool3d
    lp_pool1d = pooling.lp_pool1d
    lp_pool2d = pooling.lp_pool2d
    lp_pool3d = pooling.lp_pool3d
    adaptive_avg_pool1d = pooling.adaptive_avg_pool1d
    adaptive_avg_pool2d = pooling.adaptive_avg_pool2d
    adaptive_avg_pool3d = pooling.adaptive_avg_pool3d
    adaptive_max_pool1d = pooling.adaptive_max_pool1d
    adaptive_max_pool2d = pooling.adaptive_max_pool2d
    adaptive_max_pool3d = pooling.adaptive_max_pool3d
    unfold = windows.unfold_dim
    fold = windows.fold
    pixel_shuffle = windows.pixel_shuffle
    pixel_unshuffle = windows.pixel_unshuffle
    channel_shuffle = windows.channel_shuffle
    interpolate = resample.interpolate
    grid_sample = grid.grid_sample

    is_complex = conversion.is_complex
    is_floating_point = conversion.is_floating_point
    is_same_size = conversion.is_same_size
    is_signed = conversion.is_signed
    isreal = conversion.isreal
    angle = conversion.angle
    itemsize = property(conversion.element_size)
    nbytes = property(conversion.nbytes)
    nelement = conversion.numel
    ndimension = Handle.dim
    element_size = conversion.element_size
    stride = conversion.stride
    positive = conj = conj_physical = resolve_conj = resolve_neg = conversion.real

    def where(self, condition: Operand, other: Operand) -> Tensor:
        """This where `condition` is true, else `other`, as torch.Tensor.where."""
        return binary.where(condition, self, other)

    @property
    def T(self) -> Tensor:
        """All dims in reverse order."""
        return views.permute(self, *reversed(range(self.ndim)))

    @property
    def real(self) -> Tensor:
        """This itself: there are no complex dtypes."""
        return self

    @property
    def H(self) -> Tensor:
        """The dims of a matrix exchanged, as torch.Tensor.H of real numbers."""
        return views.t(self)

    @property
    def mH(self) -> Tensor:
        """The last two dims exchanged, as torch.Tensor.mH of real numbers."""
        return views.transpose(self, -1, -2)

    @property
    def mT(self) -> Tensor:
        """The last two dims exchanged."""
        return views.transpose(self, -1, -2)


def _elements(array: Array) -> str:
    """An array's elements for a repr: a few of many, in lines that follow `Tensor(`."""
    return np.array2string(array, separator=", ", prefix="Tensor(", threshold=200, precision=4)


methods_with_suggestions(Tensor)
