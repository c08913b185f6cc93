"""Partitioners (Flink's StreamPartitioner) decide to which subtasks of the receiver each record of a stream goes.

A partitioner is a small frozen value that travels with the job graph. ``bind`` makes its working form for one sender,
``spread(values, timestamps, buckets)``, which puts the records of a batch into one bucket per subtask.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from flinkish.common.arguments import abbreviated, name_of
from flinkish.errors import InvalidKeyError, ProgramError, TypeMismatchError
from flinkish.runtime.exchange.buffer import ColumnSlices
from flinkish.runtime.exchange.keys import (
    KeyCache,
    Repetition,
    frozen,
    plain_selector,
    selected,
    thawed,
    unhashable_key,
)


class Bucket:
    """Collects the records for one subtask, and the events between them with their positions (see `Elements`)."""

    __slots__ = ("append", "append_key", "append_timestamp", "events", "keys", "positions", "timestamps", "values")

    def __init__(self) -> None:
        #: a list, or `ColumnSlices`
        self.values: Any = []
        self.timestamps: list[int] = []
        self.positions: list[int] = []
        self.events: list[int | bool] = []
        self.append = self.values.append
        self.append_timestamp = self.timestamps.append
        #: the keys of the records, if they travel with them
        self.keys: list[Any] = []
        self.append_key = self.keys.append

    def extend(self, values: Any, timestamps: list[int] | None) -> None:
        """Append a whole batch."""
        self.values.extend(values)
        if timestamps is not None:
            self.timestamps.extend(timestamps)

    def add_status(self, idle: bool) -> None:
        """Append an event that says that the stream is idle, or active, from here on."""
        self.positions.append(len(self.values))
        self.events.append(idle)

    def take_columns(self) -> None:
        """Collect batches of columns from now on."""
        self.values = ColumnSlices()

    def clear(self) -> None:
        """Empty the lists but keep them, since key caches hold their bound ``append`` methods."""
        self.values.clear()
        self.timestamps.clear()
        self.keys.clear()
        self.positions.clear()
        self.events.clear()


class Spread(Protocol):
    """The working form of a partitioner."""

    def __call__(self, values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
        """Put each record into the bucket(s) of its subtask(s)."""


@dataclass(frozen=True)
class Sender:
    """The sending subtask of an edge, its parallelism, and that of the receiver; ``where`` names the operator in
    errors.

    ``turn`` differs between epochs and between origins, and is the same if an epoch is run again.
    """

    subtask: int
    parallelism: int
    target_parallelism: int
    where: str
    turn: int = 0


class Partitioner(ABC):
    """The base class of all partitioners."""

    #: name in execution plans, as in Flink (FORWARD, HASH, REBALANCE, ...)
    ship_strategy: str

    #: whether the working form keeps a position from batch to batch; one is then bound for each epoch and origin, since
    #: an epoch that is run again, perhaps elsewhere, must send each record to the same subtask
    stateful: ClassVar[bool] = False

    @property
    def pointwise(self) -> bool:
        """Whether a sender sends only to some subtasks of the receiver."""
        return False

    @abstractmethod
    def bind(self, sender: Sender) -> Spread:
        """Make the working form for one sender."""


def reachable(partitioner: Partitioner, sender: Sender) -> Sequence[int]:
    """The subtasks of the receiver that a sender sends to; with a pointwise partitioner these are only some."""
    if not partitioner.pointwise:
        return range(sender.target_parallelism)
    probe = [Bucket() for _ in range(sender.target_parallelism)]
    partitioner.bind(sender)([None] * sender.target_parallelism, None, probe)
    return [index for index, bucket in enumerate(probe) if bucket.values]


@dataclass(frozen=True)
class ForwardPartitioner(Partitioner):
    """Sends to the subtask with the index of the sender, modulo the receiver's parallelism."""

    ship_strategy = "FORWARD"

    @property
    def pointwise(self) -> bool:
        return True

    def bind(self, sender: Sender) -> Spread:
        target = sender.subtask % sender.target_parallelism

        def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            buckets[target].extend(values, timestamps)

        return spread


@dataclass(frozen=True)
class GlobalPartitioner(Partitioner):
    """Sends everything to the first subtask."""

    ship_strategy = "GLOBAL"

    def bind(self, sender: Sender) -> Spread:
        def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            buckets[0].extend(values, timestamps)

        return spread


@dataclass(frozen=True)
class BroadcastPartitioner(Partitioner):
    """Sends every record to every subtask."""

    ship_strategy = "BROADCAST"

    def bind(self, sender: Sender) -> Spread:
        def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            for bucket in buckets:
                bucket.extend(values, timestamps)

        return spread


