"""A search from the graph to the program that will run."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal.algebra import term_text
from luminal.backends.backend import Backend
from luminal.base import config, host, tracing
from luminal.base.errors import CompileError, LuminalError
from luminal.base.numerics import Numerics
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages
from luminal.egraph.binding import egraph_class
from luminal.hlir import printer
from luminal.hlir.graph import Graph
from luminal.runtime.arrays import Array
from luminal.runtime.binding import Signature
from luminal.runtime.collectives.leader import from_leader
from luminal.runtime.report import SearchSummary
from luminal.runtime.source_hash import source_hash
from luminal.search import database, gains, interrupt, oracle
from luminal.search.database import Decision
from luminal.search.genome import Genome
from luminal.search.log import SCHEDULES, STRUCTURE, Log
from luminal.search.measure import Measurements
from luminal.search.operands import Arrays, SharedFile, choose_dims, draw, share
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.process import Builders, Lost, Refused
from luminal.search.runner import Runner
from luminal.search.space import Candidate, Space
from luminal.search.strategy import Strategy
from luminal.search.summaries import dispatches_of, note, repeated, untimed

if TYPE_CHECKING:
    from luminal.runtime.collectives.engine import Engine


class _Found(NamedTuple):
    """What a search gives, and the choices that make the same stages on another rank."""

    stages: Stages
    summary: SearchSummary
    genome: str


# The search stands above the compiler, since a candidate is decoded by the compiler's own steps.
def search(
    graph: Graph,
    backend: Backend,
    mode: CompilationMode,
    options: SearchOptions,
    numerics: Numerics = Numerics.STANDARD,
    values: Mapping[str, Array] | None = None,
    engine: Engine | None = None,
    dispatch: str | None = None,
    title: str = "",
) -> tuple[Stages, SearchSummary]:
    """The stages of the fastest program found for a graph, and what was tried.

    `values`: arrays set on the graph's inputs. `engine`: that of all ranks of a mesh, which must
    all call this: the first one searches, and its choice is everyone's. A finished search is
    stored; the same one later, in any process, gives the same program without timing. An interrupt
    (Ctrl-C) ends the search with the best program so far, a second one is the caller's
    (`interrupt.py`). `dispatch`: how the device is given all programs' launches, where that is no
    choice. `title`: of the program, where searches are listed. Raises CompileError if a candidate
    computes something else.
    """

    def find() -> _Found:
        space = Space(graph, backend, numerics, dispatch=dispatch)
        return _found(space, mode, options, values, title)

    if engine is None or engine.size == 1:
        return find()[:2]
    here: list[Stages] = []

    # A genome travels, not a program: its choices go by names that hold in every process, and each
    # rank has its own Parameters to put into the stages.
    def told() -> tuple[str, SearchSummary]:
        stages, summary, genome = find()
        here.append(stages)
        return genome, summary

    genome, summary = from_leader(engine, told, "the search")
    if here:
        return here[0], summary
    space = Space(graph, backend, numerics, dispatch=dispatch)
    return space.decode(Genome.parse(genome)).stages, summary


def _found(
    space: Space,
    mode: CompilationMode,
    options: SearchOptions,
    values: Mapping[str, Array] | None,
    title: str,
) -> _Found:
    """What `search` finds on one rank."""
    dims = choose_dims(Signature(space.graph), options.dims)
    context = context_of(space.backend, dims)
    text, told = term_text.to_text(space.lowered), (space.numerics, mode, _of_results(options))
    dispatch = space.dispatch or config.get("LUMINAL_DISPATCH") or "any"
    key = text_key("\n".join(map(str, (text, context, *told, f"dispatch {dispatch}"))))
    # A finished search of the same graph, machine, options and seed decides without timing.
    earlier = database.default().decision(key)
    if earlier is not None:
        stages = _replay(space, earlier)
        if stages is not None:
            text = f"{_decision(earlier, options)} (decided by an earlier search)"
            return _Found(stages, repeated(mode, options, text, key, earlier), earlier.genome)
        database.default().forget(key)
    egraph_class()  # where it is missing no search may end well, however short its time is
    with tracing.span("search"):
        arrays = draw(space.graph, dims, values or {}, options.seed)
        try:
            shared = share(space.graph, arrays)
        except OSError as error:
            reason = f"no room for the arrays that candidates run on: {error}"
            summary = untimed(mode, options, _kept(reason))
            note(space, dims, key, title, summary)
            return _Found(space.decode(Genome()).stages, summary, _FAST)
        return _Search(space, mode, options, arrays, shared, context, key, title).run()


def _replay(space: Space, decision: Decision) -> Stages | None:
    """The program of a search that was finished before; None where it cannot be made any more.

    The search's own code is no part of the key, so an older one may have written the genome.
    """
    try:
        return space.decode(Genome.parse(decision.genome)).stages
    except (LuminalError, ValueError, LookupError, TypeError):
        return None


def _kept(reason: str) -> str:
    return f"the fast program runs: {reason}"


_FAST = Genome().to_json()


class _Search:
    """One search with its processes."""

    def __init__(
        self,
        space: Space,
        mode: CompilationMode,
        options: SearchOptions,
        arrays: Arrays,
        shared: SharedFile,
        context: str,
        key: str,
        title: str,
    ) -> None:
        self.space = space
        self.mode = mode
        self.options = options
        self.arrays = arrays
        self.key = key
        self.title = title
        backend = space.backend
        workers = options.workers or len(host.core_ids())
        self.shared = shared
        self.builders = Builders(backend.name, workers, options.build_seconds)
        self.runner = Runner(backend.name, self.shared, options.run_seconds)
        self.database = database.default()
        self.log = Log(options.progress, mode.seconds, options.max_candidates)
        self.measurements = Measurements(
            space,
            self.builders,
            self.runner,
            self.database,
            self.log,
            arrays.dims,
            context,
            _counting(backend),
        )

        self.known = len(self.measurements.model.learned.samples)

    def run(self) -> _Found:
        """Searches, settles who wins, and gives everything back."""
        with ExitStack() as stack:  # gives back everything, even if another interrupt comes
            for owner in (self.shared, self.builders, self.runner, self.log):
                stack.callback(owner.close)
            try:
                settled = self._run()
            except CompileError as error:
                told = untimed(self.mode, self.options, f"failed: {error}")
                times = [best.best_seconds for best in self.log.history] or [0.0]
                told = replace(told, fast_seconds=times[0], best_seconds=times[-1])
                self._note(replace(told, **self._tried()))
                raise
            self._note(settled.summary)
            return settled

    def _note(self, summary: SearchSummary) -> None:
        note(self.space, self.arrays.dims, self.key, self.title, summary)

    def _tried(self) -> dict[str, Any]:
        """What was tried so far, as fields of a summary."""
        return {
            "candidates": self.log.candidates,
            "kernels_built": self.log.kernels_built,
            "rejected": self.log.rejected(),
            "history": tuple(self.log.history),
            "rules": self.space.rules(),
            "structure": self.log.side(STRUCTURE),
            "schedules": self.log.side(SCHEDULES),
            "trials": tuple(self.log.trials),
        }

    def _run(self) -> _Found:
        try:
            strategy = Strategy(self.measurements, self.mode, self.options)
        except (Lost, Refused, pickle.PicklingError, TypeError, KeyboardInterrupt) as error:
            is_interrupted = isinstance(error, KeyboardInterrupt)
            if is_interrupted and not interrupt.first():
                raise
            reason = str(error) or "interrupted"
            stages = self.space.decode(Genome()).stages
            summary = untimed(self.mode, self.options, _kept(reason))
            return _Found(stages, replace(summary, interrupted=is_interrupted), _FAST)
        interrupted = False
        try:
            strategy.run()
            interrupt.finished()
        except KeyboardInterrupt:
            if not interrupt.first():
                raise
            interrupted = True
            self.runner.close()  # its answer to the last request would come late
        return self._settle(strategy, interrupted)

    def _settle(self, strategy: Strategy, interrupted: bool) -> _Found:
        """The winner of the last duel, right beyond doubt; a finished search is stored."""
        best, fast = strategy.best, strategy.fast
        # The last word is a duel of the best with the fast program, timed in turns: during the
        # search both the machine and the best have changed, and only what still wins replaces the
        # rules' choice.
        seconds = (fast.seconds, fast.seconds)
        chosen, lost = fast, ""
        try:
            if best is not fast:
                self._check(strategy)
                wins, mine, other = strategy.duel()
                seconds = (other, mine if wins else other)
                chosen = best if wins else fast
        except (Lost, Refused) as error:
            lost = str(error)
            self.log.reject(lost, "the best program, in the last comparison")
        winner, ways = chosen.candidate, () if interrupted else gains.dispatches(strategy, chosen)
        changes = () if interrupted else gains.changes(strategy, chosen)
        decision = Decision(winner.genome.to_json(), *seconds, json.dumps(ways))
        stages = winner.stages
        is_enough = fast.seconds * 1e6 < self.options.stop_below_us
        untried = not (interrupted or is_enough or self.log.candidates) and strategy.is_late
        # The next search has their kernels, and more time. What failed at last decides nothing.
        if not (interrupted or untried or lost):
            holds = self.database.decide(self.key, decision)
            replayed = None if holds == decision else _replay(self.space, holds)
            if replayed is not None:  # another process was first
                decision, stages = holds, replayed
        text = _decision(decision, self.options)
        if winner is fast.candidate and decision.genome == _FAST and not is_enough:
            text += _why_nothing(self.log, best is not fast, lost)
        if untried:
            limit = f"{self.mode} was over before another program was timed"
            text = f"the fast program ({fast.seconds * 1e6:,.1f} us) runs: {limit}; give it more"
        if interrupted:
            text += " (interrupted: the next search goes on from its measurements)"
        self.log.best(decision.best_seconds)
        summary = self._summary(decision, text, winner)
        if decision.genome == winner.genome.to_json():
            summary = replace(summary, changes=changes)
        return _Found(stages, replace(summary, interrupted=interrupted), decision.genome)

    def _summary(self, decided: Decision, decision: str, winner: Candidate) -> SearchSummary:
        return SearchSummary(
            mode=str(self.mode),
            seed=self.options.seed,
            fast_seconds=decided.fast_seconds,
            best_seconds=decided.best_seconds,
            decision=decision,
            dispatches=dispatches_of(decided),
            libraries=tuple(self.measurements.timed.rows(winner)),
            foresight=self.log.orders()._replace(known=self.known),
            genome=decided.genome,
            **self._tried(),
        )

    # --- right before fast

    def _check(self, strategy: Strategy) -> None:
        """Raises CompileError, with a reproducer written, if the best program is wrong."""
        best, fast = strategy.best, strategy.fast
        apart = self.runner.distance(best.number, fast.number)
        worst = {name: distance.worst for name, distance in apart.items()}
        expected = oracle.samples(self.space.lowered, self.arrays, self.options.seed, worst)
        positions = {name: sample.positions for name, sample in expected.items()}
        elements = self.runner.elements(best.number, positions)
        first = self.runner.elements(fast.number, positions)
        falls = oracle.may_fall(root.term for root in self.space.lowered.roots)
        for name, distance in apart.items():
            verdict = oracle.verdict(
                distance, expected.get(name), first.get(name), elements.get(name), falls
            )
            if not verdict.right:
                raise self._wrong(best.candidate.genome, f"{name}: {verdict.text}")

    def _wrong(self, genome: Genome, text: str) -> CompileError:
        """The error for a wrong candidate; a folder holds all that is needed to see it again."""
        folder = Path(tempfile.mkdtemp(prefix="luminal-wrong-"))
        (folder / "graph.hlir").write_text(printer.to_text(self.space.graph))
        (folder / "genome.json").write_text(genome.to_json())
        (folder / "seed.txt").write_text(f"{self.options.seed}\n{self.arrays.dims}\n")
        np.savez(folder / "inputs.npz", **self.arrays.inputs)  # type: ignore[arg-type]
        return CompileError(
            f"search: a candidate computes something else: {text}. This is a fault of Luminal; "
            f"please report it with the folder {folder}, and compile with mode='fast' meanwhile"
        )


def _why_nothing(log: Log, lost_duel: bool, failure: str) -> str:
    """Why the fast program stays: what was timed, what was only predicted, what failed."""
    if failure:
        return f": the best of {log.candidates:,} timed failed in the last comparison: {failure}"
    foreseen = sum(
        rejected.candidates for rejected in log.rejected() if "predicted" in rejected.reason
    )
    left = f", {foreseen:,} more were predicted to be slow" if foreseen else ""
    if lost_duel:
        return f": the best of {log.candidates:,} timed was not faster beyond doubt{left}"
    return f": none of {log.candidates:,} timed was faster{left}"


def _decision(decided: Decision, options: SearchOptions) -> str:
    fast, best = decided.fast_seconds * 1e6, decided.best_seconds * 1e6
    if decided.genome != _FAST:
        return f"found {fast / best if best else 1:.2f}x over fast ({best:,.1f} us)"
    if fast < options.stop_below_us:
        limit = f"stop_below_us={options.stop_below_us:g}"
        return f"the fast program ({fast:,.1f} us) is within {limit}: nothing else was tried"
    return f"nothing beat the fast program ({fast:,.1f} us); it runs"


def context_of(backend: Backend, dims: Mapping[str, int]) -> str:
    """What every measurement and decision depends on beside the graph."""
    code, units = source_hash(*backend.makers), config.get("LUMINAL_THREADS") or backend.costs.units
    machine = f"{backend.target}\n{backend.costs}\n{backend.hardware}\n{units} units"
    return f"{machine}\n{sorted(dims.items())}\n{code}\n{config.cache_key()}"


def _counting(backend: Backend) -> str:
    """What makes kernels and what counts them: features and times of others are no evidence."""
    code = source_hash(*backend.makers, type(backend).__module__)
    return text_key(f"{code}\n{config.get('LUMINAL_THREADS')}\n{config.cache_key()}")


def _of_results(options: SearchOptions) -> SearchOptions:
    """The options without those that change no decision."""
    return replace(options, progress=None, workers=None)
