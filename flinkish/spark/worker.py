"""The pickled job graph that travels to the Python workers, and how a worker finds its TaskManager and the number of
the running epoch, signs its errors and tunes its garbage collector."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac
import io
import os
import pickle
import re
import secrets
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from flinkish.common.configuration import Configuration
from flinkish.common.logger_levels import configure_loggers
from flinkish.common.options import core
from flinkish.core.sink import NO_FENCE, Fence, FenceOfEpochs
from flinkish.errors import FlinkishError, InternalError, UnserializableFunctionError
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.failure import decode_error, encode_error
from flinkish.runtime.job.log import forward_to_driver
from flinkish.runtime.stored.classes import NO_CLASSES, NO_FILES, ProgramClasses, ShippedFiles, at_home, qualify
from flinkish.runtime.stored.pickling import unserializable, use_fallback
from flinkish.runtime.task.open_functions import WORKER, AttemptFiles, TaskCancelled, TaskOwners
from flinkish.runtime.task.task_manager import MAX_JOBS, TaskManager, dispose_of, task_manager
from flinkish.spark.place import DRIVER, AddressBook, current_place, executor_id, task_context
from flinkish.storage.paths import local_path

#: Number of new container objects between two collections of the youngest generation. With CPython's default of 700,
#: batches of tuples look like garbage, which costs up to a fifth of the time.
THRESHOLD = 100_000
#: Upper bound of that number in a worker whose collections find next to nothing: each such collection doubles the
#: threshold, up to this. A worker in which a collection finds garbage goes back to `THRESHOLD` for good.
MOST = 16 * THRESHOLD
#: A collection that frees at most this many objects is not taken as a sign that user code creates cycles per record.
_FEW = 1_000
#: Number of tasks between two collections that traverse all objects. Only cycles wait for one; other objects are freed
#: as soon as they are unused, as always in CPython. With 50, workers were a third larger and hardly faster.
TASKS_PER_FULL_COLLECTION = 10


class WorkerCollector:
    """Tunes the garbage collector of one worker process as its tasks come and go.

    State that lives for many epochs is not traversed after each of them, and the objects that a task creates are
    traversed seldom as long as collections find no garbage.

    PySpark runs a full collection after every task. It traverses every object of the state that the worker keeps from
    epoch to epoch, which takes a third of a worker's time with 500,000 keys. Within a task, the collector traverses
    timers and values in vain, which takes up to a fifth of the time with a timer for each record.
    """

    def __init__(self) -> None:
        self._tasks = 0
        self._threshold = THRESHOLD
        #: whether a collection has found garbage
        self._finds = False

    def task_begins(self) -> None:
        """Freeze the objects that have survived the full collection after the previous task, so that the next
        collections skip them; unfreeze them every `TASKS_PER_FULL_COLLECTION` tasks."""
        if self._tasks == 0:
            gc.callbacks.append(self._collected)
            gc.set_threshold(self._threshold, 20, 20)
        self._tasks += 1
        if self._tasks % TASKS_PER_FULL_COLLECTION == 0:
            gc.unfreeze()
        else:
            gc.freeze()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        """Adapt the threshold; the garbage collector calls this before and after each collection."""
        if phase == "start" or self._finds:
            return
        if info["collected"] > _FEW:
            self._finds, self._threshold = True, THRESHOLD
        elif info["generation"] == 0:
            self._threshold = min(2 * self._threshold, MOST)
        gc.set_threshold(self._threshold, 20, 20)


_MARK = re.compile(r"<flinkish-error ([0-9a-f]{64}) (-|\d{1,19}) (-|\d{1,19})>([A-Za-z0-9+/=]+)</flinkish-error>")

_OWN_SECRET = secrets.token_bytes(32)


def secret_of(job_id: str, attempt: int) -> bytes:
    """The secret with which workers sign the errors that they send to this process in an attempt of a job. It travels
    to the workers with the work that is theirs, and nowhere else: a mark, which gets into the logs of Spark, holds only
    the signature, which is worth nothing in another attempt."""
    return hmac.new(_OWN_SECRET, f"{job_id} {attempt}".encode(), hashlib.sha256).digest()


#: Spark's local property that holds the number of the running epoch.
_BATCH_ID = "streaming.sql.batchId"

#: Session setting, one per job, that holds that number where Spark does not set the property: settings of the session
#: travel to the tasks as local properties.
_BATCH_SETTING = "spark.flinkish.batch."


class WorkerFailure(Exception):
    """Carries a typed error through the JVM inside its text, which is all that the JVM keeps of a Python exception."""


@contextmanager
def failures_marked(secret: bytes, epoch: int | None = None) -> Iterator[None]:
    """Turn the typed errors that are raised inside into a `WorkerFailure`, from whose text `typed_failure` restores
    them in the driver.

    Args:
        secret: that of the driver, as the deployment has it.
        epoch: in which the work is done; None: outside of epochs.
    """
    try:
        yield
    except FlinkishError as error:
        raise _marked(error, secret, epoch) from None


def _marked(error: FlinkishError, secret: bytes, epoch: int | None) -> WorkerFailure:
    error.place = error.place or str(current_place() or "")
    context = task_context()
    origin = Origin(epoch, None if context is None else context.taskAttemptId())
    data = base64.b64encode(encode_error(error)).decode()
    # Spark and Py4J encode the text as UTF-8 and lose the error if that fails; the data still has what it quotes
    text = str(error).encode("utf-8", "backslashreplace").decode()
    return WorkerFailure(f"{text}\n<flinkish-error {_signature(secret, origin, data)} {origin}>{data}</flinkish-error>")


class Origin(NamedTuple):
    """Where a signed error was made: in which epoch (None: outside of epochs), and in which Spark task, by the number
    that Spark calls TID (None: not in a task)."""

    epoch: int | None
    task: int | None

    def __str__(self) -> str:
        return " ".join("-" if number is None else str(number) for number in self)


def typed_failure(
    text: str, secret: bytes, epoch: int | None = None, tasks: Collection[int] = (), task: int | None = None
) -> FlinkishError | None:
    """The typed error inside the text of a Spark exception, if there is one.

    The text may quote records, so a mark counts only if it is signed with the secret, which no record can know, and was
    made where the exception comes from: one that a record repeats, from a log, is text like any other. What is signed
    outside of tasks, where epochs are planned or for a whole epoch, ends the query and with it the attempt, so that
    there is no later one in which it could be repeated. The last mark counts: it is that of the outermost error.

    Args:
        epoch: in which the exception was raised; None: outside of epochs, or by the query as a whole, whose epochs are
            translated before it, so that no mark of a task of theirs counts.
        tasks: the TIDs that Spark itself names in the exception; empty: any task may have raised it.
        task: the TID of the task of which the text is Spark's own message: only its marks count, of whatever epoch.
    """
    for signature, *numbers, data in reversed(_MARK.findall(text)):
        origin = Origin(*(None if number == "-" else int(number) for number in numbers))
        if task is not None:
            here = origin.task == task
        else:
            here = origin.epoch == epoch or origin.task is None and None in (epoch, origin.epoch)
        if not here or tasks and origin.task is not None and origin.task not in tasks:
            continue
        if hmac.compare_digest(signature, _signature(secret, origin, data)):
            with suppress(FlinkishError, ValueError):
                return decode_error(base64.b64decode(data))
    return None


def _signature(secret: bytes, origin: Origin, data: str) -> str:
    return hmac.new(secret, f"{origin} {data}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Deployment:
    """A pickled job graph, carried by the small functions that Spark sends to the workers. A worker process unpickles
    it once per attempt."""

    job_id: str
    attempt: int
    partitions: int
    blob: bytes
    #: number of the query's batch 0 among the epochs of the job
    first_epoch: int = 0
    #: of the driver that sent the deployment; it stays the same as long as the driver lives, as Spark's plans must
    fence: Fence = NO_FENCE
    #: the files in which tasks leave committables and changes of state; None: this deployment runs no epochs
    files: EpochFiles | None = None
    #: the program's files in each worker; modules among them are needed to unpickle the job graph
    shipped: ShippedFiles = NO_FILES
    #: signs the errors of the workers (`secret_of`); it must not be shown
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not self.secret:
            object.__setattr__(self, "secret", secret_of(self.job_id, self.attempt))

    @contextmanager
    def failures_marked(self) -> Iterator[None]:
        """`failures_marked` for the tasks of an epoch, in which the worker is at work for this attempt."""
        with WORKER.at_work(self._key):
            try:
                yield
            except FlinkishError as error:
                raise _marked(error, self.secret, _epoch_of(self)) from None

    @cached_property
    def version(self) -> str:
        """Identifies the attempt and its program. It differs for programs that run as the same attempt, and for the
        same program in a copied job directory."""
        files = b"" if self.files is None else self.files.prepared.encode()
        return f"{self.attempt}-{zlib.crc32(self.blob + files):08x}"

    @property
    def _key(self) -> tuple[str, str]:
        return self.job_id, self.version

    def begin_task(self) -> bool:
        """Prepare the worker for a Spark task, and check the fence at this process's first one in the epoch. To be
        called before each share of work.

        Returns whether the Spark task has just begun: further calls in the same task do nothing.

        Raises:
            FencedError: the driver has lost the job.
        """
        context = task_context()
        task = None if context is None else context.taskAttemptId()
        if task is None or _begun.get(self.job_id) != task:
            if task is None:
                self.fence.check()
            else:
                _fence_of_tasks.check(self.fence, self.job_id, self.attempt, current_epoch(self))
            _begun[self.job_id] = task
            folder = _folder_of_files()
            if folder is not None:
                self.shipped.enter(folder)
            if task is not None:
                _collector.task_begins()
                # a worker also serves jobs with other logger levels
                configure_loggers(self.job().settings.configuration)
            return True
        return False

    def task_manager(self) -> TaskManager:
        """This worker's TaskManager for the job. In a task it is closed when the attempt is over, at the latest."""
        manager = task_manager(self.job_id, self.version, self._load, self.files, self._folder_of_copies)
        if self.files is not None and manager.when_disposed is None and task_context() is not None:
            self._hold(manager, AttemptFiles(self.files.query, self.version))
        return manager

    def _hold(self, manager: TaskManager, attempt: AttemptFiles) -> None:
        """Have this worker process close what the TaskManager opens when the attempt is over.

        Raises:
            TaskCancelled: it is over.
        """
        close = partial(dispose_of, *self._key)
        if attempt.is_over():
            close()
            raise TaskCancelled("the attempt is over, and a task of it comes too late")
        manager.when_disposed = partial(WORKER.release, self._key)
        if scratch := _scratch():
            manager.owners = TaskOwners(os.path.join(scratch, "flinkish-open", f"{self.job_id}-{self.version}"))
        limits = Configuration.from_dict(manager.job.settings.configuration)
        WORKER.hold(
            self._key,
            attempt,
            close,
            limits.get(core.TASK_CANCELLATION_TIMEOUT).to_millis() / 1000,
            limits.get(core.TASK_CANCELLATION_INTERVAL).to_millis() / 1000,
            manager.owners,
            manager.close_lost,
            manager.trace,
        )

    def _folder_of_copies(self, job: JobDescriptor) -> str | None:
        """The folder in which this executor keeps copies of files of state; None: it reads the files themselves."""
        settings = job.settings
        if settings.local_state_root:
            return os.path.join(settings.local_state_root, executor_id(os.getpid()), self.job_id)
        if self.files is None or not self.files.state or task_context() is None:
            return None
        scratch = _scratch()
        if not scratch or local_path(self.files.state) is not None and not settings.recover_from_local:
            return None
        return os.path.join(scratch, "flinkish-state", self.job_id)

    def job(self) -> JobDescriptor:
        """The job graph, as this worker's TaskManager has it."""
        return self.task_manager().job

    def book(self) -> AddressBook:
        """The grouping values of the job's subtasks, computed once per worker and attempt."""
        key = self._key
        book = _books.get(key)
        if book is None:
            while len(_books) >= MAX_JOBS:
                _books.pop(next(iter(_books)))
            book = _books[key] = AddressBook(self.job(), self.partitions)
        return book

    def _load(self) -> JobDescriptor:
        if task_context() is not None:
            _prepare_worker()
        return self.unpickled_job()

    def unpickled_job(self) -> JobDescriptor:
        """The job graph, unpickled at each call: for a process that runs no tasks."""
        folder = _folder_of_files()
        if folder is not None:
            self.shipped.install(folder)
        job, classes = _unpacked(self.blob)
        assert isinstance(job, JobDescriptor)
        if folder is not None:
            cached = self.shipped.cached_files(folder)
            job = replace(job, settings=replace(job.settings, cached_files=cached))
        return replace(job, classes=classes)


