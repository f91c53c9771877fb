"""The team runtime as LLVM IR: the threads that run a launch list, and the records they read.

`@luminal_run(run)` walks a launch list on the calling thread and on the idle workers it could
lease. Nothing here allocates, fails or waits for another run.

*Memory.* One control page area, mapped at start: a header, then one block per worker. Words
written by different threads lie `LINE` bytes apart. The area is wiped in a forked child
(MADV_WIPEONFORK), which therefore finds zero workers and starts its own at first use. It is
never unmapped and this module is never unloaded: workers sleep in both.

*Leases.* A caller takes idle workers by compare-and-swap and gives them back after all have
finished. The team's own words (barrier, join) lie in the block of its first worker, not on the
caller's stack, so a late futex wake never touches memory that is gone.

*Waking.* A waker changes the word (seq_cst), then reads the count of sleepers; a sleeper raises
the count, then futex-waits for the old value. Either the waker sees the sleeper or the kernel
sees the new value: no wake is lost. To wake a thread may take longer than a small run: such a run
takes only workers that still spin, and where it follows another one closely (a loop of small runs)
it rouses those that sleep for the next.

*Placement.* The kernel likes to wake a worker on its caller's CPU, where both run at half speed.
So workers are pinned while there are CPUs enough, and a caller found on its worker's CPU swaps
it with the one no worker has (`home`).
"""

from __future__ import annotations

from string import Template

from luminal.backends.cpu.launch_ir import MAX_LOOP_DEPTH, WALK_IR

MAX_WORKERS = 255
LINE = 128  # bytes: a pair of cache lines, which the prefetcher fetches together

_LAYOUT = {
    # Bytes into the header.
    "STARTED": 0 * LINE,
    "GROWING": 1 * LINE,
    "HOME": 2 * LINE,
    "LAST": 3 * LINE,
    # Bytes into a worker's block: its mailbox, written by the caller as one line ...
    "GENERATION": 0 * LINE,
    "MEMBER": 0 * LINE + 4,
    "TEAM": 0 * LINE + 8,
    "LEASE": 1 * LINE,
    "IDLE_SLEEPERS": 2 * LINE,
    "CPU": 3 * LINE,
    "THREAD": 3 * LINE + 8,
    # ... and the words of the team whose first worker it is.
    "RUN": 4 * LINE,
    "SIZE": 4 * LINE + 8,
    "SPINS": 4 * LINE + 12,
    "ARRIVED": 5 * LINE,
    "EPOCH": 6 * LINE,
    "BARRIER_SLEEPERS": 7 * LINE,
    "DONE": 8 * LINE,
    "JOIN_SLEEPERS": 9 * LINE,
    "BLOCK": 16 * LINE,
    "AREA": 16 * LINE * (MAX_WORKERS + 1),
    "MAX_WORKERS": MAX_WORKERS,
    "ITERATIONS": MAX_LOOP_DEPTH + 1,
    # A pause is about 50 ns: an idle worker sleeps after 0.2 ms, a barrier yields after 0.1 ms.
    "IDLE_SPINS": 4000,
    "TEAM_SPINS": 2000,
    # With more members than CPUs, whoever is awaited may need this very CPU.
    "CROWDED_SPINS": 50,
    # Ticks of the clock, about 0.1 ms: less than an idle worker spins.
    "CLOSELY": 300_000,
    "YIELDS": 50,
}

_DECLARATIONS = """
@control = internal global ptr null
@cpus = internal global [1024 x i32] zeroinitializer
@n_cpus = internal global i32 0

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_WAITING = """
; Return once *word is no longer value: spin, yield, then sleep; who is roused spins again.
define internal void @wait_while(ptr %word, i32 %value, ptr %sleepers, i32 %spins, i32 %yields) {
entry:
  br label %spin
spin:
  %i = phi i32 [0, %entry], [%i.next, %spin.more], [0, %sleep]
  %seen = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %seen, %value
  br i1 %same, label %spin.more, label %exit
spin.more:
  call void @llvm.x86.sse2.pause()
  %i.next = add i32 %i, 1
  %spinning = icmp ult i32 %i.next, %spins
  br i1 %spinning, label %spin, label %yield
yield:
  %j = phi i32 [0, %spin.more], [%j.next, %yield.more]
  %seen.y = load atomic i32, ptr %word acquire, align 4
  %same.y = icmp eq i32 %seen.y, %value
  br i1 %same.y, label %yield.test, label %exit
yield.test:
  %yielding = icmp ult i32 %j, %yields
  br i1 %yielding, label %yield.more, label %sleep
yield.more:
  %ignored = call i32 @sched_yield()
  %j.next = add i32 %j, 1
  br label %yield
sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %futex = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 128, i32 %value, ptr null)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %seen.s = load atomic i32, ptr %word acquire, align 4
  %same.s = icmp eq i32 %seen.s, %value
  br i1 %same.s, label %spin, label %exit
