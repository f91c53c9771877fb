"""Linear algebra under the array API's names, as far as products and norms go."""

from luminal.frontend import diagonals, linalg, movement, norms, products
from luminal.frontend.tensor import Tensor

matmul = linalg.matmul
matrix_norm = norms.matrix_norm
matrix_power = products.matrix_power
matrix_transpose = movement.matrix_transpose
multi_dot = products.multi_dot
norm = norms.norm
outer = products.outer
tensordot = products.tensordot
trace = products.trace
vecdot = products.vecdot
vector_norm = norms.vector_norm


def cross(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The cross product along `dim`, of extent 3; see `Tensor.cross`."""
    return products.cross(x, other, dim)


def diagonal(x: Tensor, offset: int = 0) -> Tensor:
    """A diagonal of the last two dims, as the new last dim."""
    return diagonals.diagonal(x, offset, -2, -1)
