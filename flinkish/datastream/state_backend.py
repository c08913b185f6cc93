"""The state backends, which ``StreamExecutionEnvironment.set_state_backend`` takes as in PyFlink 1.x.

Rule upheld here: a state backend represents the value of ``state.backend.type``, whether checkpoints are incremental,
and, with the names of PyFlink 1.x, where they are stored. Settings that tune the RocksDB inside Flink are kept and
returned, and a warning says that they have no effect.
"""

from __future__ import annotations

from enum import Enum

from flinkish.common.no_effect import no_java_object, warn_without_effect
from flinkish.datastream.checkpoint_storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage
from flinkish.errors import ArgumentTypeError, ArgumentValueError
from flinkish.storage.paths import shown_on_this_machine

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "MemoryStateBackend",
    "RocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]


class StateBackend:
    """Base class of the state backends."""

    _type = "hashmap"

    def _incremental(self) -> bool | None:
        """Whether checkpoints are incremental; None: as ``execution.checkpointing.incremental`` is configured."""
        return None

    def _checkpoint_directory(self) -> str | None:
        """The directory of checkpoints, which backends of PyFlink 1.x name; None: as it is configured."""
        return None


class HashMapStateBackend(StateBackend):
    """Keeps small state of a subtask (``flinkish.state.inline-size``) in Spark's state store on the heap of the
    executors; larger state is in files of the job directory with each backend. This is the default."""

    def __repr__(self) -> str:
        return "HashMapStateBackend()"


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps small state of a subtask (``flinkish.state.inline-size``) in Spark's RocksDB state store, on the disks of
    the executors; larger state is in files of the job directory with each backend.

    Args:
        enable_incremental_checkpointing: True or False sets ``execution.checkpointing.incremental``; None leaves it as
            configured.

    Raises:
        ArgumentTypeError: the argument is something else.
    """

    _type = "rocksdb"

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise ArgumentTypeError(
                f"enable_incremental_checkpointing is {enable_incremental_checkpointing!r}",
                where="EmbeddedRocksDBStateBackend",
                expected="True, False or None",
                hint="None: as execution.checkpointing.incremental says",
            )
        self._enable_incremental_checkpointing = enable_incremental_checkpointing
        self._db_storage_paths: list[str] = []
        self._predefined_options = PredefinedOptions.DEFAULT
        self._options: str | None = None
        self._transfer_threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        """The directories in which Flink's RocksDB keeps its files. They have no effect, and a warning says so: Spark's
        RocksDB keeps its files below ``spark.local.dir``. Raises ArgumentValueError without a path."""
        if not paths:
            raise ArgumentValueError(
                "no paths are given",
                where="EmbeddedRocksDBStateBackend.set_db_storage_paths()",
                expected="one path or more",
                hint="leave it out, and set spark.local.dir",
            )
        warn_without_effect("set_db_storage_paths", "Spark's RocksDB keeps its files below spark.local.dir")
        self._db_storage_paths = list(paths)

    def get_db_storage_paths(self) -> list[str]:
        """The paths that were set, on the local file system, as Flink shows them; [] if none were."""
        return list(map(shown_on_this_machine, self._db_storage_paths))

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether the backend was made with ``enable_incremental_checkpointing`` True."""
        return bool(self._enable_incremental_checkpointing)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Choose a predefined set of options of Flink's RocksDB. It has no effect, and a warning says so: set
        ``spark.sql.streaming.stateStore.rocksdb.*`` instead."""
        if not isinstance(options, PredefinedOptions):
            raise ArgumentTypeError(
                f"the options are {options!r}",
                where="EmbeddedRocksDBStateBackend.set_predefined_options()",
                expected="one of PredefinedOptions",
                hint="set spark.sql.streaming.stateStore.rocksdb.* instead",
            )
        warn_without_effect("set_predefined_options", "set spark.sql.streaming.stateStore.rocksdb.* instead")
        self._predefined_options = options

    def get_predefined_options(self) -> PredefinedOptions:
        """The options that were set; PredefinedOptions.DEFAULT if none were."""
        return self._predefined_options

    def set_options(self, options_factory_class_name: str) -> None:
        """Raises ProgramError: in Flink the argument names a Java class that makes options of RocksDB, and no Java
        class can be used here."""
        no_java_object(f"set_options({options_factory_class_name!r})")

    def get_options(self) -> str | None:
        """The name of the options factory class, which is always None."""
        return self._options

    def get_number_of_transfer_threads(self) -> int:
        """The number of threads that was set, or Flink's default of 4."""
        return self._transfer_threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """The number of threads that transfer the state files of Flink's RocksDB. It has no effect, and a warning says
        so: Spark transfers the files of its state stores. Raises ArgumentValueError below 1."""
        if number_of_transfering_threads < 1:
            raise ArgumentValueError(
                f"the number of threads is {number_of_transfering_threads}",
                where="EmbeddedRocksDBStateBackend.set_number_of_transfer_threads()",
                expected="1 or more",
                hint="leave it out: it has no effect here",
            )
        warn_without_effect("set_number_of_transfer_threads", "Spark moves the files of its state stores")
        self._transfer_threads = number_of_transfering_threads

    def _incremental(self) -> bool | None:
        return self._enable_incremental_checkpointing

    def __repr__(self) -> str:
        return f"EmbeddedRocksDBStateBackend({self._enable_incremental_checkpointing})"


