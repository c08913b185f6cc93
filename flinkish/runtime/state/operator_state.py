"""State that belongs to a subtask and to no key (Flink's operator state); kept in the subtask channel."""

from __future__ import annotations

import pickle
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.runtime.pickling import dumps

#: Format of the encoded body of a subtask channel.
FORMAT_VERSION = 1


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


def encode_operator_states(states: dict[str, OperatorState]) -> bytes | None:
    """Encode the operator states of a subtask, by operator uid; None when all are empty."""
    values = {uid: state.snapshot() for uid, state in states.items()}
    values = {uid: value for uid, value in values.items() if value}
    return dumps((FORMAT_VERSION, values)) if values else None


def decode_operator_states(body: bytes | None) -> dict[str, dict[str, Any]]:
    """The inverse of :func:`encode_operator_states`."""
    if not body:
        return {}
    try:
        version, values = pickle.loads(body)
    except Exception as error:
        raise CorruptStateError(
            f"the operator state of a subtask cannot be decoded ({error})",
            hint="restore the job from its last savepoint or checkpoint",
        ) from error
    if version != FORMAT_VERSION:
        raise CorruptStateError(
            f"operator state has format version {version}",
            expected=f"version {FORMAT_VERSION}",
            hint="restore from a savepoint written by a compatible version of flinkish",
        )
    return dict(values)
