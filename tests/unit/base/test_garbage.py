"""The garbage collector is held still while a graph is compiled, and only then."""

from __future__ import annotations

import gc
import threading

import pytest

from luminal.base import garbage


def test_held_in_the_block_only() -> None:
    assert gc.isenabled()
    with garbage.held():
        assert not gc.isenabled()
        with garbage.held():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), garbage.held():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_a_program_that_collects_nothing_goes_on_so() -> None:
    gc.disable()
    try:
        with garbage.held():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_thread_restores() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with garbage.held():
            entered.set()
            leave.wait()

    with garbage.held():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
