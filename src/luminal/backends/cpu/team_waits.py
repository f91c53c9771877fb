"""How members of a team wait, wake each other, and step out of a run while they wait: LLVM IR."""

from __future__ import annotations

# Spinning first, since the next launch mostly follows within microseconds, and a futex takes longer
# than that to wake anybody. The count of sleepers makes a wake that nobody needs one load. It is
# raised before the futex looks at the word, and the word is changed before the count is read: so
# one of the two sides always sees the other.
WAITS_IR = """
; One step of waiting for *word to change from `seen`: pause, or sleep once `spins` ticks have
; passed since `begun`. The first step begins at 0 and says when it was; who is roused spins again.
; Who waits for the members of a team that is not null lends them its CPU before it sleeps.
define internal i64 @linger(ptr %word, i32 %seen, ptr %sleepers, i64 %begun, i64 %spins,
                            ptr %team) {
entry:
  %now = $TICKS
  %first = icmp eq i64 %begun, 0
  %since = select i1 %first, i64 %now, i64 %begun
  %ticks = sub i64 %now, %since
  %spinning = icmp ult i64 %ticks, %spins
  br i1 %spinning, label %spin, label %rest
spin:
  $PAUSE
  ret i64 %since
rest:
  %lends = icmp ne ptr %team, null
  br i1 %lends, label %lend, label %sleep
lend:
  call void @lend(ptr %team)
  br label %sleep
sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  call void @sleep_on(ptr %word, i32 %seen)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret i64 0
}

; Wake whoever sleeps on a word that has just been changed (seq_cst).
define internal void @wake(ptr %word, ptr %sleepers) {
entry:
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %asleep = icmp ne i32 %count, 0
  br i1 %asleep, label %wake, label %exit
wake:
  call void @wake_all(ptr %word)
  br label %exit
exit:
  ret void
}

; A worker that is IN a run steps OUT.
define internal void @step_out(ptr %self) {
entry:
  %state.at = getelementptr i8, ptr %self, i64 $STATE
  %joiner = getelementptr i8, ptr %self, i64 $JOIN_SLEEPERS
  %before = atomicrmw xchg ptr %state.at, i32 $OUT seq_cst
  call void @wake(ptr %state.at, ptr %joiner)
  ret void
}

; Return true once all chunks before `base` are done; false to a worker that the run goes on
; without: it may touch nothing of it any more. Alone (team null), true at once.
define internal i1 @meet(ptr %team, ptr %self, i64 %base) {
entry:
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %stay, label %look
look:
  %done.at = getelementptr i8, ptr %team, i64 $DONE
  %done.first = load atomic i64, ptr %done.at acquire, align 8
  %is.done = icmp uge i64 %done.first, %base
  br i1 %is.done, label %stay, label %wait
stay:
  ret i1 true
wait:
  %spins.at = getelementptr i8, ptr %team, i64 $SPINS
  %spins = load i64, ptr %spins.at
  %sleepers = getelementptr i8, ptr %team, i64 $DONE_SLEEPERS
  %state.at = getelementptr i8, ptr %self, i64 $STATE
  %caller = icmp eq ptr %self, null
  %lender = select i1 %caller, ptr %team, ptr null
  br i1 %caller, label %again, label %out
out:
  call void @step_out(ptr %self)
  br label %again
again:
  %begun = phi i64 [0, %wait], [0, %out], [%since, %linger]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %reached = icmp uge i64 %done, %base
  br i1 %reached, label %met, label %linger
linger:
  %seen = trunc i64 %done to i32
  %since = call i64 @linger(ptr %done.at, i32 %seen, ptr %sleepers, i64 %begun, i64 %spins,
                            ptr %lender)
  br label %again
met:
  br i1 %caller, label %stay, label %in
in:
  %swap = cmpxchg ptr %state.at, i32 $OUT, i32 $IN seq_cst monotonic
  %is.in = extractvalue { i32, i1 } %swap, 1
  ret i1 %is.in
}

; One more member of a timed run is there; nothing for who is alone.
define internal void @join_timed(ptr %team) {
entry:
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %exit, label %say
say:
  %entered.at = getelementptr i8, ptr %team, i64 $ENTERED
  %sleepers = getelementptr i8, ptr %team, i64 $DONE_SLEEPERS
  %before = atomicrmw add ptr %entered.at, i32 1 seq_cst
  call void @wake(ptr %entered.at, ptr %sleepers)
  br label %exit
exit:
  ret void
}

; Where a run is timed: a worker says that it has entered and waits for the caller to begin, who
; waits for all of them. None works before the caller has read the clock.
define internal void @gather(ptr %team, ptr %self, i64 %size) {
entry:
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %exit, label %look
look:
  %entered.at = getelementptr i8, ptr %team, i64 $ENTERED
  %sleepers = getelementptr i8, ptr %team, i64 $DONE_SLEEPERS
  %caller = icmp eq ptr %self, null
  %others = sub i64 %size, 1
  %needed = select i1 %caller, i64 %others, i64 %size
  br i1 %caller, label %again, label %say
say:
  call void @join_timed(ptr %team)
  br label %again
again:
  %begun = phi i64 [0, %look], [0, %say], [%since, %linger]
  %entered = load atomic i32, ptr %entered.at acquire, align 4
  %members = zext i32 %entered to i64
  %all = icmp uge i64 %members, %needed
  br i1 %all, label %exit, label %linger
linger:
  %since = call i64 @linger(ptr %entered.at, i32 %entered, ptr %sleepers, i64 %begun,
                            i64 $TEAM_SPINS, ptr null)
  br label %again
exit:
  ret void
}
"""
