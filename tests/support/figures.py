"""The figures of all views: of what each of them is, since when it counts or as of when it is, who has told it, and
what stands there as long as nobody has (``tests/unit/test_figures_of_views.py``).

A figure is named by the end of its path, with points for blanks: ``metrics.read-records`` is that of any answer of REST
that ends so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

#: who tells a figure
DRIVER = "the driver, of what it does itself"
PROGRAM = "the program, its configuration, and the driver's process"
COMMITS = "the driver, of epochs that sinks have committed"
TASKS = "the tasks, when an epoch is done"
RUNNING = "the tasks, when an epoch is done and while a long one runs"
WORKERS = "the Python processes of the executors, with the reports of their tasks"
SPARK = "Spark's driver"
NOBODY = "nobody: Flink's classes want a number for what is not there"

#: since when, or as of when
NOW, ONCE, ATTEMPT = "now", "when it was", "the attempt has begun"
HERE, EVER = "this driver has the job", "the job has begun, over all drivers"
LAST, MINUTE, EPOCH = "its last report", "a minute ago, of what was told of that", "the running epoch has begun"

#: what stands there when nobody has told anything: any value, since who tells it always knows it
KNOWN = None
LEFT_OUT: tuple[Any, ...] = ()


class Row(NamedTuple):
    """What there is to say of figures of one kind."""

    view: str
    figures: str
    of: str
    since: str
    by: str
    untold: tuple[Any, ...] | None = KNOWN

    def named(self, view: str, figure: str) -> str | None:
        """What the row calls this figure; None: it is none of its figures."""
        ends = (one for one in self.figures.split() if f".{figure}".endswith(f".{one}"))
        return next(ends, None) if view == self.view else None


def _rows() -> Iterator[Row]:
    D, R, M, T, P, N, H = "description", "rest", "metrics", "text", "page", "notebook", "history"
    # ------------------------------------------------------------------ descriptions: `--json`, and what views are of
    yield Row(D, "JobDescription.start_time_ms JobDescription.end_time_ms", "the job", HERE, DRIVER)
    yield Row(D, "JobDescription.times_ms JobDescription.durations_ms", "the job's statuses", HERE, DRIVER)
    yield Row(D, "JobDescription.metrics", "the job", HERE, COMMITS)
    yield Row(D, "JobDescription.accumulators OperatorDescription.counts", "the job", EVER, COMMITS, ({},))
    totals = "epochs last_epoch records_in records_out vertices"
    yield Row(D, _of("TotalsDescription", totals), "the job", EVER, COMMITS)
    yield Row(D, _of("TotalsDescription", "drivers restarts checkpoints savepoints"), "the job", EVER, DRIVER)
    yield Row(D, "DriverDescription.pid", "the driver's process", NOW, DRIVER)
    graph = "id level parallelism max_parallelism inputs"
    yield Row(D, _of("VertexDescription", graph), "the vertex", HERE, PROGRAM)
    yield Row(D, "EdgeDescription.source SubtaskDescription.subtask", "the vertex", HERE, PROGRAM)
    yield Row(D, _of("VertexDescription", "records_in records_out"), "its subtasks", ATTEMPT, TASKS, (0,))
    running = "running_records_in running_records_out"
    yield Row(D, _of("VertexDescription", running), "its subtasks", EPOCH, RUNNING, (0,))
    yield Row(D, "VertexDescription.watermark_ms", "the subtask that is behind", LAST, RUNNING, (None,))
    yield Row(D, "VertexDescription.state_bytes", "the subtasks that have written state", LAST, TASKS, (None,))
    yield Row(D, _of("VertexDescription", "backlog backlog_age_ms"), "a source", LAST, TASKS, (None,))
    yield Row(D, "VertexDescription.backlog_splits", "a source, beside backlog", LAST, TASKS, (0,))
    done = "records_in records_out bytes_in bytes_out busy_ms backpressured_ms restored_files restored_bytes"
    yield Row(D, _of("ExecutionDescription", done), "the execution, beside told_ms", ATTEMPT, TASKS, (0,))
    yield Row(D, "ExecutionDescription.told_ms", "the execution: how old its figures are", NOW, RUNNING, (None,))
    yield Row(D, "ExecutionDescription.idle_ms", "the execution, up to told_ms", ATTEMPT, RUNNING, (0,))
    running = "running_records_in running_records_out running_bytes_in running_bytes_out running_busy_ms"
    yield Row(D, _of("ExecutionDescription", running), "the execution, beside running_epoch", EPOCH, RUNNING, (0,))
    place = "running_epoch watermark_ms stage partition task_attempt task_id pid"
    yield Row(D, _of("ExecutionDescription", place), "the execution", LAST, RUNNING, (None,))
    last = "state_bytes first_epoch last_epoch"
    yield Row(D, _of("ExecutionDescription", last), "the execution", LAST, TASKS, (None,))
    yield Row(D, _of("ExecutionDescription", "metrics accumulators"), "its functions", ATTEMPT, TASKS, ({},))
    yield Row(D, _of("ExecutionDescription", "attempt times_ms durations_ms"), "the execution", HERE, DRIVER)
    rates = "records_in records_out bytes_in bytes_out busy_ms backpressured_ms idle_ms"
    yield Row(D, _of("RatesDescription", rates), "the execution", MINUTE, RUNNING, LEFT_OUT)
    yield Row(D, _of("SlowCall", "number warnings running_ms"), "a call of the task", EPOCH, RUNNING, LEFT_OUT)
    yield Row(D, "StandbyDescription.files", "a standby task", LAST, TASKS, LEFT_OUT)
    yield Row(D, _of("AttemptDescription", "number start_time_ms end_time_ms"), "the attempt", ONCE, DRIVER)
    yield Row(D, _of("AttemptDescription", "first_epoch last_epoch"), "the attempt", ATTEMPT, COMMITS)
    yield Row(D, "CheckpointsDescription.counts", "the job", EVER, DRIVER)
    taken = "id epoch trigger_time_ms duration_ms rows_written bytes_written state_rows"
    yield Row(D, _of("CheckpointDescription", taken), "the checkpoint", ONCE, DRIVER)
    state = "state_bytes subtask_state_bytes watermarks"
    yield Row(D, _of("CheckpointDescription", state), "the checkpoint", ONCE, TASKS, LEFT_OUT)
    yield Row(D, _of("RestoreDescription", "id time_ms"), "the restore", ONCE, DRIVER)
    failure = "time_ms attempt epoch subtask restart_delay_ms"
    yield Row(D, _of("ExceptionDescription", failure), "the failure", ONCE, DRIVER)
    yield Row(D, _of("Event", "time_ms number"), "the event's subject", ONCE, DRIVER)
    epoch = "epoch duration_ms records_in records_out watermark_ms"
    yield Row(D, _of("RunningEpochDescription", epoch), "the running epoch", EPOCH, RUNNING, LEFT_OUT)
    phases = "epoch time_ms duration_ms run_ms prepare_ms commit_ms records_in records_out bytes watermark_ms plan_ms"
    yield Row(D, _of("EpochDescription", phases), "a committed epoch", ONCE, COMMITS, LEFT_OUT)
    settings = "interval_ms timeout_ms min_pause_ms max_concurrent tolerable_failures num_retained"
    yield Row(D, _of("CheckpointSettings", settings), "the job", HERE, PROGRAM)
    yield Row(D, "SlotsDescription.required", "the job", HERE, PROGRAM)
    yield Row(D, _of("SlotsDescription", "present per_task_manager waves"), "task managers", NOW, SPARK, (None,))
    areas = "framework_heap task_heap framework_off_heap task_off_heap network managed jvm_metaspace jvm_overhead"
    yield Row(D, _of("MemoryConfiguration", f"{areas} flink process python"), "a task manager", HERE, SPARK, LEFT_OUT)
    manager = "registered_ms ended_ms heartbeat_ms cores slots running_tasks"
    yield Row(D, _of("TaskManagerDescription", manager), "the task manager", NOW, SPARK)
    yield Row(D, "TaskManagerDescription.holds HeldTask.last_epoch", "the task manager", LAST, TASKS, (0,))
    peaks = "heap_max heap_peak non_heap_peak direct_peak mapped_peak"
    yield Row(D, _of("MemoryFigures", peaks), "the JVM", NOW, SPARK, (None,))
    used = "heap_used heap_committed metaspace_used metaspace_committed jvm_rss physical"
    yield Row(D, _of("MemoryFigures", used), "the JVM, and its machine", LAST, WORKERS, (None,))
    yield Row(D, _of("GarbageCollector", "count time_ms"), "the JVM", "it has begun", SPARK, LEFT_OUT)
    worker = "pid reported_ms rss_bytes"
    yield Row(D, _of("WorkerDescription", worker), "a Python process that lives", LAST, WORKERS, LEFT_OUT)
    yield Row(D, _of("LifecycleCall", "time_ms epoch pid"), "the call", ONCE, TASKS, LEFT_OUT)
    # ------------------------------------------------------------------ REST, in the words of Flink
    counted = _each("metrics.{}", "read-bytes write-bytes read-records write-records")
    yield Row(R, counted, "its executions, beside `-complete`", ATTEMPT, RUNNING, (0,))
    yield Row(R, _each("{}-complete", counted), "whether all of them have told theirs", NOW, RUNNING, (False,))
    times = _each("metrics.accumulated-{}-time", "backpressured idle busy")
    yield Row(R, times, "its executions, of what was told", ATTEMPT, RUNNING, (0,))
    statistics = _each("aggregated.{}.STATISTIC", f"{counted} {times}")
    yield Row(R, statistics, "the executions that have told theirs", ATTEMPT, RUNNING, (0,))
    yield Row(R, "subtasks.ratio subtasks.idleRatio subtasks.busyRatio", "the subtask", MINUTE, RUNNING, LEFT_OUT)
    yield Row(R, "subtasks.attempt-number", "the subtask", NOW, RUNNING, LEFT_OUT)
    yield Row(R, "end-timestamp backpressureLevel backpressure-level", "the vertex", NOW, RUNNING, (None,))
    yield Row(
        R,
        "/jobs/{job}/vertices/{vertex}/backpressure.subtasks",
        "the vertex: none has told its time",
        NOW,
        RUNNING,
        (None,),
    )
    yield Row(R, "endTimestamp", "a flame graph that nobody has asked for", NOW, NOBODY, (-1, -2, -3))
    yield Row(R, "user-accumulators.value", "a sum of the functions", ATTEMPT, TASKS, LEFT_OUT)
    not_there = "alignment_buffered processed_data persisted_data start_delay aborted unaligned_checkpoint"
    parts = _each("alignment.{}", "buffered processed persisted duration") + " checkpoint.sync checkpoint.async"
    no_summary = "alignment_buffered processed_data persisted_data start_delay checkpoint_duration.sync"
    no_summary += " checkpoint_duration.async " + _each("alignment.{}", "buffered processed persisted duration")
    not_there += f" {parts} {_each('summary.{}.STATISTIC', no_summary)}"
    yield Row(R, not_there, "no one: epochs have no alignment", NOW, NOBODY, (0, "NaN"))
    begin = "start-time end-time duration start_time"
    yield Row(R, begin, "what is named", HERE, DRIVER)
    state = "timestamps.STATE status-duration.STATE status-duration.STATE.STATISTIC"
    yield Row(R, state, "what is named", HERE, DRIVER)
    states = "tasks.STATE status-counts.STATE tasks.total jobs.STATE last-modification"
    yield Row(R, states, "the states of what is named", NOW, DRIVER)
    yield Row(R, "now subtask attempt jobs-running jobs-finished jobs-cancelled jobs-failed", "itself", NOW, DRIVER)
    graph = "parallelism maxParallelism inputs.num isStoppable pending-operators"
    yield Row(R, f"{graph} execution-config.job-parallelism execution-config.object-reuse-mode", "it", HERE, PROGRAM)
    yield Row(R, "job-execution-result", "a job that runs", NOW, DRIVER, (None,))
    yield Row(R, "entries.timestamp concurrentExceptions.timestamp truncated", "the failure", ONCE, DRIVER)
    features = _each("features.web-{}", "submit cancel rescale history")
    yield Row(R, f"refresh-interval timezone-offset {features}", "this API", NOW, PROGRAM)
    yield Row(R, "logs.size logs.mtime", "the driver's log", NOW, DRIVER)
    yield Row(R, "/overview.taskmanagers", "running jobs", NOW, SPARK)
    slots = "slots-total slots-available slotsNumber freeSlots"
    yield Row(R, slots, "task managers; where Spark does not say it, those that hold something", NOW, SPARK)
    yield Row(R, "timeSinceLastHeartbeat", "the task manager: when it was heard of", NOW, SPARK)
    yield Row(R, "assignedTasks", "it", LAST, TASKS, (0,))
    resource = "cpuCores taskHeapMemory taskOffHeapMemory managedMemory networkMemory"
    resources = " ".join(_each(f"{of}.{{}}", resource) for of in ("totalResource", "freeResource", "resource"))
    yield Row(R, resources, "its slots, as configured", HERE, SPARK, (0,))
    hardware = "hardware.cpuCores hardware.physicalMemory hardware.freeMemory hardware.managedMemory"
    yield Row(R, hardware, "the task manager", LAST, SPARK, (0,))
    areas = "frameworkHeap taskHeap frameworkOffHeap taskOffHeap networkMemory managedMemory jvmMetaspace jvmOverhead"
    areas = _each("memoryConfiguration.{}", f"{areas} totalFlinkMemory totalProcessMemory")
    yield Row(R, areas, "the task manager, as configured", HERE, SPARK, (0,))
    heap = "metrics.heapUsed metrics.heapCommitted metrics.heapMax"
    yield Row(R, f"{heap} garbageCollectors.count garbageCollectors.time", "its JVM", LAST, SPARK, (0,))
    not_there = _each("nonHeap{}", "Used Committed Max") + " " + _each("direct{} mapped{}", "Count Used Max")
    not_there += " " + _each(
        "nettyShuffleMemory{}", "Available Used Total SegmentsAvailable SegmentsUsed SegmentsTotal"
    )
    yield Row(R, f"{_each('metrics.{}', not_there)} dataPort jmxPort", "no one", NOW, NOBODY, (0, -1))
    yield Row(R, _each("counts.{}", "restored total in_progress completed STATE"), "checkpoints", EVER, DRIVER)
    taken = "trigger_timestamp latest_ack_timestamp failure_timestamp end_to_end_duration num_subtasks is_savepoint"
    taken += " num_acknowledged_subtasks checkpointed_size savepointFormat discarded id ack_timestamp index"
    yield Row(R, f"{taken} restored.restore_timestamp", "the checkpoint", ONCE, DRIVER)
    yield Row(R, "state_size", "the checkpoint: its state, as tasks held it then", ONCE, TASKS)
    summed = _each("summary.{}.STATISTIC", "checkpointed_size state_size end_to_end_duration")
    yield Row(R, summed, "completed checkpoints", HERE, DRIVER)
    latest = _each("latest.{}", "completed savepoint STATE restored")
    yield Row(R, latest, "the last one of its kind: there is none", NOW, DRIVER, (None,))
    settings = "interval timeout min_pause max_concurrent tolerable_failed_checkpoints unaligned_checkpoints"
    settings += " externalization.enabled externalization.delete_on_cancellation aligned_checkpoint_timeout"
    settings += " checkpoints_after_tasks_finish state_changelog_enabled changelog_periodic_materialization_interval"
    yield Row(R, settings, "the job", HERE, PROGRAM)
    # ------------------------------------------------------------------ metrics of REST, and of Prometheus
    counted = _each("num{}", "RecordsIn RecordsOut BytesIn BytesOut")
    rates = f"{_each('{}PerSecond', counted)} {_each('{}TimeMsPerSecond', 'busy idle backPressured')} isBackPressured"
    sums = f"{counted} {_each('accumulate{}TimeMs', 'Busy Idle BackPressured')}"
    yield Row(M, _each("task/{}", rates), "the task", MINUTE, RUNNING, (math.nan,))
    yield Row(M, _each("task/{}", sums), "the task", ATTEMPT, RUNNING, (math.nan,))
    yield Row(M, "task/stateSize", "the task", LAST, TASKS, (math.nan,))
    yield Row(M, "task/currentInputWatermark", "the task; Flink's lowest: none", LAST, RUNNING, (-(2**63),))
    scope = "flink.taskmanager_job_task_"
    yield Row(M, _each(scope + "{}", rates), "the task", MINUTE, RUNNING, LEFT_OUT)
    yield Row(M, _each(scope + "{}", f"{sums} stateSize"), "the task", ATTEMPT, RUNNING, LEFT_OUT)
    yield Row(M, scope + "currentInputWatermark", "the task", LAST, RUNNING, LEFT_OUT)
    of_operators = _each("numRecords{}", "In InPerSecond Out OutPerSecond")
    yield Row(M, _each(scope + "operator_{}", of_operators), "the chain", ATTEMPT, RUNNING, LEFT_OUT)
    yield Row(M, _each(scope + "operator_{}", "hits misses x_y c nan"), "its functions", LAST, TASKS, LEFT_OUT)
    for at in ("job/", "flink.jobmanager_job_"):
        lasted = _each("{}Time", "running restarting initializing cancelling failing") + " uptime downtime"
        yield Row(M, _each(at + "{}", lasted), "the job", HERE, DRIVER)
        restarts = "numRestarts fullRestarts numTaskFailures"
        yield Row(M, _each(at + "{}", restarts), "the job", HERE, DRIVER)
        numbers = "totalNumberOf numberOfCompleted numberOfFailed numberOfInProgress"
        yield Row(M, _each(at + "{}Checkpoints", numbers), "the job", EVER, DRIVER)
        last = _each("lastCheckpoint{}", "Duration Size FullSize RestoreTimestamp") + " lastCompletedCheckpointId"
        yield Row(M, _each(at + "{}", last), "the last checkpoint", ONCE, DRIVER, (-1,))
        yield Row(M, _each(at + "{}", "numEpochs numRecordsIn numRecordsOut"), "the job", HERE, COMMITS, (0,))
        yield Row(M, at + "lastEpochDuration", "the last epoch", ONCE, COMMITS, LEFT_OUT)
    yield Row(M, "job/lastCheckpointExternalPath", "the last checkpoint", ONCE, DRIVER, ("n/a",))
    of_cluster = "numRunningJobs Status_Process_CPU_Time Status_Process_Threads_Count"
    yield Row(M, _each("flink.jobmanager_{}", of_cluster), "the driver", NOW, DRIVER)
    slots = "numRegisteredTaskManagers taskSlotsTotal taskSlotsAvailable"
    yield Row(M, _each("flink.jobmanager_{}", slots), "its jobs", NOW, SPARK)
    yield Row(M, _each("flink.taskmanager_{}", "numTasks numSlots numSlotsAvailable"), "it", NOW, SPARK)
    memory = _each("Memory_Heap_{}", "Max Used Peak") + " Memory_Resident GarbageCollector_young_Count"
    memory += " GarbageCollector_young_Time"
    yield Row(M, _each("flink.taskmanager_Status_JVM_{}", memory), "its JVM", LAST, SPARK, LEFT_OUT)
    workers = _each("flink.taskmanager_Status_Python_Workers_{}", "Count Resident")
    yield Row(M, workers, "its Python processes that live", LAST, WORKERS, LEFT_OUT)
    # ------------------------------------------------------------------ `flinkish describe`, `flinkish list --watch`
    yield Row(T, "started driver directory attempts", "the job", HERE, DRIVER)
    yield Row(T, "epochs records", "the job", EVER, COMMITS)
    yield Row(T, "running", "the running epoch", EPOCH, RUNNING, LEFT_OUT)
    yield Row(T, "watermark", "the last epoch", LAST, COMMITS, ("none",))
    yield Row(T, "vertex/vertex vertex/state vertex/parallelism", "the vertex", NOW, DRIVER)
    yield Row(T, "vertex/in vertex/out", "the vertex; + of the running epoch", EVER, RUNNING, ("0",))
    yield Row(T, "vertex/in/s vertex/out/s", "its subtasks, if all are known", MINUTE, RUNNING, ("-",))
    yield Row(T, "vertex/busy vertex/back-pressured", "the subtask with most", MINUTE, RUNNING, ("-",))
    yield Row(T, "vertex/state.size", "the subtasks that have written state", LAST, TASKS, ("-",))
    yield Row(T, "vertex/watermark source/watermark", "the subtask that is behind", LAST, RUNNING, ("none",))
    yield Row(T, "source/source source/uid sink/sink sink/uid sink/parallelism sink/state", "it", NOW, DRIVER)
    yield Row(T, "source/lag source/oldest.waits", "the source, before its last epoch", LAST, TASKS, ("-",))
    yield Row(T, "manager/task.manager manager/status manager/ manager/heard.of", "the task manager", NOW, SPARK)
    yield Row(T, "manager/slots manager/running", "the task manager", NOW, SPARK, ("-",))
    yield Row(T, "manager/holds", "the task manager", LAST, TASKS, (0,))
    yield Row(T, "manager/heap manager/JVM", "its JVM", LAST, SPARK, ("- of -", "-"))
    yield Row(T, "manager/Python", "its Python processes that live", LAST, WORKERS, ("-",))
    taken = "kind id status epoch triggered took written state path"
    yield Row(T, _each("kind/{}", taken), "the checkpoint", ONCE, DRIVER, LEFT_OUT)
    yield Row(T, "name/name name/value", "the accumulator", EVER, COMMITS, LEFT_OUT)
    yield Row(T, _each("time/{}", "time task operator call epoch process"), "the call", ONCE, TASKS, LEFT_OUT)
    yield Row(T, "job/job job/id job/status job/directory job/restarts", "the job", HERE, DRIVER)
    yield Row(T, "job/epochs", "the job", HERE, COMMITS)
    yield Row(T, "job/in/s job/out/s", "the job, with the running epoch", MINUTE, RUNNING, ("-",))
    yield Row(T, "job/checkpoint", "the last checkpoint", ONCE, DRIVER, ("-",))
    yield Row(T, "job/watermark", "the last epoch", LAST, COMMITS, ("none",))
    # ------------------------------------------------------------------ our own page, notebooks, the history
    yield Row(P, _each("Head/{}", "epochs records.in records.out restarts"), "the job", EVER, COMMITS)
    yield Row(P, "Head/tasks.run.again", "the job", HERE, DRIVER)
    yield Row(P, "Head/watermark", "the last epoch", LAST, COMMITS)
    yield Row(P, "Watermarks/operator Watermarks/late", "the vertex", EVER, COMMITS)
    yield Row(
        P, _each("Watermarks/{}", "watermark behind.now held.back.by"), "the subtask that is behind", LAST, RUNNING
    )
    yield Row(P, "Watermarks/backlog", "the source, before its last epoch", LAST, TASKS)
    manager = "task.manager status since heard.of slots running collections"
    yield Row(P, _each("TaskManagers/{}", manager), "the task manager", NOW, SPARK)
    yield Row(P, "TaskManagers/holds TaskManagers/heap TaskManagers/JVM", "the task manager", LAST, WORKERS)
    yield Row(P, "TaskManagers/Python", "its Python processes that live", LAST, WORKERS)
    taken = "number status epoch triggered took rows state"
    yield Row(P, _each("Checkpoints/{}", taken), "the checkpoint", ONCE, DRIVER)
    yield Row(
        P, _each("State/{}", "uid operator size largest.subtask"), "subtasks that have written state", LAST, TASKS
    )
    yield Row(P, _each("Lifecycle/{}", "task operator call epoch process"), "the call", ONCE, TASKS)
    yield Row("progress", "epoch", "the epoch that is done, or that runs, with its time", NOW, COMMITS)
    yield Row("progress", "in out rate", "the job; + of the running epoch", HERE, RUNNING)
    yield Row("progress", "watermark lag backlog", "the last epoch", LAST, COMMITS)
    yield Row("progress", "checkpoint restarts", "the job", HERE, DRIVER)
    yield Row(N, "job status since directory warnings failure savepoint", "the job", HERE, DRIVER)
    yield Row(N, "epochs records restarts", "the job", EVER, COMMITS)
    yield Row(H, "time_ms attempt", "what has happened", ONCE, DRIVER)
    yield Row(H, "jobs.number", "the story", HERE, DRIVER)
    execution = "vertex subtask start_time_ms"
    yield Row(H, _each("executions.{}", execution), "an execution that has ended", ONCE, DRIVER)
    execution = "stage partition task_attempt task_id pid watermark_ms state_bytes first_epoch last_epoch metrics"
    yield Row(H, _each("executions.{}", execution), "an execution that has ended; null: not told", LAST, TASKS)
    yield Row(H, "executions.records_in executions.records_out", "its committed epochs", ATTEMPT, TASKS)
    yield Row(H, "exceptions.epoch exceptions.restart_delay_ms", "the failure", ONCE, DRIVER)
    taken = "id epoch trigger_time_ms duration_ms rows_written state_bytes watermarks"
    yield Row(H, _each("checkpoints.{}", taken), "the checkpoint", ONCE, DRIVER)
    yield Row(H, _each("task_managers.{}", "cores slots holds"), "the task manager", NOW, SPARK)
    yield Row(H, "task_managers.heap_peak task_managers.jvm_rss", "the task manager; null: not told", LAST, WORKERS)


def _each(pattern: str, names: str) -> str:
    return " ".join(each.replace("{}", name) for name in names.split() for each in pattern.split())


def _of(kind: str, names: str) -> str:
    return _each(f"{kind}.{{}}", names)


ROWS = tuple(_rows())
