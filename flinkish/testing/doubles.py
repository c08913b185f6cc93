"""What takes the place of the real thing in a test: a source of given records, sinks that keep the committed records,
the output of operators in the form that tests read, the recorder of what passes each operator of a program, and the
error of a planned crash.

Among the records of a source are marks that make something happen at that position:

    TestingSource(StreamRecord("a", 10), Watermark(10), Pause(), "b", CrashOnce(), "c", End())

The marks are part of the data, so that they take effect at the same position in each run, in one process and on Spark:

* a value, or `StreamRecord`: a record, with a timestamp if one is given;
* `Watermark`: the watermark of the split from here on. It counts if the watermark strategy makes none itself
  (``WatermarkStrategy.no_watermarks()``);
* `Pause`: the epoch ends here;
* `CrashOnce`: reading fails here, the first time;
* `End`: the split ends here, and with it event time. A split without it stays open, and has no further records.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from flinkish.common.text import text_writer
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.core.functions import OutputTag
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.core.source import SplitRange, SplitReader, SplitRecords
from flinkish.errors import InternalError, OperationError, ProgramError

__all__ = ["DataStreamTestSinkFunction", "TestingSink"]


class SimulatedCrash(OperationError):
    """Raised where a test lets the job crash. What was not committed is lost, and the job may be restarted."""


class StreamRecord(NamedTuple):
    """A record with its timestamp in ms; None: it has no timestamp."""

    value: Any
    timestamp: int | None = None


@dataclass(frozen=True)
class Watermark:
    """A watermark, in ms of event time."""

    timestamp: int


@dataclass(frozen=True)
class WatermarkStatus:
    """A change of the watermark status: all inputs have become idle, or one is active again."""

    idle: bool


StreamElement = StreamRecord | Watermark | WatermarkStatus


def tag_id(tag: OutputTag | str) -> str:
    """The id of a side output, which may be named by its tag or its id."""
    return tag.tag_id if isinstance(tag, OutputTag) else tag


def stream_records(values: list[Any], timestamps: list[int] | None) -> list[StreamRecord]:
    """The records of a batch. ``timestamps``: parallel to ``values``, in ms; None: no record has a timestamp."""
    if timestamps is None:
        return [StreamRecord(value) for value in values]
    return [StreamRecord(value, timestamp) for value, timestamp in zip(values, timestamps, strict=True)]


class CollectingOutput:
    """The output of an operator under test: keeps all that the operator emits.

    Args:
        listened: the side outputs that somebody listens to; None: all. A record that is emitted to another side output
            is dropped, as in a program.
    """

    def __init__(self, listened: Iterable[OutputTag | str] | None = None) -> None:
        self._listened = None if listened is None else frozenset(map(tag_id, listened))
        self.elements: list[StreamElement] = []
        self.sides: dict[str, list[StreamRecord]] = {}

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch of the main output."""
        self.elements.extend(stream_records(values, timestamps))

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch of a side output, if somebody listens to it."""
        if self.has_side(tag_id):
            self.sides.setdefault(tag_id, []).extend(stream_records(values, timestamps))

    @property
    def has_sides(self) -> bool:
        """Whether anybody listens to any side output."""
        return self._listened is None or bool(self._listened)

    def has_side(self, tag_id: str) -> bool:
        """Whether anybody listens to that tag."""
        return self._listened is None or tag_id in self._listened

    def emit_watermark(self, watermark_ms: int) -> None:
        """Keep a watermark."""
        self.elements.append(Watermark(watermark_ms))

    def emit_interim_watermark(self, watermark_ms: int) -> None:
        """Keep a watermark that the functions of a chain do not see."""
        self.emit_watermark(watermark_ms)

    def later_watermark(self) -> Callable[[int], None]:
        """What keeps a watermark later."""
        return self.emit_watermark

    def emit_status(self, idle: bool) -> None:
        """Keep a change of the watermark status."""
        self.elements.append(WatermarkStatus(idle))


class Passage(Enum):
    """Whether an operator has received records, emitted records, or emitted a watermark."""

    RECEIVED = "received"
    EMITTED = "emitted"
    WATERMARK = "watermark"


class Passed(NamedTuple):
    """A batch of records that an operator has received or emitted, or a watermark that it has emitted.

    Args:
        passage: which of these it is.
        uid, subtask: the operator and its subtask.
        values: the records; empty for a watermark.
        timestamps: in ms, parallel to ``values``; None: no record has a timestamp.
        input_index: for received records, the number of the input, from 0.
        tag_id: for emitted records, the side output; None: the main output.
        watermark_ms: the watermark; None: it is a batch of records.
    """

    passage: Passage
    uid: str
    subtask: int
    values: list[Any]
    timestamps: list[int] | None = None
    input_index: int = 0
    tag_id: str | None = None
    watermark_ms: int | None = None


class Recorder:
    """A listener (`OperatorListener`) that keeps everything. When an epoch runs again, its new records replace those of
    the earlier run."""

    def __init__(self) -> None:
        self._epochs: dict[int, list[Passed]] = {}
        self._current: list[Passed] = []

    def begin_epoch(self, epoch: int) -> None:
        """Begin the recording of an epoch, and drop what was recorded of an earlier run of that epoch."""
        self._current = self._epochs[epoch] = []

    def passed(self, epoch: int | None = None) -> Iterator[Passed]:
        """What was recorded in all epochs, or in one of them, in order."""
        for number in sorted(self._epochs) if epoch is None else [epoch]:
            yield from self._epochs.get(number, ())

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Record a batch that an operator has received; see `OperatorListener`."""
        self._current.append(Passed(Passage.RECEIVED, uid, subtask, values, timestamps, input_index=input_index))

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Record a batch that an operator has emitted; see `OperatorListener`."""
        self._current.append(Passed(Passage.EMITTED, uid, subtask, values, timestamps, tag_id=tag_id))

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Record a watermark that an operator has emitted; see `OperatorListener`."""
        self._current.append(Passed(Passage.WATERMARK, uid, subtask, [], watermark_ms=watermark_ms))


