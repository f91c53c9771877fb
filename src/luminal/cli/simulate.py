"""`luminal simulate`: what training a decoder would take on many ranks, without any of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.base.costs import Link
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.cli.console import console, table

if TYPE_CHECKING:
    from luminal.models.scaling.predict import Predictor


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="7b, 70b, 400b-moe, ..., or the config.json of a decoder."
        ),
    ],
    devices: Annotated[
        str,
        typer.Option(metavar="N|N,N,..|LEAST..MOST", help="How many devices; LEAST..MOST doubles."),
    ] = "8..1024",
    chip: Annotated[str, typer.Option(help="The devices, h100 or a100.")] = "h100",
    batch: Annotated[int, typer.Option(min=1, help="Windows of a step, of all devices.")] = 1024,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a window.")] = 4096,
    reach: Annotated[
        float | None, typer.Option(help="The share of its peak that a chip's products reach.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="Bytes of a device's memory.")] = None,
    per_node: Annotated[int, typer.Option(min=1, help="Devices of a node.")] = 8,
    near: Annotated[
        str | None,
        typer.Option(metavar="SECONDS,BYTES", help="The link of the devices of a node."),
    ] = None,
    far: Annotated[
        str | None, typer.Option(metavar="SECONDS,BYTES", help="The link of nodes, of each device.")
    ] = None,
    widest: Annotated[
        int, typer.Option(help="Bytes of an activation that is kept or sent, 4 or 2.")
    ] = 4,
    plan: Annotated[
        str | None,
        typer.Option(help="Predict this plan alone: 'mesh data=8 tensor=8; plan zero1; rows 1'."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every plan that was predicted, not only the best.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="A table in Markdown.")] = False,
) -> None:
    """Predict the step of training MODEL on each number of devices, by the fastest plan that fits
    into their memory.

    A plan is ranks along data, pipe, tensor, expert and sequence, what is cut over data, the size
    of microbatches, a schedule, and whether layers are computed again. Tables, what they assume,
    and where predictions were compared with runs: docs/scaling.md.
    """
    options = _Options(chip, batch, length, reach, memory, per_node, near, far, widest)
    _answer(model, _counts(devices), options, plan, every, as_json, as_markdown)


@dataclass(frozen=True, slots=True)
class _Options:
    """What a prediction goes by, as it was asked for."""

    chip: str
    batch: int
    length: int
    reach: float | None
    memory: float | None
    per_node: int
    near: str | None
    far: str | None
    widest: int

    def predictor(self, model: str) -> Predictor:
        """What predicts steps of a model. Raises InputError for what is no option."""
        from luminal.models.scaling.parts import Parts, Setting
        from luminal.models.scaling.predict import Predictor
        from luminal.models.scaling.shapes import Cluster, Reached, chip_of, shape_of

        for name, number, most in (
            ("reach", self.reach, 1.0), ("memory", self.memory, float("inf")),
        ):  # fmt: skip
            if number is not None and not 0 < number <= most:
                raise InputError(
                    f"simulate: --{name} {number:g}: takes a number > 0, at most {most:g}"
                )
        if self.widest not in (2, 4):
            raise InputError(f"simulate: --widest {self.widest}: an activation has 4 bytes, or 2")
        reached = Reached() if self.reach is None else replace(Reached(), products=self.reach)
        kind = chip_of(self.chip)
        if self.memory is not None:
            kind = replace(kind, memory=self.memory)
        cluster = Cluster.of(kind, reached, self.per_node)
        if self.near is not None:
            cluster = replace(cluster, near=_link(self.near))
        if self.far is not None:
            cluster = replace(cluster, far=_link(self.far))
        setting = Setting(shape_of(model), self.batch, self.length, widest=self.widest)
        return Predictor(Parts.of(setting), cluster)


def _answer(
    model: str, counts: list[int], options: _Options, plan: str | None, every: bool,
    as_json: bool, as_markdown: bool,
) -> None:  # fmt: skip
    from luminal.models.scaling.plan import read_plan
    from luminal.models.scaling.search import Found, search
    from luminal.models.scaling.table import binds, markdown, record

    predictor = options.predictor(model)
    room = predictor.cluster.machine.memory
    if plan is not None:
        answers = [Found((predictor.predict(read_plan(plan)),), 1, 1)]
    else:
        answers = [search(predictor, count) for count in counts]
    if as_markdown:
        typer.echo(markdown(answers, room))
        return
    rows = [
        (shown, binds(answer, room) if shown is answer.best else "")
        for answer in answers
        for shown in (answer.predictions if every else answer.predictions[:1])
    ]
    if as_json:
        typer.echo(json.dumps([record(*row) for row in rows], indent=1))
    else:
        _show(rows)


def _show(rows: list[tuple[Any, str]]) -> None:
    from luminal.models.scaling.table import COLUMNS, cells

    lines = [cells(*row) for row in rows]
    shown = table("", *(line[0] for line in lines))
    for name, *values in zip(COLUMNS[1:], *(line[1:] for line in lines), strict=True):
        shown.add_row(name, *values)
    console().print(shown)


def _counts(text: str) -> list[int]:
    if ".." not in text and "," in text:
        return [count for part in text.split(",") for count in _counts(part.strip())]
    least, dots, most = text.partition("..")
    if (
        not least.isdigit()
        or (dots and not most.isdigit())
        or int(least) < 1
        or (dots and int(most) < int(least))
    ):
        raise InputError(f"simulate: --devices {text!r}; give 64, 8,16,64 or 8..1024")
    counts = [int(least)]
    while dots and counts[-1] * 2 <= int(most):
        counts.append(counts[-1] * 2)
    return counts


def _link(text: str) -> Link:
    try:
        latency, bandwidth = map(float, text.split(","))
    except ValueError:
        raise InputError(f"simulate: the link {text!r}; give SECONDS,BYTES as 5e-6,300e9") from None
    if latency < 0 or bandwidth <= 0:
        raise InputError(f"simulate: the link {text!r}: a latency >= 0 and a bandwidth > 0")
    return Link(latency, bandwidth)
