"""The driver: ``python -m flinkish.launch.driver PROGRAM.py ...`` runs a program as Python does, and exits with a code
of `flinkish.error_display`; the request of ``flinkish replay`` reaches it in an environment variable.

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
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

from flinkish import error_display
from flinkish.error_display import ExitCode, exit_code_of
from flinkish.errors import ConfigurationError, redact
from flinkish.interpreter import ROOT
from flinkish.storage.sealed import json_as

#: The exit code that a shell reports for a process ended by SIGINT (128 + 2).
_INTERRUPTED = 130

_LIVE_JOBS = "flinkish.jobmanager.signals"
#: The modules that stand between here and a program that is only asked for its plan.
_CALLERS = ("flinkish.cli.info", "flinkish.jobmanager.submitted_program")


def run_main(main: Callable[[], object]) -> NoReturn:
    """Call the main function of a program, then exit with the code of `flinkish.error_display` for its outcome.

    Example::

        if __name__ == "__main__":
            run_main(main)
    """
    error_display.install()
    try:
        # a Ctrl-C that has come since the launcher became this process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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
    while trace is not None and (
        trace.tb_frame.f_code.co_filename == __file__ or trace.tb_frame.f_globals.get("__name__") in _CALLERS
    ):
        trace = trace.tb_next
    return trace


def _stopped() -> bool:
    # looked up, not imported: a program without jobs does not need the module
    live_jobs = sys.modules.get(_LIVE_JOBS)
    return live_jobs is not None and bool(live_jobs.stopped_from_outside())


def run_program(path: str, arguments: list[str]) -> NoReturn:
    """Run a Python file as ``__main__``, then exit."""
    run_main(program_in(path, arguments))


def program_in(path: str, arguments: list[str]) -> Callable[[], None]:
    """The function that runs a Python file as ``__main__``, which this process is made for."""
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # replaces the current directory, which `-m` has put there
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = ModuleType("__main__")
    module.__dict__.update({"__file__": os.path.abspath(path), "__builtins__": builtins})
    # the module is never removed: jobs in other threads and exit handlers look it up after the program's last line
    sys.modules["__main__"] = module
    return lambda: exec(_compiled(os.path.abspath(path)), module.__dict__)


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


#: The environment variable that holds the request as JSON.
VARIABLE = "FLINKISH_REPLAY"

#: The environment variable with the format of the report of a dry run: ``json``, or else text for people.
DRY_RUN_FORMAT = "FLINKISH_DRY_RUN"

#: The number of records that are shown of each input and output of a subtask, unless the request says otherwise.
DEFAULT_LIMIT = 20


@dataclass(frozen=True)
class ReplayRequest:
    """The parameters of one call of ``flinkish replay``, for the program that it starts. They travel in an environment
    variable, so that the program has exactly the settings with which it ran before.

    Args:
        directory: the job directory.
        epoch: the epoch to replay.
        subtask: ``uid/index`` of the only subtask that is shown, and in which breakpoints take effect; "": all.
        pdb: whether the debugger opens where the epoch fails.
        limit: the number of records that are shown of each input and output.
        json: whether the report is printed as JSON.
    """

    directory: str
    epoch: int
    subtask: str = ""
    pdb: bool = False
    limit: int = DEFAULT_LIMIT
    json: bool = False

    def variables(self) -> dict[str, str]:
        """The environment variables for the process that is to carry out the request."""
        return {VARIABLE: json.dumps(asdict(self))}


def replay_command(directory: str, epoch: int) -> str:
    """The command that runs an epoch of this program again; "" if the program is no file, as in a notebook."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program is None or program.startswith(os.path.join(ROOT, "flinkish", "")):
        return ""
    return redact(shlex.join(["flinkish", "replay", directory, "--epoch", str(epoch), program, *sys.argv[1:]]))


def requested_replay(environment: Mapping[str, str] | None = None) -> ReplayRequest | None:
    """The request in ``environment`` (default: that of this process); None if the process is not a replay.

    Raises:
        ConfigurationError: the variable holds something else.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE)
    try:
        return json_as(ReplayRequest, text) if text else None
    except ValueError as error:
        raise ConfigurationError(
            f"{VARIABLE}={text!r:.200} is no request for a replay: {error}",
            where=f"the environment variable {VARIABLE}",
            expected="what `flinkish replay` sets",
            hint="unset it, and use the command `flinkish replay`",
        ) from error
