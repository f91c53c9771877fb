"""The table of names: which operations there are, and under which names who offers them.

A row is a function of the module above it, its other names, and the places that offer it. Names
after a colon are in the place of its own. A place with a colon offers the names that follow; all
others offer every name of the row. The places:

    method      Tensor's methods
    lm          functions of `luminal`, as of `torch`
    functional  `luminal.nn.functional`; `inplace`: there, and `inplace` is accepted as an argument
    linalg      `luminal.linalg`, as torch.linalg
    special     `luminal.special`, as torch.special
    numpy       NumPy's ufuncs, called with Tensors
    array       `luminal.array_api`, of one array; `promoted`: of arrays and numbers, which are cast
                to their common dtype; `literal`: there numbers are part of the program

What offers operations is derived from here when it is imported, and so are the `.pyi` files that
lie beside it, by which editors and type checkers see signatures: after a change run `make names`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

TABLE = """
# elements one by one
pointwise.unary
    cast                              | method lm:astype
    bitcast                           | method
    stop_gradient: detach             | method method:stop_gradient lm
    shard                             | method
    exp                               | method lm numpy array
    exp2                              | method lm special numpy
    log                               | method lm numpy array
    log2                              | method lm numpy array
    sqrt                              | method lm numpy array
    rsqrt                             | method lm
    reciprocal                        | method lm numpy array
    sin                               | method lm numpy array
    cos                               | method lm numpy array
    abs absolute                      | method lm numpy:absolute,fabs array:abs
    neg negative                      | method lm numpy:negative array:negative
    sign sgn                          | method lm numpy:sign array:sign
    signbit                           | method lm numpy array
    square                            | method lm numpy array
    isnan                             | method lm numpy array
    isinf                             | method lm numpy array
    isposinf                          | method lm
    isneginf                          | method lm
    isfinite                          | method lm numpy array
    nan_to_num                        | method lm
    logical_not                       | method lm numpy array
    invert: bitwise_not               | method lm numpy:invert array:bitwise_invert
    cbrt                              | method numpy
    hypot                             | method lm numpy promoted
    frexp                             | method lm
    floor                             | method lm numpy array
    ceil                              | method lm numpy array
    round                             | method lm special numpy:rint array
    trunc fix                         | method lm numpy:trunc array:trunc
    frac                              | method lm
pointwise.exponential
    expm1                             | method lm special numpy array
    log1p                             | method lm special numpy array
    log10                             | method lm numpy array
    sigmoid                           | method lm functional special:expit
    logit                             | method lm special
    logaddexp                         | method lm numpy promoted
    logaddexp2                        | method lm
    xlogy                             | method lm special
    softplus                          | method functional
    log_sigmoid: logsigmoid           | method functional
    xlog1py                           | special
    pow                               | method lm numpy:power literal
pointwise.trigonometric
    tan                               | method lm numpy array
    asin arcsin                       | method lm numpy:arcsin array:asin
    acos arccos                       | method lm numpy:arccos array:acos
    atan arctan                       | method lm numpy:arctan array:atan
    atan2 arctan2                     | method lm numpy:arctan2 promoted:atan2
    sinc                              | method lm special
    deg2rad                           | method lm numpy:radians,deg2rad
    rad2deg                           | method lm numpy:degrees,rad2deg
    sinh                              | method lm numpy array
    cosh                              | method lm numpy array
    tanh                              | method lm functional numpy array
    asinh arcsinh                     | method lm numpy:arcsinh array:asinh
    acosh arccosh                     | method lm numpy:arccosh array:acosh
    atanh arctanh                     | method lm numpy:arctanh array:atanh
    tanhshrink                        | method functional
pointwise.gamma
    lgamma                            | method lm special:gammaln
    digamma                           | method lm special:digamma,psi
    mvlgamma                          | method lm special:multigammaln
    polygamma                         | special
    zeta                              | special
