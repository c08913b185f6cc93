"""Keyed state as Python dicts: decoded once, kept in memory until forgotten, written as a whole when it changed.

The rule: the body is decoded only when somebody asks for a table or a queue. Whoever only wants to know whether a timer
is due asks ``next_timer_ms``, which until then goes by the hint of the task's header (if given).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from flinkish.core.state import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
)
from flinkish.core.time_domain import TimeDomain
from flinkish.errors import StateAccessError
from flinkish.runtime.operator import EpochInfo
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.body_codec import decode_body, encode_body
from flinkish.runtime.state.changelog import Change, keyed_changes
from flinkish.runtime.state.keyed_state_backend import VOID_NAMESPACE, KeyedStateBackend
from flinkish.runtime.state.state_handles import (
    NO_KEY,
    HeapAggregatingState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapValueState,
)
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.ttl import (
    TTL_PREFIX,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlPolicy,
    TtlReducingState,
    TtlValueState,
)
from flinkish.runtime.state.ttl_purge import purge_expired

#: Name under which `changed_keys` reports the keys whose timers changed.
TIMERS_NAME = "__timers__"


class _Decoded:
    """The decoded form of all state."""

    __slots__ = ("tables", "timers")

    def __init__(self, tables: dict[str, StateTable], timers: dict[str, TimerQueue]) -> None:
        self.tables = tables
        self.timers = timers


class HeapKeyedStateBackend(KeyedStateBackend):
    """See the module. ``where`` names the task in errors. ``epoch`` is that of the operator that owns the state (set
    by its RuntimeContext): its processing time is the clock of state that expires. ``classes``: of the program."""

    def __init__(self, where: str = "", epoch: EpochInfo | None = None, classes: ProgramClasses = NO_CLASSES) -> None:
        self.where = where
        self.epoch = epoch if epoch is not None else EpochInfo()
        self._classes = classes
        self.current_key: Any = NO_KEY
        #: goes up whenever dicts that handles hold are no longer the right ones
        self.generation = 0
        self._current: _Decoded | None = None
        self._body: bytes | None = None
        self._hint: tuple[int | None, int | None] | None = None
        self._kinds: dict[str, str] = {}
        #: of the states that user code has asked for
        self._descriptors: dict[str, StateDescriptor] = {}
        self._policies: dict[str, TtlPolicy] = {}
        #: whether `take_changes` will be asked for; ``uid``: of the operator, for the changes
        self.recording = False
        self.uid = ""
        self._recorded: list[Change] = []

    def restore(self, body: bytes | None) -> None:
        self.current_key = NO_KEY
        self.generation += 1
        self._current = None
        self._body = body
        self._hint = None

    def set_timer_hint(self, event_ms: int | None, processing_ms: int | None) -> None:
        """What `next_timer_ms` says while the body is not decoded. After `restore`; without
        it `next_timer_ms` has to decode the body, since a timer must never be missed."""
        self._hint = (event_ms, processing_ms)

    def table(self, name: str, kind: str) -> StateTable:
        self._register(name, kind)
        tables = self._group().tables
        table = tables.get(name)
        if table is None:
            table = tables[name] = StateTable(name, kind)
        elif table.kind != kind:
            raise self._other_kind(name, kind, f"it was written as {table.kind} state")
        return table

    def timers(self, service: str) -> TimerQueue:
        queues = self._group().timers
        queue = queues.get(service)
        if queue is None:
            queue = queues[service] = TimerQueue()
        return queue

    def partitioned_state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        name, kind = descriptor.name, descriptor.kind
        self._register(name, kind)
        self._descriptors[name] = descriptor
        if descriptor.ttl_config is None:
            self._policies.pop(name, None)
            return cast(State, self._plain_state(descriptor, namespace))
        policy = self._policies[name] = TtlPolicy.of(descriptor.ttl_config, self._processing_time_ms)
        return self._expiring_state(descriptor, namespace, policy)

    @property
    def declared(self) -> dict[str, tuple[str, StateDescriptor | None]]:
        """State name -> kind and, if user code has asked for the state, its descriptor. Names are never taken back."""
        return {name: (kind, self._descriptors.get(name)) for name, kind in self._kinds.items()}

    def next_timer_ms(self) -> tuple[int | None, int | None]:
        if self._current is None and self._hint is not None:
            return self._hint
        queues = self._group().timers.values()
        return _earliest(queues, TimeDomain.EVENT_TIME), _earliest(queues, TimeDomain.PROCESSING_TIME)

    def changed(self) -> bool:
        group = self._current
        if group is None:
            return False
        return any(table.changed for table in group.tables.values()) or any(q.changed for q in group.timers.values())

    def changed_keys(self) -> dict[str, set[tuple[Hashable, Any]]]:
        if self._current is None:
            return {}
        changes = {name: keys for name, table in self._current.tables.items() if (keys := table.changed_keys())}
        timers = set().union(*(queue.changed_keys() for queue in self._current.timers.values()))
        return changes | {TIMERS_NAME: timers} if timers else changes

    def snapshot(self) -> bytes | None:
        group = self._current
        if group is None:
            return self._body
        self._purge(group)
        if self.recording:
            self._recorded = list(keyed_changes(self.uid, group.tables, group.timers))
        body = encode_body(group.tables, group.timers, self._where(), self._classes)
        for table in group.tables.values():
            table.forget_changes()
            table.prune()
        for queue in group.timers.values():
            queue.forget_changes()
        return body

    def take_changes(self) -> list[Change]:
        """What the last `snapshot` has written that was not in the one before; only while ``recording``."""
        changes, self._recorded = self._recorded, []
        return changes

    def _purge(self, group: _Decoded) -> None:
        """Remove what is expired, and the times of states that no longer expire: they would be wrong later."""
        for name in self._kinds:
            times = group.tables.get(TTL_PREFIX + name)
            if times is None:
                continue
            policy = self._policies.get(name)
            if policy is None:
                for namespace in times.namespaces():
                    times.drop(namespace)
            elif policy.purge:
                purge_expired(group.tables[name], times, policy)

    def _group(self) -> _Decoded:
        """All state, decoded if need be."""
        if self._current is None:
            self._current = _Decoded(*decode_body(self._body, self._where(), self._classes))
            self._body = None
        return self._current

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

    def _plain_state(self, descriptor: StateDescriptor, namespace: Hashable) -> Any:
        name = descriptor.name
        if isinstance(descriptor, ReducingStateDescriptor):
            return HeapReducingState(self, name, namespace, descriptor.get_reduce_function().reduce)
        if isinstance(descriptor, AggregatingStateDescriptor):
            return HeapAggregatingState(self, name, namespace, descriptor.get_agg_function())
        if descriptor.kind == "list":
            return HeapListState(self, name, namespace)
        if descriptor.kind == "map":
            return HeapMapState(self, name, namespace)
        return HeapValueState(self, name, namespace, descriptor)

    def _expiring_state(self, descriptor: StateDescriptor, namespace: Hashable, policy: TtlPolicy) -> State:
        state = self._plain_state(descriptor, namespace)
        times = TTL_PREFIX + descriptor.name
        if descriptor.kind == "list":
            return TtlListState(state, HeapListState(self, times, namespace), policy)
        if descriptor.kind == "map":
            return TtlMapState(state, HeapMapState(self, times, namespace), policy)
        time_state = HeapValueState(self, times, namespace)
        if descriptor.kind == "reducing":
            return TtlReducingState(state, time_state, policy)
        if descriptor.kind == "aggregating":
            return TtlAggregatingState(state, time_state, policy)
        return TtlValueState(state, time_state, policy)


def _earliest(queues: Any, domain: TimeDomain) -> int | None:
    return min((first for queue in queues if (first := queue.next(domain)) is not None), default=None)
