"""Submits a program: turns its stream graph into a job and starts it, on Spark or in the minicluster. A start that
fails before there is anything to run is added to the history of the job, if it ran before.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from flinkish.common.configuration import Configuration
from flinkish.common.dependencies import dependencies_of
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.no_effect import note_not_needed, warn_without_effect
from flinkish.common.options import cluster, execution, flinkish
from flinkish.errors import ConfigurationError, FencedError, FlinkishError, escaped
from flinkish.graph.explain import plan_json
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Attempts, Job
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.history import HistoryWriter, Rows
from flinkish.jobmanager.history_tables import DeltaTables
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import (
    DriverSettings,
    directory_of_job,
    driver_settings,
    job_settings,
    may_be_directory_of,
    without_delta,
)
from flinkish.jobmanager.job_record import JobRecord, describe_exception, this_driver
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.job_start import JobStart
from flinkish.jobmanager.job_totals import JobTotals
from flinkish.jobmanager.observed_job import describe
from flinkish.jobmanager.restart import Restarts, from_configuration
from flinkish.jobmanager.serving import serve
from flinkish.jobmanager.signals import handle_again, stop_on_signals
from flinkish.jobmanager.submitted_program import SubmittedProgram, offer
from flinkish.launch.driver import requested_replay
from flinkish.launch.home import JOB_ID
from flinkish.launch.spark_version import spark_of_delta, spark_version
from flinkish.runtime.stored.classes import files_here
from flinkish.storage.files import is_directory
from flinkish.storage.paths import is_local

if TYPE_CHECKING:
    from flinkish.jobmanager.kept_run import KeptRun
    from flinkish.jobmanager.requests import RequestHandler
    from flinkish.jobmanager.spark_run import SparkRun
    from flinkish.runtime.job.deployment import JobDescriptor


_LOG = logging.getLogger("flinkish.JobManager")

_MINICLUSTER = "minicluster"


def submit(
    graph: StreamGraph,
    configuration: Configuration,
    job_name: str,
    *,
    chaining: bool = True,
    session: Any = None,
) -> RunClient:
    """Start a job; returns its client.

    It does not return where the program is only wanted for something else: a replay (``flinkish replay``) and a dry
    run of a restore (``execution.state-recovery.dry-run``) end the program. A replay of an epoch of another job of the
    program runs nothing here.

    Args:
        graph: the stream graph of the program.
        configuration: the whole configuration; ``execution.target: minicluster`` runs the job in this process without
            Spark.
        job_name: the name of the job in all views and messages, which is one line there.
        chaining: whether operators are chained into one task where possible.
        session: the Spark session to run in; None: the active one, or else a local one.

    Raises:
        FlinkishError: there is no PySpark, the program or the configuration is wrong, or the job's directory or
            savepoint cannot be used.
    """
    configuration.validate()
    in_minicluster = configuration.get(execution.TARGET) == _MINICLUSTER
    program = SubmittedProgram(graph, configuration, job_name := escaped(job_name), chaining)
    offer(program)
    if not in_minicluster:
        # before any module imports PySpark
        spark_version()
    replay = requested_replay()
    if replay is not None:
        if not may_be_directory_of(replay.directory, job_name):
            # the job whose epoch is asked for comes later in the program
            return _client_of_job_that_does_not_run(job_name)
        from flinkish.jobmanager.replay.replay import end_with_replay

        end_with_replay(program, replay, session)
    needed = dependencies_of(configuration)
    if needed.jars_of_flink:
        note_not_needed(", ".join(needed.jars_of_flink), "flinkish has connectors and formats of its own, in Python")
    if not in_minicluster:
        configuration = Configuration(configuration)
        configuration.remove_config(flinkish.MINICLUSTER_SHARE_FUNCTIONS.key)
    generator, plan = JobGraphGenerator(graph, job_settings(configuration), chaining), json.loads(plan_json(graph))
    if configuration.get(execution.STATE_RECOVERY_DRY_RUN):
        _end_with_report(graph, configuration, chaining, session, job_name)
    return _started(generator, configuration, job_name, plan, session)


def _started(
    generator: JobGraphGenerator, configuration: Configuration, name: str, plan: dict[str, Any], session: Any
) -> RunClient:
    """Start a job that runs; returns its client."""
    serve(configuration)
    start = _start_of(configuration, name, plan)
    submission = _Submission(start, JobManager.get().register(start))
    with stop_on_signals(live_jobs.running), submission.ended_with_its_start():
        archives = _archives(configuration, submission.client)
        start.observers += archives
        if configuration.get(execution.TARGET) == _MINICLUSTER:
            run = _minicluster_run(submission, generator, configuration, plan)
        else:
            run = _spark_run(submission, generator, configuration, session)
        run.observers += archives
        submission.begin(run)
    return submission.client


def _archives(configuration: Configuration, client: RunClient) -> list[JobObserver]:
    """What writes the archive of the job at its end, if there is to be one."""
    directory = configuration.get(cluster.ARCHIVE_DIRECTORY)
    if directory is None:
        return []
    from flinkish.rest.archive import JobArchive

    return [JobArchive(directory, client.describe)]


def _start_of(configuration: Configuration, name: str, plan: dict[str, Any]) -> JobStart:
    """What stands for the job until it has a run. Its id is that of its directory, unless a job of this process has it,
    which is about to be asked for; that of a first job may be given by whoever has started the driver."""
    settings, job_id = driver_settings(configuration), JobID(os.environ.pop(JOB_ID, None))
    with suppress(FlinkishError, OSError, ValueError):
        if settings.job_dir is not None and is_local(settings.job_dir):
            path = directory_of_job(settings.job_dir, name)
            known = JobDirectory(path).job_id() if is_directory(path) else None
            if known is not None and JobManager.get().job(known) is None:
                job_id = JobID.from_hex_string(known)
    return JobStart(job_id, name, plan, job_settings(configuration), settings)


class _Submission:
    """A job that is being submitted: its start, and the client that already serves it."""

    def __init__(self, start: JobStart, client: RunClient) -> None:
        self.start = start
        self.client = client
        self._requests: RequestHandler | None = None
        #: what is to be told of the savepoints of earlier drivers
        self._left: list[str] = []

    def owns(self, directory: JobDirectory, temporary: bool) -> None:
        """The directory is this driver's: from now on requests in it are answered."""
        from flinkish.jobmanager.requests import RequestHandler
        from flinkish.jobmanager.savepoint import sweep_savepoints

        self.start.owns(directory, temporary)
        JobManager.get().identify(self.client, directory.job_id())
        if not temporary:
            # in the midst of the start, too: an unexpected end of the process gives the directory back
            atexit.register(directory.release)
            self._requests = RequestHandler(self.client, directory)
            self.start.observers.append(self._requests)
            self._requests.open()
            self._left = sweep_savepoints(directory)
        self.start.check()

    def begin(self, run: KeptRun) -> None:
        """The run takes the place of the start, and begins."""
        run.warn_of_earlier_savepoints(self._left)
        if self._requests is not None:
            run.observers.append(self._requests)
        JobManager.get().hand_over(self.client, run)
        run.start()

    @contextmanager
    def ended_with_its_start(self) -> Iterator[None]:
        """If the start fails within the block, the job has failed; if somebody has asked it to end meanwhile, it ends
        as they wish. In both cases the directory is given back, because the process may live on."""
        try:
            yield
        except BaseException as error:
            if self.client.run is not self.start:
                raise
            if self.start.is_to_end and isinstance(error, Exception):
                _LOG.info("job '%s': its start ends, as somebody has asked for: %s", self.start.name, error)
                self.start.end()
                return
            self.start.fail(error)
            raise


