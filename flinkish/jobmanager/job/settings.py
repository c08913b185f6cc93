"""The settings of a job, read from the configuration: those of its checkpoints, those that its tasks need, and those
that the driver needs.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tempfile
from dataclasses import dataclass, field, replace
from enum import Enum

from flinkish.common.configuration import Configuration
from flinkish.common.memory import areas_of
from flinkish.common.options import checkpointing, cluster, core, execution, flinkish, memory, rest, state
from flinkish.common.time import Duration
from flinkish.errors import ConfigurationError, EnvironmentVersionError
from flinkish.runtime.job.deployment import JobSettings
from flinkish.runtime.state.limits import DEFAULT_BYTES
from flinkish.storage.files import is_directory
from flinkish.storage.paths import absolute, is_local
from flinkish.storage.stores import storage_of

#: The time between checkpoints of a job with a directory that sets none, in ms.
DEFAULT_INTERVAL_MS = 60_000


@dataclass(frozen=True)
class CheckpointSettings:
    """The settings of a job's checkpoints. ``interval_ms`` None: no checkpoints are taken."""

    interval_ms: int | None = None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    #: accepted, but 1 in effect: a checkpoint is written by one Delta commit, and commits follow each other
    max_concurrent: int = 1
    #: how many checkpoints in a row may fail before the job does
    tolerable_failures: int = 0
    num_retained: int = 1
    directory: str | None = None
    incremental: bool = True
    #: whether checkpoints are kept when the job is cancelled
    retain_on_cancellation: bool = False

    @property
    def enabled(self) -> bool:
        """Whether checkpoints are taken."""
        return self.interval_ms is not None

    @property
    def changelog(self) -> bool:
        """Whether tasks must write down what each epoch has changed in their state."""
        return self.enabled and self.incremental


def checkpoint_interval_ms(configuration: Configuration) -> int | None:
    """The time between checkpoints in ms: ``execution.checkpointing.interval`` if it is set, where 0 means that none
    are taken; otherwise one minute for a job with a directory (``flinkish.job.dir``). None: none are taken."""
    interval = configuration.get(checkpointing.INTERVAL)
    if interval is None:
        return None if configuration.get(flinkish.JOB_DIR) is None else DEFAULT_INTERVAL_MS
    return interval.to_millis() if interval.to_millis() > 0 else None


def checkpoint_settings(configuration: Configuration) -> CheckpointSettings:
    """Read ``execution.checkpointing.*``."""
    retention = configuration.get(checkpointing.EXTERNALIZED_CHECKPOINT_RETENTION)
    return CheckpointSettings(
        interval_ms=checkpoint_interval_ms(configuration),
        timeout_ms=configuration.get(checkpointing.TIMEOUT).to_millis(),
        min_pause_ms=configuration.get(checkpointing.MIN_PAUSE).to_millis(),
        max_concurrent=configuration.get(checkpointing.MAX_CONCURRENT_CHECKPOINTS),
        tolerable_failures=configuration.get(checkpointing.TOLERABLE_FAILED_CHECKPOINTS),
        num_retained=max(1, configuration.get(checkpointing.NUM_RETAINED)),
        directory=configuration.get(checkpointing.DIRECTORY),
        incremental=configuration.get(checkpointing.INCREMENTAL),
        retain_on_cancellation=retention == "RETAIN_ON_CANCELLATION",
    )


#: Epochs on an object store that begin in shorter intervals than this cost so much that the job says so, in ms.
FREQUENT_EPOCHS_MS = 5_000


class Fallback(Enum):
    """The values of ``flinkish.recovery.fallback``: when a job may go back to a checkpoint."""

    #: only if nothing is delivered to sinks again, or all sinks are idempotent
    EXACT = "exact"
    #: also if epochs are repeated: correct with idempotent sinks, others get their records again
    REPLAY = "replay"
    #: never: the job is refused
    NEVER = "never"


