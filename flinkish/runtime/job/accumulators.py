"""Accumulators, from the user functions that add to them to the totals of the job.

With each epoch a task reports only what was added in that epoch (`TaskAccumulators.take`), so it need not remember
anything from epoch to epoch. The driver merges these additions into the totals when it commits the epoch, and writes
the totals to files:

    <job dir>/accumulators/
        `StoredTotals`    the totals as of the end of an epoch
        `TotalsBefore`    the totals that a query starts with if it replaces a damaged query: those of the checkpoint

Rule: an epoch that has added anything is prepared (``epoch/files.py``), so its additions are the same however often
it is delivered. So the totals of an epoch follow from those of an earlier epoch and the prepared additions alone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flinkish.common.accumulators import Accumulator, LongCounter
from flinkish.core.metrics import Counter
from flinkish.core.sink import Fence
from flinkish.errors import CorruptStateError, ProgramError, failures_of_user_code, message_of
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_errors, storage_of

#: Version of the encoded form of accumulators.
FORMAT_VERSION = 1

#: The scope of the accumulators of user functions; the scope of the engine's own counts is the uid of the operator.
OF_THE_JOB = ""

#: Number of epochs whose totals are kept: the last epoch may be delivered again.
_KEPT = 3

#: (scope, name) -> accumulator
Accumulators = dict[tuple[str, str], Accumulator[Any, Any]]


class OperatorAccumulators:
    """The accumulators that the user function of one operator has registered in one subtask, with the engine's own
    counts of that operator."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self.registered: Accumulators = {}

    def add(self, name: str, accumulator: Accumulator[Any, Any], scope: str = OF_THE_JOB) -> None:
        """Register an accumulator and reset its local value.

        Raises:
            ProgramError: the operator already has an accumulator of that name, or the object is not an `Accumulator`.
        """
        where = f"operator uid {self._uid}"
        if not isinstance(accumulator, Accumulator):
            raise ProgramError(
                f"add_accumulator({name!r}) got a {type(accumulator).__name__}", where=where, expected="an Accumulator"
            )
        if (scope, name) in self.registered:
            raise ProgramError(
                f"The accumulator '{name}' already exists and cannot be added.",
                where=where,
                expected="a name of its own for each accumulator of an operator",
                hint="call get_accumulator(name) for the one that is there",
            )
        accumulator.reset_local()
        self.registered[scope, name] = accumulator

    def get(self, name: str) -> Accumulator[Any, Any] | None:
        """The accumulator that the user function has registered under that name, or None."""
        return self.registered.get((OF_THE_JOB, name))


class ExactCounter(Counter):
    """A counter metric of an operator that is also kept as an accumulator, so that the job's total stays exact across
    failures and restarts; the total is reported in ``counts`` of the operator. A counter that has never counted
    anything costs nothing."""

    def __init__(self, metric: Counter, name: str, accumulators: OperatorAccumulators, uid: str) -> None:
        self._metric = metric
        self._name = name
        self._accumulators = accumulators
        self._uid = uid
        self._total: LongCounter | None = None

    def inc(self, n: int = 1) -> None:
        if self._total is None:
            self._total = LongCounter()
            self._accumulators.add(self._name, self._total, self._uid)
        self._total.add(n)
        self._metric.inc(n)

    def dec(self, n: int = 1) -> None:
        self.inc(-n)

    def get_count(self) -> int:
        """The count of this task since it was opened."""
        return self._metric.get_count()


class TaskAccumulators:
    """The accumulators of all operators of a task."""

    def __init__(self, uids: Iterable[str]) -> None:
        self.operators = {uid: OperatorAccumulators(uid) for uid in uids}
        #: (operator uid, scope, name) -> encoded form of the reset accumulator, of those that were reported before
        self._told: dict[tuple[str, str, str], bytes] = {}

    def take(self, classes: ProgramClasses = NO_CLASSES) -> bytes:
        """Return, encoded, what was added since the last call, and reset the accumulators; b"" if nothing was added and
        no accumulator is new."""
        found: Accumulators = {}
        for uid, operator in self.operators.items():
            for (scope, name), accumulator in operator.registered.items():
                data = dumps(accumulator, FORMAT_VERSION, classes)
                if data == self._told.get((uid, scope, name)):
                    continue
                _merge(found, (scope, name), _decoded(data, classes))
                accumulator.reset_local()
                self._told[uid, scope, name] = dumps(accumulator, FORMAT_VERSION, classes)
        return encode_accumulators(found, classes) if found else b""

    def forget(self) -> None:
        """Drop what was added since the last `take`, because the epoch has failed."""
        for operator in self.operators.values():
            for accumulator in operator.registered.values():
                accumulator.reset_local()


def _decoded(data: bytes, classes: ProgramClasses) -> Any:
    return loads(data, FORMAT_VERSION, "an accumulator", "", classes)


