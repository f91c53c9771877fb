"""What `luminal bench` says of a language model."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base import host
from luminal.base.errors import InputError
from luminal.cli.console import console, table

if TYPE_CHECKING:
    from luminal.models.decoder import Decoder
    from luminal.models.speed import Interval, Speed, Work


class Asked(NamedTuple):
    """The options; either `model` or `arch` is given."""

    model: str | None
    arch: str | None
    shape: str
    layers: int
    dtype: str
    prompts: list[int]
    mode: str
    backend: str
    blocks: int
    threads: int
    keep_quantized: bool
    compute_dtype: str | None


def run(asked: Asked, as_json: bool) -> None:
    """Measures, and prints a table or JSON."""
    from luminal.base import config

    with config.override(LUMINAL_THREADS=asked.threads):
        facts = _of_model(asked) if asked.model is not None else _of_shape(asked)
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)


def _of_model(asked: Asked) -> dict[str, Any]:
    from luminal.models.architectures import decoder_of
    from luminal.models.checkpoint import load_checkpoint, locate

    assert asked.model is not None
    place = locate(asked.model)
    model = decoder_of(
        load_checkpoint(place, None, asked.keep_quantized, keep_order=True, with_tokenizer=False),
        asked.compute_dtype,
    )
    spec = {"path": str(place), "dtype": "auto"}
    peers = "transformers" if place.is_dir() else "llama.cpp"
    speed = _measured(asked, model, {peers: spec})
    return _facts(asked, str(asked.model), model, speed, None)


def _of_shape(asked: Asked) -> dict[str, Any]:
    from luminal.models.shapes import shape
    from luminal.models.speed import extrapolated

    assert asked.arch is not None
    keys = shape(asked.arch, asked.shape)
    whole = keys["num_hidden_layers"]
    # A model of all layers may not fit into this machine's memory. Two depths tell apart what a
    # layer costs (their difference) and what is paid once (embedding and head), which one depth
    # could not.
    counts = asked.layers // 2, min(asked.layers, whole)
    speeds = []
    for count in counts:
        model = _random(keys | {"num_hidden_layers": count}, asked.dtype, asked.compute_dtype)
        config = {**keys, "num_hidden_layers": count}
        peers = {"transformers": {"path": None, "config": config, "dtype": asked.dtype}}
        # Peers are timed beside the deeper model only: their rows stand for themselves and are not
        # extrapolated.
        speeds.append(_measured(asked, model, peers if count == counts[1] else {}))
    few, more = speeds
    further = extrapolated(few, more, whole)
    return _facts(asked, f"{asked.arch} {asked.shape}", model, more, (whole, further))


def _random(keys: dict[str, Any], dtype: str, compute_dtype: str | None) -> Decoder:
    from pathlib import Path

    from luminal.loaders.fields import Fields
    from luminal.models.architectures import architecture_of
    from luminal.models.decoder import Decoder, compute_dtype_of
    from luminal.models.speed import filled

    place = Path("the shape")
    model = filled(Decoder(architecture_of(keys, place).config(Fields(keys, place)), dtype))
    return model.computing(compute_dtype_of(model, compute_dtype))


def _measured(asked: Asked, model: Decoder, specs: dict[str, dict[str, Any]]) -> Speed:
    from luminal.models.peer import Peer
    from luminal.models.speed import Programs, Work, measured

    context = min(model.longest_text, max(asked.prompts) + 1)
    prompts = [count for count in asked.prompts if count < context]
    if not prompts:
        raise InputError(
            f"bench: prompts of {min(asked.prompts)} tokens or more; the model takes texts of "
            f"{context}: give a shorter --prompt"
        )
    # A whole prompt is bound by arithmetic, one token behind a prompt by the memory that weights
    # and cache are read from. Both are measured, since no one figure stands for both.
    works = [*(Work(count, 0) for count in prompts), *(Work(1, count) for count in prompts)]
    programs = Programs(model, context, asked.mode, asked.backend)
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(Peer(name, spec | {"threads": asked.threads, "context": context}))
            for name, spec in specs.items()
            if Peer.is_installed(name)
        ]
        return measured(programs, works, peers, asked.blocks)


def _facts(
    asked: Asked,
    name: str,
    model: Decoder,
    speed: Speed,
    whole: tuple[int, dict[Work, Interval | None]] | None,
) -> dict[str, Any]:
    """All that was measured of a decoder, as JSON has it."""
    rows = []
    for work, (_, seconds, _) in speed.seconds.items():
        share = speed.rooflines[work]
        row: dict[str, Any] = {
            "work": str(work),
            "tokens": work.tokens,
            "past": work.past,
            "seconds": seconds,
            "tokens_per_second": work.tokens / seconds,
            "roofline": None if math.isnan(share) else share,
        }
        for peer, times in speed.peers.items():
            row[peer] = {"seconds": times[work], "tokens_per_second": work.tokens / times[work]}
        if whole is not None:
            count, further = whole
            row["whole"] = {"layers": count, **_whole(work, further[work])}
        rows.append(row)
    peaks, peak = speed.peaks, host.peak_bytes()
    return {
        "model": name,
        "layers": speed.layers,
        "parameters": sum(math.prod(held.shape) for held in model.parameters()),
        "backend": asked.backend,
        "mode": asked.mode,
        "threads": asked.threads,
        "machine": None if peaks is None else {"flops": peaks.flops, "memory": peaks.memory},
        "memory": {**speed.memory, "peak": peak},
        "rows": rows,
    }


def _whole(work: Work, interval: Interval | None) -> dict[str, Any]:
    """What is known of the whole model, all layers: seconds and tokens a second, each with its low
    and high end.
    """
    if interval is None:
        return {"seconds": None, "tokens_per_second": None}
    # The longest time is the lowest rate, so the two ends change places.
    rates = [work.tokens / seconds for seconds in (interval.middle, interval.high, interval.low)]
    return {
        "seconds": interval.middle,
        "seconds_between": [interval.low, interval.high],
        "tokens_per_second": rates[0],
        "tokens_per_second_between": rates[1:],
    }


def _print(facts: dict[str, Any]) -> None:
    out = console()
    out.print(
        f"{facts['model']}: {facts['layers']} layers, {facts['parameters']:,} parameters; "
        f"{facts['backend']}, {facts['mode']}, {facts['threads']} threads"
    )
    first = facts["rows"][0]
    peers = [key for key, value in first.items() if isinstance(value, dict) and key != "whole"]
    heads = ["work", "ms", "tokens/s", "of roofline"]
    heads += [f"{peer}, tokens/s" for peer in peers]
    if "whole" in first:
        heads.append(f"all {first['whole']['layers']} layers, tokens/s")
    shown = table(*heads)
    for row in facts["rows"]:
        cells = [row["work"], f"{row['seconds'] * 1e3:.2f}", f"{row['tokens_per_second']:.1f}"]
        cells.append("?" if row["roofline"] is None else f"{row['roofline']:.0%}")
        cells += [f"{row[peer]['tokens_per_second']:.1f}" for peer in peers]
        if "whole" in row:
            cells.append(_rate(row["whole"]))
        shown.add_row(*cells)
    out.print(shown)
    if any("whole" in row and row["whole"]["seconds"] is None for row in facts["rows"]):
        out.print(
            "all layers ?: the runs vary by more than the layers take, so that nothing can be said "
            "of the whole; give more --layers, more --blocks, or a quieter machine"
        )
    if facts["machine"] is not None and any(row["roofline"] is None for row in facts["rows"]):
        out.print("of roofline ?: a run seems to take less time than its work can take")
    held = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in facts["memory"].items())
    out.print(f"memory: {held}")
    if facts["machine"] is not None:
        flops, memory = (facts["machine"][key] / 1e9 for key in ("flops", "memory"))
        out.print(f"this machine: {flops:.0f} GFLOP/s, {memory:.1f} GB/s")


def _rate(whole: dict[str, Any]) -> str:
    """Tokens a second of all layers, and between what ends."""
    if whole["seconds"] is None:
        return "?"
    low, high = whole["tokens_per_second_between"]
    return f"{whole['tokens_per_second']:.1f} ({low:.1f} to {high:.1f})"
