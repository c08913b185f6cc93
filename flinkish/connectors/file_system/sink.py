"""``FileSink``: writes one file per bucket, subtask and epoch.

Rule upheld here: a file's name follows from (job id, sink uid, subtask, epoch), and the file becomes visible as a
whole, by a rename. An epoch that is committed again replaces its own file by one with the same content. Nobody else
writes a file of that name: each job directory has a job id of its own.
"""

from __future__ import annotations

import copy
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from flinkish.common.arguments import check_instance, check_made, form_for_lists, refuse_own_methods
from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.file_system.listing import file_system_of
from flinkish.connectors.file_system.sink_options import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileCompactor,
    FileCompactStrategy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from flinkish.core.sink import (
    CommitContext,
    Committer,
    Guarantee,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterSink,
)
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import ArgumentTypeError, ConnectionFailedError, OperationError, TypeMismatchError
from flinkish.storage.paths import absolute
from flinkish.storage.stores import storage_error

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

#: The most files that a committer has open at a time; beyond it, a bucket's next records go to another file.
_MAX_OPEN_FILES = 100

B = TypeVar("B", bound="FileSink.BaseBuilder")

_DIGITS = tuple("0123456789")
#: What follows the uuid in the name of a file: the subtask and the epoch.
_NUMBERS = re.compile(r"[0-9]+-([0-9]+)")
#: The name of a file that is still written.
_UNFINISHED = re.compile(r"\..*\.inprogress\..*", re.DOTALL)


