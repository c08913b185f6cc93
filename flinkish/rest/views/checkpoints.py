"""The views of checkpoints and savepoints."""

from __future__ import annotations

from collections.abc import Iterable

from flinkish.jobmanager.job.description import CheckpointDescription, JobDescription, VertexDescription
from flinkish.rest.route import Asked, NotFoundError, Route
from flinkish.rest.views.shapes import Json, job_of, statistics, vertex_in

#: Flink's interval of a job that takes no checkpoints.
_NEVER = 2**63 - 1

#: The most checkpoints that are listed (Flink's web.checkpoints.history).
HISTORY = 10

_STATUS = {"PENDING": "IN_PROGRESS"}
_CLASS = {"PENDING": "in_progress", "COMPLETED": "completed", "FAILED": "failed"}


def summary(asked: Asked) -> Json:
    """``/jobs/:jobid/checkpoints``"""
    job = job_of(asked)
    found = job.checkpoints
    completed = [one for one in found.history if one.status == "COMPLETED"]
    counts = {status: found.counts.get(status, 0) for status in _CLASS}
    durations = [one.duration_ms or 0 for one in completed]
    nothing = [0 for _ in completed]
    latest = {
        "completed": found.latest_completed,
        "savepoint": found.latest_savepoint,
        "failed": found.latest_failed,
    }
    restored = found.restored
    return {
        "counts": {
            "restored": 0 if restored is None else 1,
            "total": sum(counts.values()),
            "in_progress": counts["PENDING"],
            "completed": counts["COMPLETED"],
            "failed": counts["FAILED"],
        },
        "summary": {
            "checkpointed_size": statistics(one.bytes_written for one in completed),
            "state_size": statistics(map(state_size, completed)),
            "end_to_end_duration": statistics(durations),
            "alignment_buffered": statistics(nothing),
            "processed_data": statistics(nothing),
            "persisted_data": statistics(nothing),
        },
        "latest": {
            **{name: None if one is None else _checkpoint(job, one, asked.now_ms) for name, one in latest.items()},
            "restored": None
            if restored is None
            else {
                "id": restored.id,
                "restore_timestamp": restored.time_ms,
                "is_savepoint": restored.is_savepoint,
                "external_path": restored.path,
            },
        },
        "history": [_checkpoint(job, one, asked.now_ms) for one in reversed(found.history[-HISTORY:])],
    }


def state_size(one: CheckpointDescription) -> int:
    """The size of all state in a checkpoint."""
    return sum(one.state_bytes.values())


def _checkpoint(job: JobDescription, one: CheckpointDescription, now_ms: int, tasks: Json | None = None) -> Json:
    end_ms = None if one.duration_ms is None else one.trigger_time_ms + one.duration_ms
    found: Json = {
        "className": _CLASS[one.status],
        "id": one.id,
        "is_savepoint": one.is_savepoint,
        "savepointFormat": "CANONICAL" if one.is_savepoint else None,
        "trigger_timestamp": one.trigger_time_ms,
        "checkpoint_type": "SAVEPOINT" if one.is_savepoint else "CHECKPOINT",
        **_figures(one, job.vertices, now_ms),
        "checkpointed_size": one.bytes_written,
        "tasks": tasks or {},
    }
    if one.status == "COMPLETED":
        return {**found, "external_path": one.path or "", "discarded": _is_discarded(job, one)}
    if one.status == "FAILED":
        failed_ms = one.trigger_time_ms if end_ms is None else end_ms
        return {**found, "failure_timestamp": failed_ms, "failure_message": one.failure_reason or ""}
    return found


def _figures(one: CheckpointDescription, vertices: Iterable[VertexDescription], now_ms: int) -> Json:
    """What is told of a checkpoint as a whole, and of its part of each vertex; how much was written for one of these is
    not known, so that is the size of its state."""
    subtasks = sum(vertex.parallelism for vertex in vertices)
    uids = {operator.uid for vertex in vertices for operator in vertex.operators}
    size = sum(value for uid, value in one.state_bytes.items() if uid in uids)
    is_completed = one.status == "COMPLETED"
    duration = max(now_ms - one.trigger_time_ms, 0) if one.duration_ms is None else one.duration_ms
    return {
        "id": one.id,
        "status": _STATUS.get(one.status, one.status),
        "latest_ack_timestamp": one.trigger_time_ms + duration if is_completed else -1,
        "checkpointed_size": size,
        "state_size": size,
        "end_to_end_duration": duration,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": subtasks,
        "num_acknowledged_subtasks": subtasks if is_completed else 0,
    }


