"""What a job directory remembers of the savepoint that its job has begun with (`Restored`); and the deletion of
one that the job has claimed (``execution.state-recovery.claim-mode: CLAIM``), once it is subsumed.

Rule: a claimed savepoint counts as the job's first checkpoint. It is deleted when it is subsumed, that is when the job
has completed as many checkpoints of its own as are retained; never before, and never without checkpoints. In the modes
NO_CLAIM and LEGACY the savepoint is only read: all of it is copied before the first epoch, so that the job does not
depend on it later.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace

from flinkish.checkpoint.compatibility import read_states, write_states
from flinkish.checkpoint.manifest import ENDED, CheckpointDirectory, Manifest, Savepoint
from flinkish.core.source import SourcePosition, SplitSource
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import EventTimes, Restored, RestoredByFallback
from flinkish.jobmanager.job.description import RestoreDescription
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.exchange.gate import UNKNOWN, by_edge, origin_name, split_of
from flinkish.runtime.exchange.partitioners import InputDescriptor
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.phases import SystemClock
from flinkish.storage.files import child_names, delete_directory, delete_file
from flinkish.storage.paths import absolute, joined

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

_CHECKPOINT = re.compile(r"chk-\d+")


def read_restored(directory: JobDirectory) -> Restored | None:
    """The record of the savepoint or checkpoint that the job's query has begun with; None: it began with none."""
    first_epoch = directory.query_location().first_epoch
    own = directory.read(RestoredByFallback, first_epoch) if first_epoch else None
    return own or directory.read(Restored)


def check_same_savepoint(
    job: JobDescriptor, settings: DriverSettings, directory: JobDirectory, remembered: Restored | None
) -> None:
    """Refuse another savepoint than the job has begun with. The same savepoint is accepted, however its path is
    written: the same command line again is a restart."""
    began_with, path = (None, None) if remembered is None else (remembered.savepoint, remembered.path)
    if settings.savepoint is None or settings.savepoint == began_with:
        return
    if path is not None and absolute(settings.savepoint) == absolute(path):
        return
    beginning = "without a savepoint" if began_with is None else f"with the savepoint {began_with}"
    raise SavepointError(
        f"the job in this directory has begun {beginning} and has state of its own by now: it cannot be started "
        f"from {settings.savepoint}",
        where=f"job '{job.name}', directory {directory.path}",
        expected="a new job directory for each start from a savepoint",
        hint="name another flinkish.job.dir, or leave out -s / --fromSavepoint to go on from the job's own state",
    )


def remember_restored(
    directory: JobDirectory,
    job: JobDescriptor,
    claim_mode: str,
    savepoint: Savepoint,
    times: EventTimes,
    rows: str,
) -> Restored:
    """Remember that a job begins with a savepoint, and the states that the savepoint declares; returns what
    `read_restored` will return.

    Args:
        times: how far event time is.
        rows: the name of the directory of the rows for the first epoch.
    """
    uids = {descriptor.uid for vertex in job.vertices for descriptor in vertex.operators}
    known = {(state.uid, state.name): state for state in (*savepoint.manifest.states, *read_states(directory))}
    write_states(directory, tuple(state for state in known.values() if state.uid in uids))
    sources, now_ms = savepoint.manifest.sources, SystemClock().now_ms()
    remembered = Restored(
        savepoint.given, savepoint.path, rows, claim_mode, sources, times.watermarks, now_ms, splits=times.splits
    )
    directory.write(remembered)
    return remembered


def describe_restored(remembered: Restored | None) -> RestoreDescription | None:
    """What a job has been restored from last; None: it has begun without state. ``remembered``: what `read_restored`
    returns."""
    if remembered is None:
        return None
    path = remembered.checkpoint or remembered.path or remembered.savepoint
    if not path:
        return None
    name = posixpath.basename(path.rstrip("/"))
    number = int(name.removeprefix("chk-")) if _CHECKPOINT.fullmatch(name) else 0
    return RestoreDescription(number, remembered.time_ms or 0, path, is_savepoint=not number)


def with_restored_times(job: JobDescriptor, remembered: Restored | None) -> JobDescriptor:
    """The job with the event time that its query has begun with. ``remembered``: what `read_restored` returns; None:
    it has begun with no savepoint or checkpoint."""
    if remembered is None:
        return job
    return with_event_times(job, EventTimes(remembered.watermarks, remembered.splits), remembered.sources)


