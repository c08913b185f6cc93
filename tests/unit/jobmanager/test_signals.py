"""Signals that a program gets while it waits for its job."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from flinkish.jobmanager.signals import stop_on_signals


class Run:
    """Counts how often it was asked to stop."""

    name = "clicks"

    def __init__(self) -> None:
        self.asked = 0

    def request_stop(self) -> None:
        self.asked += 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_job_to_stop_and_the_program_goes_on(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    with stop_on_signals(run):
        os.kill(os.getpid(), number)
    assert run.asked == 1
    message = f"\nflinkish: {number.name}: job 'clicks' ends after the running epoch (Ctrl-C again: at once)\n"
    assert capfd.readouterr().err == message


def test_the_second_interrupt_does_not_wait() -> None:
    run = Run()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(run):
        os.kill(os.getpid(), signal.SIGINT)
        assert run.asked == 1
        os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_however_often_only_asks_and_is_announced_once(capfd: pytest.CaptureFixture[str]) -> None:
    run = Run()
    with stop_on_signals(run):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert run.asked == 4
    assert capfd.readouterr().err.count("SIGTERM") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_the_handlers_are_those_of_before(fails: bool) -> None:
    before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)]
    try:
        with stop_on_signals(Run()):
            assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)] != before
            if fails:
                raise ValueError
    except ValueError:
        pass
    assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)] == before


def test_in_another_thread_nothing_is_changed() -> None:
    seen = []

    def work() -> None:
        with stop_on_signals(Run()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
