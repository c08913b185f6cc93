"""The stored form of the keyed state of one subtask: the state in no file, and references to files with the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.errors import CorruptStateError, StoredClassError, TypeMismatchError, message_of
from flinkish.runtime.state.files.references import FileSet, TimerSets
from flinkish.runtime.state.state_table import InlineState
from flinkish.runtime.state.timer_queue import StoredTimers
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

#: Version of the layout below. A reader rejects any other version.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class KeyedBody:
    """The keyed state of one subtask as it is stored with the task, decoded."""

    #: state name -> the part of the state that lies in no file
    states: dict[str, InlineState] = field(default_factory=dict)
    #: timer service -> the part of its timers that is stored with the task
    timers: dict[str, StoredTimers] = field(default_factory=dict)
    #: the files with the values
    files: FileSet = FileSet()
    #: the files with the timers; None: there are none
    timer_files: TimerSets | None = None
    #: name -> kind of the states; empty if no value lies in files
    kinds: dict[str, str] = field(default_factory=dict)
    #: the last number that was given to an entry of a map or to a timer
    sequence: int = 0
    #: name of a file that is not referred to any more -> the first epoch that does not refer to it
    dropped: dict[str, int] = field(default_factory=dict)

    def encode(self, where: str = "", classes: ProgramClasses = NO_CLASSES) -> bytes | None:
        """The stored form; None if there is no state at all.

        Raises:
            StoredClassError: a key, namespace or value is or holds an object that could not be read again; the error
                names its state and key.
            TypeMismatchError: a key, namespace or value cannot be pickled; the error names its state and key.
        """
        if not (self.states or self.timers or self.files.files or self.timer_files or self.dropped):
            return None
        states = {name: tuple(state) for name, state in self.states.items()}
        timers = {service: tuple(stored) for service, stored in self.timers.items()}
        try:
            timer_files = None if self.timer_files is None else self.timer_files.encode()
            parts = (states, timers, self.files.encode(), timer_files, self.kinds, self.sequence, self.dropped)
            return dumps(parts, FORMAT_VERSION, classes)
        except Exception as error:
            self.check_each(where, classes, error)
            raise

    @staticmethod
    def decode(data: bytes | None, where: str = "", classes: ProgramClasses = NO_CLASSES) -> KeyedBody:
        """The inverse of `encode`; ``where`` names the operator and the subtask in errors.

        Raises:
            CorruptStateError: the data cannot be decoded; see `loads` for other errors.
        """
        if not data:
            return KeyedBody()
        decoded = loads(data, FORMAT_VERSION, "the state", where, classes)
        try:
            states, timers, files, timer_files, kinds, sequence, dropped = decoded
            return KeyedBody(
                {name: InlineState(*state) for name, state in states.items()},
                {service: StoredTimers(*stored) for service, stored in timers.items()},
                FileSet.decode(files),
                None if timer_files is None else TimerSets.decode(timer_files),
                kinds,
                sequence,
                dropped,
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise CorruptStateError(
                f"the state cannot be decoded: {error}", where=where, hint="go back to the last completed checkpoint"
            ) from error

    def check_each(self, where: str, classes: ProgramClasses, cause: Exception) -> None:
        """Find the entry that cannot be stored, and raise an error with its state and key (`check_stored`)."""
        for name, state in self.states.items():
            for namespace, (keys, values) in state.present.items():
                for key, value in zip(keys, values, strict=True):
                    check_stored(f"state {name!r}", namespace, key, value, where, classes, cause)
            for namespace, keys in state.removed.items():
                for key in keys:
                    check_stored(f"state {name!r}", namespace, key, None, where, classes, cause)
        for service, stored in self.timers.items():
            for runs in stored.runs.values():
                for timestamp_ms, namespace, keys in runs:
                    for key in keys:
                        check_stored(f"timers {service!r}", namespace, key, timestamp_ms, where, classes, cause)


def check_stored(
    what: str, namespace: Any, key: Any, value: Any, where: str, classes: ProgramClasses, cause: Exception
) -> None:
    """Check that one entry can be stored.

    Raises:
        StoredClassError: its key, namespace or value could not be read again.
        TypeMismatchError: its key, namespace or value cannot be pickled.
    """
    for part, found in (("key", key), ("namespace", namespace), ("value", value)):
        try:
            dumps(found, FORMAT_VERSION, classes)
        except StoredClassError as error:
            raise StoredClassError(
                f"{what}, the {part} of key {abbreviated(key, 200)}: {error.what}",
                where=where,
                expected=error.expected,
                hint=error.hint,
            ) from cause
        except Exception as error:
            holder, reason = f"{what} of key {abbreviated(key, 200)}", message_of(error)
            raise TypeMismatchError(
                f"{holder} holds a {type(found).__name__} that cannot be written: {reason}",
                where=where,
                expected="values that can be pickled",
                hint="keep plain data in state, and what cannot be pickled in attributes set by open()",
            ) from cause
