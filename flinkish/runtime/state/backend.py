"""The keyed state backend of one subtask: the state of all its key groups, found by (state name, namespace, key).

State that was changed lately is in memory and is stored with the task (`InlineState`); the rest lies in files, is read
by key and kept in memory as long as there is room. What an operator does must not depend on where a value lies: it
fetches the keys of its batch (`prefetch`, `StateTable.fetch`) and then finds their values in dicts. Handles that user
functions hold stay valid over all keys and epochs: they look at the backend's current key at each call.
It records what an epoch has changed, as (state name, namespace, key), for incremental checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from flinkish.core.state import State, StateDescriptor
from flinkish.core.time import TimeDomain
from flinkish.errors import CorruptStateError, StateAccessError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.changelog import Change, keyed_changes
from flinkish.runtime.state.column_changes import ColumnChanges
from flinkish.runtime.state.handles import NO_KEY
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.limits import InlineLimit, ManagedMemory
from flinkish.runtime.state.list_table import ListTable
from flinkish.runtime.state.loans import Loans
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.timers_in_files import ServiceTimers, TimersInFiles
from flinkish.runtime.state.ttl import TTL_PREFIX, TtlPolicy, UnkeyedState, expiring_handle_of, handle_of, purge_expired
from flinkish.runtime.state.undo_log import (
    RecordedListTable,
    RecordedMapTable,
    RecordedTable,
    RecordedTimerQueue,
    UndoLog,
)
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.references import FileReference

__all__ = ["VOID_NAMESPACE", "KeyedStateBackend"]

_LOG = logging.getLogger("flinkish.KeyedStateBackend")
#: about how many bytes a timer takes in files
_TIMER_BYTES = 48
#: The state in memory is counted when so many keys were fetched, or timers have fired, since the last time (which takes
#: time), or half as many as there are namespaces, of which every session is one (it takes time for each).
_KEYS_A_LOOK = 1_000
#: the number of keys whose state is fetched together
_KEYS_BATCH = 10_000
#: When the changes that lie in no file exceed one part in so many of the managed memory, they are written to files
#: before the epoch ends.
SPILL_PART = 4

#: State in files may be read as a whole if it takes at most one part in so many of the free managed memory.
WHOLE_PART = 2


class KeyedStateBackend:
    """Holds the values and timers of one subtask by key, and stores them epoch by epoch with the task and in files.

    Args:
        where: names the task in errors.
        epoch: the epoch of the operator that owns the state (set by its RuntimeContext); its processing time is the
            clock of state with time-to-live.
        classes: the classes of the program that state may hold.
        directory: where the files of the subtask lie; None: all state stays with the task.
        inline_bytes: state of up to about so many encoded bytes is stored with the task, and larger state in files;
            once there are files, only changes of up to a part of that are stored with the task.
        memory: the managed memory that all state of the worker process shares.
        recording: whether `take_changes` will be called; ``uid``: the uid of the operator, for the changes.
        undone: whether calls of user code may have to be undone (``on_error``).
    """

    def __init__(
        self,
        where: str = "",
        epoch: EpochInfo | None = None,
        classes: ProgramClasses = NO_CLASSES,
        directory: StateDirectory | None = None,
        inline_bytes: int = 256 * 1024,
        memory: ManagedMemory | None = None,
        recording: bool = False,
        uid: str = "",
        undone: bool = False,
    ) -> None:
        self.where = where
        self.epoch = epoch if epoch is not None else EpochInfo()
        self._classes = classes
        self._inline_limit = InlineLimit(inline_bytes)
        self._memory = memory if memory is not None else ManagedMemory()
        self.stored = StoredState(directory, where, classes)
        self.stored.whole_bytes = lambda: self._memory.free_bytes // WHOLE_PART
        self.stored_timers = TimersInFiles(directory, self._next_numbers, where, classes)
        #: the key that state handles read and write; operators set it before they call user code
        self.current_key: Any = NO_KEY
        #: incremented whenever the dicts that handles hold are no longer the ones of the tables
        self.generation = 0
        self._tables: dict[str, StateTable] = {}
        self._timers: dict[str, TimerQueue] = {}
        self._sequence = 0
        #: after how many more keys `make_room` next counts the state in memory
        self._keys_until_look = 0
        #: name of a file that the state no longer refers to -> the first epoch that does not
        self.dropped: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        #: state name -> descriptor, of the states that user code has asked for
        self._descriptors: dict[str, StateDescriptor] = {}
        self._policies: dict[str, TtlPolicy] = {}
        #: the values that the running call of user code has in its hands
        self.loans = Loans(self)
        self.unkeyed = UnkeyedState()
        self.undo_log = UndoLog(self.loans) if undone else None
        self.recording = recording
        self._uid = uid
        self._recorded: list[Change | ColumnChanges] = []

    # ------------------------------------------------------------------------------------------------ the stored form

    def restore(self, data: bytes | None) -> None:
        """Replace all state by what `snapshot` returned (None: no state).

        Raises:
            CorruptStateError: the data cannot be decoded; see `KeyedBody.decode` for other errors.
        """
        self.loans.forget()
        self.current_key = NO_KEY
        self.generation += 1
        self._tables, self._timers = {}, {}
        body = KeyedBody.decode(data, self._where(), self._classes)
        self.stored.files, self.stored_timers.sets = body.files, body.timer_files
        self._sequence, self.dropped = body.sequence, dict(body.dropped)
        for name, kind in body.kinds.items():
            self._made(name, kind)
        for name, state in body.states.items():
            try:
                self._made(name, state.kind).take_inline(state)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise CorruptStateError(
                    f"state {name!r} cannot be decoded: {error}", where=self._where(), hint="restore a checkpoint"
                ) from error
        for service, timers in body.timers.items():
            self.timers(service).load(timers)

    def snapshot(self) -> bytes | None:
        """End the epoch: write the changes to files if they are large, and return all that is stored with the task,
        encoded (None: there is no state)."""
        self.loans.look()
        self._purge()
        if self.recording:
            self._recorded.extend(keyed_changes(self._uid, self._tables, self._timers))
        if self.stored.directory is None:
            data = self._encoded()
        else:
            size, has_files = self._bytes_to_store(), bool(self.stored)
            data = self._inline_limit.encoded(self._encoded, self._write_files, size, has_files)
        for table in self._tables.values():
            table.forget_changes()
            table.prune()
        for queue in self._timers.values():
            queue.forget_changes()
        return data

    def _encoded(self) -> bytes | None:
        return self._inline_body().encode(self._where(), self._classes)

    def _inline_body(self) -> KeyedBody:
        states = {name: state for name, table in self._tables.items() if (state := table.inline()) is not None}
        timers = {service: stored for service, queue in self._timers.items() if (stored := queue.stored())}
        files, timer_files = self.stored.files, self.stored_timers.sets
        return KeyedBody(states, timers, files, timer_files, self._kinds_in_files(), self._sequence, dict(self.dropped))

    def _kinds_in_files(self) -> dict[str, str]:
        if not self.stored:
            return {}
        return {name: table.kind for name, table in self._tables.items() if table.timed is None}

    def _bytes_to_store(self) -> int:
        timers = sum(queue.in_memory for queue in self._timers.values())
        return sum(table.to_store * table.encoded_bytes for table in self._tables.values()) + timers * _TIMER_BYTES

    def _unwritten_bytes(self) -> int:
        """About how many bytes of memory the values take that lie in no file, and so cannot be evicted."""
        return sum(table.to_store * table.entry_bytes for table in self._tables.values())

    def _write_files(self) -> None:
        """Write the values and timers that lie in no file, and compact the files."""
        self.spill()
        before, epoch = self.file_names(), self.epoch.epoch
        if self.stored:
            self.stored.compact(epoch, self.epoch.processing_time_ms, self._ttl_ms())
        if self.stored_timers.write(self._timers, epoch):
            self.stored_timers.compact(self._timers, epoch)
        dropped = before - self.file_names()
        self.dropped.update(dict.fromkeys(dropped, epoch))
        if self.stored.directory is not None:
            # mapped files count as memory of the worker
            self.stored.directory.release(dropped)
        _LOG.debug("%s: state lies in %d files, %d bytes", self._where(), len(self.file_names()), self.bytes_in_files)

    def spill(self) -> None:
        """Write the values that lie in no file. Timers stay in memory, because `keyed_changes` still needs those of the
        running epoch."""
        epoch = self.epoch.epoch
        builder = self.stored.builder()
        try:
            tables = [table for table in self._tables.values() if table.timed is None]
            written = sum(table.write_to(builder, self.stored) for table in tables)
        except Exception as error:
            self._inline_body().check_each(self._where(), self._classes, error)
            raise
        if written:
            self.stored.write(builder.build(), epoch)
            for table in self._tables.values():
                table.written()

    def file_names(self) -> frozenset[str]:
        """The names of all files that the state refers to, those of timers included."""
        return self.stored.files.names | self.stored_timers.names

    def _ttl_ms(self) -> dict[str, int]:
        """State name -> time-to-live (ms), of the states whose expired values are to be removed."""
        return {name: policy.ttl_ms for name, policy in self._policies.items() if policy.purge}

    def take_changes(self) -> list[Change | ColumnChanges]:
        """The changes that the `snapshot` calls since the last call have recorded; none unless ``recording``."""
        changes, self._recorded = self._recorded, []
        return changes

    def table(self, name: str, kind: str) -> StateTable:
        """The table of one state, created when absent. ``kind`` is value, list, map, reducing or aggregating.

        Raises:
            StateAccessError: the name already has another kind.
        """
        self._register(name, kind)
        table = self._tables.get(name)
        if table is None:
            return self._made(name, kind)
        if table.kind != kind:
            raise self._other_kind(name, kind, f"it was written as {table.kind} state")
        return table

    def install(self, table: StateTable) -> None:
        """Let a table of the operator's own take the place of the one of its name, whose values it has taken over."""
        self._tables.pop(TTL_PREFIX + table.name, None)
        self._tables[table.name] = table
        if table.times is not None:
            self._tables[table.times.name] = table.times

    def dispose(self) -> None:
        """Leave the managed memory: the backend is not used any more."""
        self._memory.leave(self)

    def restored_table(self, name: str, kind: str) -> StateTable:
        """The table of a state that a savepoint holds, created when absent even if the program never declares it."""
        return self._made(name, kind)

    def forget_changes(self) -> None:
        """Count the present state as stored, as after a restore: none of it is a change of the epoch."""
        for table in self._tables.values():
            table.forget_changes()
        for queue in self._timers.values():
            queue.forget_changes()

    def _made(self, name: str, kind: str) -> StateTable:
        table = self._tables.get(name)
        if table is not None:
            return table
        table = self._tables[name] = self._new_table(name, kind)
        if name.startswith(TTL_PREFIX):
            self._join(self._tables.get(name[len(TTL_PREFIX) :]), table)
        elif TTL_PREFIX + name in self._tables:
            self._join(table, self._tables[TTL_PREFIX + name])
        elif name in self._policies:
            self._made_times(name, kind)
        return table

    def _new_table(self, name: str, kind: str) -> StateTable:
        log, stored = self.undo_log, self.stored
        if kind == "list":
            return ListTable(name, kind, stored) if log is None else RecordedListTable(name, kind, stored, log)
        if kind == "map":
            if log is None:
                return MapTable(name, kind, stored, self._next)
            return RecordedMapTable(name, kind, stored, self._next, log)
        return StateTable(name, kind, stored) if log is None else RecordedTable(name, kind, stored, log)

    def _made_times(self, name: str, kind: str) -> None:
        """Create the table with the times of the last access to a state."""
        self._made(TTL_PREFIX + name, kind if kind in ("list", "map") else "value")

    @staticmethod
    def _join(table: StateTable | None, times: StateTable) -> None:
        if table is not None:
            table.times, times.timed = times, table

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _next_numbers(self, count: int) -> range:
        self._sequence += count
        return range(self._sequence - count + 1, self._sequence + 1)

    def timers(self, service: str) -> TimerQueue:
        """The timers of one timer service, created when absent."""
        queue = self._timers.get(service)
        if queue is None:
            files, log = ServiceTimers(self.stored_timers, service), self.undo_log
            queue = TimerQueue(files, self.recording) if log is None else RecordedTimerQueue(files, self.recording, log)
            self._timers[service] = queue
        return queue

    def partitioned_state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """A state handle for user code, scoped to ``current_key`` and the namespace (a window, or VOID_NAMESPACE).

        Raises:
            StateAccessError: the name already has another kind or another type.
        """
        name, kind = descriptor.name, descriptor.kind
        self._register(name, kind)
        known = self._descriptors.setdefault(name, descriptor).type_info
        if known != descriptor.type_info:
            raise self._other_kind(name, kind, f"its type was {known!r} before, and is {descriptor.type_info!r} now")
        self._descriptors[name] = descriptor
        if descriptor.ttl_config is None:
            self._policies.pop(name, None)
            return cast(State, handle_of(self, descriptor, namespace))
        policy = self._policies[name] = TtlPolicy.of(descriptor.ttl_config, self._processing_time_ms)
        if name in self._tables:
            self._made_times(name, kind)
        return expiring_handle_of(self, descriptor, namespace, policy)

    def due(
        self,
        service: str,
        domain: TimeDomain,
        upto_ms: int,
        fetch: Callable[[dict[Hashable, list[Any]]], None] | None = None,
    ) -> Iterator[tuple[int, Any, Hashable]]:
        """`TimerQueue.pop_due`, with the state of the timers' keys fetched before they fire. ``fetch`` is called with
        the keys by namespace; by default it is `fetch_all`, which fetches the timers' own namespaces only."""
        return self.timers(service).pop_due(domain, upto_ms, self._prepare, fetch or self.fetch_all)

    def may_be_due(self, domain: TimeDomain, upto_ms: int) -> bool:
        """Whether a timer of any service may have a timestamp <= ``upto_ms``. False is certain, True is not."""
        return any([queue.may_be_due(domain, upto_ms) for queue in self._timers.values()])  # noqa: C419 - no generator: a hot path

    def timer_queues(self) -> list[TimerQueue]:
        """The timer queues of all services."""
        return list(self._timers.values())

    def _prepare(self, fired: int) -> bool:
        """Make room before a batch of keys is looked up; returns whether values may have to be read from files.
        ``fired``: the number of timers that have fired since the last call."""
        self.make_room(fired)
        return not self.in_memory

    def prefetch(self, keys: Collection[Any], namespace: Hashable = VOID_NAMESPACE) -> None:
        """Bring the state of these keys to memory, all of it at once. To be called with the keys of a batch before user
        code is called for them."""
        self.make_room(len(keys))
        self.fetch_all({namespace: keys})

    @property
    def in_memory(self) -> bool:
        """Whether all values are in memory, so that none has to be looked up in files."""
        tables = self._tables
        return not self.stored or all(name in tables and tables[name].complete for name in self._kinds)

    @property
    def in_files(self) -> bool:
        """Whether any value lies in files."""
        return bool(self.stored)

    def fetch_all(self, by_namespace: Mapping[Hashable, Collection[Any]]) -> None:
        """`prefetch` for the keys of many namespaces, but without `make_room`: values that were fetched before stay."""
        if not self.stored:
            return
        for name, kind in self._kinds.items():
            table = self.table(name, kind)
            if table.timed is None:
                table.fetch_all(by_namespace)

    def make_room(self, keys: int = _KEYS_A_LOOK) -> None:
        """Write changes to files, and evict values that lie there, if memory holds too much. To be called only between
        batches; does nothing within a call that may be undone. ``keys``: the number of keys that are in the batch."""
        if self.undo_log is not None and self.undo_log.open:
            return
        self.loans.look()
        self._keys_until_look -= keys
        if self._keys_until_look > 0:
            return
        self._keys_until_look = max(_KEYS_A_LOOK, sum(table.namespaces for table in self._tables.values()) // 2)
        if self.stored.directory is not None and self._unwritten_bytes() > self._memory.limit_bytes // SPILL_PART:
            self.spill()
        if self.stored:
            self._memory.use(self)
            self._memory.reclaim()

    @property
    def declared(self) -> dict[str, tuple[str, StateDescriptor | None]]:
        """State name -> kind and, if user code has asked for the state, its descriptor. Names are never removed."""
        return {name: (kind, self._descriptors.get(name)) for name, kind in self._kinds.items()}

    def leave_key(self) -> None:
        """Unset the current key: handles that are used from now on raise StateAccessError."""
        self.loans.enter(NO_KEY)
        self.generation += 1

    def remove_namespace(self, namespace: Hashable) -> None:
        """Remove the values of all states that the current key has in a namespace."""
        self.loans.settle()
        for name, kind in list(self._kinds.items()):
            table = self.table(name, kind)
            table.fetch(namespace, (self.current_key,))
            table.remove(namespace, self.current_key)
            if table.times is not None:
                table.times.remove(namespace, self.current_key)

    def key_batches(self, name: str) -> Iterator[list[Any]]:
        """All keys of the subtask that have a value of this state now, in batches whose state is in memory. Their order
        does not depend on where the values lie. To be called only while nobody holds a dict of a table."""
        table = self._tables.get(name)
        keys = iter(()) if table is None else table.keys(VOID_NAMESPACE)
        while batch := list(islice(keys, _KEYS_BATCH)):
            self.prefetch(batch)
            yield batch

    def changed(self) -> bool:
        """Whether anything was changed since `restore` or the last `snapshot`."""
        self.loans.look()
        return any(table.changed for table in self._tables.values()) or any(q.changed for q in self._timers.values())

    @property
    def cached_bytes(self) -> int:
        """About how many bytes the values in memory take."""
        return sum(table.cached_bytes for table in self._tables.values())

    @property
    def bytes_in_files(self) -> int:
        """The size of all files that the state refers to."""
        timers = self.stored_timers.sets
        return self.stored.files.size_bytes + (0 if timers is None else timers.size_bytes)

    def files(self) -> list[FileReference]:
        """All files that the state refers to, those of timers included."""
        sets = self.stored_timers.sets
        of_timers = () if sets is None else sets.queues.values()
        return [file for files in (self.stored.files, *of_timers) for file in files.files]

    def release(self) -> None:
        """Evict values that lie in files and were not used since the last call. To be called only between batches."""
        self.loans.look()
        for table in self._tables.values():
            if table.timed is None:
                table.release()
        self.generation += 1

    def _purge(self) -> None:
        """Remove expired values of subtasks without state in files (in files, compaction removes them), and the times
        of states that no longer have a time-to-live, because they would be wrong if it were switched on again."""
        for name in self._kinds:
            times = self._tables.get(TTL_PREFIX + name)
            if times is None:
                continue
            policy = self._policies.get(name)
            if policy is None:
                del self._tables[TTL_PREFIX + name]
                self._tables[name].times = None
            elif policy.purge and not self.stored:
                purge_expired(self._tables[name], times, policy)

    def _processing_time_ms(self) -> int:
        return self.epoch.processing_time_ms

    def _where(self) -> str:
        return f"{self.where}, epoch {self.epoch.epoch}"

    def _register(self, name: str, kind: str) -> None:
        known = self._kinds.setdefault(name, kind)
        if known != kind:
            raise self._other_kind(name, kind, f"it was declared as {known} state before")

    def _other_kind(self, name: str, kind: str, reason: str) -> StateAccessError:
        return StateAccessError(
            f"state {name!r} is declared as {kind} state, but {reason}",
            where=self.where,
            expected="one kind and one type per state name",
            hint="give the new state a name of its own",
        )
