"""Examples for training, and batches of them in an order that is a function of seed and epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from luminal.base.dtypes import int32
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.base.generator import checked_seed
from luminal.loaders.idx import read_idx
from luminal.loaders.mapped import given_path, is_there
from luminal.memory.data import array_of
from luminal.optim.ranges import AT_LEAST_0_INT, COUNT, check
from luminal.training.form import Batch
from luminal.training.prefetch import prefetched

if TYPE_CHECKING:
    from luminal.training.ranks import Ranks

MEAN, STD = 0.1307, 0.3081  # of the pixels of MNIST's training images, scaled to 0..1


class Dataset(Protocol):
    """So many examples, each a tuple of arrays; the last one is the target."""

    def __len__(self) -> int:
        """The number of examples."""

    def take(self, positions: npt.NDArray[np.int64]) -> Batch:
        """These examples, stacked along a first dimension. Called by a thread."""


class ArrayDataset:
    """Example k is row k of every array."""

    def __init__(self, *arrays: npt.ArrayLike) -> None:
        self.arrays = tuple(map(np.asarray, arrays))
        shapes = [array.shape for array in self.arrays]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
            raise ShapeError(
                f"ArrayDataset: shapes {shapes}; give arrays with as many rows, one an example"
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def take(self, positions: npt.NDArray[np.int64]) -> Batch:
        """Takes elements by their numbers; see Dataset."""
        return tuple(array[positions] for array in self.arrays)


class TextDataset:
    """Example k is (ids, next ids), both int32 (length,): `length` tokens from k * stride on.

    `tokens`: the ids of a whole text, 1-d; `stride`: `length` by default, so that windows do not
    overlap. A rest that fills no window is left out. Raises ShapeError for too short a text,
    DTypeError for ids that are no integers or do not fit into int32.
    """

    def __init__(self, tokens: npt.ArrayLike, length: int, stride: int | None = None) -> None:
        self.tokens = array_of(tokens, int32, "TextDataset: tokens")
        check("TextDataset", COUNT, length=length, stride=stride)
        self.length, self.stride = int(length), int(length if stride is None else stride)
        if self.tokens.ndim != 1 or self.tokens.size <= length:
            raise ShapeError(
                f"TextDataset: tokens {self.tokens.shape}; give the ids of one text, more than "
                f"length = {length} of them"
            )

    def __len__(self) -> int:
        return (self.tokens.size - 1 - self.length) // self.stride + 1

    def take(self, positions: npt.NDArray[np.int64]) -> Batch:
        """Takes elements by their numbers; see Dataset."""
        window = positions[:, None] * self.stride + np.arange(self.length)
        return self.tokens[window], self.tokens[window + 1]


class MNIST:
    """Handwritten digits from the four IDX files in a folder, gzipped or not.

    An example is (image, digit): f32 (1, 28, 28), normalised to mean 0 and deviation 1 over the
    training images, and an int64. Raises LoadError. LeCun, Cortes, Burges: The MNIST database.
    """

    def __init__(self, folder: str | Path, train: bool = True) -> None:
        part = "train" if train else "t10k"
        images = _in_folder(given_path(folder), f"{part}-images-idx3-ubyte")
        labels = _in_folder(given_path(folder), f"{part}-labels-idx1-ubyte")
        self.images, self.labels = read_idx(images), read_idx(labels)
        if self.images.shape[1:] != (28, 28) or self.images.dtype != np.uint8:
            content = f"{self.images.dtype} {self.images.shape}"
            raise LoadError(f"{images}: holds {content}, it must be uint8 (count, 28, 28)")
        if self.labels.shape != self.images.shape[:1] or self.labels.max(initial=0) > 9:
            raise LoadError(
                f"{labels}: holds {self.labels.dtype} {self.labels.shape}, it must be a digit of "
                f"0..9 for each of {len(self.images)} images"
            )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, positions: npt.NDArray[np.int64]) -> Batch:
        """Takes elements by their numbers; see Dataset."""
        pixels = self.images[positions, None].astype(np.float32)
        return (pixels / 255 - MEAN) / STD, self.labels[positions].astype(np.int64)


def _in_folder(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if is_there(path):
            return path
    raise LoadError(f"{folder}: no {name} and no {name}.gz in it")


class Batches:
    """A dataset in batches, epoch after epoch; iterating gives the rest of the current epoch.

    The order of an epoch follows from `seed` and its number alone, so `state_dict` is two numbers,
    and a run that goes on from them sees the same batches as one that never stopped. A batch counts
    as taken when it is handed out. `prefetch` batches are made ahead by a thread. Without
    `drop_last` the last batch of an epoch may be smaller.
    """

    ended = False  # there is always another epoch

    def __init__(
        self,
        dataset: Dataset,
        size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        prefetch: int = 2,
    ) -> None:
        check("Batches", COUNT, size=size)
        check("Batches", AT_LEAST_0_INT, prefetch=prefetch)
        if not hasattr(dataset, "take"):
            raise InputError(
                f"Batches: {dataset!r} is no dataset; pass ArrayDataset(*arrays), or what has "
                "__len__ and take(positions)"
            )
        self.dataset, self.size = dataset, int(size)
        self.seed = checked_seed("Batches", seed)
        self.shuffle, self.drop_last, self.prefetch = shuffle, drop_last, prefetch
        self.epoch, self.taken = 0, 0
        if not len(self):
            raise InputError(
                f"Batches: {len(dataset)} examples give no batch of {size}; make the size smaller"
                + (", or drop_last=False" if len(dataset) else "")
            )

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        count = len(self.dataset)
        return count // self.size if self.drop_last else -(-count // self.size)

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The positions of the examples in the order of an epoch."""
        count = len(self.dataset)
        if not self.shuffle:
            return np.arange(count)
        # A fresh generator for each epoch, not one that is carried on: then a position in the data
        # is two numbers, and no state of a generator has to be saved.
        return np.random.default_rng((self.seed, epoch)).permutation(count)

    def __iter__(self) -> Iterator[Batch]:
        return self.part(0, 1)

    def rows(self, number: int) -> int:
        """How many examples a batch of an epoch has."""
        return min(self.size, len(self.dataset) - number * self.size)

    def steps_in(self, epochs: int, accumulate: int) -> int:
        """How many steps of so many batches so many epochs are; InputError for none."""
        if not (steps := len(self) * epochs // accumulate):
            raise InputError(
                f"fit: {epochs} epochs of {len(self)} batches make no step of "
                f"accumulate={accumulate}; accumulate fewer, or give steps="
            )
        return steps

    def join(self, ranks: Ranks) -> None:
        """Is told who trains together, on whom batches do not depend."""

    def told(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        return {"batches": len(self), "size": self.size, "seed of data": self.seed,
                "shuffle": self.shuffle, "drop_last": self.drop_last}  # fmt: skip

    def check_parts(self, parts: int, what: str) -> None:
        """Raises InputError where a batch does not fall into so many equal parts."""
        sizes = dict.fromkeys(self.rows(number) for number in (0, len(self) - 1))
        for rows in sizes:
            if rows % parts:
                is_last = rows != self.size
                batch = "the last batch of an epoch has" if is_last else "batches have"
                fix = (
                    "drop_last=True leaves it out"
                    if is_last
                    else f"make them of {-(-rows // parts) * parts}"
                )
                raise InputError(
                    f"fit: {batch} {rows} rows, which do not divide by {parts}, {what}; {fix}"
                )

    def parts_at_most(self, also: int | None = None) -> int:
        """Into how many equal parts each batch of an epoch, and `also` this number, falls at
        most: any number of ranks that divides it can train by them.
        """
        return math.gcd(self.rows(0), self.rows(len(self) - 1), also or 0)

    def part(self, place: int, parts: int) -> Iterator[Batch]:
        """The rest of the current epoch as one of several ranks has it: of each batch of n rows,
        those from place * n / parts on. Others are not loaded; the position is that of all ranks.

        Where n does not divide by `parts`, the batch is whole.
        """
        epoch, count = self.epoch, len(self)
        numbers = range(self.taken, count)
        batches = self._made(epoch, numbers, place, parts)
        for number, batch in zip(numbers, batches, strict=True):
            # Before the batch is handed out: who stops in its middle goes on with the next one.
            rest = number + 1 < count
            self.epoch, self.taken = (epoch, number + 1) if rest else (epoch + 1, 0)
            yield batch

    def once(self, place: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Every batch of epoch 0, or what `part` gives of it; the position stays what it is. For
        validation.
        """
        return self._made(0, range(len(self)), place, parts)

    def counted(self, place: int = 0, parts: int = 1) -> Iterator[tuple[int, Batch]]:
        """How many rows each batch of epoch 0 has in all, and what `once` gives of it."""
        for number, batch in enumerate(self.once(place, parts)):
            yield self.rows(number), batch

    def first(self) -> Batch:
        """The first batch of all; the position stays what it is."""
        return next(self.once())

    def _made(self, epoch: int, numbers: Sequence[int], place: int, parts: int) -> Iterator[Batch]:
        make = partial(self._batch, self.order(epoch), place, parts)
        return prefetched(make, numbers, self.prefetch)

    def _batch(self, order: npt.NDArray[np.int64], place: int, parts: int, number: int) -> Batch:
        batch = order[number * self.size : (number + 1) * self.size]
        return self.dataset.take(batch if len(batch) % parts else np.split(batch, parts)[place])

    def state_dict(self) -> dict[str, int]:
        """Where the next batch is, and what its order follows from."""
        return {"epoch": self.epoch, "taken": self.taken, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a position; InputError where it is one in other batches."""
        names = ("epoch", "taken", *self._identity())
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise InputError(f"Batches: {state!r} is no position; it has {', '.join(names)}")
        # Other batches would be in another order: the run would go on, but not be the same run.
        for name, value in self._identity().items():
            if state[name] != value:
                raise InputError(
                    f"Batches: the position is one in batches with {name} {state[name]}, these "
                    f"have {value}; make them alike, or begin anew"
                )
        check("Batches", AT_LEAST_0_INT, epoch=state["epoch"], taken=state["taken"])
        if state["taken"] >= len(self):
            raise InputError(f"Batches: taken={state['taken']}; an epoch has {len(self)} batches")
        self.epoch, self.taken = state["epoch"], state["taken"]

    def _identity(self) -> dict[str, int]:
        return {
            "examples": len(self.dataset),
            "size": self.size,
            "seed": self.seed,
            "shuffle": int(self.shuffle),
        }
