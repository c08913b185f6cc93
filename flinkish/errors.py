"""The exceptions that flinkish raises. Their classes say who must act.

Beside a class: who must act, and whether the job is worth a restart; so for all below it that say nothing else::

    FlinkishError
    ├── ProgramError                         the program's author    no restart
    │   ├── UserCodeError                    the program's author    restart
    │   │   └── ErrorBudgetError             the program's author    no restart
    │   ├── ArgumentTypeError · ArgumentValueError · NotKeyedError · UnsupportedOperationError
    │   ├── ConfigurationError · DuplicateUidError · UnserializableFunctionError
    │   └── InvalidKeyError · TypeMismatchError · MalformedRecordError · StateAccessError · StoredClassError
    ├── OperationError                       the operator            restart
    │   ├── ConnectionFailedError · NoResourceAvailableError · SimulatedCrash
    │   └── FinalOperationError              the operator            no restart
    │       ├── EnvironmentVersionError · JobDirectoryError · FencedError
    │       └── IncompatibleJobError · SavepointError · UnsafeStateError
    ├── RetryableError                       the platform            restart
    │   ├── SparkLostError · EpochTimeoutError · CheckpointError
    │   └── CorruptStateError
    │       └── MissingFileError
    └── InternalError                        us                      no restart
        └── IllegalTransitionError

What user code raises is retried, as in Flink: a server may have been away. Restart strategies and exit codes depend on
the class, never on the text. A message says *what happened, where, what was expected, what to do*. It travels to the
driver, into logs and the history, and may quote any record: so it is `shortened`, `escaped` and has no secrets.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import ClassVar

#: The most characters that a message tells of what happened.
MAX_TEXT = 8_000

#: The most characters of a traceback of user code.
MAX_TRACEBACK = 16_000

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

#: Words that name secrets, within a key in lower case; the only list. They are those of Flink's GlobalConfiguration, of
#: Spark (spark.redaction.regex), of Hadoop (hadoop.security.sensitive-config-keys; not the classes of
#: ``credentials.provider``), and what else keys of Kafka, S3, Azure and URLs are made of.
_SECRET_KEY = re.compile(
    r"passw(?:or)?d|pwd|passphrase|[._-]pass(?![a-z0-9])|secret|token|api[._-]?key|service-key|auth-params|"
    r"basic[._-]auth|jaas\.config|oauthbearer|authorization|cookie|http-headers|credential(?!s?[._-]?provider)|"
    r"access[._-]?key|private[._-]?key|account[._-]?key|sharedaccesssignature|sas(?<![a-z0-9]sas)(?![a-z0-9])|"
    r"encryption[._-]?(?:key|context|algorithm)|sensitive-config-keys|keystore[._-]?key|key[._-]pem|"
    r"sig(?<![a-z0-9]sig)(?![a-z0-9])|signature(?<=[._-]signature)(?![a-z0-9])"
)
#: Names of headers, whose values may be several words.
_SECRET_HEADER = re.compile(r"(?:proxy-)?authorization|cookie|set-cookie|.*http-headers")
#: The name of a key. Words of other texts look the same.
_KEY = re.compile(r"[\w.-]+")
#: What stands between a key and its value.
_ASSIGNED = re.compile(r"(?:\\{0,8}['\"])?[ \t]*(?P<sign>=>|:=|=(?!=[ \t])|:)[ \t]*")
#: What stands between the parts of a pair of quoted texts, and what stands before it.
_IN_PAIR = re.compile(r"\\{0,8}['\"],[ \t]*(?=[bru]{0,2}\\{0,8}['\"])", re.IGNORECASE)
_BEFORE_PAIR = re.compile(r"[(\[][ \t]{0,8}[bru]{0,2}\\{0,8}['\"]\Z", re.IGNORECASE)
#: What stands between an option of a command line and its value.
_BEHIND_OPTION = re.compile(r"[ \t]+(?!--)")
#: Words before a colon that are no key: "invalid token", the class of an exception, a file of source code.
_NO_KEY = re.compile(
    r"(?:invalid|unexpected|unrecognized|unknown|illegal|bad|next|unterminated)[ _-]?token\Z|"
    r"(?:error|exception|warning|failed|invalidaccesskeyid)\Z|\.(?:py|java|scala|kt|c|cc|cpp|h|rs|go)\Z"
)
#: What a column of SQL is declared as, in a schema that an error shows: ``[cookie: STRING, n: INT]``.
_TYPE = re.compile(
    r"(?:BOOLEAN|(?:TINY|SMALL|BIG)?INT|FLOAT|DOUBLE|DECIMAL|(?:VAR)?CHAR|STRING|(?:VAR)?BINARY|BYTES|DATE|"
    r"TIME(?:STAMP(?:_LTZ)?)?|ARRAY|MAP|MULTISET|ROW)(?=\(\d|[<,\])>]| NOT NULL)"
)
#: What stands behind the end of a value, but not behind a quote within it.
_BEHIND = r"[\s,;:)\]}>&]|\.(?:\s|\Z)|\Z"
#: A value in quotes. A quote that is neither doubled nor escaped ends it if such a thing stands behind it, or else the
#: end of the line.
_TEXT = rf"'(?:[^'\\\n]|\\.|''|'(?![\"\\]|{_BEHIND}))*'?|\"(?:[^\"\\\n]|\\.|\"\"|\"(?!['\\]|{_BEHIND}))*\"?"
_QUOTED = re.compile(
    rf"[bru]{{0,2}}(?:{_TEXT}|"
    r"(?P<opened>\\{1,8}['\"])(?:(?!(?<!\\)(?P=opened))[^\n])*(?:(?P=opened))?)",
    re.IGNORECASE,
)
#: A value without quotes ends at a blank, at a quote that ends a text around it, and at the next part of a URL.
_PLAIN = re.compile(rf"(?:[^\s&\"']|&(?![\w.-]{{1,64}}=)|[\"'](?!{_BEHIND}))+")
#: A JAAS configuration consists of several words, and ends at a semicolon.
_JAAS = re.compile(r"(?:[^;\n\"']|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)+;?")
_REST_OF_LINE = re.compile(r"[^\n]+")
_BRACKET = re.compile(rf"[\[({{\])}}\n]|{_TEXT}")

#: The rest of a URL behind its scheme, up to a blank or a quote that ends a text around it; and the user in it.
_URL = re.compile(r"(?:[^\s'\"]|['\"](?![\s,;:)\]}>]|\Z))*")
_USER = re.compile(r"[^\s/:?#'\"]*")
_HTTP = re.compile(r".*https?://\Z", re.IGNORECASE | re.DOTALL)
_BEARER = re.compile(r"\b(bearer[ \t]{1,8})(?!token\b|auth)[\w.~+/=-]+", re.IGNORECASE)
_KIND = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM = re.compile(rf"-----BEGIN {_KIND}.*?(?:-----END {_KIND}|\Z)", re.DOTALL)


def is_secret(key: str) -> bool:
    """Whether the values of a setting of this name may not be shown.

    >>> is_secret("fs.s3a.Secret.key"), is_secret("pipeline.name")
    (True, False)
    """
    return _SECRET_KEY.search(key.lower()) is not None


def redact(text: str) -> str:
    """The text without what may be a secret: passwords in URLs, private keys in PEM, and values that are assigned to
    words of `is_secret`. What is known to be a secret is not put into texts in the first place; this is the second net,
    through which every text goes that leaves the process, in errors, logs, plans and the history. In doubt it hides too
    much. The time that it takes is linear.

    >>> redact("postgresql://me:a/b?c@db/shop?PASSWORD=x&ssl=1 refused {'token': 'y', 'n': 1}")
    "postgresql://me:******@db/shop?PASSWORD=******&ssl=1 refused {'token': ******, 'n': 1}"
    """
    if "PRIVATE KEY" in text:
        text = _PEM.sub(HIDDEN, text)
    if "://" in text:
        text = _without(text, _secrets_of_urls(text))
    lower = text.lower()
    if "bearer" in lower:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if _SECRET_KEY.search(lower):
        text = _without(text, _assigned_secrets(text))
    return text


def _without(text: str, places: Iterator[tuple[int, int]]) -> str:
    """The text with `HIDDEN` in these places, which are in their order."""
    parts, end = [], 0
    for begin, after in places:
        parts += [text[end:begin], HIDDEN]
        end = after
    return "".join([*parts, text[end:]])


def _secrets_of_urls(text: str) -> Iterator[tuple[int, int]]:
    """Where passwords of URLs are. The user ends at the first colon and the password at the last @, since it may hold
    any character. What stands there alone is a secret in the URLs of HTTP, and a user or a bucket in others."""
    place = text.find("://") + 3
    while place > 2:
        user, end = _end_of(_USER, text, place), _end_of(_URL, text, place)
        at = text.rfind("@", place, end)
        if user < at and text[user] == ":":
            yield user + 1, at
        elif place < (at := text.rfind("@", place, user)) and _HTTP.match(text[max(0, place - 8) : place]):
            yield place, at
        place = text.find("://", end) + 3


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where what the pattern matches at a place ends; the place itself if it matches nothing."""
    found = pattern.match(text, place)
    return place if found is None else found.end()


