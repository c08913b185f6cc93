"""What becomes of a record or a timer for which a user function raises: `OnError`, and the `DeadLetter` it may become.

The rule: only the failed call is lost, and exactly that. What it has emitted, written to state and done to timers is
undone, and it is counted. How many calls may fail is bounded, so that a bug cannot divert everything unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.output_tag import OutputTag
from flinkish.errors import ProgramError

#: What `OnError` allows unless it is told otherwise.
DEFAULT_MAX_FAILURES = 100
DEFAULT_MAX_RATE = 0.01

#: What it can be told at most.
MAX_FAILURES_LIMIT = 1_000_000
MAX_RATE_LIMIT = 0.5


class DeadLetter(NamedTuple):
    """A record, or a timer, for which a function has raised.

    >>> DeadLetter("x", "ValueError", "bad", "Traceback ...", "parse", None, 5, 3).error_type
    'ValueError'
    """

    #: what the function was called with; None for a timer
    record: Any
    #: name of the exception's class
    error_type: str
    error_message: str
    #: of user code alone
    traceback: str
    operator_uid: str
    #: the current key; None on a stream without keys
    key: Any
    #: of the record or the timer, in ms; None: it has none
    timestamp: int | None
    epoch: int
    #: whether a timer has failed, and not a record
    is_timer: bool = False
    #: the window whose timer has failed, such as ``TimeWindow(start=0, end=60000)``; None: it was none of a window
    window: str | None = None

    @staticmethod
    def type_info(
        record_type: TypeInformation | None = None, key_type: TypeInformation | None = None
    ) -> TypeInformation:
        """The ROW type of dead letters, for an OutputTag: formats and sinks that need columns can take them then.

        Example::

            tag = OutputTag("dead", DeadLetter.type_info(Types.STRING()))
            parsed = lines.map(parse).on_error(OnError.dead_letter(tag))
            parsed.get_side_output(tag).sink_to(json_files)

        Args:
            record_type: of the operator's records; None: any object.
            key_type: of its keys; None: any object.
        """
        text = Types.STRING()
        types: dict[str, TypeInformation] = {
            "record": record_type or Types.PICKLED_BYTE_ARRAY(),
            "error_type": text,
            "error_message": text,
            "traceback": text,
            "operator_uid": text,
            "key": key_type or Types.PICKLED_BYTE_ARRAY(),
            "timestamp": Types.LONG(),
            "epoch": Types.LONG(),
            "is_timer": Types.BOOLEAN(),
            "window": text,
        }
        return Types.ROW_NAMED(list(types), list(types.values()))


@dataclass(frozen=True)
class OnError:
    """What an operator does when its function raises; see ``DataStream.on_error``. Made by `fail`, `skip` and
    `dead_letter`.

    The budget of a subtask is ``max_failures`` at first. Each failure takes 1 of it, each call that succeeds gives back
    ``max_rate``, up to ``max_failures``. A failure that finds less than 1 fails the job, with the failure's traceback.
    So at most ``max_failures`` calls fail in a row, and in the long run at most that part of all calls.
    """

    action: str
    tag: OutputTag | None = None
    max_failures: int = DEFAULT_MAX_FAILURES
    max_rate: float = DEFAULT_MAX_RATE

    @staticmethod
    def fail() -> OnError:
        """The job fails, as without `OnError`."""
        return OnError("fail")

    @staticmethod
    def skip(max_failures: int = DEFAULT_MAX_FAILURES, max_rate: float = DEFAULT_MAX_RATE) -> OnError:
        """The record or timer is counted, logged and left out.

        Raises:
            ProgramError: the budget is out of bounds.
        """
        return OnError("skip", None, max_failures, max_rate)._checked()

    @staticmethod
    def dead_letter(
        tag: OutputTag, max_failures: int = DEFAULT_MAX_FAILURES, max_rate: float = DEFAULT_MAX_RATE
    ) -> OnError:
        """The record or timer goes to a side output, as a `DeadLetter`.

        Args:
            tag: any type, or ``DeadLetter.type_info(...)``.
            max_failures: most calls of a subtask that fail in a row, from 1 to 1,000,000.
            max_rate: the part of its calls that may fail in the long run, from 0 to 0.5.

        Raises:
            ProgramError: the budget is out of bounds, or ``tag`` is no OutputTag.
        """
        if not isinstance(tag, OutputTag):
            raise ProgramError(f"dead_letter() got {tag!r}", expected="an OutputTag")
        return OnError("dead_letter", tag, max_failures, max_rate)._checked()

    def _checked(self) -> OnError:
        if self.max_failures.__class__ is not int or not 1 <= self.max_failures <= MAX_FAILURES_LIMIT:
            raise ProgramError(
                f"max_failures is {self.max_failures!r}", expected=f"a whole number from 1 to {MAX_FAILURES_LIMIT}"
            )
        if isinstance(self.max_rate, bool) or not isinstance(self.max_rate, (int, float)):
            raise ProgramError(f"max_rate is {self.max_rate!r}", expected=f"a number from 0 to {MAX_RATE_LIMIT}")
        if not 0 <= self.max_rate <= MAX_RATE_LIMIT:
            raise ProgramError(
                f"max_rate is {self.max_rate!r}",
                expected=f"a number from 0 to {MAX_RATE_LIMIT}",
                hint="a function that fails more often than not has a bug: catch in it what is expected",
            )
        return self