def _round_robin(targets: range, first: int) -> Spread:
    """Distribute record by record over ``targets``; the position is kept from batch to batch."""
    position = first % len(targets)

    def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
        nonlocal position
        count = len(targets)
        for offset in range(min(count, len(values))):
            share = None if timestamps is None else timestamps[offset::count]
            buckets[targets[(position + offset) % count]].extend(values[offset::count], share)
        position = (position + len(values)) % count

    return spread


@dataclass(frozen=True)
class RebalancePartitioner(Partitioner):
    """Sends round-robin to all subtasks, starting at one that follows from the sender's index and ``turn``, so that a
    replay does the same; in Flink the start is random."""

    ship_strategy = "REBALANCE"
    stateful = True

    def bind(self, sender: Sender) -> Spread:
        return _round_robin(range(sender.target_parallelism), sender.subtask + sender.turn)


@dataclass(frozen=True)
class RescalePartitioner(Partitioner):
    """Sends round-robin to the share of subtasks that belongs to the sender."""

    ship_strategy = "RESCALE"
    stateful = True

    @property
    def pointwise(self) -> bool:
        return True

    def bind(self, sender: Sender) -> Spread:
        if sender.parallelism >= sender.target_parallelism:
            target = sender.subtask * sender.target_parallelism // sender.parallelism
            return _round_robin(range(target, target + 1), 0)
        first = sender.subtask * sender.target_parallelism // sender.parallelism
        end = (sender.subtask + 1) * sender.target_parallelism // sender.parallelism
        return _round_robin(range(first, end), sender.turn)


@dataclass(frozen=True)
class ShufflePartitioner(Partitioner):
    """Sends to subtasks chosen uniformly at random, with a fixed seed, so that a replayed epoch does the same."""

    ship_strategy = "SHUFFLE"
    stateful = True
    seed: int = 0

    def bind(self, sender: Sender) -> Spread:
        choose = random.Random(f"{self.seed}/{sender.subtask}/{sender.turn}")

        def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            _spread_by_index(
                choose.choices(range(sender.target_parallelism), k=len(values)), values, timestamps, buckets
            )

        return spread


@dataclass(frozen=True)
class KeyGroupPartitioner(Partitioner):
    """Sends to the subtask that owns the key group of the record's key. ``keyed``: the receiver needs the keys, which
    travel with the records unless it can find them itself (`flinkish.runtime.exchange.keys.Repetition`)."""

    key_selector: Callable[[Any], Any]
    max_parallelism: int
    keyed: bool = False
    ship_strategy = "HASH"

    def bind(self, sender: Sender) -> Spread:
        # the keys of columns (`column_keys.ColumnKeys`) are computed by the batch
        spread = getattr(self.key_selector, "spread_columns", None)
        return KeyGroupSpread(self, sender) if spread is None else spread(self.max_parallelism, sender)


