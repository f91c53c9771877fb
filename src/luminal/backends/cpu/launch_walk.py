"""The driver that walks a launch list, as LLVM IR.

Every member of a team walks the same list with `@walk`. The chunks of a run are numbered in the
list's order, on through its launches and the trips of its Loops: the walk knows the number `base`
that a launch begins with, since it adds up the grids on its way. Two kinds of words say how far
all have come, and both only grow:

- `DONE` counts chunks that are done. A launch with the flag BARRIER begins when `DONE` has
  reached its `base`: all chunks before it are done, whoever did them.
- `CLAIMED`, one for each member: its share of a launch's chunks is claimed up to this number.
  Whoever raises it by compare-and-swap runs the chunks in between, its owner or, when it has
  none of its own left, another member. A word that is behind the share says that nobody has
  claimed any of it, so nothing is set when a launch begins.

A member leaves a launch only when every share of it is claimed, which is why a word behind a
share can mean nothing else (a serial launch has no shares: others leave it to the caller). A member
that comes late finds shares claimed and launches done, and passes them by.

*Pieces.* A claim takes half of what is left of a share, and no less than an eighth of the share:
a few calls of a kernel, of which the last ones are short, so that members end together.

*Profile.* Where the run record has `times`, every launch waits for those before it, and the
caller adds the nanoseconds since the last one was done to the kernel's row of `times`: the rows
add up to the run. No member works before all have entered it and the clock has been read. Where
the record has `bars` as well, each member notes there what it did of a launch and when.
"""

from __future__ import annotations

