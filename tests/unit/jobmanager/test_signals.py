"""Signals that a program gets while it waits for its job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.signals import end_in_time, stop_on_signals
from tests.support.processes import wait_until

#: a job that ends a second after it should, or never
NEVER_ENDS = """
import os, signal, threading
from tests.unit.jobmanager.test_signals import Run
from flinkish.jobmanager.signals import stop_on_signals
run = Run()
run.shutdown_timeout_s = 0.2
run.doing = "what follows epoch 7"
with stop_on_signals(lambda: [run]):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
"""

#: a job without end, which gets a signal in its first second, as soon as the main thread waits for its result
PROGRAM = """
import concurrent.futures, os, signal, time
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.functions import MapFunction
from flinkish.datastream import StreamExecutionEnvironment

class Once(MapFunction):
    def map(self, value):
        if value == 3:
            while "SUBMITTED" not in os.environ or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
        return value

    def close(self):
        print("disposed of")

settings = {{"execution.target": "minicluster", "flinkish.progress": "never", "parallelism.default": 1}}
configuration = Configuration.from_dict(settings)
env = StreamExecutionEnvironment.get_execution_environment(configuration)
source = DataGeneratorSource(lambda index: index, records_per_epoch=2)
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(Once())
try:
    result = env.execute_async("endless").get_job_execution_result()
    os.environ["SUBMITTED"] = "by now"
    while True:
        try:
            result.result({timeout_s})
            break
        except concurrent.futures.TimeoutError:
            pass
    print("the job has finished")
finally:
    print("cleaned up")
"""


class Run:
    """Counts how often it was asked to stop."""

    shutdown_timeout_s = 60.0
    doing: str | None = None
    has_ended = over = False

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

    def abandon(self) -> bool:
        return self.has_ended or self.over


@pytest.fixture(autouse=True)
def no_signal_has_come() -> Iterator[None]:
    live_jobs.forget_stops()
    yield
    live_jobs.forget_stops()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_all_jobs_to_stop_and_ends_the_program_when_they_have_ended(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = [Run(), Run("views")]
    with pytest.raises(SystemExit) as end, stop_on_signals(lambda: runs):
        os.kill(os.getpid(), number)
    assert end.value.code == 143 and all(run.waited.is_set() for run in runs)
    assert [set(run.asked) for run in runs] == [{number.name}, {number.name}]
    lines = [
        f"\nflinkish: {number.name}: job '{name}' ends after the running epoch (Ctrl-C again: at once)\n"
        for name in ("clicks", "views")
    ]
    said = capfd.readouterr().err
    assert len(said) == len("".join(lines)) and all(line in said for line in lines)


CELL = """
import os, signal
from tests.unit.jobmanager.test_signals import Run
from flinkish.jobmanager.signals import stop_on_signals
with stop_on_signals(lambda: [Run()]):
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_cell_that_is_interrupted_shows_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    with pytest.MonkeyPatch.context() as patch:
        # a shell sets it, too, and leaves it
        patch.setattr(sys, "ps1", "In: ", raising=False)
        try:
            result = shells.instance().run_cell(CELL)
        finally:
            shells.clear_instance()
    assert isinstance(result.error_in_exec, KeyboardInterrupt), "`except Exception` in the cell does not swallow it"
    printed = capfd.readouterr()
    assert [line for line in printed.out.splitlines() if line] == [
        "interrupted: job 'clicks' was stopped after its last epoch; started again, the job goes on from its last "
        "committed epoch"
    ]
    assert "SystemExit" not in printed.out + printed.err


def test_the_second_interrupt_does_not_wait() -> None:
    run = Run()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(lambda: [run]):
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: bool(run.asked), 10, "the job is asked, in the midst of the block")
        os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_however_often_only_asks_is_announced_once_and_it_is_watched_whether_the_jobs_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = Run()
    with pytest.raises(SystemExit), stop_on_signals(lambda: [run]):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert run.waited.wait(10)
    assert set(run.asked) == {"SIGTERM"}
    assert capfd.readouterr().err.count("SIGTERM") == 1


def test_a_job_that_fails_after_a_signal_ends_the_program_with_its_failure() -> None:
    with pytest.raises(OSError, match="the disk is full"), stop_on_signals(lambda: [Run()]):
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("the disk is full")


