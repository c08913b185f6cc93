"""A worker closes what an attempt has open, and nothing else, when the attempt is over or the worker ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkish.runtime.task.open_functions import AttemptFiles
from tests.support import holding_worker
from tests.support.processes import wait_until

TIMEOUT_S = 60
VERSION, OTHER = "0-0badcafe", "9-00000000"


class Holding:
    """A process of `holding_worker`, and the files of its two attempts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = AttemptFiles(str(folder / "query"), VERSION)
        self.attempt.begin()
        self.other = AttemptFiles(str(folder / "query"), OTHER)
        # `begin` deletes the files of other attempts, since a query has one
        (folder / "query/open" / f"attempt-{OTHER}.json").write_text("{}")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, what: str) -> None:
        """Start it, and wait until it does what it is to do."""
        arguments = [str(self.folder / "query"), VERSION, str(self.folder), what]
        self.process = subprocess.Popen([sys.executable, holding_worker.__file__, *arguments])
        wait_until((self.folder / ("at-work" if what.startswith("works") else "ready")).exists, TIMEOUT_S, "it begins")

    def has(self, *names: str) -> bool:
        return all((self.folder / name).exists() for name in names)


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Holding]:
    made = Holding(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


@pytest.mark.parametrize("what", ["idle", "close-raises"])
def test_a_worker_that_does_nothing_closes_what_is_over_and_goes_on(holding: Holding, what: str) -> None:
    holding.start(what)
    assert holding.attempt.end(TIMEOUT_S) == []
    assert holding.has(f"closed-{VERSION}") == (what == "idle")
    assert holding.process is not None and holding.process.poll() is None
    assert not holding.has(f"closed-{OTHER}")
    assert holding.other.end(TIMEOUT_S) == [] and holding.has(f"closed-{OTHER}")


def test_a_call_for_the_attempt_that_is_over_is_interrupted_and_everything_is_closed(holding: Holding) -> None:
    holding.start("works")
    assert holding.attempt.end(TIMEOUT_S) == []
    assert holding.process is not None and holding.process.wait(TIMEOUT_S) == 1
    assert holding.has("cancelled", f"closed-{VERSION}", f"closed-{OTHER}")


def test_a_call_for_another_attempt_is_not_interrupted_and_what_is_over_is_closed_behind_it(holding: Holding) -> None:
    holding.start("works-for-another")
    (open_worker,) = holding.attempt.end(0.5)
    assert holding.process is not None and open_worker.pid == holding.process.pid
    assert not holding.has(f"closed-{VERSION}")
    (holding.folder / "go-on").touch()
    assert holding.attempt.end(TIMEOUT_S) == []
    assert holding.has(f"closed-{VERSION}") and not holding.has("cancelled")


def _nothing(pid: int) -> None:
    pass


def _hang_up(pid: int) -> None:
    os.kill(pid, signal.SIGHUP)


@pytest.mark.parametrize(("what", "then"), [("ends", _nothing), ("works", _hang_up)])
def test_a_worker_that_ends_in_order_closes_everything_first(
    holding: Holding, what: str, then: Callable[[int], None]
) -> None:
    holding.start(what)
    assert holding.process is not None
    then(holding.process.pid)
    holding.process.wait(TIMEOUT_S)
    assert holding.has(f"closed-{VERSION}", f"closed-{OTHER}")


def test_a_worker_whose_function_does_not_close_is_killed_after_the_timeout(holding: Holding) -> None:
    holding.start("close-hangs")
    assert holding.attempt.end(TIMEOUT_S) == []
    assert holding.has("hangs")
    assert holding.process is not None and holding.process.wait(TIMEOUT_S) == -signal.SIGKILL


def test_a_worker_that_was_killed_is_not_waited_for(holding: Holding) -> None:
    holding.start("idle")
    assert holding.process is not None
    holding.process.kill()
    assert holding.attempt.end(TIMEOUT_S) == []
    assert not holding.has(f"closed-{VERSION}")


def test_an_attempt_is_over_only_when_its_file_is_known_to_be_missing(tmp_path: Path) -> None:
    files = AttemptFiles(str(tmp_path), VERSION)
    assert files.is_over()
    files.begin()
    assert not files.is_over()
    assert AttemptFiles(str(tmp_path), "1-0badcafe").is_over(), "another attempt runs"
    (tmp_path / "loop").symlink_to("loop")
    assert not AttemptFiles(str(tmp_path / "loop"), VERSION).is_over(), "storage fails"