def _scratch() -> str:
    """A directory on this executor's disk, which Spark deletes with the executor; "" if it names none."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]


def _folder_of_files() -> str | None:
    """The folder in which Spark keeps the shipped files; None in the driver's process."""
    from pyspark.core.files import SparkFiles

    if not SparkFiles._is_running_on_worker:
        return None
    folder = at_home(SparkFiles.getRootDirectory())
    # to the process that plans epochs, Spark names an empty folder beside those of the sessions
    return os.path.dirname(folder) if os.path.basename(folder) == PLANNING_FOLDER else folder


#: Spark's name for the folder of files of a process that plans epochs for a Python data source.
PLANNING_FOLDER = "streaming_job"


def _prepare_worker() -> None:
    """Set up pickling and logging in a worker process. The driver's process is the user's and is left as it is."""
    from pyspark import cloudpickle

    use_fallback(cloudpickle.dumps)
    forward_to_driver(also_here=executor_id(os.getpid()) != DRIVER)


#: id of a job -> the Spark task of it that began last in this process; None: outside of tasks
_begun: dict[str, int | None] = {}
_fence_of_tasks = FenceOfEpochs()
_collector = WorkerCollector()
_books: dict[tuple[str, str], AddressBook] = {}


def deploy(
    job: JobDescriptor,
    partitions: int,
    first_epoch: int = 0,
    fence: Fence = NO_FENCE,
    files: EpochFiles | None = None,
) -> Deployment:
    """Pickle a job graph.

    Args:
        partitions: the number of shuffle partitions of its query.
        first_epoch: the number of the query's batch 0 among the epochs of the job.
        fence: of this driver.
        files: see `Deployment`.

    Raises:
        UnserializableFunctionError: a function cannot be pickled; the error names its operator.
    """
    try:
        blob = _packed(job, job.classes)
    except Exception as error:
        raise _unserializable(job, error) from error
    return Deployment(job.job_id, job.attempt, partitions, blob, first_epoch, fence, files, job.settings.shipped)


