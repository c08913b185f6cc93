"""A log of the changes that one call of a user function makes to state and timers, so that they can be undone
(``OnError``).

These tables are created only for operators with ``on_error``; other operators pay nothing.

Rules:

* Code that writes to a table marks the key before it writes (`state_table.py`): marking keeps the previous value.
* Timers are registered and deleted when the call has succeeded. User code cannot see them during the call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import detached
from flinkish.core.time import TimeDomain
from flinkish.runtime.state.list_table import ListTable
from flinkish.runtime.state.loans import Loans
from flinkish.runtime.state.map_table import MapEntries, MapTable
from flinkish.runtime.state.state_table import NONE_MARKED, Marks, StateTable
from flinkish.runtime.state.stored_state import MISSING, StoredState
from flinkish.runtime.state.timer_queue import FiledTimers, TimerQueue

if TYPE_CHECKING:
    from flinkish.runtime.state.operator_state import OperatorState


class UndoLog:
    """Collects the steps to take if the running call fails, and the ones to take if it succeeds.

    Args:
        loans: what the running call has in its hands of keyed state; what a call that fails has changed in it does not
            count.
    """

    def __init__(self, loans: Loans | None = None) -> None:
        #: what the running call may change in place
        self.lenders: list[Loans | OperatorState] = [] if loans is None else [loans]
        #: whether a call is running
        self.open = False
        self._kept: set[Hashable] = set()
        self._undo: list[Callable[[], None]] = []
        self._then: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Begin a call."""
        self.open = True

    def first(self, what: Hashable) -> bool:
        """Whether a call is running in which this is asked for the first time; ``what`` names an entry of state."""
        if not self.open or what in self._kept:
            return False
        self._kept.add(what)
        return True

    def keep(self, undo: Callable[[], None]) -> None:
        """Add a step to take if the call fails; these steps are taken in reverse order."""
        self._undo.append(undo)

    def then(self, step: Callable[[], None]) -> None:
        """Add a step to take if the call succeeds, in the order of addition; take it at once if no call is running."""
        if self.open:
            self._then.append(step)
        else:
            step()

    def commit(self) -> None:
        """End a call that has succeeded: take the steps of `then`."""
        steps = self._then
        self._end()
        for lender in self.lenders:
            lender.settle()
        for step in steps:
            step()

    def undo(self) -> None:
        """End a call that has failed: take the steps of `keep`, the last one first."""
        steps = self._undo
        self._end()
        for lender in self.lenders:
            lender.forget()
        for step in reversed(steps):
            step()

    def _end(self) -> None:
        self.open = False
        self._kept, self._undo, self._then = set(), [], []


