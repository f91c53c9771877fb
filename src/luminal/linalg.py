"""Linear algebra under the names of torch.linalg and of the array API's extension."""

from luminal.frontend.matrices import (
    decompositions,
    functions,
    matrix_norms,
    products,
)
from luminal.frontend.matrices import (
    matmul as linalg,
)
from luminal.frontend.movement import padding, views
from luminal.frontend.reduce import norms
from luminal.frontend.tensor import Tensor

cholesky = decompositions.cholesky
cholesky_ex = decompositions.cholesky_ex
cond = functions.cond
det = decompositions.det
eigh = decompositions.eigh
eigvalsh = decompositions.eigvalsh
inv = decompositions.inv
inv_ex = decompositions.inv_ex
lstsq = functions.lstsq
lu = functions.lu
lu_factor = decompositions.lu_factor
lu_solve = functions.lu_solve
matmul = linalg.matmul
matrix_exp = decompositions.matrix_exp
matrix_norm = matrix_norms.matrix_norm
matrix_power = products.matrix_power
matrix_rank = functions.matrix_rank
matrix_transpose = views.matrix_transpose
multi_dot = products.multi_dot
norm = matrix_norms.linalg_norm
outer = products.outer
pinv = functions.pinv
qr = decompositions.qr
slogdet = decompositions.slogdet
solve = decompositions.solve
solve_ex = decompositions.solve_ex
solve_triangular = decompositions.solve_triangular
svd = decompositions.svd
svdvals = decompositions.svdvals
tensordot = products.tensordot
tensorinv = functions.tensorinv
tensorsolve = functions.tensorsolve
trace = products.trace
vander = functions.vander
vecdot = products.vecdot
vector_norm = norms.vector_norm


def cross(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The cross product along `dim`, of extent 3; see `Tensor.cross`."""
    return products.cross(x, other, dim)


def diagonal(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A diagonal of two dims, by default the last two, as the new last dim."""
    return padding.diagonal(x, offset, dim1, dim2)