def _client_of_job_that_does_not_run(job_name: str) -> RunClient:
    run = JobRun(JobID(), job_name)
    run.start()
    return RunClient(run)


def _end_with_report(
    graph: StreamGraph, configuration: Configuration, chaining: bool, session: Any, job_name: str
) -> NoReturn:
    """Carry out ``execution.state-recovery.dry-run``: print what a start would do and end the program, with exit code 0
    if it can be started, and otherwise 1.

    Raises:
        ConfigurationError: the configuration of a job in the minicluster names no savepoint.
        FlinkishError: as the start would, but for states that cannot be taken over.
    """
    from flinkish.jobmanager.dry_run import StartKind, StartReport, start_report

    if configuration.get(execution.TARGET) == _MINICLUSTER:
        from flinkish.jobmanager.minicluster_run import report_of

        if driver_settings(configuration).savepoint is None:
            raise ConfigurationError(
                "a dry run in the minicluster needs a savepoint",
                expected="execution.state-recovery.path, or -s / --fromSavepoint",
                hint="name the savepoint, or leave out execution.state-recovery.dry-run",
            )
        generator = JobGraphGenerator(graph, job_settings(configuration), chaining)
        found = StartReport(StartKind.RESTORES, None, report_of(generator, configuration, job_name))
    else:
        found = start_report(graph, configuration, chaining, session, job_name)
    sys.stdout.write(found.shown() + "\n")
    sys.stdout.flush()
    raise SystemExit(0 if found.possible else 1)