def _is_discarded(job: JobDescription, one: CheckpointDescription) -> bool:
    """Whether a checkpoint has been deleted, because later ones have taken its place."""
    if one.is_savepoint:
        return False
    completed = [
        other.id for other in job.checkpoints.history if other.status == "COMPLETED" and not other.is_savepoint
    ]
    return one.id not in completed[-job.checkpoint_settings.num_retained :]


def config(asked: Asked) -> Json:
    """``/jobs/:jobid/checkpoints/config``"""
    job = job_of(asked)
    settings = job.checkpoint_settings
    rocksdb = job.configuration.get("state.backend.type", "") == "rocksdb"
    return {
        "mode": "exactly_once",
        "interval": _NEVER if settings.interval_ms is None else settings.interval_ms,
        "timeout": settings.timeout_ms,
        "min_pause": settings.min_pause_ms,
        "max_concurrent": 1,
        "externalization": {"enabled": settings.enabled, "delete_on_cancellation": not settings.retain_on_cancellation},
        "state_backend": "EmbeddedRocksDBStateBackend" if rocksdb else "HashMapStateBackend",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": settings.tolerable_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": settings.changelog,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "delta" if settings.changelog else "",
    }


def details(asked: Asked) -> Json:
    """``/jobs/:jobid/checkpoints/details/:checkpointid``"""
    job, one = checkpoint_of(asked)
    tasks = {vertex.job_vertex_id: _figures(one, (vertex,), asked.now_ms) for vertex in job.vertices}
    return _checkpoint(job, one, asked.now_ms, tasks)


def checkpoint_of(asked: Asked) -> tuple[JobDescription, CheckpointDescription]:
    """The checkpoint or savepoint that the path names, and its job; raises `NotFoundError`."""
    job, number = job_of(asked), int(asked.path["checkpoint"])
    found = [one for one in job.checkpoints.history if one.id == number]
    if not found:
        raise NotFoundError(f"Could not find checkpointing statistics for checkpoint {number}")
    # of a checkpoint and a savepoint with one number, the checkpoint
    return job, min(found, key=lambda one: one.is_savepoint)


def subtasks(asked: Asked) -> Json:
    """``/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid``. The sizes of subtasks are those of their
    state: how much was written for each of them is not known. Those of checkpoints before the last ten are not kept."""
    job, one = checkpoint_of(asked)
    vertex = vertex_in(job, asked.path["vertex"])
    sizes = list(one.subtask_state_bytes.get(vertex.uid, ())) or [0 for _ in vertex.subtasks]
    is_completed, figures = one.status == "COMPLETED", _figures(one, (vertex,), asked.now_ms)
    duration, nothing = figures["end_to_end_duration"], [0 for _ in sizes]
    durations = [duration for _ in sizes] if is_completed else []
    return {
        **figures,
        "summary": {
            "checkpointed_size": statistics(sizes),
            "state_size": statistics(sizes),
            "end_to_end_duration": statistics(durations),
            "checkpoint_duration": {"sync": statistics(nothing), "async": statistics(nothing)},
            "alignment": dict.fromkeys(("buffered", "processed", "persisted", "duration"), statistics(nothing)),
            "start_delay": statistics(nothing),
        },
        "subtasks": [
            _completed(subtask.subtask, size, figures["latest_ack_timestamp"], duration)
            if is_completed
            else {"className": "pending", "index": subtask.subtask, "status": "pending_or_failed"}
            for subtask, size in zip(vertex.subtasks, sizes, strict=True)
        ],
    }


def _completed(index: int, size: int, acknowledged_ms: int, duration: int) -> Json:
    return {
        "className": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": acknowledged_ms,
        "end_to_end_duration": duration,
        "checkpointed_size": size,
        "state_size": size,
        "checkpoint": {"sync": 0, "async": 0},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 0,
        "unaligned_checkpoint": False,
        "aborted": False,
    }


_CHECKPOINTS = "/jobs/{job}/checkpoints"

ROUTES = (
    Route("GET", _CHECKPOINTS, summary),
    Route("GET", f"{_CHECKPOINTS}/config", config),
    Route("GET", f"{_CHECKPOINTS}/details/{{checkpoint}}", details),
    Route("GET", f"{_CHECKPOINTS}/details/{{checkpoint}}/subtasks/{{vertex}}", subtasks),
)