class TestingSink(WriterSink):
    """Keeps the committed records, by (subtask, epoch). An epoch that is committed again must have the same records,
    and counts once. Works only for programs that run in the test's process.

    Example::

        sink = TestingSink()
        with ProgramTestHarness(env, sinks={"alerts": sink}) as harness:
            harness.run()
        assert sink.values == ["alert"]
    """

    __test__ = False
    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def __init__(self) -> None:
        self.commits: dict[tuple[int, int], list[Any]] = {}
        self.contexts: list[CommitContext] = []

    #: a task only writes, and need not have a copy of all that was committed before it
    travels_by_reference = True

    def __deepcopy__(self, memo: dict[int, Any]) -> TestingSink:
        """Itself, for the same reason."""
        return self

    @property
    def values(self) -> list[Any]:
        """All committed records, ordered by epoch and within an epoch by subtask."""
        in_order = sorted(self.commits.items(), key=lambda commit: (commit[0][1], commit[0][0]))
        return [value for _, values in in_order for value in values]

    def create_writer(self) -> SinkWriter:
        return _Writer()

    def create_committer(self) -> Committer:
        return _Committer(self)


class DataStreamTestSinkFunction(TestingSink):
    """The sink of PyFlink's own tests, which tests of users have taken over, too."""

    def __init__(self) -> None:
        super().__init__()
        self._type: TypeInformation | None = None

    def with_input_type(self, input_type: TypeInformation) -> DataStreamTestSinkFunction:
        self._type = input_type
        return self

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        """The records since the last call: the texts of Java's ``toString``; or, with ``is_python_object``, the texts
        of ``str``; or, without ``stringify`` too, the records themselves."""
        values = self.values
        self.clear()
        if not is_python_object:
            return list(map(text_writer(self._type), values))
        return list(map(str, values)) if stringify else values

    def clear(self) -> None:
        """Forget the records so far."""
        self.commits.clear()


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        self._held += values
        return []

    def prepare_commit(self) -> list[Any]:
        held, self._held = self._held, []
        return held


class _Committer(Committer):
    def __init__(self, sink: TestingSink) -> None:
        self._sink = sink

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        values = [value for batch in committables for value in batch]
        self._sink.contexts.append(context)
        place = (context.subtask, context.epoch)
        if place in self._sink.commits:
            if self._sink.commits[place] != values:
                raise InternalError(
                    f"epoch {context.epoch} was committed again with other records",
                    where=f"sink '{context.sink_name}', subtask {context.subtask}",
                    expected=f"{self._sink.commits[place]!r:.500}, not {values!r:.500}",
                    hint="functions must give the same for the same input, state and time",
                )
            return 0
        self._sink.commits[place] = values
        return len(values)


class Pause(NamedTuple):
    """A mark at which the epoch ends; ``epochs`` - 1 epochs without records follow."""

    epochs: int = 1


#: the marks that have crashed in this process
_crashed: set[str] = set()


class CrashOnce:
    """A mark at which reading fails with `SimulatedCrash`, the first time.

    Args:
        marker: path of a file that is created at the crash and prevents another one. Needed where the source is read in
            other processes than the test's, as on Spark: there each attempt has a copy of the source that has not
            crashed yet.
    """

    def __init__(self, marker: str | os.PathLike[str] | None = None) -> None:
        self._marker = None if marker is None else os.fspath(marker)
        #: tells the mark apart from others: each subtask has a copy of it
        self._id = uuid.uuid4().hex

    def crash(self) -> None:
        """Raise `SimulatedCrash`, unless this mark has crashed before."""
        if self._id in _crashed or self._marker is not None and os.path.exists(self._marker):
            return
        _crashed.add(self._id)
        if self._marker is not None:
            with open(self._marker, "x"):
                pass
        raise SimulatedCrash("the source has crashed, as the test wants it", hint="run the epoch again")


