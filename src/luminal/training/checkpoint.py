"""Checkpoints in a folder: each there as a whole or not at all, the last ones and the best kept.

A checkpoint is `step-N.json` and a safetensors file that it names. The JSON is written last, under
another name until it is on disk, and holds digests of both: what a crash leaves is not mistaken for
a checkpoint, and what a disk has changed since is noticed. Where several ranks save together each
writes a file of its own (`checkpoint_parts.py`), and the JSON names all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import Array, given_path
from luminal.loaders.shown import shown
from luminal.loaders.write_atomic import replacing
from luminal.loaders.write_safetensors import save_safetensors
from luminal.memory.part import Piece
from luminal.optim.ranges import AT_LEAST_0_INT, COUNT, as_number, check
from luminal.training import checkpoint_parts, nested
from luminal.training.checkpoint_parts import digest_of_file

if TYPE_CHECKING:
    from luminal.runtime.collectives.engine import Engine

FORMAT, FORMAT_OF_PARTS = 1, 2
_NAME = re.compile(r"step-(\d+)\.json")
_OURS = re.compile(r"\.?step-\d+[-.].*(safetensors|tmp)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved at a step. `metric`: the number that the best are chosen by, if there is one.

    `state` is what `CheckpointManager.save` was given, of the same types; its arrays are copies.
    """

    step: int
    state: Any
    metric: float | None = None