def with_event_times(job: JobDescriptor, times: EventTimes, positions: Mapping[str, str]) -> JobDescriptor:
    """The job, whose tasks begin with these event times, and know what holds them back: the splits that are still to be
    read according to the positions of the sources (uid -> position), each from where it was."""
    #: (uid, uid of the source) -> split -> (idle?, watermark, parallelism)
    told: dict[tuple[str, str], dict[str, tuple[bool, int, int]]] = {}
    for uid, source, parallelism, split, idle, watermark_ms in times.splits:
        told.setdefault((uid, source), {})[split] = idle, watermark_ms, parallelism
    position_of = {
        one.id: SourcePosition.decode(positions[one.head.uid], f"source uid {one.head.uid}")
        for one in job.vertices
        if isinstance(one.source, SplitSource) and one.head.uid in positions
    }
    # of what had ended no timer fires any more
    ended = {number for number, found in position_of.items() if found.complete and not found.splits}
    for vertex in sorted(job.vertices, key=lambda one: one.level):
        if vertex.inputs and ended.issuperset(one.vertex for one in vertex.inputs):
            ended.add(vertex.id)
    origins: dict[int, dict[str, tuple[int, int, bool]]] = {}
    for vertex, described in ((one, described) for one in job.vertices for described in one.inputs):
        upstream = job.vertex(described.vertex)
        if upstream.head.uid in positions:
            of_source = told.get((vertex.head.uid, upstream.head.uid), {})
            found = _restored_splits(upstream, described, position_of.get(upstream.id), of_source)
            origins.setdefault(vertex.id, {}).update(
                (by_edge(origin_name(upstream.id, split), described.edge), (described.input_index, watermark_ms, idle))
                for split, (idle, watermark_ms) in found.items()
            )
    watermarks = {one.id: times.watermarks[one.head.uid] for one in job.vertices if one.head.uid in times.watermarks}
    return replace(job, restored_watermarks=watermarks, restored_origins=origins, restored_ended=frozenset(ended))


def _restored_splits(
    source: VertexDescriptor,
    described: InputDescriptor,
    position: SourcePosition | None,
    told: dict[str, tuple[bool, int, int]],
) -> dict[str, tuple[bool, int]]:
    """Split -> (idle?, watermark), as a vertex begins with it; behind those splits others may come."""
    found = {UNKNOWN: (False, MIN_TIMESTAMP_MS)}
    if position is None:
        return found | {split: entry[:2] for split, entry in told.items()}
    if not source.one_stream:
        declared, ended = {split_of(origin) for origin in described.declared_origins}, set(position.ended)
        found |= {split: (False, MAX_WATERMARK_MS) for split in position.ended if split in declared}
        found |= {split: told[split][:2] for split, *_ in position.splits if split in told}
        told = {split: entry for split, entry in told.items() if split not in found and split not in ended}
    # those of subtasks that read one split after the other; no others have had one
    if {parallelism for _, _, parallelism in told.values()} - {source.parallelism}:
        told = dict.fromkeys(map(str, range(min(source.parallelism, len(told)))), min(told.values()))
    return found | {subtask: entry[:2] for subtask, entry in told.items()}


def subsume_claimed(directory: JobDirectory, completed: int, retained: int) -> str | None:
    """Delete the claimed savepoint if it is subsumed; to be called after each checkpoint.

    Args:
        directory: the job directory.
        completed: the number of the job's completed checkpoints that exist.
        retained: the number of checkpoints that are retained.

    Returns:
        The path of the savepoint that was deleted; None: there was nothing to delete.
    """
    if completed < retained:
        return None
    remembered = directory.read(Restored)
    if remembered is None or remembered.claim_mode != "CLAIM" or remembered.subsumed:
        return None
    if remembered.path is None:
        raise remembered.damaged(Restored.path_in(directory.path), "it does not say which savepoint was claimed")
    path = absolute(remembered.path)
    directory.fence.check()
    # what is no savepoint stays as it is
    if Manifest.NAME in child_names(path):
        delete_savepoint(Savepoint.open(path, whole=False))
    directory.write(replace(remembered, subsumed=True))
    return path


def delete_checkpoints(checkpoints: CheckpointDirectory, directory: JobDirectory, name: str) -> None:
    """Delete all checkpoints of a job that is over, those of earlier drivers, too. What cannot be deleted is logged.

    Args:
        directory: the job directory.
        name: the name of the job.
    """
    try:
        checkpoints.delete(lambda: directory.check_owner(name))
    except Exception as error:
        _LOG.warning("job '%s': its checkpoints were not deleted: %s", name, error)


def delete_savepoint(savepoint: Savepoint) -> None:
    """Delete a savepoint; or a checkpoint, with the tables that it shares if it is the last one that uses them. What
    else lies beside one stays as it is."""
    path, table = savepoint.path, savepoint.table
    # only what flinkish has written there: whatever else somebody keeps in the directory stays
    delete_file(posixpath.join(path, Manifest.NAME))
    own = posixpath.dirname(table) == path
    if own:
        delete_directory(table)
    if not child_names(path):
        delete_directory(path)
    if own:
        return
    parent = posixpath.dirname(path)
    others = [name for name in child_names(parent) if _CHECKPOINT.fullmatch(name)]
    if not any(Manifest.NAME in child_names(posixpath.join(parent, name)) for name in others):
        delete_directory(table)
        for beside in ("changes", ENDED):
            delete_directory(joined(parent, beside))