def encode_accumulators(accumulators: Accumulators, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Encode accumulators, for the way to the driver and for storage."""
    return dumps(accumulators, FORMAT_VERSION, classes)


def decode_accumulators(data: bytes, classes: ProgramClasses = NO_CLASSES) -> Accumulators:
    """The inverse of `encode_accumulators`; b"" means that there are none."""
    return dict(loads(data, FORMAT_VERSION, "accumulators", "", classes)) if data else {}


def _merge(into: Accumulators, place_: tuple[str, str], accumulator: Accumulator[Any, Any]) -> None:
    there = into.get(place_)
    if there is None:
        into[place_] = accumulator
        return
    if type(there) is not type(accumulator):
        raise ProgramError(
            f"the accumulator '{place_[1]}' is of class {type(there).__name__} in one function, and of class "
            f"{type(accumulator).__name__} in another one",
            expected="one class per name, in the whole job",
            hint="give one of them another name",
        )
    there.merge(accumulator)


def merged(totals: bytes, added: Iterable[bytes], classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Merge the additions of the tasks of an epoch into the totals, and return the new totals.

    Raises:
        ProgramError: two accumulators of one name are of different classes.
    """
    result = decode_accumulators(totals, classes)
    for data in added:
        for where, accumulator in decode_accumulators(data, classes).items():
            _merge(result, where, accumulator)
    return encode_accumulators(result, classes) if result else b""


def _raise(error: ProgramError) -> Any:
    raise error


def results_of(
    totals: bytes, classes: ProgramClasses = NO_CLASSES, failed: Callable[[ProgramError], Any] = _raise
) -> dict[str, Any]:
    """The results of the accumulators of user functions, as name -> value.

    Args:
        totals: the encoded accumulators.
        classes: the classes of the program.
        failed: gives the value of an accumulator whose own ``get_local_value`` fails; by default the error is raised.
    """

    def result(name: str, accumulator: Accumulator[Any, Any]) -> Any:
        try:
            return accumulator.get_local_value()
        except failures_of_user_code() as error:
            what = f"{type(error).__name__}: {message_of(error)}"
            wrong = ProgramError(
                f"the result of the accumulator '{name}' cannot be computed: {what}",
                hint=f"correct get_local_value() of {type(accumulator).__name__}",
            )
            wrong.__cause__ = error
            return failed(wrong)

    accumulators = decode_accumulators(totals, classes).items()
    return {name: result(name, accumulator) for (scope, name), accumulator in accumulators if scope == OF_THE_JOB}


def types_of(totals: bytes, classes: ProgramClasses = NO_CLASSES) -> dict[str, str]:
    """The names of the classes of the accumulators of user functions, as name -> class."""
    accumulators = decode_accumulators(totals, classes).items()
    return {name: type(accumulator).__name__ for (scope, name), accumulator in accumulators if scope == OF_THE_JOB}


def counts_of(totals: bytes, classes: ProgramClasses = NO_CLASSES) -> dict[str, dict[str, int]]:
    """The engine's own counts, as operator uid -> name -> value."""
    found: dict[str, dict[str, int]] = {}
    for (scope, name), accumulator in decode_accumulators(totals, classes).items():
        if scope != OF_THE_JOB:
            found.setdefault(scope, {})[name] = accumulator.get_local_value()
    return found


def accumulators_directory(job_dir: str) -> str:
    """The directory of the totals of a job."""
    return posixpath.join(job_dir, "accumulators")


@dataclass(frozen=True)
class StoredTotals(StoredFile):
    """The totals as of the end of an epoch."""

    NAME = "{}.json"
    FOLDER = "accumulators"
    WHEN = "of a job with accumulators"
    REMEDY = "delete the file: the job goes on without what it had accumulated"
    DURABLE = True
    ERROR = CorruptStateError

    epoch: int
    totals: bytes

    def check_name(self, *parts: str) -> None:
        if self.epoch != int(parts[0]):
            raise ValueError(f"it is that of epoch {self.epoch}")


@dataclass(frozen=True)
class TotalsBefore(StoredTotals):
    """The totals with which a query starts that has taken the place of a damaged one, and its first epoch."""

    NAME = "before-{}.json"
    WHEN = "of a job that went back to a checkpoint"


class AccumulatorFiles:
    """Reads and writes the totals of a job in its directory. ``first_epoch`` is the first epoch of the job's query: if
    the query repeats epochs of an earlier query, what that one has added in them does not count."""

    def __init__(self, path: str, first_epoch: int = 0) -> None:
        self._path = path
        self._storage = storage_of(path)
        self._first_epoch = first_epoch

    def before(self, epoch: int | None) -> bytes:
        """The totals as of the end of the last epoch before ``epoch``, or of the last epoch at all if that is None; b""
        if there are none.

        Raises:
            CorruptStateError: the file is damaged; the error names it.
        """
        last = max((there for there in self._epochs() if epoch is None or there < epoch), default=-1)
        found: StoredTotals | None = None
        if last < self._first_epoch:
            found = TotalsBefore.read(self._path, self._first_epoch)
        if found is None and last >= 0:
            found = StoredTotals.read(self._path, last)
        return b"" if found is None else found.totals

    def begin(self, first_epoch: int, totals: bytes) -> None:
        """Write the totals with which the query starts whose first epoch is ``first_epoch``."""
        TotalsBefore(first_epoch, totals).write(self._path, first_epoch)

    def after(self, epoch: int, added: Iterable[bytes], classes: ProgramClasses) -> bytes:
        """The totals as of the end of an epoch, given the encoded additions of its tasks."""
        return merged(self.before(epoch), added, classes)

    def write(self, epoch: int, totals: bytes, fence: Fence) -> None:
        """Write the totals as of the end of an epoch, and delete old ones. An existing file of the epoch has the same
        totals, and is replaced."""
        fence.check()
        StoredTotals(epoch, totals).write(self._path, epoch)
        for old in sorted(self._epochs())[:-_KEPT]:
            StoredTotals.delete(self._path, old)

    def _epochs(self) -> list[int]:
        with storage_errors("read", self._path):
            found = [StoredTotals.parts_of(entry.name) for entry in self._storage.list(self._path)]
        return [int(parts[0]) for parts in found if parts is not None]
