"""SIGTERM and SIGINT end a job that a program waits for, after the running epoch.

Rule: a signal asks, it does not tear down. The epoch that runs is finished and committed, ``execute`` returns as for a
job that was cancelled, and the program goes on (and so exits with 0 unless it chooses otherwise). Who cannot wait sends
SIGINT a second time: KeyboardInterrupt, in the midst of the epoch, which is replayed when the job is started again.

PySpark keeps the JVM from seeing the terminal's SIGINT, and flinkish's launcher makes the Python driver the process
that is signalled. A SIGTERM to the whole process group reaches the JVM too and ends the job like kill -9 does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

_STDERR = 2


class Stoppable(Protocol):
    """What can be asked to end: a `JobRun`."""

    name: str

    def request_stop(self) -> None:
        """End after the running epoch."""


@contextmanager
def stop_on_signals(run: Stoppable) -> Iterator[None]:
    """Within the block SIGTERM and SIGINT ask ``run`` to stop; afterwards the handlers are those of before.

    Python gives signals to the main thread only: in any other thread nothing is changed.

    Raises:
        KeyboardInterrupt: at the second SIGINT.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = _Handler(run)
    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: set by something other than Python, which Python cannot put back
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class _Handler:
    """Counts interrupts."""

    def __init__(self, run: Stoppable) -> None:
        self._run = run
        self._interrupts = 0
        self._announced = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
        if not self._announced:
            self._announced = True
            name = signal.Signals(number).name
            _say(f"\nflinkish: {name}: job '{self._run.name}' ends after the running epoch (Ctrl-C again: at once)\n")
        self._run.request_stop()


def _say(text: str) -> None:
    # not sys.stderr: the signal may have come in the midst of a write to it, and buffers cannot be entered twice
    with suppress(OSError):
        os.write(_STDERR, text.encode())