def _cloudpickled(value: object) -> bytes:
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


@dataclass(frozen=True)
class DeployedClasses:
    """The pickled classes of a program, for workers that only read or write stored values and do not need the job."""

    blob: bytes
    #: signs the errors of the workers; it must not be shown
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @staticmethod
    def of(classes: ProgramClasses) -> DeployedClasses:
        """Pickle the classes of a program."""
        return DeployedClasses(_packed(None, classes))

    @staticmethod
    def of_job(job: JobDescriptor) -> DeployedClasses:
        """Pickle the classes of a job's program, for work beside its epochs."""
        return DeployedClasses(_packed(None, job.classes), secret_of(job.job_id, job.attempt))

    def classes(self) -> ProgramClasses:
        """The classes, unpickled once per worker process."""
        found = _classes.get(self.blob)
        if found is None:
            while len(_classes) >= MAX_JOBS:
                _classes.pop(next(iter(_classes)))
            found = _classes[self.blob] = _unpacked(self.blob)[1]
        return found


_classes: dict[bytes, ProgramClasses] = {}


def _packed(job: JobDescriptor | None, classes: ProgramClasses) -> bytes:
    """A job and the classes of its program, in two pickles with one memo: a class that functions of the job use is the
    very one that the second pickle names. Classes of the main module that no function uses are packed too, since the
    state may hold instances of them, except those that cannot be pickled or that refer to large data."""
    stream = io.BytesIO()
    pickler = _class_watching_pickler(stream)
    pickler.dump((None if job is None else replace(job, classes=NO_CLASSES), classes.with_main({})))
    pickler.dump({name: cls for name, cls in classes.main.items() if id(cls) in pickler.classes or _travels(cls)})
    return stream.getvalue()