exit:
  ret void
}

; Raise *word by one and wake whoever sleeps on it.
define internal void @advance(ptr %word, ptr %sleepers) {
entry:
  %before = atomicrmw add ptr %word, i32 1 seq_cst
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %asleep = icmp ne i32 %count, 0
  br i1 %asleep, label %wake, label %exit
wake:
  %futex = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 2147483647)
  br label %exit
exit:
  ret void
}

; Return once every member of the team has come here. Alone (null), return at once.
define internal void @barrier(ptr %team) {
entry:
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %exit, label %arrive
arrive:
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %spins.at = getelementptr i8, ptr %team, i64 $SPINS
  %arrived.at = getelementptr i8, ptr %team, i64 $ARRIVED
  %epoch.at = getelementptr i8, ptr %team, i64 $EPOCH
  %sleepers = getelementptr i8, ptr %team, i64 $BARRIER_SLEEPERS
  %size = load i32, ptr %size.at
  %epoch = load atomic i32, ptr %epoch.at monotonic, align 4
  %others = atomicrmw add ptr %arrived.at, i32 1 acq_rel
  %count = add i32 %others, 1
  %last = icmp eq i32 %count, %size
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived.at monotonic, align 4
  call void @advance(ptr %epoch.at, ptr %sleepers)
  br label %exit
wait:
  %spins = load i32, ptr %spins.at
  call void @wait_while(ptr %epoch.at, i32 %epoch, ptr %sleepers, i32 %spins, i32 $YIELDS)
  br label %exit
exit:
  ret void
}
"""

_WORKERS = """
; Map the control area; 0 where that worked. Called once.
define i32 @luminal_team_init() {
entry:
  %area = call ptr @mmap(ptr null, i64 $AREA, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %area to i64
  %failed = icmp eq i64 %address, -1
  br i1 %failed, label %fail, label %wipe
wipe:
  %wiped = call i32 @madvise(ptr %area, i64 $AREA, i32 18)
  %not.wiped = icmp ne i32 %wiped, 0
  br i1 %not.wiped, label %fail, label %ready
ready:
  store ptr %area, ptr @control
  ret i32 0
fail:
  ret i32 1
}

; Note the CPUs this thread may use.
define internal void @list_cpus() {
entry:
  %mask = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  br label %test
test:
  %cpu = phi i32 [0, %entry], [%cpu.next, %next]
  %count = phi i32 [0, %entry], [%count.next, %next]
  %byte = lshr i32 %cpu, 3
  %in.byte = and i32 %cpu, 7
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  %bits = load i8, ptr %byte.at
  %wide = zext i8 %bits to i32
  %shifted = lshr i32 %wide, %in.byte
  %bit = and i32 %shifted, 1
  %usable = icmp ne i32 %bit, 0
  br i1 %usable, label %note, label %next
note:
  %at = getelementptr i32, ptr @cpus, i32 %count
  store i32 %cpu, ptr %at
  br label %next
next:
  %count.next = add i32 %count, %bit
  %cpu.next = add i32 %cpu, 1
  %more = icmp ult i32 %cpu.next, 1024
  br i1 %more, label %test, label %exit
exit:
  store i32 %count.next, ptr @n_cpus
  ret void
}

; Pin a worker to entry index of the list of CPUs.
define internal void @pin(ptr %worker, i32 %index) {
entry:
  %mask = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %cpu.at = getelementptr i32, ptr @cpus, i32 %index
  %cpu = load i32, ptr %cpu.at
  %byte = lshr i32 %cpu, 3
  %in.byte = and i32 %cpu, 7
  %bit = shl i32 1, %in.byte
  %bits = trunc i32 %bit to i8
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  store i8 %bits, ptr %byte.at
  %thread.at = getelementptr i8, ptr %worker, i64 $THREAD
  %thread = load i64, ptr %thread.at
  %ignored = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %index.at = getelementptr i8, ptr %worker, i64 $CPU
  store i32 %index, ptr %index.at
  ret void
}

; A leased worker that sits on the caller's CPU goes to the CPU no worker has.
define internal void @place(ptr %worker, i32 %caller.cpu) {
entry:
  %index.at = getelementptr i8, ptr %worker, i64 $CPU
  %index = load i32, ptr %index.at
  %pinned = icmp sge i32 %index, 0
  br i1 %pinned, label %compare, label %exit
compare:
  %cpu.at = getelementptr i32, ptr @cpus, i32 %index
  %cpu = load i32, ptr %cpu.at
  %collides = icmp eq i32 %cpu, %caller.cpu
  br i1 %collides, label %swap, label %exit
swap:
  %control = load ptr, ptr @control
  %home.at = getelementptr i8, ptr %control, i64 $HOME
  %home = atomicrmw xchg ptr %home.at, i32 %index monotonic
  call void @pin(ptr %worker, i32 %home)
  br label %exit
exit:
  ret void
}

; A worker: wait for a mailbox of a new generation, run the share, report, for ever.
define internal ptr @worker(ptr %self) {
entry:
  call void @set_ieee()
  %generation.at = getelementptr i8, ptr %self, i64 $GENERATION
  %member.at = getelementptr i8, ptr %self, i64 $MEMBER
  %team.at = getelementptr i8, ptr %self, i64 $TEAM
  %sleepers = getelementptr i8, ptr %self, i64 $IDLE_SLEEPERS
  br label %idle
idle:
  %seen = phi i32 [0, %entry], [%generation, %idle]
  call void @wait_while(ptr %generation.at, i32 %seen, ptr %sleepers, i32 $IDLE_SPINS, i32 0)
  %generation = load atomic i32, ptr %generation.at acquire, align 4
  %member.narrow = load i32, ptr %member.at
  %team = load ptr, ptr %team.at
  %run.at = getelementptr i8, ptr %team, i64 $RUN
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %joiner = getelementptr i8, ptr %team, i64 $JOIN_SLEEPERS
  %run = load ptr, ptr %run.at
  %size.narrow = load i32, ptr %size.at
  %member = zext i32 %member.narrow to i64
  %size = zext i32 %size.narrow to i64
  call void @walk(ptr %run, ptr %team, i64 %member, i64 %size)
  call void @advance(ptr %done.at, ptr %joiner)
  br label %idle
}

; Start workers until there are `wanted`; leave it to another thread that is at it already.
define internal void @grow(ptr %control, i32 %wanted) {
entry:
  %thread = alloca i64, align 8
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %growing.at = getelementptr i8, ptr %control, i64 $GROWING
  %started.at = getelementptr i8, ptr %control, i64 $STARTED
  %claim = cmpxchg ptr %growing.at, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %claim, 1
  br i1 %mine, label %first, label %exit
first:
  %any = load atomic i32, ptr %started.at monotonic, align 4
  %none = icmp eq i32 %any, 0
  br i1 %none, label %list, label %block
list:
  call void @list_cpus()
  br label %block
block: ; signals stay with the program's own threads: workers inherit a full mask
  %ignored.1 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %next
next:
  %started = load atomic i32, ptr %started.at monotonic, align 4
  %more = icmp ult i32 %started, %wanted
  br i1 %more, label %create, label %finish
create:
  %number = add i32 %started, 1
  %number.wide = zext i32 %number to i64
  %offset = mul i64 %number.wide, $BLOCK
  %worker = getelementptr i8, ptr %control, i64 %offset
  %index.at = getelementptr i8, ptr %worker, i64 $CPU
  store i32 -1, ptr %index.at
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %worker)
  %created = icmp eq i32 %status, 0
  br i1 %created, label %keep, label %finish
keep:
  %id = load i64, ptr %thread
  %id.at = getelementptr i8, ptr %worker, i64 $THREAD
  store i64 %id, ptr %id.at
  %ignored.2 = call i32 @pthread_detach(i64 %id)
  %n_cpus = load i32, ptr @n_cpus
  %room = icmp ult i32 %number, %n_cpus
  br i1 %room, label %pin, label %publish
pin:
  call void @pin(ptr %worker, i32 %number)
  br label %publish
publish:
  store atomic i32 %number, ptr %started.at release, align 4
  br label %next
finish:
  %ignored.3 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  store atomic i32 0, ptr %growing.at release, align 4
  br label %exit
exit:
  ret void
}
"""

_ENTRY = """
; IEEE arithmetic: round to nearest, keep subnormals, no traps.
define internal void @set_ieee() {
entry:
  %mode = alloca i32, align 4
  store i32 8064, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

; Run a program; return how many threads ran it. Another mode set on the calling thread (by a
; library that flushes subnormals, say) is put aside, so that every member computes alike.
define i64 @luminal_run(ptr %run) {
entry:
  %mode = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %bits = load i32, ptr %mode
  %control.bits = and i32 %bits, 65472
  %ieee = icmp eq i32 %control.bits, 8064
  br i1 %ieee, label %plain, label %odd
plain:
  %size = tail call i64 @run_on_team(ptr %run)
  ret i64 %size
odd:
  call void @set_ieee()
  %size.odd = call i64 @run_on_team(ptr %run)
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret i64 %size.odd
}

define internal i64 @run_on_team(ptr %run) {
entry:
  %threads.at = getelementptr %Run, ptr %run, i64 0, i32 6
  %threads = load i64, ptr %threads.at
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %shared, label %alone
alone:
  call void @walk(ptr %run, ptr null, i64 0, i64 1)
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
  %cpu = call i32 @sched_getcpu()
  %wakes.at = getelementptr %Run, ptr %run, i64 0, i32 8
  %wakes.wide = load i64, ptr %wakes.at
  %wakes = icmp ne i64 %wakes.wide, 0
  %last.at = getelementptr i8, ptr %control, i64 $LAST
  %last = load atomic i64, ptr %last.at monotonic, align 8
  %ticks = call i64 @llvm.readcyclecounter()
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
  %lease.at = getelementptr i8, ptr %worker, i64 $LEASE
  %lease.now = load atomic i32, ptr %lease.at monotonic, align 4
  %idle = icmp eq i32 %lease.now, 0
  br i1 %idle, label %claim, label %scan.next
claim:
  %swap = cmpxchg ptr %lease.at, i32 0, i32 1 acquire monotonic
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
  %word = getelementptr i8, ptr %worker, i64 $GENERATION
  %futex = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 1)
  br label %leave
leave:
  store atomic i32 0, ptr %lease.at release, align 4
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
  call void @walk(ptr %run, ptr null, i64 0, i64 1)
  br label %exit

form: ; the first worker's block holds the team's words
  %team = load ptr, ptr %members
  %size = add i64 %leased, 1
  %size.narrow = trunc i64 %size to i32
  %run.at = getelementptr i8, ptr %team, i64 $RUN
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %spins.at = getelementptr i8, ptr %team, i64 $SPINS
  %arrived.at = getelementptr i8, ptr %team, i64 $ARRIVED
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %joiner = getelementptr i8, ptr %team, i64 $JOIN_SLEEPERS
  %n_cpus = load i32, ptr @n_cpus
  %crowded = icmp ugt i32 %size.narrow, %n_cpus
  %spins = select i1 %crowded, i32 $CROWDED_SPINS, i32 $TEAM_SPINS
  store ptr %run, ptr %run.at
  store i32 %size.narrow, ptr %size.at
  store i32 %spins, ptr %spins.at
  store atomic i32 0, ptr %arrived.at monotonic, align 4
  store atomic i32 0, ptr %done.at monotonic, align 4
  br label %start
start:
  %m = phi i64 [0, %form], [%m.next, %start]
  %m.next = add i64 %m, 1
  %m.at = getelementptr ptr, ptr %members, i64 %m
  %starting = load ptr, ptr %m.at
  %member.at = getelementptr i8, ptr %starting, i64 $MEMBER
  %team.at = getelementptr i8, ptr %starting, i64 $TEAM
  %generation.at = getelementptr i8, ptr %starting, i64 $GENERATION
  %sleepers = getelementptr i8, ptr %starting, i64 $IDLE_SLEEPERS
  %member = trunc i64 %m.next to i32
  store i32 %member, ptr %member.at
  store ptr %team, ptr %team.at
  call void @advance(ptr %generation.at, ptr %sleepers)
  %start.more = icmp ult i64 %m.next, %leased
  br i1 %start.more, label %start, label %work
work:
  call void @walk(ptr %run, ptr %team, i64 0, i64 %size)
  %leased.narrow = trunc i64 %leased to i32
  br label %join
join:
  %done = load atomic i32, ptr %done.at acquire, align 4
  %all = icmp eq i32 %done, %leased.narrow
  br i1 %all, label %release, label %join.wait
join.wait:
  call void @wait_while(ptr %done.at, i32 %done, ptr %joiner, i32 %spins, i32 $YIELDS)
  br label %join
release:
  %r = phi i64 [0, %join], [%r.next, %release]
  %r.next = add i64 %r, 1
  %r.at = getelementptr ptr, ptr %members, i64 %r
  %released = load ptr, ptr %r.at
  %released.at = getelementptr i8, ptr %released, i64 $LEASE
  store atomic i32 0, ptr %released.at release, align 4
  %release.more = icmp ult i64 %r.next, %leased
  br i1 %release.more, label %release, label %exit
exit:
  %members.all = phi i64 [1, %alone], [%size, %release]
  %ended = call i64 @llvm.readcyclecounter()
  store atomic i64 %ended, ptr %last.at monotonic, align 8
  ret i64 %members.all
}
"""


def team_ir() -> str:
    """The module's text. It exports `luminal_team_init()` and `luminal_run(run)`."""
    text = _DECLARATIONS + _WAITING + WALK_IR + _WORKERS + _ENTRY
    return Template(text).substitute(_LAYOUT)
