"""PyTorch's OpInfo samples against the library: `make conformance` counts the op names that pass.

A name passes if every float32 sample of every variant does. Each op runs in a process of its own,
with a time limit, so that neither a crash nor an endless loop stops the rest.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import signal
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.conformance import opinfo_map
from tests.conformance.opinfo_samples import equal, luminal_results, torch_result

TIMEOUT = 120  # seconds for all samples of one variant


class Outcome(NamedTuple):
    """What became of one variant of an op: samples that passed, of how many, why one did not.
    `left`: how many more there are, that were not tried.
    """

    name: str
    passed: int
    total: int
    reason: str
    seconds: float
    left: int = 0


Run = Callable[[Any, str, "int | None"], Outcome]
"""What is done with one variant: (OpInfo, backend, how many samples)."""


def database() -> list[Any]:
    """PyTorch's OpInfos that take float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if torch.float32 in op.dtypes]


def full_name(op: Any) -> str:
    """The op's name, and its variant's behind a slash."""
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_variant(op: Any, backend: str, limit: int | None) -> Outcome:
    """Every sample of one variant; the reason is the first failure's."""
    name, start = full_name(op), time.perf_counter()
    passed = total = 0
    entry = opinfo_map.entry(op.name, op.variant_test_name)
    if isinstance(entry, str):
        return Outcome(name, 0, 0, entry, 0.0)
    reasons = []
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=False)
    for number, sample in enumerate(itertools.islice(samples, limit)):
        total += 1
        failure = _failure(entry, op, sample, backend)
        passed += failure is None
        if failure is not None:
            reasons.append(f"sample {number}: {failure}")
    reason = reasons[0] if reasons else "" if total else "PyTorch has no samples"
    return Outcome(name, passed, total, reason, time.perf_counter() - start)


def _failure(entry: opinfo_map.Entry, op: Any, sample: Any, backend: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = luminal_results(entry.call, sample, backend, constant=entry.constant)
        (entry.check or equal)(found, torch_result(op.op, sample))
    except Exception as error:  # a failing op is a row of the report, whatever it raises
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:200]}; input {described(sample)}"
    return None


def described(sample: Any) -> str:
    """The sample in few words: tensors as their shapes."""

    def show(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        if isinstance(x, list | tuple):
            return f"[{', '.join(map(show, x))}]"
        return str(x)

    named = [f"{key}={show(x)}" for key, x in sample.kwargs.items()]
    return ", ".join([show(sample.input), *map(show, sample.args), *named])[:200]


# --- processes ------------------------------------------------------------------------------------


def isolated(op: Any, options: argparse.Namespace, run: Run = run_variant) -> Outcome:
    """`run` in a forked process that is killed after its seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, op, options, run), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(options.timeout):
            outcome: Outcome = receiver.recv()
            return outcome
        reason = f"timeout after {options.timeout:.0f} s"
        return Outcome(full_name(op), 0, 0, reason, options.timeout)
    except EOFError:
        process.join(5)
        return Outcome(full_name(op), 0, 0, f"crash: exit code {process.exitcode}", 0.0)
    finally:
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        receiver.close()


def _child(sender: Any, op: Any, options: argparse.Namespace, run: Run) -> None:
    torch.set_num_threads(1)
    sender.send(run(op, options.backend, options.limit))
    sender.close()


def run_all(
    ops: Iterable[Any],
    options: argparse.Namespace,
    report: Callable[[Outcome], None],
    run: Run = run_variant,
) -> list[Outcome]:
    """Every op's outcome, some processes at a time; `report` sees each as it comes."""

    def one(op: Any) -> Outcome:
        outcome = isolated(op, options, run)
        report(outcome)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(one, ops))


# --- report ---------------------------------------------------------------------------------------


def by_name(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The variants of each op name."""
    names = defaultdict(list)
    for outcome in outcomes:
        names[outcome.name.split("/")[0]].append(outcome)
    return dict(names)


def text_of(outcomes: list[Outcome], options: argparse.Namespace) -> str:
    """The report: the counts, what passes, what does not and why."""
    names = by_name(outcomes)
    good = [name for name, parts in names.items() if not any(part.reason for part in parts)]
    samples = sum(part.passed for part in outcomes)
    composed = [name for name in good if opinfo_map.is_composed(name)]
    share = "every" if options.limit is None else f"the first {options.limit}"
    lines = [
        f"{len(good)} of {len(names)} op names pass {share} float32 sample of PyTorch "
        f"{torch.__version__} on {options.backend} ({samples} samples pass).",
        f"{len(composed)} of them are compositions of library calls written in the map, "
        "not calls of one library function.",
        "",
        "passes:",
        *(f"  {name}{' (composed)' if name in composed else ''}" for name in good),
        "",
        "fails:",
    ]
    for parts in names.values():
        for part in parts:
            if part.reason:
                lines.append(f"  {part.name}: {part.passed}/{part.total}: {part.reason}")
    return "\n".join(lines) + "\n"


def parser_of(description: str) -> argparse.ArgumentParser:
    """The options of a run over the database."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("ops", nargs="*", help="names of ops; all by default")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--timeout", type=float, default=TIMEOUT)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", type=Path, help="write the list to this file")
    parser.add_argument(
        "--limit", type=int, help="only the first samples of each, for a quick look"
    )
    return parser


def main() -> None:
    options = parser_of("PyTorch's OpInfo samples against Luminal").parse_args()
    ops = [op for op in database() if not options.ops or op.name in options.ops]

    def report(outcome: Outcome) -> None:
        if options.ops:
            print(f"{outcome.name}: {outcome.passed}/{outcome.total} {outcome.reason}")

    outcomes = run_all(ops, options, report)
    text = text_of(outcomes, options)
    if options.list:
        options.list.write_text(text)
    print(text if not options.list else text.split("\n\n")[0])


if __name__ == "__main__":
    main()
