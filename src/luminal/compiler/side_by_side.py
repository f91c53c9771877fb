"""Launches that need nothing of each other become one, where the device says that this pays.

A device runs its queue in order, so a launch of few chunks leaves units idle, and costs what every
launch costs. The products of one row by q's, k's and v's weights are one launch after this, and so
are the rotations of q and k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Self

from luminal.backends.backend import Schedules
from luminal.base import config
from luminal.base.records import dataclass
from luminal.compiler.assemble import Origin, text_key
from luminal.kernel.sections import joined
from luminal.kernel.tile_ir import Kernel, Role
from luminal.kernel.tile_text import to_text
from luminal.kernel.tile_verify import verify
from luminal.program.constants import with_constants
from luminal.program.launch_list import (
    KernelLaunch,
    Launch,
    LoopLaunch,
    Program,
    kernel_launches,
)
from luminal.shape.expression import ZERO, Expression

REACH = 16  # launches that one moves up across, at most: what it makes is held longer


def side_by_side(
    program: Program, origins: Sequence[Origin], schedules: Schedules
) -> tuple[Program, tuple[Origin, ...]]:
    """The program, and the origins of its kernels, with launches of a run joined; where kernels
    begin early they know which of their buffers are constant.

    A launch joins the first one that it need not wait for, if the schedules agree.
    """
    program, origins = _with_joined(program, origins, schedules)
    if not schedules.begins_early:
        return program, tuple(origins)
    program = with_constants(program)
    pairs = zip(origins, program.kernels, strict=True)
    return program, tuple(origin._replace(text=to_text(kernel)) for origin, kernel in pairs)


def _with_joined(
    program: Program, origins: Sequence[Origin], schedules: Schedules
) -> tuple[Program, Sequence[Origin]]:
    joining = _Joining(program, [*program.kernels], [*origins], schedules)
    launches = joining.launches(program.launches)
    if len(joining.kernels) == len(program.kernels):
        return program, origins
    used = {
        launch.kernel for launch in (*kernel_launches(program.prologue), *kernel_launches(launches))
    }
    numbers = {kernel: number for number, kernel in enumerate(sorted(used))}
    now = replace(
        program,
        kernels=tuple(joining.kernels[kernel] for kernel in numbers),
        prologue=_renumbered(program.prologue, numbers),
        launches=_renumbered(launches, numbers),
    )
    return now, [joining.origins[kernel] for kernel in numbers]


def _renumbered(launches: tuple[Launch, ...], numbers: dict[int, int]) -> tuple[Launch, ...]:
    def renumbered(launch: Launch) -> Launch:
        if isinstance(launch, LoopLaunch):
            return replace(launch, body=_renumbered(launch.body, numbers))
        if isinstance(launch, KernelLaunch):
            return replace(launch, kernel=numbers[launch.kernel])
        return launch

    return tuple(map(renumbered, launches))


@dataclass(slots=True)
class _Group:
    """Launches that run side by side, and the buffers that they read and write."""

    launches: list[Launch]
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, program: Program, launch: Launch) -> Self:
        group = cls([launch])
        for buffer, role in program.accesses(launch):
            if role is not Role.OUT:
                group.read.add(buffer)
            if role is not Role.IN:
                group.written.add(buffer)
        return group

    def meets(self, other: _Group) -> bool:
        """Does one write what the other touches?"""
        touched = other.read | other.written
        return not (self.written.isdisjoint(touched) and self.read.isdisjoint(other.written))

    def add(self, other: _Group) -> None:
        self.launches += other.launches
        self.read |= other.read
        self.written |= other.written


@dataclass(slots=True)
class _Joining:
    """The kernels of a program, those of joined launches after its own."""

    program: Program
    kernels: list[Kernel]
    origins: list[Origin]
    schedules: Schedules
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def launches(self, launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
        """A list with those joined that may be."""
        groups: list[_Group] = []
        for launch in launches:
            if not isinstance(launch, KernelLaunch):
                if isinstance(launch, LoopLaunch):
                    launch = replace(launch, body=self.launches(launch.body))
                program = replace(self.program, kernels=tuple(self.kernels))
                groups.append(_Group.of(program, launch))
                continue
            mine = _Group.of(self.program, launch)
            home = None
            for group in reversed(groups[-REACH:]):
                if group.meets(mine):
                    break
                home = group if self.may_join(group, launch) else home
            if home is None:
                groups.append(mine)
            else:
                home.add(mine)
        return tuple(map(self.launch, groups))

    def may_join(self, group: _Group, launch: KernelLaunch) -> bool:
        """Does the device run a launch beside these?"""
        together = [*group.launches, launch]
        kernels = [member for member in together if isinstance(member, KernelLaunch)]
        return len(kernels) == len(together) and self.schedules.share_launch(
            [self.kernels[member.kernel] for member in kernels],
            [member.chunks for member in kernels],
        )

    def launch(self, group: _Group) -> Launch:
        """The one launch of a group."""
        launches = [member for member in group.launches if isinstance(member, KernelLaunch)]
        if len(launches) < 2:
            return group.launches[0]
        return KernelLaunch(
            self.kernel(tuple(member.kernel for member in launches)),
            tuple(operand for member in launches for operand in member.operands),
            tuple(param for member in launches for param in member.params),
            _sum(member.chunks for member in launches),
            " | ".join(member.label for member in launches),
            _sum(member.flops for member in launches),
            _sum(member.bytes for member in launches),
            tuple(dict.fromkeys(origin for member in launches for origin in member.origins)),
        )

    def kernel(self, numbers: tuple[int, ...]) -> int:
        """The number of the kernel that has these for its sections."""
        if numbers not in self.numbers:
            self.numbers[numbers] = len(self.kernels)
            kernel = joined([self.kernels[number] for number in numbers])
            if config.get("LUMINAL_VERIFY"):
                verify(kernel)
            text = to_text(kernel)
            steps = tuple(step for number in numbers for step in self.origins[number].steps)
            self.kernels.append(kernel)
            self.origins.append(Origin(text_key(text), steps, text))
        return self.numbers[numbers]


def _sum(parts: Iterable[Expression]) -> Expression:
    total: Expression = ZERO
    for part in parts:
        total = total + part
    return total