class RecordedTable(StateTable):
    """A table of values, reduced values or accumulators that puts previous values back if the call fails."""

    def __init__(self, name: str, kind: str, stored: StoredState, log: UndoLog) -> None:
        super().__init__(name, kind, stored)
        self._log = log

    def mark(self, namespace: Hashable, key: Any) -> None:
        # a value that is put back counts as a change, even in a namespace of this epoch
        self._begun.discard(namespace)
        if self._log.first((self.name, namespace, key)):
            self.fetch(namespace, (key,))
            before = self.namespace(namespace).get(key, MISSING)
            if self.kind != "value":
                # a function may change it in place
                before = detached(before) if before is not MISSING else before
            self._log.keep(partial(self._put_back, namespace, key, before))
        super().mark(namespace, key)

    def marked(self) -> Marks:
        # each call marks the keys that it changes
        return NONE_MARKED

    def mark_all(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        for key in keys:
            self.mark(namespace, key)

    def _put_back(self, namespace: Hashable, key: Any, before: Any) -> None:
        if before is MISSING:
            self.namespace(namespace).pop(key, None)
        else:
            self.namespace(namespace)[key] = before


class RecordedListTable(ListTable):
    """A table of lists that puts previous lists back if the call fails, without the elements that were appended."""

    def __init__(self, name: str, kind: str, stored: StoredState, log: UndoLog) -> None:
        super().__init__(name, kind, stored)
        self._log = log

    def mark(self, namespace: Hashable, key: Any) -> None:
        # a value that is put back counts as a change, even in a namespace of this epoch
        self._begun.discard(namespace)
        self._keep(namespace, key)
        super().mark(namespace, key)

    def mark_all(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        for key in keys:
            self.mark(namespace, key)

    def mark_grown(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        keys = list(keys)
        for key in keys:
            self._keep(namespace, key)
        super().mark_grown(namespace, keys)

    def _keep(self, namespace: Hashable, key: Any) -> None:
        if self._log.first((self.name, namespace, key)):
            self.fetch(namespace, (key,))
            before = self.namespace(namespace).get(key)
            length = 0 if before is None else len(before)
            self._log.keep(partial(self._put_back, namespace, key, before, length))

    def _put_back(self, namespace: Hashable, key: Any, before: list[Any] | None, length: int) -> None:
        # the whole list is written again, because the length of its part in files may not be known any more
        self._replaced(namespace, key)
        if before is None:
            self.namespace(namespace).pop(key, None)
        else:
            del before[length:]
            self.namespace(namespace)[key] = before


class RecordedMapTable(MapTable):
    """A table of maps that puts previous entries back if the call fails, in their previous order."""

    def __init__(self, name: str, kind: str, stored: StoredState, sequence: Callable[[], int], log: UndoLog) -> None:
        super().__init__(name, kind, stored, sequence)
        self._log = log

    def mark(self, namespace: Hashable, key: Any) -> None:
        # a value that is put back counts as a change, even in a namespace of this epoch
        self._begun.discard(namespace)
        if self._log.open:
            self._log.keep(partial(self._put_back_map, namespace, key, self.of(namespace, key)))
        super().mark(namespace, key)

    def put(self, namespace: Hashable, key: Any, pairs: dict[Any, Any]) -> None:
        self._keep_entries(namespace, key, pairs)
        super().put(namespace, key, pairs)

    def discard(self, namespace: Hashable, key: Any, user_key: Any) -> None:
        self._keep_entries(namespace, key, (user_key,))
        super().discard(namespace, key, user_key)

    def discard_until(self, namespace: Hashable, key: Any, last: Any) -> Any:
        if self._log.open:
            found = self.whole(namespace, key)
            self._keep_entries(namespace, key, [k for k in found.entries if k <= last] if found else ())
        return super().discard_until(namespace, key, last)

    def _keep_entries(self, namespace: Hashable, key: Any, user_keys: Iterable[Any]) -> None:
        if not self._log.open:
            return
        found = self.of(namespace, key)
        if found is None and self.timed is not None and self._stored:
            # times that the call reads from files later stay, because their entries stay in memory
            found = self.made(namespace, key)
        if found is None:
            self._log.keep(partial(self._put_back_map, namespace, key, None))
            return
        before = {user_key: self._entry(found, namespace, key, user_key) for user_key in user_keys}
        self._log.keep(partial(self._put_back_entries, found, before))

    def _put_back_map(self, namespace: Hashable, key: Any, before: MapEntries | None) -> None:
        if before is None:
            self.namespace(namespace).pop(key, None)
        else:
            self.namespace(namespace)[key] = before

    @staticmethod
    def _put_back_entries(found: MapEntries, before: dict[Any, Any]) -> None:
        for user_key, entry in before.items():
            if entry is None:
                found.entries.pop(user_key, None)
            else:
                found.entries[user_key] = entry
        found.ascending = None
        found.entries = dict(sorted(found.entries.items(), key=lambda item: item[1][0]))


class RecordedTimerQueue(TimerQueue):
    """A timer queue that registers and deletes timers only once the running call has succeeded."""

    __slots__ = ("_log",)

    def __init__(self, files: FiledTimers, recording: bool, log: UndoLog) -> None:
        super().__init__(files, recording)
        self._log = log

    def registrar(self, domain: TimeDomain) -> Callable[[int, Any], None]:
        return partial(self.register, domain)

    def register(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        self._log.then(partial(super().register, domain, timestamp_ms, key, namespace))

    def register_all(
        self, domain: TimeDomain, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable = None
    ) -> None:
        self._log.then(partial(super().register_all, domain, timestamp_ms, list(keys), namespace))

    def delete(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        self._log.then(partial(super().delete, domain, timestamp_ms, key, namespace))
