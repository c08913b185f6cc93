"""The exceptions that flinkish raises. Their classes say who must act.

The restart strategy and the exit code depend on these classes, never on the text of a message:

==========================  ===============================  ==========================================
class                       who must act                     worth a restart (``retryable``)
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

All messages have the same form: *what happened, where, what was expected, what to do*. They travel from worker to
driver, into logs and into the history, and may quote records of any size and with any characters: long ones lose their
middle (`shortened`), and what would end a line or steer a terminal is written as an escape sequence (`escaped`).
"""

from __future__ import annotations

import re
import sys
from typing import ClassVar

#: The most characters that a message tells of what happened.
MAX_TEXT = 8_000

#: The most characters of a traceback of user code.
MAX_TRACEBACK = 16_000

#: The files of Python and of installed packages.
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|^<frozen ")

#: The characters that end a line, steer a terminal, change the order in which text is shown, or have no UTF-8. A tab is
#: none of them.
_CONTROLS = re.compile(r"[\x00-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r"}


def escaped(text: str) -> str:
    """The text in one line, with control characters as Python's escape sequences. Text that is quoted in a message, a
    log or the history cannot look like another line of it then, nor change what a terminal shows. Escaping twice is the
    same as once.

    >>> escaped("a\\n2026-01-01 ERROR \\x1b[2J \\u202e")
    'a\\\\n2026-01-01 ERROR \\\\x1b[2J \\\\u202e'
    """
    return _CONTROLS.sub(_sequence, text)