#: Keys whose settings mean something on Spark only, where they are set.
_SPARKS_KEYS = (
    flinkish.EPOCH_INTERVAL,
    flinkish.EPOCH_TIMEOUT,
    flinkish.HISTORY_ENABLED,
    flinkish.NUM_STANDBY_REPLICAS,
    flinkish.RECOVERY_FALLBACK,
)


def _minicluster_run(
    submission: _Submission, generator: JobGraphGenerator, configuration: Configuration, plan: dict[str, Any]
) -> KeptRun:
    from flinkish.checkpoint.compatibility import StateCatalog
    from flinkish.graph.job_graph import warn_of_missing_uids
    from flinkish.jobmanager.minicluster_run import MiniClusterRun, claim_directory, prepare
    from flinkish.jobmanager.progress import EventTimeWatch, SilentSplits, SlowCalls, progress_for
    from flinkish.jobmanager.task_managers import TaskManagers, this_process
    from flinkish.spark.executor_status import ReportedExecutors

    needed = dependencies_of(configuration)
    if needed.jars:
        warn_without_effect(f"adding {', '.join(needed.jars)}", "the minicluster has no JVM")
    unused = [option.key for option in _SPARKS_KEYS if configuration.contains(option)]
    if unused:
        warn_without_effect(f"setting {', '.join(unused)}", "the minicluster has nothing of the kind")
    generator.with_shipped_files(files_here(needed))
    generator.without_changelog()
    restarts, settings = Restarts(from_configuration(configuration)), driver_settings(configuration)
    start, name = submission.start, submission.start.name
    directory, temporary = claim_directory(settings, name, lambda: start.step(_WAITS_FOR_OWNER))
    submission.owns(directory, temporary)
    start.step(_doing(settings, directory))
    prepared = prepare(generator, name, settings, directory, temporary, start.job_id, start.read)
    start.check()
    job = prepared.job
    run = MiniClusterRun(prepared, settings, directory, temporary, restarts, start.machine)
    place = None if temporary else directory.path
    driver, totals = this_driver(directory.token), JobTotals(job, None if temporary else directory)
    run.record = JobRecord(run, job, plan, place, driver, lambda: run.attempts + job.attempt, totals.describe)
    run.record.accumulators = prepared.store.accumulators
    look = None if temporary else lambda: f"job directory {directory.path} (the minicluster keeps no history)"
    progress = progress_for(settings.progress, job, look, lambda: run.checkpoints.describe())
    watches = SilentSplits(job, run.warnings), EventTimeWatch(job, run.warnings), SlowCalls(job)
    run.task_managers = TaskManagers(job, run.task_manager_changed, reports=ReportedExecutors(here=this_process()))
    run.observers += [run.record, totals, run.task_managers, *watches, progress, StateCatalog(directory)]
    if not temporary or settings.savepoint is not None:
        warn_of_missing_uids(job)
    return run


