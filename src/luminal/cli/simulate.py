"""`luminal simulate`: what training a decoder would take on many ranks, without any of them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from luminal.base.costs import Link
from luminal.base.errors import InputError
from luminal.cli.console import console, table


def command(
    model: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A config.json of a Llama, or its folder.")
    ],
    ranks: Annotated[
        str, typer.Option(metavar="N|LEAST..MOST", help="How many ranks; doubled from the least.")
    ] = "8..1024",
    batch: Annotated[int, typer.Option(min=1, help="Sequences of a step, of all ranks.")] = 1024,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a sequence.")] = 4096,
    flops: Annotated[
        float, typer.Option(help="Operations a second that a rank's products reach.")
    ] = 400e12,
    bandwidth: Annotated[
        float, typer.Option(help="Bytes a second that a rank's memory reaches.")
    ] = 3e12,
    memory: Annotated[float, typer.Option(help="Bytes of a rank's memory.")] = 80e9,
    per_node: Annotated[int, typer.Option(min=1, help="Ranks of a node.")] = 8,
    near: Annotated[
        str, typer.Option(metavar="SECONDS,BYTES", help="The link of the ranks of a node.")
    ] = "5e-6,300e9",
    far: Annotated[
        str, typer.Option(metavar="SECONDS,BYTES", help="The link of nodes, of each rank.")
    ] = "10e-6,40e9",
    every: Annotated[bool, typer.Option("--all", help="Every plan, not only the best.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
) -> None:
    """Predict the step of training CONFIG by every mesh and plan, and choose one for each number
    of ranks.

    Links are seconds before the first byte arrives, and bytes a second. The times are a model's:
    kernels at the rates given, collectives by their best algorithm, both side by side.
    """
    for name, rate in (("flops", flops), ("bandwidth", bandwidth), ("memory", memory)):
        if not 0 < rate < float("inf"):
            raise InputError(f"simulate: --{name} {rate:g}: takes a number > 0")
    from luminal.distribute.choose import Choice
    from luminal.distribute.price import Machine
    from luminal.models.plans import Cluster, Planner, Setting

    settings, vocabulary = _settings(model, length)
    cluster = Cluster(Machine(flops, bandwidth, memory), per_node, _link(near), _link(far))
    planner = Planner(Setting(settings, vocabulary, batch, length))
    rows: list[Choice] = []
    for count in _counts(ranks):
        choices = planner.choices(count, cluster)
        if not choices:
            raise InputError(
                f"simulate: {count} ranks: no mesh divides a batch of {batch} and the heads; give "
                "another --ranks or --batch"
            )
        rows += choices if every else choices[:1]
    if as_json:
        typer.echo(json.dumps([_row(choice) for choice in rows], indent=1))
    else:
        _show(rows)


def _show(rows: list[Any]) -> None:
    shown = table("ranks", "mesh", "plan", "s/step", "kernels", "exposed", "sent", "memory", "fits")
    for choice in rows:
        cost, mesh = choice.price, choice.mesh
        axes = " ".join(f"{n}={k}" for n, k in zip(mesh.names, mesh.shape, strict=True))
        shown.add_row(
            str(mesh.size), axes, choice.plan, f"{cost.seconds:.3g}", f"{cost.kernels:.3g}",
            f"{cost.exposed:.3g}", f"{cost.sent / 1e9:.3g} GB", f"{cost.peak / 1e9:.3g} GB",
            "yes" if choice.fits else "no",
        )  # fmt: skip
    console().print(shown)


def _row(choice: Any) -> dict[str, Any]:
    cost = {field.name: getattr(choice.price, field.name) for field in fields(choice.price)}
    mesh = dict(zip(choice.mesh.names, choice.mesh.shape, strict=True))
    return {"mesh": mesh, "plan": choice.plan, "fits": choice.fits, **cost}


def _counts(text: str) -> list[int]:
    least, dots, most = text.partition("..")
    if (
        not least.isdigit()
        or (dots and not most.isdigit())
        or int(least) < 1
        or (dots and int(most) < int(least))
    ):
        raise InputError(f"simulate: --ranks {text!r}; give 64, or 8..1024")
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


def _settings(path: Path, length: int) -> tuple[Any, int]:
    """The sizes of a Llama's config.json."""
    from luminal.models.train import ModelSettings

    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file}: is no JSON: {error}") from None
    needed = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    fields_given = config if isinstance(config, dict) else {}
    missing = [n for n in (*needed, "vocab_size") if not isinstance(fields_given.get(n), int)]
    if missing:
        raise InputError(f"{file}: has no number {missing[0]!r}; give the config.json of a Llama")
    settings = ModelSettings(
        **{name: config[name] for name in needed},
        context=length,
        num_key_value_heads=config.get("num_key_value_heads"),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )
    return settings, config["vocab_size"]
