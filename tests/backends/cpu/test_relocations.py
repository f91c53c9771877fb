"""AArch64's references, filled in on any machine: words that an assembler gives, and the reach.

What the words of an instruction lead to is read back here by the Arm architecture's formulas, not
by those that write it.
"""

from __future__ import annotations

import ctypes
import random
import re
import struct

import llvmlite.binding as llvm
import pytest

from luminal.backends.cpu import linker, systems
from luminal.backends.cpu.relocations import AARCH64
from luminal.base.errors import CompileError
from tests.backends.cpu.every_reference import EVERYTHING

ABS64, PREL32 = 257, 261
ADR, ADR_PAGE, ADD, JUMP, CALL = 274, 275, 277, 282, 283
GOT_PAGE, GOT_LOAD = 311, 312
LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4, GOT_LOAD: 3}  # with the logarithm of their bytes
MIB, GIB = 1 << 20, 1 << 30


def filled(kind: int, word: int, place: int, target: int) -> int:
    """The word of a reference at `place`, which may be too far for an image of this test."""
    start = place & -4096  # an image's first byte, which lies at a page's start
    image = bytearray(4096 + 8)
    struct.pack_into("<I", image, place - start, word)
    AARCH64.rows[kind].fill(image, place - start, target - start)
    (result,) = struct.unpack_from("<I", image, place - start)
    image[place - start : place - start + 4] = bytes(4)
    assert not any(image), "nothing else is written"
    return int(result)


@pytest.mark.parametrize(
    ("kind", "word", "place", "target", "expected"),
    [
        (CALL, 0x94000000, 0x1000, 0x2000, 0x94000400),  # bl .+0x1000
        (CALL, 0x94000000, 0x1000, 0x0FFC, 0x97FFFFFF),  # bl .-4
        (JUMP, 0x14000000, 0x1010, 0x1018, 0x14000002),  # b .+8
        (JUMP, 0x14000000, 0, 128 * MIB - 4, 0x15FFFFFF),  # b .+0x7fffffc
        (ADR, 0x10000001, 0x1000, 0x0FFD, 0x30FFFFE1),  # adr x1, .-3
        (ADR, 0x10000001, 0x1000, 0x1006, 0x50000021),  # adr x1, .+6
        (ADR_PAGE, 0x90000003, 0x1FFC, 0x3000, 0xD0000003),  # adrp x3, .+0x2000
        (ADR_PAGE, 0x90000003, 0x2FFC, 0x1FFF, 0xF0FFFFE3),  # adrp x3, .-0x1000
        (GOT_PAGE, 0x90000010, 0, 0x5018, 0xB0000030),  # adrp x16, .+0x5000
        (ADD, 0x91000021, 0, 0x5ABC, 0x912AF021),  # add x1, x1, #0xabc
        (278, 0x39400021, 0, 0x5ABD, 0x396AF421),  # ldrb w1, [x1, #0xabd]
        (284, 0x79400021, 0, 0x5ABE, 0x79557C21),  # ldrh w1, [x1, #0xabe]
        (285, 0xB9400021, 0, 0x5ABC, 0xB94ABC21),  # ldr w1, [x1, #0xabc]
        (286, 0xF9400021, 0, 0x5AB8, 0xF9455C21),  # ldr x1, [x1, #0xab8]
        (299, 0x3DC00021, 0, 0x5AB0, 0x3DC2AC21),  # ldr q1, [x1, #0xab0]
        (GOT_LOAD, 0xF9400210, 0, 0x5018, 0xF9400E10),  # ldr x16, [x16, #0x18]
        (PREL32, 0, 0x1008, 0x1000, 0xFFFFFFF8),
    ],
)
def test_words_are_those_of_an_assembler(
    kind: int, word: int, place: int, target: int, expected: int
) -> None:
    assert f"{filled(kind, word, place, target):08x}" == f"{expected:08x}"


def signed(value: int, bits: int) -> int:
    return value - (value >> bits - 1 << bits)


def immediate(word: int) -> int:
    """The immediate of ADR and ADRP."""
    return signed((word >> 5 & 0x7FFFF) * 4 + (word >> 29 & 3), 21)