@dataclass(frozen=True)
class DriverSettings:
    """The settings of a job that the driver needs."""

    job_dir: str | None
    epoch_interval_ms: int
    heartbeat_interval_ms: int
    state_backend: str
    progress: str
    available_now: bool
    savepoint: str | None
    savepoint_directory: str | None
    ignore_unclaimed_state: bool
    #: NO_CLAIM, CLAIM, LEGACY
    claim_mode: str
    #: only report what a restore would take over
    dry_run: bool
    takeover: str = "refuse"
    #: whether a job that was stopped or cancelled goes on
    restart: bool = False
    shutdown_timeout_s: float = 60.0
    #: how long an epoch may take; 0: without limit
    epoch_timeout_s: float = 0.0
    #: how long a commit, or Spark's thread, is waited for when an epoch is given up; 0: without limit
    cancellation_timeout_s: float = 180.0
    #: how long the first slot is waited for
    slot_timeout_s: float = 300.0
    history_enabled: bool = False
    history_interval_ms: int = 60_000
    history_retention_ms: int = 0
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    fallback: Fallback = Fallback.EXACT

    @property
    def needs_delta(self) -> bool:
        """Whether something of the job is read from Delta tables, or written to them, whatever the program does."""
        return self.checkpoints.enabled or self.savepoint is not None or self.history_enabled

    @property
    def note_on_requests(self) -> str | None:
        """What to say of epochs that are so short that their requests to an object store cost much; None: nothing."""
        if self.job_dir is None or self.available_now or self.epoch_interval_ms >= FREQUENT_EPOCHS_MS:
            return None
        if is_local(self.job_dir) or storage_of(self.job_dir).renames_directories:
            return None
        often = f"every {self.epoch_interval_ms / 1000:g} s" if self.epoch_interval_ms else "without a pause"
        return (
            f"epochs begin {often} (flinkish.epoch.interval), and each makes about 50 requests to the object store of "
            f"the job directory {self.job_dir}: an interval of 10 s costs a tenth of one of 1 s"
        )


def _ms(duration: Duration) -> int:
    return duration.to_millis()


def job_settings(configuration: Configuration) -> JobSettings:
    """The settings that tasks need, from the configuration."""
    return JobSettings(
        source_batch_size=configuration.get(flinkish.SOURCE_BATCH_SIZE),
        ignore_unclaimed_state=configuration.get(execution.STATE_RECOVERY_IGNORE_UNCLAIMED_STATE),
        source_max_record_bytes=configuration.get(flinkish.SOURCE_MAX_RECORD_BYTES),
        buffer_max_records=configuration.get(flinkish.BUFFER_MAX_RECORDS),
        buffer_max_bytes=configuration.get(flinkish.BUFFER_MAX_BYTES),
        max_records_per_epoch=configuration.get(flinkish.EPOCH_MAX_RECORDS_PER_SOURCE),
        max_bytes_per_epoch=configuration.get(flinkish.EPOCH_MAX_BYTES_PER_SOURCE),
        epoch_target_ms=_epoch_target_ms(configuration),
        auto_watermark_interval_ms=_ms(configuration.get(core.AUTO_WATERMARK_INTERVAL)),
        managed_memory_bytes=managed_memory_of_slot(configuration, 1),
        inline_state_bytes=configuration.get(flinkish.STATE_INLINE_SIZE),
        local_state_root=(configuration.get(cluster.LOCAL_STATE_ROOT_DIRS) or "").split(",")[0].strip(),
        recover_from_local=configuration.get(execution.STATE_RECOVERY_FROM_LOCAL),
        standby_replicas=configuration.get(flinkish.NUM_STANDBY_REPLICAS),
        spark_partitions=configuration.get(flinkish.SPARK_PARTITIONS),
        job_parameters=_job_parameters(configuration),
        configuration=configuration.to_dict(),
        changelog=checkpoint_settings(configuration).changelog,
        slow_call_warning_ms=_ms(configuration.get(flinkish.TASK_SLOW_CALL_WARNING)),
        flame_graphs=configuration.get(rest.FLAMEGRAPH_ENABLED),
        names_records=configuration.get(flinkish.ERRORS_RECORDS) == "on",
        trace_lifecycle=configuration.get(flinkish.TRACE_LIFECYCLE),
        state_packages=_names(configuration.get(flinkish.STATE_PACKAGES)),
        share_functions=configuration.get(flinkish.MINICLUSTER_SHARE_FUNCTIONS),
    )