#: What a start does, in words.
_WAITS_FOR_SPARK, _SHIPS = "starting Spark", "shipping files"
_WAITS_FOR_OWNER = "waits for the owner of the directory"


def _doing(settings: DriverSettings, directory: JobDirectory) -> str:
    begins = directory.job_id() is None
    return f"restoring {settings.savepoint}" if begins and settings.savepoint is not None else "preparing its plan"


def _spark_run(
    submission: _Submission,
    generator: JobGraphGenerator,
    configuration: Configuration,
    session: Any,
) -> KeptRun:
    """Claim the job's directory, and make its first plan there; returns the run."""
    from flinkish.jobmanager.preparation import Preparation, prepare_directory
    from flinkish.jobmanager.resources import fit_to_cluster
    from flinkish.jobmanager.spark_run import SparkRun
    from flinkish.spark.dependencies import ship
    from flinkish.spark.executors import check_executors
    from flinkish.spark.place import partitions_of
    from flinkish.spark.session import missing_delta
    from flinkish.spark.settings import MAX_RESULT_SIZE, check_session, note_on_results

    settings, restarts = driver_settings(configuration), Restarts(from_configuration(configuration))
    start, name = submission.start, submission.start.name
    start.step(_WAITS_FOR_SPARK)
    if session is None:
        session = _session_of(start, configuration, short_lived=_needs_no_fast_jvm(generator, settings))
    spark = session
    check_session(spark, f"job '{name}'")
    fit_to_cluster(generator, spark, configuration, start.wait_for_slots(spark, generator), lambda: start.is_to_end)
    start.check()
    missing = missing_delta(spark) if settings.needs_delta or spark_of_delta() is None else ""
    if missing:
        settings = without_delta(settings, configuration, missing)
        generator.without_changelog()
        _LOG.warning(
            "job '%s': %s: no checkpoints, no history, no restore of savepoints, no Delta tables", name, missing
        )
    start.step(_SHIPS)
    generator.with_shipped_files(start.apart(lambda: ship(spark, configuration)))
    with start.on_spark(spark):
        check_executors(spark, f"job '{name}'")
    # a session comes with a handler of PySpark's
    handle_again()
    start.check()
    directory, temporary = prepare_directory(spark, settings, name, lambda: start.step(_WAITS_FOR_OWNER))
    submission.owns(directory, temporary)
    start.step(_doing(settings, directory))
    try:
        preparation = Preparation(spark, generator, name, settings, directory, start.job_id)
        with nullcontext() if settings.savepoint is None else start.on_spark(spark):
            plan = preparation.next_plan()
        results = note_on_results(partitions_of(plan.job), spark.conf.get(MAX_RESULT_SIZE, None))
        if results is not None:
            _LOG.warning("job '%s': %s", name, results)
    except BaseException as error:
        if not start.is_to_end:
            remember_failed_start(spark, directory, settings, start.machine, error)
        raise
    run = SparkRun(spark, plan, preparation.next_plan, settings, directory, temporary, restarts, start.machine)
    run.fall_back = preparation.fall_back
    _attach(run, plan.job, json.loads(plan_json(generator.graph)), temporary, configuration)
    return run


def _session_of(start: JobStart, configuration: Configuration, *, short_lived: bool) -> Any:
    """The session of the job. Its start can be broken off, except in a notebook: that goes on, and needs PySpark's
    handler of SIGINT, which the session of another thread does not bring."""
    from flinkish.spark.session import activate, get_session, has_session

    if has_session() or not hasattr(sys.modules["__main__"], "__file__"):
        return get_session(configuration, start.name, short_lived=short_lived)
    session = start.apart(lambda: get_session(configuration, start.name, short_lived=short_lived))
    activate(session)
    return session