def led_to(kind: int, word: int, place: int) -> int:
    """The place that a word leads to; within a page for what counts so."""
    if kind in (CALL, JUMP):
        return place + 4 * signed(word & 0x3FFFFFF, 26)
    if kind == ADR:
        return place + immediate(word)
    if kind in (ADR_PAGE, GOT_PAGE):
        return (place // 4096 + immediate(word)) * 4096
    if kind == PREL32:
        return place + signed(word, 32)
    return (word >> 10 & 0xFFF) << LOADS.get(kind, 0)


def origin(kind: int, place: int) -> int:
    """The place that a reference counts from: the page's start, or the instruction itself."""
    return place & -4096 if kind in (ADR_PAGE, GOT_PAGE) else place


REACH = {  # least and most distance from where a reference counts, and its steps
    CALL: (-128 * MIB, 128 * MIB - 4, 4),
    JUMP: (-128 * MIB, 128 * MIB - 4, 4),
    ADR: (-MIB, MIB - 1, 1),
    ADR_PAGE: (-4 * GIB, 4 * GIB - 1, 1),
    GOT_PAGE: (-4 * GIB, 4 * GIB - 1, 1),
    PREL32: (-2 * GIB, 2 * GIB - 1, 1),
}


@pytest.mark.parametrize("kind", sorted(AARCH64.rows.keys() - {ABS64}))
def test_words_lead_to_their_targets(kind: int) -> None:
    draw = random.Random(kind)
    least, most, step = REACH.get(kind, (-GIB, GIB, 1 << LOADS.get(kind, 0)))
    distances = [draw.randrange(least, most, step) for _ in range(200)]
    for distance in (least, most, 0, step, -step, *distances):
        place = 8 * GIB + draw.randrange(0, 4096, 4)
        register = 0 if kind in (CALL, JUMP) else draw.getrandbits(5)
        if kind in REACH:
            target = origin(kind, place) + distance
            expected = origin(kind, target) if kind in (ADR_PAGE, GOT_PAGE) else target
        else:
            target = (place & -4096) + distance
            expected = target % 4096
        word = filled(kind, register, place, target)
        assert led_to(kind, word, place) == expected
        assert kind == PREL32 or word & register == register


@pytest.mark.parametrize("kind", sorted(REACH))
def test_what_is_out_of_reach_is_refused(kind: int) -> None:
    place = 8 * GIB
    least, most, step = REACH[kind]
    for distance in (least, most):
        filled(kind, 0, place, place + distance)
    for distance in (least - step, most + step, 64 * GIB, -8 * GIB):
        reported = distance & -4096 if kind in (ADR_PAGE, GOT_PAGE) else distance
        message = f"a distance of {reported} bytes; this reference reaches {-least}: compile"
        with pytest.raises(CompileError, match=re.escape(message)):
            filled(kind, 0, place, place + distance)


@pytest.mark.parametrize("kind", [CALL, JUMP])
def test_a_branch_into_an_instruction_is_refused(kind: int) -> None:
    with pytest.raises(CompileError, match="a distance of 6 bytes, not in steps of 4"):
        filled(kind, 0, 0, 6)


@pytest.mark.parametrize("kind", [kind for kind, scale in LOADS.items() if scale])
def test_an_access_across_its_alignment_is_refused(kind: int) -> None:
    size = 1 << LOADS[kind]
    with pytest.raises(CompileError, match=f"an access of {size} bytes at {size // 2} of a page"):
        filled(kind, 0, 0, 4096 + size // 2)


def object_for_arm() -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(EVERYTHING)
    module.triple = "aarch64-unknown-linux-gnu"
    target = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu="generic", reloc="pic", codemodel="small", jit=True
    )
    return bytes(target.emit_object(module))


def test_a_linked_object_leads_to_what_it_names() -> None:
    """The object's calls, jumps and loads from slots are followed by their words in memory."""
    foreign = {"cos": 1 << 40 | 4, "sqrt": 2 << 40, "ours": 3 << 40, "outside": 4 << 40}
    code = linker.link(object_for_arm(), ("kernel", "other", "seen", "functions"), foreign)
    start = code.address & -systems.PAGE
    words = {place: read(place, ctypes.c_uint32) for place in range(start, start + 4096, 4)}
    called, loaded = set(), set()
    for place, word in words.items():
        if word >> 26 in (0b100101, 0b000101):  # bl and b
            called.add(led_to(CALL, word, place))
        if word >> 24 & 0x9F == 0x90 and words.get(place + 4, 0) >> 22 == 0b1111100101:
            # adrp, and ldr of 64 bits by the same register
            loaded.add(slot_of(place))
    half, sqrt = (read(code.symbols["functions"] + 8 * n, ctypes.c_uint64) for n in range(2))
    assert (half, sqrt) == (start, foreign["sqrt"])
    assert half in called
    # Foreign functions are called by jumps, which load their addresses from slots like all else.
    assert loaded >= {*foreign.values(), code.symbols["seen"]}
    jumps = {place for place in called if is_jump(*(words[place + n] for n in (0, 4, 8)))}
    assert {slot_of(place) for place in jumps} == {foreign["cos"], foreign["ours"]}


def is_jump(page: int, load: int, branch: int) -> bool:
    """Are these `adrp x16, _`, `ldr x16, [x16, _]`, `br x16`?"""
    return (page & 0x9F00001F, load & 0xFFC003FF, branch) == (0x90000010, 0xF9400210, 0xD61F0200)


def slot_of(place: int) -> int:
    """What lies in the slot that an ADRP and the LDR after it lead to."""
    page, offset = (read(place + n, ctypes.c_uint32) for n in (0, 4))
    return read(led_to(GOT_PAGE, page, place) + led_to(GOT_LOAD, offset, place), ctypes.c_uint64)


def read(place: int, kind: type[ctypes.c_uint32 | ctypes.c_uint64]) -> int:
    return int(kind.from_address(place).value)