pointwise.special
    erf                               | method lm special
    erfc                              | method lm special
    erfinv                            | method lm special
    erfcx                             | special
    ndtr                              | special
    ndtri                             | special
    log_ndtr                          | special
    entr                              | special
    chebyshev_polynomial_t            | special
    chebyshev_polynomial_u            | special
    chebyshev_polynomial_v            | special
    chebyshev_polynomial_w            | special
    shifted_chebyshev_polynomial_t    | special
    shifted_chebyshev_polynomial_u    | special
    shifted_chebyshev_polynomial_v    | special
    shifted_chebyshev_polynomial_w    | special
    hermite_polynomial_h              | special
    hermite_polynomial_he             | special
    laguerre_polynomial_l             | special
    legendre_polynomial_p             | special
pointwise.bessel
    bessel_j0                         | special
    bessel_j1                         | special
    bessel_y0                         | special
    bessel_y1                         | special
    spherical_bessel_j0               | special
    i0 modified_bessel_i0             | special
    i0e                               | special
    i1 modified_bessel_i1             | special
    i1e                               | special
    modified_bessel_k0                | special
    modified_bessel_k1                | special
    scaled_modified_bessel_k0         | special
    scaled_modified_bessel_k1         | special
pointwise.activation
    relu                              | method lm inplace
    relu6                             | method inplace
    leaky_relu                        | method inplace
    prelu                             | method lm functional
    elu                               | method inplace
    selu                              | method lm inplace
    celu                              | method lm inplace
    gelu                              | method functional
    silu                              | method inplace
    mish                              | method inplace
    softsign                          | method functional
    hardswish                         | method inplace
    hardsigmoid                       | method inplace
    hardtanh                          | method inplace
    softshrink                        | method functional
    hardshrink                        | method lm functional
    threshold                         | method lm inplace
    glu                               | method functional

# elements of several tensors
pointwise.binary
    add                               | method lm numpy promoted
    sub subtract                      | method lm numpy:subtract promoted:subtract
    mul multiply                      | method lm numpy:multiply promoted:multiply
    div: true_divide                  | method lm numpy:divide promoted:divide
    floor_div: floor_divide           | method lm numpy literal
    maximum                           | method lm numpy promoted
    minimum                           | method lm numpy promoted
    clip clamp                        | method lm
    equal: eq                         | method lm numpy:equal promoted:equal
    not_equal ne                      | method lm numpy:not_equal promoted:not_equal
    less lt                           | method lm numpy:less promoted:less
    less_equal le                     | method lm numpy:less_equal promoted:less_equal
    greater gt                        | method lm numpy:greater promoted:greater
    greater_equal ge                  | method lm numpy:greater_equal promoted:greater_equal
    bit_and: bitwise_and              | method lm numpy promoted
    bit_or: bitwise_or                | method lm numpy promoted
    bit_xor: bitwise_xor              | method lm numpy promoted
    shift_left: bitwise_left_shift    | method lm numpy:left_shift literal
    shift_right: bitwise_right_shift  | method lm numpy:right_shift literal
    clamp_min                         | method lm
    clamp_max                         | method lm
    mod: remainder                    | numpy
pointwise.combine
    divide div                        | method lm
    fmax                              | method lm numpy
    fmin                              | method lm numpy
    float_power                       | method lm numpy
    rsub                              | method lm
    isclose                           | method lm
    allclose                          | method lm
    logical_and                       | method lm numpy promoted
    logical_or                        | method lm numpy promoted
    logical_xor                       | method lm numpy promoted
    copysign                          | method lm numpy promoted
    heaviside                         | method lm
    lerp                              | method lm
    addcmul                           | method lm
    addcdiv                           | method lm
    masked_fill                       | method lm
    gcd                               | method lm
    lcm                               | method lm
    divmod                            | numpy
    ldexp                             | method lm
    nextafter                         | method lm promoted
    fmod                              | method lm numpy
    remainder                         | method lm literal

# reductions, running sums, orders, searches
reduce.reductions
    sum                               | method lm
    nansum                            | method lm
    prod                              | method lm
    count_nonzero                     | method lm
    max                               | method lm
    min                               | method lm
    amax                              | method lm
    amin                              | method lm
    argmax                            | method lm
    aminmax                           | method lm
    argmin                            | method lm
    any                               | method lm
    all                               | method lm
    cumsum                            | method lm
    cumprod                           | method lm
    cummax                            | method lm
    cummin                            | method lm
    logcumsumexp                      | method lm
