"""``python -m flinkish.launch.driver PROGRAM.py ...``: runs a program as Python does, and exits as `exit_codes` says.

Rule: the program cannot tell that it was started from here. It is ``__main__`` (so that its functions are pickled by
value), its folder is the first on the path, ``sys.argv`` begins with it, and tracebacks begin in it. What it says
itself by ``sys.exit`` is its exit code.

A program that another starter runs as ``__main__`` (plain ``python``, spark-submit in cluster mode) exits as Python
does: 1 after any exception, 0 after a stop. ``run_main(main)`` in it gives it the same codes as here.
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

#: As a shell has it for a process that SIGINT ended.
_INTERRUPTED = 130

_LIVE_JOBS = "flinkish.jobmanager.live_jobs"


def run_main(main: Callable[[], object]) -> NoReturn:
    """Call a program's main function, then exit with the documented code.

    Example::

        if __name__ == "__main__":
            run_main(main)
    """
    error_display.install()
    try:
        main()
    except SystemExit as exit_:
        # `sys.exit(main())` says that all is well, not that nobody has stopped it
        if exit_.code in (None, 0) and _stopped():
            sys.exit(ExitCode.STOPPED)
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
    # looked up, not imported: a program without jobs needs none of it
    live_jobs = sys.modules.get(_LIVE_JOBS)
    return live_jobs is not None and bool(live_jobs.stopped_from_outside())


def run_program(path: str, arguments: list[str]) -> NoReturn:
    """Run a Python file as ``__main__``, then exit."""
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # in place of the current directory, which `-m` has put there
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = ModuleType("__main__")
    module.__dict__.update({"__file__": os.path.abspath(path), "__builtins__": builtins})
    # it stays: jobs that run in threads, and what runs at exit, look for it long after its last line
    sys.modules["__main__"] = module
    run_main(lambda: exec(_compiled(os.path.abspath(path)), module.__dict__))


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def main() -> NoReturn:
    """The command."""
    if len(sys.argv) < 2:
        print("usage: python -m flinkish.launch.driver PROGRAM.py [options]", file=sys.stderr)
        sys.exit(ExitCode.BAD_COMMAND_LINE)
    run_program(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