class End(NamedTuple):
    """A mark at which the split ends; it must be the last element."""


class TestingSource(NumberedSplitSource):
    """A source with given records, and marks among them that pause, crash or end it, or raise the watermark.

    It is bounded if its splits end with `End`. Its records are part of the program and must be picklable.

    Args:
        elements: the records and marks of the only split. For several splits see `of_splits`.
        type_info: the type of the records; None: any values.

    Raises:
        ProgramError: `End` is not the last element, watermarks go back, or a `Pause` has less than one epoch.
    """

    #: keeps pytest from taking the class for tests
    __test__ = False

    def __init__(self, *elements: Any, type_info: TypeInformation | None = None) -> None:
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._splits = [_Split(elements, "")]

    @classmethod
    def of_splits(cls, *splits: Iterable[Any], type_info: TypeInformation | None = None) -> TestingSource:
        """A source with several splits, each with its own watermark, which are read side by side.

        Raises:
            ProgramError: there are no splits, some of them end and others do not, or the elements of a split are wrong.
        """
        if not splits:
            raise ProgramError(
                "a TestingSource without splits",
                where="TestingSource.of_splits()",
                expected="the elements of one or more splits",
                hint="a list of splits is unpacked: of_splits(*splits)",
            )
        source = cls(type_info=type_info)
        source._splits = [_Split(tuple(elements), f"split {number}") for number, elements in enumerate(splits)]
        if len({split.ends for split in source._splits}) != 1:
            raise ProgramError(
                "some splits of a TestingSource end and others do not",
                expected="End() as the last element of all splits, or of none",
            )
        return source

    @property
    def bounded(self) -> bool:
        return self._splits[0].ends

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    @property
    def splits(self) -> int:
        return len(self._splits)

    def size_of(self, split: int) -> int | None:
        return len(self._splits[split].positions) if self.bounded else None

    def end_of_epoch(self, split: int, position: int) -> int:
        """The position after the next pause, or the end of the split."""
        return self._splits[split].end_of_epoch(position)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """The elements of a split in a range of positions, including marks."""
        return self._splits[split].positions[start:stop]

    def create_reader(self) -> SplitReader:
        return _Reader(self)


class _Split:
    """The elements of a split, one per position; a pause takes one position per epoch."""

    def __init__(self, elements: tuple[Any, ...], where: str) -> None:
        self.ends = bool(elements) and isinstance(elements[-1], End)
        self.positions: list[Any] = []
        watermark_ms: int | None = None
        for element in elements[: len(elements) - self.ends]:
            if isinstance(element, End):
                raise ProgramError("End() stands before other elements of a TestingSource", where=where)
            if isinstance(element, Watermark):
                if watermark_ms is not None and element.timestamp < watermark_ms:
                    raise ProgramError(
                        f"the watermark {element.timestamp} stands behind {watermark_ms} in a TestingSource",
                        where=where,
                        expected="watermarks that do not go back",
                    )
                watermark_ms = element.timestamp
            if isinstance(element, Pause) and element.epochs < 1:
                raise ProgramError(f"{element} in a TestingSource", where=where, expected="at least one epoch")
            self.positions.extend([element] * (element.epochs if isinstance(element, Pause) else 1))

    def end_of_epoch(self, position: int) -> int:
        for place in range(position, len(self.positions)):
            if isinstance(self.positions[place], Pause):
                return place + 1
        return len(self.positions)


class _Reader(SplitReader):
    def __init__(self, source: TestingSource) -> None:
        self._source = source

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        """Read a range of a split. A batch holds consecutive records that either all have timestamps or all have
        none."""
        number = int(wanted.split.id)
        stop = self._source.end_of_epoch(number, wanted.start) if wanted.stop is None else wanted.stop
        held: list[StreamRecord] = []
        for element in self._source.values(number, wanted.start, stop):
            if isinstance(element, CrashOnce):
                if held:
                    yield _batch(held)
                held = []
                element.crash()
            elif isinstance(element, Watermark):
                yield _batch(held)._replace(watermark_ms=element.timestamp)
                held = []
            elif not isinstance(element, Pause):
                record = element if isinstance(element, StreamRecord) else StreamRecord(element)
                if held and (len(held) >= batch_size or (held[0].timestamp is None) != (record.timestamp is None)):
                    yield _batch(held)
                    held = []
                held.append(record)
        if held:
            yield _batch(held)


def _batch(records: list[StreamRecord]) -> SplitRecords:
    values = [record.value for record in records]
    timestamps = [record.timestamp for record in records if record.timestamp is not None]
    return SplitRecords(values, timestamps if timestamps else None)
