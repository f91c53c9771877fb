"""The workers of teams, as LLVM IR: started, pinned, waiting for runs."""

from __future__ import annotations

# Workers are pinned, each to a CPU of its own, and the caller is not: it is the user's thread. The
# CPU that no worker has is where a worker goes when it sits on the caller's.
WORKERS_IR = """
; Map the control area; 0 where that worked. Called once, and in a forked child where the system
; does not wipe the area there. `slow` has the bits of CPUs that no worker is pinned to.
define i32 @luminal_team_init(ptr %slow) {
entry:
  call void @llvm.memcpy.p0.p0.i64(ptr @slow, ptr %slow, i64 128, i1 false)
  %area = call ptr @area()
  %failed = icmp eq ptr %area, null
  br i1 %failed, label %fail, label %ready
ready:
  store ptr %area, ptr @control
  ret i32 0
fail:
  ret i32 1
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
  br i1 %collides, label %move, label %exit
move:
  call void @move(ptr %worker, i32 %index)
  br label %exit
exit:
  ret void
}

; A pinned worker goes from entry index of the list to the CPU no worker has.
define internal void @move(ptr %worker, i32 %index) {
entry:
  %control = load ptr, ptr @control
  %home.at = getelementptr i8, ptr %control, i64 $HOME
  %home = atomicrmw xchg ptr %home.at, i32 %index monotonic
  call void @pin(ptr %worker, i32 %home)
  ret void
}

; A caller that is about to sleep leaves its CPU to members that hold chunks and do not run, since
; another process has their CPU: the time of such a thread stands still between two looks at it.
define internal void @lend(ptr %team) {
entry:
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %shares = getelementptr i8, ptr %team, i64 $SHARES
  %size = load i32, ptr %size.at
  br label %next
next:
  %last = phi i32 [0, %entry], [%member, %look], [%member, %time], [%member, %move]
  %member = add i32 %last, 1
  %more = icmp ult i32 %member, %size
  br i1 %more, label %look, label %exit
look:
  %claimed.at = getelementptr ptr, ptr %shares, i32 %member
  %claimed = load ptr, ptr %claimed.at
  %worker = getelementptr i8, ptr %claimed, i64 -$CLAIMED
  %state.at = getelementptr i8, ptr %worker, i64 $STATE
  %index.at = getelementptr i8, ptr %worker, i64 $CPU
  %thread.at = getelementptr i8, ptr %worker, i64 $THREAD
  %state = load atomic i32, ptr %state.at monotonic, align 4
  %index = load i32, ptr %index.at
  %thread = load i64, ptr %thread.at
  %in = icmp eq i32 %state, $IN
  %pinned = icmp sge i32 %index, 0
  %movable = and i1 %in, %pinned
  br i1 %movable, label %time, label %next
time:
  %stands = call i1 @stands(i64 %thread)
  br i1 %stands, label %move, label %next
move:
  call void @move(ptr %worker, i32 %index)
  br label %next
exit:
  ret void
}

; A worker: wait for a run to be offered, run what it can of it, for ever.
define internal ptr @worker(ptr %self) {
entry:
  call void @set_ieee()
  %state.at = getelementptr i8, ptr %self, i64 $STATE
  %member.at = getelementptr i8, ptr %self, i64 $MEMBER
  %team.at = getelementptr i8, ptr %self, i64 $TEAM
  %sleepers = getelementptr i8, ptr %self, i64 $IDLE_SLEEPERS
  br label %idle
idle:
  %begun = phi i64 [0, %entry], [%since, %linger], [0, %accept], [0, %enter], [0, %finish]
  %state = load atomic i32, ptr %state.at acquire, align 4
  %offered = icmp eq i32 %state, $OFFERED
  br i1 %offered, label %accept, label %linger
linger:
  %since = call i64 @linger(ptr %state.at, i32 %state, ptr %sleepers, i64 %begun, i64 $IDLE_SPINS,
                            ptr null)
  br label %idle
accept:
  %swap = cmpxchg ptr %state.at, i32 $OFFERED, i32 $IN seq_cst monotonic
  %in = extractvalue { i32, i1 } %swap, 1
  br i1 %in, label %enter, label %idle
enter:
  %member.narrow = load i32, ptr %member.at
  %team = load ptr, ptr %team.at
  %run.at = getelementptr i8, ptr %team, i64 $RUN
  %size.at = getelementptr i8, ptr %team, i64 $SIZE
  %start.at = getelementptr i8, ptr %team, i64 $START
  %run = load ptr, ptr %run.at
  %size.narrow = load i32, ptr %size.at
  %start = load i64, ptr %start.at
  %member = zext i32 %member.narrow to i64
  %size = zext i32 %size.narrow to i64
  %walked = call { i64, i1 } @walk(ptr %run, ptr %team, ptr %self, i64 %member, i64 %size,
                                   i64 %start)
  %stayed = extractvalue { i64, i1 } %walked, 1
  br i1 %stayed, label %finish, label %idle
finish:
  call void @step_out(ptr %self)
  br label %idle
}

; Start workers until there are `wanted`; leave it to another thread that is at it already.
define internal void @grow(ptr %control, i32 %wanted) {
entry:
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
  $MASK
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
  %id = call i64 @start(ptr %worker)
  %created = icmp ne i64 %id, 0
  br i1 %created, label %keep, label %finish
keep:
  %id.at = getelementptr i8, ptr %worker, i64 $THREAD
  store i64 %id, ptr %id.at
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
  $UNMASK
  store atomic i32 0, ptr %growing.at release, align 4
  br label %exit
exit:
  ret void
}
"""
