"""The shards of a Kinesis source: its settings, and how shards are found, planned and read.

A position is the sequence number of the last record that was read, plus one; 0 is the beginning of a shard. Kinesis
does not say how far a shard goes, so the enumerator reads ahead of the plan, and each record is read twice, which is
what a shard allows at its highest rate of writing.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from flinkish.common.no_effect import warn_without_effect
from flinkish.connectors.kinesis.client import (
    ExpiredIteratorError,
    KinesisClient,
    Read,
    Schema,
    check_properties,
    decoded,
    user_records,
)
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitRange, SplitReader, SplitRecords, UnitCost
from flinkish.errors import ConfigurationError, FinalOperationError, InternalError

_INITIAL = "flink.stream.initpos"
_INITIAL_TIME, _TIME_FORMAT = "flink.stream.initpos.timestamp", "flink.stream.initpos.timestamp.format"
_DISCOVERY_MS = "flink.shard.discovery.intervalmillis"
_MAX_RECORDS, _PAUSE_MS = "flink.shard.getrecords.maxrecordcount", "flink.shard.getrecords.intervalmillis"
#: Property -> its default, all as in Flink.
_NUMBERS = {_DISCOVERY_MS: 10_000, _MAX_RECORDS: 10_000, _PAUSE_MS: 200}
_PUBLISHER = "flink.stream.recordpublisher"
_KNOWN = frozenset((_INITIAL, _INITIAL_TIME, _TIME_FORMAT, _PUBLISHER, *_NUMBERS))
#: AWS's limit for one request.
_MAX_RECORDS_ALLOWED = 10_000

#: The enumerator reads ahead of the plan by so many records of a shard, or bytes, at most.
_AHEAD_RECORDS, _AHEAD_BYTES = 40_000, 64 * 1024 * 1024
#: Shards that are asked at the same time.
_AT_ONCE = 8
#: So many answers without a record say that a record which was there before is gone.
_EMPTY_ANSWERS = 50


@dataclass(frozen=True)
class KinesisSettings:
    """The settings of a source. ``properties`` are those of Flink's connector."""

    streams: tuple[str, ...]
    deserializer: Schema
    properties: dict[str, str] = field(repr=False)

    @property
    def label(self) -> str:
        """The source as messages name it."""
        return f"FlinkKinesisConsumer of {', '.join(self.streams)}"

    def number(self, name: str) -> int:
        """The value of a property that is a whole number.

        Raises:
            ConfigurationError: it is none, or it is below 1.
        """
        text = self.properties.get(name, str(_NUMBERS[name]))
        if not text.strip().isdigit() or not int(text):
            raise ConfigurationError(f"{name} is {text!r}", where=self.label, expected="a whole number, 1 or more")
        return int(text)

    @property
    def initial(self) -> str:
        """Where a stream that was never read begins: LATEST, TRIM_HORIZON or AT_TIMESTAMP."""
        found = self.properties.get(_INITIAL, "LATEST").strip().upper()
        if found not in ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"):
            raise ConfigurationError(
                f"{_INITIAL} is {found!r}", where=self.label, expected="LATEST, TRIM_HORIZON or AT_TIMESTAMP"
            )
        return found

    @property
    def initial_ms(self) -> int | None:
        """The time of AT_TIMESTAMP in ms since the Unix epoch; None for other beginnings."""
        if self.initial != "AT_TIMESTAMP":
            return None
        text = self.properties.get(_INITIAL_TIME, "")
        try:
            return round(float(text) * 1000)
        except ValueError:
            pass
        if _TIME_FORMAT in self.properties:
            raise ConfigurationError(
                f"{_TIME_FORMAT} is a pattern of Java", where=self.label, expected="a time in seconds or of ISO 8601"
            )
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise ConfigurationError(
                f"{_INITIAL_TIME} is {text!r}",
                where=self.label,
                expected="seconds since the Unix epoch, or a time of ISO 8601 such as 2026-11-26T10:00:00+00:00",
            ) from None
        return round((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() * 1000)

    def client(self) -> KinesisClient:
        """A new client."""
        return KinesisClient(self.properties, self.label)

    def check(self) -> None:
        """Raise ConfigurationError for a property that is unknown or cannot be read."""
        check_properties(self.properties, _KNOWN, self.label)
        self.initial_ms  # noqa: B018 - it raises
        for name in _NUMBERS:
            self.number(name)
        if self.number(_MAX_RECORDS) > _MAX_RECORDS_ALLOWED:
            raise ConfigurationError(
                f"{_MAX_RECORDS} is {self.number(_MAX_RECORDS)}", where=self.label, expected=f"{_MAX_RECORDS_ALLOWED}"
            )
        if self.properties.get(_PUBLISHER, "POLLING").upper() != "POLLING":
            warn_without_effect(_PUBLISHER, "records are polled; there is no enhanced fan-out here")


def stream_and_shard(split_id: str) -> tuple[str, str]:
    """The stream and the shard of a split.

    >>> stream_and_shard("clicks/shardId-000000000000")
    ('clicks', 'shardId-000000000000')
    """
    stream, _, shard = split_id.partition("/")
    return stream, shard


def _split_id(stream: str, shard: str) -> str:
    return f"{stream}/{shard}"


class _Ahead:
    """What the enumerator has read of a shard ahead of the plan."""

    def __init__(self, position: int, at_ms: int | None) -> None:
        #: behind which records reading goes on, and by which iterator
        self.position, self.at_ms = position, at_ms
        self.iterator: str | None = None
        #: the positions behind the records, and their sizes in bytes
        self.positions: list[int] = []
        self.sizes: list[int] = []
        self.is_closed = self.is_newest = False
        self.next_read_s = 0.0

    def forget(self, position: int) -> None:
        """Drop the records before a position."""
        count = bisect_right(self.positions, position)
        del self.positions[:count], self.sizes[:count]

    @property
    def is_full(self) -> bool:
        return len(self.positions) >= _AHEAD_RECORDS or sum(self.sizes) >= _AHEAD_BYTES


class KinesisSplitEnumerator(SplitEnumerator):
    """Discovers the shards of a source, each of which is a split, and reads ahead of the plan to know how far it goes.

    A shard that was not there when the source began is read when those that it comes from have been read to their ends.

    Args:
        restored: the splits that are known already; one that has ended has no info.
    """

    def __init__(self, settings: KinesisSettings, restored: Sequence[SourceSplit]) -> None:
        self._settings = settings
        self._opened: KinesisClient | None = None
        self._pause_s = settings.number(_PAUSE_MS) / 1000
        self._ahead: dict[str, _Ahead] = {}
        #: the splits that have ended, and those that the last plan has asked for
        self._ended = {split.id for split in restored if split.info is None}
        self._asked: set[str] = set()
        self._is_planned = False
        self._frozen_ms: float | None = None
        self._look_again_at = 0.0

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        if self._is_planned:
            # a split that was read to its end is not asked for any more
            self._ended.update(name for name in self._ahead if self._ahead[name].is_closed and name not in self._asked)
            for name in self._ended & self._ahead.keys():
                del self._ahead[name]
        self._asked, self._is_planned = set(), False
        self._read_ahead(list(self._ahead))
        now = time.monotonic()
        if now < self._look_again_at:
            return ()
        self._look_again_at = now + self._settings.number(_DISCOVERY_MS) / 1000
        return [split for stream in self._settings.streams for split in self._new_splits(stream, known)]

    def snapshot_state(self) -> Any:
        self._is_planned = True
        return None

    def _new_splits(self, stream: str, known: Collection[str]) -> Iterator[SourceSplit]:
        shards, now_ms = self._client.shards(stream)
        listed = {shard.id for shard in shards}
        first = not any(stream_and_shard(name)[0] == stream for name in known)
        initial = self._settings.initial
        at_ms = now_ms if initial == "LATEST" else self._settings.initial_ms
        found = {name for name in known if stream_and_shard(name)[0] == stream}
        for shard in shards:
            name = _split_id(stream, shard.id)
            # the parents that are not known were not there when the source began
            parents = [parent for parent in (_split_id(stream, one) for one in shard.parents) if parent in found]
            if name in found:
                continue
            if parents:
                # a shard without records would hold the watermark back until it is read, which only matters while
                # others come; where none do, the job must know of all shards, to end behind the last of them
                is_new = self._frozen_ms is not None or self._ended.issuperset(parents)
            else:
                is_new = first and (shard.is_open if initial == "LATEST" else not listed.intersection(shard.parents))
            if is_new:
                found.add(name)
                begins_ms = at_ms if not parents or initial == "AT_TIMESTAMP" else None
                hashes = [str(shard.first_hash), str(shard.last_hash)]
                yield SourceSplit(name, info={"at_ms": begins_ms, "hashes": hashes, "parents": parents})

    @property
    def complete(self) -> bool:
        return False

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        # splits are asked for in the order in which they were found: a parent that has not ended was asked for before
        blocked = not self._asked.isdisjoint(split.info["parents"])
        self._asked.add(split.id)
        if blocked:
            return position, False
        ahead = self._ahead.get(split.id)
        if ahead is None:
            ahead = self._ahead[split.id] = _Ahead(position, split.info["at_ms"])
            self._read_ahead([split.id])
        ahead.forget(position)
        while self._frozen_ms is not None and not (ahead.positions or ahead.is_newest or ahead.is_closed):
            # a job that ends with what is there must not end before all of it is known
            time.sleep(max(ahead.next_read_s - time.monotonic(), 0.0))
            self._read_ahead([split.id])
        return (ahead.positions[-1] if ahead.positions else position), ahead.is_closed

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        ahead = self._ahead.get(split.id)
        if ahead is None or not ahead.positions:
            return UnitCost(1.0, 0.0)
        units = ahead.positions[-1] - position
        return UnitCost(len(ahead.positions) / units, sum(ahead.sizes) / units)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        """The position behind the record at or after ``stop``: only where there was a record can reading go on."""
        positions = self._ahead[split.id].positions
        return positions[bisect_left(positions, stop)]

    def freeze(self) -> None:
        self._frozen_ms = time.time() * 1000
        for ahead in self._ahead.values():
            ahead.is_newest = False

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _client(self) -> KinesisClient:
        if self._opened is None:
            self._opened = self._settings.client()
        return self._opened

    def _read_ahead(self, names: list[str]) -> None:
        """Read on in these shards, as far as the plan may need it and AWS allows it."""
        now = time.monotonic()
        due = [
            name
            for name in names
            if not (ahead := self._ahead[name]).is_closed
            and not ahead.is_full
            and ahead.next_read_s <= now
            and not (self._frozen_ms is not None and ahead.is_newest)
        ]
        client = self._client
        if len(due) == 1:
            self._read_one(client, due[0])
        elif due:
            with ThreadPoolExecutor(min(_AT_ONCE, len(due))) as pool:
                list(pool.map(lambda name: self._read_one(client, name), due))

    def _read_one(self, client: KinesisClient, name: str) -> None:
        ahead, place = self._ahead[name], stream_and_shard(name)
        found, ahead.iterator = _read(client, place, ahead.iterator, ahead.position, ahead.at_ms, self._limit)
        ahead.is_closed, ahead.is_newest = found.iterator is None, found.is_newest
        ahead.next_read_s = time.monotonic() + self._pause_s
        for record in found.records:
            if (
                self._frozen_ms is not None
                and record["ApproximateArrivalTimestamp"].timestamp() * 1000 > self._frozen_ms
            ):
                ahead.is_newest, ahead.is_closed = True, False
                break
            ahead.position = int(record["SequenceNumber"]) + 1
            ahead.positions.append(ahead.position)
            ahead.sizes.append(len(record["Data"]))

    @property
    def _limit(self) -> int:
        return self._settings.number(_MAX_RECORDS)


def _read(
    client: KinesisClient,
    place: tuple[str, str],
    iterator: str | None,
    position: int,
    at_ms: int | None,
    limit: int,
) -> tuple[Read, str | None]:
    """Read on with an iterator, or, if there is none or it has expired, behind the position; returns what was read, and
    the iterator that goes on."""
    if iterator is None:
        iterator = client.iterator(*place, position, at_ms)
    try:
        found = client.read(iterator, limit)
    except ExpiredIteratorError:
        found = client.read(client.iterator(*place, position, at_ms), limit)
    return found, found.iterator


class KinesisSplitReader(SplitReader):
    """Reads ranges of shards, in requests of at most ``flink.shard.getrecords.maxrecordcount`` records."""

    def __init__(self, settings: KinesisSettings) -> None:
        self._settings = settings
        self._opened: KinesisClient | None = None

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        if wanted.stop is None:
            raise InternalError(f"the range {wanted} of a shard has no end", where=self._settings.label)
        if self._opened is None:
            self._opened = self._settings.client()
        (stream, shard), info = stream_and_shard(wanted.split.id), wanted.split.info
        first_hash, last_hash = map(int, info["hashes"])
        limit = self._settings.number(_MAX_RECORDS)
        position, iterator, empty = wanted.start, None, 0
        while position < wanted.stop:
            found, iterator = _read(self._opened, (stream, shard), iterator, position, info["at_ms"], limit)
            stored = [one for one in found.records if int(one["SequenceNumber"]) < wanted.stop]
            empty = 0 if stored else empty + 1
            if stored:
                position = int(stored[-1]["SequenceNumber"]) + 1
            elif found.records or iterator is None or empty >= _EMPTY_ANSWERS:
                raise self._gone(stream, shard, wanted)
            records = iter(user_records(stored, first_hash, last_hash))
            while batch := list(islice(records, batch_size)):
                yield decoded(self._settings.deserializer, batch, stream, shard, self.with_timestamps)
            if position < wanted.stop:
                # a shard may be asked five times a second
                time.sleep(self._settings.number(_PAUSE_MS) / 1000)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _gone(self, stream: str, shard: str, wanted: SplitRange) -> FinalOperationError:
        return FinalOperationError(
            f"records of stream {stream}, {shard} that the epoch was planned with are not there any more: sequence "
            f"numbers {wanted.start} to {(wanted.stop or 1) - 1}",
            where=self._settings.label,
            expected="records that are kept until they are read",
            hint="a longer retention of the stream; start the job in a new job directory, from a later position",
        )
