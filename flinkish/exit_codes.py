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
77    another driver has taken over the job                                     leave it alone
130   ended at once by a second Ctrl-C (`flinkish.launch.driver`)               nothing: somebody sits before it
143   stopped or cancelled on request from outside (signal, operator)           leave it alone
====  ========================================================================  ===========================

75 is EX_TEMPFAIL of sysexits.h; 143 is the exit code that a shell reports for a process ended by SIGTERM (128 + 15). A
program that calls ``sys.exit`` itself exits with the code that it passes.
"""

from __future__ import annotations

from enum import IntEnum

from flinkish.errors import FencedError, FlinkishError, ProgramError


class ExitCode(IntEnum):
    """The exit codes of a driver; the table in the module's docstring says what each one means."""

    FINISHED = 0
    FAILED = 1
    BAD_COMMAND_LINE = 2
    FAILED_FOR_NOW = 75
    FENCED = 77
    STOPPED = 143


def exit_code_of(failure: BaseException | None, stopped: bool = False) -> ExitCode:
    """The exit code of a program. A failure of user code is retried by the restart strategy only: a supervisor that did
    the same could not be told how often.

    Args:
        failure: the exception that the program ended with; None if it ended without one.
        stopped: whether one of its jobs ended because it was stopped or cancelled from outside.

    >>> exit_code_of(None), exit_code_of(FencedError("another driver")), exit_code_of(KeyError("user"))
    (<ExitCode.FINISHED: 0>, <ExitCode.FENCED: 77>, <ExitCode.FAILED: 1>)
    """
    if failure is None:
        return ExitCode.STOPPED if stopped else ExitCode.FINISHED
    if isinstance(failure, FencedError):
        return ExitCode.FENCED
    if isinstance(failure, FlinkishError) and failure.retryable and not isinstance(failure, ProgramError):
        return ExitCode.FAILED_FOR_NOW
    return ExitCode.FAILED