class FileSink(WriterSink, SupportsPreprocessing):
    """Writes records to files ``<base path>/<bucket>/<prefix>-<uuid>-<subtask>-<epoch><suffix>``. The uuid belongs to
    the job directory and the sink, so that runs, jobs and sinks that share a base path leave each other's files alone.
    A dot stands before a suffix that begins with a digit.

    Guarantee: exactly once, for readers that ignore files whose names begin with a dot. A subtask without records in an
    epoch writes no file.

    With a row format, buckets are by the hour of processing time, as in Flink, unless another BucketAssigner is given.
    With a bulk format, files lie in the base path itself unless a BucketAssigner is given, and have the suffix of the
    format (``.parquet``) unless another one is given: readers such as ``spark.read.parquet`` take the folder as it is.

    >>> from flinkish.common.serialization import Encoder
    >>> sink = (FileSink.for_row_format("/data/out", Encoder.simple_string_encoder())
    ...     .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".txt").build()).build())
    """

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def __init__(
        self,
        base_path: str,
        content: Encoder | BulkWriterFactory,
        file_config: OutputFileConfig,
        bucket_assigner: BucketAssigner,
        part_size: int | None = None,
    ) -> None:
        # the workers may have another working directory
        self._base_path = absolute(base_path)
        self._content = content
        self._file_config = file_config
        self._bucket_assigner = bucket_assigner
        self._part_size = part_size
        self.reads_timestamps = bucket_assigner._decides_by_record

    @property
    def _destination(self) -> str:
        # without the credentials and the query string of a URI
        return "files in " + re.sub(r"(?<=//)[^/@]*@|\?.*", "", self._base_path)

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Builder of a sink whose files are the encoded records, one after the other."""
        return FileSink.RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> FileSink.BulkFormatBuilder:
        """Builder of a sink whose files are written by a bulk writer from all records of a subtask and epoch, such as
        Parquet files. Unlike in Flink, they lie in the base path itself unless a BucketAssigner is given.

        Raises:
            TypeError: ``writer_factory`` is no BulkWriterFactory.
        """
        check_instance(
            writer_factory,
            BulkWriterFactory,
            "the writer factory is",
            "FileSink.for_bulk_format()",
            "such as ParquetBulkWriters.for_row_type(...)",
        )
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def get_transformer(self) -> StreamTransformer | None:
        """None: encoders and bulk writers written in Python take the records as they are."""
        return None

    def with_input_type(self, input_type: TypeInformation) -> FileSink:
        """The same sink for a stream of this type, which decides the text form of
        ``Encoder.simple_string_encoder()``."""
        bound = copy.copy(self)
        bound._content = self._content.bind(input_type)
        return bound

    def create_writer(self) -> SinkWriter:
        writer = _RowWriter(self._content) if isinstance(self._content, Encoder) else _BulkFileWriter(self._content)
        return _BucketWriter(writer, self._bucket_assigner) if self._bucket_assigner._decides_by_record else writer

    def create_committer(self) -> Committer:
        return _FileCommitter(self._base_path, self._file_config, self._bucket_assigner, self._part_size)

    class BaseBuilder:
        """Builder of :class:`FileSink`."""

        def __init__(self, base_path: str, content: Encoder | BulkWriterFactory) -> None:
            self._base_path = base_path
            self._content = content
            self._file_config = OutputFileConfig()
            self._bucket_assigner = self._default_bucket_assigner()
            self._part_size: int | None = None

        @staticmethod
        def _default_bucket_assigner() -> BucketAssigner:
            return BucketAssigner.date_time_bucket_assigner()

        def with_bucket_check_interval(self: B, interval: int) -> B:
            """Has no effect, and warns of that: files end with their epoch."""
            warn_without_effect("with_bucket_check_interval", "files end with their epoch")
            return self

        def with_bucket_assigner(self: B, bucket_assigner: BucketAssigner) -> B:
            """Set the folders that files are written to. A class of the program that overrides ``get_bucket_id`` is
            called for each record."""
            check_instance(
                bucket_assigner,
                BucketAssigner,
                "the bucket assigner is",
                "FileSink, with_bucket_assigner()",
                "derive it from BucketAssigner and override get_bucket_id(element, context)",
            )
            self._bucket_assigner = bucket_assigner
            return self

        def with_output_file_config(self: B, output_file_config: OutputFileConfig) -> B:
            self._file_config = output_file_config
            return self

        def with_rolling_policy(self: B, rolling_policy: RollingPolicy) -> B:
            """Set the part size: a file ends with its epoch in any case, and before that when it reaches the part size
            of the policy, if the policy has one.

            Raises:
                TypeError: it is no rolling policy, or one with methods of its own, which would not be called.
            """
            _check_policy(rolling_policy)
            self._part_size = rolling_policy.part_size if isinstance(rolling_policy, DefaultRollingPolicy) else None
            return self

        def enable_compact(self: B, strategy: FileCompactStrategy, compactor: FileCompactor) -> B:
            """Has no effect, and warns of that: each file is final when its epoch ends."""
            warn_without_effect(
                "enable_compact", "each file is final when its epoch ends; longer epochs give fewer files"
            )
            return self

        def disable_compact(self: B) -> B:
            """Has no effect: files are never compacted."""
            return self

        def build(self) -> FileSink:
            return FileSink(self._base_path, self._content, self._file_config, self._bucket_assigner, self._part_size)

    class RowFormatBuilder(BaseBuilder):
        """Builder of a sink whose files are the encoded records, one after the other."""

    class BulkFormatBuilder(BaseBuilder):
        """Builder of a sink whose files are written by a bulk writer."""

        @staticmethod
        def _default_bucket_assigner() -> BucketAssigner:
            return BucketAssigner.base_path_bucket_assigner()

        def with_rolling_policy(self: B, rolling_policy: RollingPolicy) -> B:
            """Accepts OnCheckpointRollingPolicy only, as in Flink: the file of a bulk writer ends with its epoch.

            Raises:
                TypeError: another policy.
            """
            if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
                raise ArgumentTypeError(
                    f"rolling_policy must be OnCheckpointRollingPolicy for bulk format. It is {rolling_policy!r}",
                    where="FileSink.for_bulk_format()",
                    expected="an OnCheckpointRollingPolicy",
                    hint="leave it out: files end with their epoch",
                )
            _check_policy(rolling_policy)
            return self

        def build(self) -> FileSink:
            assert isinstance(self._content, BulkWriterFactory)
            config = self._file_config
            if not config.get_part_suffix():
                self._file_config = OutputFileConfig(config.get_part_prefix(), self._content.file_suffix)
            return super().build()


def _check_policy(policy: RollingPolicy) -> None:
    where = "FileSink, with_rolling_policy()"
    check_instance(policy, RollingPolicy, "the rolling policy is", where, "RollingPolicy.default_rolling_policy(...)")
    hint = "a file ends with its epoch, or at the part size of RollingPolicy.default_rolling_policy(part_size)"
    refuse_own_methods(policy, "the rolling policy", where, hint)


class StreamingFileSink(FileSink):
    """The former name of :class:`FileSink` in Flink, for ``add_sink``."""

    BaseBuilder = FileSink.BaseBuilder
    DefaultRowFormatBuilder = FileSink.RowFormatBuilder
    DefaultBulkFormatBuilder = FileSink.BulkFormatBuilder


class _RowWriter(SinkWriter):
    """Encodes each batch of records to a committable (bytes, number of records)."""

    def __init__(self, encoder: Encoder) -> None:
        self._encode = form_for_lists(encoder, "encode", Encoder.encode_batch)

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return [(self._encode(values), len(values))] if values else []

    def fresh(self) -> _RowWriter:
        """The writer of another bucket, which may be the same, since nothing is held back."""
        return self


class _BulkFileWriter(SinkWriter):
    """Writes all records of an epoch with a bulk writer to one committable: (the whole file, number of records)."""

    def __init__(self, factory: BulkWriterFactory) -> None:
        self._factory = factory
        self._writer: BulkWriter | None = None
        self._records = 0

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        if values:
            if self._writer is None:
                self._writer = self._factory.create()
                check_made(self._writer, BulkWriter, self._factory, "create")
            self._writer.add_batch(values)
            self._records += len(values)
        return []

    def prepare_commit(self) -> list[Any]:
        if self._writer is None:
            return []
        content, records = self._writer.finish(), self._records
        self._writer, self._records = None, 0
        return [(content, records)]

    def fresh(self) -> _BulkFileWriter:
        """The writer of another bucket."""
        return _BulkFileWriter(self._factory)


class _BucketWriter(SinkWriter):
    """Writes each record with the writer of its bucket, to committables (content, number of records, bucket)."""

    def __init__(self, writer: _RowWriter | _BulkFileWriter, assigner: BucketAssigner) -> None:
        self._writer = writer
        self._assigner = assigner
        self._writers: dict[str, _RowWriter | _BulkFileWriter] = {}

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        by_bucket: dict[str, list[Any]] = {}
        stamps = repeat(MIN_TIMESTAMP_MS) if timestamps is None else timestamps
        for value, timestamp_ms in zip(values, stamps):
            context = BucketAssigner.Context(*self._times(), timestamp_ms)
            bucket = self._assigner.get_bucket_id(value, context)
            if bucket in by_bucket:
                by_bucket[bucket].append(value)
            else:
                by_bucket[self._checked(bucket, value)] = [value]
        found = []
        for bucket, of_bucket in by_bucket.items():
            if bucket not in self._writers:
                self._writers[bucket] = self._writer.fresh()
            found += [(*part, bucket) for part in self._writers[bucket].write(of_bucket, None)]
        return found

    def prepare_commit(self) -> list[Any]:
        writers, self._writers = self._writers, {}
        return [(*part, bucket) for bucket, writer in writers.items() for part in writer.prepare_commit()]

    def _checked(self, bucket: Any, value: Any) -> str:
        if isinstance(bucket, str) and not bucket.startswith("/") and ".." not in bucket.split("/"):
            return bucket
        raise TypeMismatchError(
            f"get_bucket_id() of {type(self._assigner).__name__} returned {bucket!r:.200} for {value!r:.200}",
            where="FileSink",
            expected="the name of a folder below the base path (str), such as 'country=de'; '' is the base path",
            hint="give other records a bucket, too, such as 'others'",
        )


class _FileCommitter(Committer):
    def __init__(
        self, base_path: str, file_config: OutputFileConfig, bucket_assigner: BucketAssigner, part_size: int | None
    ) -> None:
        self._base_path = base_path
        self._file_config = file_config
        self._bucket_assigner = bucket_assigner
        self._part_size = part_size

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        parts = (part for batch in committables for part in batch)
        first = next(parts, None)
        if first is None:
            return 0
        system, base = file_system_of(self._base_path)
        files = _PartFiles(system, self._part_size)
        records = 0
        try:
            for content, count, *bucket in chain((first,), parts):
                folder = bucket[0] if bucket else self._bucket_assigner.bucket(context.epoch_time_ms)
                files.write(posixpath.join(base, folder).rstrip("/"), partial(self._name, context), content)
                records += count
            files.close()
            context.fence.check()
            files.publish()
        except OSError as error:
            failed = storage_error(error, "write", str(files.last))
            raise (OperationError if error.errno else ConnectionFailedError)(
                failed.what,
                where=f"FileSink '{context.sink_uid}' of job {context.job_id}, epoch {context.epoch}",
                hint=f"{failed.hint}; nothing of this epoch is lost",
            ) from error
        finally:
            files.delete_unfinished()
        return records

    def last_committed_epoch(self, context: CommitContext) -> int | None:
        """The highest epoch in the names of this sink's files, in all buckets."""
        from pyarrow import fs

        system, base = file_system_of(self._base_path)
        try:
            found = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        except OSError as error:
            raise ConnectionFailedError(
                f"the folder {base} cannot be listed: {error}", where=f"FileSink '{context.sink_uid}'"
            ) from error
        files = (info.base_name for info in found if info.type == fs.FileType.File)
        epochs = (self._epoch_of(name, context) for name in files if not _UNFINISHED.fullmatch(name))
        return max((epoch for epoch in epochs if epoch is not None), default=None)

    def _epoch_of(self, name: str, context: CommitContext) -> int | None:
        """The epoch in the name of a file; None: it is not this sink's."""
        suffix = self._file_config.part_suffix
        if self._separator and not name.endswith(self._separator + suffix):
            # earlier versions wrote such a suffix right behind the epoch
            name = name.removesuffix(suffix)
        _, found, numbers = name.rpartition(f"{_identity(context)}-")
        match = _NUMBERS.match(numbers)
        return int(match[1]) if found and match else None

    @property
    def _separator(self) -> str:
        """What stands before the suffix, so that its digits are not taken for digits of the epoch."""
        return "." if self._file_config.part_suffix[:1] in _DIGITS else ""

    def _name(self, context: CommitContext, number: int) -> str:
        """The name of the file with that number in the epoch. The first one's number is left out of its name, since an
        epoch seldom has another."""
        config, which = self._file_config, f"-{number}" if number else ""
        name = f"{config.get_part_prefix()}-{_identity(context)}-{context.subtask}-{context.epoch}"
        return f"{name}{which}{self._separator}{config.get_part_suffix()}"