def managed_memory_of_slot(configuration: Configuration, slots: int) -> int:
    """How much state the Python worker of a slot keeps in memory, in bytes: as in Flink, the slots of a TaskManager
    share its managed memory.

    Raises:
        ConfigurationError: the sizes of areas contradict each other.
    """
    areas = areas_of(configuration)
    managed = configuration.get(memory.MANAGED_SIZE) if areas is None else areas.managed
    return DEFAULT_BYTES if managed is None else managed // slots


def _epoch_target_ms(configuration: Configuration) -> int:
    """How long an epoch is to take: a checkpoint waits for the end of one."""
    target_ms = _ms(configuration.get(flinkish.EPOCH_TARGET_DURATION))
    interval_ms = checkpoint_settings(configuration).interval_ms
    return target_ms if interval_ms is None else min(target_ms, interval_ms)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _job_parameters(configuration: Configuration) -> dict[str, str]:
    parameters: dict[str, str] = configuration.get(core.GLOBAL_JOB_PARAMETERS)
    return dict(parameters)


def driver_settings(configuration: Configuration) -> DriverSettings:
    """The settings that the driver needs, from the configuration."""
    job_dir = configuration.get(flinkish.JOB_DIR)
    return DriverSettings(
        job_dir=None if job_dir is None else check_path(job_dir),
        epoch_interval_ms=_ms(configuration.get(flinkish.EPOCH_INTERVAL)),
        heartbeat_interval_ms=_ms(configuration.get(flinkish.HEARTBEAT_INTERVAL)),
        state_backend=configuration.get(state.BACKEND),
        progress=configuration.get(flinkish.PROGRESS),
        available_now=configuration.get(execution.TRIGGER) == "available-now",
        savepoint=configuration.get(execution.STATE_RECOVERY_PATH),
        savepoint_directory=configuration.get(checkpointing.SAVEPOINT_DIRECTORY),
        ignore_unclaimed_state=configuration.get(execution.STATE_RECOVERY_IGNORE_UNCLAIMED_STATE),
        claim_mode=configuration.get(execution.STATE_RECOVERY_CLAIM_MODE),
        dry_run=configuration.get(execution.STATE_RECOVERY_DRY_RUN),
        takeover=configuration.get(flinkish.JOB_TAKEOVER),
        restart=configuration.get(flinkish.JOB_RESTART),
        shutdown_timeout_s=_ms(configuration.get(flinkish.SHUTDOWN_TIMEOUT)) / 1000,
        epoch_timeout_s=_ms(configuration.get(flinkish.EPOCH_TIMEOUT)) / 1000,
        cancellation_timeout_s=_ms(configuration.get(core.TASK_CANCELLATION_TIMEOUT)) / 1000,
        slot_timeout_s=_ms(configuration.get(cluster.SLOT_REQUEST_TIMEOUT)) / 1000,
        history_enabled=configuration.get(flinkish.HISTORY_ENABLED),
        history_interval_ms=_ms(configuration.get(flinkish.HISTORY_INTERVAL)),
        history_retention_ms=_ms(configuration.get(flinkish.HISTORY_RETENTION)),
        checkpoints=checkpoint_settings(configuration),
        fallback=Fallback(configuration.get(flinkish.RECOVERY_FALLBACK)),
    )


