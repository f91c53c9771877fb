"""A run on a team, as LLVM IR: workers leased, offered the run, and given back."""

from __future__ import annotations

# A run waits for nobody: it takes the workers that are idle at its start. Two runs at once, from
# two threads of the user, divide the workers in the same way.
RUNS_IR = """
; IEEE arithmetic: round to nearest, keep subnormals, no traps.
define internal void @set_ieee() {
entry:
  %mode = alloca i32, align 4
  store i32 $IEEE_MODE, ptr %mode
  $WRITE_MODE
  ret void
}

; Run a program; return how many threads ran it. Another mode set on the calling thread (by a
; library that flushes subnormals, say) is put aside, so that every member computes alike.
define i64 @luminal_run(ptr %run) {
entry:
  %mode = alloca i32, align 4
  $READ_MODE
  %bits = load i32, ptr %mode
  %control.bits = and i32 %bits, $MODE_BITS
  %ieee = icmp eq i32 %control.bits, $IEEE_MODE
  br i1 %ieee, label %plain, label %odd
plain:
  %size = tail call i64 @run_on_team(ptr %run)
  ret i64 %size
odd:
  call void @set_ieee()
  %size.odd = call i64 @run_on_team(ptr %run)
  $WRITE_MODE
  ret i64 %size.odd
}

define internal i64 @run_on_team(ptr %run) {
entry:
  %threads.at = getelementptr %Run, ptr %run, i64 0, i32 6
  %threads = load i64, ptr %threads.at
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %shared, label %alone
alone:
  %walked = call { i64, i1 } @walk(ptr %run, ptr null, ptr null, i64 0, i64 1, i64 0)
  ret i64 1
shared:
  %size = call i64 @run_shared(ptr %run, i64 %threads)
  ret i64 %size
}

define internal i64 @run_shared(ptr %run, i64 %threads) {
entry:
  %members = alloca [$MAX_WORKERS x ptr], align 16
  %others = sub i64 %threads, 1
  %fits = icmp ult i64 %others, $MAX_WORKERS
  %wanted = select i1 %fits, i64 %others, i64 $MAX_WORKERS
  %wanted.narrow = trunc i64 %wanted to i32
  %control = load ptr, ptr @control
  %started.at = getelementptr i8, ptr %control, i64 $STARTED
  %have = load atomic i32, ptr %started.at acquire, align 4
  %short = icmp ult i32 %have, %wanted.narrow
  br i1 %short, label %hire, label %lease
hire:
  call void @grow(ptr %control, i32 %wanted.narrow)
  br label %lease

lease: ; take what is idle now, wait for nobody
  %started.narrow = load atomic i32, ptr %started.at acquire, align 4
  %started = zext i32 %started.narrow to i64
  %cpu = $HERE
  %wakes.at = getelementptr %Run, ptr %run, i64 0, i32 8
  %wakes.wide = load i64, ptr %wakes.at
  %wakes = icmp ne i64 %wakes.wide, 0
  %last.at = getelementptr i8, ptr %control, i64 $LAST
  %last = load atomic i64, ptr %last.at monotonic, align 8
  %ticks = $TICKS
  %since = sub i64 %ticks, %last
  %closely = icmp ult i64 %since, $CLOSELY
  br label %scan
scan:
  %k = phi i64 [0, %lease], [%k.next, %scan.next]
  %leased = phi i64 [0, %lease], [%leased.next, %scan.next]
  %candidates = icmp ult i64 %k, %started
  %wanting = icmp ult i64 %leased, %wanted
  %scanning = and i1 %candidates, %wanting
  br i1 %scanning, label %try, label %scanned
try:
  %k.next = add i64 %k, 1
  %offset = mul i64 %k.next, $BLOCK
  %worker = getelementptr i8, ptr %control, i64 %offset
  %state.at = getelementptr i8, ptr %worker, i64 $STATE
  %state = load atomic i32, ptr %state.at monotonic, align 4
  %idle = icmp eq i32 %state, $IDLE
  br i1 %idle, label %claim, label %scan.next
claim:
  %swap = cmpxchg ptr %state.at, i32 $IDLE, i32 $LEASED acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %look, label %scan.next
look:
  call void @place(ptr %worker, i32 %cpu)
  %asleep.at = getelementptr i8, ptr %worker, i64 $IDLE_SLEEPERS
  %asleep = load atomic i32, ptr %asleep.at monotonic, align 4
  %awake = icmp eq i32 %asleep, 0
  %joins = or i1 %awake, %wakes
  br i1 %joins, label %take, label %pass
pass:
  br i1 %closely, label %rouse, label %leave
rouse:
  call void @wake_all(ptr %state.at)
  br label %leave
leave:
  store atomic i32 $IDLE, ptr %state.at release, align 4
  br label %scan.next
take:
  %place.at = getelementptr ptr, ptr %members, i64 %leased
  store ptr %worker, ptr %place.at
  %leased.more = add i64 %leased, 1
  br label %scan.next
scan.next:
  %leased.next = phi i64 [%leased, %try], [%leased, %claim], [%leased, %leave],
                         [%leased.more, %take]
  br label %scan
scanned:
  %none = icmp eq i64 %leased, 0
  br i1 %none, label %alone, label %form
alone:
  %walked.alone = call { i64, i1 } @walk(ptr %run, ptr null, ptr null, i64 0, i64 1, i64 0)
  br label %exit

form: ; the first worker's block holds the team's words
  %team = load ptr, ptr %members
  %size = add i64 %leased, 1
  %size.narrow = trunc i64 %size to i32
  %run.at = getelementptr i8, ptr %team, i64 $RUN
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %spins.at = getelementptr i8, ptr %team, i64 $SPINS
  %start.at = getelementptr i8, ptr %team, i64 $START
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %entered.at = getelementptr i8, ptr %team, i64 $ENTERED
  %shares = getelementptr i8, ptr %team, i64 $SHARES
  %own = getelementptr i8, ptr %team, i64 $CALLER_CLAIMED
  %n_cpus = load i32, ptr @n_cpus
  %crowded = icmp ugt i32 %size.narrow, %n_cpus
  %spins = select i1 %crowded, i64 $CROWDED_SPINS, i64 $TEAM_SPINS
  %start.number = load atomic i64, ptr %done.at monotonic, align 8
  store ptr %run, ptr %run.at
  store i32 %size.narrow, ptr %size.at
  store i64 %spins, ptr %spins.at
  store i64 %start.number, ptr %start.at
  store atomic i32 0, ptr %entered.at monotonic, align 4
  store ptr %own, ptr %shares
  store atomic i64 %start.number, ptr %own monotonic, align 8
  br label %share
share: ; all words stand before anybody enters
  %s = phi i64 [0, %form], [%s.next, %share]
  %s.next = add i64 %s, 1
  %s.at = getelementptr ptr, ptr %members, i64 %s
  %sharing = load ptr, ptr %s.at
  %claimed.at = getelementptr i8, ptr %sharing, i64 $CLAIMED
  %share.at = getelementptr ptr, ptr %shares, i64 %s.next
  store ptr %claimed.at, ptr %share.at
  store atomic i64 %start.number, ptr %claimed.at monotonic, align 8
  %share.more = icmp ult i64 %s.next, %leased
  br i1 %share.more, label %share, label %offer
offer:
  %m = phi i64 [0, %share], [%m.next, %offer]
  %m.next = add i64 %m, 1
  %m.at = getelementptr ptr, ptr %members, i64 %m
  %offering = load ptr, ptr %m.at
  %member.at = getelementptr i8, ptr %offering, i64 $MEMBER
  %team.at = getelementptr i8, ptr %offering, i64 $TEAM
  %offer.at = getelementptr i8, ptr %offering, i64 $STATE
  %sleepers = getelementptr i8, ptr %offering, i64 $IDLE_SLEEPERS
  %member = trunc i64 %m.next to i32
  store i32 %member, ptr %member.at
  store ptr %team, ptr %team.at
  %before = atomicrmw xchg ptr %offer.at, i32 $OFFERED seq_cst
  call void @wake(ptr %offer.at, ptr %sleepers)
  %offer.more = icmp ult i64 %m.next, %leased
  br i1 %offer.more, label %offer, label %work
work:
  %walked = call { i64, i1 } @walk(ptr %run, ptr %team, ptr null, i64 0, i64 %size,
                                   i64 %start.number)
  %end = extractvalue { i64, i1 } %walked, 0
  %met = call i1 @meet(ptr %team, ptr null, i64 %end)
  br label %release
release:
  %r = phi i64 [0, %work], [%r.next, %release]
  %r.next = add i64 %r, 1
  %r.at = getelementptr ptr, ptr %members, i64 %r
  %released = load ptr, ptr %r.at
  call void @release(ptr %released, i64 %spins)
  %release.more = icmp ult i64 %r.next, %leased
  br i1 %release.more, label %release, label %exit
exit:
  %members.all = phi i64 [1, %alone], [%size, %release]
  %ended = $TICKS
  store atomic i64 %ended, ptr %last.at monotonic, align 8
  ret i64 %members.all
}

; Take a run back from a worker that has not entered it or is OUT; one that is IN has no chunk left
; and soon steps out.
define internal void @release(ptr %worker, i64 %spins) {
entry:
  %state.at = getelementptr i8, ptr %worker, i64 $STATE
  %sleepers = getelementptr i8, ptr %worker, i64 $JOIN_SLEEPERS
  br label %again
again:
  %begun = phi i64 [0, %entry], [%since, %linger], [%begun, %take]
  %state = load atomic i32, ptr %state.at acquire, align 4
  %in = icmp eq i32 %state, $IN
  br i1 %in, label %linger, label %take
linger:
  %since = call i64 @linger(ptr %state.at, i32 $IN, ptr %sleepers, i64 %begun, i64 %spins, ptr null)
  br label %again
take:
  %swap = cmpxchg ptr %state.at, i32 %state, i32 $IDLE seq_cst monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %exit, label %again
exit:
  ret void
}
"""
