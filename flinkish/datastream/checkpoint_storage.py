"""The storages of checkpoints, which ``CheckpointConfig.set_checkpoint_storage`` takes as in PyFlink 1.x.

Rule upheld here: a checkpoint is a Delta table, in the job directory or in the directory that the storage names.
"""

from __future__ import annotations

from flinkish.common.no_effect import no_java_object
from flinkish.errors import ArgumentValueError
from flinkish.storage.paths import shown_path

__all__ = ["CheckpointStorage", "CustomCheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]


class CheckpointStorage:
    """Base class of the checkpoint storages."""

    def _directory(self) -> str | None:
        """The directory to which checkpoints are written; None: the job directory."""
        return None


class JobManagerCheckpointStorage(CheckpointStorage):
    """Stores checkpoints in the job directory, or in the directory ``checkpoint_path`` if it is given. In Flink this
    storage keeps them in the memory of the JobManager.

    Args:
        checkpoint_path: the directory for checkpoints; None: the job directory.
        max_state_size: kept and returned, without effect: the size of state is not limited. In bytes.
    """

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._checkpoint_path = checkpoint_path
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size

    def get_checkpoint_path(self) -> str | None:
        """The directory for checkpoints that was given, as Flink shows it; None: the job directory."""
        return None if self._checkpoint_path is None else shown_path(self._checkpoint_path)

    def get_max_state_size(self) -> int:
        """The size in bytes that was given, or Flink's default of 5 MiB. It has no effect: state of any size can be
        checkpointed."""
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """Always None: ``execution.checkpointing.savepoint-dir`` says where savepoints go."""
        return None

    def _directory(self) -> str | None:
        return self._checkpoint_path

    def __repr__(self) -> str:
        return f"JobManagerCheckpointStorage(checkpoint_path={self._checkpoint_path!r})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Stores checkpoints in a directory of a file system.

    Args:
        checkpoint_path: the directory, as Spark names it: ``s3a://bucket/checkpoints`` or ``/data/checkpoints``.
        file_state_size_threshold: 0 to 1,048,576 bytes; kept and returned, without effect.
        write_buffer_size: in bytes; kept and returned, without effect.

    Raises:
        ArgumentValueError: there is no ``checkpoint_path``, or the threshold is out of range.
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if checkpoint_path is None:
            raise ArgumentValueError(
                "checkpoint_path must not be None",
                where="FileSystemCheckpointStorage",
                expected="a directory, such as s3a://bucket/checkpoints",
                hint="without a directory of their own, checkpoints lie in the job directory",
            )
        threshold = 20 * 1024 if file_state_size_threshold is None else file_state_size_threshold
        if not 0 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ArgumentValueError(
                f"the file state size threshold is {threshold} bytes",
                where="FileSystemCheckpointStorage",
                expected=f"0 to {self.MAX_FILE_STATE_THRESHOLD} bytes",
                hint="leave it out: it has no effect here",
            )
        self._checkpoint_path = checkpoint_path
        self._threshold = threshold
        self._write_buffer_size = write_buffer_size

    def get_checkpoint_path(self) -> str:
        """The directory for checkpoints that was given, as Flink shows it."""
        return shown_path(self._checkpoint_path)

    def get_savepoint_path(self) -> str | None:
        """Always None: ``execution.checkpointing.savepoint-dir`` says where savepoints go."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """The threshold in bytes that was given, or Flink's default of 20 KiB. It has no effect: Delta tables have no
        such threshold."""
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """The size in bytes that was given, or Flink's default of 4096 bytes. It has no effect: the writers of Delta
        tables choose their buffers themselves."""
        return self._write_buffer_size if self._write_buffer_size >= 0 else 4096

    def _directory(self) -> str | None:
        return self._checkpoint_path

    def __repr__(self) -> str:
        return f"FileSystemCheckpointStorage(checkpoint_path={self._checkpoint_path!r})"


class CustomCheckpointStorage(CheckpointStorage):
    """A checkpoint storage written in Java. There are no Java objects here, so the constructor raises ProgramError."""

    def __init__(self, j_custom_checkpoint_storage: object) -> None:
        no_java_object("CustomCheckpointStorage")