def without_delta(settings: DriverSettings, configuration: Configuration, why: str) -> DriverSettings:
    """The settings of a job in a session that has no Delta Lake: it has neither the checkpoints nor the history that a
    job with a directory has by default.

    Args:
        why: what the session lacks, and what to do.

    Raises:
        EnvironmentVersionError: the configuration asks for something that is kept in Delta tables.
    """
    asked = {
        checkpointing.INTERVAL.key: settings.checkpoints.enabled and configuration.contains(checkpointing.INTERVAL),
        execution.STATE_RECOVERY_PATH.key: settings.savepoint is not None,
        flinkish.HISTORY_ENABLED.key: settings.history_enabled and configuration.contains(flinkish.HISTORY_ENABLED),
    }
    keys = [key for key, is_asked in asked.items() if is_asked]
    if keys:
        raise EnvironmentVersionError(
            why,
            where=f"configuration key '{keys[0]}'",
            expected="Delta Lake for checkpoints, for restoring savepoints and for the history",
            hint=f"without {keys[0]} the job runs, and goes on from its directory after a failure",
        )
    return replace(settings, checkpoints=replace(settings.checkpoints, interval_ms=None), history_enabled=False)


def checkpoints_path(settings: DriverSettings, directory: str, job_id: str) -> str:
    """The directory of a job's checkpoints: ``<execution.checkpointing.dir>/<job id>``, or one in the job directory."""
    if settings.checkpoints.directory is not None:
        return posixpath.join(settings.checkpoints.directory, job_id)
    return posixpath.join(directory, "checkpoints")


#: Characters that are escaped in a URI. Spark's reader of state (Spark 4.2) escapes the path and then looks for a
#: directory of the escaped name: epochs would run, and no checkpoint or savepoint could ever be written. A ``*`` is a
#: pattern to it.
_ESCAPED = re.compile(r'[\s"#%*<>?\[\\\]^`{|}\x00-\x1f\x7f]')


#: The folder of the directories of a program's further jobs.
_FURTHER_JOBS = "jobs"


#: directory that the program was given -> name of the first job that this process has run in it
_first_jobs: dict[str, str] = {}


def directory_of_job(given: str, job_name: str) -> str:
    """The directory of a job that a program with the directory ``given`` executes.

    Rule: ``flinkish.job.dir`` is the directory of a program. Its first job has the directory itself. Each further job,
    that is, one of another name, has a directory of its own below it: ``<flinkish.job.dir>/jobs/<name of the job>``. A
    job that has a directory below the given one keeps it, whichever job of the program is the first in this process.
    """
    own = posixpath.join(given.rstrip("/"), _FURTHER_JOBS, _directory_name(job_name))
    if is_directory(own):
        return own
    return given if _first_jobs.setdefault(absolute(given), job_name) == job_name else own


def may_be_directory_of(directory: str, job_name: str) -> bool:
    """Whether this directory can be that of a job of this name. Only a further job's directory is named after it."""
    above, name = posixpath.split(absolute(directory))
    return posixpath.basename(above) != _FURTHER_JOBS or name == _directory_name(job_name)


def _directory_name(job_name: str) -> str:
    """The job's name, with a digest if it is too long for a directory or has characters that do not belong there."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", job_name)[:60].strip("-_")
    return name if name == job_name else f"{name}-{hashlib.sha256(job_name.encode()).hexdigest()[:8]}".lstrip("-")


def check_path(path: str, setting: str = "flinkish.job.dir", hint: str = "choose another directory for the job") -> str:
    """Return the path if state can be read there. ``setting`` and ``hint`` are part of the error.

    Raises:
        ConfigurationError: the path has a character that Spark's reader of state cannot handle.
    """
    whole = absolute(path)
    found = _ESCAPED.search(whole)
    if found is not None:
        raise ConfigurationError(
            f"Spark cannot read state below a path with the character {found.group()!r}",
            where=f"{setting} = '{path}' ({whole})",
            expected='a path without blanks and without any of " # % * < > ? [ \\ ] ^ ` { | }',
            hint=hint,
        )
    return path


def temporary_directory() -> str:
    """Make a temporary directory for a job; returns its path.

    Raises:
        ConfigurationError: state cannot be read below the system's directory for temporary files.
    """
    place = tempfile.gettempdir()
    check_path(place, "TMPDIR", "set flinkish.job.dir, or TMPDIR to another directory")
    return tempfile.mkdtemp(prefix="flinkish-", dir=place)
