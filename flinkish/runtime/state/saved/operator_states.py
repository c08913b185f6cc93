"""The stored form of the operator states of one subtask: small states are stored with the task, large ones in files.

Each state (operator uid, kind, name) is encoded by itself, and only when it was changed. As long as the states stored
with the task exceed the inline size together, the largest one of them is written to a file of its own, which never
changes. A state that was set to the value that it had before keeps its file.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.errors import CorruptStateError, FlinkishError, StoredClassError, message_of
from flinkish.runtime.state.files.references import FileReference
from flinkish.runtime.state.operator_state import OperatorState, StoredOperatorState
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

#: Version of the encoded form, of the whole and of each state in it. A reader refuses any other version.
FORMAT_VERSION = 4

#: (operator uid, kind, name)
StateId = tuple[str, str, str]


class InFile(NamedTuple):
    """An encoded state that lies in a file. ``sha256``: the digest of the encoded state."""

    file: FileReference
    sha256: bytes


class _Stored(NamedTuple):
    """The operator states as stored with the task. ``dropped``: name of a file that is not referred to any more -> the
    first epoch that does not refer to it."""

    states: dict[StateId, bytes | InFile]
    dropped: dict[str, int]

    def encode(self) -> bytes | None:
        if not self.states and not self.dropped:
            return None
        states = tuple(
            (state_id, stored if isinstance(stored, bytes) else (stored.file.encode(), stored.sha256))
            for state_id, stored in self.states.items()
        )
        return dumps((states, self.dropped), FORMAT_VERSION)

    @staticmethod
    def decode(data: bytes | None, where: str) -> _Stored:
        if not data:
            return _Stored({}, {})
        decoded = loads(data, FORMAT_VERSION, "the operator state of a subtask", where)
        try:
            states, dropped = decoded
            return _Stored(
                {
                    (uid, kind, name): stored
                    if isinstance(stored, bytes)
                    else InFile(FileReference.decode(stored[0]), stored[1])
                    for (uid, kind, name), stored in states
                },
                dict(dropped),
            )
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise CorruptStateError(
                f"the operator state of a subtask cannot be decoded: {error}",
                where=where,
                hint="go back to the last completed checkpoint",
            ) from error


class StoredOperatorStates:
    """Stores the operator states of one subtask at each barrier, and restores them.

    Args:
        states: the states in memory, by operator uid.
        directory: where the files of the subtask lie; None: all state stays with the task.
        inline_bytes: up to so many encoded bytes of all states together are stored with the task.
        where: names the task in errors.
        classes: the classes of the program that state may hold.
    """

    def __init__(
        self,
        states: dict[str, OperatorState],
        directory: StateDirectory | None = None,
        inline_bytes: int = 256 * 1024,
        where: str = "",
        classes: ProgramClasses = NO_CLASSES,
    ) -> None:
        self._states = states
        self._directory = directory
        self._inline_bytes = inline_bytes
        self._where = where
        self._classes = classes
        self._stored: dict[StateId, bytes | InFile] = {}
        self._in_memory = True
        #: whether states of operators that the task does not have are no longer stored from the next barrier on
        self._gives_up = False
        #: name of a file that is not referred to any more -> the first epoch that does not refer to it
        self.dropped: dict[str, int] = {}

    def restore(self, data: bytes | None) -> None:
        """Set the stored form to what `snapshot` returned (None: no state), without reading files: `take_in` does."""
        self._stored, self.dropped = _Stored.decode(data, self._where)
        self._in_memory = self._gives_up = False

    @property
    def unclaimed(self) -> dict[str, list[str]]:
        """Operator uid -> the names of its stored states, of the operators that the task does not have."""
        found: dict[str, list[str]] = {}
        for uid, _, name in self._stored:
            if uid not in self._states:
                found.setdefault(uid, []).append(name)
        return found

    def take_in(self) -> None:
        """Replace the states in memory by the stored ones, unless that was done since `restore`. States of operators
        that the task does not have are given up by it (see `unclaimed`).

        Raises:
            MissingFileError: a file is missing; the error names it.
            CorruptStateError: a file is not what was written; the error names it.
        """
        if self._in_memory:
            return
        self._gives_up = bool(self.unclaimed)
        stored = _decoded(self._stored, self._directory, self._where, self._classes)
        for uid, state in self._states.items():
            state.restore(stored.get(uid, {}))
        self._in_memory = True

    @property
    def changed(self) -> bool:
        """Whether any state was changed or given up since the last `snapshot`."""
        return self._gives_up or any(state.changed for state in self._states.values())

    def snapshot(self, epoch: int) -> bytes | None:
        """Encode the states that were changed, write large ones to files, and return the stored form of all states
        (None: there are none). All count as unchanged afterwards.

        Raises:
            StoredClassError: a value is or holds an object that could not be read again; the error names the operator
                and the state.
        """
        before = self.file_names()
        changed, present = set[StateId](), dict[StateId, Any]()
        for uid, state in self._states.items():
            changed.update((uid, kind, name) for kind, name in state.changed_names())
            for kind, named in state.snapshot().items():
                present.update({(uid, kind, name): value for name, value in named.items()})
        # the others have no value any more, or were given up
        self._gives_up = False
        self._stored = {state_id: stored for state_id, stored in self._stored.items() if state_id in present}
        for state_id, value in present.items():
            if state_id in changed or state_id not in self._stored:
                self._set(state_id, self._encoded(state_id, value))
        if self._directory is not None:
            self._write_large(self._directory, epoch)
            dropped = before - self.file_names()
            self.dropped.update(dict.fromkeys(dropped, epoch))
            # mapped files count as memory of the worker
            self._directory.release(dropped)
        return _Stored(self._stored, self.dropped).encode()

    def _encoded(self, state_id: StateId, value: Any) -> bytes:
        try:
            return dumps(value, FORMAT_VERSION, self._classes)
        except Exception as error:
            uid, kind, name = state_id
            raise StoredClassError(
                f"{kind} state {name!r}: {error.what if isinstance(error, FlinkishError) else message_of(error)}",
                where=f"operator uid {uid}",
                expected=getattr(error, "expected", "values that can be pickled"),
                hint=getattr(error, "hint", ""),
            ) from error

    def _set(self, state_id: StateId, data: bytes) -> None:
        known = self._stored.get(state_id)
        if not isinstance(known, InFile) or known.sha256 != hashlib.sha256(data).digest():
            self._stored[state_id] = data

    def _write_large(self, directory: StateDirectory, epoch: int) -> None:
        inline = sorted(
            (len(stored), state_id) for state_id, stored in self._stored.items() if isinstance(stored, bytes)
        )
        excess = sum(size for size, _ in inline) - self._inline_bytes
        while excess > 0:
            size, state_id = inline.pop()
            excess -= size
            data = self._stored[state_id]
            assert isinstance(data, bytes)
            self._stored[state_id] = InFile(_written(directory, state_id, data, epoch), hashlib.sha256(data).digest())

    # ------------------------------------------------------------------------------------------------ files

    def files(self) -> list[FileReference]:
        """The files of the states that lie in files."""
        return [stored.file for stored in self._stored.values() if isinstance(stored, InFile)]

    def file_names(self) -> frozenset[str]:
        """The names of these files."""
        return frozenset(file.name for file in self.files())

    @property
    def bytes_in_files(self) -> int:
        """The size of these files."""
        return sum(file.size_bytes for file in self.files())


def _written(directory: StateDirectory, state_id: StateId, data: bytes, epoch: int) -> FileReference:
    """Write an encoded state to a file with one row, of which only the value is used."""
    # numpy and Arrow are not imported by jobs whose state is small
    import numpy as np

    from flinkish.runtime.state.files.rows import RowsBuilder

    builder = RowsBuilder()
    builder.put(state_id[2], np.zeros(1, np.uint64), [b""], [data])
    return directory.write(builder.build(), epoch)


def decode_operator_states(
    data: bytes | None,
    directory: StateDirectory | None = None,
    where: str = "",
    classes: ProgramClasses = NO_CLASSES,
) -> dict[str, StoredOperatorState]:
    """The states that `StoredOperatorStates.snapshot` has stored, by operator uid; reads the files among them."""
    return _decoded(_Stored.decode(data, where).states, directory, where, classes)


def _decoded(
    states: dict[StateId, bytes | InFile], directory: StateDirectory | None, where: str, classes: ProgramClasses
) -> dict[str, StoredOperatorState]:
    found: dict[str, StoredOperatorState] = {}
    for (uid, kind, name), stored in states.items():
        if isinstance(stored, InFile):
            assert directory is not None, "state lies in files, and nobody has said where"
            stored = directory.open(stored.file).value[0].as_py()
        what = f"{kind} state {name!r} of operator uid {uid}"
        found.setdefault(uid, {}).setdefault(kind, {})[name] = loads(stored, FORMAT_VERSION, what, where, classes)
    return found
