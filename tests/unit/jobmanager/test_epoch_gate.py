"""An epoch is given up or committed, whichever is decided first: never both, never neither."""

from __future__ import annotations

import threading

import pytest

from flinkish.jobmanager.epoch_gate import EpochGate, StopQuery


def test_an_epoch_that_was_given_up_is_not_committed_and_none_follows_it() -> None:
    gate = EpochGate()
    gate.begin()
    assert gate.close() and gate.closed
    for move in (gate.go_through, gate.begin):
        with pytest.raises(StopQuery):
            move()


def test_an_epoch_whose_commit_has_begun_is_not_given_up_but_the_next_one_is() -> None:
    gate = EpochGate()
    gate.begin()
    gate.go_through()
    assert not gate.close() and not gate.closed
    gate.go_through()
    gate.begin()
    assert gate.close()


def test_before_the_first_epoch_there_is_nothing_to_wait_for() -> None:
    assert EpochGate().close()


def test_of_two_threads_one_decides() -> None:
    for _ in range(300):
        gate, start, committed = EpochGate(), threading.Barrier(2), []

        def commit(gate: EpochGate = gate, start: threading.Barrier = start, done: list[int] = committed) -> None:
            start.wait()
            try:
                gate.go_through()
                done.append(1)
            except StopQuery:
                pass

        thread = threading.Thread(target=commit)
        thread.start()
        start.wait()
        given_up = gate.close()
        thread.join()
        assert given_up != bool(committed)
