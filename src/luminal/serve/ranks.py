"""The ranks that run one model together: what the first of them runs, all run.

A program of the server is compiled on every rank, each with its part of the products and of the
key-value heads. The first rank has the scheduler. For each run it sends the number of the program
and its arrays, some KiB: token ids, positions, pages, masks and keys of draws. So all ranks choose
the same tokens by the same keys, and only the first looks at them.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from luminal.base.errors import CollectiveError, DimError, InputError, LuminalError
from luminal.distribute.mesh import Mesh
from luminal.distribute.plans import follow
from luminal.frontend.handle import Array
from luminal.memory.state import State
from luminal.models.decoder import Decoder
from luminal.runtime.collectives.engine import Engine
from luminal.session.graph import Graph, compile
from luminal.session.parallel import name_by_path, shard

LOG = logging.getLogger("luminal.serve")
AXIS = "tensor"
BEAT_SECONDS = 2.0
"""After so long without a run the others are told that the first rank is still there."""
FIRST_BYTES = 4096
"""What is sent at once, of which the first eight say how much there is: most steps take no more."""
Program = Callable[[Mapping[str, Array]], Any]


class Ranks:
    """Who runs a model: here one process, which has all of it."""

    is_first = True
    have_all = True
    """Does each of them read the whole model?"""

    def cut(self, model: Decoder) -> None:
        """Leaves the model whole."""

    def cut_pages(self, states: Iterable[State]) -> None:
        """Leaves all pages whole."""

    def same(self, value: int) -> int:
        """A value that all ranks have."""
        return value

    def compile(self, graph: Graph, backend: str | None) -> Program:
        """The program of a graph."""
        return compile(graph, backend=backend)


ALONE = Ranks()


class Together(Ranks):
    """Several ranks, seen by one of them. All make the same calls, up to `lead` and `follow`."""

    have_all = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.mesh = Mesh((engine.size,), (AXIS,))
        self.is_first = engine.rank == 0
        self._programs: list[Program] = []
        self._turn = threading.Lock()  # of the engine's thread and of what tells that it is there
        self._ended = threading.Event()

    def cut(self, model: Decoder) -> None:
        """Cuts a model's products by the plan "tensor"; a rank keeps its part alone.

        Raises InputError where the ranks do not divide its heads or widths.
        """
        config, ranks = model.config, self._engine.size
        for count, what in (
            (config.num_attention_heads, "attention heads"),
            (config.num_key_value_heads, "key-value heads"),
        ):
            if count % ranks:
                raise InputError(
                    f"--tensor {ranks}: the model has {count} {what}, and each rank takes equally "
                    f"many whole ones; give a number that divides {count}"
                )
        left = follow(model.named_parameters(remove_duplicate=False), "tensor", self.mesh)
        whole = [path for path in left if path.split(".")[-2] not in ("embed_tokens", "lm_head")]
        if whole:
            raise InputError(
                f"--tensor {ranks}: {whole[0]} does not divide into {ranks} equal parts; give a "
                "number that divides the width of the model's layers"
            )
        name_by_path(model)

    def cut_pages(self, states: Iterable[State]) -> None:
        """Cuts pages (blocks, kv_heads, size, head_dim) over their heads.

        Raises InputError where the ranks do not divide these.
        """
        for state in states:
            if state.shape[1] % self._engine.size:
                raise InputError(
                    f"--tensor {self._engine.size}: {state.name} has {state.shape[1]} key-value "
                    "heads, and each rank takes equally many whole ones"
                )
            shard(state, (None, AXIS), self.mesh)

    def same(self, value: int) -> int:
        """The first rank's value."""
        return int(self._engine.broadcast_object(value, "a number of the server"))

    def compile(self, graph: Graph, backend: str | None) -> Program:
        """The program of a graph, which all ranks run when the first calls it."""
        self._programs.append(compile(graph, backend=backend, mesh=self.mesh))
        return partial(self._run, len(self._programs) - 1)

    def _run(self, number: int, inputs: Mapping[str, Array]) -> Any:
        """Runs a program on all ranks, and gives this one's results."""
        with self._turn:
            try:
                self._send((number, dict(inputs)))
                return self._programs[number](inputs)
            except (InputError, DimError):  # by which all ranks refuse a run, and go on
                raise
            except BaseException as error:
                # The others may wait in the middle of the run: this rank cannot go on without them.
                # Clients are told why; texts of other libraries may name files of the server.
                LOG.exception("a step failed")
                text = f": {error}" if isinstance(error, LuminalError) else ""
                self._engine.abort(f"a step failed: {type(error).__name__}{text}")
                raise

    def lead(self) -> None:
        """From now on the others follow, until `end`."""
        self._engine.barrier("the server's programs")
        threading.Thread(target=self._beat, name="luminal-ranks", daemon=True).start()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if self._turn.acquire(blocking=False):
                try:
                    if not self._ended.is_set():
                        self._send(None)
                except CollectiveError as error:
                    self._engine.abort(str(error))
                finally:
                    self._turn.release()

    def end(self) -> None:
        """Lets the others go."""
        with self._turn:
            self._ended.set()
            self._send(())

    def follow(self) -> None:
        """Runs what the first rank runs, until it ends."""
        self._engine.barrier("the server's programs")
        while (call := self._received()) != ():
            if call is None:
                continue
            number, inputs = call
            try:
                self._programs[number](inputs)
            except (InputError, DimError):
                continue  # the first rank has met the same, and tells whoever asked

    # One broadcast is enough for a step of some rows; a mask of constraints takes a second one.
    def _send(self, call: Any) -> None:
        data = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
        whole = np.frombuffer(len(data).to_bytes(8, "little") + data, np.uint8)
        first, rest = np.zeros(FIRST_BYTES, np.uint8), whole[FIRST_BYTES:].copy()
        first[: len(whole)] = whole[:FIRST_BYTES]
        for part in (first, rest):
            if part.size:
                self._engine.run("broadcast", part, part, label="a step of the server")

    def _received(self) -> Any:
        data = np.zeros(FIRST_BYTES, np.uint8)
        self._engine.run("broadcast", data, data, label="a step of the server")
        size = int.from_bytes(data[:8].tobytes(), "little")
        rest = np.empty(max(0, 8 + size - FIRST_BYTES), np.uint8)
        if rest.size:
            self._engine.run("broadcast", rest, rest, label="a step of the server")
        return pickle.loads(np.concatenate((data, rest))[8 : 8 + size].tobytes())
