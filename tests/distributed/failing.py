"""A program of which rank 1 fails while the others wait for it: `failing.py HOW`."""

import os
import signal
import sys
import threading
import time

import numpy as np

import luminal as lm

engine = lm.distributed.init()
value, total = np.ones(1 << 18, np.float32), np.empty(1 << 18, np.float32)


def all_reduce(name: str, layer: str = "") -> None:
    engine.run("all_reduce", value, total, label=lm.distributed.Label(name, layer))


def fail(how: str) -> None:
    if how == "exception":
        raise ZeroDivisionError("of rank 1")
    if how == "exit":
        sys.exit(3)
    if how == "memory":
        np.empty(1 << 60, np.uint8)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stuck":
        time.sleep(100)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "ended":
        sys.exit(0)
    if how == "thread":
        threading.Thread(target=fail, args=("exception",)).start()
        time.sleep(100)
    if how == "caught":  # an error of a wait that the program does not care for
        time.sleep(100)
    if how == "program":
        engine.check_same("a = 1\nb = 3", "the program of 'step'")
    if how == "order":
        engine.run("all_gather", value[:2], total[: 2 * engine.size], label="weights")
        engine.run("broadcast", value, total, label="weights")


for step in range(3):
    all_reduce(f"loss {step}")
print(f"rank {engine.rank} is ready", flush=True)
how = sys.argv[1]
if engine.rank == 1:
    fail(how)
if how == "program":
    engine.check_same("a = 1\nb = 2", "the program of 'step'")
if how == "caught":
    while True:
        try:
            all_reduce("gradient of w", "layers.0.mlp")
        except lm.distributed.CollectiveError:
            time.sleep(0.01)
while how != "forever" or engine.rank == 0:
    all_reduce("gradient of w", "layers.0.mlp")
time.sleep(100)