def _sequence(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def indented(text: str) -> str:
    """Text of several lines, whose lines stay lines: each is `escaped`, and all but the first are indented, so that
    none can be taken for the beginning of an entry of a log.

    >>> indented("lost:\\n2026-01-01 ERROR fake")
    'lost:\\n    2026-01-01 ERROR fake'
    """
    return "\n    ".join(map(escaped, text.split("\n")))


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """The text; if it has more characters than ``limit``, only its beginning and its end.

    >>> shortened("a" * 50 + "b" * 50, 70)
    'aaaaa ... 90 characters left out ... bbbbb'
    """
    if len(text) <= limit:
        return text
    kept = limit // 2 - 30
    return f"{text[:kept]} ... {len(text) - 2 * kept:,} characters left out ... {text[-kept:]}"


#: Shown in place of what may be a secret, as in Flink.
HIDDEN = "******"

#: Words that name secrets, within a key (the list is that of Flink's GlobalConfiguration, and `pwd`).
_SECRETS = (
    "passw(?:or)?d|pwd|passphrase|secret|fs\\.azure\\.account\\.key|api-?key|auth-params|service-key|token|basic-auth|"
    "jaas\\.config|http-headers"
)
_SECRET_KEY = re.compile(_SECRETS, re.IGNORECASE)
# the user of a URL ends at the first colon, and the password at the last @, since it may contain any character
_URL_PASSWORD = re.compile(r"(://[^\s/@:?'\"]{0,256}):[^\s'\"]{1,512}@")
# after a colon and a blank only behind a quote or a password, because "invalid token: x" is no assignment
_ASSIGNED = r"(?:\\?['\"]\s?:|\\?['\"]?\s?=|\s?(?<=pwd|ord|swd):|(?=:\S):)\s?"
# a JAAS configuration consists of several words; other values are quoted, or end at a blank, a quote or `&`
_VALUE = (
    r"(?:(?<=config=)[^;\n]+;?|(?<=config: )[^;\n]+;?|\\?\"[^\"\n]*\"|\\?'[^'\n]*'|"
    r"[^\s&\"']+?(?=[\])},;.]{0,8}(?:[\s&\"']|$)))"
)
_ASSIGNMENT = re.compile(rf"((?:{_SECRETS})[\w.-]{{0,64}}{_ASSIGNED})(?!\*{{6}}){_VALUE}", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether the values of a setting of this name may not be shown.

    >>> is_secret("fs.s3a.Secret.key"), is_secret("pipeline.name")
    (True, False)
    """
    return _SECRET_KEY.search(key) is not None


def redact(text: str) -> str:
    """The text without what may be a secret: passwords in URLs and values that are assigned to words of `is_secret`.
    Every text that leaves the process, in errors, logs, plans and the history, goes through this function. In doubt it
    hides too much.

    >>> redact("postgresql://me:a/b?c@db/shop?PASSWORD=x&ssl=1 refused {'token': 'y', 'n': 1}")
    "postgresql://me:******@db/shop?PASSWORD=******&ssl=1 refused {'token': ******, 'n': 1}"
    """
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    if "=" in text or ":" in text:
        text = _ASSIGNMENT.sub(rf"\1{HIDDEN}", text)
    return text


def _redacted_traceback(text: str) -> str:
    """`redact` for a traceback: the marks below a line that has changed would mark something else, and are left out."""
    lines, changed = text.split("\n"), redact(text).split("\n")
    if lines == changed or len(lines) != len(changed):
        return "\n".join(changed)
    before = zip(["", *lines], ["", *changed])
    return "\n".join(new for new, (old, shown) in zip(changed, before) if old == shown or new.strip(" ~^"))


def message_of(error: BaseException) -> str:
    """What an exception says, in one line. Its class may be the user's: the text may be long, and making it may
    fail."""
    try:
        return escaped(shortened(redact(str(error))))
    except Exception as failure:
        return f"<its text cannot be shown: __str__ or __repr__ raised {type(failure).__name__}>"


def failures_of_user_code() -> tuple[type[BaseException], ...]:
    """The exceptions by which user code fails, for an ``except`` clause, which computes them only if it is reached.

    Not all are an Exception: user code may call ``sys.exit``, or cancel itself. KeyboardInterrupt is no failure:
    somebody ends the process.
    """
    # whoever raises it has imported it
    asyncio = sys.modules.get("asyncio")
    cancelled: tuple[type[BaseException], ...] = () if asyncio is None else (asyncio.CancelledError,)
    return (Exception, SystemExit, GeneratorExit, *cancelled)


class FlinkishError(Exception):
    """Base class of all exceptions of flinkish. The parts of the message are attributes, so that tools need not parse
    the text.

    >>> str(ProgramError("the key is NaN", where="operator 'a'", expected="a key equal to itself", hint="filter first"))
    "the key is NaN [operator 'a']; expected a key equal to itself; filter first"
    """

    #: whether the same job may get further if it is started again unchanged
    retryable: ClassVar[bool] = False
    #: whether the retry needs a new driver process, because the Spark session of this one is gone
    needs_new_driver: ClassVar[bool] = False

    #: the task in which the error happened, written as in Flink: ``Map -> Sink (1/2)``; empty outside of tasks
    task: str = ""
    #: the epoch in which the error happened; None outside of epochs
    epoch: int | None = None
    #: the executor, the host and Spark's stage and partition of that task
    place: str = ""
    #: what the user functions of that task logged in that epoch (`flinkish.runtime.task_log`); not part of the message
    log: tuple[tuple[float, int, str, str], ...] = ()
    #: the last events of the job that failed with this error, one per line; not part of the message
    story: str = ""
    #: lines that are shown below the message, such as a table
    details: str = ""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "") -> None:
        self.what = what = escaped(shortened(redact(what)))
        self.where = where = redact(where)
        self.expected = expected = redact(expected)
        self.hint = hint = redact(hint)
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
        return escaped(text)

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython and notebooks show if the error is not caught."""
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
    """A function of the user raised an exception. ``user_traceback`` holds the frames of user code only; the text of
    the error begins with it."""

    retryable = True

    def __init__(self, what: str, *, user_traceback: str, where: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.user_traceback = shortened(_redacted_traceback(user_traceback), MAX_TRACEBACK)

    def __str__(self) -> str:
        return f"{self.user_traceback.rstrip()}\n\n{super().__str__()}"


class ErrorBudgetError(UserCodeError):
    """More calls of a function have failed than its ``on_error`` allows. ``user_traceback`` is that of the last
    failure."""

    retryable = False


class ArgumentTypeError(ProgramError, TypeError):
    """An argument of a method has a type that the method does not take. Also a TypeError, which PyFlink raises in these
    cases."""


class ArgumentValueError(ProgramError, ValueError):
    """An argument of a method has a value that is not allowed. Also a ValueError, which PyFlink raises in these
    cases."""


class NotKeyedError(ProgramError, AttributeError):
    """A method that only keyed streams have is called on a stream without keys. Also an AttributeError, which PyFlink
    raises."""


class UnsupportedOperationError(ProgramError):
    """What PyFlink has and flinkish does not is used; or a stream inherits a method from DataStream, but is not the
    output of an operator that the method could change."""


class UnserializableFunctionError(ProgramError):
    """A function refers to an object that cannot be serialized and sent to a worker process."""


class InvalidKeyError(ProgramError):
    """A key is not usable: it is missing, NaN, or of a type whose equality differs between processes."""


class TypeMismatchError(ProgramError):
    """A value does not fit the type that the program declares. ``value`` is the text by which the message quotes it,
    ``position`` its number in its batch; neither if they are not known."""

    value: str = ""
    position: int | None = None


class ConfigurationError(ProgramError):
    """A configuration key is unknown, or a value cannot be read as the type of its key."""


class DuplicateUidError(ProgramError):
    """Two operators of one job have the same uid."""


class MalformedRecordError(ProgramError):
    """An input record does not have the declared format."""


class StoredClassError(ProgramError):
    """Stored values are instances of a class that the program does not have, or a value cannot be stored because it
    could not be restored again."""


class StateAccessError(ProgramError):
    """State or timers are used where there is no key, or one state name is declared twice with different kinds of
    state."""


class OperationError(FlinkishError):
    """The operator of the cluster must repair the environment before the same job can go on."""

    retryable = True


class FinalOperationError(OperationError):
    """The operator of the cluster must act and then start the job again: an automatic restart does not help."""

    retryable = False


class IncompatibleJobError(FinalOperationError):
    """The stateful operators of the program do not match those of the program that wrote the job directory."""


class FencedError(FinalOperationError):
    """Another driver owns the job directory."""


class JobDirectoryError(FinalOperationError):
    """The job directory cannot be made, or this user may not write it."""


class ConnectionFailedError(OperationError, ConnectionError):
    """An external system (Kafka, a database, a file system) cannot be reached."""


class EnvironmentVersionError(FinalOperationError):
    """Python, Java or a package has a version that flinkish does not work with."""


class SavepointError(FinalOperationError):
    """A savepoint cannot be written or read."""


class UnsafeStateError(FinalOperationError):
    """Stored data refers to something that is neither data nor a class of the program, so flinkish did not write it."""


class RetryableError(FlinkishError):
    """A failure that may not happen again when the job is restarted."""

    retryable = True


class SparkLostError(RetryableError):
    """The Spark session is gone: its JVM or its server has died, or it was stopped. A new driver can continue the
    job."""

    needs_new_driver = True


class EpochTimeoutError(RetryableError):
    """An epoch has taken longer than it may and was given up; a restart plans it anew, with the limits of then."""


class CheckpointError(RetryableError):
    """More checkpoints in a row have failed than the job tolerates."""


class CorruptStateError(RetryableError):
    """Stored state cannot be read or decoded; the last checkpoint may still be intact. ``file`` is the path of the
    damaged file, or empty if it is not known."""

    file: str = ""


class MissingFileError(CorruptStateError):
    """A file that stored state refers to does not exist any more. ``file`` is its path."""


class InternalError(FlinkishError):
    """An invariant of flinkish is violated; please report it."""


class IllegalTransitionError(InternalError):
    """A job, execution, task or checkpoint was told to enter a state that may not follow its current one. ``story``
    lists the last events of its life, if they are known."""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "", story: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.story = story
