"""How each subtask has spent the time of an epoch: busy, held back (back-pressured in Flink's words), or idle.

    |<--- gap --->|<------------------- duration of the epoch ------------------->|
                  | levels before | own share | levels behind, prepare, commit    |
    held back?    |     idle      |   busy    | held back?                        |

* Busy: the task has worked on its share, without its waits for Spark's JVM; and its sinks have committed.
* Held back: the JVM has not taken its output; and what remains of the epoch after its share, with the time until the
  next epoch begins, while a source before it has records that the epoch has left: it could do more and is not let. As
  in Flink this is never said of a vertex with no other one behind it.
* Idle: the rest.

Levels are a shuffle apart, so they work one after the other, and the subtasks of a worker do, too. Nothing here
compares the clocks of two machines.
"""

from __future__ import annotations

from collections.abc import Set

from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.sources.sizer import took_ms


def sources_before(job: JobDescriptor) -> dict[int, frozenset[str]]:
    """Vertex with others behind it -> the uids of the sources that its records come from."""
    found: dict[int, frozenset[str]] = {}
    for vertex in sorted(job.vertices, key=lambda one: one.level):
        own = {vertex.head.uid} if vertex.source is not None else set()
        found[vertex.id] = frozenset(own.union(*(found.get(one.vertex, frozenset()) for one in vertex.inputs)))
    followed = {one.vertex for vertex in job.vertices for one in vertex.inputs}
    return {vertex: sources for vertex, sources in found.items() if vertex in followed}


def backpressured_ms(
    job: JobDescriptor,
    report: EpochReport,
    held: Set[int],
    gap_ms: float = 0.0,
    held_before: Set[int] = frozenset(),
) -> dict[tuple[int, int], float]:
    """Vertex and subtask -> how long it was held back, for the tasks that have reported.

    Args:
        held: the vertices with others behind them before which the epoch has left records in a source.
        gap_ms: the time between the end of the epoch before and the begin of this one.
        held_before: as ``held``, of the epoch before.
    """
    level_of = {vertex.id: vertex.level for vertex in job.vertices}
    tasks = [task for task in report.tasks if task.vertex in level_of]
    of_vertex: dict[int, list[TaskReport]] = {}
    of_worker: dict[tuple[int, str], float] = {}
    for task in tasks:
        of_vertex.setdefault(task.vertex, []).append(task)
        here = level_of[task.vertex], task.worker
        of_worker[here] = of_worker.get(here, 0.0) + task.work_ms
    levels: dict[int, float] = {}
    for vertex, those in of_vertex.items():
        levels[level_of[vertex]] = max(levels.get(level_of[vertex], 0.0), took_ms(those))
    before, passed_ms = dict[int, float](), 0.0
    for level in sorted(levels):
        before[level] = passed_ms
        passed_ms += levels[level]
    found = dict[tuple[int, int], float]()
    for task in tasks:
        level, task_id = level_of[task.vertex], (task.vertex, task.subtask)
        after_ms = report.duration_ms - before[level] - of_worker[level, task.worker] - task.commit_ms
        held_ms = task.output_wait_ms
        held_ms += max(after_ms, 0.0) if task.vertex in held else 0.0
        held_ms += gap_ms if task.vertex in held_before else 0.0
        most_ms = max(report.duration_ms + gap_ms - task.busy_ms, 0.0)
        # several tasks of a subtask: where Spark reads a source, or its end is announced
        found[task_id] = min(round(held_ms, 3), most_ms, found.get(task_id, most_ms))
    return found
