# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from luminal.frontend.matrices import decompositions as _decompositions
from luminal.frontend.matrices import linear_algebra as _linear_algebra
from luminal.frontend.matrices import matmul as _matmul
from luminal.frontend.matrices import norms as _norms
from luminal.frontend.matrices import products as _products
from luminal.frontend.movement import views as _views
from luminal.frontend.names import other_signatures as _other_signatures

cholesky = _decompositions.cholesky
cholesky_ex = _decompositions.cholesky_ex
cond = _linear_algebra.cond
cross = _other_signatures.cross
det = _decompositions.det
diagonal = _other_signatures.diagonal
eigh = _decompositions.eigh
eigvalsh = _decompositions.eigvalsh
inv = _decompositions.inv
inv_ex = _decompositions.inv_ex
lstsq = _linear_algebra.lstsq
lu = _linear_algebra.lu
lu_factor = _decompositions.lu_factor
lu_solve = _linear_algebra.lu_solve
matmul = _matmul.matmul
matrix_exp = _decompositions.matrix_exp
matrix_norm = _norms.matrix_norm
matrix_power = _products.matrix_power
matrix_rank = _linear_algebra.matrix_rank
matrix_transpose = _views.matrix_transpose
multi_dot = _products.multi_dot
norm = _norms.linalg_norm
outer = _products.outer
pinv = _linear_algebra.pinv
qr = _decompositions.qr
slogdet = _decompositions.slogdet
solve = _decompositions.solve
solve_ex = _decompositions.solve_ex
solve_triangular = _decompositions.solve_triangular
svd = _decompositions.svd
svdvals = _decompositions.svdvals
tensordot = _products.tensordot
tensorinv = _linear_algebra.tensorinv
tensorsolve = _linear_algebra.tensorsolve
trace = _products.trace
vander = _linear_algebra.vander
vecdot = _products.vecdot
vector_norm = _norms.vector_norm

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vander",
    "vecdot",
    "vector_norm",
]