reduce.statistics
    mean                              | method lm
    nanmean                           | method lm
    var                               | method lm
    std                               | method lm
    var_mean                          | method lm
    std_mean                          | method lm
    median                            | method lm
    nanmedian                         | method lm
    quantile                          | method lm
    nanquantile                       | method lm
    diff                              | method lm
    trapezoid trapz                   | method:trapezoid lm
    cumulative_trapezoid              | method lm
    cov                               | method lm
    corrcoef                          | method lm
matrices.norms
    normalize                         | method functional
    dist                              | method lm
    vector_norm                       | linalg
    norm                              | method lm
    renorm                            | method lm
    matrix_norm                       | linalg
    linalg_norm: norm                 | linalg
reduce.normalization
    softmax                           | method lm functional special
    log_softmax                       | method lm functional special
    softmin                           | method functional
    logsumexp                         | method lm special
    layer_norm                        | method
    rms_norm                          | method
    group_norm                        | method lm functional
    instance_norm                     | method lm functional
    batch_norm                        | method lm functional
    local_response_norm               | method functional
reduce.sorting
    sort                              | method lm
    argsort                           | method lm
    msort                             | method lm
    topk                              | method lm
    kthvalue                          | method lm
    mode                              | method lm
reduce.searching
    bucketize                         | method lm
    nonzero                           | method lm
    nonzero_static                    | method lm
    argwhere                          | method lm
    masked_select                     | method lm
    unique                            | method lm
    unique_consecutive                | method lm
    bincount                          | method lm
    histc                             | method lm
    histogram                         | method lm
    isin                              | lm
    combinations                      | lm
    searchsorted                      | lm
    unravel_index                     | lm

# shapes and places
movement.views
    reshape                           | method lm
    reshape_as view_as                | method
    flatten                           | method lm
    ravel                             | method lm
    unflatten                         | method lm
    merge_dims                        | method
    split_dims                        | method
    permute                           | method lm lm:permute_dims
    transpose swapaxes swapdims       | method lm
    movedim moveaxis                  | method lm
    t                                 | method lm
    as_strided                        | method lm
    matrix_transpose: adjoint         | method lm lm:matrix_transpose linalg:matrix_transpose
    expand                            | method
    expand_as                         | method
    broadcast_to                      | method lm
    squeeze                           | method lm
    unsqueeze                         | method lm lm:expand_dims
    narrow narrow_copy                | method method:slice lm
    select                            | method lm
    flip                              | method lm
    fliplr                            | method lm
    flipud                            | method lm
    roll                              | method lm
    rot90                             | method lm
    concat cat concatenate            | lm
    stack                             | lm
movement.joining
    split split_with_sizes unsafe_split unsafe_split_with_sizes| method lm
    chunk unsafe_chunk                | method lm
    tensor_split                      | method lm
    hsplit                            | method lm
    vsplit                            | method lm
    dsplit                            | method lm
    unbind                            | method lm lm:unstack
    repeat                            | method lm
    tile                              | method lm
    repeat_interleave                 | method lm
    atleast_1d                        | lm
    atleast_2d                        | lm
    atleast_3d                        | lm
    block_diag                        | lm
    broadcast_tensors broadcast_arrays| lm
    cartesian_prod                    | lm
    column_stack                      | lm
    dstack                            | lm
    hstack                            | lm
    meshgrid                          | lm
    vstack row_stack                  | lm
movement.patterns
    rearrange                         | method lm
movement.padding
    pad                               | method lm functional
    tril                              | method lm
    triu                              | method lm
    diagonal                          | method lm
    diag                              | method lm
    diag_embed                        | method lm
    diagflat                          | method lm
movement.indexing
    gather                            | method lm
    take                              | method lm
    index_select                      | method lm
    take_along_axis take_along_dim    | method lm
