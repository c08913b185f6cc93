"""Signals that a program gets while it waits for its job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from flinkish.jobmanager.signals import end_in_time, stop_on_signals

#: a job that ends a second after it should, or never
NEVER_ENDS = """
import os, signal, threading
from tests.unit.jobmanager.test_signals import Run
from flinkish.jobmanager.signals import stop_on_signals
run = Run()
run.shutdown_timeout_s, run.doing = 0.2, "what follows epoch 7"
with stop_on_signals(lambda: [run]):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
"""


class Run:
    """Counts how often it was asked to stop."""

    shutdown_timeout_s = 60.0
    doing: str | None = None
    has_ended = False

    def __init__(self, name: str = "clicks") -> None:
        self.name = name
        self.asked: list[str] = []
        self.waited = threading.Event()

    def stop_from_outside(self, cause: str) -> None:
        self.asked.append(cause)

    def wait(self, timeout_s: float | None = None) -> None:
        self.waited.set()

    def unfinished(self) -> str | None:
        return self.doing


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_all_jobs_to_stop_and_the_program_goes_on(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = [Run(), Run("views")]
    with stop_on_signals(lambda: runs):
        os.kill(os.getpid(), number)
    assert [run.asked for run in runs] == [[number.name], [number.name]]
    lines = [
        f"\nflinkish: {number.name}: job '{name}' ends after the running epoch (Ctrl-C again: at once)\n"
        for name in ("clicks", "views")
    ]
    assert capfd.readouterr().err == "".join(lines)


def test_the_second_interrupt_does_not_wait() -> None:
    run = Run()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(lambda: [run]):
        os.kill(os.getpid(), signal.SIGINT)
        assert len(run.asked) == 1
        os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_however_often_only_asks_and_is_announced_once(capfd: pytest.CaptureFixture[str]) -> None:
    run = Run()
    with stop_on_signals(lambda: [run]):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert len(run.asked) == 4
    assert capfd.readouterr().err.count("SIGTERM") == 1


def test_after_sigterm_it_is_watched_whether_the_jobs_end() -> None:
    run = Run()
    with stop_on_signals(lambda: [run]):
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.waited.wait(10)


def test_jobs_that_have_ended_in_time_leave_the_process_alone() -> None:
    runs = [Run(), Run()]
    end_in_time(runs)
    assert all(run.waited.is_set() for run in runs)


def test_a_job_that_does_not_end_in_time_ends_with_the_process_which_says_what_was_not_finished() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER_ENDS], capture_output=True, text=True, timeout=50)
    assert ended.returncode == 75
    assert ended.stderr.splitlines()[-1] == (
        "flinkish: job 'clicks' has not ended within 0.2 s (flinkish.shutdown.timeout): what follows epoch 7 was not "
        "finished; started again, the job goes on from its last committed epoch"
    )


def test_a_job_of_which_only_the_history_is_left_was_stopped_in_order() -> None:
    program = NEVER_ENDS.replace("run.shutdown", "run.has_ended = True; run.shutdown")
    assert subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=50).returncode == 143


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_the_handlers_are_those_of_before(fails: bool) -> None:
    before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)]
    try:
        with stop_on_signals(list):
            assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)] != before
            if fails:
                raise ValueError
    except ValueError:
        pass
    assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)] == before


def test_in_another_thread_nothing_is_changed() -> None:
    seen = []

    def work() -> None:
        with stop_on_signals(list):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
