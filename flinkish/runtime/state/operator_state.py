"""State that belongs to a subtask and to no key (Flink's operator state)."""

from __future__ import annotations

from typing import Any

from flinkish.errors import StoredClassError
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored_pickle import dumps, loads

#: Version of the encoded form.
FORMAT_VERSION = 2


class OperatorState:
    """Named values of one operator's subtask.

    >>> s = OperatorState(); s.put("rules", {"a": 1}); s.get("rules")
    {'a': 1}
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._changed: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or ``default``."""
        return self._values.get(name, default)

    def put(self, name: str, value: Any) -> None:
        """Set the value; it is written at the next barrier."""
        self._values[name] = value
        self._changed.add(name)

    def remove(self, name: str) -> None:
        """Forget the value."""
        if self._values.pop(name, None) is not None:
            self._changed.add(name)

    def touch(self) -> None:
        """Say that a value was changed in place."""
        self._changed.update(self._values)

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return bool(self._changed)

    def changed_names(self) -> list[str]:
        """What there is to write: names of values that were set, changed or removed."""
        return sorted(self._changed)

    def names(self) -> list[str]:
        """Names of all values."""
        return sorted(self._values)

    def restore(self, values: dict[str, Any]) -> None:
        """Take in what an earlier barrier wrote."""
        self._values = dict(values)
        self._changed = set()

    def snapshot(self) -> dict[str, Any]:
        """All values, as of now."""
        self._changed = set()
        return dict(self._values)


def encode_operator_states(states: dict[str, OperatorState], classes: ProgramClasses = NO_CLASSES) -> bytes | None:
    """Encode the operator states of a subtask, by operator uid; None when all are empty.

    Raises:
        StoredClassError: a value is, or holds, what could not be read again; names operator and state.
    """
    values = {uid: state.snapshot() for uid, state in states.items()}
    values = {uid: value for uid, value in values.items() if value}
    if not values:
        return None
    try:
        return dumps(values, FORMAT_VERSION, classes)
    except StoredClassError:
        for uid, named in values.items():
            for name, value in named.items():
                _check_stored(uid, name, value, classes)
        raise


def _check_stored(uid: str, name: str, value: Any, classes: ProgramClasses) -> None:
    try:
        dumps(value, FORMAT_VERSION, classes)
    except StoredClassError as error:
        raise StoredClassError(
            f"operator state {name!r}: {error.what}",
            where=f"operator uid {uid}",
            expected=error.expected,
            hint=error.hint,
        ) from error


def decode_operator_states(body: bytes | None, classes: ProgramClasses = NO_CLASSES) -> dict[str, dict[str, Any]]:
    """The inverse of :func:`encode_operator_states`."""
    if not body:
        return {}
    return dict(loads(body, FORMAT_VERSION, "the operator state of a subtask", "", classes))
