"""PyFlink's options of a file sink: file names, buckets, rolling and compaction."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from flinkish.common.arguments import stands_for
from flinkish.errors import ProgramError

# letters of Java's DateTimeFormatter -> their counterparts in strftime
_PATTERNS = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "DDD": "%j", "HH": "%H", "hh": "%I", "mm": "%M",
    "ss": "%S", "a": "%p", "EEE": "%a", "EEEE": "%A", "MMM": "%b", "MMMM": "%B",
}  # fmt: skip


@dataclass(frozen=True)
class OutputFileConfig:
    """The prefix and the suffix of the names of part files: ``<prefix>-<subtask>-<epoch><suffix>``."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Builder of :class:`OutputFileConfig`."""

        def __init__(self) -> None:
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            return OutputFileConfig(self._prefix, self._suffix)


@dataclass(frozen=True)
class BucketAssigner:
    """Decides the folder below the base path that a file is written to: none, or one by the processing time of the
    epoch, which is the same when the epoch runs again. A class of the program that overrides `get_bucket_id`, as in
    Java's Flink, decides for each record::

        class ByCountry(BucketAssigner):
            def get_bucket_id(self, element, context):
                return f"country={element.country}"
    """

    format: str = ""
    timezone_id: str | None = None

    @dataclass(frozen=True)
    class Context:
        """When a record is written: the processing time of its epoch, the watermark, and the record's own timestamp
        (-9223372036854775808 if it has none), in ms."""

        _processing_time_ms: int
        _watermark_ms: int
        _timestamp_ms: int

        def current_processing_time(self) -> int:
            return self._processing_time_ms

        def current_watermark(self) -> int:
            return self._watermark_ms

        def timestamp(self) -> int:
            return self._timestamp_ms

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Writes all files to the base path itself."""
        return BucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Assigns buckets by processing time. ``format_str`` is a pattern of Java's ``DateTimeFormatter``;
        ``timezone_id`` is a zone such as Europe/Berlin, by default the local one.

        >>> BucketAssigner.date_time_bucket_assigner("yyyy/MM/'d'dd", "UTC").bucket(86_400_000)
        '1970/01/d02'

        Raises:
            ProgramError: a letter of the pattern, or the zone, is not known.
        """
        assigner = BucketAssigner(format_str, timezone_id)
        try:
            assigner.bucket(0)
        except (KeyError, ValueError, OSError) as error:
            raise ProgramError(
                f"the buckets '{format_str}' in zone {timezone_id} are not understood: {error}",
                where="BucketAssigner",
                expected=f"Java's letters {', '.join(_PATTERNS)} and a zone such as Europe/Berlin",
            ) from error
        return assigner

    def get_bucket_id(self, element: Any, context: BucketAssigner.Context) -> str:
        """The folder of a record, relative to the base path; '' is the base path. Called for each record, in the task,
        if a class of the program overrides it."""
        return self.bucket(context.current_processing_time())

    @property
    def _decides_by_record(self) -> bool:
        """Whether `get_bucket_id` must be called for each record, since it may give them different folders."""
        return not stands_for(self, "bucket", "get_bucket_id")

    def bucket(self, epoch_time_ms: int) -> str:
        """The folder for an epoch with this processing time (ms since the Unix epoch); '' is the base path."""
        if not self.format:
            return ""
        zone = ZoneInfo(self.timezone_id) if self.timezone_id else None
        moment = datetime.datetime.fromtimestamp(epoch_time_ms / 1000, datetime.timezone.utc).astimezone(zone)
        return re.sub(r"'((?:[^']|'')*)'|([A-Za-z])\2*", lambda match: _formatted(match, moment), self.format)


def _formatted(match: re.Match[str], moment: datetime.datetime) -> str:
    if match[1] is not None:
        return match[1].replace("''", "'") or "'"
    return moment.strftime(_PATTERNS[match[0]])


class RollingPolicy:
    """Decides when a new part file begins. In flinkish one begins with each epoch in any case: a finished file is never
    touched again, which makes the sink exactly-once. So intervals have no effect; a part size ends a file within an
    epoch."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128, rollover_interval: int = 60 * 1000, inactivity_interval: int = 60 * 1000
    ) -> DefaultRollingPolicy:
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        return OnCheckpointRollingPolicy()


@dataclass(frozen=True)
class DefaultRollingPolicy(RollingPolicy):
    """Begins a new part file when the current one has reached ``part_size`` bytes. A batch of records is not divided,
    so a file may be larger. The two intervals (ms) have no effect; see :class:`RollingPolicy`.

    Raises:
        ProgramError: a value that is not above 0.
    """

    part_size: int
    rollover_interval: int
    inactivity_interval: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ProgramError(f"{name}={value}", where="RollingPolicy", expected="more than 0")


class OnCheckpointRollingPolicy(RollingPolicy):
    """Begins a new part file with each epoch only."""


@dataclass(frozen=True)
class FileCompactStrategy:
    """Flink's rule for when small files are compacted. It has no effect here: files end with their epoch and are never
    compacted."""

    size_threshold: int = -1
    checkpoints: int = -1
    threads: int = -1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        return FileCompactStrategy.Builder()

    class Builder:
        """Builder of :class:`FileCompactStrategy`."""

        def __init__(self) -> None:
            self._size_threshold = self._checkpoints = self._threads = -1

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            self._checkpoints = num_checkpoints_before_compaction
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            self._size_threshold = size_threshold
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            self._threads = num_compact_threads
            return self

        def build(self) -> FileCompactStrategy:
            """The strategy.

            Raises:
                ProgramError: neither a size threshold nor a number of checkpoints is set, as in Flink.
            """
            if self._size_threshold < 0 and self._checkpoints < 0:
                raise ProgramError(
                    "a strategy that never compacts",
                    where="FileCompactStrategy",
                    expected="a size threshold or a number of checkpoints",
                )
            return FileCompactStrategy(self._size_threshold, self._checkpoints, self._threads)


@dataclass(frozen=True)
class FileCompactor:
    """Flink's way to compact small files; it has no effect here, see :class:`FileCompactStrategy`."""

    delimiter: bytes | None = None

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        return FileCompactor(file_delimiter)

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        return FileCompactor()