def _unpacked(blob: bytes) -> tuple[JobDescriptor | None, ProgramClasses]:
    unpickler = pickle.Unpickler(io.BytesIO(blob))
    job, classes = unpickler.load()
    main = unpickler.load()
    qualify(main)
    return job, classes.with_main(main)


class _TooLarge(Exception):
    """The pickle of a class is larger than `_MAX_CLASS_BYTES`: the class refers to large data."""


class _LimitedStream(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _MAX_CLASS_BYTES:
            raise _TooLarge
        return super().write(data)


#: The largest pickle, in bytes, of a class that no function of the job uses: a method may name a large global table.
_MAX_CLASS_BYTES = 256 * 1024


def _travels(cls: type) -> bool:
    try:
        _class_watching_pickler(_LimitedStream()).dump(cls)
    except Exception:
        return False
    return True


def _class_watching_pickler(stream: io.BytesIO) -> Any:
    """Spark's pickler, which also collects the ids of the classes that it pickles in ``classes``."""
    from pyspark import cloudpickle

    class ClassWatchingPickler(cloudpickle.Pickler):
        def __init__(self) -> None:
            super().__init__(stream)  # type: ignore[no-untyped-call]
            self.classes: set[int] = set()

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type):
                self.classes.add(id(obj))
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    return ClassWatchingPickler()


