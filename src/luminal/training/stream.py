"""Batches that something else makes: a DataLoader, a list, a generator, a function that gives one.

What comes is asked for in this thread, and one step ahead, so that the last step of an epoch is
known to be that. A position is an epoch and a number of batches: a run that goes on asks for the
epoch again, from what Python's, NumPy's and PyTorch's generators were at its begin, and leaves out
what it has had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from luminal.base.errors import InputError
from luminal.optim.ranges import AT_LEAST_0_INT, check
from luminal.training import generators
from luminal.training.form import Batch, arranged, form_of, rows_of, split

if TYPE_CHECKING:
    from luminal.training.ranks import Ranks

Source = Iterable[Any] | Callable[[], Iterable[Any]]
"""What gives batches: anything to iterate over, or a function that gives such a thing for each
epoch.
"""
AGAIN = "give a list, a DataLoader, or the function that makes it (it is called for each epoch)"


class Stream:
    """The batches of a source, epoch after epoch. Of each epoch those that fill no step of
    `accumulate` are left out. `epochs`: how many there are, None where steps are counted.

    `name` is what errors call the source. Raises InputError for a generator and several epochs.
    """

    def __init__(
        self, source: Source, accumulate: int = 1, epochs: int | None = 1, name: str = "data"
    ) -> None:
        self.source, self._accumulate, self._epochs, self._name = source, accumulate, epochs, name
        self.epoch, self.taken = 0, 0
        self._once = hasattr(source, "__next__")
        self._begun: generators.Generators | None = None  # at this epoch's begin, if it is to be
        self._ranks: Ranks | None = None
        self._is_part = False  # does each rank get rows of its own?
        self._divisors: list[tuple[int, str]] = []
        if self._once and epochs is not None and epochs > 1:
            raise InputError(
                f"fit: {name} is a {type(source).__name__}, which gives its batches once, and "
                f"epochs={epochs}; {AGAIN}, or steps= instead of epochs="
            )

    @property
    def ended(self) -> bool:
        """Is there no batch any more?"""
        return self.epoch >= (self._epochs or (1 if self._once else self.epoch + 1))

    @property
    def counts_epochs(self) -> bool:
        """Does the run end with the epochs, and not by a number of steps?"""
        return self._epochs is not None

    def check_again(self) -> None:
        """Raises InputError for what gives its batches once and is asked again and again."""
        if self._once:
            raise InputError(
                f"fit: {self._name} is a {type(self.source).__name__}, which gives its batches "
                f"once; {AGAIN.partition(',')[0]} or a DataLoader"
            )

    def steps_in(self, epochs: int, accumulate: int) -> int | None:
        """How many steps so many epochs are by the source's own word; None if it says nothing."""
        try:
            count = len(self.source)  # type: ignore[arg-type]
        except TypeError:
            return None
        return count // accumulate * epochs

    # --- ranks

    def join(self, ranks: Ranks) -> None:
        """Says who trains together. Raises InputError for a sampler that deals to other ranks."""
        self._ranks = ranks
        sampler = getattr(self.source, "sampler", None)
        told = getattr(sampler, "num_replicas", 1), getattr(sampler, "rank", 0)
        if told[0] > 1 and told != (ranks.parts, ranks.place):
            raise InputError(
                f"fit: the sampler of {self._name} deals to rank {told[1]} of {told[0]}, and this "
                f"is {ranks.place} of {ranks.parts} that have rows of their own; make them alike, "
                "or leave the sampler out: of whole batches each rank takes its rows"
            )
        self._is_part = told[0] > 1

    def told(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        return {"data": type(self.source).__name__, "length": self.steps_in(1, 1)}

    def check_parts(self, parts: int, what: str) -> None:
        """Has every batch checked that it falls into so many equal parts."""
        self._divisors.append((parts, what))

    def parts_at_most(self, also: int | None = None) -> int:
        """Into how many equal parts every batch falls at most: unknown but for `also`."""
        return also or 0

    # --- batches

    def part(self, place: int, parts: int) -> Iterator[Batch]:
        """The rest of the current epoch as one of several ranks has it; see Batches.part."""
        batches = self._rest()
        group = [*islice(batches, self._accumulate)]
        if len(group) < self._accumulate and not self.taken:
            raise self._too_few(len(group))
        while len(group) == self._accumulate:
            following = [*islice(batches, self._accumulate)]
            is_last = len(following) < self._accumulate
            for number, batch in enumerate(group, 1):
                if number == len(group):
                    self._move(is_last)
                yield self._mine(batch, place, parts)
            group = following
        if self.taken:  # a run that went on from the end of an epoch
            self._move(is_last=True)

    def counted(self, place: int = 0, parts: int = 1) -> Iterator[tuple[int, Batch]]:
        """How many rows each batch of an epoch has in all, and what of it this rank has; position
        and generators stay what they are. For validation.
        """
        with generators.kept(self.source):
            for number, batch in enumerate(self._made(0)):
                whole = self._checked(batch, number)
                rows = rows_of(whole)
                yield rows, whole if rows % parts else split(whole, parts)[place]

    def first(self) -> Batch:
        """The first batch; it is there once more."""
        with generators.kept(self.source):
            iterator = iter(self._made(0))
            batch = next(iterator, None)
        if batch is None:
            raise self._too_few(0)
        if self._once:
            self.source = chain([batch], iterator)
        return arranged(batch, f"{self._name}: batch 0")

    def _made(self, epoch: int) -> Iterable[Any]:
        source = self.source
        samplers: list[Any] = [source]
        samplers += (getattr(source, name, None) for name in ("sampler", "batch_sampler"))
        for sampler in {id(sampler): sampler for sampler in samplers}.values():
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        return source if isinstance(source, Iterable) else source()

    def _rest(self) -> Iterator[Batch]:
        """The whole batches of this epoch that are left."""
        if self._begun is not None:
            generators.restore(self.source, self._begun)
        self._begun = generators.states(self.source)
        iterator = iter(self._made(self.epoch))
        skipped = sum(1 for _ in islice(iterator, self.taken))
        if skipped < self.taken:
            raise InputError(
                f"fit: the checkpoint is at batch {self.taken} of epoch {self.epoch}, and "
                f"{self._name} gave {skipped}; make it alike, or begin anew with resume=False"
            )
        number = self.taken
        for batch in iterator:
            yield self._alike(self._checked(batch, number), number)
            number += 1
        self._alike(None, number)

    def _move(self, is_last: bool) -> None:
        self.epoch, self.taken = (
            (self.epoch + 1, 0) if is_last else (self.epoch, self.taken + self._accumulate)
        )
        if is_last:
            self._begun = None

    def _checked(self, batch: Any, number: int) -> Batch:
        whole = arranged(batch, f"{self._name}: batch {number}")
        rows = rows_of(whole) * (self._ranks.parts if self._ranks and self._is_part else 1)
        for parts, what in self._divisors:
            if rows % parts:
                raise InputError(
                    f"fit: batch {number} of {self._name} has {rows} rows, which do not divide by "
                    f"{parts}, {what}; make them of {-(-rows // parts) * parts}, or leave the rest "
                    "of an epoch out (drop_last=True)"
                )
        return whole

    def _alike(self, batch: Batch | None, number: int) -> Batch:
        """Compares a batch, or the end, between ranks, the elements where an epoch begins."""
        if self._ranks is not None and (engine := self._ranks.together) is not None:
            told = "the end"
            if batch is not None:
                told = f"{form_of(batch)} {[(a.shape, str(a.dtype)) for a in batch]}"
                if number == self.taken and not self._is_part:
                    hashed = hashlib.blake2b(b"".join(a.tobytes() for a in batch), digest_size=8)
                    told += f" with the digest {hashed.hexdigest()}"
            engine.check_same(told, f"batch {number} of {self._name}")
        return batch if batch is not None else ()

    def _mine(self, batch: Batch, place: int, parts: int) -> Batch:
        return batch if parts == 1 or self._is_part else split(batch, parts)[place]

    def _too_few(self, count: int) -> InputError:
        few = f"which make no step of accumulate={self._accumulate}; accumulate fewer, or "
        return InputError(
            f"fit: {self._name} gave {count} batches in epoch {self.epoch}"
            f"{f', {few}' if count else '; '}give what has some each time it is asked"
        )

    # --- saving

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch is, and from what generators its epoch begins."""
        begun = self._begun if self.taken and self._begun else generators.states(self.source)
        return {"epoch": self.epoch, "taken": self.taken, "generators": begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a position; InputError for what is none."""
        names = ("epoch", "taken", "generators")
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise InputError(
                f"fit: the checkpoint's position in the data has {', '.join(state)}, which is of "
                f"Batches; {self._name} is a {type(self.source).__name__}: give Batches, or "
                "resume=False"
            )
        check("fit: data", AT_LEAST_0_INT, epoch=state["epoch"], taken=state["taken"])
        self.epoch, self.taken = state["epoch"], state["taken"]
        self._begun = dict(state["generators"])
