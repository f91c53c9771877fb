"""Programs of a seed: `torch_program` for comparisons with PyTorch, `dag` for wide graphs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.fuzz.programs import moving, pointwise, products
from tests.fuzz.programs.form import Leaf, Program
from tests.fuzz.programs.growth import Growth, Rejected, Style

Draw = Callable[[Growth], None]

STEPS: tuple[Draw, ...] = (
    *(pointwise.unary,) * 6,
    *(pointwise.scalar,) * 3,
    *(pointwise.binary,) * 8,
    *(pointwise.mixed, pointwise.whole, pointwise.whole, pointwise.compare, pointwise.truth),
    *(pointwise.where, pointwise.where, pointwise.cast, pointwise.cast),
    *(pointwise.sums,) * 5,
    *(pointwise.extreme, pointwise.softmax, pointwise.softmax, pointwise.softmax),
    *(
        pointwise.norm,
        pointwise.norm,
        pointwise.masked,
        pointwise.masked,
        pointwise.running,
        pointwise.chain,
        pointwise.chain,
    ),
    *(moving.permuted, moving.permuted, moving.reshaped, moving.reshaped, moving.cut, moving.cut),
    *(moving.cut_dim, moving.turned, moving.turned, moving.padded, moving.joined, moving.joined),
    *(moving.repeated, moving.diagonals, moving.selected, moving.gathered, moving.looked_up),
    *(moving.scattered, moving.added_rows, moving.ordered, moving.one_hot, moving.created),
    moving.bits,
    *(products.product,) * 5,
    *(products.with_itself, products.two_products, products.two_products, products.attention),
    *(products.by_letters, products.pooled, products.convolved),
    *(products.loop, products.loop_of_products, products.two_carried),
    *(products.assigned, products.assigned, products.written_state),
)
TRIES = 40  # draws in a row that may be rejected


def torch_program(seed: int, finite: bool = False) -> tuple[Program, Growth]:
    """A program of 3 to 20 steps of a few kinds, half of its leaves Weights or constants.

    `finite`: without NaN and infinities, which relaxed numerics may lose.
    """
    rng = random.Random(seed)
    g = Growth(rng, Style(wild=0, finite=True) if finite else Style())
    kinds = list(dict.fromkeys(STEPS))
    chosen = set(rng.sample(kinds, rng.randint(4, len(kinds))))
    weights = rng.choice((0.1, 0.3, 0.6))
    grow(g, [step for step in STEPS if step in chosen], rng.randint(3, 20), weights)
    return g.program(outputs_of(g)), g


def grow(g: Growth, steps: Sequence[Draw], count: int, weights: float = 0.0) -> None:
    """Makes steps until there are `count`, or none fits any more.

    A share `weights` of the draws takes Weights and constants only: whole sub-graphs of them grow.
    """
    made = tries = 0
    while made < count and tries < TRIES:
        g.weights_only = g.rng.random() < weights
        before = len(g.nodes)
        try:
            g.rng.choice(steps)(g)
        except Rejected:
            tries += 1
            continue
        made += len(g.nodes) > before
        tries = 0
    g.weights_only = False


def outputs_of(g: Growth, most: int = 6) -> tuple[int, ...]:
    """The last value, values that nothing reads, some in the middle, some twice, some leaves."""
    rng, values = g.rng, list(range(len(g.nodes)))
    used = {arg for node in g.nodes if not isinstance(node, Leaf) for arg in node.args}
    ends = [v for v in values if v not in used and not isinstance(g.nodes[v], Leaf)]
    found = [v for v in ends if rng.random() < 0.7][: most - 1]
    if values:
        found.append(rng.choice(ends[-3:] or values))
    if rng.random() < 0.5:
        found += rng.choices(values, k=rng.randint(1, 2))
    if rng.random() < 0.1:
        found.append(found[0])
    rng.shuffle(found)
    return tuple(found)
