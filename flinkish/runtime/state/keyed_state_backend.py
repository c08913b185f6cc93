"""Keyed state of one subtask, of all of its key groups: found by (state name, namespace, key).

What changed lately is in memory and is stored with the task (`InlineState`); the rest lies in files, is read by key and
kept in memory as long as there is room. No operator may notice where a value is: it fetches the keys of its batch
(`prefetch`, `StateTable.fetch`) and then finds their values in dicts. State handles that user functions got in
``open()`` stay valid over all keys and epochs: they look at the backend's current key at each call.

A backend knows which (state name, namespace, key) an epoch has changed: incremental checkpoints are made of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from flinkish.core.state import State, StateDescriptor
from flinkish.core.time_domain import TimeDomain
from flinkish.errors import CorruptStateError, StateAccessError
from flinkish.runtime.operator import EpochInfo
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.changelog import Change, keyed_changes
from flinkish.runtime.state.described_handles import expiring_handle_of, handle_of
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE
from flinkish.runtime.state.list_table import ListTable
from flinkish.runtime.state.managed_memory import ManagedMemory
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.state_handles import NO_KEY
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.timers_in_files import ServiceTimers, TimersInFiles
from flinkish.runtime.state.ttl import TTL_PREFIX, TtlPolicy
from flinkish.runtime.state.ttl_purge import purge_expired
from flinkish.runtime.state.undo_log import (
    RecordedListTable,
    RecordedMapTable,
    RecordedTable,
    RecordedTimerQueue,
    UndoLog,
)

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.references import FileReference

__all__ = ["VOID_NAMESPACE", "KeyedStateBackend"]

_LOG = logging.getLogger("flinkish.KeyedStateBackend")

#: About what a timer takes in files.
_TIMER_BYTES = 48

#: To count what is in memory takes time for each namespace, and every session is one: it is done once in a batch for
#: each so many of them. A batch has about as many records, so that memory grows by a part of what is there meanwhile.
_NAMESPACES_A_BATCH = 2_000

#: Beside state in files, changes of so large a part of what may lie with the task are written to files: a small file
#: takes less time than to encode and store the same changes again in each of the next epochs.
_CHANGES_PART = 4

#: So many keys have their state fetched together.
_KEYS_BATCH = 10_000

#: When what one epoch has changed takes so large a part of the managed memory, it is written to files before the epoch
#: ends.
SPILL_PART = 4

#: State in files that takes at most so large a part of the managed memory that is free may be read as a whole.
WHOLE_PART = 2


class KeyedStateBackend:
    """See the module.

    Args:
        where: names the task in errors.
        epoch: of the operator that owns the state (set by its RuntimeContext): its processing time is the clock of
            state that expires.
        classes: of the program.
        directory: where the files of the subtask lie; None: all state stays with the task.
        inline_bytes: state of about so many encoded bytes lies with the task, more of it in files; beside files a part
            of that.
        memory: what all state of the worker may take.
        recording: whether `take_changes` will be asked for; ``uid``: of the operator, for the changes.
        undone: calls of user code may have to be undone (``on_error``).
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
        self._inline_bytes = inline_bytes
        self._memory = memory if memory is not None else ManagedMemory()
        self.stored = StoredState(directory, where, classes)
        self.stored.whole_bytes = lambda: self._memory.free_bytes // WHOLE_PART
        self.stored_timers = TimersInFiles(directory, self._next_numbers, where, classes)
        #: the key that state handles read and write; operators set it before they call user code
        self.current_key: Any = NO_KEY
        #: goes up whenever dicts that handles hold are no longer the right ones
        self.generation = 0
        self._tables: dict[str, StateTable] = {}
        self._timers: dict[str, TimerQueue] = {}
        self._sequence = 0
        #: when `make_room` next looks at what is in memory
        self._batches_until_look = 0
        #: files that were dropped -> the epoch since which they are not referred to
        self.dropped: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        #: of the states that user code has asked for
        self._descriptors: dict[str, StateDescriptor] = {}
        self._policies: dict[str, TtlPolicy] = {}
        self.undo_log = UndoLog() if undone else None
        self._recording = recording
        self._uid = uid
        self._recorded: list[Change] = []

    # ------------------------------------------------------------------------------------------------ the stored form

    def restore(self, data: bytes | None) -> None:
        """Take in what `snapshot` gave (None: nothing), in place of what is there."""
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
        """All state encoded (None: there is none), and forget what was changed."""
        self._purge()
        if self._recording:
            self._recorded.extend(keyed_changes(self._uid, self._tables, self._timers))
        data, limit = None, self._inline_bytes // (_CHANGES_PART if self.stored else 1)
        if self.stored.directory is None or self._bytes_to_store() <= 2 * limit:
            data = self._inline_body().encode(self._where(), self._classes)
        if self.stored.directory is not None and (data is None or len(data) > limit):
            self._write_files()
            data = self._inline_body().encode(self._where(), self._classes)
        for table in self._tables.values():
            table.forget_changes()
            table.prune()
        for queue in self._timers.values():
            queue.forget_changes()
        return data

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
        """About what the values in memory take that cannot be let go of."""
        return sum(table.to_store * table.entry_bytes for table in self._tables.values())

    def _write_files(self) -> None:
        """Write what lies in no file yet."""
        self._write_tables()
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

    def _write_tables(self) -> None:
        """All of it but the timers, which changes of the running epoch are told from."""
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
        """The names of all files that the state lies in."""
        return self.stored.files.names | self.stored_timers.names

    def _ttl_ms(self) -> dict[str, int]:
        """State name -> how long its values live (ms), of the states whose expired values are to be removed."""
        return {name: policy.ttl_ms for name, policy in self._policies.items() if policy.purge}

    def take_changes(self) -> list[Change]:
        """What the last `snapshot` has written that was not in the one before; only while ``recording``."""
        changes, self._recorded = self._recorded, []
        return changes

    # ------------------------------------------------------------------------------------------------ what is in it

    def table(self, name: str, kind: str) -> StateTable:
        """The table of one state (created when absent). ``kind`` is value, list, map, reducing or aggregating;
        StateAccessError when the name already has another kind."""
        self._register(name, kind)
        table = self._tables.get(name)
        if table is None:
            return self._made(name, kind)
        if table.kind != kind:
            raise self._other_kind(name, kind, f"it was written as {table.kind} state")
        return table

    def dispose(self) -> None:
        """Nothing of it is used any more."""
        self._memory.leave(self)

    def restored_table(self, name: str, kind: str) -> StateTable:
        """The table of a state that a savepoint has, whether the program asks for it or not."""
        return self._made(name, kind)

    def forget_changes(self) -> None:
        """What is there was taken in and is no change."""
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
        """The times of the last access to a state."""
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
        """The timers of one timer service."""
        queue = self._timers.get(service)
        if queue is None:
            files, log = ServiceTimers(self.stored_timers, service), self.undo_log
            queue = (
                TimerQueue(files, self._recording) if log is None else RecordedTimerQueue(files, self._recording, log)
            )
            self._timers[service] = queue
        return queue

    def partitioned_state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """A handle for user code, scoped to ``current_key`` and the namespace (a window, or VOID_NAMESPACE)."""
        name, kind = descriptor.name, descriptor.kind
        self._register(name, kind)
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
        """`TimerQueue.pop_due`, with the state of the timers' keys in memory. ``fetch``: what has it there, if not that
        of the timers' namespaces alone."""
        return self.timers(service).pop_due(domain, upto_ms, self._prepare, fetch or self.fetch_all)

    def may_be_due(self, domain: TimeDomain, upto_ms: int) -> bool:
        """False: no timer of any service has a timestamp <= ``upto_ms``."""
        return any(queue.may_be_due(domain, upto_ms) for queue in self._timers.values())

    def _prepare(self) -> bool:
        """Before a batch of keys is looked up; whether anything of them may lie in files alone."""
        self.make_room()
        return not self.in_memory

    def take_fired(self) -> int:
        """How many timers have fired since the last call."""
        return sum(queue.take_fired() for queue in self._timers.values())

    def prefetch(self, keys: Collection[Any], namespace: Hashable = VOID_NAMESPACE) -> None:
        """Have the state of these keys in memory, all of it at once: to be called with the keys of a batch, before user
        code is called for them."""
        self.make_room()
        self.fetch_all({namespace: keys})

    @property
    def in_memory(self) -> bool:
        """Whether no value has to be looked for in files."""
        tables = self._tables
        return not self.stored or all(name in tables and tables[name].complete for name in self._kinds)

    @property
    def in_files(self) -> bool:
        """Whether anything lies in files."""
        return bool(self.stored)

    def fetch_all(self, by_namespace: Mapping[Hashable, Collection[Any]]) -> None:
        """`prefetch` for the keys of many namespaces, without making room: what was fetched since then stays."""
        if not self.stored:
            return
        for name, kind in self._kinds.items():
            table = self.table(name, kind)
            if table.timed is None:
                table.fetch_all(by_namespace)

    def make_room(self) -> None:
        """Write changes to files, and let go of what lies there, if memory holds too much. Only between batches, and
        not within a call that may be undone."""
        if self.undo_log is not None and self.undo_log.open:
            return
        self._batches_until_look -= 1
        if self._batches_until_look > 0:
            return
        self._batches_until_look = sum(table.namespaces for table in self._tables.values()) // _NAMESPACES_A_BATCH
        if self.stored.directory is not None and self._unwritten_bytes() > self._memory.limit_bytes // SPILL_PART:
            self._write_tables()
        if self.stored:
            self._memory.use(self)
            self._memory.reclaim()

    @property
    def declared(self) -> dict[str, tuple[str, StateDescriptor | None]]:
        """State name -> kind and, if user code has asked for the state, its descriptor. Names are never taken back."""
        return {name: (kind, self._descriptors.get(name)) for name, kind in self._kinds.items()}

    def leave_key(self) -> None:
        """There is no current key from now on: a handle that is used without one raises StateAccessError."""
        self.current_key = NO_KEY
        self.generation += 1

    def remove_namespace(self, namespace: Hashable) -> None:
        """Remove the values of all states that the current key has in a namespace."""
        for name, kind in list(self._kinds.items()):
            table = self.table(name, kind)
            table.fetch(namespace, (self.current_key,))
            table.remove(namespace, self.current_key)

    def key_batches(self, name: str) -> Iterator[list[Any]]:
        """All keys of the subtask that have a value of a state now, some at a time and with their state in memory, in
        an order that is the same wherever the values lie. Not while somebody holds a dict of a table."""
        table = self._tables.get(name)
        keys = iter(()) if table is None else table.keys(VOID_NAMESPACE)
        while batch := list(islice(keys, _KEYS_BATCH)):
            self.prefetch(batch)
            yield batch

    def changed(self) -> bool:
        """Whether anything was changed since `restore` or the last `snapshot`."""
        return any(table.changed for table in self._tables.values()) or any(q.changed for q in self._timers.values())

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def cached_bytes(self) -> int:
        """About what the values in memory take."""
        return sum(table.cached_bytes for table in self._tables.values())

    @property
    def bytes_in_files(self) -> int:
        """The size of all files."""
        timers = self.stored_timers.sets
        return self.stored.files.size_bytes + (0 if timers is None else timers.size_bytes)

    def files(self) -> list[FileReference]:
        """All files that the state lies in."""
        sets = self.stored_timers.sets
        of_timers = () if sets is None else sets.queues.values()
        return [file for files in (self.stored.files, *of_timers) for file in files.files]

    def release(self) -> None:
        """Let go of values that lie in files and were not used since the last call. Only between batches."""
        for table in self._tables.values():
            if table.timed is None:
                table.release()
        self.generation += 1

    # ------------------------------------------------------------------------------------------------ inside

    def _purge(self) -> None:
        """Remove what is expired from state that lies in no file (in files, compaction does it), and the times of
        states that no longer expire: they would be wrong later."""
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
            expected="one kind per state name",
            hint="give the new state a name of its own",
        )
