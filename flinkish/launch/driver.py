"""The driver: ``python -m flinkish.launch.driver PROGRAM.py ...`` runs a program as Python does, and exits with a code
of `flinkish.exit_codes`.

Rule: the program cannot tell that it was started from here. It is ``__main__`` (so that its functions are pickled by
value), its folder is the first entry of ``sys.path``, ``sys.argv`` begins with its path, and tracebacks begin in it. A
code that it passes to ``sys.exit`` is the exit code.

A program that is run as ``__main__`` in another way (plain ``python``, spark-submit in cluster mode) exits with the
same codes after an error (`flinkish.error_display`) and after SIGTERM and Ctrl-C (`flinkish.jobmanager.signals`). But
after ``flinkish stop`` and ``flinkish cancel`` it goes on behind ``execute`` and ends as Python does, with 0; if it
calls ``run_main(main)``, that code is 143 as well.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

from flinkish import error_display
from flinkish.exit_codes import ExitCode, exit_code_of

#: The exit code that a shell reports for a process ended by SIGINT (128 + 2).
_INTERRUPTED = 130

_LIVE_JOBS = "flinkish.jobmanager.signals"


def run_main(main: Callable[[], object]) -> NoReturn:
    """Call the main function of a program, then exit with the code of `flinkish.exit_codes` for its outcome.

    Example::

        if __name__ == "__main__":
            run_main(main)
    """
    error_display.install()
    try:
        main()
    except SystemExit as exit_:
        # `sys.exit(main())` with None or 0 means that the program succeeded, not that its jobs were not stopped
        if exit_.code in (None, 0) and _stopped():
            sys.exit(exit_code_of(None, stopped=True))
        raise
    except BaseException as error:
        error.__traceback__ = _without_own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else exit_code_of(error))
    sys.exit(exit_code_of(None, _stopped()))


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _stopped() -> bool:
    # looked up, not imported: a program without jobs does not need the module
    live_jobs = sys.modules.get(_LIVE_JOBS)
    return live_jobs is not None and bool(live_jobs.stopped_from_outside())


def run_program(path: str, arguments: list[str]) -> NoReturn:
    """Run a Python file as ``__main__``, then exit."""
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # replaces the current directory, which `-m` has put there
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = ModuleType("__main__")
    module.__dict__.update({"__file__": os.path.abspath(path), "__builtins__": builtins})
    # the module is never removed: jobs in other threads and exit handlers look it up after the program's last line
    sys.modules["__main__"] = module
    run_main(lambda: exec(_compiled(os.path.abspath(path)), module.__dict__))


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def main() -> NoReturn:
    """Run the program that the command line names, with the arguments behind it."""
    if len(sys.argv) < 2:
        print("usage: python -m flinkish.launch.driver PROGRAM.py [options]", file=sys.stderr)
        sys.exit(ExitCode.BAD_COMMAND_LINE)
    run_program(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