def _needs_no_fast_jvm(generator: JobGraphGenerator, settings: DriverSettings) -> bool:
    """Whether Spark's JVM has little to do in the job: it neither reads nor writes records or state, and the program is
    no notebook, in which something else may follow."""
    keeps_nothing = settings.job_dir is None and settings.savepoint is None and not settings.checkpoints.enabled
    return keeps_nothing and not generator.uses_data_frames() and hasattr(sys.modules["__main__"], "__file__")


def _attach(
    run: SparkRun, job: JobDescriptor, json_plan: dict[str, Any], temporary: bool, configuration: Configuration
) -> None:
    """Attach the observers of the job, in the order in which they are notified."""
    from flinkish.checkpoint.compatibility import StateCatalog
    from flinkish.graph.job_graph import warn_of_missing_uids
    from flinkish.jobmanager.checkpoint_taker import attach_checkpoints
    from flinkish.jobmanager.history_tables import delta_history
    from flinkish.jobmanager.progress import EventTimeWatch, SilentSplits, SlowCalls, TaskLogs, progress_for
    from flinkish.jobmanager.resources import ResourceWatch
    from flinkish.jobmanager.task_managers import TaskManagers
    from flinkish.spark.executor_status import status_store
    from flinkish.spark.resources import memory_of
    from flinkish.spark.session import where_to_look

    settings, directory = run.settings, run.directory
    if not temporary and settings.history_enabled:
        run.history = delta_history(run.spark, job, directory, settings)
    place, driver = (None if temporary else directory.path), this_driver(directory.token)
    totals = JobTotals(job, None if temporary else directory)
    run.record = JobRecord(run, job, json_plan, place, driver, lambda: run.attempt.job.attempt, totals.describe)
    run.read_totals()
    shown = f"{directory.path}{' (temporary)' if temporary else ''}"
    progress = progress_for(
        settings.progress, job, lambda: where_to_look(run.spark, shown), lambda: run.checkpoints.describe()
    )
    watches: tuple[JobObserver, ...]
    watches = SilentSplits(job, run.warnings), EventTimeWatch(job, run.warnings), SlowCalls(job)
    run.task_managers = TaskManagers(job, run.task_manager_changed, status_store(run.spark))
    watches = (*watches, ResourceWatch(run, job, configuration, memory_of(run.spark, configuration)))
    run.observers += [run.record, totals, TaskLogs(job), run.task_managers, *watches, progress]
    attach_checkpoints(run)
    run.observers.append(StateCatalog(directory))
    if not temporary or settings.checkpoints.enabled or settings.savepoint is not None:
        warn_of_missing_uids(job)


_HISTORY_LOG = logging.getLogger("flinkish.HistoryServer")


def remember_failed_start(
    spark: Any,
    directory: JobDirectory,
    settings: DriverSettings,
    machine: StateMachine[JobStatus],
    failure: BaseException,
) -> None:
    """Write the transitions of a job that failed before it began, and the exception with which it failed.

    Nothing is written to a directory that another driver owns, or in which no job has run. Failing to write is logged.
    """
    if not isinstance(failure, FlinkishError) or isinstance(failure, FencedError) or not settings.history_enabled:
        return
    try:
        _remember(spark, directory, settings, machine, failure)
    except Exception:
        # the failure of the start is what counts; the directory itself may be what is damaged
        _HISTORY_LOG.warning("the failed start is not in the history of %s", directory.path, exc_info=True)


def _remember(
    spark: Any,
    directory: JobDirectory,
    settings: DriverSettings,
    machine: StateMachine[JobStatus],
    failure: FlinkishError,
) -> None:
    job_id = directory.job_id()
    if job_id is None:
        return
    known, attempts = directory.read(Job), directory.read(Attempts)
    name, attempt = "" if known is None else known.name, 0 if attempts is None else attempts.attempts
    tables = DeltaTables(spark, directory.path, settings.history_retention_ms)
    history = HistoryWriter(Rows(job_id, name, directory.token), tables, settings.history_interval_ms / 1000)
    event = machine.to(JobStatus.FAILED, describe(failure))
    for told in machine.story.events:
        history.status(told, attempt)
    history.exception(describe_exception(failure, event.time_ms, attempt, None))
    history.close()