def _unserializable(job: JobDescriptor, error: Exception) -> UnserializableFunctionError:
    where, value = f"job '{job.name}'", None
    for vertex in job.vertices:
        for descriptor in vertex.operators:
            try:
                _cloudpickled((descriptor.factory, [edge.partitioner for edge in descriptor.edges]))
            except Exception as inner:
                where = f"job '{job.name}', operator '{descriptor.name}' (uid {descriptor.uid})"
                error, value = inner, descriptor.factory
                break
    return unserializable(error, where, value)


def announce_batch(session: Any, deployment: Deployment, batch: int) -> None:
    """Tell the tasks of a session the number of the query's running batch.

    Needed under Spark Connect: there, the action of ``foreachBatch`` does not run in the query's own thread, and so
    lacks that thread's local properties.
    """
    session.conf.set(_BATCH_SETTING + deployment.job_id, str(batch))


@contextmanager
def numbers_announced(session: Any, deployment: Deployment) -> Iterator[None]:
    """The context of a query, at whose end the session loses the setting that `announce_batch` has made in it."""
    try:
        yield
    finally:
        with suppress(Exception):  # a session that has ended has no settings any more
            session.conf.unset(_BATCH_SETTING + deployment.job_id)


def current_epoch(deployment: Deployment) -> int:
    """The number of the running epoch. Only inside a Spark task; anywhere else an InternalError is raised."""
    epoch = _epoch_of(deployment)
    if epoch is None:
        raise InternalError("a task runs outside of an epoch", hint="please report this")
    return epoch


def _epoch_of(deployment: Deployment) -> int | None:
    """The number of the running epoch; None outside of the tasks of epochs."""
    context = task_context()
    text = None
    if context is not None:
        text = context.getLocalProperty(_BATCH_ID) or context.getLocalProperty(_BATCH_SETTING + deployment.job_id)
    return None if text is None else int(text) + deployment.first_epoch


def current_partition() -> int:
    """The number of the running Spark task's partition; 0 outside of tasks."""
    context = task_context()
    return context.partitionId() if context is not None else 0
