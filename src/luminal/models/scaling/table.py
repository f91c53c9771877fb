"""Predictions as rows: of a table in text or Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from luminal.models.scaling.predict import Prediction
from luminal.models.scaling.search import Found

COLUMNS = (
    "devices", "plan", "step", "tokens/s", "MFU", "memory", "weights", "gradients", "states",
    "activations", "buffers", "again", "idle", "exposed", "hidden", "binds",
)  # fmt: skip
"""Memory is a rank's, in GB; `again`, `idle` and `exposed` are shares of the step, `hidden` are
seconds of collectives beside kernels in terms of the step's.
"""
_LOSSES = {
    "kernels": "kernels that memory or repeated work binds",
    "again": "what is computed again",
    "collectives": "collectives in layers",
    "gradients": "gradients and weights sent",
    "idle": "idle pipelines",
    "update": "the update",
}


def cells(prediction: Prediction, binding: str) -> list[str]:
    """A row of the table."""
    memory, times, seconds = prediction.memory, prediction.times, prediction.seconds
    parts = [getattr(memory, field.name) for field in fields(memory)]
    shares = times.again, times.idle, times.collectives + times.gradients, times.hidden
    return [
        str(prediction.plan.ranks),
        described(prediction),
        f"{seconds:.3g} s",
        f"{prediction.tokens / seconds:,.0f}",
        f"{prediction.utilization:.2f}",
        f"{memory.all / 1e9:.1f}",
        *(f"{part / 1e9:.1f}" for part in parts),
        *(f"{share / seconds:.0%}" for share in shares),
        binding,
    ]


def described(prediction: Prediction) -> str:
    """A plan in a line: `tensor 2 pipe 4 data 8 zero1, 64 microbatches of 1, layers again`."""
    plan = prediction.plan
    axes = [f"{name} {n}" for name, n in zip(plan.mesh.names, plan.mesh.shape, strict=True)]
    words = " ".join(axes) + ("" if plan.zero == "data" else f" {plan.zero}")
    count = prediction.tokens // prediction.length // (plan.data * plan.expert * plan.rows)
    words += f", {count} x {plan.rows}"
    if plan.pipe > 1:
        words += f", {plan.schedule}" + (f" {plan.chunks}" if plan.chunks > 1 else "")
    return words + (", layers again" if plan.recompute else "")


def binds(answer: Found, memory: float) -> str:
    """What keeps the best plan from being faster."""
    best = answer.best
    if not best.fits:
        over = best.memory.all / memory
        return f"memory: the least is {over:.2g} times what there is"
    times = {name: getattr(best.times, name) for name in _LOSSES}
    worst = max(times, key=lambda name: times[name])
    words = f"{_LOSSES[worst]}: {times[worst] / best.seconds:.0%}"
    if answer.faster is not None:
        gain = 1 - answer.faster.seconds / best.seconds
        words = f"memory: {gain:.0%} faster with {answer.faster.memory.all / 1e9:.0f} GB; {words}"
    return words


def markdown(answers: Sequence[Found], memory: float) -> str:
    """A table in Markdown, a row for each number of ranks."""
    rows = [cells(answer.best, binds(answer, memory)) for answer in answers]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def record(prediction: Prediction, binding: str = "") -> dict[str, Any]:
    """A prediction as JSON has it; seconds and bytes."""
    mesh = prediction.plan.mesh
    return {
        "mesh": dict(zip(mesh.names, mesh.shape, strict=True)),
        "plan": prediction.plan.text(),
        "fits": prediction.fits,
        "seconds": prediction.seconds,
        "tokens_per_second": prediction.tokens / prediction.seconds,
        "utilization": prediction.utilization,
        "times": {f.name: getattr(prediction.times, f.name) for f in fields(prediction.times)},
        "memory": {f.name: getattr(prediction.memory, f.name) for f in fields(prediction.memory)},
        "binds": binding,
    }