# Numbers that only grow need no reset between launches, trips or runs, so there is no moment at
# which a member that comes late could read a word of the launch before. A barrier that counts
# arrivals would make all of them arrive; here it is enough that the chunks are done.
WALK_IR = """
%Launch = type { i32, i32, ptr, i64, i64, i64, ptr, i64 }
%SlotRef = type { i64, i64, i64, i64, i64, i64 }
%Run = type { ptr, i64, ptr, ptr, ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64 }
%Place = type { i64, i64 }

declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

; Claim a piece of member's share of the chunks base .. base + grid: where it begins, and how many
; chunks it has, of which there are none when all are claimed.
define internal { i64, i64 } @claim(ptr %team, i64 %member, i64 %size, i64 %base, i64 %grid) {
entry:
  %next.member = add i64 %member, 1
  %low = mul i64 %grid, %member
  %high = mul i64 %grid, %next.member
  %begin.in = udiv i64 %low, %size
  %end.in = udiv i64 %high, %size
  %begin = add i64 %base, %begin.in
  %end = add i64 %base, %end.in
  %share = sub i64 %end.in, %begin.in
  %share.up = add i64 %share, 7
  %least = udiv i64 %share.up, 8
  %list = getelementptr i8, ptr %team, i64 $SHARES
  %word.at = getelementptr ptr, ptr %list, i64 %member
  %word = load ptr, ptr %word.at
  br label %try
try:
  %claimed = load atomic i64, ptr %word monotonic, align 8
  %from = call i64 @llvm.umax.i64(i64 %claimed, i64 %begin)
  %left = icmp ult i64 %from, %end
  br i1 %left, label %take, label %none
take:
  %rest = sub i64 %end, %from
  %rest.up = add i64 %rest, 1
  %half = udiv i64 %rest.up, 2
  %wanted = call i64 @llvm.umax.i64(i64 %half, i64 %least)
  %piece = call i64 @llvm.umin.i64(i64 %wanted, i64 %rest)
  %to = add i64 %from, %piece
  %swap = cmpxchg ptr %word, i64 %claimed, i64 %to monotonic monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %got, label %try
got:
  %from.in = sub i64 %from, %base
  %result.from = insertvalue { i64, i64 } poison, i64 %from.in, 0
  %result = insertvalue { i64, i64 } %result.from, i64 %piece, 1
  ret { i64, i64 } %result
none:
  ret { i64, i64 } zeroinitializer
}

; Count chunks as done. Who may wait for what ends with or after `finish` is woken.
define internal void @report(ptr %team, i64 %chunks, i64 %finish) {
entry:
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %sleepers.at = getelementptr i8, ptr %team, i64 $DONE_SLEEPERS
  %before = atomicrmw add ptr %done.at, i64 %chunks seq_cst
  %after = add i64 %before, %chunks
  %ended = icmp uge i64 %after, %finish
  br i1 %ended, label %look, label %exit
look:
  call void @wake(ptr %done.at, ptr %sleepers.at)
  br label %exit
exit:
  ret void
}

; Note in a member's bars, where there is room, when it ran chunks of a launch.
define internal void @note_bar(ptr %run, i64 %member, i64 %launch, i64 %chunks, i64 %start) {
entry:
  %bars.at = getelementptr %Run, ptr %run, i64 0, i32 11
  %room.at = getelementptr %Run, ptr %run, i64 0, i32 12
  %bars = load ptr, ptr %bars.at
  %room = load i64, ptr %room.at
  %words = mul i64 %room, 4
  %stride = add i64 %words, 1
  %offset = mul i64 %stride, %member
  %count.at = getelementptr i64, ptr %bars, i64 %offset
  %worked = icmp ne i64 %chunks, 0
  %kept = icmp ne i64 %room, 0
  %wanted = and i1 %worked, %kept
  br i1 %wanted, label %look, label %exit
look:
  %end = call i64 @nanoseconds()
  %count = load i64, ptr %count.at
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr %count.at
  %fits = icmp ult i64 %count, %room
  br i1 %fits, label %write, label %exit
write:
  %before = mul i64 %count, 4
  %first = add i64 %before, 1
  %launch.at = getelementptr i64, ptr %count.at, i64 %first
  %chunks.at = getelementptr i64, ptr %launch.at, i64 1
  %start.at = getelementptr i64, ptr %launch.at, i64 2
  %end.at = getelementptr i64, ptr %launch.at, i64 3
  store i64 %launch, ptr %launch.at
  store i64 %chunks, ptr %chunks.at
  store i64 %start, ptr %start.at
  store i64 %end, ptr %end.at
  br label %exit
exit:
  ret void
}

; Run what member can claim of a launch; all of it, where it is alone. Return how many chunks.
define internal i64 @launch(ptr %run, ptr %launch, ptr %iterations, ptr %team, i64 %member,
                             i64 %size, i64 %base, i64 %grid) {
entry:
  %table.at = getelementptr %Run, ptr %run, i64 0, i32 2
  %refs.at = getelementptr %Run, ptr %run, i64 0, i32 3
  %scratch.at = getelementptr %Run, ptr %run, i64 0, i32 4
  %stride.at = getelementptr %Run, ptr %run, i64 0, i32 5
  %table = load ptr, ptr %table.at
  %refs = load ptr, ptr %refs.at
  %scratch.base = load ptr, ptr %scratch.at
  %scratch.stride = load i64, ptr %stride.at
  %scratch.offset = mul i64 %scratch.stride, %member
  %scratch = getelementptr i8, ptr %scratch.base, i64 %scratch.offset
  %flags.at = getelementptr %Launch, ptr %launch, i64 0, i32 1
  %fn.at = getelementptr %Launch, ptr %launch, i64 0, i32 2
  %count.at = getelementptr %Launch, ptr %launch, i64 0, i32 4
  %start.at = getelementptr %Launch, ptr %launch, i64 0, i32 5
  %dims.at = getelementptr %Launch, ptr %launch, i64 0, i32 6
  %flags = load i32, ptr %flags.at
  %fn = load ptr, ptr %fn.at
  %count = load i64, ptr %count.at
  %start = load i64, ptr %start.at
  %dims = load ptr, ptr %dims.at
  %slots = alloca ptr, i64 %count, align 16
  br label %slot
slot:
  %k = phi i64 [0, %entry], [%k.next, %resolved]
  %slot.more = icmp slt i64 %k, %count
  br i1 %slot.more, label %resolve, label %ready
resolve:
  %row = add i64 %start, %k
  %base.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 0
  %depth.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 1
  %offset.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 2
  %modulus.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 3
  %bytes.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 4
  %begun.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 5
  %entry.base = load i64, ptr %base.at
  %depth = load i64, ptr %depth.at
  %offset = load i64, ptr %offset.at
  %modulus = load i64, ptr %modulus.at
  %bytes = load i64, ptr %bytes.at
  %begun = load i64, ptr %begun.at
  %iteration.at = getelementptr i64, ptr %iterations, i64 %depth
  %iteration = load i64, ptr %iteration.at
  %turn = add i64 %iteration, %offset
  %inside = icmp ult i64 %turn, %modulus ; most lists have an entry per iteration
  br i1 %inside, label %resolved, label %rotate
rotate:
  %turn.in = urem i64 %turn, %modulus
  br label %resolved
resolved:
  %place = phi i64 [%turn, %resolve], [%turn.in, %rotate]
  %entry.index = add i64 %entry.base, %place
  %entry.at = getelementptr ptr, ptr %table, i64 %entry.index
  %buffer = load ptr, ptr %entry.at
  %walked = mul i64 %iteration, %bytes
  %advance = add i64 %begun, %walked
  %address = getelementptr i8, ptr %buffer, i64 %advance
  %slot.at = getelementptr ptr, ptr %slots, i64 %k
  store ptr %address, ptr %slot.at
  %k.next = add i64 %k, 1
  br label %slot
ready:
  %alone = icmp eq ptr %team, null
  %serial.bit = and i32 %flags, 2
  %serial = icmp ne i32 %serial.bit, 0
  %whole = or i1 %alone, %serial
  br i1 %whole, label %all, label %shares

all:
  call void %fn(ptr %slots, ptr %dims, i64 0, i64 %grid, ptr %scratch)
  br i1 %alone, label %exit, label %count.up

shares: ; its own first, then those of the members that follow it
  %turns = phi i64 [0, %ready], [%turns.next, %drained]
  %chunks = phi i64 [0, %ready], [%chunks.in, %drained]
  %turned = add i64 %member, %turns
  %over = icmp uge i64 %turned, %size
  %under = sub i64 %turned, %size
  %owner = select i1 %over, i64 %under, i64 %turned
  br label %pieces
pieces:
  %chunks.in = phi i64 [%chunks, %shares], [%chunks.more, %piece.run]
  %claim = call { i64, i64 } @claim(ptr %team, i64 %owner, i64 %size, i64 %base, i64 %grid)
  %piece = extractvalue { i64, i64 } %claim, 1
  %some = icmp ne i64 %piece, 0
  br i1 %some, label %piece.run, label %drained
piece.run:
  %from = extractvalue { i64, i64 } %claim, 0
  %to = add i64 %from, %piece
  call void %fn(ptr %slots, ptr %dims, i64 %from, i64 %to, ptr %scratch)
  %chunks.more = add i64 %chunks.in, %piece
  br label %pieces
drained:
  %turns.next = add i64 %turns, 1
  %owners.more = icmp ult i64 %turns.next, %size
  br i1 %owners.more, label %shares, label %tally
tally:
  %any = icmp ne i64 %chunks.in, 0
  br i1 %any, label %count.up, label %exit
count.up:
  %done = phi i64 [%grid, %all], [%chunks.in, %tally]
  %finish = add i64 %base, %grid
  call void @report(ptr %team, i64 %done, i64 %finish)
  br label %exit
exit:
  %ran = phi i64 [%grid, %all], [0, %tally], [%done, %count.up]
  ret i64 %ran
}

; Walk the launch list as a member of the team, which is null for who is alone; `self` is the block
; of a worker, null for the caller. The number of the run's last chunk and whether the member came
; that far: a worker whose run is over elsewhere stops at the next wait.
define internal { i64, i1 } @walk(ptr %run, ptr %team, ptr %self, i64 %member, i64 %size,
                                  i64 %start) {
entry:$FRESH_CODE
  %iterations = alloca [$ITERATIONS x i64], align 16
  %last = alloca i64, align 8
  store i64 0, ptr %iterations
  %n.at = getelementptr %Run, ptr %run, i64 0, i32 1
  %times.at = getelementptr %Run, ptr %run, i64 0, i32 7
  %launches = load ptr, ptr %run
  %n = load i64, ptr %n.at
  %alone = icmp eq ptr %team, null
  %caller = icmp eq ptr %self, null
  %times = load ptr, ptr %times.at
  %timed = icmp ne ptr %times, null
  br i1 %timed, label %gather, label %fetch
gather: ; waking the team is no kernel's time
  call void @gather(ptr %team, ptr %self, i64 %size)
  br i1 %caller, label %begin, label %fetch
begin:
  %time.start = call i64 @nanoseconds()
  store i64 %time.start, ptr %last
  call void @join_timed(ptr %team)
  br label %fetch

fetch:
  %pc = phi i64 [0, %entry], [0, %gather], [0, %begin], [%pc.next, %next],
                [%jump, %skip], [%body, %again]
  %depth = phi i64 [0, %entry], [0, %gather], [0, %begin], [%depth.next, %next],
                   [%depth, %skip], [%depth, %again]
  %base = phi i64 [%start, %entry], [%start, %gather], [%start, %begin], [%base.next, %next],
                  [%base, %skip], [%base, %again]
  %more = icmp slt i64 %pc, %n
  br i1 %more, label %decode, label %exit
decode:
  %launch = getelementptr %Launch, ptr %launches, i64 %pc
  %flags.at = getelementptr %Launch, ptr %launch, i64 0, i32 1
  %grid.at = getelementptr %Launch, ptr %launch, i64 0, i32 3
  %jump.at = getelementptr %Launch, ptr %launch, i64 0, i32 7
  %kind = load i32, ptr %launch
  %flags = load i32, ptr %flags.at
  %grid = load i64, ptr %grid.at
  %jump = load i64, ptr %jump.at
  %barrier.bit = and i32 %flags, 1
  %barrier = icmp ne i32 %barrier.bit, 0
  %ordered = or i1 %barrier, %timed
  br i1 %ordered, label %order, label %dispatch
order:
  %goes.on = call i1 @meet(ptr %team, ptr %self, i64 %base)
  br i1 %goes.on, label %dispatch, label %exit
dispatch:
  switch i32 %kind, label %kernel [ i32 1, label %loop.begin
                                    i32 2, label %loop.end ]

kernel:
  %finish = add i64 %base, %grid
  %empty = icmp sle i64 %grid, 0
  br i1 %empty, label %launched, label %some
some:
  br i1 %alone, label %work, label %whose
whose:
  %serial.bit = and i32 %flags, 2
  %serial = icmp ne i32 %serial.bit, 0
  br i1 %serial, label %callers, label %peek
callers:
  br i1 %caller, label %work, label %launched
peek: ; who comes late passes by: so much is done only where all of this is claimed
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %done = load atomic i64, ptr %done.at acquire, align 8
  %is.done = icmp uge i64 %done, %finish
  br i1 %is.done, label %launched, label %work
work:
  br i1 %timed, label %clocked, label %plain
plain:
  %ran = call i64 @launch(ptr %run, ptr %launch, ptr %iterations, ptr %team, i64 %member,
                          i64 %size, i64 %base, i64 %grid)
  br label %launched
clocked:
  %work.start = call i64 @nanoseconds()
  %worked = call i64 @launch(ptr %run, ptr %launch, ptr %iterations, ptr %team, i64 %member,
                             i64 %size, i64 %base, i64 %grid)
  call void @note_bar(ptr %run, i64 %member, i64 %pc, i64 %worked, i64 %work.start)
  br label %launched
launched:
  %noting = and i1 %timed, %caller
  br i1 %noting, label %note, label %next
note:
  %ignored = call i1 @meet(ptr %team, ptr null, i64 %finish)
  %time.at = getelementptr i64, ptr %times, i64 %pc
  %time.before = load i64, ptr %time.at
  %time.last = load i64, ptr %last
  %time.now = call i64 @nanoseconds()
  %time.taken = sub i64 %time.now, %time.last
  %time.sum = add i64 %time.before, %time.taken
  store i64 %time.sum, ptr %time.at
  store i64 %time.now, ptr %last
  br label %next

loop.begin:
  %runs = icmp sgt i64 %grid, 0
  br i1 %runs, label %enter, label %skip.order
enter:
  %depth.in = add i64 %depth, 1
  %first.at = getelementptr i64, ptr %iterations, i64 %depth.in
  store i64 0, ptr %first.at
  br label %next
skip.order: ; a loop ends with a barrier, also one of no trips
  %skips = call i1 @meet(ptr %team, ptr %self, i64 %base)
  br i1 %skips, label %skip, label %exit
skip:
  br label %fetch

loop.end:
  %ends = call i1 @meet(ptr %team, ptr %self, i64 %base)
  br i1 %ends, label %count, label %exit
count:
  %trips.at = getelementptr %Launch, ptr %launches, i64 %jump, i32 3
  %trips = load i64, ptr %trips.at
  %now.at = getelementptr i64, ptr %iterations, i64 %depth
  %now = load i64, ptr %now.at
  %now.next = add i64 %now, 1
  store i64 %now.next, ptr %now.at
  %repeat = icmp slt i64 %now.next, %trips
  br i1 %repeat, label %again, label %leave
again:
  %body = add i64 %jump, 1
  br label %fetch
leave:
  %depth.out = sub i64 %depth, 1
  br label %next

next:
  %depth.next = phi i64 [%depth, %launched], [%depth, %note], [%depth.in, %enter],
                        [%depth.out, %leave]
  %base.next = phi i64 [%finish, %launched], [%finish, %note], [%base, %enter], [%base, %leave]
  %pc.next = add i64 %pc, 1
  br label %fetch
exit:
  %stayed = phi i1 [true, %fetch], [false, %order], [false, %skip.order], [false, %loop.end]
  %end = insertvalue { i64, i1 } poison, i64 %base, 0
  %result = insertvalue { i64, i1 } %end, i1 %stayed, 1
  ret { i64, i1 } %result
}
"""