class PredefinedOptions(Enum):
    """Predefined sets of options of Flink's RocksDB. They have no effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class CustomStateBackend(StateBackend):
    """A state backend written in Java. There are no Java objects here, so the constructor raises ProgramError."""

    def __init__(self, j_custom_state_backend: object) -> None:
        no_java_object("CustomStateBackend")


# --- the state backends of PyFlink 1.x, which say also where checkpoints are stored --------------------------------


class MemoryStateBackend(HashMapStateBackend):
    """The `HashMapStateBackend` with the storage of `JobManagerCheckpointStorage`, as PyFlink 1.x names them.

    Args:
        checkpoint_path: the directory for checkpoints; None: as it is configured, or else the job directory.
        savepoint_path: without effect; see ``StreamExecutionEnvironment.set_default_savepoint_directory``.
        max_state_size: in bytes; kept and returned, without effect.
        using_asynchronous_snapshots: kept and returned, without effect.
    """

    DEFAULT_MAX_STATE_SIZE = JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _warn_of_savepoint_path(savepoint_path)
        self._storage = JobManagerCheckpointStorage(checkpoint_path, max_state_size)
        self._asynchronous = using_asynchronous_snapshots is not False

    def get_max_state_size(self) -> int:
        """The size in bytes that was given, or Flink's default of 5 MiB. It has no effect."""
        return self._storage.get_max_state_size()

    def is_using_asynchronous_snapshots(self) -> bool:
        """What was given, or True. It has no effect."""
        return self._asynchronous

    def _checkpoint_directory(self) -> str | None:
        return self._storage.get_checkpoint_path()

    def __repr__(self) -> str:
        return f"MemoryStateBackend({self._checkpoint_directory()!r})"


class FsStateBackend(HashMapStateBackend):
    """The `HashMapStateBackend` with the storage of `FileSystemCheckpointStorage`, as PyFlink 1.x names them.

    Args:
        checkpoint_directory_uri: the directory for checkpoints.
        default_savepoint_directory_uri: without effect; see
            ``StreamExecutionEnvironment.set_default_savepoint_directory``.
        file_state_size_threshold: 0 to 1,048,576 bytes; kept and returned, without effect.
        write_buffer_size: in bytes; kept and returned, without effect.
        using_asynchronous_snapshots: kept and returned, without effect.

    Raises:
        ArgumentValueError: there is no directory, or the threshold is out of range.
    """

    def __init__(
        self,
        checkpoint_directory_uri: str | None = None,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _warn_of_savepoint_path(default_savepoint_directory_uri)
        buffer_bytes = -1 if write_buffer_size is None else write_buffer_size
        self._storage = FileSystemCheckpointStorage(checkpoint_directory_uri, file_state_size_threshold, buffer_bytes)
        self._asynchronous = using_asynchronous_snapshots is not False

    def get_checkpoint_path(self) -> str:
        """The directory for checkpoints that was given."""
        return self._storage.get_checkpoint_path()

    def get_min_file_size_threshold(self) -> int:
        """The threshold in bytes that was given, or Flink's default of 20 KiB. It has no effect."""
        return self._storage.get_min_file_size_threshold()

    def get_write_buffer_size(self) -> int:
        """The size in bytes that was given, or Flink's default of 4096 bytes. It has no effect."""
        return self._storage.get_write_buffer_size()

    def is_using_asynchronous_snapshots(self) -> bool:
        """What was given, or True. It has no effect."""
        return self._asynchronous

    def _checkpoint_directory(self) -> str | None:
        return self._storage.get_checkpoint_path()

    def __repr__(self) -> str:
        return f"FsStateBackend({self.get_checkpoint_path()!r})"


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """The `EmbeddedRocksDBStateBackend` with a directory for checkpoints, as PyFlink 1.x names it.

    Args:
        checkpoint_data_uri: the directory for checkpoints.
        enable_incremental_checkpointing: as in `EmbeddedRocksDBStateBackend`.
        checkpoint_stream_backend: another backend of PyFlink 1.x that names the directory, in place of
            ``checkpoint_data_uri``.

    Raises:
        ArgumentValueError: neither names a directory.
    """

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        super().__init__(enable_incremental_checkpointing)
        self._checkpoint_backend = checkpoint_stream_backend or FsStateBackend(checkpoint_data_uri)

    def get_checkpoint_backend(self) -> StateBackend:
        """The backend that names the directory for checkpoints."""
        return self._checkpoint_backend

    def get_number_of_transfering_threads(self) -> int:
        """The former name of `get_number_of_transfer_threads`."""
        return self.get_number_of_transfer_threads()

    def set_number_of_transfering_threads(self, number_of_transfering_threads: int) -> None:
        """The former name of `set_number_of_transfer_threads`."""
        self.set_number_of_transfer_threads(number_of_transfering_threads)

    def _checkpoint_directory(self) -> str | None:
        return self._checkpoint_backend._checkpoint_directory()

    def __repr__(self) -> str:
        return f"RocksDBStateBackend({self._checkpoint_directory()!r})"


def _warn_of_savepoint_path(path: str | None) -> None:
    if path is not None:
        warn_without_effect("the savepoint directory of a state backend", "call env.set_default_savepoint_directory()")
