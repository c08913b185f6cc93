"""A driver gets SIGTERM or Ctrl-C at a random moment of its start. It ends in time, with the exit code of a signal, and
leaves no process behind. The ways to start it: ``flinkish run``, plain ``python``, the same under ``timeout``, and by a
session process (``flinkish jobmanager``).

``python -m tests.integration.trouble.signals_at_any_moment --trials 300 [--spark] [--ways run,python] [--seed N]``
prints each trial that is wrong, and how the others have ended. It returns how many were wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.support.processes import python_path, wait_until
from tests.support.session_processes import SessionUnderTest

PROGRAM = """
import os, sys
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.datagen import DataGeneratorSource

given = Configuration()
for text in filter(None, os.environ.get("TRIAL", "").split()):
    given.set_string(*text.split("=", 1))
env = StreamExecutionEnvironment.get_execution_environment(given)
source = DataGeneratorSource(lambda index: index, records_per_epoch=10)
env.from_source(source, WatermarkStrategy.no_watermarks(), "s").uid("s").map(lambda value: None).uid("m")
env.execute("endless")
print("the job has finished")
"""

#: The exit codes of a process that a signal has ended: those of flinkish, and that of a process without a handler.
CODES = {signal.SIGTERM: (143, -15), signal.SIGINT: (143, 130, -2)}
WAYS = ("run", "python", "timeout run", "timeout python", "session")
#: Seconds within which a driver ends, on a machine that others use as well.
BOUND_S = 30.0
#: Seconds in which Python itself has not come to the first line of any program: it ends by Ctrl-C with 1.
_PYTHON_S = 0.5


@dataclass(frozen=True)
class Trial:
    """One start.

    Attributes:
        way: one of `WAYS`.
        number: the signal.
        after_s: when it comes, in seconds after the start of the process.
        again_s: when it comes once more after that; None: once is enough.
        group: whether the whole process group gets it, as by Ctrl-C at a terminal.
    """

    way: str
    number: signal.Signals
    after_s: float
    again_s: float | None = None
    group: bool = False

    def __str__(self) -> str:
        again = "" if self.again_s is None else f" and {self.again_s:.3f} s later"
        who = " to the group" if self.group else ""
        return f"{self.way}: {self.number.name}{who} after {self.after_s:.3f} s{again}"


def trials(count: int, seed: int, ways: tuple[str, ...], longest_s: float) -> Iterator[Trial]:
    """Random ones."""
    dice = random.Random(seed)
    for _ in range(count):
        way, after_s = dice.choice(ways), dice.uniform(0.0, longest_s)
        # `timeout` and a session end drivers by SIGTERM
        number = dice.choice([signal.SIGTERM, signal.SIGINT] if way in ("run", "python") else [signal.SIGTERM])
        again_s = dice.choice([None, None, dice.uniform(0, 0.05), dice.uniform(0, 1)])
        yield Trial(way, number, after_s, again_s if "timeout" not in way else None, dice.random() < 0.3)


class Starts:
    """Carries out trials.

    Args:
        folder: for programs, job directories and logs.
        spark: whether the jobs run on Spark; otherwise in the minicluster.
        session: the session process for that way; None: there is none.
    """

    def __init__(self, folder: Path, spark: bool, session: SessionUnderTest | None = None) -> None:
        self._folder = folder
        self._spark = spark
        self._session = session
        self.program = folder / "endless.py"
        self.program.write_text(PROGRAM)
        self.slowest_s = 0.0
        self.ends: Counter[str] = Counter()

    def wrong(self, trial: Trial) -> str:
        """What is wrong with the end of a driver, in words; "": nothing."""
        try:
            code = self._of_session(trial) if trial.way == "session" else self._of_process(trial)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        self.ends[f"{trial.way}, {trial.number.name}: {code}"] += 1
        return "" if code in CODES[trial.number] else f"exit code {code}"

    def _of_process(self, trial: Trial) -> int:
        job = Path(tempfile.mkdtemp(dir=self._folder))
        settings = [
            "flinkish.rest.enabled=true",
            "rest.port=0",
            "flinkish.progress=never",
            f"flinkish.job.dir={job}/job",
        ]
        settings += ["spark.master=local[2]"] if self._spark else ["execution.target=minicluster"]
        command = [sys.executable, str(self.program)]
        if "run" in trial.way:
            flinkish = [str(Path(sys.executable).with_name("flinkish")), "run"]
            command = [*flinkish, *(word for text in settings for word in ("-D", text)), str(self.program)]
        if "timeout" in trial.way:
            command = ["timeout", "--preserve-status", "-s", trial.number.name, f"{trial.after_s:.3f}", *command]
        variables = {"TRIAL": " ".join(settings), "PYSPARK_PYTHON": sys.executable, "HOME": str(self._folder)}
        began = time.monotonic()
        with (job / "log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": python_path(), **variables},
            )
        try:
            if "timeout" not in trial.way:
                _sent(trial, process.pid)
            code = process.wait(max(began + trial.after_s + BOUND_S - time.monotonic(), 1))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began - trial.after_s)
            wait_until(lambda: not _lives(process.pid), BOUND_S, "the end of all its processes")
        except Exception as error:
            raise RuntimeError(f"{error}; it has printed: {(job / 'log').read_text()[-500:]!r}") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed = (job / "log").read_text()
        if code == 1 and trial.number is signal.SIGINT and "init_import_site" in printed and trial.after_s < _PYTHON_S:
            return -trial.number
        # a second Ctrl-C may come while Python ends
        noise = "Exception ignored" in printed and trial.again_s is None
        told = [text for text in ("the job has finished", "never executed", "Fatal Python error") if text in printed]
        if told or noise or code not in CODES[trial.number]:
            raise RuntimeError(f"exit code {code}; it has printed: {printed[-1500:]!r}")
        return code

    def _of_session(self, trial: Trial) -> int:
        """The exit code that a session process has heard of; its driver is not started again."""
        assert self._session is not None
        known, codes = set(self._drivers()), set(self._exits())
        path = f"/jars/{self._session.uploaded(PROGRAM)}/run"
        # it is answered when there is a job, or none can come any more
        threading.Thread(target=self._session.asked, args=(path, "POST", {}), daemon=True).start()
        driver = wait_until(lambda: next(iter(set(self._drivers()) - known), None), BOUND_S, "a driver")
        assert driver is not None
        began = time.monotonic()
        _sent(trial, driver.pid)
        wait_until(lambda: not driver.is_running(), trial.after_s + BOUND_S, "the end of the driver")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began - trial.after_s)
        file = wait_until(lambda: next(iter(set(self._exits()) - codes), None), BOUND_S, "the exit code")
        assert file is not None
        code = int(file.read_text())
        time.sleep(1.5)
        assert not self._drivers(), "it was started again"
        return code

    def _exits(self) -> list[Path]:
        assert self._session is not None
        return list(self._session.jobs.glob(".flinkish/*.exit"))

    def _drivers(self) -> list[psutil.Process]:
        """The programs that the shells of the session process run."""
        assert self._session is not None
        shells = psutil.Process(self._session.process.pid).children()
        found = []
        for shell in shells:
            with suppress(psutil.Error):
                found += shell.children()
        return found


def _sent(trial: Trial, pid: int) -> None:
    time.sleep(trial.after_s)
    for pause_s in (0.0, trial.again_s):
        if pause_s is not None:
            time.sleep(pause_s)
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), trial.number) if trial.group else os.kill(pid, trial.number)


def _lives(group: int) -> bool:
    """Whether a process of this group lives that is no zombie."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def tried(folder: Path, count: int, seed: int, *, spark: bool, ways: tuple[str, ...], longest_s: float) -> list[str]:
    """Carry out so many trials, at most two at a time; returns those that were wrong, with the reason."""
    with ExitStack() as stack:
        session = SessionUnderTest(folder, "web.submit.enable=true") if "session" in ways else None
        if session is not None:
            stack.callback(session.close)
        starts = Starts(folder, spark, session)
        chosen = list(trials(count, seed, ways, longest_s))
        with ThreadPoolExecutor(1 if spark or session is not None else 2) as pool:
            failed = []
            for trial, why in zip(chosen, pool.map(starts.wrong, chosen), strict=True):
                if why:
                    failed.append(f"{trial}: {why}")
                    print(f"WRONG {failed[-1]}", flush=True)
        for end, times in sorted(starts.ends.items()):
            print(f"{times:5} {end}")
        print(f"{count} trials, {len(failed)} wrong; the slowest end took {starts.slowest_s:.1f} s", flush=True)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns how many trials were wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--spark", action="store_true", help="on Spark, local[2]")
    parser.add_argument("--ways", default="run,python,timeout run,timeout python", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--longest", type=float, default=None, help="the latest moment, in seconds")
    options = parser.parse_args(arguments)
    # in the background of a shell it may be ignored, and what is started here would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    longest_s = options.longest or (12.0 if options.spark else 6.0)
    with tempfile.TemporaryDirectory(prefix="signals-") as folder:
        print(f"seed {seed}", flush=True)
        ways = tuple(options.ways.split(","))
        return len(tried(Path(folder), options.trials, seed, spark=options.spark, ways=ways, longest_s=longest_s))


if __name__ == "__main__":
    sys.exit(min(main(), 100))
