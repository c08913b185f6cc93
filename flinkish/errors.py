"""Every exception flinkish raises, typed by who must act.

The restart strategy (and the exit code) decides by these classes, never by the text of a message:

==========================  ===============================  ==========================================
class                       who must act                     worth a retry (``retryable``)
==========================  ===============================  ==========================================
:class:`ProgramError`       the author of the job            no; but :class:`UserCodeError` yes, as in
                                                             Flink: what user code raised may be a
                                                             server that was away
:class:`OperationError`     the operator of the cluster      yes: it may be mended meanwhile; but not
                                                             what only another start can mend
                                                             (:class:`FinalOperationError`)
:class:`RetryableError`     nobody; it may pass by itself    yes
:class:`InternalError`      the makers of flinkish           no
==========================  ===============================  ==========================================

One formula for the text: *what happened, where, what was expected, what to do*.
"""

from __future__ import annotations

from typing import ClassVar


class FlinkishError(Exception):
    """Base of all. The parts of the message are attributes, so that tools need not parse the text.

    >>> str(ProgramError("the key is NaN", where="operator 'a'", expected="a key equal to itself", hint="filter first"))
    "the key is NaN [operator 'a']; expected a key equal to itself; filter first"
    """

    #: whether the same job, started again as it is, may get further
    retryable: ClassVar[bool] = False
    #: whether only another process can do so: what this one runs on is gone
    needs_new_driver: ClassVar[bool] = False

    #: the task that it happened in, as Flink writes it: ``Map -> Sink (1/2)``; empty outside of tasks
    task: str = ""
    #: the epoch that it happened in
    epoch: int | None = None
    #: executor, host, Spark's stage and partition of that task
    place: str = ""
    #: what user functions of that task have logged in that epoch (`flinkish.runtime.task_log`); not in the text
    log: tuple[tuple[float, int, str, str], ...] = ()
    #: the last events of the job that failed with it, a line each; not in the text
    story: str = ""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.hint = hint
        super().__init__(what, where, expected, hint)

    def __str__(self) -> str:
        return self.message

    @property
    def message(self) -> str:
        """What happened, where, what was expected and what to do, in one line."""
        text = self.what
        if self.where:
            text += f" [{self.where}]"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.hint:
            text += f"; {self.hint}"
        return text

    def _render_traceback_(self) -> list[str]:
        """IPython and notebooks show this, where nobody catches the error."""
        from flinkish.error_display import text_of

        return text_of(self, self.__traceback__).splitlines()

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments do not survive the default pickling, and errors travel from workers to the driver
        return (_rebuild, (type(self), self.what, self.where, self.expected, self.hint, self.__dict__))


def _rebuild(
    cls: type[FlinkishError], what: str, where: str, expected: str, hint: str, attributes: dict[str, object]
) -> FlinkishError:
    error = cls.__new__(cls)
    FlinkishError.__init__(error, what, where=where, expected=expected, hint=hint)
    error.__dict__.update(attributes)
    return error


class ProgramError(FlinkishError):
    """The job's program is wrong; its author must change it."""


class UserCodeError(ProgramError):
    """A function of the user raised. ``user_traceback``, of user code alone, comes first in the text."""

    retryable = True

    def __init__(self, what: str, *, user_traceback: str, where: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        return f"{self.user_traceback.rstrip()}\n\n{super().__str__()}"


class ErrorBudgetError(UserCodeError):
    """More calls of a function have failed than its ``on_error`` allows. ``user_traceback``: of the last failure."""

    retryable = False


class ArgumentTypeError(ProgramError, TypeError):
    """A method was given an argument of another type than it takes. A TypeError, too, as PyFlink raises there."""


class ArgumentValueError(ProgramError, ValueError):
    """A method was given an argument whose value cannot be. A ValueError, too, as PyFlink raises there."""


class UnsupportedOperationError(ProgramError):
    """A stream inherits the method from DataStream, but is no operator's output that the method could work on."""


class UnserializableFunctionError(ProgramError):
    """A function captures something that cannot travel to a worker."""


class InvalidKeyError(ProgramError):
    """A key that cannot be a key: missing, NaN, or of a type whose equality differs between processes."""


class TypeMismatchError(ProgramError):
    """A value does not fit the type that the program declares."""


class ConfigurationError(ProgramError):
    """An unknown key or a value that cannot be read as the key's type."""


class DuplicateUidError(ProgramError):
    """Two operators of one job carry the same uid."""


class MalformedRecordError(ProgramError):
    """An input record does not have the declared format."""


class StoredClassError(ProgramError):
    """Stored values are instances of a class that the program does not have, or that it could not find again."""


class StateAccessError(ProgramError):
    """State or timers used where there is no key, or the same state name declared twice with different kinds."""


class OperationError(FlinkishError):
    """The environment must be mended by its operator before the same job can go on."""

    retryable = True


class FinalOperationError(OperationError):
    """The operator must act, and start the job anew: waiting does not help."""

    retryable = False


class IncompatibleJobError(FinalOperationError):
    """The program's stateful structure differs from the one that wrote the job directory."""


class FencedError(FinalOperationError):
    """Another driver owns the job directory."""


class ConnectionFailedError(OperationError, ConnectionError):
    """An external system (Kafka, database, file system) cannot be reached."""


class EnvironmentVersionError(FinalOperationError):
    """Python, Java or a package has a version that cannot work."""


class SavepointError(FinalOperationError):
    """A savepoint cannot be written or read."""


class UnsafeStateError(FinalOperationError):
    """Stored data names a function or class that is no data. It is not flinkish that has written it."""


class RetryableError(FlinkishError):
    """A failure that can go away by itself."""

    retryable = True


class SparkLostError(RetryableError):
    """The Spark session has gone: its JVM or its server has died, or it was stopped. A new driver can go on."""

    needs_new_driver = True


class CheckpointError(RetryableError):
    """More checkpoints in a row have failed than the job tolerates."""


class CorruptStateError(RetryableError):
    """Stored state cannot be read or decoded; the last checkpoint may still be good. ``file``: the one that is damaged,
    if it is known."""

    file: str = ""


class MissingFileError(CorruptStateError):
    """A file that stored state refers to is not there any more. ``file``: its path."""


class InternalError(FlinkishError):
    """An invariant of flinkish is broken; please report it."""


class IllegalTransitionError(InternalError):
    """A job, execution or checkpoint was to go to a state that may not follow the one it is in. ``story``: its life."""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "", story: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.story = story
