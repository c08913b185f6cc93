"""How an error that nobody catches is shown: to the author of the program, and not to that of flinkish.

Rule: the frames of the user's own code, then one line of flinkish's. The frames of flinkish, PySpark and Py4J, the
errors that led to this one and the events of the job are shown if the environment variable FLINKISH_FULL_TRACEBACK is
set (and not ``0``), and for errors that are flinkish's own fault. An exception itself is never changed.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from flinkish.errors import FlinkishError, InternalError, UserCodeError

VARIABLE = "FLINKISH_FULL_TRACEBACK"

#: Top-level packages whose frames say nothing to the author of a program.
_ENGINE = frozenset({"flinkish", "pyspark", "py4j", "concurrent", "contextlib", "threading", "runpy"})


def text_of(error: FlinkishError, trace: TracebackType | None) -> str:
    """What is shown of an error; ``trace``: of its way up to where nobody has caught it."""
    if isinstance(error, InternalError) or os.environ.get(VARIABLE, "0") not in ("", "0"):
        whole = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
        return whole + (f"\n\nWhat had happened:\n{error.story}" if error.story else "")
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, UserCodeError) and error.user_traceback:
        return f"{error.user_traceback.rstrip()}\n\n{name}: {error.message}"
    frames = _user_frames(trace)
    shown = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return f"{''.join(shown)}{name}: {error.message}"


def _user_frames(trace: TracebackType | None) -> traceback.StackSummary:
    frames = (
        (frame, line)
        for frame, line in traceback.walk_tb(trace)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _ENGINE
    )
    return traceback.StackSummary.extract(frames)


def show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """As ``sys.excepthook``: other exceptions than flinkish's are shown as Python shows them."""
    if isinstance(error, FlinkishError):
        print(text_of(error, trace), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def install() -> None:
    """Have Python show uncaught errors so, unless somebody has made it show errors in another way.

    IPython and notebooks need nothing: they ask the error (``FlinkishError._render_traceback_``).
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show_uncaught
