"""Rules that need Python, by the names that rows of `rules` give them.

A handler looks at the whole e-graph between egglog's rounds and yields (class, equal new node).
"""

from luminal.egraph.handlers import constants, contractions, moves, reductions
from luminal.egraph.handlers.handler import Handler

HANDLERS: dict[str, Handler] = {
    "fold": constants.fold,
    "sum_broadcast": reductions.sum_broadcast,
    "nest": reductions.nest,
    "split": reductions.split,
    "factor_out": contractions.factor_out,
    "merge": contractions.merge,
    "compose": moves.compose,
    "substitute": moves.substitute,
    "drop": moves.drop,
    "push": moves.push,
    "push_below": moves.push_below,
}