class _PartFiles:
    """The files of one subtask and epoch while they are written, under names that readers ignore."""

    def __init__(self, system: FileSystem, part_size: int | None) -> None:
        self._system = system
        self._part_size = part_size
        #: folder -> the stream of its last file and the number of bytes in it; the least recently used one first
        self._open: dict[str, tuple[NativeFile, int]] = {}
        #: folder -> the number of its files
        self._numbers: dict[str, int] = {}
        #: (temporary name, final name)
        self._names: list[tuple[str, str]] = []
        #: the final name of the file that was opened last
        self.last = ""

    def write(self, folder: str, name: Callable[[int], str], content: bytes) -> None:
        """Write the next part of a folder to its last file, or to a new one if that has the part size."""
        stream, size = self._open.pop(folder, (None, 0))
        if stream is not None and self._part_size is not None and size >= self._part_size:
            stream.close()
            stream = None
        if stream is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._open.pop(next(iter(self._open)))[0].close()
            number = self._numbers.get(folder, 0)
            self._numbers[folder] = number + 1
            self.last = f"{folder}/{name(number)}"
            self._system.create_dir(folder, recursive=True)
            # a name of its own for each attempt: an earlier attempt that was taken for dead may still be writing
            temporary = f"{folder}/.{name(number)}.inprogress.{uuid.uuid4().hex}"
            self._names.append((temporary, self.last))
            stream, size = self._system.open_output_stream(temporary), 0
        self._open[folder] = stream, size + len(content)
        stream.write(content)

    def close(self) -> None:
        """Close all streams."""
        while self._open:
            self._open.popitem()[1][0].close()

    def publish(self) -> None:
        """Make the files visible."""
        for temporary, final in self._names:
            self._system.move(temporary, final)

    def delete_unfinished(self) -> None:
        """Delete the files that are not visible."""
        with suppress(OSError):
            self.close()
        for temporary, _ in self._names:
            with suppress(OSError):
                self._system.delete_file(temporary)


def _identity(context: CommitContext) -> str:
    """The uuid in the names of a sink's files; the same for each delivery of an epoch."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{context.job_id}/{context.sink_uid}"))
