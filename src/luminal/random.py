"""`lm.random`: random numbers as functions of a key, the same on every backend.

    key = lm.random.key(0)
    a, b = lm.random.split(key)
    x = lm.random.normal(a, (3, 4))

A key is an ordinary Tensor u32[2]: make it an input or keep it in a State to get other numbers in
every run. `luminal.frontend.random.keyed` says how they are made.
"""

from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.random.keyed import (
    bernoulli,
    bits,
    dropout,
    exponential,
    fold_in,
    gumbel,
    normal,
    permutation,
    randint,
    split,
    uniform,
)
from luminal.frontend.random.keyed import key as key_of
from luminal.frontend.tensor import Tensor
from luminal.session.eager import default_graph
from luminal.shape.expression import Expression

__all__ = [
    "key",
    "split",
    "fold_in",
    "bits",
    "uniform",
    "normal",
    "exponential",
    "gumbel",
    "randint",
    "bernoulli",
    "permutation",
    "dropout",
]


def key(seed: int | Tensor | Expression, graph: Recorder | None = None) -> Tensor:
    """A key, in `graph`, or the seed's graph, or the default graph. The seed: an int of 64 bits,
    or a 0-d integer Tensor."""
    if graph is None:
        graph = seed.graph if is_tensor(seed) else default_graph()
    return key_of(graph, seed)
