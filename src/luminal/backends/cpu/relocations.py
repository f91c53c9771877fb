"""What references in object files ask of a linker: a table for each machine.

A row says what a reference leads to and how the place that refers is filled. Sources: the x86-64
psABI; ELF for the Arm 64-bit Architecture (AAELF64).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from luminal.base.errors import CompileError

ENTRY = 16
"""Bytes kept for a slot, and for a jump through one."""

Fill = Callable[[bytearray, int, int], None]
"""Writes at a place of an image what leads to the target, which is a place as well."""


class Leads(enum.Enum):
    """What a reference leads to."""

    ADDRESS = "address"  # the symbol's address in the process, wherever it is
    NEAR = "near"  # what the object defines
    CALL = "call"  # what the object defines, else a jump to it
    SLOT = "slot"  # a slot that holds the address


class Row(NamedTuple):
    """A kind of reference."""

    leads: Leads
    fill: Fill


class Machine(NamedTuple):
    """`number` is ELF's of the machine; `jump` writes a jump through a slot."""

    name: str
    number: int
    rows: Mapping[int, Row]
    jump: Fill


def _fits(distance: int, bits: int, unit: int = 1) -> int:
    """A distance in units of bytes, as a signed field of `bits` holds it."""
    reach = unit << bits - 1
    if not -reach <= distance < reach:
        raise CompileError(
            f"linking: a distance of {distance} bytes; this reference reaches {reach}: compile the "
            "code into smaller objects"
        )
    if distance % unit:
        raise CompileError(f"linking: a distance of {distance} bytes, not in steps of {unit}")
    return distance // unit


def address(image: bytearray, place: int, target: int) -> None:
    struct.pack_into("<Q", image, place, target & (1 << 64) - 1)


def _distance(image: bytearray, place: int, target: int) -> None:
    struct.pack_into("<i", image, place, _fits(target - place, 32))


# --- x86-64 ---------------------------------------------------------------------------------------

_JUMP = struct.Struct("<2si")  # jmp *distance(%rip), the distance from its end


def _jump_x86(image: bytearray, place: int, slot: int) -> None:
    _JUMP.pack_into(image, place, b"\xff\x25", slot - (place + _JUMP.size))


X86_64 = Machine(
    "x86-64",
    62,
    {
        1: Row(Leads.ADDRESS, address),  # R_X86_64_64
        2: Row(Leads.NEAR, _distance),  # PC32
        4: Row(Leads.CALL, _distance),  # PLT32
        # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
        **dict.fromkeys((9, 41, 42), Row(Leads.SLOT, _distance)),
    },
    _jump_x86,
)

# --- AArch64 --------------------------------------------------------------------------------------

# Instructions are words, in which an immediate has a field: what the assembler left there is zero,
# as the addend stands in the table. Images begin at a page, so distances between pages do not
# depend on where one lies.

_PAGE = 4096  # what ADRP counts in, however large the system's pages are


def _set(image: bytearray, place: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", image, place)
    struct.pack_into("<I", image, place, word | bits)


def _split(value: int) -> int:
    """The immediate of ADR and ADRP: its last two bits apart."""
    return (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5


def _near(image: bytearray, place: int, target: int) -> None:
    _set(image, place, _split(_fits(target - place, 21)))


def _page(image: bytearray, place: int, target: int) -> None:
    pages = (target & -_PAGE) - (place & -_PAGE)
    _set(image, place, _split(_fits(pages, 21, _PAGE)))


def _branch(image: bytearray, place: int, target: int) -> None:
    # No veneer: a jump to a foreign function lies behind the code, and code of ours is never as
    # large as the 128 MiB that a call reaches.
    _set(image, place, _fits(target - place, 26, 4) & (1 << 26) - 1)


def _in_page(scale: int) -> Fill:
    """The place within a page, counted in 2**scale bytes."""

    def fill(image: bytearray, place: int, target: int) -> None:
        offset = target % _PAGE
        if offset % (1 << scale):
            raise CompileError(f"linking: an access of {1 << scale} bytes at {offset} of a page")
        _set(image, place, offset >> scale << 10)

    return fill


def _jump_arm(image: bytearray, place: int, slot: int) -> None:
    # adrp x16, slot; ldr x16, [x16, in its page]; br x16: reaches 4 GiB, where a call's own
    # distance reaches 128 MiB.
    struct.pack_into("<3I", image, place, 0x90000010, 0xF9400210, 0xD61F0200)
    _page(image, place, slot)
    _in_page(3)(image, place + 4, slot)


AARCH64 = Machine(
    "AArch64",
    183,
    {
        257: Row(Leads.ADDRESS, address),  # R_AARCH64_ABS64
        261: Row(Leads.NEAR, _distance),  # PREL32
        274: Row(Leads.NEAR, _near),  # ADR_PREL_LO21
        275: Row(Leads.NEAR, _page),  # ADR_PREL_PG_HI21
        277: Row(Leads.NEAR, _in_page(0)),  # ADD_ABS_LO12_NC
        278: Row(Leads.NEAR, _in_page(0)),  # LDST8_ABS_LO12_NC
        284: Row(Leads.NEAR, _in_page(1)),  # LDST16
        285: Row(Leads.NEAR, _in_page(2)),  # LDST32
        286: Row(Leads.NEAR, _in_page(3)),  # LDST64
        299: Row(Leads.NEAR, _in_page(4)),  # LDST128
        282: Row(Leads.CALL, _branch),  # JUMP26
        283: Row(Leads.CALL, _branch),  # CALL26
        311: Row(Leads.SLOT, _page),  # ADR_GOT_PAGE
        312: Row(Leads.SLOT, _in_page(3)),  # LD64_GOT_LO12_NC
    },
    _jump_arm,
)

MACHINES = {machine.number: machine for machine in (X86_64, AARCH64)}
"""By ELF's number."""
