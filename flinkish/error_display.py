"""Shows an uncaught error in the form that helps the author of the program, not the author of flinkish, and ends the
process with the code (`ExitCode`) that tells a supervisor what to do.

Rule: the frames of the program's own code are shown, then flinkish's message, whose lines are lines here. The frames of
libraries, flinkish, PySpark and Py4J, the errors that caused this one and the events of the job are shown only if the
environment variable FLINKISH_FULL_TRACEBACK is set (and not ``0``; ``flinkish run --traceback`` sets it), or if the
error is flinkish's own fault. The exception object itself is never changed.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Mapping
from enum import IntEnum
from types import FrameType, TracebackType

from flinkish.errors import (
    FencedError,
    FlinkishError,
    InternalError,
    JobDirectoryError,
    ProgramError,
    UserCodeError,
    escaped,
    indented,
    redact,
)


class ExitCode(IntEnum):
    """The exit codes of a driver, from which a supervisor knows what to do.

    ====  ========================================================================  ===========================
    code  meaning                                                                   what a supervisor should do
    ====  ========================================================================  ===========================
    0     the program has come to its end; with ``available-now``: all there was    nothing; the next run when due
    1     it failed, and would fail again (bad program, bad configuration,          tell somebody
          incompatible state, a function that raises and that the restart
          strategy does not or no longer restart), as any Python program that
          fails
    2     it was not started: the command line is wrong; or a command for a         tell somebody
          running job could not be carried out: that job goes on
    75    it failed, and may get further if it is started again as it is            start it again
    77    another driver has taken over the job; or its directory cannot be made    leave it alone
          or written by this user, or was deleted under it
    130   ended at once by a second Ctrl-C (`flinkish.launch.driver`)               nothing: somebody sits before it
    143   stopped or cancelled on request from outside (signal, operator)           leave it alone
    ====  ========================================================================  ===========================

    75 is EX_TEMPFAIL of sysexits.h; 143 is the exit code that a shell reports for a process ended by SIGTERM (128 +
    15). A program that calls ``sys.exit`` itself exits with the code that it passes.

    YARN, which starts an application master again that ends with any other code than 0, gets 0 from a driver in cluster
    mode where a supervisor is to leave the job alone (143, and 77 of a job that was taken over). With 1 the application
    has ended for YARN as well (`flinkish.spark.driver_jvm.end_application`).
    """

    FINISHED = 0
    FAILED = 1
    BAD_COMMAND_LINE = 2
    FAILED_FOR_NOW = 75
    FENCED = 77
    STOPPED = 143


#: The environment variable that YARN's application masters have, and the drivers that they start.
OF_APPLICATION_MASTER = "SPARK_YARN_STAGING_DIR"


def exit_code_of(
    failure: BaseException | None, stopped: bool = False, environment: Mapping[str, str] = os.environ
) -> ExitCode:
    """The exit code of a program. A failure of user code is retried by the restart strategy only: a supervisor that did
    the same could not be told how often.

    Args:
        failure: the exception that the program ended with; None if it ended without one.
        stopped: whether one of its jobs ended because it was stopped or cancelled from outside.
        environment: the environment variables of the driver.

    >>> exit_code_of(None), exit_code_of(FencedError("another driver")), exit_code_of(KeyError("user"))
    (<ExitCode.FINISHED: 0>, <ExitCode.FENCED: 77>, <ExitCode.FAILED: 1>)
    """
    if failure is None:
        code = ExitCode.STOPPED if stopped else ExitCode.FINISHED
    elif isinstance(failure, (FencedError, JobDirectoryError)):
        code = ExitCode.FENCED
    elif isinstance(failure, FlinkishError) and failure.retryable and not isinstance(failure, ProgramError):
        code = ExitCode.FAILED_FOR_NOW
    else:
        code = ExitCode.FAILED
    if OF_APPLICATION_MASTER in environment and code in (ExitCode.STOPPED, ExitCode.FENCED):
        return ExitCode.FAILED if isinstance(failure, JobDirectoryError) else ExitCode.FINISHED
    return code


_JVM = "flinkish.spark.driver_jvm"

VARIABLE = "FLINKISH_FULL_TRACEBACK"

#: Python's words between an error and the one that follows from it, or that came while it was handled.
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n"

#: The top-level packages whose frames tell the author of a program nothing.
_ENGINE = frozenset(
    {"flinkish", "pyspark", "py4j", "concurrent", "contextlib", "threading", "runpy", "IPython", "ipykernel"}
)

#: A frame of a traceback as text, with its line and the marks below it.
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?!\d).*\n(?:    .*\n)*', re.MULTILINE)

#: The files of Python and of installed packages.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|^<frozen ")
#: What stands for a secret in a line, and the marks below a line, which then would mark something else.
_MASKED = "******"
_MARKS = re.compile(r"    [ ~^]+\Z")

#: whether `show_uncaught` was called
_shown = False


def text_of(error: FlinkishError, trace: TracebackType | None) -> str:
    """The text that is shown for an uncaught error.

    Args:
        error: the error.
        trace: the traceback with which the error arrived uncaught; None if there is none.
    """
    if isinstance(error, InternalError) or _shows_all():
        whole = _chain(error, trace)
        whole += f"\n\nWhat had happened:\n{error.story}" if error.story else ""
        return redact("\n".join(map(escaped, whole.split("\n"))))
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, UserCodeError) and error.user_traceback:
        return f"{own_frames(error.user_traceback).rstrip()}\n\n{name}: {_lines_of(error)}"
    frames = _user_frames(trace)
    shown = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return f"{''.join(shown)}{name}: {_lines_of(error)}"


def _shows_all() -> bool:
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def _lines_of(error: FlinkishError) -> str:
    """The message of an error, with the lines of what it quotes as indented lines. Those of an exception of user code
    are in its traceback: the message has the first one."""
    what = error.what.replace("\\n", "\n    ")
    if isinstance(error, UserCodeError) and error.user_traceback and "\n" in what:
        what = what.partition("\n")[0] + " ..."
    message = error.message.replace(error.what, what, 1)
    return f"{message}\n    {indented(error.details)}" if error.details else message


def with_sources(trace: str) -> str:
    """A traceback as text with the lines of files that only this process knows, such as the cells of a notebook."""

    def with_line(frame: re.Match[str]) -> str:
        line = "" if "\n    " in frame[0] else linecache.getline(frame["file"], int(frame["line"])).strip()
        return f"{frame[0]}    {line}\n" if line else frame[0]

    return _FRAME.sub(with_line, trace)


def _without_marks_of_secrets(trace: str) -> str:
    lines = trace.split("\n")
    kept = [
        line
        for before, line in zip(["", *lines], lines)
        if not (_MASKED in before and before.startswith("    ") and _MARKS.match(line))
    ]
    return "\n".join(kept)


def own_frames(trace: str) -> str:
    """A traceback as text, without the frames of Python and of installed packages, unless there are no others or all
    are to be shown. The last line says how many are left out."""
    trace = _without_marks_of_secrets(trace)
    frames = list(_FRAME.finditer(trace))
    others = [frame for frame in frames if _LIBRARY.search(frame["file"])]
    if not others or len(others) == len(frames) or _shows_all():
        return trace
    for frame in reversed(others):
        trace = trace[: frame.start()] + trace[frame.end() :]
    end = sum(len(frame[0]) for frame in frames if frame not in others) + frames[0].start()
    left_out = f"  ... and {len(others)} frame{'s'[: len(others) != 1]} of libraries (flinkish run --traceback)\n"
    return trace[:end] + left_out + trace[end:]


def _chain(error: BaseException, trace: TracebackType | None) -> str:
    """What Python shows of an error and of those that led to it; but only its own lines begin at the margin, and no
    line of a message, which may quote a record."""
    parts: list[str] = []
    seen: set[int] = set()

    def add(one: BaseException, trace: TracebackType | None) -> None:
        seen.add(id(one))
        before = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        for inner in (before, *getattr(one, "exceptions", ())):
            if inner is not None and id(inner) not in seen:
                add(inner, inner.__traceback__)
                parts.append(_CAUSE if inner is one.__cause__ else _CONTEXT)
        frames = traceback.format_tb(trace)
        if frames:
            parts.append("".join(["Traceback (most recent call last):\n", *frames]).rstrip())
        parts.append(indented("".join(traceback.format_exception_only(type(one), one)).rstrip()))

    add(error, trace)
    return "\n".join(parts)


def _user_frames(trace: TracebackType | None) -> traceback.StackSummary:
    frames = ((frame, line) for frame, line in traceback.walk_tb(trace) if not _is_engine(frame))
    return traceback.StackSummary.extract(frames)


def line_of_program() -> str:
    """The line of the program that is running, as a traceback shows it; "" if there is none, as at a prompt."""
    frame = sys._getframe(1)
    while frame is not None and _is_engine(frame):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    code = frame.f_code
    summary = traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
    return redact("".join(traceback.format_list([summary])))


def _is_engine(frame: FrameType) -> bool:
    """Whether a frame is of a package whose frames tell the author of a program nothing. The examples are programs."""
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _ENGINE and not name.startswith("flinkish.examples.")


def show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error to standard error, and end the process with the error's code of `flinkish.error_display`.

    Has the signature of ``sys.excepthook``: a SystemExit that the hook raises is for Python the end of the program.
    Exceptions that are not flinkish's are shown as Python shows them. Nothing ends at an interactive prompt.
    """
    global _shown
    _shown = True
    _end_application(error)
    if not isinstance(error, FlinkishError):
        lines = getattr(error, "_render_traceback_", None)
        if isinstance(error, KeyboardInterrupt) and lines is not None:
            return print("\n".join(lines()), file=sys.stderr)
        return sys.__excepthook__(kind, error, trace)
    print(text_of(error, trace), file=sys.stderr)
    if not hasattr(sys, "ps1"):
        sys.exit(exit_code_of(error))


def _end_application(error: BaseException) -> None:
    # looked up, not imported: without the module there is no Spark
    jvm, staging = sys.modules.get(_JVM), os.environ.get(OF_APPLICATION_MASTER)
    if jvm is not None and staging is not None and exit_code_of(error) == ExitCode.FAILED:
        jvm.end_application(redact(f"{type(error).__name__}: {error}"), staging)


def was_shown() -> bool:
    """Whether an uncaught error was shown in this process, by `show_uncaught` or by Python itself."""
    return _shown or getattr(sys, "last_value", None) is not None


def install() -> None:
    """Make `show_uncaught` Python's ``sys.excepthook``, unless another hook has been installed already.

    IPython and notebooks need no hook: they call ``FlinkishError._render_traceback_``.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show_uncaught