def _assigned_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where values are that are assigned to secret keys."""
    place = 0
    while (word := _KEY.search(text, place)) is not None:
        place, key = word.end(), word[0].lower()
        header = _SECRET_HEADER.fullmatch(key) is not None
        begin = _begin_of_value(text, word) if is_secret(key) else None
        if begin is None or text.startswith(HIDDEN, begin):
            continue
        end = _end_of_value(text, begin, _JAAS if "jaas.config" in key else _REST_OF_LINE if header else _PLAIN)
        if begin < end:
            yield begin, end
            place = end


def _begin_of_value(text: str, word: re.Match[str]) -> int | None:
    """Where the value begins that is assigned to a word; None if none is."""
    begin, end = word.span()
    found = _ASSIGNED.match(text, end)
    if found is not None:
        says = _NO_KEY.search(text[max(0, begin - 16) : end].lower()) or _TYPE.match(text, found.end())
        return None if says and found["sign"] == ":" else found.end()
    if _BEFORE_PAIR.search(text[max(0, begin - 20) : begin]):
        found = _IN_PAIR.match(text, end)
    elif word[0].startswith("--"):
        found = _BEHIND_OPTION.match(text, end)
    return None if found is None else found.end()


def _end_of_value(text: str, begin: int, plain: re.Pattern[str]) -> int:
    """Where the value ends that begins at a place. ``plain``: what it is if it has neither quotes nor brackets."""
    if (end := _end_of(_QUOTED, text, begin)) > begin:
        return end
    if text[begin : begin + 1] in ("[", "(", "{"):
        begin = _end_of_brackets(text, begin)
        if not text[begin : begin + 1].isalnum():
            return begin
    end = _end_of(plain, text, begin)
    return end if plain is not _PLAIN else begin + len(text[begin:end].rstrip("])},;."))


def _end_of_brackets(text: str, begin: int) -> int:
    """Where the brackets end that are opened at a place; at the end of the line if they are not closed."""
    depth = 0
    for found in _BRACKET.finditer(text, begin):
        depth += (found[0] in ("[", "(", "{")) - (found[0] in ("]", ")", "}"))
        if not depth or found[0] == "\n":
            return found.start() + (not depth)
    return len(text)


def shown(text: str, limit: int = MAX_TEXT) -> str:
    """The text without secrets, and `shortened`. Of a long one only as much is looked at as is shown, and the parts
    next to that, where the key of a secret may stand."""
    if len(text) <= 4 * limit:
        return shortened(redact(text), limit)
    # what is left of the first word of the end may be a part of a secret
    kept, end = limit // 2 - 30, text[-2 * limit :].split(maxsplit=1)
    parts = redact(text[: 2 * limit])[:kept], redact(end[-1] if end else "")[-kept:]
    return f" ... {len(text) - 2 * kept:,} characters left out ... ".join(parts)


def message_of(error: BaseException) -> str:
    """What an exception says, in one line. Its class may be the user's: the text may be long, and making it may
    fail."""
    try:
        return escaped(shown(str(error)))
    except Exception as failure:
        return f"<its text cannot be shown: __str__ or __repr__ raised {type(failure).__name__}>"


def failures_of_user_code() -> tuple[type[BaseException], ...]:
    """The exceptions by which user code fails, for an ``except`` clause, which computes them only if it is reached: not
    all are an Exception, since it may call ``sys.exit`` or cancel itself. After KeyboardInterrupt the process ends."""
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
    #: what the user functions of that task logged in that epoch (`flinkish.runtime.job.log`); not part of the message
    log: tuple[tuple[float, int, str, str], ...] = ()
    #: the last events of the job that failed with this error, and lines that are shown below the message
    story: str = ""
    details: str = ""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "") -> None:
        self.what = what = escaped(shown(what))
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

        return text_of(self, self.__traceback__).split("\n")

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
    """A function of the user raised. The text begins with ``user_traceback``, which has frames of user code only."""

    retryable = True

    def __init__(self, what: str, *, user_traceback: str, where: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.user_traceback = shown(user_traceback, MAX_TRACEBACK)

    def __str__(self) -> str:
        return f"{self.user_traceback.rstrip()}\n\n{super().__str__()}"


class ErrorBudgetError(UserCodeError):
    """More calls of a function have failed than its ``on_error`` allows; ``user_traceback`` is of the last failure."""

    retryable = False


class ArgumentTypeError(ProgramError, TypeError):
    """An argument of a method has a type that it does not take. Also a TypeError, as in PyFlink."""


class ArgumentValueError(ProgramError, ValueError):
    """An argument of a method has a value that is not allowed. Also a ValueError, as in PyFlink."""


class NotKeyedError(ProgramError, AttributeError):
    """A method of keyed streams is called on a stream without keys. Also an AttributeError, as in PyFlink."""


class UnsupportedOperationError(ProgramError):
    """What PyFlink has and flinkish does not is used; or a stream inherits a method from DataStream, but is not the
    output of an operator that the method could change."""


class UnserializableFunctionError(ProgramError):
    """A function refers to an object that cannot be serialized and sent to a worker process."""


class InvalidKeyError(ProgramError):
    """A key is not usable: it is missing, NaN, or of a type whose equality differs between processes."""


class TypeMismatchError(ProgramError):
    """A value does not fit its declared type. The message quotes it as ``value``, number ``position`` of its batch."""

    value, position = "", None  # type: tuple[str, int | None]


class ConfigurationError(ProgramError):
    """A configuration key is unknown, or a value cannot be read as the type of its key."""


class DuplicateUidError(ProgramError):
    """Two operators of one job have the same uid."""


class MalformedRecordError(ProgramError):
    """An input record does not have the declared format."""


class StoredClassError(ProgramError):
    """A stored value is of a class that the program does not have, or a value could not be restored if stored."""


class StateAccessError(ProgramError):
    """State or timers are used where there is no key, or a state is declared twice, as different kinds of state."""


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
    """The job directory cannot be made, this user may not write it, or it was deleted under its driver."""


class ConnectionFailedError(OperationError, ConnectionError):
    """An external system (Kafka, a database, a file system) cannot be reached."""


class NoResourceAvailableError(OperationError):
    """There are no task slots: no executor has come within ``slot.request.timeout``."""


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
    """The Spark session is gone: its JVM or its server has died, or it was stopped. A new driver can go on."""

    needs_new_driver = True


class EpochTimeoutError(RetryableError):
    """An epoch has taken longer than it may and was given up; a restart plans it anew, with the limits of then."""


class CheckpointError(RetryableError):
    """More checkpoints in a row have failed than the job tolerates."""


class CorruptStateError(RetryableError):
    """Stored state cannot be read; the last checkpoint may be intact. ``file``: the damaged file, if it is known."""

    file: str = ""


class MissingFileError(CorruptStateError):
    """A file that stored state refers to does not exist any more. ``file`` is its path."""


class InternalError(FlinkishError):
    """An invariant of flinkish is violated; please report it."""


class IllegalTransitionError(InternalError):
    """Something was told to enter a state that may not follow its own. ``story``: its last events, if known."""

    def __init__(self, what: str, *, where: str = "", expected: str = "", hint: str = "", story: str = "") -> None:
        super().__init__(what, where=where, expected=expected, hint=hint)
        self.story = story