movement.embedding
    embedding                         | method lm functional
    one_hot                           | method lm functional
    embedding_bag                     | lm functional
movement.subscript
    as_strided_scatter                | method lm
    sum_to_size                       | method
    index_put                         | method lm
movement.scatter
    scatter                           | method lm
    scatter_add                       | method lm
    scatter_reduce                    | method lm
    index_add                         | method lm
    index_copy                        | method lm
    index_fill                        | method lm
    index_reduce                      | method lm
    slice_scatter                     | method lm
    select_scatter                    | method lm
    diagonal_scatter                  | method lm
    masked_scatter                    | method lm
    put                               | method lm

# products and linear algebra
matrices.matmul
    matmul                            | method lm linalg numpy
matrices.products
    dot vdot                          | method lm
    vecdot                            | method lm linalg
    inner                             | method lm
    outer ger                         | method lm linalg:outer
    cross                             | method lm
    mv                                | method lm
    mm                                | method lm
    bmm                               | method lm
    addmv                             | method lm
    addmm                             | method lm
    baddbmm                           | method lm
    addbmm                            | method lm
    addr                              | method lm
    matrix_power                      | method lm linalg
    trace                             | method lm linalg
    kron                              | method lm
    linear                            | method lm functional
    tensordot                         | method lm linalg
    cdist                             | method lm
    bilinear                          | method lm functional
    multi_dot                         | lm linalg
    pdist                             | lm functional
matrices.einsum
    einsum                            | lm
matrices.attention
    scaled_dot_product_attention      | functional
matrices.decompositions
    det                               | method lm linalg
    slogdet                           | method lm linalg
    inv inverse                       | method lm linalg:inv
    solve                             | method lm linalg
    matrix_exp                        | method lm linalg
    cholesky                          | linalg
    cholesky_ex                       | linalg
    eigh                              | linalg
    eigvalsh                          | linalg
    inv_ex                            | linalg
    lu_factor                         | linalg
    qr                                | linalg
    solve_ex                          | linalg
    solve_triangular                  | linalg
    svd                               | linalg
    svdvals                           | linalg
matrices.linear_algebra
    logdet                            | method lm
    cholesky_inverse                  | method lm
    cholesky_solve                    | method lm
    pinverse                          | method lm
    triangular_solve                  | method lm
    lu_unpack                         | lm
    cond                              | linalg
    lstsq                             | linalg
    lu                                | linalg
    lu_solve                          | linalg
    matrix_rank                       | linalg
    pinv                              | linalg
    tensorinv                         | linalg
    tensorsolve                       | linalg
    vander                            | linalg

# windows
windows.convolution
    conv1d                            | method lm functional
    conv2d                            | method lm functional
    conv3d                            | method lm functional
    conv_transpose1d                  | method lm functional
    conv_transpose2d                  | method lm functional
    conv_transpose3d                  | method lm functional
windows.pooling
    max_pool1d                        | method lm functional
    max_pool2d                        | method lm functional
    max_pool3d                        | method lm functional
    avg_pool1d                        | method lm functional
    avg_pool2d                        | method functional
    avg_pool3d                        | method functional
    lp_pool1d                         | method functional
    lp_pool2d                         | method functional
    lp_pool3d                         | method functional
    adaptive_avg_pool1d               | method lm functional
    adaptive_avg_pool2d               | method functional
    adaptive_avg_pool3d               | method functional
    adaptive_max_pool1d               | method lm functional
    adaptive_max_pool2d               | method functional
    adaptive_max_pool3d               | method functional
windows.unfold
    unfold_dim: unfold                | method
    fold                              | method functional
    pixel_shuffle                     | method lm functional
    pixel_unshuffle                   | method lm functional
    channel_shuffle                   | method lm functional
    max_unpool1d                      | functional
    max_unpool2d                      | functional
    max_unpool3d                      | functional
    unfold                            | functional
windows.interpolate
    interpolate                       | method functional
    upsample                          | functional
    upsample_nearest                  | functional
    upsample_bilinear                 | functional