class KeyGroupSpread:
    """The working form of `KeyGroupPartitioner`, which is the hottest loop of a sender: it takes one dictionary look-up
    and one ``append`` per record."""

    def __init__(self, partitioner: KeyGroupPartitioner, sender: Sender) -> None:
        self._selector = partitioner.key_selector
        self._repetition = Repetition(self._selector) if partitioner.keyed else None
        #: whether the keys travel with the records; the writer switches it on, for the rest of an epoch
        self.sends_keys = False
        self._parallelism = sender.target_parallelism
        self._max_parallelism = partitioner.max_parallelism
        self._where = sender.where
        self._bound_to: list[Bucket] | None = None
        self._bind([])

    def must_send_keys(self, values: list[Any]) -> bool:
        """Whether the keys must travel with these records, and do not do so yet."""
        return not self.sends_keys and self._repetition is not None and not self._repetition.holds_for(values)

    def _bind(self, buckets: list[Bucket]) -> None:
        """Make the caches for one list of buckets: they hold the buckets or their ``append`` methods, not indices."""
        self._bound_to = buckets
        self._appends = KeyCache(self._parallelism, self._max_parallelism, lambda subtask: buckets[subtask].append)
        self._buckets = KeyCache(self._parallelism, self._max_parallelism, lambda subtask: buckets[subtask])

    def __call__(self, values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
        if buckets is not self._bound_to:
            self._bind(buckets)
        try:
            self._spread(values, timestamps)
        except Exception as error:
            raise explained(error, self._selector, values, self._where) from None

    def _spread(self, values: list[Any], timestamps: list[int] | None) -> None:
        keys = selected(self._selector, values, self._where)
        cache = self._appends if timestamps is None and not self.sends_keys else self._buckets
        try:
            targets = cache.places(keys)
        except TypeError:
            # some keys are lists, or tuples with a list in them
            targets = [cache[frozen(key)] for key in keys]
        if self.sends_keys:
            for value, key, bucket in zip(values, keys, targets, strict=True):
                bucket.append(value)
                bucket.append_key(key)
            for timestamp, bucket in zip(timestamps or (), targets):
                bucket.append_timestamp(timestamp)
        elif timestamps is None:
            for value, append in zip(values, targets, strict=True):
                append(value)
        else:
            for value, timestamp, bucket in zip(values, timestamps, targets, strict=True):
                bucket.append(value)
                bucket.append_timestamp(timestamp)


def explained(error: Exception, selector: Callable[[Any], Any], values: list[Any], where: str) -> Exception:
    """The error to raise for one that has occurred while key groups were computed: the selector's own error as it is,
    or a typed error for a value that cannot be a key."""
    where = f"{where}, key selector {name_of(plain_selector(selector))} of key_by()"
    if isinstance(error, (InvalidKeyError, TypeMismatchError)):
        if isinstance(error, TypeMismatchError):
            # which part of the key it is
            where = f"{error.where}, {where}"
        return type(error)(error.what, where=where, expected=error.expected, hint=error.hint)
    if not isinstance(error, (TypeError, ValueError)):
        return error
    for value in values:
        try:
            key = frozen(selector(value))
        except Exception:
            return error
        try:
            hash(key)
        except TypeError:
            return unhashable_key(type(thawed(key)).__name__, where)
    return error


@dataclass(frozen=True)
class CustomPartitioner(Partitioner):
    """Sends to the subtask that the user's function ``partition(key, number of subtasks)`` returns."""

    partition: Callable[[Any, int], int]
    key_selector: Callable[[Any], Any]
    ship_strategy = "CUSTOM"

    def bind(self, sender: Sender) -> Spread:
        def spread(values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            count = sender.target_parallelism
            keys = selected(self.key_selector, values, sender.where)
            targets = [self.partition(key, count) for key in keys]
            for target in targets:
                # __index__: whole numbers, numpy's included
                if not hasattr(target, "__index__") or not 0 <= target < count:
                    raise ProgramError(
                        f"the partitioner returned {abbreviated(target)}",
                        where=f"{sender.where}, partitioner {name_of(self.partition)}",
                        expected=f"a number from 0 to {count - 1}",
                        hint="take it modulo the number of subtasks, which is the second argument",
                    )
            _spread_by_index(targets, values, timestamps, buckets)

        return spread


def _spread_by_index(indices: Any, values: list[Any], timestamps: list[int] | None, buckets: list[Bucket]) -> None:
    if timestamps is None:
        for value, index in zip(values, indices):
            buckets[index].append(value)
    else:
        for value, timestamp, index in zip(values, timestamps, indices):
            bucket = buckets[index]
            bucket.append(value)
            bucket.append_timestamp(timestamp)


@dataclass(frozen=True)
class EdgeDescriptor:
    """An out-edge of an operator, which leads to another vertex."""

    target: int
    input_index: int
    partitioner: Partitioner
    target_parallelism: int
    tag: str | None = None
    #: send a buffer to every subtask in every epoch, even if there never was a watermark (processing-time timers)
    always_call: bool = False
    #: number of the edge, which tells apart several edges between the same two vertices
    edge: int = 0


@dataclass(frozen=True)
class InputDescriptor:
    """An in-edge of a vertex, with the upstream vertex that it comes from."""

    vertex: int
    input_index: int
    #: idle timeout of the sources' watermark strategy; None if there is no idleness detection
    idle_timeout_ms: int | None = None
    #: origins known before the first record; () if unknown
    declared_origins: tuple[str, ...] = ()
    #: the same for each subtask of the receiver, if not every origin reaches every subtask
    declared_by_subtask: tuple[tuple[str, ...], ...] = ()
    #: origins that come before the upstream vertex has ended, at the latest with their own end; until then they do not
    #: hold the watermark back
    awaited_origins: tuple[str, ...] = ()
    #: number of the edge, which tells apart several edges between the same two vertices
    edge: int = 0
    #: the upstream vertex is a source, whose origins are splits
    from_source: bool = True
    #: in each epoch its records come after those of the other inputs, unless watermarks say otherwise
    comes_last: bool = False
    #: the input of the operator whose watermarks the edge belongs to; None: ``input_index``
    watermark_index: int | None = None

    @property
    def valve_index(self) -> int:
        """The input whose watermarks are combined with those of this edge before those of all inputs."""
        return self.input_index if self.watermark_index is None else self.watermark_index

    def expected_origins(self, subtask: int) -> tuple[str, ...]:
        """The origins that will send to this subtask, as far as they are known."""
        return self.declared_by_subtask[subtask] if self.declared_by_subtask else self.declared_origins
