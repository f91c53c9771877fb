"""What a batch is to a model and its loss: which of its arrays is an argument, which the target."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from luminal.base.errors import DTypeError, GraphError, InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.scan import Tree, flatten
from luminal.frontend.tensor import Tensor
from luminal.memory.arrays import Array
from luminal.memory.data import array_of, is_list_of_numbers

Batch = tuple[Array, ...]
TARGETS = ("labels", "label", "targets", "target", "y")
"""Names of the target in a batch that is a dict; the first that it has counts."""


@dataclass(frozen=True, slots=True)
class Form:
    """How arrays are arguments: `arguments` is a tree of a tuple, or of a dict by their names;
    `target` that of what the loss is given besides, None where there is none.
    """

    arguments: Tree
    target: Tree | None

    def loss(self, model: Any, loss_fn: Any, tensors: Sequence[Tensor]) -> Tensor:
        """What `loss_fn` makes of the model's result; GraphError for what is no scalar."""
        count = len(self.arguments.paths())
        arguments = self.arguments.build(tensors[:count])
        by_name = isinstance(arguments, dict)
        result = model(**arguments) if by_name else model(*arguments)
        if self.target is None:
            _check_takes_one(loss_fn)
            loss = loss_fn(result)
        else:
            loss = loss_fn(result, self.target.build(tensors[count:]))
        if not is_tensor(loss) or loss.ndim:
            shown = describe(loss) if is_tensor(loss) else repr(loss)
            raise GraphError(f"fit: the loss is {shown}; loss_fn(model(x), y) gives a 0-d Tensor")
        return loss


class Formed(Batch):
    """The arrays of a batch that is more than a tuple of arrays, and its form."""

    form: Form


def form_of(batch: Batch) -> Form:
    """The form of a batch: that of a tuple of arrays, whose last one is the target, if it has no
    other.
    """
    return batch.form if isinstance(batch, Formed) else _plain(len(batch))


def arranged(batch: Any, what: str) -> Batch:
    """What a loader gave, as copies of its arrays: a tuple or list (arguments, then the target), a
    dict of arguments by name and a target, or one array. Parts may be tuples, lists and dicts.

    Raises InputError for a dict without a target, DTypeError for what is not made of numbers.
    """
    target: list[Any] = []
    if isinstance(batch, Mapping):
        arguments: Any = dict(batch)
        target = [arguments.pop(_target_of(arguments, what))]
    elif isinstance(batch, tuple | list):
        arguments, target = tuple(batch[:-1]), [*batch[-1:]]
        if not arguments:
            arguments, target = tuple(target), []
    else:
        arguments = (batch,)
    of_arguments, tree = flatten(arguments, _is_leaf)
    of_target, below = flatten(tuple(target), _is_leaf)
    paths = tree.paths(what) + below.paths(what)
    arrays = []
    for path, leaf in zip(paths, of_arguments + of_target, strict=True):
        try:
            arrays.append(np.array(array_of(leaf, None, path)))
        except DTypeError as error:
            raise DTypeError(f"fit: {error}; leave it out of the batches") from None
    if not of_arguments:
        raise InputError(f"fit: {what} has no array but the target; give the model an argument")
    form = Form(tree, below.parts[0] if target else None)
    return tuple(arrays) if form == _plain(len(arrays)) else _formed(arrays, form)


def rows_of(batch: Batch) -> int:
    """How many examples a batch has: the rows of its first array with rows, 1 without any."""
    return next((len(array) for array in batch if array.ndim), 1)


def split(batch: Batch, count: int) -> list[Batch]:
    """A batch in so many equal parts, in order; numbers are in each."""
    pieces = [np.split(a, count) if a.ndim else [a] * count for a in batch]
    parts: list[Batch] = [*zip(*pieces, strict=True)]
    return [_formed(part, batch.form) for part in parts] if isinstance(batch, Formed) else parts


def _formed(arrays: Sequence[Array], form: Form) -> Batch:
    formed = Formed(arrays)
    formed.form = form
    return formed


@cache
def _plain(count: int) -> Form:
    arguments = max(1, count - 1)
    tree = Tree(tuple, tuple(range(arguments)), (Tree(None),) * arguments)
    return Form(tree, Tree(None) if count > 1 else None)


def _is_leaf(part: Any) -> bool:
    return is_list_of_numbers(part)


def _target_of(batch: Mapping[str, Any], what: str) -> str:
    for name in TARGETS:
        if name in batch:
            return name
    raise InputError(
        f"fit: {what} has {', '.join(map(str, batch))} and no target; name it labels or target, or "
        "give tuples: the model's arguments and then the target"
    )


def _check_takes_one(loss_fn: Any) -> None:
    """InputError where a loss cannot be called without a target."""
    called = getattr(loss_fn, "forward", loss_fn)
    try:
        inspect.signature(called).bind(None)
    except TypeError:
        raise InputError(
            "fit: a batch of one array has no target, so its loss is loss_fn(model(x)), and "
            f"{getattr(loss_fn, '__name__', type(loss_fn).__name__)} wants more; a batch is a "
            "tuple of arrays, the model's arguments and then the target"
        ) from None
    except ValueError:  # of what has no signature
        return
