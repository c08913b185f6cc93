"""Flink's ``HybridSource``: bounded sources one after the other, then a last one that may be unbounded.

Rule: the next source begins when all splits of the one before have been read to their ends. The positions in the
query's offset log decide that, so the switch comes at the same place in every replay and after a restart.

Each source is a stage, numbered from 0. The splits of stage 2 have the ids ``2:<the source's own split id>``.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.source import (
    Source,
    SourcePosition,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
)
from flinkish.errors import ProgramError
from flinkish.storage.paths import NameForm
from flinkish.storage.sealed import typed

_WHERE = "HybridSource"
#: The ids of splits.
_STAGE = NameForm(r"[0-9]{1,9}:(?s:.*)")


class HybridSource(SplitSource):
    """Reads several sources one after the other: each of them to its end before the next one begins. All but the last
    one are bounded, and all have records of the same type.

    Made by ``HybridSource.builder(first).add_source(second).build()``.
    """

    def __init__(self, sources: Sequence[SplitSource]) -> None:
        self._sources = tuple(sources)

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """A builder whose first source is ``first_source``.

        Raises:
            TypeError: ``first_source`` is no source.
            ProgramError: the source is read by Spark, so that flinkish cannot tell when it is at its end; or it is a
                hybrid source itself.
        """
        return HybridSourceBuilder(first_source)

    @property
    def bounded(self) -> bool:
        return self._sources[-1].bounded

    @property
    def produced_type(self) -> TypeInformation:
        return self._sources[0].produced_type

    @property
    def stages(self) -> int:
        return len(self._sources)

    @property
    def side_by_side(self) -> bool:
        return self._sources[0].side_by_side

    def stage_of(self, split_id: str) -> tuple[int, bool]:
        stage, _ = _parts(split_id)
        return stage, self._sources[stage].side_by_side

    def subtask_of(self, split_id: str, parallelism: int) -> int | None:
        stage, name = _parts(split_id)
        return self._sources[stage].subtask_of(name, parallelism)

    def declared_splits(self) -> tuple[str, ...]:
        """The declared splits of the first source; the later sources are not asked for theirs before they begin."""
        return tuple(_name(0, split) for split in self._sources[0].declared_splits())

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return _HybridEnumerator(self._sources, restored)

    def create_reader(self) -> SplitReader:
        return _HybridReader(self._sources)

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        for stage, source in enumerate(self._sources):
            own = dict(_of_stage(positions, stage))
            if own:
                source.acknowledge(own)

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        parts = _positions_of_stages(position, len(self._sources))
        for stage, (source, part) in enumerate(zip(self._sources, parts)):
            now = source.check_continuation(part, _of_stage(known, stage))
            found.update({_name(stage, key): value for key, value in now.items()})
        return found


class HybridSourceBuilder:
    """Builder of :class:`HybridSource`."""

    def __init__(self, first_source: Source) -> None:
        self._sources = [_checked(first_source)]

    def add_source(self, source: Source) -> HybridSourceBuilder:
        """Add a source, which is read when the one before is at its end.

        Raises:
            TypeError: ``source`` is no source.
            ProgramError: the source before is unbounded, the types of the records differ, or ``source`` is read by
                Spark or is a hybrid source itself.
        """
        before, after = self._sources[-1], _checked(source)
        if not before.bounded:
            raise ProgramError(
                f"source {len(self._sources)} has no end, and another one follows it",
                where=_WHERE,
                expected="sources with an end; only the last one may have none",
                hint="KafkaSource.builder().set_bounded(...) gives one of Kafka an end",
            )
        if before.produced_type != after.produced_type:
            raise ProgramError(
                f"source {len(self._sources) + 1} has records of type {after.produced_type}, those before of type"
                f" {before.produced_type}",
                where=_WHERE,
                expected="one type of records",
                hint="give all of them a format or deserializer of the same type",
            )
        self._sources.append(after)
        return self

    def build(self) -> HybridSource:
        """The hybrid source of the sources added so far."""
        return HybridSource(self._sources)


def _checked(source: Any) -> SplitSource:
    if not isinstance(source, Source):
        raise TypeError(f"the source is {source!r}; expected a Source")
    if not isinstance(source, SplitSource):
        raise ProgramError(
            f"a {type(source).__name__} is read by Spark",
            where=_WHERE,
            expected="sources that flinkish reads: files, Kafka, generated ones, or one's own",
            hint="unite the streams of the two sources instead",
        )
    if source.stages > 1:
        raise ProgramError("a hybrid source is a part of another one", where=_WHERE, hint="add its sources one by one")
    return source


def _name(stage: int, name: str) -> str:
    return f"{stage}:{name}"


def _parts(split_id: str) -> tuple[int, str]:
    stage, _, name = split_id.partition(":")
    return int(stage), name


def _of_stage(values: Mapping[str, Any], stage: int) -> dict[str, Any]:
    parts = {_parts(key): value for key, value in values.items()}
    return {name: value for (number, name), value in parts.items() if number == stage}


def _inner(split: SourceSplit) -> SourceSplit:
    return replace(split, id=_parts(split.id)[1])


def _positions_of_stages(position: str | None, stages: int) -> list[str | None]:
    """The parts of a savepoint's position (JSON) that belong to each stage; None for one that has not begun.

    Raises:
        SavepointError: the text is no position of a source with so many stages.
    """
    if position is None:
        return [None] * stages
    found = SourcePosition.decode(position, _WHERE)
    try:
        state = _State(0, None) if found.state is None else typed(_State, found.state)
        for name in (*found.ended, *found.known, *(split[0] for split in found.splits)):
            _STAGE.checked(name)
        ended = list(map(_parts, found.ended))
        splits = [(*_parts(name), rest) for name, *rest in found.splits]
        last = max([state.stage, *(stage for stage, _ in ended), *(stage for stage, *_ in splits)])
        if not 0 <= state.stage <= last < stages:
            raise ValueError(f"it knows the sources 0 to {last}, and the program has {stages}")
    except ValueError as error:
        raise SourcePosition.refusal(position, _WHERE, error) from None
    parts: list[str | None] = []
    for stage in range(stages):
        own = replace(
            found,
            ended=[name for number, name in ended if number == stage],
            splits=[(name, *rest) for number, name, rest in splits if number == stage],
            known=_of_stage(found.known, stage),
            state=state.state if state.stage == stage else None,
        )
        parts.append(json.dumps(vars(own)) if own.ended or own.splits or own.state is not None else None)
    return parts


@dataclass(frozen=True)
class _State:
    """The state of the enumerator: the number of the current stage, and the state of its enumerator."""

    stage: int
    state: Any


class _HybridEnumerator(SplitEnumerator):
    """Delegates to the enumerator of the current stage, and begins the next stage when all splits of the current one
    have ended."""

    def __init__(self, sources: Sequence[SplitSource], restored: Sequence[SourceSplit]) -> None:
        self._sources = sources
        self._restored = restored
        self._directory = ""
        self._states: dict[str, Any] = {}
        self._stage = max((_parts(split.id)[0] for split in restored), default=0)
        self._current: SplitEnumerator | None = None
        self._frozen = False
        #: number of splits of the stages before the current one
        self._before = sum(_parts(split.id)[0] < self._stage for split in restored)
        #: (number of splits of all stages that have ended, the epoch that was planned when this was reported)
        self._ended = (0, 0)

    def start(self, context: SplitEnumeratorContext) -> None:
        self._directory = context.directory
        self._states = context.state or {}
        self._stage = max(self._stage, self._states.get("stage", 0))

    def snapshot_state(self) -> Any:
        return {"stage": self._stage, "state": self._enumerator().snapshot_state()}

    @property
    def complete(self) -> bool:
        return self._stage + 1 == len(self._sources) and self._enumerator().complete

    def splits_ended(self, count: int, epoch: int) -> None:
        self._ended = (count, epoch)

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        while True:
            own = {name for stage, name in map(_parts, known) if stage == self._stage}
            count, epoch = self._ended
            enumerator = self._enumerator()
            enumerator.splits_ended(max(0, count - self._before), epoch)
            found = enumerator.discover(own)
            if found or not enumerator.complete or count < len(known) or self._stage + 1 == len(self._sources):
                return [replace(split, id=_name(self._stage, split.id)) for split in found]
            enumerator.close()
            self._stage, self._current, self._before = self._stage + 1, None, len(known)

    def expect(self, splits: Sequence[SourceSplit]) -> None:
        self._enumerator().expect(list(map(_inner, splits)))

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        return self._enumerator().end_of(_inner(split), position)

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return self._enumerator().cost(_inner(split), position)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        return self._enumerator().cut(_inner(split), start, stop)

    def freeze(self) -> None:
        self._frozen = True
        self._enumerator().freeze()

    def close(self) -> None:
        if self._current is not None:
            self._current.close()

    def _enumerator(self) -> SplitEnumerator:
        if self._current is None:
            own = [_inner(split) for split in self._restored if _parts(split.id)[0] == self._stage]
            state = self._states.get("state") if self._states.get("stage") == self._stage else None
            self._current = self._sources[self._stage].create_enumerator(own)
            self._current.start(SplitEnumeratorContext(posixpath.join(self._directory, str(self._stage)), state))
            if self._frozen:
                self._current.freeze()
        return self._current


class _HybridReader(SplitReader):
    """Delegates to a reader of the stage whose splits are read in the epoch."""

    def __init__(self, sources: Sequence[SplitSource]) -> None:
        self._sources = sources
        self._stage = -1
        self._current: SplitReader | None = None

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        stage = _parts(ranges[0].split.id)[0]
        if stage != self._stage:
            self.close()
            self._stage, self._current = stage, self._sources[stage].create_reader()
            self._current.max_record_bytes = self.max_record_bytes
            self._current.with_timestamps = self.with_timestamps
        assert self._current is not None
        self._current.open([replace(wanted, split=_inner(wanted.split)) for wanted in ranges], batch_size)

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        assert self._current is not None
        return self._current.read(replace(wanted, split=_inner(wanted.split)), batch_size)

    def place_of(self, split: str, first: int, last: int) -> str:
        assert self._current is not None
        return self._current.place_of(_parts(split)[1], first, last)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
