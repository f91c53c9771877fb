"""Random steps on arrays of `lm.array_api` and on NumPy's: recording, reading, writing, sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import luminal as lm

xp = lm.array_api
Memory = np.ndarray[Any, Any]

SHAPE = (3, 4)
MOST = 8  # arrays that are held


class Pair:
    """An Array, and the value that it should have."""

    def __init__(self, ours: Any, exact: Memory) -> None:
        self.ours, self.exact = ours, exact


class Steps:
    """A number of arrays; each step does something to one or two of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pairs: list[Pair] = []
        self.outside: list[Memory] = []  # what someone else writes to
        for _ in range(3):
            self.make()

    def step(self) -> None:
        """One random step."""
        steps = [self.make, self.derive, self.read, self.write_part, self.assign, self.drop]
        steps += [self.share, self.export, self.disturb]
        steps += [*[self.combine] * 3, *[self.write] * 3, *[self.view] * 2]
        steps[self.rng.integers(len(steps))]()
        while len(self.pairs) > MOST:
            self.drop()

    def check(self) -> None:
        """Every array has the value that it should have."""
        for pair in self.pairs:
            np.testing.assert_array_equal(np.asarray(pair.ours), pair.exact)

    # Values stay small integers, so that both sides are exact.

    def _some(self) -> Pair:
        return self.pairs[self.rng.integers(len(self.pairs))]

    def _keep(self, ours: Any, exact: Memory) -> None:
        self.pairs.append(Pair(ours, np.array(exact)))

    def _drawn(self) -> Memory:
        return self.rng.integers(-5, 6, SHAPE).astype(np.float32)

    def make(self) -> None:
        """A new array."""
        exact = self._drawn()
        self._keep(xp.asarray(exact, copy=True), exact)

    def combine(self) -> None:
        """A new array of two."""
        a, b = self._some(), self._some()
        kind = self.rng.integers(3)
        if kind == 0:
            self._keep(xp.minimum(a.ours + b.ours, 99), np.minimum(a.exact + b.exact, 99))
        elif kind == 1:
            self._keep(xp.maximum(a.ours, b.ours) - 1, np.maximum(a.exact, b.exact) - 1)
        else:
            self._keep(
                xp.where(a.ours > b.ours, a.ours, -b.ours),
                np.where(a.exact > b.exact, a.exact, -b.exact),
            )

    def derive(self) -> None:
        """A new array of one."""
        a, n = self._some(), int(self.rng.integers(-3, 4))
        kind = self.rng.integers(3)
        if kind == 0:
            self._keep(xp.flip(a.ours, axis=0), a.exact[::-1])
        elif kind == 1:
            self._keep(xp.clip(a.ours + n, -50.0, 50.0), np.clip(a.exact + n, -50, 50))
        else:
            self._keep(xp.sort(a.ours, axis=1), np.sort(a.exact, axis=1))

    def read(self) -> None:
        """Has one of them computed."""
        a = self._some()
        np.testing.assert_array_equal(np.asarray(a.ours), a.exact)

    def write(self) -> None:
        """Writes a number."""
        a, k = self._some(), int(self.rng.integers(3))
        a.ours[k] = 7
        a.exact[k] = 7

    def write_part(self) -> None:
        """Writes what another array, or the same, has elsewhere."""
        a, b = self._some(), self._some()
        value = b.exact[1:].copy()
        a.ours[:2] = b.ours[1:]
        a.exact[:2] = value

    def assign(self) -> None:
        """An operator that assigns."""
        a = self._some()
        a.ours -= 1
        a.exact -= 1

    def view(self) -> None:
        """What may share memory with an array, as another one."""
        a = self._some()
        if self.rng.integers(2):
            self._keep(+a.ours, a.exact)
        else:
            self._keep(a.ours[::-1], a.exact[::-1])

    def drop(self) -> None:
        """One array less."""
        if len(self.pairs) > 2:
            self.pairs.pop(self.rng.integers(len(self.pairs)))

    def share(self) -> None:
        """An array in one memory with NumPy's, which may change."""
        memory = self._drawn()
        self._keep(xp.asarray(memory), memory)
        self.outside.append(memory)

    def export(self) -> None:
        """Hands an array's memory to PyTorch."""
        self.outside.append(torch.from_dlpack(self._some().ours).numpy())
        if self.rng.integers(2):
            self.disturb()

    def disturb(self) -> None:
        """Someone writes to memory that is shared: only what still lies there changes."""
        if not self.outside:
            return
        memory = self.outside[-1 - self.rng.integers(min(3, len(self.outside)))]
        computed = [pair for pair in self.pairs if pair.ours._deferred.is_computed]
        there = [p for p in computed if np.may_share_memory(p.ours._deferred.array(), memory)]
        for pair in there:
            np.testing.assert_array_equal(pair.ours._deferred.array(), pair.exact)
        memory[...] = self._drawn()
        for pair in there:
            pair.exact[...] = pair.ours._deferred.array()