# Two files would have to be renamed at once. So arrays lie in a file whose name has a random part,
# and the JSON that names it is written last and is the checkpoint. A folder each was the
# alternative: renaming folders is atomic, but not onto one that is there.
class CheckpointManager:
    """The checkpoints of one run in `folder`, which is made when there is something to save.

    Kept are the `keep_last` newest, and the `keep_best` whose metric is lowest (highest with
    `best="max"`). One run at a time writes to a folder.
    """

    def __init__(
        self, folder: str | Path, keep_last: int = 3, keep_best: int = 1, best: str = "min"
    ) -> None:
        check("CheckpointManager", COUNT, keep_last=keep_last)
        check("CheckpointManager", AT_LEAST_0_INT, keep_best=keep_best)
        if best not in ("min", "max"):
            raise InputError(f'CheckpointManager: best={best!r}; takes "min" or "max"')
        self.folder = given_path(folder).absolute()  # whatever a run's working directory becomes
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder}: is no folder; give one, or a path that is free")
        self.keep_last, self.keep_best, self.lowest = keep_last, keep_best, best == "min"

    def steps(self) -> list[int]:
        """The steps with a checkpoint, ascending; damaged ones are among them."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def latest(self) -> int | None:
        """The newest step, or None."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the best metric, or None where none has one."""
        return next(iter(self._by_metric(self.steps())), None)

    # --- writing

    def save(
        self, step: int, state: Any, metric: float | None = None, engine: Engine | None = None
    ) -> Path:
        """Writes a checkpoint, then deletes those that are no longer kept; the path of its JSON.

        `state`: dicts, lists, tuples, arrays, numbers, texts, bools, None. Checkpoints of later
        steps are of a run that was given up, and are not among the newest. With an `engine`
        (`lm.distributed.engine()`) all ranks save together, each what is its own, into one folder
        that all of them see. Raises InputError where the folder cannot be written to; then all that
        was there before still is.
        """
        check("CheckpointManager.save", AT_LEAST_0_INT, step=step)
        if metric is not None:
            metric = as_number("CheckpointManager.save: metric", metric)
        values, arrays = nested.split(state)
        if engine is not None and engine.size > 1:
            return self._save_together(step, values, arrays, metric, engine)
        if cut := [name for name, array in arrays.items() if isinstance(array, Piece)]:
            raise InputError(
                f"CheckpointManager.save: {cut[0]} is cut over a mesh; all ranks save it together, "
                "with engine=lm.distributed.engine()"
            )
        path, stem = self._path(step), f"step-{step:09d}"
        data = self.folder / f"{stem}-{secrets.token_hex(4)}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_safetensors(data, arrays)
            content = {
                "format": FORMAT,
                "step": step,
                "metric": metric,
                "arrays": data.name,
                "arrays_digest": digest_of_file(data),
                "state": values,
            }
            _write_json(path, content)
        except BaseException as error:
            with contextlib.suppress(OSError):
                if data.name not in self._named(path):  # an interrupt may come after the JSON
                    data.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise InputError(
                    f"{self.folder}: the checkpoint of step {step} cannot be written: "
                    f"{error.strerror}; the ones before are as they were, make room for this one"
                ) from error
            raise
        self._prune(step)
        return path

    def _save_together(
        self, step: int, values: Any, arrays: Mapping[str, Array | Piece], metric: float | None,
        engine: Engine,
    ) -> Path:  # fmt: skip
        """Writes the files of all ranks, then the JSON; on all ranks it is done or an error."""
        path, is_first = self._path(step), engine.rank == 0
        token = engine.broadcast_object(secrets.token_hex(4), f"name of checkpoint {step}")
        files = checkpoint_parts.write(self.folder, f"step-{step:09d}-{token}", arrays, engine)
        told: dict[str, str] = {}
        if is_first:
            content = {
                "format": FORMAT_OF_PARTS,
                "step": step,
                "metric": metric,
                "files": files,
                "state": values,
            }
            try:
                _write_json(path, content)
            except (OSError, InputError) as error:
                told = {"error": getattr(error, "strerror", None) or str(error)}
                for file in files:
                    checkpoint_parts.remove(self.folder / file["name"])
        first = checkpoint_parts.together(told, f"checkpoint {step}", engine)[0]
        if "error" in first:
            raise InputError(
                f"{self.folder}: the checkpoint of step {step} cannot be written: "
                f"{first['error']}; the ones before are as they were, make room for this one"
            )
        if is_first:
            self._prune(step)
        return path

    def _prune(self, newest: int) -> None:
        """Deletes what is not kept, and what a crash left."""
        steps = self.steps()
        past = [step for step in steps if step <= newest]
        kept = {*past[-self.keep_last :], *self._by_metric(steps)[: self.keep_best]}
        needed: set[str] = set()
        for step in steps:
            path = self._path(step)
            if step in kept:
                needed.update(self._named(path))
            else:
                path.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in needed:
                path.unlink(missing_ok=True)

    @staticmethod
    def _named(path: Path) -> set[str]:
        """The files of arrays that a checkpoint's JSON names; none where that cannot be read."""
        with contextlib.suppress(LoadError, LookupError, TypeError):
            content = read_json(path)
            files = {str(file["name"]) for file in content.get("files", ())}
            return files | {str(content.get("arrays"))}
        return set()

    # --- reading

    def restore(self, step: int | None = None, engine: Engine | None = None) -> Checkpoint | None:
        """The checkpoint of a step, or the newest that is whole; None where there is none.

        A damaged one is passed over with a warning. With an `engine` all ranks ask together, and
        the arrays are `Stored`: they lie in the files until parts of them are asked for, whatever
        ranks wrote them. Raises LoadError for a step asked for that is missing or damaged.
        """
        if step is not None:
            return self._read_together(step, engine)
        steps = self.steps()
        if engine is not None:
            steps = engine.broadcast_object(steps, "steps with a checkpoint")
        for candidate in reversed(steps):
            try:
                return self._read_together(candidate, engine)
            except LoadError as error:
                if engine is None or engine.rank == 0:
                    warnings.warn(f"{error}; the checkpoint before it is used", stacklevel=2)
        return None

    def _read_together(self, step: int, engine: Engine | None) -> Checkpoint:
        """Reads a checkpoint, which is whole for all ranks or for none."""
        if engine is None:
            return self._read(step)
        told, checkpoint = {}, None
        try:
            checkpoint = self._read(step, engine.rank, engine.size, stays=True)
        except LoadError as error:
            told = {"error": str(error)}
        for other in checkpoint_parts.together(told, f"reading checkpoint {step}", engine):
            if "error" in other:
                raise LoadError(other["error"])
        assert checkpoint is not None
        return checkpoint

    def _read(self, step: int, rank: int = 0, size: int = 1, *, stays: bool = False) -> Checkpoint:
        path = self._path(step)
        content = read_json(path)
        digest = content.pop("digest", None)
        formats = (FORMAT, FORMAT_OF_PARTS)
        if content.get("format") not in formats or digest != _digest(content):
            raise LoadError(f"{path}: damaged, or no checkpoint of format {FORMAT}")
        try:
            if content["format"] == FORMAT:
                files = [{"name": content["arrays"], "digest": content["arrays_digest"]}]
            else:
                files = content["files"]
            arrays: Mapping[str, Any] = checkpoint_parts.read(self.folder, files, rank, size)
            if not stays:
                arrays = {name: checkpoint_parts.whole(array) for name, array in arrays.items()}
            state = nested.join(content["state"], arrays)
            return Checkpoint(content["step"], state, content["metric"])
        except LoadError:
            raise
        except (LookupError, TypeError, ValueError) as error:  # though its digest is right
            raise LoadError(
                f"{path}: not what a CheckpointManager writes: {type(error).__name__}: "
                f"{shown(error)}"
            ) from error

    def _by_metric(self, steps: list[int]) -> list[int]:
        """The steps that have a metric, the best first, and of equals the earliest."""
        ranked = []
        for step in steps:
            with contextlib.suppress(LoadError):
                metric = read_json(self._path(step)).get("metric")
                # A NaN has no place among the others.
                if isinstance(metric, int | float) and metric == metric:
                    ranked.append((metric if self.lowest else -metric, step))
        return [step for _, step in sorted(ranked)]

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}.json"


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps({"digest": _digest(content), **content})
    with replacing(path) as file:
        file.write(text.encode())