windows.grid_sample
    grid_sample                       | method functional
    affine_grid                       | functional

# random data, losses
random.drawing
    bernoulli                         | method lm
    multinomial                       | method lm
    dropout                           | lm functional
    alpha_dropout                     | lm functional
    feature_alpha_dropout             | lm functional
    rrelu                             | lm inplace
    gumbel_softmax                    | functional
    dropout1d                         | functional
    dropout2d                         | functional
    dropout3d                         | functional
random.keyed
    dropout                           | method
losses.loss
    binary_cross_entropy              | functional
    binary_cross_entropy_with_logits  | functional
    cosine_embedding_loss             | lm functional
    cosine_similarity                 | lm functional
    gaussian_nll_loss                 | functional
    hinge_embedding_loss              | lm functional
    huber_loss                        | functional
    kl_div                            | lm functional
    l1_loss                           | functional
    margin_ranking_loss               | lm functional
    mse_loss                          | functional
    multi_margin_loss                 | functional
    multilabel_margin_loss            | functional
    multilabel_soft_margin_loss       | functional
    pairwise_distance                 | lm functional
    poisson_nll_loss                  | lm functional
    rmse_loss                         | functional
    sigmoid_focal_loss                | functional
    smooth_l1_loss                    | functional
    soft_margin_loss                  | functional
    triplet_margin_loss               | lm functional
    triplet_margin_with_distance_loss | functional
losses.classification
    cross_entropy                     | functional
    ctc_loss                          | lm functional
    focal_loss                        | functional
    nll_loss                          | functional

# dtypes, and what is known of a tensor
conversion
    to                                | method
    type_as                           | method
    float_: float                     | method
    double                            | method
    half                              | method
    bfloat16                          | method
    bool_: bool                       | method
    byte                              | method
    char                              | method
    short                             | method
    int_: int                         | method
    long                              | method
    view                              | method
    equal                             | method lm
    is_complex                        | method lm
    is_floating_point                 | method lm
    is_same_size                      | method lm
    is_signed                         | method lm
    isreal                            | method lm
    angle                             | method lm
    numel                             | method:nelement lm
    element_size                      | method
    stride                            | method
    real                              | lm numpy:positive array:real,positive,conj
    real: clone positive conj conj_physical resolve_conj resolve_neg | method lm
creation
    new_full                          | method
    new_zeros new_empty               | method
    new_ones                          | method
handle
    is_tensor                         | lm

# under the same name as others, with other arguments
names.other_signatures
    layer_norm                        | lm functional
    rms_norm                          | lm functional
    cholesky                          | method lm
    qr                                | method lm
    svd                               | method lm
    lu_solve                          | method lm
    chain_matmul                      | lm
    vander                            | lm
    where                             | lm
    cross                             | linalg
    diagonal                          | linalg
"""

Function = Callable[..., Any]


def _by_place(table: str) -> dict[str, dict[str, tuple[str, str]]]:
    """The names that each place offers, with the module and the name of the function."""
    offers: dict[str, dict[str, tuple[str, str]]] = {}
    module = ""
    for line in table.splitlines():
        row, bar, places = line.partition("|")
        if not bar:  # the head of a module's rows, a comment or an empty line
            module = f"luminal.frontend.{line}"
            continue
        first, *others = row.split()
        function = first.rstrip(":")
        names = others if first.endswith(":") else [first, *others]
        for word in places.split():
            place, colon, listed = word.partition(":")
            offered_as = listed.split(",") if colon else names
            offers.setdefault(place, {}).update(dict.fromkeys(offered_as, (module, function)))
    return offers


_OFFERS = _by_place(TABLE)


def homes(*places: str) -> dict[str, tuple[str, str]]:
    """What these places offer: by name the module of the function, and its name there."""
    return {name: home for place in places for name, home in _OFFERS[place].items()}


def offered(*places: str) -> dict[str, Function]:
    """The functions that these places offer, by name. Their modules are imported now."""
    return {
        name: getattr(import_module(module), function)
        for name, (module, function) in homes(*places).items()
    }