#: a job whose first epoch does not end, which gets a signal in it
LONG_EPOCH = (
    PROGRAM.replace(", records_per_epoch=2", "")
    .replace("            time.sleep(0.3)", "        time.sleep({pause_s} if value >= 3 else 0)")
    .replace("env = ", 'configuration.set_string("flinkish.shutdown.timeout", "{timeout}")\nenv = ', 1)
)


@pytest.mark.parametrize(
    ("timeout", "pause_s", "code", "output", "said"),
    [
        ("2 s", 0.01, 143, "disposed of\ncleaned up\n", "job 'endless' ends after the running epoch"),
        ("100 ms", 60, 75, "", "within 0.1 s (flinkish.shutdown.timeout): its first epoch was not finished"),
    ],
    ids=["between two records", "in a call that does not return"],
)
def test_the_shutdown_timeout_ends_an_epoch_of_the_minicluster(
    timeout: str, pause_s: float, code: int, output: str, said: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(LONG_EPOCH.format(timeout_s=None, timeout=timeout, pause_s=pause_s))
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (code, output), ended.stderr
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("launcher", "timeout_s"),
    [
        ([], None),
        (["-m", "flinkish.launch.driver"], 0.05),
        pytest.param([], 0.05, marks=pytest.mark.nightly),
        pytest.param(["-m", "flinkish.launch.driver"], None, marks=pytest.mark.nightly),
    ],
)
def test_however_a_program_is_started_nothing_behind_execute_runs_after_a_signal(
    tmp_path: Path, launcher: list[str], timeout_s: float | None
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(timeout_s=timeout_s))
    ended = subprocess.run([sys.executable, *launcher, str(program)], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (143, "disposed of\ncleaned up\n"), ended.stderr


#: The signal comes when the job has begun, and the main thread has not left its submission.
IN_SUBMISSION = """
import os
import time
from flinkish.jobmanager.job_run import JobRun

starts = JobRun.start

def until_the_signal(run):
    os.environ["SUBMITTED"] = "soon"
    starts(run)
    while not run.wishes.to_end:
        time.sleep(0.01)

JobRun.start = until_the_signal
"""


def test_a_signal_to_a_job_that_has_begun_ends_the_program_within_its_submission(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(IN_SUBMISSION + PROGRAM.format(timeout_s=None))
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (143, "disposed of\ncleaned up\n"), ended.stderr


#: One program after the other, each of which gets a signal at another call of a function within its `execute`.
AT_ANY_CALL = """
import os, signal, sys, time
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager import signals as live_jobs

step, first = int(sys.argv[1]), int(sys.argv[2])
settings = {"execution.target": "minicluster", "flinkish.progress": "never", "parallelism.default": "1"}

class Earlier(BaseException):
    pass

def earlier(*_):
    raise Earlier

signal.signal(signal.SIGTERM, earlier)
signal.signal(signal.SIGINT, earlier)

def tried(at, number, *count):
    # returns how it has ended, how many calls there were, and in which code the signal has come
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = DataGeneratorSource(lambda index: index, *count, records_per_epoch=2)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(str)
    calls, place = [0], [""]
    def called(frame, event, _):
        calls[0] += event in ("call", "c_call")
        if calls[0] == at and not place[0]:
            place[0] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            os.kill(os.getpid(), number)
    end = "finished"
    sys.setprofile(called)
    try:
        env.execute("at any call")
    except SystemExit as exit_:
        end = f"exit {int(exit_.code)}"
    except Earlier:
        end = "earlier"
    finally:
        sys.setprofile(None)
    return end, calls[0], place[0]

tried(0, signal.SIGTERM, 5)
_, total, _ = tried(0, signal.SIGTERM, 5)
count = 0
for at in range(first, total, step):
    number = (signal.SIGTERM, signal.SIGINT)[at // step % 2]
    # whose job is endless must not miss it
    end, _, place = tried(at, number, *([5] if at > 0.8 * total else []))
    count += 1
    given_back = end == "earlier" or all(signal.getsignal(one) is earlier for one in (signal.SIGTERM, signal.SIGINT))
    # the earlier handlers have those that come before the first line and behind the last one
    right = end == "exit 143" or (end == "earlier" and not 60 < at < 0.98 * total) or not place
    if not right or not given_back or live_jobs.running():
        print(at, number.name, end, given_back, live_jobs.running(), place)
        live_jobs.forget_stops()
print(count > 10)
"""


@pytest.mark.parametrize(
    ("step", "first"),
    [(431, 3), *(pytest.param(29, first, marks=pytest.mark.nightly) for first in (1, 5, 9, 14, 20))],
)
def test_at_whatever_call_of_a_start_a_signal_comes_the_program_ends(step: int, first: int) -> None:
    words = [sys.executable, "-c", AT_ANY_CALL, str(step), str(first)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr[-2000:]


#: A signal that comes before there is a job, in what an earlier job has left, and between two jobs.
BEFORE = """
import os, signal, sys
from flinkish.jobmanager.signals import stop_on_signals, started, running
from tests.unit.jobmanager.test_signals import Run
number, way = signal.Signals[sys.argv[1]], sys.argv[2]
run = Run()
if way == "in no job":
    with stop_on_signals(running):
        os.kill(os.getpid(), number)
        print("it goes on")
if way == "left by a failure":
    try:
        with stop_on_signals(lambda: [run]):
            os.kill(os.getpid(), number)
            raise ValueError
    except ValueError:
        print("caught")
    with stop_on_signals(running):
        print("it goes on")
if way == "swallowed":
    with stop_on_signals(running):
        try:
            os.kill(os.getpid(), number)
        except SystemExit:
            pass
        started(run)
        assert set(run.asked) == {number.name}, run.asked
print("it goes on")
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(("way", "printed"), [("in no job", ""), ("left by a failure", "caught\n"), ("swallowed", "")])
def test_a_signal_is_remembered_until_the_program_is_told(number: str, way: str, printed: str) -> None:
    ended = subprocess.run([sys.executable, "-c", BEFORE, number, way], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (143, printed), ended.stderr


def test_jobs_that_have_ended_in_time_leave_the_process_alone() -> None:
    runs = [Run(), Run()]
    end_in_time(runs)
    assert all(run.waited.is_set() for run in runs)


@pytest.mark.parametrize(
    ("attribute", "code", "said"),
    [
        (
            "doing",
            75,
            "flinkish: job 'clicks' has not ended within 0.2 s (flinkish.shutdown.timeout): what follows epoch 7 was "
            "not finished; started again, the job goes on from its last committed epoch",
        ),
        # it was being cancelled, and its epoch has not ended
        ("over", 143, "what follows epoch 7 was not finished; the job is over"),
        # only the history is left: it was stopped in order
        ("has_ended", 143, ""),
    ],
)
def test_a_job_that_does_not_end_in_time_ends_with_the_process_which_says_what_was_not_finished(
    attribute: str, code: int, said: str
) -> None:
    program = NEVER_ENDS.replace("run.doing = ", f"run.{attribute} = True; run.doing = ")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert ended.returncode == code
    assert ended.stderr.splitlines()[-1].endswith(said)


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_the_handlers_are_those_of_before_and_in_another_thread_nothing_is_changed(fails: bool) -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)]

    def within() -> list[Any]:
        with stop_on_signals(list):
            return handlers()

    before = handlers()
    with suppress(ValueError), stop_on_signals(list):
        assert handlers() != before
        if fails:
            raise ValueError
    assert handlers() == before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(within).result() == before


#: A signal that comes when the job is submitted and its result is not waited for yet.
BETWEEN = """
import os, signal, time
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.client import RunClient

waits = RunClient.get_job_execution_result

def after_a_signal(client):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    return waits(client)

RunClient.get_job_execution_result = after_a_signal
configuration = Configuration()
configuration.set_string("execution.target", "minicluster")
configuration.set_string("flinkish.progress", "never")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
source = DataGeneratorSource(lambda index: index, records_per_epoch=2)
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(str)
try:
    env.from_source(source, WatermarkStrategy.no_watermarks(), "more").map(str)
    env.execute("endless")
    print("the job has finished")
finally:
    print("cleaned up")
"""


def test_a_signal_between_the_submission_and_the_wait_ends_the_program_too() -> None:
    ended = subprocess.run([sys.executable, "-c", BETWEEN], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (143, "cleaned up\n"), ended.stderr
    assert "SIGTERM: job 'endless' ends after the running epoch" in ended.stderr
