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
      or written by this user
130   ended at once by a second Ctrl-C (`flinkish.launch.driver`)               nothing: somebody sits before it
143   stopped or cancelled on request from outside (signal, operator)           leave it alone
====  ========================================================================  ===========================

75 is EX_TEMPFAIL of sysexits.h; 143 is the exit code that a shell reports for a process ended by SIGTERM (128 + 15). A
program that calls ``sys.exit`` itself exits with the code that it passes.

YARN, which starts an application master again that ends with any other code than 0, gets 0 from a driver in cluster
mode where a supervisor is to leave the job alone (143, and 77 of a job that was taken over). With 1 the application has
ended for YARN as well (`flinkish.spark.driver_jvm.end_application`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import IntEnum

from flinkish.errors import FencedError, FlinkishError, JobDirectoryError, ProgramError


class ExitCode(IntEnum):
    """The exit codes of a driver; the table in the module's docstring says what each one means."""

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
